// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other programs on the job's CPUs: a study would take their time for the node's own noise.

use std::collections::BTreeMap;

use colony_node::cpu::CpuSet;
use serde::{Deserialize, Serialize};

use crate::format;

/// Share of the job's CPUs up to which they count as quiet: daemons take less.
pub const QUIET: f64 = 0.05;
/// Names kept.
const NAMES: usize = 4;

/// CPU time of each program since boot, in clock ticks, which suffice for shares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds on a clock that nobody sets.
    pub at_us: u64,
    /// All time of the job's CPUs.
    pub total: u64,
    /// Time of theirs in which a program or the kernel ran.
    pub busy: u64,
    /// Time of theirs that the hypervisor took.
    pub steal: u64,
    /// CPU time of this process and of all it started.
    pub own: u64,
    /// Microseconds in which some task of the node waited for a CPU; `None` where the kernel does not say (PSI).
    pub pressure_us: Option<u64>,
    /// Other processes that last ran on the job's CPUs: name and CPU time, by number and start.
    pub others: BTreeMap<(i32, u64), (String, u64)>,
}

/// Programs that ran beside a study for some time. Shares are of the time of the job's CPUs, 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// Seconds observed.
    pub seconds: f64,
    /// Taken by other programs and the kernel.
    pub others: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
    /// Share of the time in which some task of the node waited for a CPU; `None` where the kernel does not say.
    pub waiting: Option<f64>,
    /// The largest of the other programs that were there at the end, by name.
    pub names: Vec<Share>,
}

/// A program and its share of the job's CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The program's name.
    pub name: String,
    /// Its share.
    pub share: f64,
}

/// Other programs on the job's CPUs, before and during the measurement of the node's noise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Neighbours {
    /// Before anything was measured.
    pub before: Load,
    /// While noise was measured; `None` where it was not.
    pub during: Option<Load>,
    /// Seconds waited for them to end.
    pub waited_s: f64,
}

impl Usage {
    /// Reads `/proc`. `None` where it does not say.
    #[must_use]
    pub fn now(cpus: &CpuSet) -> Option<Self> {
        let stat = std::fs::read_to_string("/proc/stat").ok()?;
        let mut usage = of_cpus(&stat, cpus)?;
        usage.at_us = u64::try_from(colony_time::clock::Clock::MonotonicRaw.now_ns()).ok()? / 1000;
        let pressure = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
        usage.pressure_us = waited_us(&pressure);
        let folders = std::fs::read_dir("/proc").ok()?;
        let pids = folders.flatten().filter_map(|f| f.file_name().to_str()?.parse::<i32>().ok());
        // a process that has just ended has no file any more
        let stat = |pid| std::fs::read(format!("/proc/{pid}/stat")).ok();
        let all: Vec<Process> = pids.filter_map(|pid| Process::parse(pid, &stat(pid)?)).collect();
        let me = i32::try_from(std::process::id()).ok()?;
        let parents: BTreeMap<i32, i32> = all.iter().map(|p| (p.pid, p.parent)).collect();
        for p in all {
            if descends(p.pid, me, &parents) {
                usage.own += p.ticks + p.of_children;
            } else if cpus.contains(p.cpu) {
                usage.others.insert((p.pid, p.start), (p.name, p.ticks));
            }
        }
        Some(usage)
    }

    /// Programs that ran since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Load {
        let total = self.total.saturating_sub(before.total).max(1) as f64;
        let own = self.own.saturating_sub(before.own);
        let busy = self.busy.saturating_sub(before.busy);
        let us = self.at_us.saturating_sub(before.at_us).max(1) as f64;
        let waited = self.pressure_us.zip(before.pressure_us).map(|(now, then)| now.saturating_sub(then));
        let mut names: BTreeMap<&str, u64> = BTreeMap::new();
        for (who, (name, ticks)) in &self.others {
            let then = before.others.get(who).map_or(0, |(_, ticks)| *ticks);
            *names.entry(name).or_default() += ticks.saturating_sub(then);
        }
        let mut names: Vec<Share> = names
            .into_iter()
            .filter(|(_, ticks)| *ticks > 0)
            .map(|(name, ticks)| Share { name: name.into(), share: (ticks as f64 / total).min(1.0) })
            .collect();
        names.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
        names.truncate(NAMES);
        Load {
            seconds: us / 1e6,
            others: (busy.saturating_sub(own) as f64 / total).min(1.0),
            steal: (self.steal.saturating_sub(before.steal) as f64 / total).min(1.0),
            waiting: waited.map(|w| (w as f64 / us).min(1.0)),
            names,
        }
    }
}

