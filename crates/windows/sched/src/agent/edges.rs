// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's thread on one CPU: asleep until an edge, then it switches its tasks.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use colony_node::class::{self, Class};
use colony_node::{NodeError, cpu};
use colony_time::clock::Clock;
use colony_time::{Edge, WindowKind, Windows};
use rtrb::{Consumer, Producer};

use super::table::{Mark, Switched, Table};
use crate::cgroup::ThreadEntry;

/// Beginning of the names of threads at the edges; the number of the CPU follows.
pub(super) const EDGE_THREAD: &str = "colony-edge/";

/// Time before an edge at which a thread gets ready for it. Until then new windows, or the end, reach it at once.
const LEAD_NS: i64 = 1_000_000;

/// Time slice of a job task while others of the job wait for its CPU: far longer than the cost of a switch, and short
/// beside the windows.
const TURN_NS: i64 = 4_000_000;

/// The state that the threads of one agent share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) table: Table,
    pub(super) stop: AtomicBool,
    pub(super) counts: Counts,
}

/// Counters kept by all threads of an agent.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) edges: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) switches: AtomicU64,
    pub(super) settled: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) errno: AtomicI32,
    /// CPU time of threads, each its own slot: threads by position, then the scanner.
    pub(super) cpu_ns: Vec<AtomicU64>,
}

impl Counts {
    pub(super) fn new(threads: usize) -> Self {
        Self { cpu_ns: (0..threads).map(|_| AtomicU64::new(0)).collect(), ..Self::default() }
    }

    pub(super) fn note(&self, s: Switched, total: &AtomicU64) {
        total.fetch_add(s.done, Ordering::Relaxed);
        if s.failed > 0 {
            self.errors.fetch_add(s.failed, Ordering::Relaxed);
            self.errno.store(s.errno, Ordering::Relaxed);
        }
    }

    pub(super) fn note_cpu(&self, position: usize) {
        if let Some(slot) = self.cpu_ns.get(position) {
            slot.store(Clock::ThreadCpu.now_ns().max(0).unsigned_abs(), Ordering::Relaxed);
        }
    }
}

/// One edge, as one thread met it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub(super) late_ns: u64,
    pub(super) switching_ns: u64,
}

/// The thread of one CPU, before it runs.
pub(super) struct EdgeThread {
    pub(super) cpu: usize,
    /// Its position among the agent's threads: the home of its tasks.
    pub(super) home: usize,
    pub(super) priority: u8,
    /// The way into the job's group, if it must enter it.
    pub(super) entry: Option<ThreadEntry>,
    pub(super) windows: Windows,
    /// The instant of the last edge it met, or of its start: later edges are still to be met.
    pub(super) met_ns: i64,
    pub(super) shared: Arc<Shared>,
    pub(super) records: Producer<Record>,
    pub(super) news: Consumer<Windows>,
    /// The task (its slot) whose turn it is, and since when.
    pub(super) turn: (usize, i64),
}

impl EdgeThread {
    /// Prepares this thread, says so, and keeps the edges until it is told to stop.
    pub(super) fn run(mut self, ready: &SyncSender<Result<(), NodeError>>) {
        let prepared = self.prepare();
        let failed = prepared.is_err();
        let sent = ready.send(prepared);
        if failed || sent.is_err() {
            return;
        }
        while let Some(edge) = self.wait() {
            self.meet(edge);
        }
    }

    fn prepare(&mut self) -> Result<(), NodeError> {
        // in this order: an ordinary thread might wait long for a CPU that is busy
        class::set_not_inherited(0, Class::Fifo(self.priority))?;
        if let Some(entry) = &self.entry {
            let what = "entering the job's control group".to_owned();
            entry.enter().map_err(|source| NodeError::System { what, source, hint: None })?;
        }
        cpu::pin(self.cpu)?;
        // real-time threads have no slack in current kernels; others round a sleep up by 50 µs
        let _ = nix::sys::prctl::set_timerslack(1);
        touch_stack();
        // the whole way once, on no task, so that its pages are there
        self.shared.table.switch(usize::MAX, Mark::at(&self.windows, Clock::Tai.now_ns()));
        // edges before it was ready are not late
        self.met_ns = Clock::Tai.now_ns();
        Ok(())
    }

