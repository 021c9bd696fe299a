// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernels that hang while their emulators run.
//!
//! A node has no tick and answers no questions while its program computes, so that nothing disturbs that. From outside it is
//! seen whether a processor is in the kernel, and whether the kernel does anything there: it counts wherever it may stay for
//! long. What is judged is the time that the processor has run, not the time that has passed: a host that is busy with other
//! things makes no node hang.

use std::fmt;
use std::time::{Duration, Instant};

use colony_node::task;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::Serialize;

use crate::look::{self, Cpu, State};
use crate::monitor::Monitor;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(200);
/// Processor time that the emulator of a node at work takes between two looks. With little time for each of many nodes, none
/// is asked often.
const WORK: Duration = Duration::from_millis(100);
/// Processor time in the kernel without a pulse: then it hangs.
const HANGS: Duration = Duration::from_secs(1);
/// Looks at the first processor, halted for good: then it hangs.
const LOOKS_OFF: u32 = 2;

/// A kernel hangs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hang {
    /// The processor.
    pub cpu: usize,
    /// Time that it has run in the kernel without doing anything, ns; none if it is halted and takes no interrupt.
    pub looped_ns: Option<u64>,
    /// Address of its next instruction, with the function that this is in.
    pub at: String,
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, looped_ns, at } = self;
        match looped_ns {
            Some(ns) => {
                let s = Duration::from_nanos(*ns).as_secs_f64();
                write!(f, "CPU {cpu} has run in the kernel for {s:.1} s without doing anything, at {at}")
            }
            None => write!(f, "CPU {cpu} is halted and takes no interrupt, at {at}"),
        }
    }
}

/// Judges looks at a node.
#[derive(Debug, Default)]
struct Judge {
    /// All counters at the last look.
    progress: Vec<Vec<u64>>,
    cpus: Vec<Seen>,
}

/// State of one processor over the looks so far.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Time that it had run, ns, when it was first seen in the kernel since the node last did anything.
    in_kernel_ns: Option<u64>,
    /// It is one that works: those that never started are off, too.
    works: bool,
    /// Looks at which it was off, in sequence.
    off: u32,
}

impl Judge {
    /// One more look: the processors, and the time that each has run, ns.
    fn look(&mut self, cpus: &[(Cpu, u64)]) -> Option<Hang> {
        let progress: Vec<_> = cpus.iter().map(|(cpu, _)| cpu.progress.clone()).collect();
        let stands = progress == self.progress;
        self.progress = progress;
        self.cpus.resize(cpus.len(), Seen::default());
        let mut hang = None;
        for (n, (seen, (cpu, ran_ns))) in self.cpus.iter_mut().zip(cpus).enumerate() {
            seen.works |= n == 0 || cpu.state != State::Off;
            seen.off = if cpu.state == State::Off && seen.works { seen.off + 1 } else { 0 };
            let before = seen.in_kernel_ns.filter(|_| stands);
            seen.in_kernel_ns = (cpu.state == State::Kernel).then(|| before.unwrap_or(*ran_ns));
            let looped_ns = seen.in_kernel_ns.map(|since| ran_ns.saturating_sub(since));
            if looped_ns.is_some_and(|ns| u128::from(ns) >= HANGS.as_nanos()) || seen.off >= LOOKS_OFF {
                hang.get_or_insert_with(|| Hang { cpu: n, looped_ns, at: look::place(cpu.rip) });
            }
        }
        hang
    }

    /// Returns `true` if the next look may tell that the node hangs, also if the emulator does nothing meanwhile.
    fn doubts(&self) -> bool {
        self.cpus.iter().any(|seen| seen.off > 0)
    }
}

/// Watches the kernel of a node.
#[derive(Debug)]
pub(crate) struct Watch {
    monitor: Monitor,
    emulator: Pid,
    cpus: u32,
    judge: Judge,
    looked: Instant,
    /// Time that the emulator had run, at the last look and when it last answered.
    ran: Duration,
    judged: Duration,
    found: Option<Hang>,
    /// The emulator does not tell.
    blind: bool,
}

impl Watch {
    /// Of a node of so many processors, by the monitor of this emulator.
    pub(crate) fn new(monitor: Monitor, emulator: u32, cpus: u32) -> Self {
        let zero = Duration::ZERO;
        Self {
            monitor,
            emulator: Pid::from_raw(emulator.cast_signed()),
            cpus,
            judge: Judge::default(),
            looked: Instant::now(),
            ran: zero,
            judged: zero,
            found: None,
            blind: false,
        }
    }

    /// Looks at a node that is up, if it is time; whether it hangs. Never waits.
    pub(crate) fn look(&mut self) -> Option<Hang> {
        if self.found.is_none() && !self.blind {
            self.blind = self.try_look().is_none();
        }
        self.found.clone()
    }

