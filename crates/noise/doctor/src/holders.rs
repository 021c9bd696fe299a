// SPDX-License-Identifier: MIT OR Apache-2.0
//! Owners of tasks and control groups. No remedy moves the tasks of Colony itself or of running jobs, and no remedy changes a
//! limit without naming its owner.
//!
//! A task belongs to Colony or to one of its jobs if an undo file of Colony or the saved job of a `colonyd` names it or one of its
//! ancestors, or if its control group is one that Colony has made. It belongs to another job if a resource manager or a
//! container engine has made its control group, or if the CPUs of that group were assigned (`cpuset.cpus`). So jobs of
//! resource managers that are not known by name are recognized by their CPUs.

use colony_node::task::TaskId;
use serde::Deserialize;

use crate::node::Node;
use crate::process::{Process, process};
use crate::root::Unread;

/// Root's undo files.
const ROOTS_FOLDER: &str = "/run/colony-undo";
/// The tree of control groups of version 2.
const GROUPS: &str = "/sys/fs/cgroup";
/// Name of the hierarchy of version 1 that Colony makes.
const HIERARCHY: &str = "name=colony-undo";
/// Digits of a container's identity that are shown, as by its engine.
const CONTAINER_DIGITS: usize = 12;

/// The owner of Colony's tasks, and of the tasks of its jobs.
const COLONY: &str = "Colony or its job";

/// Control groups that Colony, resource managers and container engines make: a part of the path, or its beginning before
/// `*`, and the owner.
const MANAGERS: [(&str, &str); 22] = [
    ("colony-spare.*", COLONY),
    ("colony-job.*", COLONY),
    ("colony-undo.*", COLONY),
    ("slurmstepd.scope", "Slurm"),
    ("slurmd.service", "Slurm"),
    ("slurm", "Slurm"),
    ("slurm_*", "Slurm"),
    ("pbs_jobs.service", "PBS"),
    ("pbspro*", "PBS"),
    ("lsf", "LSF"),
    ("htcondor", "HTCondor"),
    ("oar", "OAR"),
    ("kubepods*", "Kubernetes"),
    ("docker-*", "Docker"),
    ("docker", "Docker"),
    ("libpod-*", "Podman"),
    ("libpod_parent", "Podman"),
    ("crio-*", "CRI-O"),
    ("cri-containerd-*", "containerd"),
    ("lxc.payload.*", "LXC"),
    ("lxc", "LXC"),
    ("machine.slice", "systemd-machined"),
];

/// Tasks that a file of Colony names.
#[derive(Debug)]
struct Claim {
    tasks: Vec<TaskId>,
    /// The user whose file it is: it speaks of this user's processes only. `None` for root's.
    user: Option<u32>,
}

impl Claim {
    /// Returns `true` if the file may speak of a process of this user.
    fn covers(&self, user: Option<u32>) -> bool {
        self.user.is_none() || self.user == user
    }
}

/// The tasks that Colony has on a node.
#[derive(Debug)]
pub(crate) struct Holders {
    claims: Vec<Claim>,
    /// `true` if this user may not read the undo files.
    pub(crate) are_hidden: bool,
}

impl Holders {
    /// Reads the undo files and the saved jobs of a node.
    pub(crate) fn read(node: &Node) -> Self {
        let users = node.root.numbers("/run/user");
        let folders = std::iter::once((ROOTS_FOLDER.to_owned(), None))
            .chain(users.into_iter().map(|uid| (format!("/run/user/{uid}/colony-undo"), Some(uid))));
        let mut found = Self { claims: Vec::new(), are_hidden: false };
        found.claims.extend(saved_jobs(node));
        for (folder, user) in folders {
            match node.root.list(&folder) {
                Ok(names) => {
                    let claim =
                        |name: &String| claimed(node, &folder, name).map(|tasks| Claim { tasks, user });
                    found.claims.extend(names.iter().filter_map(claim));
                }
                // without a folder nothing is changed on this node; a user's is closed to other users
                Err(e) => found.are_hidden |= user.is_none() && matches!(e, Unread::Denied(_)),
            }
        }
        found
    }

