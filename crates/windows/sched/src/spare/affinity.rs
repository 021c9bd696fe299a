// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs of all tasks of the node: as they were, moved off the job's, and as they were again.
//!
//! Kernels before 6.2 forget the affinity that a task has chosen when a cpuset partition is made, so the affinities of all
//! tasks are kept, not only of those that are moved here.

use std::collections::BTreeMap;
use std::rc::Rc;

use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};
use serde::{Deserialize, Serialize};

use super::report::Staying;

/// The most tasks that are kept.
const MOST: usize = 100_000;

/// Affinities of tasks before the reservation, by mask.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Affinities {
    before: BTreeMap<String, Vec<TaskId>>,
    /// Tasks that refused another affinity, by number.
    #[serde(skip)]
    refused: BTreeMap<i32, (u64, String)>,
}

/// Starts and affinities of kept tasks, by number.
type Known = BTreeMap<i32, (u64, Rc<CpuSet>)>;

/// Every task of the node, each process before its threads.
fn all_tasks() -> impl Iterator<Item = i32> {
    let mut pids = task::processes();
    pids.sort_unstable();
    pids.into_iter().flat_map(|pid| {
        let mut threads = task::threads(pid);
        threads.sort_unstable_by_key(|&tid| (tid != pid, tid));
        threads
    })
}

impl Affinities {
    /// The affinities of all tasks now.
    pub(super) fn now() -> Self {
        let mut found = Self::default();
        for tid in all_tasks().take(MOST) {
            if let (Ok(id), Ok(cpus)) = (TaskId::of(tid), cpu::affinity(tid)) {
                found.keep(id, &cpus);
            }
        }
        found
    }

    fn keep(&mut self, task: TaskId, cpus: &CpuSet) {
        self.before.entry(cpus.to_string()).or_default().push(task);
    }

    /// The kept tasks by number.
    fn by_number(&self) -> Known {
        let masks = self
            .before
            .iter()
            .filter_map(|(mask, tasks)| Some((Rc::new(mask.parse::<CpuSet>().ok()?), tasks)));
        masks
            .flat_map(|(mask, tasks)| tasks.iter().map(move |t| (t.tid, (t.start_ticks, mask.clone()))))
            .collect()
    }

    /// Tasks outside of the job that may run on the job's CPUs and have not refused to be moved; those that are not known
    /// yet are kept. `is_job`: tells the job's tasks.
    pub(super) fn movable(&mut self, job: &CpuSet, is_job: impl Fn(i32) -> bool) -> Vec<TaskId> {
        let known = self.by_number();
        let mut found = Vec::new();
        for tid in all_tasks().take(MOST) {
            let (Ok(id), Ok(now)) = (TaskId::of(tid), cpu::affinity(tid)) else { continue };
            let refused = self.refused.get(&tid).is_some_and(|(start, _)| *start == id.start_ticks);
            if now.and(job).is_empty() || refused || is_job(tid) {
                continue;
            }
            if known.get(&tid).is_none_or(|(start, _)| *start != id.start_ticks) {
                self.keep(id, &now);
            }
            found.push(id);
        }
        found
    }

    /// Moves tasks off the job's CPUs; returns how many were moved.
    pub(super) fn move_off(&mut self, tasks: &[TaskId], job: &CpuSet, spare: &CpuSet) -> usize {
        let mut moved = 0;
        for id in tasks {
            let Ok(now) = cpu::affinity(id.tid) else { continue };
            match cpu::bind(id.tid, &target(&now, job, spare)) {
                Ok(()) => moved += 1,
                Err(e) if id.lives() => {
                    self.refused.insert(id.tid, (id.start_ticks, refusal(id.tid, &e)));
                }
                Err(_) => {}
            }
        }
        moved
    }

    /// Tasks outside of the job that may still run on its CPUs, by name.
    pub(super) fn staying(&self, job: &CpuSet, is_job: impl Fn(i32) -> bool) -> Vec<Staying> {
        let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
        for tid in all_tasks().take(MOST).filter(|&tid| !is_job(tid)) {
            let on_job = cpu::affinity(tid).is_ok_and(|now| !now.and(job).is_empty());
            let (true, Ok(id), Some(name)) = (on_job, TaskId::of(tid), task::name(tid)) else { continue };
            let reason = self.refused.get(&tid).filter(|(start, _)| *start == id.start_ticks);
            let reason = reason.map_or("started just now", |(_, reason)| reason);
            *found.entry((without_cpu(&name), reason.to_owned())).or_default() += 1;
        }
        let staying = |((name, reason), count)| Staying { name, count, reason };
        found.into_iter().map(staying).collect()
    }

