// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes, and the daemons among them.

use colony_node::cpu::CpuSet;

use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::remedy::{Change, Remedy};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

/// Most processes, and threads of all, that are looked at.
const MOST: usize = 1 << 15;
/// Daemons that get a finding each.
const SHOWN: usize = 8;
/// A thread that its kernel code bound to its CPU (`PF_NO_SETAFFINITY`).
const NO_SETAFFINITY: u64 = 0x0400_0000;
const FIFO: u64 = 1;
const ROUND_ROBIN: u64 = 2;
const DEADLINE: u64 = 6;

/// A task by its `stat` (`proc_pid_stat(5)`).
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) name: String,
    flags: u64,
    policy: u64,
    pub(super) priority: u64,
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
        Some(Self { pid, tid, name, flags: field(9)?, policy: field(41)?, priority: field(40)? })
    }

    pub(super) fn is_real_time(&self) -> bool {
        matches!(self.policy, FIFO | ROUND_ROBIN | DEADLINE)
    }

    pub(super) fn class(&self) -> &'static str {
        match self.policy {
            FIFO => "SCHED_FIFO",
            ROUND_ROBIN => "SCHED_RR",
            _ => "SCHED_DEADLINE",
        }
    }

    /// Returns `true` if nothing can move it.
    pub(super) fn is_bound(&self) -> bool {
        self.flags & NO_SETAFFINITY != 0
    }

    pub(super) fn file(&self, file: &str) -> String {
        format!("/proc/{}/task/{}/{file}", self.pid, self.tid)
    }

    /// CPUs it may run on.
    pub(super) fn allowed(&self, node: &Node) -> Option<CpuSet> {
        let status = node.root.read(&self.file("status")).ok();
        let status = status.or_else(|| node.root.read(&format!("/proc/{}/status", self.tid)).ok())?;
        status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok()
    }

    /// The systemd unit it belongs to.
    fn unit(&self, node: &Node) -> Option<String> {
        let text = node.root.read(&format!("/proc/{}/cgroup", self.pid)).ok()?;
        let path = text.lines().find_map(|l| l.strip_prefix("0::"))?;
        let unit = path.split('/').rfind(|part| part.ends_with(".service") || part.ends_with(".scope"))?;
        Some(unit.to_owned())
    }
}

/// The first threads of all processes.
pub(super) fn processes(node: &Node) -> Result<impl Iterator<Item = Process>, Unread> {
    node.root.list("/proc")?;
    let pids = node.root.numbers("/proc").into_iter().take(MOST);
    Ok(pids.filter_map(move |pid| Process::read(node, pid, pid)))
}

/// All threads of all processes.
pub(super) fn threads(node: &Node) -> Result<impl Iterator<Item = Process>, Unread> {
    node.root.list("/proc")?;
    let pids = node.root.numbers("/proc").into_iter().take(MOST);
    let of = move |pid: u32| {
        let mut tids = node.root.numbers(&format!("/proc/{pid}/task"));
        if tids.is_empty() {
            tids.push(pid);
        }
        tids.into_iter().map(move |tid| (pid, tid))
    };
    Ok(pids.flat_map(of).take(MOST).filter_map(move |(pid, tid)| Process::read(node, pid, tid)))
}

/// With systemd, daemons and users are in slices that can be kept off CPUs without a reboot (`AllowedCPUs=`, systemd 244,
/// control groups of version 2).
pub(super) fn slices(node: &Node) -> Checked {
    const ROOT: &str = "/sys/fs/cgroup";
    let first = node.root.value("/proc/1/comm")?;
    if first != "systemd" {
        return Outcome::undecided(format!("/proc/1/comm is {first}: slices belong to systemd"));
    }
    let mut open = Vec::new();
    let mut seen = None;
    for slice in ["init.scope", "system.slice", "user.slice"] {
        let (effective, own) =
            (format!("{ROOT}/{slice}/cpuset.cpus.effective"), format!("{ROOT}/{slice}/cpuset.cpus"));
        let allowed = match node.cpus(&effective) {
            // without the controller, nothing limits the slice
            Err(e) if e.is_missing() && node.root.exists(&format!("{ROOT}/{slice}")) => {
                node.job.iter().chain(node.rest.iter()).collect()
            }
            other => other?,
        };
        if !node.hit(&allowed).is_empty() {
            seen.get_or_insert((effective, allowed.to_string()));
            open.push((slice, node.root.value(&own).unwrap_or_default()));
        }
    }
    let Some((file, value)) = seen else {
        return Outcome::passed(format!("{ROOT}/*/cpuset.cpus.effective"), "no slice has a CPU of the job");
    };
    let finding = Finding::new(Level::Medium, "Daemons and users of the node may run on the job's CPUs.")
        .seen(file, value)
        .touches(Touches::part_of([Pattern::UnboundThreads]));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let change = |(slice, own): &(&str, String)| {
        let set = |cpus: &str| {
            ["systemctl", "set-property", "--runtime", slice, &format!("AllowedCPUs={cpus}")]
                .map(str::to_owned)
        };
        Change::Command { apply: set(&rest.to_string()).into(), undo: Some(set(own).into()) }
    };
    finding
        .remedy(
            Remedy::new(
                open.iter().map(change),
                "a job started in one of these slices may not use the job's CPUs either",
            )
            .keep("the same without --runtime"),
        )
        .advice(
            "Start the job in a slice of its own (`systemd-run --slice=job.slice`), or by the batch system.",
        )
        .into()
}