    /// The owner of a task that no remedy may move; `None` for the node's own tasks.
    pub(crate) fn owner_of(&self, node: &Node, task: &Process) -> Option<String> {
        for (controllers, path) in task.groups(node) {
            if controllers == HIERARCHY && path != "/" {
                return Some(COLONY.into());
            }
            if let Some(manager) = manager(&path) {
                return Some(manager);
            }
        }
        if self.has_claimed(node, task) {
            return Some(COLONY.into());
        }
        let path = task.group(node)?;
        assigned(node, &path).map(|group| owner(&group))
    }

    /// Control groups of version 2 in which Colony or a job of it has a process.
    pub(crate) fn groups(&self, node: &Node) -> Vec<String> {
        let alive = |claim: &Claim, task: &TaskId| {
            let found = process(node, task.tid.try_into().ok()?)?;
            let is_right = found.id() == Some(*task) && claim.covers(found.user(node));
            is_right.then(|| found.group(node)).flatten()
        };
        let tasks = self.claims.iter().flat_map(|claim| claim.tasks.iter().map(move |task| (claim, task)));
        tasks.filter_map(|(claim, task)| alive(claim, task)).collect()
    }

    /// Returns `true` if a file of Colony names the task, its process or an ancestor.
    fn has_claimed(&self, node: &Node, task: &Process) -> bool {
        if self.claims.is_empty() {
            return false;
        }
        let user = task.user(node);
        let names = |id: TaskId| {
            let mut valid = self.claims.iter().filter(|c| c.covers(user));
            valid.any(|c| c.tasks.contains(&id))
        };
        let line = task.ancestry(node).filter_map(|p| p.id());
        task.id().into_iter().chain(line).any(names)
    }
}

/// The tasks that the undo file `name` of a folder names; `None` for another file.
fn claimed(node: &Node, folder: &str, name: &str) -> Option<Vec<TaskId>> {
    // a file that cannot be read has its process in its name
    let text = node.root.read(&format!("{folder}/{name}")).unwrap_or_default();
    undo_file_tasks(name, &text)
}

/// The jobs that daemons have saved. A `colonyd` with its files at `/run/colony` saves its job in `/run/colony-state`.
fn saved_jobs(node: &Node) -> Vec<Claim> {
    #[derive(Deserialize)]
    struct Saved {
        processes: Vec<TaskId>,
    }
    let folders =
        node.root.list("/run").unwrap_or_default().into_iter().filter(|name| name.ends_with("-state"));
    let saved = |folder: String| {
        let text = node.root.read(&format!("/run/{folder}/job.json")).ok()?;
        let job: Saved = serde_json::from_str(&text).ok()?;
        Some(Claim { tasks: job.processes, user: None })
    };
    folders.filter_map(saved).collect()
}

/// The tasks that an undo file of Colony names: the process that changed the node, then the tasks of its job. `None` if `name`
/// is not that of an undo file.
///
/// `colony-sched` writes these files; a test there keeps this reader up to date.
#[must_use]
pub fn undo_file_tasks(name: &str, text: &str) -> Option<Vec<TaskId>> {
    #[derive(Deserialize)]
    struct Saved {
        what: Content,
    }
    /// Each kind of file has one of these lists.
    #[derive(Deserialize)]
    struct Content {
        #[serde(default)]
        tasks: Vec<TaskId>,
        #[serde(default)]
        members: Vec<TaskId>,
    }
    let mut parts = name.split('.');
    let owner = TaskId { tid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? };
    // a serial number, and the kind
    parts.nth(1)?;
    let content = serde_json::from_str(text).ok().map(|saved: Saved| saved.what);
    let named = content.into_iter().flat_map(|c| [c.tasks, c.members].concat());
    Some(std::iter::once(owner).chain(named).collect())
}

/// The job, container or manager that control group `path` belongs to; `None` for groups of systemd and of users.
pub(crate) fn manager(path: &str) -> Option<String> {
    let is = |part: &str, pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => part.starts_with(beginning),
        None => part == pattern,
    };
    let of = |part: &str| MANAGERS.iter().find(|(pattern, _)| is(part, pattern)).map(|(_, owner)| *owner);
    let owner = path.split('/').find_map(of)?;
    let member = match owner {
        COLONY => None,
        _ => job(path).or_else(|| container(path)),
    };
    Some(member.map_or_else(|| owner.to_owned(), |member| format!("{owner} {member}")))
}

