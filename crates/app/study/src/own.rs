// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tasks that belong to the study itself: their noise ends with the study, and is no noise of the node.

use std::collections::BTreeSet;

use colony_node::task;
use colony_trace::{Source, Trace};
use nix::unistd::{Pid, getpgid, getpgrp};

/// Names of tasks that the study started or that wait for it: the processes that descend from this one, and those of its
/// process group, such as `x` or `sudo`. A name that another task of the node has too is not among them.
#[must_use]
pub fn names() -> BTreeSet<String> {
    let Ok(me) = i32::try_from(std::process::id()) else { return BTreeSet::new() };
    let group = getpgrp();
    let tree: BTreeSet<i32> = task::tree(me).into_iter().collect();
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    for pid in task::processes() {
        let is_own = tree.contains(&pid) || getpgid(Some(Pid::from_raw(pid))) == Ok(group);
        let names = task::threads(pid).into_iter().filter_map(task::name);
        if is_own { own.extend(names) } else { others.extend(names) }
    }
    own.difference(&others).cloned().collect()
}

/// A trace without the threads called `names`, and the share of the CPUs' time that each of these threads took.
#[must_use]
pub fn left_out(trace: &Trace, names: &BTreeSet<String>) -> (Trace, Vec<(String, f64)>) {
    let observed_ns = trace.meta.observed_s * 1e9 * trace.meta.cpus.len() as f64;
    let is_own = |s: &&Source| matches!(s, Source::Thread(name) if names.contains(name));
    let (mut rest, mut own) = (trace.clone(), Vec::new());
    for source in trace.sources.iter().filter(is_own) {
        let of_source = trace.detours.iter().filter(|d| trace.source(d) == source);
        let ns: u64 = of_source.map(|d| d.duration_ns).sum();
        if ns > 0 {
            rest = rest.without(source);
            own.push((source.to_string(), ns as f64 / observed_ns.max(1.0)));
        }
    }
    own.sort_by(|a, b| b.1.total_cmp(&a.1));
    (rest, own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colony_trace::{Detour, TraceMeta};

    #[test]
    fn a_thread_of_this_process_is_its_own() {
        // a task with a name that no other has
        let seen = std::thread::Builder::new().name("colony-own-test".into()).spawn(names);
        let names = seen.expect("a thread").join().expect("names");
        assert!(names.contains("colony-own-test"), "{names:?}");
    }

    #[test]
    fn own_threads_are_left_out_and_named() {
        let meta = TraceMeta { cpus: "0".parse().expect("a list"), observed_s: 1e-6, ..TraceMeta::default() };
        let detour = |start_ns, duration_ns| Detour { node: 0, cpu: 0, start_ns, duration_ns, source: 0 };
        let rows =
            [(detour(0, 100), "thread:sudo"), (detour(200, 30), "thread:chronyd"), (detour(300, 10), "sudo")];
        let trace = Trace::collect(meta, rows.map(|(d, s)| (d, Source::from(s))));
        let (rest, own) = left_out(&trace, &["sudo", "x"].map(str::to_owned).into());
        assert_eq!(own, [("thread:sudo".to_owned(), 0.1)]);
        assert_eq!(rest.detours.iter().map(|d| d.duration_ns).collect::<Vec<_>>(), [30, 10]);
    }
}
