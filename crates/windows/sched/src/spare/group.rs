// SPDX-License-Identifier: MIT OR Apache-2.0
//! A control group that keeps the job's tasks on the job's CPUs, and, in version 2, everything else away from them.
//!
//! The group is made below the one that this process is in, so a job stays inside the limits of Slurm or systemd. In version 2
//! it is a threaded group: groups that have processes of their own can have such children, and single threads can enter it,
//! as the agent's must. A partition below other groups needs their consent (`cpuset.cpus.exclusive`, Linux 6.7).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use colony_node::cpu::CpuSet;
use colony_node::task::{self, TaskId};
use serde::{Deserialize, Serialize};

use super::report::Partition;
use crate::cgroup::{self, ThreadEntry};

/// Beginning of the groups' names.
const NAME: &str = "colony-spare.";
/// Time for which an emptied group may still be busy.
const RELEASE: Duration = Duration::from_secs(2);

/// A group, with what its making has changed in the groups above.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Group {
    dir: PathBuf,
    parent: PathBuf,
    version: Version,
    /// Groups in which the controller was enabled, the uppermost first.
    enabled: Vec<PathBuf>,
    /// Values of `cpuset.cpus.exclusive` of groups above.
    exclusive: Vec<(PathBuf, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Version {
    One,
    Two,
}

/// Saves the group before each change, so that the change can be undone after a crash.
pub(super) type Save<'a> = &'a mut dyn FnMut(&Group) -> io::Result<()>;

impl Group {
    /// Makes the best group that this node allows; with its kind, and the reasons why better ones are not possible.
    pub(super) fn make(
        cpus: &CpuSet,
        me: TaskId,
        save: Save<'_>,
    ) -> (Option<(Self, Partition)>, Vec<String>) {
        let mut reasons = Vec::new();
        match Self::version_2(me).and_then(|group| group.set_up_2(cpus, save, &mut reasons)) {
            Ok(made) => return (Some(made), reasons),
            Err(reason) => reasons.push(format!("cgroup v2: {reason}")),
        }
        match Self::version_1(me).and_then(|group| group.set_up_1(cpus, save)) {
            Ok(made) => return (Some(made), reasons),
            Err(reason) => reasons.push(format!("cgroup v1: {reason}")),
        }
        (None, reasons)
    }

    fn version_2(me: TaskId) -> Result<Self, String> {
        let mount = cgroup::root().ok_or("it is not mounted")?;
        let own = own_path(|controllers| controllers.is_empty()).ok_or("this process is in no group")?;
        Self::below(&mount, &own, Version::Two, me)
    }

    fn version_1(me: TaskId) -> Result<Self, String> {
        let mount =
            cgroup::mount_point("cgroup", Some("cpuset")).ok_or("the cpuset controller is not mounted")?;
        let own = own_path(|controllers| controllers.split(',').any(|c| c == "cpuset"))
            .ok_or("this process is in no cpuset")?;
        Self::below(&mount, &own, Version::One, me)
    }

    fn below(mount: &Path, own: &str, version: Version, me: TaskId) -> Result<Self, String> {
        let parent = mount.join(own.trim_start_matches('/'));
        if own.contains("/..") || !parent.is_dir() {
            return Err(format!("the group {own} of this process is not visible below {}", mount.display()));
        }
        let dir = parent.join(format!("{NAME}{}.{}", me.tid, me.start_ticks));
        Ok(Self { dir, parent, version, enabled: Vec::new(), exclusive: Vec::new() })
    }

    fn set_up_2(
        mut self,
        cpus: &CpuSet,
        save: Save<'_>,
        reasons: &mut Vec<String>,
    ) -> Result<(Self, Partition), String> {
        let made = self.enable(save).and_then(|()| {
            save(&self).map_err(|e| e.to_string())?;
            at(&self.dir, fs::create_dir(&self.dir))?;
            write(&self.dir.join("cgroup.type"), "threaded")?;
            write(&self.dir.join("cpuset.cpus"), &cpus.to_string())
        });
        if let Err(reason) = made {
            self.undo(|_| ());
            return Err(reason);
        }
        match self.partition(cpus, save) {
            Ok(kind) => Ok((self, kind)),
            Err(reason) => {
                reasons.push(format!("cpuset partition: {reason}"));
                self.give_back_exclusive();
                Ok((self, Partition::Cpuset))
            }
        }
    }

    /// Enables the controller for the children of every group from the root to the parent.
    fn enable(&mut self, save: Save<'_>) -> Result<(), String> {
        for group in self.ancestors() {
            let control = group.join("cgroup.subtree_control");
            let has = |file: &Path| {
                fs::read_to_string(file).is_ok_and(|c| c.split_whitespace().any(|c| c == "cpuset"))
            };
            if has(&control) {
                continue;
            }
            if !has(&group.join("cgroup.controllers")) {
                return Err(format!("{} has no cpuset controller", group.display()));
            }
            self.enabled.push(group);
            save(self).map_err(|e| e.to_string())?;
            write(&control, "+cpuset")?;
        }
        Ok(())
    }

    /// Groups from the root of the hierarchy to the parent.
    fn ancestors(&self) -> Vec<PathBuf> {
        // the root alone has no type
        let is_group = |dir: &&Path| dir.join("cgroup.controllers").is_file();
        let mut all: Vec<PathBuf> =
            self.parent.ancestors().take_while(is_group).map(Path::to_owned).collect();
        all.reverse();
        all
    }

    /// Takes the CPUs from every other group; the answer of the kernel is read back.
    fn partition(&mut self, cpus: &CpuSet, save: Save<'_>) -> Result<Partition, String> {
        let above: Vec<PathBuf> = self.ancestors().into_iter().skip(1).collect();
        for group in above {
            let file = group.join("cpuset.cpus.exclusive");
            let before = fs::read_to_string(&file).map_err(|e| {
                format!(
                    "below another group it needs cpuset.cpus.exclusive (Linux 6.7): {}: {e}",
                    file.display()
                )
            })?;
            let before = before.trim().to_owned();
            let old: CpuSet = before.parse().map_err(|e| format!("{}: {e}", file.display()))?;
            let both: CpuSet = old.iter().chain(cpus.iter()).collect();
            self.exclusive.push((file.clone(), before));
            save(self).map_err(|e| e.to_string())?;
            write(&file, &both.to_string())?;
        }
        if !self.exclusive.is_empty() {
            write(&self.dir.join("cpuset.cpus.exclusive"), &cpus.to_string())?;
        }
        let isolated = self.become_partition("isolated", cpus).map(|()| Partition::Isolated);
        isolated.or_else(|reason| {
            self.become_partition("root", cpus).map(|()| Partition::Balanced).map_err(|_| reason)
        })
    }

    fn become_partition(&self, kind: &str, cpus: &CpuSet) -> Result<(), String> {
        let file = self.dir.join("cpuset.cpus.partition");
        write(&file, kind)?;
        let state = at(&file, fs::read_to_string(&file))?;
        if state.trim() != kind {
            let _ = write(&file, "member");
            return Err(format!("the kernel says `{}`", state.trim()));
        }
        let effective = at(&self.dir, fs::read_to_string(self.dir.join("cpuset.cpus.effective")))?;
        match effective.trim() == cpus.to_string() {
            true => Ok(()),
            false => Err(format!("the kernel gives CPUs {} instead of {cpus}", effective.trim())),
        }
    }

    /// The state of the partition now, if it is another one than `kind`: a CPU went offline, or another program changed the
    /// groups above.
    pub(super) fn changed_from(&self, kind: Partition) -> Option<String> {
        let wanted = match kind {
            Partition::Isolated => "isolated",
            Partition::Balanced => "root",
            _ => return None,
        };
        let file = self.dir.join("cpuset.cpus.partition");
        let now = at(&file, fs::read_to_string(&file)).unwrap_or_else(|e| e);
        (now.trim() != wanted).then(|| now.trim().to_owned())
    }

    /// Has the scheduler balance the partition.
    pub(super) fn balance(&self, cpus: &CpuSet) -> Result<(), String> {
        self.become_partition("root", cpus)
    }

    fn set_up_1(self, cpus: &CpuSet, save: Save<'_>) -> Result<(Self, Partition), String> {
        save(&self).map_err(|e| e.to_string())?;
        at(&self.dir, fs::create_dir(&self.dir))?;
        let mems = at(&self.parent, read_either(&self.parent, "mems"));
        let set = mems.and_then(|mems| {
            write_either(&self.dir, "mems", mems.trim())?;
            write_either(&self.dir, "cpus", &cpus.to_string())
        });
        match set {
            Ok(()) => Ok((self, Partition::CpusetV1)),
            Err(reason) => {
                self.undo(|_| ());
                Err(reason)
            }
        }
    }

    /// The file through which a process enters the group, by writing `0`.
    pub(super) fn entry(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }

    /// The way of single threads into the group, if the kernel keeps everything outside of it off the job's CPUs.
    pub(super) fn thread_entry(&self) -> Option<ThreadEntry> {
        let file = |dir: &Path| dir.join("cgroup.threads");
        let entry = || ThreadEntry { inside: file(&self.dir), outside: file(&self.parent) };
        (self.version == Version::Two).then(entry)
    }

    /// The tasks in the group.
    pub(super) fn tasks(&self) -> Vec<i32> {
        let file = if self.version == Version::Two { "cgroup.threads" } else { "tasks" };
        let text = fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        text.lines().filter_map(|l| l.parse().ok()).collect()
    }

    /// Moves all tasks into the group above, removes the group, and undoes the changes above. `seen` gets each task that is moved. Returns
    /// what could not be undone.
    pub(super) fn undo(&self, mut seen: impl FnMut(i32)) -> Vec<String> {
        // frozen tasks fork nothing; those that leave go on
        if self.version == Version::Two {
            let _ = write(&self.dir.join("cgroup.freeze"), "1");
        }
        let since = Instant::now();
        let removed = loop {
            for tid in self.tasks() {
                seen(tid);
                let process = task::process_of(tid).unwrap_or(tid);
                // it may have ended just now
                let _ = write(&self.parent.join("cgroup.procs"), &process.to_string());
            }
            match fs::remove_dir(&self.dir) {
                Ok(()) => break Ok(()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => break Ok(()),
                Err(e) if since.elapsed() > RELEASE => break Err(e),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        let still_here = |e: String| format!("{e}; still in it: {}", self.tasks_in_words());
        let mut failed: Vec<String> = at(&self.dir, removed).err().map(still_here).into_iter().collect();
        failed.extend(self.give_back_exclusive());
        failed.extend(self.disable());
        failed
    }

    /// Returns `true` if the kernel may keep all other tasks off the group's CPUs: their affinities come back after the group's end only.
    pub(super) const fn may_be_partition(&self) -> bool {
        matches!(self.version, Version::Two)
    }

    /// Returns `true` until the group is removed.
    pub(super) fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// The tasks in the group, each with its number, name and state.
    fn tasks_in_words(&self) -> String {
        let task = |tid: i32| {
            let state = task::stat(tid).map_or('?', |stat| char::from(stat.state));
            format!("{tid} {} ({state})", task::name(tid).unwrap_or_default())
        };
        let tasks: Vec<String> = self.tasks().into_iter().map(task).collect();
        if tasks.is_empty() { "tasks that the kernel does not show".into() } else { tasks.join(", ") }
    }

    fn give_back_exclusive(&self) -> Vec<String> {
        let all = self.exclusive.iter().rev();
        all.filter_map(|(file, before)| if file.exists() { write(file, before).err() } else { None })
            .collect()
    }

    /// Disables the controller where it was enabled, except where another group uses it by now.
    fn disable(&self) -> Vec<String> {
        let unused = |group: &&PathBuf| {
            let children = fs::read_dir(group).into_iter().flatten().flatten();
            let set = |child: fs::DirEntry| fs::read_to_string(child.path().join("cpuset.cpus"));
            group.exists() && !children.filter_map(|c| set(c).ok()).any(|cpus| !cpus.trim().is_empty())
        };
        let all = self.enabled.iter().rev().filter(unused);
        all.filter_map(|group| write(&group.join("cgroup.subtree_control"), "-cpuset").err()).collect()
    }
}

/// Writes a value in one call, as files of control groups want it.
fn write(file: &Path, value: &str) -> Result<(), String> {
    use std::io::Write;
    let opened = fs::OpenOptions::new().write(true).open(file);
    at(file, opened.and_then(|mut f| f.write_all(format!("{value}\n").as_bytes())))
}

fn at<T>(path: &Path, result: io::Result<T>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", path.display()))
}

/// Files of cpusets of version 1 have a prefix, unless they are mounted without.
fn read_either(dir: &Path, name: &str) -> io::Result<String> {
    fs::read_to_string(dir.join(format!("cpuset.{name}"))).or_else(|_| fs::read_to_string(dir.join(name)))
}

fn write_either(dir: &Path, name: &str, value: &str) -> Result<(), String> {
    let prefixed = dir.join(format!("cpuset.{name}"));
    write(&if prefixed.exists() { prefixed } else { dir.join(name) }, value)
}

/// The path of this process's group in the hierarchy whose list of controllers is accepted.
fn own_path(accepts: impl Fn(&str) -> bool) -> Option<String> {
    let text = fs::read_to_string("/proc/self/cgroup").ok()?;
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let controllers = parts.next()?;
        accepts(controllers).then(|| parts.next().map(str::to_owned))?
    })
}

#[cfg(test)]
mod tests {
    use super::super::changes::{Changes, NotUndone};
    use super::*;

    #[test]
    fn a_group_that_cannot_be_removed_is_left_to_the_next_attempt_with_nothing_else() {
        let dir = tempfile::tempdir().expect("temp dir");
        let group = Group {
            dir: dir.path().join("group"),
            parent: dir.path().to_owned(),
            version: Version::One,
            enabled: Vec::new(),
            exclusive: Vec::new(),
        };
        // a folder with something in it is as busy as a group with tasks
        let busy = group.dir.join("busy");
        fs::create_dir_all(&busy).expect("ours");
        let member = TaskId { tid: 1, start_ticks: 1 };
        let whole = Changes { group: Some(group.clone()), members: vec![member], ..Changes::default() };
        let NotUndone { failures, left } = whole.undo();
        assert!(failures.iter().any(|failure| failure.contains("still in it")), "{failures:?}");
        let left = left.expect("the group");
        assert_eq!(left, Changes { group: Some(group.clone()), ..Changes::default() });
        fs::remove_dir(busy).expect("ours");
        let NotUndone { failures, left } = left.undo();
        assert!(failures.is_empty() && left.is_none() && !group.exists());
    }

    #[test]
    fn a_failed_group_leaves_nothing() {
        let dir = tempfile::tempdir().expect("temp dir");
        let group = Group {
            dir: dir.path().join("child"),
            parent: dir.path().to_owned(),
            version: Version::One,
            enabled: Vec::new(),
            exclusive: Vec::new(),
        };
        // a plain folder has no files of cpusets
        let error = group.set_up_1(&"0".parse().expect("a list"), &mut |_| Ok(())).expect_err("no cpuset");
        assert!(error.contains("No such file"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 0);
    }

    #[test]
    fn a_group_that_is_gone_is_undone_already() {
        let gone = PathBuf::from("/sys/fs/cgroup/no-such-group/child");
        let group = Group {
            parent: "/sys/fs/cgroup/no-such-group".into(),
            dir: gone,
            version: Version::Two,
            enabled: vec!["/sys/fs/cgroup/no-such-group".into()],
            exclusive: vec![("/sys/fs/cgroup/no-such-group/cpuset.cpus.exclusive".into(), String::new())],
        };
        assert_eq!(group.undo(|_| ()), Vec::<String>::new());
    }
}
