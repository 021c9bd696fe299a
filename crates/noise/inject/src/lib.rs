// SPDX-License-Identifier: MIT OR Apache-2.0
//! Noise on purpose: to reproduce an experiment, to prove a cure, to prove a measurement.
//!
//! * [`leibniz`]: the noise daemon of the Colony Linux kernel technical report (appendix A.1), with the
//!   table of its Fig. 4 in [`noise_table`];
//! * [`detours`]: detours of one length at fixed or random intervals, in phase on all CPUs or not (the
//!   detour benchmarks of *Initial Results: Experiments on Watson BlueGene/L*);
//! * [`replay`]: the detours of a recorded [trace](colony_trace::Trace), again.
//!
//! The last two share one injector: a thread per CPU that sleeps until an instant of its [schedule] and
//! then spins. What it really did, and what a program on that CPU saw of it, stands in the
//! [report] beside what was asked for.
//!
//! Every run ends at its deadline and within half a second of its stop flag. The threads belong to the
//! calling process and change nothing but themselves, so a process that dies leaves nothing behind.

use colony_node::{NodeError, cpu::CpuSet};
use colony_time::text::Ns;

mod budget;
pub mod detours;
mod injector;
pub mod leibniz;
pub mod noise_table;
mod quantiles;
pub mod replay;
pub mod report;
pub mod schedule;
mod session;
mod threads;
mod victim;

pub use detours::{DetourPlan, DetourReport};
pub use leibniz::{Amount, LeibnizPlan, LeibnizReport};
pub use quantiles::Quantiles;
pub use replay::{CpuMap, ReplayPlan, ReplayReport};
pub use report::Injection;
pub use schedule::{Intervals, Phase, Planned, Schedule};
pub use session::{ClassChoice, Target};
pub use threads::THREADS;

/// A wish for noise that cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// The node refused, or has no such CPU.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A noise share that is no share, or leaves nothing to the program.
    #[error("{noise} % of noise cannot be made; ask for more than 0 % and at most {limit} %")]
    Noise {
        /// The share asked for, percent.
        noise: f64,
        /// The largest share.
        limit: f64,
    },
    /// Text that is no noise share.
    #[error("`{text}` is no noise share; write one as 21% or 0.21")]
    NoiseText {
        /// The text given.
        text: String,
    },
    /// Detours that leave no time between them.
    #[error(
        "detours of {} every {} cannot be made: a detour takes at least 1 ns and at most {limit} % of its \
         interval",
        Ns(*length_ns), Ns(*interval_ns)
    )]
    Duty {
        /// Length asked for.
        length_ns: u64,
        /// Interval asked for.
        interval_ns: u64,
        /// Largest share of the interval, percent.
        limit: f64,
    },
    /// Detours that follow each other faster than a thread can be woken, or too slowly to be counted.
    #[error(
        "an interval of {} cannot be kept; choose one between {} and one hour",
        Ns(*interval_ns), Ns(*shortest_ns)
    )]
    Interval {
        /// Interval asked for.
        interval_ns: u64,
        /// The shortest.
        shortest_ns: u64,
    },
    /// A detour so long that the kernel would throttle the injector.
    #[error(
        "a detour of {} cannot be made; the longest is {}. For longer spells of work inject with `leibniz`",
        Ns(*length_ns), Ns(*limit_ns)
    )]
    TooLong {
        /// Length asked for.
        length_ns: u64,
        /// The longest.
        limit_ns: u64,
    },
    /// An upper bound of zero terms.
    #[error("a calculation of at most {max_terms} terms cannot be made; choose 1 to {limit}")]
    Terms {
        /// The bound asked for.
        max_terms: u64,
        /// The largest bound.
        limit: u64,
    },
    /// A run of no length.
    #[error("{run} of 0 s does nothing; choose a longer one")]
    Empty {
        /// The run that has no duration.
        run: &'static str,
    },
    /// Real-time injection on all CPUs, and nobody said so.
    #[error(
        "real-time injection on {cpus} would take every online CPU, so that the node could hardly be \
         reached; leave one out (--cpus), inject as SCHED_OTHER (--class other), or say that all are meant \
         (--all-cpus)"
    )]
    AllCpus {
        /// The CPUs asked for.
        cpus: CpuSet,
    },
    /// A real-time priority the kernel does not have.
    #[error("priority {priority} cannot be used; real-time priorities for injection are 1 to 98")]
    Priority {
        /// The priority asked for.
        priority: u8,
    },
    /// Text that is no phase, no scheduling class or no map of CPUs.
    #[error("`{text}` is no {wanted}; write {notation}")]
    Text {
        /// The text given.
        text: String,
        /// The value that the text should hold.
        wanted: &'static str,
        /// The notation of such a value.
        notation: &'static str,
    },
    /// A speed that is no positive number.
    #[error(
        "a trace cannot be replayed at speed {speed}; choose one between 0.001 and 1000 (1 is as recorded)"
    )]
    Speed {
        /// The speed asked for.
        speed: f64,
    },
    /// A trace, or the part of it chosen, without a detour.
    #[error(
        "the trace has no detour on {wanted}; it has {found}. \
         Choose another node or map of CPUs, or measure with a lower threshold"
    )]
    NoDetours {
        /// Node and CPUs chosen.
        wanted: String,
        /// The nodes and CPUs of the trace.
        found: String,
    },
    /// No thread could be started.
    #[error("{thread} could not be started: {source}; are there too many threads or too little memory?")]
    Thread {
        /// The thread.
        thread: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A thread of ours panicked; a defect of Colony.
    #[error("{thread} ended by a panic; this is a defect of Colony, please report it")]
    Panicked {
        /// The thread.
        thread: &'static str,
    },
}

impl InjectError {
    /// True if the caller's request is impossible (exit code 2), false if the run failed (exit code 1).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        match self {
            Self::Node(e) => e.is_wrong_use(),
            Self::Thread { .. } | Self::Panicked { .. } => false,
            _ => true,
        }
    }
}
