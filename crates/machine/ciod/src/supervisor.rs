// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon: links to the nodes, and a worker for each job. `ciod serve` and partitions of virtual nodes go through it
//! alike.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use colony_fship::layout;
use nix::unistd::{Group, User, getegid, geteuid, getgrouplist, getgroups};

use crate::control::{self, Identity, Order, Setup};
use crate::job::{Limits, SENTENCE};
use crate::node::{self, NodeLink, NodeState};
use crate::personality::Given;
use crate::proxy::{Network, Proxy};
use crate::spec::Files;
use crate::{CiodError, Job, JobError, JobSpec, helper};

/// Configuration of a daemon.
#[derive(Clone, Debug)]
pub struct Config {
    /// The program that a job's worker runs: `ciod` itself, or any that calls [`crate::worker_main`].
    pub worker: PathBuf,
    /// Its arguments.
    pub worker_args: Vec<OsString>,
    /// Its arguments where it shall call [`crate::proxy_main`].
    pub proxy_args: Vec<OsString>,
    /// Time that a worker looks for requests before it sleeps; `None`: for ever, on a CPU of its own.
    pub spin: Option<Duration>,
    /// Number of times that the kernel of a node looks for a reply before it halts; with [`layout::POLL`] it never
    /// halts.
    pub node_spin: u64,
    /// Timeout for nodes to ask for work after a job was launched: they may be booting.
    pub ready: Duration,
    /// Timeout for a node to end a process that is killed.
    pub grace: Duration,
}

impl Config {
    /// With `ciod` at this path as the worker's program, and what fits a machine whose CPUs are shared.
    pub fn new(worker: impl Into<PathBuf>) -> Self {
        Self {
            worker: worker.into(),
            worker_args: vec!["worker".into()],
            proxy_args: vec!["proxy".into()],
            spin: Some(Duration::from_micros(20)),
            node_spin: 2000,
            ready: Duration::from_secs(60),
            grace: Duration::from_secs(10),
        }
    }

    /// Neither side ever sleeps: the quickest replies, for a CPU each.
    #[must_use]
    pub fn polled(self) -> Self {
        Self { spin: None, node_spin: layout::POLL, ..self }
    }

    /// Both sides sleep at once: what sharing a CPU wants.
    #[must_use]
    pub fn blocking(self) -> Self {
        Self { spin: Some(Duration::ZERO), node_spin: 0, ..self }
    }
}

/// Standard streams of a job.
#[derive(Debug)]
pub struct Streams {
    /// Read by rank 0; the others read nothing.
    pub stdin: OwnedFd,
    /// Written by all.
    pub stdout: OwnedFd,
    /// Written by all.
    pub stderr: OwnedFd,
}

impl Streams {
    /// Nothing in, and this for what comes out.
    ///
    /// # Errors
    /// If `/dev/null` cannot be opened.
    pub fn output(stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Self> {
        Ok(Self { stdin: std::fs::File::open("/dev/null")?.into(), stdout, stderr })
    }

    /// The standard streams of this process.
    ///
    /// # Errors
    /// If one is closed.
    pub fn inherit() -> io::Result<Self> {
        Ok(Self {
            stdin: io::stdin().as_fd().try_clone_to_owned()?,
            stdout: io::stdout().as_fd().try_clone_to_owned()?,
            stderr: io::stderr().as_fd().try_clone_to_owned()?,
        })
    }
}

/// The daemon of an I/O node.
///
/// It never maps a window: what could go wrong with a node goes wrong in a job's worker, which is the user.
#[derive(Debug)]
pub struct Ciod {
    config: Config,
    nodes: Mutex<BTreeMap<u32, NodeLink>>,
    given: Mutex<Given>,
}

impl Ciod {
    /// A daemon without nodes.
    ///
    /// # Errors
    /// If the worker's program is not there.
    pub fn new(config: Config) -> Result<Self, CiodError> {
        std::fs::metadata(&config.worker)
            .map_err(CiodError::system(format!("the worker's program {}", config.worker.display())))?;
        Ok(Self { config, nodes: Mutex::default(), given: Mutex::default() })
    }