/// Sums the lines of `cpus` up.
fn of_cpus(stat: &str, cpus: &CpuSet) -> Option<Usage> {
    let mut usage = Usage::default();
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let cpu = fields.next().and_then(|f| f.strip_prefix("cpu")?.parse::<usize>().ok());
        if !cpu.is_some_and(|cpu| cpus.contains(cpu)) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; guest time is part of user
        let ticks: Vec<u64> = fields.take(8).map_while(|f| f.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks[..] else { return None };
        let busy = user + nice + system + irq + softirq;
        usage.busy += busy;
        usage.steal += steal;
        usage.total += busy + idle + iowait + steal;
    }
    (usage.total > 0).then_some(usage)
}

/// The microseconds of `some … total=N`.
fn waited_us(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|l| l.starts_with("some "))?;
    line.split_whitespace().find_map(|f| f.strip_prefix("total=")?.parse().ok())
}

/// A process, from its `/proc/PID/stat`.
struct Process {
    pid: i32,
    parent: i32,
    name: String,
    ticks: u64,
    of_children: u64,
    start: u64,
    cpu: usize,
}

impl Process {
    fn parse(pid: i32, stat: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(stat);
        // the name may hold anything, parentheses too
        let (head, tail) = text.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = tail.split_whitespace().collect();
        // proc(5) counts from 1; the state, the first after the name, is field 3
        let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        Some(Self {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            name,
            ticks: field(14)?.checked_add(field(15)?)?,
            of_children: field(16)?.checked_add(field(17)?)?,
            start: field(22)?,
            cpu: usize::try_from(field(39)?).ok()?,
        })
    }
}

fn descends(pid: i32, from: i32, parents: &BTreeMap<i32, i32>) -> bool {
    let mut at = Some(pid);
    // a number used again while /proc was read must not make a circle
    for _ in 0..64 {
        match at {
            Some(p) if p == from => return true,
            Some(p) if p > 1 => at = parents.get(&p).copied(),
            _ => return false,
        }
    }
    false
}

impl Load {
    /// Returns `true` if other programs leave the job's CPUs alone.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.others <= QUIET
    }

    /// `58 % (rustc 31 %, cc1 12 %)`.
    pub(crate) fn text(&self) -> String {
        let share = |s: &Share| format!("{} {}", s.name, format::percent(s.share));
        let names: Vec<String> = self.names.iter().filter(|s| s.share >= 0.01).map(share).collect();
        let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        format!("{}{names}", format::percent(self.others))
    }
}

impl Neighbours {
    /// Returns `true` if the CPUs were quiet before and during the measurement.
    #[must_use]
    pub fn are_quiet(&self) -> bool {
        self.before.is_quiet() && self.during.as_ref().is_none_or(Load::is_quiet)
    }

