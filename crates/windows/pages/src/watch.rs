// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks at the memory of a job while it runs: what it had on large pages is gone when it has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::time::ClockId;

use crate::sample::{Moves, Sample};

/// The first pause; each is half as long again as the one before.
const FIRST: Duration = Duration::from_millis(2);
/// The longest pause, if looks are short.
const LONGEST: Duration = Duration::from_secs(1);
/// A pause is at least this many times the CPU time of the look before it.
const SHARE: u32 = 100;

/// The processes of a job.
pub(crate) type Processes = Arc<dyn Fn() -> Vec<i32> + Send + Sync>;

/// A thread that keeps the sample with the most memory.
pub(crate) struct Watcher {
    end: Sender<()>,
    thread: JoinHandle<Option<Sample>>,
    untouched: Arc<AtomicU64>,
}

impl Watcher {
    /// Begins to look at `processes`, with `first` as the sample to begin with.
    pub(crate) fn start(
        started: Instant,
        processes: Processes,
        first: Option<Sample>,
        moves: Moves,
    ) -> std::io::Result<Self> {
        let (end, ended) = mpsc::channel::<()>();
        let untouched = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&untouched);
        let look = move || {
            let (mut best, mut pause) = (first, FIRST);
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(pause) {
                let before = cpu_time();
                let at_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
                let look = Sample::take(&processes(), at_ns, &moves);
                told.store(look.as_ref().map_or(0, |look| look.untouched), Ordering::Relaxed);
                let sample = look.map(|look| look.sample);
                // of samples alike, the latest
                best = match (best, sample) {
                    (Some(best), Some(new)) if new.resident() < best.resident() => Some(best),
                    (best, new) => new.or(best),
                };
                pause = next_pause(pause, cpu_time().saturating_sub(before));
            }
            best
        };
        let thread = std::thread::Builder::new().name("colony-pages".into()).spawn(look)?;
        Ok(Self { end, thread, untouched })
    }

    /// Bytes that large pages could still take, by the last look.
    pub(crate) fn untouched(&self) -> u64 {
        self.untouched.load(Ordering::Relaxed)
    }

    /// The sample with the most memory.
    pub(crate) fn finish(self) -> Option<Sample> {
        drop(self.end);
        self.thread.join().ok().flatten()
    }
}

fn next_pause(pause: Duration, look: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST).max(look.saturating_mul(SHARE))
}

/// CPU time of this thread; zero if the kernel does not tell.
pub(crate) fn cpu_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_at_most_a_hundredth_of_the_time() {
        assert_eq!(next_pause(FIRST, Duration::from_micros(10)), FIRST * 3 / 2);
        assert_eq!(next_pause(LONGEST, Duration::from_millis(1)), LONGEST);
        assert_eq!(next_pause(LONGEST, Duration::from_millis(300)), Duration::from_secs(30));
    }

    #[test]
    fn the_largest_sample_is_kept() {
        let me = std::process::id().cast_signed();
        let start = |processes: Processes, first| {
            Watcher::start(Instant::now(), processes, first, Moves::default()).expect("a thread")
        };
        let watcher = start(Arc::new(move || vec![me]), None);
        assert!(start(Arc::new(Vec::new), None).finish().is_none());
        let first = Sample::take(&[me], 7, &Moves::default()).map(|look| look.sample);
        assert_eq!(start(Arc::new(Vec::new), first.clone()).finish(), first);
        drop(watcher.finish());
    }
}
