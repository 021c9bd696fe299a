// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the text of the kernel's tracer says about its source: the CPUs that were traced, and the machines.
//!
//! ```text
//! # entries-in-buffer/entries-written: 40/6140   #P:4      the kernel: 4 CPUs were online
//! cpus=4                                                   trace-cmd report
//!     host.dat:  <idle>-0  [001]  100.5: sched_switch: …   trace-cmd report of several files
//! ```

use std::collections::BTreeSet;

use colony_node::cpu::CpuSet;
use colony_time::text::rounded_ns;

use super::ftrace::Place;
use super::text::Header;
use crate::trace::{OtherFile, Problem, TraceBuilder};

/// CPUs and machines of a text, as far as it is read.
#[derive(Debug, Default)]
pub(super) struct Traced {
    /// CPUs with a line of their own.
    pub(super) seen: BTreeSet<u16>,
    /// The numbers in the lines `cpus=4`.
    counts: Vec<usize>,
    machines: Machines,
}

/// The names of files before the lines. trace-cmd prints them if it reads several.
#[derive(Debug, Default)]
enum Machines {
    #[default]
    NoLineYet,
    /// Each line so far begins with one of these names.
    Named(BTreeSet<String>),
    /// A line begins with no name.
    NotNamed,
}

/// Machines that an error names.
const SHOWN: usize = 4;

impl Traced {
    /// Takes a line in that is no comment.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(count) = line.trim().strip_prefix("cpus=").and_then(|n| n.parse().ok()) {
            self.counts.push(count);
        }
        if matches!(self.machines, Machines::NotNamed)
            || Place::of_line(line).is_none_or(|(p, _)| p.cpu.is_none())
        {
            return;
        }
        let name = line.trim_start().match_indices(": ").find_map(|(at, separator)| {
            let (name, rest) = (&line.trim_start()[..at], &line.trim_start()[at + separator.len()..]);
            let is_line = Place::of_line(rest).is_some_and(|(place, _)| place.cpu.is_some());
            (is_line && !name.is_empty() && !name.contains('[')).then(|| name.trim_end().to_owned())
        });
        match (&mut self.machines, name) {
            (Machines::Named(names), Some(name)) => {
                if !names.contains(&name) && names.len() <= SHOWN {
                    names.insert(name);
                }
            }
            (Machines::NoLineYet, Some(name)) => self.machines = Machines::Named(BTreeSet::from([name])),
            (machines, None) => *machines = Machines::NotNamed,
            (Machines::NotNamed, Some(_)) => {}
        }
    }

    /// Refuses the text of several machines: CPU 1 of one is not CPU 1 of the other.
    ///
    /// # Errors
    /// [`Problem::OtherFile`].
    pub(super) fn check_machines(&self) -> Result<(), Problem> {
        let Machines::Named(names) = &self.machines else { return Ok(()) };
        let Some(first) = names.first().filter(|_| names.len() > 1) else { return Ok(()) };
        let more = if names.len() > SHOWN { ", …" } else { "" };
        let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(Problem::OtherFile(OtherFile::new(
            format!("the text of several traces ({shown}{more}), whose CPUs have the same numbers"),
            format!(
                "print each by itself (`trace-cmd report -i {first} > {first}.txt`), or keep the lines of one (`grep '^ *{first}: '`)"
            ),
        )))
    }

    /// The length of the observation, seconds: the header's, or else the time from the first event to the last.
    ///
    /// # Errors
    /// As [`Header::stated`].
    pub(super) fn observed_s(
        header: &Header,
        span_ns: u64,
        trace: &mut TraceBuilder,
    ) -> Result<Option<f64>, Problem> {
        let stated = header.stated()?.observed_s;
        if stated.is_none() && span_ns > 0 {
            trace.note(format!(
                "the file does not state how long was observed: it is the time from the first event to the last, {}; a line `# observed_s: \
                 SECONDS` states it",
                rounded_ns(span_ns as f64)
            ));
        }
        Ok(stated.or_else(|| (span_ns > 0).then_some(span_ns as f64 / 1e9)))
    }

    /// The CPUs that were traced: those with a line, and the others that the header counts. `has_only_seen` says that the tracer
    /// worked on the CPUs with a line and no others.
    pub(super) fn cpus(&self, header: &Header, has_only_seen: bool, trace: &mut TraceBuilder) -> CpuSet {
        let seen = || self.seen.iter().map(|cpu| usize::from(*cpu));
        let stated = match self.counts[..] {
            [count] => Some(count),
            _ => online(header),
        };
        let Some(stated) = stated.filter(|n| !has_only_seen && *n > self.seen.len() && *n <= CpuSet::LIMIT)
        else {
            return seen().collect();
        };
        if self.seen.last().is_some_and(|last| usize::from(*last) >= stated) {
            trace.note(format!(
                "the header counts {stated} CPUs, and their numbers are not those from 0: only the {} with an event are shown",
                self.seen.len()
            ));
            return seen().collect();
        }
        let quiet: CpuSet = (0..stated).filter(|cpu| seen().all(|seen| seen != *cpu)).collect();
        let (cpus, were) =
            if quiet.len() == 1 { ("CPU", "has no event, was") } else { ("CPUs", "have no event, were") };
        trace.note(format!("the header counts {stated} CPUs: {cpus} {quiet}, which {were} observed too"));
        (0..stated).collect()
    }
}