/// Daemons that a trace saw on the job's CPUs, a finding each.
pub(super) fn wakeups(node: &Node) -> Checked {
    let Some(seen) = &node.threads else {
        return Outcome::undecided("no trace: `colony measure` makes one and keeps it for this command");
    };
    let running: Vec<Process> = threads(node).map(Iterator::collect).unwrap_or_default();
    let mut seen: Vec<_> = seen.iter().filter(|t| Pattern::UnboundThreads.matches(&t.source)).collect();
    seen.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.source.cmp(&b.source)));
    let mut findings = Vec::new();
    for thread in seen {
        let name = thread.source.trim_start_matches("thread:");
        let process = running.iter().find(|p| Pattern::thread(&p.name).matches(&thread.source));
        // unbound workers have a rule of their own; so have threads of memory management
        if name.starts_with("kworker/") || process.is_some_and(|p| p.flags & KERNEL_THREAD != 0) {
            continue;
        }
        findings.push(daemon(node, name, thread, process));
        if findings.len() == SHOWN {
            break;
        }
    }
    match findings.is_empty() {
        true => Outcome::passed("trace", "no daemon ran on the job's CPUs"),
        false => Ok(Outcome::Found(findings)),
    }
}

const KERNEL_THREAD: u64 = 0x0020_0000;

fn daemon(node: &Node, name: &str, seen: &crate::node::ThreadSeen, process: Option<&Process>) -> Finding {
    let level = match seen.share {
        s if s > 0.01 => Level::High,
        s if s > 0.0001 => Level::Medium,
        _ => Level::Low,
    };
    let mut finding = Finding::new(
        level,
        format!("{name} runs {:.3} times a second on each CPU of the job.", seen.per_second),
    )
    .seen("trace", format!("{}: {:.3} % of the job's CPUs", seen.source, seen.share * 100.0))
    .touches(Touches::all([Pattern::Is(seen.source.clone())]));
    finding.id = name.chars().map(|c| if c.is_control() || c == ':' { '_' } else { c }).collect();
    let Some(process) = process else {
        return finding
            .advice("No such task runs now: a program that was started again and again, or has ended.");
    };
    let Some(rest) = node.elsewhere() else { return finding };
    let unit = process.unit(node).filter(|unit| unit.ends_with(".service"));
    let remedy = match unit {
        Some(unit) => {
            let set = |cpus: &str| {
                ["systemctl", "set-property", "--runtime", &unit, &format!("AllowedCPUs={cpus}")]
                    .map(str::to_owned)
            };
            let change = Change::Command { apply: set(&rest.to_string()).into(), undo: Some(set("").into()) };
            Remedy::new([change], "the daemon shares fewer CPUs").keep("the same without --runtime")
        }
        None => {
            let (rest, pid) = (rest.to_string(), process.pid.to_string());
            let now =
                process.allowed(node).unwrap_or_else(|| node.job.iter().chain(node.rest.iter()).collect());
            let change = Change::command(
                &["taskset", "-apc", &rest, &pid],
                &["taskset", "-apc", &now.to_string(), &pid],
            );
            Remedy::new(
                [change],
                "the program shares fewer CPUs; a new process of it does not inherit this from its parent's",
            )
            .keep(format!("start it with `taskset -c {rest}`"))
        }
    };
    finding.seen(process.file("stat"), &process.name).remedy(remedy)
}
