// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes and their threads, as the files of `/proc` show them.

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;

use crate::node::Node;
use crate::root::Unread;
use crate::touches::thread_source;

/// Most threads that are read. With more, a rule is undecided.
const MOST: usize = 1 << 17;
/// The files that show processes.
const STATS: &str = "/proc/<pid>/stat";
/// Longest chain of parents that is followed.
const ANCESTORS: usize = 1000;
/// A thread that its kernel code bound to its CPU (`PF_NO_SETAFFINITY`).
const NO_SETAFFINITY: u64 = 0x0400_0000;
/// `PF_KTHREAD`.
const KERNEL_THREAD: u64 = 0x0020_0000;
const FIFO: u64 = 1;
const ROUND_ROBIN: u64 = 2;
const DEADLINE: u64 = 6;

/// A task by its `stat` (`proc_pid_stat(5)`).
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) priority: u64,
    parent: u32,
    start_ticks: u64,
    flags: u64,
    policy: u64,
}

impl Process {
    fn read(node: &Node, pid: u32, tid: u32) -> Option<Self> {
        let text = node.root.read(&format!("/proc/{pid}/task/{tid}/stat")).ok();
        let text = text.or_else(|| node.root.read(&format!("/proc/{tid}/stat")).ok())?;
        // a name may hold parentheses and blanks itself
        let (open, close) = (text.find('(')?, text.rfind(')')?);
        let name = text.get(open + 1..close)?.to_owned();
        let rest: Vec<&str> = text.get(close + 1..)?.split_whitespace().collect();
        // `state` is the third field
        let field = |number: usize| rest.get(number - 3).and_then(|w| w.parse().ok());
        Some(Self {
            pid,
            tid,
            name,
            priority: field(40)?,
            parent: field(4)?.try_into().ok()?,
            start_ticks: field(22)?,
            flags: field(9)?,
            policy: field(41)?,
        })
    }

    /// The number and the start of the task; `None` if the number is none of a task's.
    pub(crate) fn id(&self) -> Option<TaskId> {
        Some(TaskId { tid: self.tid.try_into().ok()?, start_ticks: self.start_ticks })
    }

    /// Returns `true` if the task started less than `seconds` ago. The kernel counts starts in hundredths of a second
    /// (`USER_HZ`). `false` if the node's uptime was not collected.
    pub(crate) fn is_younger_than(&self, node: &Node, seconds: f64) -> bool {
        let uptime = node.root.value("/proc/uptime").ok();
        let uptime_s = uptime.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        uptime_s.is_some_and(|uptime_s| uptime_s - self.start_ticks as f64 / 100.0 < seconds)
    }

    pub(crate) fn is_real_time(&self) -> bool {
        matches!(self.policy, FIFO | ROUND_ROBIN | DEADLINE)
    }

    pub(crate) fn class(&self) -> &'static str {
        match self.policy {
            FIFO => "SCHED_FIFO",
            ROUND_ROBIN => "SCHED_RR",
            _ => "SCHED_DEADLINE",
        }
    }

    /// Returns `true` if nothing can move it.
    pub(crate) fn is_bound(&self) -> bool {
        self.flags & NO_SETAFFINITY != 0
    }

    pub(crate) fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// The name of the source of noise that a trace shows for it. `/proc` adds the work to the name of a kworker
    /// (`kworker/1:2-events`); the events of the kernel have the plain name.
    pub(crate) fn source(&self) -> String {
        let is_worker = self.is_kernel_thread() && self.name.starts_with("kworker/");
        let name = if is_worker { self.name.split(['-', '+']).next() } else { None };
        thread_source(name.unwrap_or(&self.name))
    }

    pub(crate) fn file(&self, file: &str) -> String {
        format!("/proc/{}/task/{}/{file}", self.pid, self.tid)
    }

    /// The value behind a name in `status`.
    fn status(&self, node: &Node, name: &str) -> Option<String> {
        let status = node.root.read(&self.file("status")).ok();
        let status = status.or_else(|| node.root.read(&format!("/proc/{}/status", self.tid)).ok())?;
        status.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')).map(|v| v.trim().to_owned())
    }

    /// CPUs it may run on.
    pub(crate) fn allowed(&self, node: &Node) -> Option<CpuSet> {
        self.status(node, "Cpus_allowed_list")?.parse().ok()
    }

    /// The real user it runs for.
    pub(crate) fn user(&self, node: &Node) -> Option<u32> {
        self.status(node, "Uid")?.split_whitespace().next()?.parse().ok()
    }

    /// Its control groups, each with the names of the controllers; those of version 2 have none.
    pub(crate) fn groups(&self, node: &Node) -> Vec<(String, String)> {
        let text = node.root.read(&format!("/proc/{}/cgroup", self.pid)).unwrap_or_default();
        let parts = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            Some((controllers.to_owned(), path.to_owned()))
        };
        text.lines().filter_map(parts).collect()
    }

    /// Its control group of version 2.
    pub(crate) fn group(&self, node: &Node) -> Option<String> {
        self.groups(node).into_iter().find_map(|(controllers, path)| controllers.is_empty().then_some(path))
    }

    /// The systemd unit it belongs to.
    pub(crate) fn unit(&self, node: &Node) -> Option<String> {
        let path = self.group(node)?;
        let unit = path.split('/').rfind(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
        Some(unit.to_owned())
    }

    /// The service of the system's manager that it belongs to: `systemctl` stops it. `None` for services of a user's manager.
    pub(crate) fn system_unit(&self, node: &Node) -> Option<String> {
        let path = self.group(node)?;
        let is_users = path.split('/').any(|part| part.starts_with("user@"));
        self.unit(node).filter(|unit| !is_users && unit.ends_with(".service"))
    }

    /// The first thread of its process, then that of each ancestor.
    pub(crate) fn ancestry<'a>(&self, node: &'a Node) -> impl Iterator<Item = Self> + use<'a> {
        let first = Self::read(node, self.pid, self.pid);
        let parent = move |p: &Self| (p.parent > 1).then(|| Self::read(node, p.parent, p.parent)).flatten();
        std::iter::successors(first, parent).take(ANCESTORS)
    }
}

/// The first threads of all processes. A node without any is a collection of files that has none of them.
pub(crate) fn processes(node: &Node) -> Result<impl Iterator<Item = Process>, Unread> {
    node.root.list("/proc")?;
    let pids = node.root.numbers("/proc");
    let all: Vec<Process> = pids.into_iter().filter_map(|pid| Process::read(node, pid, pid)).collect();
    if all.is_empty() {
        return Err(Unread::Missing(STATS.into()));
    }
    Ok(all.into_iter())
}

/// The process with this number.
pub(crate) fn process(node: &Node, pid: u32) -> Option<Process> {
    Process::read(node, pid, pid)
}

/// All threads of all processes, as [`processes`].
pub(crate) fn threads(node: &Node) -> Result<impl Iterator<Item = Process>, Unread> {
    node.root.list("/proc")?;
    let mut all = Vec::new();
    for pid in node.root.numbers("/proc") {
        let tids = node.root.numbers(&format!("/proc/{pid}/task"));
        match tids.is_empty() {
            true => all.push((pid, pid)),
            false => all.extend(tids.into_iter().map(|tid| (pid, tid))),
        }
        if all.len() > MOST {
            return Err(Unread::too_many("/proc/*/task", MOST));
        }
    }
    let mut read = all.into_iter().filter_map(move |(pid, tid)| Process::read(node, pid, tid)).peekable();
    match read.peek() {
        Some(_) => Ok(read),
        None => Err(Unread::Missing(STATS.into())),
    }
}