    /// Sleeps until the next edge; `None` at the end. An edge that passed while this thread could not run is met late,
    /// not left out: that would leave its tasks in the class of the window before.
    fn wait(&mut self) -> Option<Edge> {
        loop {
            if self.shared.stop.load(Ordering::Acquire) {
                return None;
            }
            let now = Clock::Tai.now_ns();
            while let Ok(windows) = self.news.pop() {
                self.windows = windows;
                self.met_ns = now;
            }
            // TAI may have been set back
            self.met_ns = self.met_ns.min(now);
            let edge = self.windows.next_edge(self.met_ns);
            let left = edge.at_ns - now;
            if left > LEAD_NS {
                let rest = self.take_turns(now).min(left - LEAD_NS / 2);
                // the length is looked at again afterwards: TAI may have been set meanwhile
                std::thread::park_timeout(Duration::from_nanos(rest.unsigned_abs()));
                continue;
            }
            Clock::Tai.sleep_until(edge.at_ns);
            return (!self.shared.stop.load(Ordering::Acquire)).then_some(edge);
        }
    }

    /// Has the tasks that share this CPU take turns in a favored window; how long until the next turn.
    fn take_turns(&mut self, now: i64) -> i64 {
        let (table, mark) = (&self.shared.table, Mark::at(&self.windows, now));
        if self.windows.kind(now) != WindowKind::Favored || !table.is_crowded(self.home) {
            return i64::MAX;
        }
        let (slot, since) = &mut self.turn;
        let had = now.saturating_sub(*since);
        if (0..TURN_NS).contains(&had) {
            return TURN_NS - had;
        }
        table.take_turns(self.home, mark, slot);
        *since = now;
        TURN_NS
    }

    /// Switches this thread's tasks for the window that has just opened.
    fn meet(&mut self, edge: Edge) {
        let woke = Clock::Tai.now_ns();
        self.met_ns = woke;
        let mark = Mark::at(&self.windows, woke);
        let switched = self.shared.table.switch(self.home, mark);
        let done = Clock::Tai.now_ns();

        let counts = &self.shared.counts;
        counts.edges.fetch_add(1, Ordering::Relaxed);
        counts.note(switched, &counts.switches);
        if mark != Mark::at(&self.windows, edge.at_ns) {
            counts.missed.fetch_add(1, Ordering::Relaxed);
        }
        // a full ring means that the scanner is held up; the counters above lose nothing
        let _ = self.records.push(Record {
            late_ns: (woke - edge.at_ns).max(0).unsigned_abs(),
            switching_ns: (done - woke).max(0).unsigned_abs(),
        });
        counts.note_cpu(self.home);
    }
}

/// Makes the pages of the stack present, so that none faults at an edge.
fn touch_stack() {
    let mut pages = [0u8; 64 * 1024];
    for page in pages.chunks_mut(4096) {
        page[0] = 1;
    }
    black_box(&pages);
}

#[cfg(test)]
mod tests {
    use colony_node::cpu::CpuSet;
    use colony_time::DutyCycle;
    use rtrb::RingBuffer;

    use super::super::config::RegularClass;
    use super::*;

    #[test]
    fn an_edge_that_passed_while_the_thread_could_not_run_is_met() {
        const PERIOD_NS: u64 = 1_000_000_000_000;
        let now = Clock::Tai.now_ns();
        // the regular window began a moment ago, and the next edge is minutes away
        let epoch = now - 50_000_000 - (PERIOD_NS / 2) as i64;
        let windows = Windows::new(PERIOD_NS, DutyCycle::Ns(PERIOD_NS / 2), epoch).expect("valid");
        let shared = Shared {
            table: Table::new(1, RegularClass::Idle, &CpuSet::default()),
            stop: AtomicBool::new(false),
            counts: Counts::new(1),
        };
        let (records, mut recorded) = RingBuffer::new(4);
        let (_tell, news) = RingBuffer::new(4);
        let mut thread = EdgeThread {
            cpu: 0,
            home: 0,
            entry: None,
            priority: 1,
            windows,
            met_ns: now - 100_000_000,
            shared: Arc::new(shared),
            records,
            news,
            turn: (0, 0),
        };
        let edge = thread.wait().expect("it has not ended");
        assert_eq!(edge, windows.next_edge(now - 100_000_000));
        thread.meet(edge);
        assert!(recorded.pop().expect("met").late_ns >= 50_000_000);
        assert_eq!(thread.shared.counts.missed.load(Ordering::Relaxed), 0, "its window is still open");
        // once only
        assert!(thread.windows.next_edge(thread.met_ns).at_ns > now);
        thread.shared.stop.store(true, Ordering::Release);
        assert_eq!(thread.wait(), None);
    }
}