    /// Attaches a node: makes the link with it, a window of this many bytes (a power of two, 16 MiB … 64 GiB) and bells. A
    /// node that was attached before is started anew and gets a new link.
    ///
    /// # Errors
    /// [`CiodError`], above all if the node is in a job.
    pub fn attach(&self, number: u32, window: u64) -> Result<NodeLink, CiodError> {
        self.attach_with_room(number, window, window)
    }

    /// As [`Ciod::attach`], with so much of the window as memory of processes. They can reserve the addresses behind it,
    /// which take memory of this machine where something is written.
    ///
    /// # Errors
    /// As [`Ciod::attach`].
    pub fn attach_with_room(&self, number: u32, memory: u64, window: u64) -> Result<NodeLink, CiodError> {
        let mut nodes = self.lock();
        if nodes.get(&number).is_some_and(|old| old.state() == NodeState::Busy) {
            return Err(CiodError::NodeBusy(number));
        }
        let link = NodeLink::new(number, memory, window, self.config.node_spin)?;
        nodes.insert(number, link.clone());
        Ok(link)
    }

    /// The links of the attached nodes, by number.
    pub fn nodes(&self) -> Vec<NodeLink> {
        self.lock().values().cloned().collect()
    }

    /// The link of an attached node.
    pub fn node(&self, number: u32) -> Option<NodeLink> {
        self.lock().get(&number).cloned()
    }

    /// Gives an attached node its personality, which it keeps if it is attached again. Jobs are told of it from the next
    /// launch on.
    ///
    /// # Errors
    /// [`CiodError::NoNode`], and [`CiodError::NotCompute`] for the personality of an I/O node.
    pub fn give(&self, number: u32, personality: &colony_model::Personality) -> Result<(), CiodError> {
        self.node(number).ok_or(CiodError::NoNode(number))?;
        self.given().give(number, personality)
    }

    /// Sets torus and pset size of a job to those of its nodes' personalities, if they were given any. [`Ciod::launch`]
    /// does so itself.
    ///
    /// # Errors
    /// [`JobError::Spec`] if the nodes are not those of one partition in order, or the job contradicts their personalities.
    pub fn prepare(&self, spec: &mut JobSpec, nodes: &[u32]) -> Result<(), JobError> {
        self.given().apply(spec, nodes)
    }

    fn given(&self) -> MutexGuard<'_, Given> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, NodeLink>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the proxy of a node that shares no memory with this machine: a process that speaks with it by frames and
    /// plays it towards the workers. It has the rights of nobody, and ends with the value that is returned.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn proxy(&self, node: &NodeLink, network: Network) -> io::Result<Proxy> {
        Proxy::start(&self.config.worker, &self.config.proxy_args, node, network)
    }

    /// Starts a job on the nodes of these numbers: makes a worker, which waits for the nodes to ask for work. [`Job::wait`]
    /// tells what goes wrong from then on.
    ///
    /// # Errors
    /// [`JobError`] for what can be seen at once; then the nodes are free as before.
    pub fn launch(&self, mut spec: JobSpec, nodes: &[u32], streams: Streams) -> Result<Job, JobError> {
        let count = u32::try_from(nodes.len()).map_err(|_| JobError::Spec("too many nodes".into()))?;
        self.prepare(&mut spec, nodes)?;
        let size = spec.size(count)?;
        let identity = identity(&spec)?;
        let attached = self.lock();
        let link = |number: &u32| attached.get(number).cloned().ok_or(JobError::NoNode(*number));
        let nodes = &nodes.iter().map(link).collect::<Result<Vec<_>, _>>()?;
        let taken = Taken::take(nodes)?;
        drop(attached);
        let setup = Setup {
            identity,
            nodes: self.given().setups(&spec, nodes, count),
            spin_ns: self.config.spin.map(|d| d.as_nanos().try_into().unwrap_or(u64::MAX)),
            ready_ms: self.config.ready.as_millis().try_into().unwrap_or(u64::MAX),
            grace_ms: self.config.grace.as_millis().try_into().unwrap_or(u64::MAX),
            spec,
        };
        let limits = Limits {
            ready: self.config.ready,
            timeout: setup.spec.timeout()?,
            // to end the processes, to ask for more work, and something for a machine that is busy
            kill: self.config.grace.saturating_mul(3).saturating_add(control::DRAIN),
        };
        let job = self.spawn(setup, nodes, (size, limits), &streams);
        let job = job.map_err(|e| JobError::System(format!("starting the job's worker: {e}")))?;
        taken.keep();
        Ok(job)
    }