    /// `None` if the emulator does not tell.
    fn try_look(&mut self) -> Option<()> {
        if let Some(answers) = self.monitor.answers().ok()? {
            let cpus = look::parse(&answers)?.into_iter();
            let ran = |cpu: &Cpu| task::run_and_delay_ns(cpu.thread).map(|(ran, _)| ran);
            let cpus: Option<Vec<_>> = cpus.map(|cpu| ran(&cpu).map(|ran| (cpu, ran))).collect();
            self.found = self.judge.look(&cpus?);
            self.judged = self.time()?;
        }
        if self.looked.elapsed() < PERIOD || self.monitor.is_asked() {
            return Some(());
        }
        self.looked = Instant::now();
        let ran = self.time()?;
        let has_just_stopped = std::mem::replace(&mut self.ran, ran) == ran && ran != self.judged;
        if has_just_stopped || ran.saturating_sub(self.judged) >= WORK || self.judge.doubts() {
            self.monitor.ask(&look::commands(self.cpus)).ok()?;
        }
        Some(())
    }

    /// Gives the monitor a command of its own, and says its answer.
    pub(crate) fn tell(&mut self, command: String) -> std::io::Result<String> {
        while self.monitor.is_asked() {
            self.monitor.answers()?;
        }
        self.monitor.ask(&[command])?;
        loop {
            if let Some(answers) = self.monitor.answers()? {
                return Ok(answers.concat());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Time that the emulator has run.
    fn time(&self) -> Option<Duration> {
        Some(clock_getcpuclockid(self.emulator).ok()?.now().ok()?.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CPUS: usize = 2;

    fn cpu(state: State, progress: u64) -> Cpu {
        Cpu { state, rip: 0x1234, thread: 1, progress: vec![0, progress] }
    }

    /// The verdicts about looks at a node of two processors: state and pulses of each; both run for half a second between two.
    fn verdicts(looks: &[[(State, u64); CPUS]]) -> Vec<Option<Hang>> {
        let mut judge = Judge::default();
        let at = |n: usize| 7_000_000_000 + n as u64 * 500_000_000;
        let each = |(n, look): (usize, &[(State, u64); CPUS])| {
            let cpus: Vec<_> = look.iter().map(|&(state, pulses)| (cpu(state, pulses), at(n))).collect();
            judge.look(&cpus)
        };
        looks.iter().enumerate().map(each).collect()
    }

    #[test]
    fn a_processor_that_loops_in_the_kernel_is_found_by_the_time_that_it_ran() {
        let look = [(State::Program, 3), (State::Kernel, 8)];
        let found = verdicts(&[look; 5]);
        assert_eq!(found[..2], [None, None]);
        let hang = found[2].clone().expect("after 1 s");
        assert_eq!((hang.cpu, hang.looped_ns), (1, Some(1_000_000_000)));
        let text = "CPU 1 has run in the kernel for 1.0 s without doing anything, at 0x1234";
        assert_eq!(hang.to_string(), text);
    }

    #[test]
    fn a_processor_that_is_off_is_found_at_the_second_look_unless_it_never_worked() {
        let (on, off) = ((State::Halted, 1), (State::Off, 1));
        assert_eq!(verdicts(&[[on, off]; 20]), vec![None; 20]);
        let found = verdicts(&[[on, on], [on, off], [on, on], [off, off], [off, off]]);
        assert_eq!(found[..4], [None, None, None, None]);
        assert_eq!(found[4].as_ref().map(|hang| (hang.cpu, hang.looped_ns)), Some((0, None)));
        let text = found[4].as_ref().map(Hang::to_string).unwrap_or_default();
        assert_eq!(text, "CPU 0 is halted and takes no interrupt, at 0x1234");
    }

    fn works() -> impl Strategy<Value = State> {
        prop_oneof![Just(State::Program), Just(State::Kernel), Just(State::Halted)]
    }

    proptest! {
        #[test]
        fn nodes_that_do_anything_never_hang(looks in prop::collection::vec((works(), works(), 0..CPUS), 1..50)) {
            // one of the processors does something between two looks: the other may wait for it
            let mut pulses = [0; CPUS];
            let mut all = Vec::new();
            for (first, second, who) in looks {
                pulses[who] += 1;
                all.push([(first, pulses[0]), (second, pulses[1])]);
            }
            prop_assert!(verdicts(&all).iter().all(Option::is_none));
        }

        #[test]
        fn programs_that_compute_and_kernels_that_wait_never_hang(
            looks in prop::collection::vec((0..2usize, 0..2usize), 1..50)
        ) {
            let states = [State::Program, State::Halted];
            let all: Vec<_> = looks.iter().map(|&(a, b)| [(states[a], 5), (states[b], 6)]).collect();
            prop_assert!(verdicts(&all).iter().all(Option::is_none));
        }
    }
}
