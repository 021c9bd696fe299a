// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that is left for large pages.
//!
//! A program that touches 4 KiB of a large page takes all of it. So a program that fits into its limits on base pages may exceed them
//! on large pages, and the kernel kills it. The limits are those of its cgroup, of the groups above, and the node's memory. When one of
//! them runs short, the job goes on with base pages: it keeps the large pages that it has, and gets no more.

use std::time::{Duration, Instant};

use colony_node::memory::{Limit, limits_of};

use crate::base_pages::put_on_base_pages;
use crate::report::Shortage;
use crate::room::{mib, reserve};
use crate::tracee::NotStopped;
use crate::watch::{Processes, cpu_time};

/// Up to this part of a limit, an eighth, a job has large pages however much memory it has mapped.
const ALWAYS: u64 = 8;
/// The fastest growth that is expected, in bytes a second: some threads that fill large pages with zeros.
const FASTEST: u64 = 8 << 30;
/// The pauses between two looks.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));
/// A pause is at least this many times the CPU time of the look before it.
const SHARE: u32 = 100;

/// The limit that a job on large pages could exceed, if there is one. `untouched`: bytes that the job has mapped for large pages and not
/// touched.
pub(crate) fn find_shortage(limits: &[Limit], untouched: u64) -> Option<&Limit> {
    let is_short = |limit: &&Limit| {
        let could_exceed = untouched > limit.left() && limit.used > limit.bytes / ALWAYS;
        could_exceed || limit.left() < reserve(limit)
    };
    limits.iter().filter(is_short).min_by_key(|limit| limit.left())
}

/// The pause until the next look: the shortest time in which the job could reach a limit's reserve, or the part of a limit from which on
/// its mapped memory counts.
fn pause(limits: &[Limit]) -> Duration {
    let distance = |limit: &Limit| {
        let to_reserve = limit.left().saturating_sub(reserve(limit));
        let to_part = (limit.bytes / ALWAYS).checked_sub(limit.used).unwrap_or(u64::MAX);
        to_reserve.min(to_part)
    };
    let nearest = limits.iter().map(distance).min().unwrap_or(u64::MAX);
    let pause = Duration::from_secs_f64(nearest as f64 / FASTEST as f64);
    pause.clamp(PAUSES.0, PAUSES.1)
}

/// Looks at the memory that is left, until the job is on base pages.
#[derive(Debug)]
pub(crate) struct Headroom {
    /// The time of the next look; `None` if no look is due any more.
    due: Option<Instant>,
    shortage: Option<Shortage>,
    /// The pause between two tries to stop processes.
    retry: Duration,
    /// Processes that are done with: they are on base pages, have ended, or cannot be stopped.
    done: Vec<i32>,
    warnings: Vec<String>,
}