/// The job in a path such as `/system.slice/slurmstepd.scope/job_42/step_0`.
fn job(path: &str) -> Option<String> {
    let mut parts = path.split('/');
    let number = |part: &str| {
        let rest = part.strip_prefix("job_").or_else(|| part.strip_prefix("job."))?;
        rest.starts_with(|c: char| c.is_ascii_digit()).then(|| format!("job {rest}"))
    };
    parts.find_map(number)
}

/// The container in a path such as `/system.slice/docker-0123….scope` or `/docker/0123…`.
fn container(path: &str) -> Option<String> {
    let identity = |part: &str| {
        let part = part.trim_end_matches(".scope").rsplit('-').next()?;
        let is_identity = part.len() >= CONTAINER_DIGITS && part.bytes().all(|b| b.is_ascii_hexdigit());
        is_identity.then(|| format!("container {}", &part[..CONTAINER_DIGITS]))
    };
    path.split('/').find_map(identity)
}

/// The owner of control group `path`, by the names in it.
pub(crate) fn owner(path: &str) -> String {
    if let Some(manager) = manager(path) {
        return manager;
    }
    let uid = |part: &str| {
        let number = part.strip_prefix("user-").and_then(|p| p.strip_suffix(".slice"));
        let number = number.or_else(|| part.strip_prefix("user@")?.strip_suffix(".service"))?;
        number.parse::<u32>().ok()
    };
    if let Some(uid) = path.split('/').find_map(uid) {
        return format!("user {uid}");
    }
    let is_unit = |part: &&str| [".service", ".scope", ".slice"].iter().any(|end| part.ends_with(end));
    match path.split('/').rfind(is_unit) {
        Some(unit) => format!("systemd unit {unit}"),
        None => format!("control group {path}"),
    }
}

/// The innermost group of `path` with CPUs of its own (`cpuset.cpus`), if these are some of the job's CPUs. A group that may use
/// every CPU is left out: its CPUs were not assigned.
pub(crate) fn assigned(node: &Node, path: &str) -> Option<String> {
    let mut path = path.trim_end_matches('/');
    while !path.is_empty() {
        if let Ok(cpus) = node.cpus(&format!("{GROUPS}{path}/cpuset.cpus"))
            && !cpus.is_empty()
        {
            let is_everywhere = node.job.without(&cpus).is_empty() && node.rest.without(&cpus).is_empty();
            return (!is_everywhere && !node.hit(&cpus).is_empty()).then(|| path.to_owned());
        }
        path = path.rsplit_once('/')?.0;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_called_what_their_manager_calls_them() {
        for (path, owner_is) in [
            ("/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", "Slurm job 42"),
            ("/slurm_node7/uid_1000/job_7", "Slurm job 7"),
            ("/system.slice/slurmstepd.scope/system", "Slurm"),
            ("/lsf/cluster/job.123.456.1600000000", "LSF job 123.456.1600000000"),
            ("/system.slice/docker-0123456789abcdef0123.scope", "Docker container 0123456789ab"),
            ("/docker/0123456789abcdef0123", "Docker container 0123456789ab"),
            (
                "/kubepods.slice/kubepods-pod1.slice/cri-containerd-0123456789abcdef.scope",
                "Kubernetes container 0123456789ab",
            ),
            ("/user.slice/session-1.scope/colony-spare.77.100", "Colony or its job"),
            ("/user.slice/user-1000.slice/session-1.scope", "user 1000"),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope", "user 1000"),
            ("/system.slice/docker.service", "systemd unit docker.service"),
            ("/system.slice/chronyd.service", "systemd unit chronyd.service"),
            ("/site/a", "control group /site/a"),
        ] {
            assert_eq!(owner(path), owner_is);
        }
        assert_eq!(manager("/system.slice/chronyd.service"), None);
    }

    #[test]
    fn a_file_that_is_no_undo_file_names_nobody() {
        for name in ["lock", "spare.lock", "77.100.tasks", "a.b.c.d", ""] {
            assert_eq!(undo_file_tasks(name, ""), None, "{name}");
        }
        let owner = TaskId { tid: 77, start_ticks: 100 };
        assert_eq!(undo_file_tasks("77.100.0.tasks", "not JSON"), Some(vec![owner]));
        let text = r#"{"schema":"colony.undo/1","boot":"b","what":{"members":[{"tid":5,"start_ticks":6}]}}"#;
        let named = undo_file_tasks("77.100.0.daemon", text).expect("an undo file");
        assert_eq!(named, [owner, TaskId { tid: 5, start_ticks: 6 }]);
    }
}
