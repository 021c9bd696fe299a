// SPDX-License-Identifier: MIT OR Apache-2.0
//! Daemons and the slices that they run in.

use colony_node::cpu::CpuSet;

use crate::finding::{Finding, Level};
use crate::holders::{self, Holders};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::{self, Process};
use crate::remedy::{Change, Loss, Remedy};
use crate::root::Unread;
use crate::touches::{Pattern, Touches};

use super::cgroups;

/// Daemons that get a finding each.
const SHOWN: usize = 8;
/// The tree of control groups of version 2.
const ROOT: &str = cgroups::ROOT;

/// A slice whose processes may run on the job's CPUs.
struct Slice {
    name: &'static str,
    /// Its `cpuset.cpus`, which an undo restores.
    own: String,
    effective: (String, String),
}

impl Slice {
    /// The slice, if the job's CPUs are open to it.
    fn open(node: &Node, name: &'static str) -> Result<Option<Self>, Unread> {
        let file = format!("{ROOT}/{name}/cpuset.cpus.effective");
        let allowed = match node.cpus(&file) {
            // without the controller, nothing limits the slice
            Err(e) if e.is_missing() && node.root.exists(&format!("{ROOT}/{name}")) => {
                node.job.iter().chain(node.rest.iter()).collect()
            }
            other => other?,
        };
        let own = node.root.value(&format!("{ROOT}/{name}/cpuset.cpus")).unwrap_or_default();
        let is_open = !node.hit(&allowed).is_empty();
        Ok(is_open.then(|| Self { name, own, effective: (file, allowed.to_string()) }))
    }

    /// The owner of the first group below that has a task of Colony or of a job, or CPUs of its own. A limit of the slice would take
    /// the job's CPUs from this group.
    fn holder(&self, node: &Node, colonys: &[String]) -> Result<Option<String>, Unread> {
        let path = format!("/{}", self.name);
        if let Some(group) = colonys.iter().find(|g| **g == path || g.starts_with(&format!("{path}/"))) {
            return Ok(Some(format!("Colony or its job ({group})")));
        }
        let groups = cgroups::groups_below(node, &format!("{ROOT}{path}"))?;
        let mut paths = groups.iter().filter_map(|dir| dir.strip_prefix(ROOT));
        Ok(paths.find_map(|p| {
            holders::manager(p).or_else(|| holders::assigned(node, p).map(|g| holders::owner(&g)))
        }))
    }

    fn confine(&self, rest: &str) -> Change {
        let set = |cpus: &str| {
            ["systemctl", "set-property", "--runtime", self.name, &format!("AllowedCPUs={cpus}")]
                .map(str::to_owned)
        };
        Change::Command { apply: set(rest).into(), undo: Some(set(&self.own).into()) }
    }
}

/// With systemd, daemons and users are in slices that can be kept off CPUs without a reboot (`AllowedCPUs=`, systemd 244,
/// control groups of version 2). A slice with jobs below stays open: Slurm's jobs, for example, are in `system.slice`.
pub(super) fn slices(node: &Node) -> Checked {
    let first = node.root.value("/proc/1/comm")?;
    if first != "systemd" {
        return Outcome::undecided(format!("/proc/1/comm is {first}: slices belong to systemd"));
    }
    let mut open = Vec::new();
    for name in ["init.scope", "system.slice", "user.slice"] {
        open.extend(Slice::open(node, name)?);
    }
    let Some(Slice { effective: (file, value), .. }) = open.first() else {
        return Outcome::passed(format!("{ROOT}/*/cpuset.cpus.effective"), "no slice has a CPU of the job");
    };
    let mut finding = Finding::new(Level::Medium, "Daemons and users of the node may run on the job's CPUs.")
        .seen(file, value)
        .touches(Touches::part_of([Pattern::UnboundThreads]));
    let Some(rest) = node.elsewhere() else { return finding.into() };
    let colonys = Holders::read(node).groups(node);
    let mut changes = Vec::new();
    for slice in &open {
        match slice.holder(node, &colonys)? {
            Some(owner) => {
                finding =
                    finding.seen(format!("{ROOT}/{}", slice.name), format!("left alone: {owner} is in it"));
            }
            None => changes.push(slice.confine(&rest.to_string())),
        }
    }
    if !changes.is_empty() {
        let risk = "a job started in one of these slices may not use the job's CPUs either";
        finding = finding.remedy(Remedy::new(changes, risk).keep("the same without --runtime"));
    }
    finding
        .advice(
            "Start the job in a slice of its own (`systemd-run --slice=job.slice`), or by the batch system.",
        )
        .into()
}