    fn spawn(
        &self,
        setup: Setup,
        nodes: &[NodeLink],
        (size, limits): (u32, Limits),
        streams: &Streams,
    ) -> io::Result<Job> {
        let alarm = node::bell()?;
        let (ours, mut child) = helper::start(&self.config.worker, &self.config.worker_args)?;
        let said = (|| {
            ours.set_read_timeout(Some(SENTENCE))?;
            control::send(&ours, &Order::Setup(Box::new(setup)))?;
            control::send_fds(
                &ours,
                &[streams.stdin.as_fd(), streams.stdout.as_fd(), streams.stderr.as_fd()],
            )?;
            for node in nodes {
                control::send_fds(&ours, &[node.memory(), node.bell_to_daemon()])?;
                control::send_fds(&ours, &node.bells_to_node())?;
            }
            Ok(())
        })();
        if let Err(e) = said {
            let _ = child.kill();
            let _ = child.wait();
            return Err(e);
        }
        Ok(Job::new(ours, alarm, child, nodes.to_vec(), size, limits))
    }
}

/// Nodes that become free again unless they are kept.
struct Taken<'a>(&'a [NodeLink]);

impl<'a> Taken<'a> {
    fn take(nodes: &'a [NodeLink]) -> Result<Self, JobError> {
        for (n, node) in nodes.iter().enumerate() {
            let mut state = node.lock();
            let refused = match *state {
                NodeState::Free => {
                    *state = NodeState::Busy;
                    continue;
                }
                NodeState::Busy => JobError::NodeBusy(node.number()),
                NodeState::Lost => JobError::NodeLost(node.number()),
            };
            drop(state);
            drop(Self(&nodes[..n]));
            return Err(refused);
        }
        Ok(Self(nodes))
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for node in self.0 {
            *node.lock() = NodeState::Free;
        }
    }
}

/// Looks up who the job runs as.
fn identity(spec: &JobSpec) -> Result<Identity, JobError> {
    let (uid, gid) = (geteuid(), getegid());
    let root = uid.is_root();
    let system = |e: nix::Error| JobError::System(format!("looking up the user: {e}"));
    let user = match &spec.user {
        None => User::from_uid(uid).map_err(system)?,
        Some(name) => Some(find_user(name)?),
    };
    let new_uid = user.as_ref().map_or(uid, |u| u.uid);
    let new_gid = match (&spec.group, &user) {
        (Some(name), _) => find_group(name)?,
        (None, Some(user)) if new_uid != uid => user.gid,
        _ => gid,
    };
    let groups = match (&spec.groups, &user) {
        (Some(names), _) => names.iter().map(|n| find_group(n)).collect::<Result<Vec<_>, _>>()?,
        (None, Some(user)) if new_uid != uid => {
            let name = std::ffi::CString::new(user.name.as_str()).unwrap_or_default();
            getgrouplist(&name, new_gid).map_err(system)?
        }
        _ => getgroups().map_err(system)?,
    };
    let identity = Identity {
        uid: new_uid.as_raw(),
        gid: new_gid.as_raw(),
        groups: groups.iter().map(|g| g.as_raw()).collect(),
        take: root,
    };
    if !root {
        let wish = |what: &str| Err(JobError::NeedsRoot(what.into()));
        if new_uid != uid {
            return wish("another user than the caller");
        }
        if new_gid != gid {
            return wish("another group than the caller's");
        }
        if spec.groups.is_some() {
            return wish("a choice of supplementary groups");
        }
        if spec.files != Files::Host {
            return wish("another file system than the caller's");
        }
    }
    Ok(identity)
}