impl Headroom {
    /// Begins to look, if the program is to have large pages.
    pub(crate) fn new(has_large_pages: bool) -> Self {
        Self {
            due: has_large_pages.then(Instant::now),
            shortage: None,
            retry: PAUSES.0,
            done: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Looks at the limits of process `program` if a look is due, and puts the job on base pages if one of them runs short. Returns the
    /// time until the next look, if there is one.
    pub(crate) fn check(
        &mut self,
        program: i32,
        processes: &Processes,
        untouched: impl Fn() -> u64,
        started: Instant,
    ) -> Option<Duration> {
        let due = self.due?;
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Some(wait);
        }
        let before = cpu_time();
        if self.shortage.is_none() {
            let limits = limits_of(program);
            let untouched = untouched();
            let Some(limit) = find_shortage(&limits, untouched) else {
                let cost = cpu_time().saturating_sub(before);
                return self.look_after(pause(&limits).max(cost.saturating_mul(SHARE)));
            };
            let at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.shortage = Some(Shortage::of(limit, untouched, at_ns));
        }
        if self.put_on_base_pages(processes) {
            self.due = None;
            return None;
        }
        self.retry = (self.retry * 2).min(PAUSES.1);
        let cost = cpu_time().saturating_sub(before);
        self.look_after(self.retry.max(cost.saturating_mul(SHARE)))
    }

    fn look_after(&mut self, pause: Duration) -> Option<Duration> {
        self.due = Instant::now().checked_add(pause);
        Some(pause)
    }

    /// Puts the processes on base pages that are not; returns `true` if none is left. Those that they start inherit it.
    fn put_on_base_pages(&mut self, processes: &Processes) -> bool {
        let mut is_complete = true;
        for pid in processes() {
            if self.done.contains(&pid) {
                continue;
            }
            match put_on_base_pages(pid) {
                Ok(()) | Err(NotStopped::Gone) => self.done.push(pid),
                Err(NotStopped::Later) => is_complete = false,
                Err(NotStopped::Refused(reason)) => {
                    self.done.push(pid);
                    self.warnings.push(format!("process {pid} may still get large pages: {reason}"));
                }
            }
        }
        is_complete
    }

    /// The shortage, and what went wrong because of it.
    pub(crate) fn finish(self) -> (Option<Shortage>, Vec<String>) {
        (self.shortage, self.warnings)
    }
}

/// The note in a report about a shortage.
pub(crate) fn note(shortage: &Shortage) -> String {
    let Shortage { at_ns, file, limit_bytes, used_bytes, untouched_bytes } = shortage;
    let since = match at_ns {
        0 => "from the start".to_owned(),
        at => format!("from {:.2} s after the start", *at as f64 / 1e9),
    };
    let mapped = match untouched_bytes {
        0 => String::new(),
        bytes => format!(", {} more were mapped", mib(*bytes)),
    };
    format!(
        "new memory has base pages {since}: {} of the {} in {} were in use{mapped}, and large pages could have exceeded this limit; \
         raise it to keep large pages",
        mib(*used_bytes),
        mib(*limit_bytes),
        file.display(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;

    const MIB: u64 = 1 << 20;

    fn limit(file: &str, bytes: u64, used: u64) -> Limit {
        Limit { file: file.into(), bytes: bytes * MIB, used: used * MIB }
    }

    #[test]
    fn a_job_near_a_limit_or_with_more_mapped_than_is_left_is_short_of_memory() {
        let node = limit("node", 65_536, 30_000);
        let short = |used, untouched| {
            let limits = [node.clone(), limit("group", 300, used)];
            find_shortage(&limits, untouched * MIB).map(|l| l.file.to_string_lossy().into_owned())
        };
        // a program whose memory all fits, whatever it touches
        assert_eq!(short(10, 280), None);
        assert_eq!(short(263, 20), None);
        // the last sixteenth
        assert_eq!(short(282, 0).as_deref(), Some("group"));
        // sparse memory, once an eighth is in use
        assert_eq!(short(37, 1_024), None);
        assert_eq!(short(38, 1_024).as_deref(), Some("group"));
        assert_eq!(short(20, 40_000).as_deref(), Some("node"));
        assert_eq!(find_shortage(&[], u64::MAX), None);
    }

    #[test]
    fn looks_come_before_a_job_can_reach_a_limit() {
        // 37 of 300 MiB to go, at 8 GiB a second
        let soon = pause(&[limit("group", 300, 0)]);
        assert!(soon > PAUSES.0 && soon < Duration::from_millis(5), "{soon:?}");
        // an eighth is exceeded: the reserve counts
        let later = pause(&[limit("group", 300, 100)]);
        assert!(later > Duration::from_millis(20) && later < Duration::from_millis(30), "{later:?}");
        assert_eq!(pause(&[limit("group", 300, 299)]), PAUSES.0);
        assert_eq!(pause(&[limit("node", 1 << 20, 1 << 18)]), PAUSES.1);
        assert_eq!(pause(&[]), PAUSES.1);
    }

    #[test]
    fn a_note_names_the_limit_and_its_value() {
        let of = limit("/sys/fs/cgroup/job/memory.max", 300, 40);
        let text = note(&Shortage::of(&of, 1_024 * MIB, 2_500_000_000));
        for part in
            ["40.0 MiB of the 300.0 MiB in /sys/fs/cgroup/job/memory.max", "2.50 s", "1024.0 MiB more"]
        {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert!(note(&Shortage::of(&of, 0, 0)).contains("from the start: 40.0 MiB"));
    }

    #[test]
    fn nothing_is_looked_at_for_a_program_on_base_pages() {
        let processes: Processes = Arc::new(Vec::new);
        let mut headroom = Headroom::new(false);
        assert_eq!(headroom.check(1, &processes, || u64::MAX, Instant::now()), None);
        assert_eq!(headroom.finish(), (None, Vec::new()));
    }

    #[test]
    fn the_next_look_is_not_before_its_time() {
        let processes: Processes = Arc::new(Vec::new);
        let me = std::process::id().cast_signed();
        let mut headroom = Headroom::new(true);
        let pause = headroom.check(me, &processes, || 0, Instant::now());
        // a machine that is short of memory has no process to stop here
        let Some(pause) = pause else { return colony_testing::skip("this machine is short of memory") };
        assert!(pause >= PAUSES.0, "{pause:?}");
        assert!(headroom.check(me, &processes, || 0, Instant::now()).is_some_and(|left| left <= pause));
    }
}