/// Daemons that a trace saw on the job's CPUs, a finding each. Colony's own tasks and those of jobs are none.
pub(super) fn wakeups(node: &Node) -> Checked {
    let Some(seen) = &node.threads else {
        return Outcome::undecided("no trace: `colony measure` makes one and keeps it for this command");
    };
    let running: Vec<Process> = match process::threads(node) {
        Ok(all) => all.collect(),
        // collected files may have no processes
        Err(e) if e.is_missing() => Vec::new(),
        Err(e) => return Err(e),
    };
    let has_tasks = !running.is_empty();
    let holders = Holders::read(node);
    let mut seen: Vec<_> = seen.iter().filter(|t| Pattern::UnboundThreads.matches(&t.source)).collect();
    seen.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.source.cmp(&b.source)));
    let mut findings = Vec::new();
    for thread in seen {
        let name = thread.source.trim_start_matches("thread:");
        let named: Vec<&Process> =
            running.iter().filter(|p| Pattern::thread(&p.name).matches(&thread.source)).collect();
        let own: Vec<&Process> =
            named.iter().copied().filter(|p| holders.owner_of(node, p).is_none()).collect();
        let is_held = own.is_empty() && !named.is_empty();
        // unbound workers have a rule of their own; so have threads of memory management
        if is_held || name.starts_with("kworker/") || own.iter().any(|p| p.is_kernel_thread()) {
            continue;
        }
        let mut finding = daemon(node, name, thread, &own);
        if own.is_empty() {
            finding = finding.advice(if has_tasks { HAS_ENDED } else { NOT_COLLECTED });
        }
        // tasks of jobs stay where they are
        finding.touches.partly |= own.len() < named.len();
        findings.push(finding);
        if findings.len() == SHOWN {
            break;
        }
    }
    match findings.is_empty() {
        true => Outcome::passed("trace", "no daemon ran on the job's CPUs"),
        false => Ok(Outcome::Found(findings)),
    }
}

/// Advice for a thread of the trace without a task.
const HAS_ENDED: &str = "No such task runs now: a program that was started again and again, or has ended.";
/// The same for collected files without tasks.
const NOT_COLLECTED: &str = "The collected files have no processes: whether this task still runs, and what can move it, is not known.";

fn daemon(node: &Node, name: &str, seen: &crate::node::ThreadSeen, tasks: &[&Process]) -> Finding {
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
    let Some(first) = tasks.first() else { return finding };
    finding = finding.seen(first.file("stat"), &first.name);
    let programs = Program::of(node, tasks);
    let starters: Vec<String> = programs.iter().filter_map(Program::starter).collect();
    if !starters.is_empty() {
        finding = finding.advice(format!(
            "Its processes live for less than a minute, so the remedy binds the {} them: {}.",
            if starters.len() == 1 { "program that starts" } else { "programs that start" },
            starters.join(", ")
        ));
    }
    if let Some(rest) = node.elsewhere() {
        finding = finding.remedy(moving(node, &programs, rest));
    }
    let units: Vec<&str> = programs.iter().filter_map(|p| p.unit.as_deref()).collect();
    if units.len() == programs.len() {
        finding = finding.remedy(stopping(&units));
    } else if node.elsewhere().is_none() {
        finding = finding.advice(
            "The job has every CPU, so the program cannot be moved: end it, or leave one CPU to the system (--cpus).",
        );
    }
    if programs.len() == MOST_PROGRAMS {
        finding.touches.partly = true;
    }
    finding
}