/// The number of CPUs that were online, by the header (`entries-in-buffer/entries-written: 40/6140   #P:4`).
fn online(header: &Header) -> Option<usize> {
    let value =
        |(_, value): &(String, String)| value.split_once("#P:")?.1.split_whitespace().next()?.parse().ok();
    header.pairs.iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(header: &str, lines: &[&str], seen: &[u16]) -> (String, usize) {
        let mut all = Header::default();
        all.comment(header).expect("a comment");
        let mut traced = Traced { seen: seen.iter().copied().collect(), ..Traced::default() };
        lines.iter().for_each(|line| traced.line(line));
        let mut trace = TraceBuilder::new();
        let cpus = traced.cpus(&all, false, &mut trace);
        let notes = trace.build(Default::default()).expect("empty").meta.notes;
        (cpus.to_string(), notes.len())
    }

    #[test]
    fn the_header_counts_the_cpus() {
        let header = "# entries-in-buffer/entries-written: 40/6140   #P:4";
        assert_eq!(cpus(header, &[], &[1]), ("0-3".into(), 1));
        assert_eq!(cpus(header, &[], &[0, 1, 2, 3]), ("0-3".into(), 0));
        assert_eq!(cpus(header, &[], &[1, 9]), ("1,9".into(), 1), "some are offline");
        assert_eq!(cpus("# x", &["cpus=2"], &[1]), ("0-1".into(), 1));
        assert_eq!(cpus("# x", &["cpus=2", "cpus=8"], &[1]), ("1".into(), 0));
        assert_eq!(cpus("# x", &["cpus=99999999"], &[1]), ("1".into(), 0));
    }

    #[test]
    fn names_before_every_line_are_those_of_machines() {
        let check = |lines: &[&str]| {
            let mut traced = Traced::default();
            lines.iter().for_each(|line| traced.line(line));
            traced.check_machines().map_err(|e| e.to_string())
        };
        let host = "      host.dat:   <idle>-0     [001]   100.5: sched_switch: a:9 [120] R ==> b:1 [120]";
        let guest = "     guest.dat:   <idle>-0     [001]   100.6: sched_switch: a:9 [120] R ==> b:1 [120]";
        let error = check(&["cpus=4", host, guest]).expect_err("two machines");
        assert!(error.contains("guest.dat, host.dat") && error.contains("trace-cmd report -i"), "{error}");
        check(&[host, host]).expect("one machine");
        check(&[host, "            x-7 [001]   100.6: sched_switch: a:9 [120] R ==> b:1 [120]", guest])
            .expect("a buffer without a name");
        let [a, b] = ["a:", "bc:"]
            .map(|name| format!("{name} x-7 [001] d.. 1.5: sched_switch: a:9 [120] R ==> b:1 [120]"));
        check(&[&a, &b]).expect("names of threads are not in one column");
    }
}
