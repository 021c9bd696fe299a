// SPDX-License-Identifier: MIT OR Apache-2.0
//! A measurement that is read while it runs.

use std::collections::BTreeMap;

use colony_time::Windows;
use hdrhistogram::Histogram;

use super::error::MeasureError;
use super::session::{Config, Session};
use crate::selfish::{Config as Observe, recorder};
use colony_trace::Source;

/// The detours of one CPU in a frame.
#[derive(Clone, Debug)]
pub struct FrameCpu {
    /// The CPU.
    pub cpu: usize,
    /// Detours.
    pub detours: u64,
    /// Their sum, nanoseconds.
    pub stolen_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// Stolen in favored windows and in regular ones, where windows are known.
    pub split_ns: Option<(u64, u64)>,
}

/// The detours between two readings of a running measurement.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Nanoseconds since the last frame.
    pub span_ns: u64,
    /// Each CPU.
    pub cpus: Vec<FrameCpu>,
    /// Stolen nanoseconds by source, all CPUs, since the last frame.
    pub sources: BTreeMap<Source, u64>,
    /// Lengths of the detours since the last frame, nanoseconds.
    pub lengths: Histogram<u64>,
}

/// A running measurement.
pub struct Live {
    session: Session,
    last_ns: i64,
}

impl Live {
    /// Starts observing; it ends when dropped, or after a day.
    ///
    /// # Errors
    /// As [`measure`](super::measure()).
    pub fn start(config: &Config) -> Result<Self, MeasureError> {
        let observe = Observe { duration_ns: Observe::MAX_DURATION_NS, ..config.observe.clone() };
        let session = Session::start(&Config { observe, ..config.clone() })?;
        Ok(Self { session, last_ns: colony_time::clock::Clock::Monotonic.now_ns() })
    }

    /// The reason for a measurement without attribution; `None` if detours are attributed.
    #[must_use]
    pub fn not_attributed(&self) -> Option<&str> {
        self.session.no_probe()
    }

    /// True if the observers still run.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.session.is_finished()
    }

    /// The detours since the last frame. `windows` splits them into favored and regular.
    pub fn next_frame(&mut self, windows: Option<&Windows>) -> Frame {
        let now_ns = colony_time::clock::Clock::Monotonic.now_ns();
        let span_ns = now_ns.saturating_sub(self.last_ns).max(1) as u64;
        self.last_ns = now_ns;
        let tai_ahead_ns = colony_time::clock::Clock::Tai.now_ns() - now_ns;
        let mut frame =
            Frame { span_ns, cpus: Vec::new(), sources: BTreeMap::new(), lengths: recorder::histogram() };
        self.session.step(|cpu, seen, attributed| {
            let mut one =
                FrameCpu { cpu, detours: 0, stolen_ns: 0, longest_ns: 0, split_ns: windows.map(|_| (0, 0)) };
            for d in seen {
                one.detours += 1;
                one.stolen_ns += d.duration_ns;
                one.longest_ns = one.longest_ns.max(d.duration_ns);
                frame.lengths.saturating_record(d.duration_ns);
                if let (Some(w), Some((favored, regular))) = (windows, &mut one.split_ns) {
                    let start_ns = d.start_ns + tai_ahead_ns;
                    let in_favored =
                        w.favored_time_between(start_ns, start_ns.saturating_add_unsigned(d.duration_ns));
                    *favored += in_favored;
                    *regular += d.duration_ns - in_favored;
                }
            }
            for (source, cause) in &attributed.causes {
                *frame.sources.entry(source.clone()).or_default() += cause.stolen_ns;
            }
            frame.cpus.push(one);
        });
        frame
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.session.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attribution;
    use colony_time::DutyCycle;

    #[test]
    fn two_looks_see_different_detours_and_their_split_adds_up() {
        let last = colony_node::cpu::usable().expect("linux").iter().last().expect("a CPU");
        let observe = Observe {
            cpus: [last].into_iter().collect(),
            duration_ns: 1,
            threshold_ns: 100,
            fifo: None,
            all_cpus: false,
            ring: 1 << 16,
            until: None,
        };
        let began = std::time::Instant::now();
        let mut live =
            Live::start(&Config { observe, attribution: Attribution::Auto, node: 0 }).expect("observes");
        let mut stolen_ns = 0;
        let windows = Windows::new(10_000_000, DutyCycle::Ppm(500_000), 0).expect("valid");
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            let frame = live.next_frame(Some(&windows));
            let [cpu] = &frame.cpus[..] else { panic!("one CPU") };
            assert!(live.is_running());
            // a detour may begin before the frame in which it ends, but no two overlap, and none is in two frames
            stolen_ns += cpu.stolen_ns;
            let elapsed_ns = began.elapsed().as_nanos();
            assert!(u128::from(stolen_ns) <= elapsed_ns, "{stolen_ns} ns of {elapsed_ns}");
            assert_eq!(cpu.split_ns.map(|(f, r)| f + r), Some(cpu.stolen_ns));
            assert_eq!(frame.sources.values().sum::<u64>(), cpu.stolen_ns);
            assert_eq!(frame.lengths.len(), cpu.detours);
        }
    }
}