fn find_user(name: &str) -> Result<User, JobError> {
    let unknown = || JobError::NoUser(name.to_owned());
    if let Some(user) = User::from_name(name).map_err(|_| unknown())? {
        return Ok(user);
    }
    let number = name.parse::<u32>().map_err(|_| unknown())?;
    if number == u32::MAX {
        return Err(unknown());
    }
    let uid = nix::unistd::Uid::from_raw(number);
    if let Ok(Some(user)) = User::from_uid(uid) {
        return Ok(user);
    }
    // a number without a name is a user too, of a group with the same number
    Ok(User {
        name: name.to_owned(),
        uid,
        gid: nix::unistd::Gid::from_raw(number),
        passwd: Default::default(),
        gecos: Default::default(),
        dir: PathBuf::from("/"),
        shell: PathBuf::new(),
    })
}

fn find_group(name: &str) -> Result<nix::unistd::Gid, JobError> {
    let unknown = || JobError::NoGroup(name.to_owned());
    if let Some(group) = Group::from_name(name).map_err(|_| unknown())? {
        return Ok(group.gid);
    }
    let number = name.parse::<u32>().ok().filter(|&n| n != u32::MAX).ok_or_else(unknown)?;
    Ok(nix::unistd::Gid::from_raw(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut JobSpec)) -> Result<Identity, JobError> {
        let mut spec = JobSpec::new("/bin/a");
        change(&mut spec);
        identity(&spec)
    }

    #[test]
    fn unknown_users_and_groups_are_errors() {
        let odd = "no such name!".to_owned();
        assert_eq!(spec(|s| s.user = Some(odd.clone())), Err(JobError::NoUser(odd.clone())));
        assert_eq!(spec(|s| s.group = Some(odd.clone())), Err(JobError::NoGroup(odd.clone())));
        assert_eq!(spec(|s| s.groups = Some(vec![odd.clone()])), Err(JobError::NoGroup(odd.clone())));
        let minus_one = u32::MAX.to_string();
        assert!(spec(|s| s.user = Some(minus_one)).is_err(), "setuid takes it for nothing to do");
    }

    #[test]
    fn the_caller_is_the_default_and_others_need_root() {
        let me = spec(|_| ()).expect("me");
        assert_eq!(me.uid, geteuid().as_raw());
        let other = spec(|s| s.user = Some("12345".into()));
        if geteuid().is_root() {
            let other = other.expect("root may");
            assert_eq!((other.uid, other.gid, other.take), (12345, 12345, true));
            assert!(!other.groups.contains(&0), "root's groups are not passed on");
        } else {
            assert!(matches!(other, Err(JobError::NeedsRoot(_))));
        }
    }

    #[test]
    fn a_node_is_in_one_job_at_a_time() {
        let link = NodeLink::new(5, 16 << 20, 16 << 20, 0).expect("link");
        let two = [NodeLink::new(4, 16 << 20, 16 << 20, 0).expect("link"), link.clone()];
        let taken = Taken::take(std::slice::from_ref(&link)).expect("free");
        assert_eq!(Taken::take(&two).err(), Some(JobError::NodeBusy(5)));
        assert_eq!(two[0].state(), NodeState::Free, "given back");
        drop(taken);
        assert!(Taken::take(&two).is_ok());
    }
}