/// Programs of one name that a remedy is for; of more, it takes a part of the noise away.
const MOST_PROGRAMS: usize = 16;

/// Age below which a process may have ended before a command reaches it, seconds.
const SHORT_LIVED_S: f64 = 60.0;

/// What `systemctl` or `taskset` moves: a unit with all of its processes, or one process.
struct Program {
    process: Process,
    unit: Option<String>,
    /// `true` if the process is an ancestor of the task, which started the task less than [`SHORT_LIVED_S`] ago.
    is_starter: bool,
}

impl Program {
    /// The programs of these tasks, each once.
    fn of(node: &Node, tasks: &[&Process]) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for &task in tasks {
            let unit = task.system_unit(node);
            let starter = if unit.is_none() { lasting_ancestor(node, task) } else { None };
            let is_starter = starter.is_some();
            let process = starter.unwrap_or_else(|| task.clone());
            let is_known = found.iter().any(|p| match &unit {
                Some(_) => p.unit == unit,
                None => p.process.pid == process.pid,
            });
            if !is_known && found.len() < MOST_PROGRAMS {
                found.push(Self { process, unit, is_starter });
            }
        }
        found
    }

    /// Name and number of a process that starts short-lived ones.
    fn starter(&self) -> Option<String> {
        self.is_starter.then(|| format!("{} ({})", self.process.name, self.process.pid))
    }

    /// systemd keeps a unit on other CPUs, its future processes too. All threads of another process get another affinity.
    fn to_cpus(&self, node: &Node, rest: &CpuSet) -> Change {
        let Some(unit) = &self.unit else {
            let pid = self.process.pid.to_string();
            let now = self.process.allowed(node);
            let now = now.unwrap_or_else(|| node.job.iter().chain(node.rest.iter()).collect()).to_string();
            return Change::command(
                &["taskset", "-apc", &rest.to_string(), &pid],
                &["taskset", "-apc", &now, &pid],
            );
        };
        let set = |cpus: &str| {
            ["systemctl", "set-property", "--runtime", unit, &format!("AllowedCPUs={cpus}")]
                .map(str::to_owned)
        };
        let now = self.process.group(node).map(|group| format!("{ROOT}{group}/cpuset.cpus"));
        let now = now.and_then(|file| node.root.value(&file).ok()).unwrap_or_default();
        Change::Command { apply: set(&rest.to_string()).into(), undo: Some(set(&now).into()) }
    }
}

/// The closest ancestor of a short-lived task that is not short-lived itself, of the same user: the children that it starts
/// later inherit its affinity. `None` for a task that has lived long enough, or without such an ancestor.
fn lasting_ancestor(node: &Node, task: &Process) -> Option<Process> {
    if !task.is_younger_than(node, SHORT_LIVED_S) {
        return None;
    }
    let user = task.user(node);
    let mut ancestors = task.ancestry(node).skip(1).take_while(|p| p.user(node) == user);
    ancestors.find(|p| !p.is_younger_than(node, SHORT_LIVED_S))
}

/// Moves programs to other CPUs.
fn moving(node: &Node, programs: &[Program], rest: &CpuSet) -> Remedy {
    let changes: Vec<Change> = programs.iter().map(|p| p.to_cpus(node, rest)).collect();
    match programs.iter().all(|p| p.unit.is_some()) {
        true => Remedy::new(changes, "the daemon shares fewer CPUs")
            .of_program()
            .keep("the same without --runtime"),
        false => Remedy::new(
            changes,
            "the program shares fewer CPUs; a new process of it does not inherit this from its parent's",
        )
        .of_program()
        .keep(format!("start it with `taskset -c {rest}`")),
    }
}

fn stopping(units: &[&str]) -> Remedy {
    let stop = |unit: &&str| Change::command(&["systemctl", "stop", unit], &["systemctl", "start", unit]);
    Remedy::new(units.iter().map(stop), "the node is without this service")
        .of_program()
        .loses(Loss::Service)
        .keep(format!("systemctl disable {}", units.join(" ")))
}