    /// Sentence that a reader must see first; `None` if the CPUs were quiet.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        if self.are_quiet() {
            return None;
        }
        let mut text =
            format!("The node was busy. Other programs took {} of the job's CPUs", self.before.text());
        text += " before the study";
        if let Some(during) = &self.during {
            text += &format!(" and {} while its noise was measured", during.text());
        }
        text += ". Their time is part of the noise below. ";
        text += &match self.waited_s {
            s if s > 0.0 => {
                format!("The study waited {s:.0} s for a quiet node. Stop these programs, then run it again.")
            }
            _ => "Run the study on a quiet node, or let it wait for one: --wait-quiet 10m.".into(),
        };
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn usage(total: u64, busy: u64, own: u64, others: &[(i32, &str, u64)]) -> Usage {
        let others = others.iter().map(|&(pid, name, ticks)| ((pid, 5), (name.to_owned(), ticks)));
        Usage { at_us: total * 5_000, total, busy, own, others: others.collect(), ..Usage::default() }
    }

    #[test]
    fn shares_are_of_the_jobs_cpus_and_our_own_time_is_left_out() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 5 70 2 1 1 10 0 0\ncpu1 50 0 0 50 0 0 0 0 0 0\nintr 1\n";
        let both = of_cpus(stat, &"0-1".parse().expect("a list")).expect("there");
        assert_eq!((both.total, both.busy, both.steal), (200, 68, 10));
        assert_eq!(of_cpus(stat, &"1".parse().expect("a list")).expect("there").busy, 50);
        assert_eq!(of_cpus(stat, &"7".parse().expect("a list")), None);

        let then = usage(1000, 400, 100, &[(7, "rustc", 50), (8, "gone", 9)]);
        let now = usage(1200, 560, 130, &[(7, "rustc", 110), (9, "rustc", 20), (10, "sh", 0)]);
        let load = now.since(&then);
        assert!((load.others - 0.65).abs() < 1e-12 && !load.is_quiet(), "{load:?}");
        assert_eq!(load.names, [Share { name: "rustc".into(), share: 0.4 }]);
        assert_eq!(load.text(), "65 % (rustc 40 %)");
    }

    #[test]
    fn pressure_and_processes_are_read() {
        assert_eq!(waited_us("some avg10=1.0 avg60=0.5 avg300=0.1 total=77\nfull total=3\n"), Some(77));
        assert_eq!(waited_us(""), None);
        let stat = b"12 (a) b (c) R 3 1 1 0 -1 0 0 0 0 0 11 22 33 44 20 0 1 0 555 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 6 0 0";
        let p = Process::parse(12, stat).expect("a line of proc(5)");
        assert_eq!((p.parent, p.name.as_str(), p.ticks, p.of_children), (3, "a) b (c", 33, 77));
        assert_eq!((p.start, p.cpu), (555, 6));
    }

    #[test]
    fn what_this_process_does_is_not_its_neighbours() {
        let cpus = colony_node::cpu::usable().expect("linux");
        let now = Usage::now(&cpus).expect("/proc is there");
        let me = i32::try_from(std::process::id()).expect("a number");
        assert!(now.others.keys().all(|(pid, _)| *pid != me) && now.busy <= now.total);
        let parents = [(5, 4), (4, 3), (9, 9)].into();
        assert!(descends(5, 3, &parents) && !descends(9, 3, &parents) && !descends(3, 5, &parents));
    }

    #[test]
    fn a_busy_node_is_told_with_names_and_what_to_do() {
        let quiet = Load { others: 0.01, ..Load::default() };
        let names = vec![Share { name: "rustc".into(), share: 0.31 }];
        let busy = Load { others: 0.58, names, ..Load::default() };
        assert_eq!(Neighbours { before: quiet.clone(), ..Neighbours::default() }.warning(), None);
        let later = Neighbours { before: quiet, during: Some(busy), waited_s: 0.0 };
        let text = later.warning().expect("busy");
        assert!(text.contains("58 % (rustc 31 %) while") && text.contains("--wait-quiet"), "{text}");
        let waited = Neighbours { waited_s: 60.0, ..later }.warning().expect("busy");
        assert!(waited.contains("waited 60 s") && !waited.contains("--wait-quiet"), "{waited}");
    }

    proptest! {
        #[test]
        fn no_file_panics(text in ".{0,120}", numbers in prop::collection::vec(any::<u64>(), 0..45)) {
            let cpus = "0".parse().expect("a list");
            let _ = (of_cpus(&text, &cpus), waited_us(&text), Process::parse(1, text.as_bytes()));
            let line: Vec<String> = numbers.iter().map(u64::to_string).collect();
            let _ = Process::parse(1, format!("1 (x) R {}", line.join(" ")).as_bytes());
        }
    }
}