    /// Gives every task the affinity back that it had, and the tasks that were started since that of their nearest ancestor. A task
    /// that has chosen other CPUs meanwhile keeps its choice.
    pub(super) fn restore(&self, job: &CpuSet, spare: &CpuSet) {
        let known = self.by_number();
        let online = cpu::online().unwrap_or_default();
        // kernels before 6.2 give a task all CPUs of its group when a partition is made or removed
        let others = online.without(job);
        for tid in all_tasks() {
            let Ok(now) = cpu::affinity(tid) else { continue };
            let Some(before) = before_of(tid, &known) else { continue };
            let not_its_choice = [target(&before, job, spare), spare.clone(), others.clone(), online.clone()];
            if now != *before && not_its_choice.contains(&now) {
                // it may have ended just now
                let _ = cpu::bind(tid, &before);
            }
        }
    }
}

/// The affinity of a task that is moved.
fn target(before: &CpuSet, job: &CpuSet, spare: &CpuSet) -> CpuSet {
    let rest = before.without(job);
    if rest.is_empty() { spare.clone() } else { rest }
}

/// The kept affinity of a task or of its nearest ancestor.
fn before_of(tid: i32, known: &Known) -> Option<Rc<CpuSet>> {
    let mut tid = tid;
    // a chain of processes is not longer than this
    for _ in 0..1000 {
        let stat = task::stat(tid).ok()?;
        if let Some((_, mask)) = known.get(&tid).filter(|(start, _)| *start == stat.start_ticks) {
            return Some(mask.clone());
        }
        let process = task::process_of(tid)?;
        tid = if process == tid { stat.parent } else { process };
        if tid == 0 {
            return None;
        }
    }
    None
}

/// The reason why a task stays.
fn refusal(tid: i32, error: &colony_node::NodeError) -> String {
    let is_kernel_thread = task::stat(tid).is_ok_and(|s| s.parent == 2);
    match is_kernel_thread {
        true => "kernel thread of its CPU".into(),
        false => error.to_string(),
    }
}

/// A kernel thread's name without the CPU number in it.
fn without_cpu(name: &str) -> String {
    let Some((head, tail)) = name.split_once('/') else { return name.to_owned() };
    let rest = tail.trim_start_matches(|c: char| c.is_ascii_digit());
    match (rest.len() < tail.len(), head) {
        (true, "kworker") => "kworker (bound)".into(),
        (true, _) => head.to_owned(),
        (false, _) => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn set(list: &str) -> CpuSet {
        list.parse().expect("a list")
    }

    #[test]
    fn a_moved_task_keeps_its_own_spare_cpus_or_gets_all() {
        assert_eq!(target(&set("0-3"), &set("1-3"), &set("0")), set("0"));
        assert_eq!(target(&set("0-1,4"), &set("2-4"), &set("0-1")), set("0-1"));
        assert_eq!(target(&set("2"), &set("2-4"), &set("0-1")), set("0-1"));
    }

    #[test]
    fn names_of_kernel_threads_have_no_cpu() {
        for (name, short) in [
            ("ksoftirqd/12", "ksoftirqd"),
            ("kworker/3:1H-kblockd", "kworker (bound)"),
            ("kworker/u8:2", "kworker/u8:2"),
            ("sh", "sh"),
            ("irq/24-aerdrv", "irq"),
        ] {
            assert_eq!(without_cpu(name), short);
        }
    }

    #[test]
    fn a_task_and_what_it_starts_are_moved_and_restored() {
        let usable = cpu::usable().expect("linux");
        if usable.len() < 2 {
            return colony_testing::skip("one CPU cannot be divided");
        }
        let spare: CpuSet = usable.first().into_iter().collect();
        let job = usable.without(&spare);
        let mut shell = Command::new("sh")
            .args(["-c", "read go; sleep 100 & echo $!; read stop; kill $!"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        let pid = shell.id().cast_signed();
        let id = TaskId::of(pid).expect("alive");
        let mut kept = Affinities::default();
        kept.keep(id, &usable);
        assert_eq!(kept.move_off(&[id], &job, &spare), 1);
        assert_eq!(cpu::affinity(pid).expect("alive"), spare);
        let mut input = shell.stdin.take().expect("piped");
        std::io::Write::write_all(&mut input, b"go\n").expect("it reads");
        let mut line = String::new();
        let mut out = std::io::BufReader::new(shell.stdout.take().expect("piped"));
        std::io::BufRead::read_line(&mut out, &mut line).expect("readable");
        let child: i32 = line.trim().parse().expect("a process number");
        assert_eq!(cpu::affinity(child).expect("alive"), spare, "inherited");
        // through JSON, as after a crash
        let text = serde_json::to_vec(&kept).expect("plain data");
        serde_json::from_slice::<Affinities>(&text).expect("own text").restore(&job, &spare);
        assert_eq!(cpu::affinity(pid).expect("alive"), usable);
        assert_eq!(cpu::affinity(child).expect("alive"), usable, "as its parent had");
        drop(input);
        shell.wait().expect("ours");
    }
}
