// SPDX-License-Identifier: MIT OR Apache-2.0
use colony_time::text::rounded_ns;

use crate::words::number_of;

/// A scenario that cannot be projected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimError {
    /// No node counts, or a count of zero.
    #[error("the projection needs node counts of at least 1; give some, as 1024,16384")]
    Nodes,
    /// A time of the program that is negative or no number, or no stage.
    #[error("the program's {parameter} is {found}; it must be a number above or equal to {least}")]
    Program {
        /// The value's name.
        parameter: &'static str,
        /// The value found.
        found: f64,
        /// The smallest possible.
        least: f64,
    },
    /// Noise without an observed span.
    #[error("the noise was observed for no time at all; measure for longer")]
    Span,
    /// A CPU that is never the program's.
    #[error("the detours of a CPU fill all of the {} observed: nothing would ever run there", rounded_ns(*span_ns as f64))]
    AlwaysTaken {
        /// The span observed.
        span_ns: u64,
    },
    /// The CPUs of a node were observed for different times.
    #[error("the CPUs of one node were observed for different spans ({} and {}); cut them to one", rounded_ns(*.0 as f64), rounded_ns(*.1 as f64))]
    Spans(u64, u64),
    /// A node without CPUs.
    #[error("a node needs at least one CPU; give its noise, or `CpuNoise::quiet`")]
    NoCpu,
    /// More ranks than can be simulated.
    #[error("{ranks} ranks are more than can be simulated ({max})")]
    Ranks {
        /// Ranks asked for.
        ranks: u64,
        /// The most there can be.
        max: u64,
    },
    /// A parameter of a distribution that makes no sense.
    #[error(
        "a distribution of times has the {parameter} {found}; it must be a number above 0, and below 36 years"
    )]
    Dist {
        /// The parameter's name.
        parameter: &'static str,
        /// The value found.
        found: f64,
    },
    /// Noise that asks for all of a CPU.
    #[error("the noise asks for {:.0} % of a CPU: nothing is left for the program", load * 100.0)]
    Load {
        /// Time asked for over time.
        load: f64,
    },
    /// A measurement of no node.
    #[error("no measured node was given to replay; give the noise of at least one")]
    NoTrace,
    /// A parameter of a scheduler that makes no sense.
    #[error("the scheduler `{scheduler}` has the {parameter} {found}; it must be {must}")]
    Scheduler {
        /// Its name.
        scheduler: &'static str,
        /// The parameter's name.
        parameter: &'static str,
        /// The value found.
        found: f64,
        /// The values allowed.
        must: &'static str,
    },
    /// Noise on a core that runs no rank.
    #[error("the noise `{source_name}` is on core {core}, and ranks run on {} of a node (from 0)", number_of((*cores).into(), "core"))]
    NoCore {
        /// Its source.
        source_name: String,
        /// The core.
        core: u32,
        /// Cores with ranks.
        cores: u32,
    },
    /// More noise than one core can serve.
    #[error(
        "the noise of {} asks for {:.0} % of one spare core: its backlog would grow for ever; \
         take more spare cores, or fewer cores for each",
        number_of((*cores).into(), "core"),
        load * 100.0
    )]
    SpareCore {
        /// Cores whose noise it serves.
        cores: u32,
        /// Time asked for over time.
        load: f64,
    },
    /// A program that makes no sense.
    #[error("the program `{program}` {fault}")]
    BadProgram {
        /// Its name.
        program: String,
        /// The number of the faulty step in each body around it, from 0, the outermost body first. Empty if the fault is the
        /// whole program's.
        step: Vec<usize>,
        /// The fault.
        fault: String,
    },
    /// A rank that never got its CPU.
    #[error("rank {rank} never gets its CPU: noise takes all of its time under this scheduler")]
    Starved {
        /// The rank.
        rank: u32,
    },
    /// Dimensions that do not hold the machine.
    #[error("a torus of {} nodes ({dims:?}) has no room for {nodes}; give larger dimensions, or zeros",
        dims.iter().map(|&d| u128::from(d)).product::<u128>())]
    Torus {
        /// The dimensions.
        dims: [u32; 3],
        /// Nodes.
        nodes: u32,
    },
    /// A program whose time cannot be counted.
    #[error("the program `{program}` takes longer than the {} years that can be counted; \
        give fewer iterations or shorter steps", u64::MAX / 8 / 31_557_600_000_000_000)]
    TooLong {
        /// Its name.
        program: String,
    },
    /// Nothing to run.
    #[error("a simulation of 0 repetitions says nothing; give at least 1")]
    Repetitions,
    /// A machine that no profile is of.
    #[error("there is no machine `{name}`; choose one of {}, or give a file that ends in .toml",
        known.join(", "))]
    UnknownMachine {
        /// Its name.
        name: String,
        /// The machines that there are.
        known: &'static [&'static str],
    },
    /// A machine profile that cannot be read.
    #[error("{at}: no machine profile: {fault}")]
    BadProfile {
        /// File and line.
        at: String,
        /// The fault.
        fault: String,
    },
    /// A machine that makes no sense.
    #[error("the machine `{name}`: {fault}")]
    BadMachine {
        /// Its name.
        name: String,
        /// The fault.
        fault: String,
    },
}

impl SimError {
    /// A fault of `program` as a whole.
    pub(crate) fn bad_program(program: &str, fault: impl Into<String>) -> Self {
        Self::BadProgram { program: program.to_owned(), step: Vec::new(), fault: fault.into() }
    }

    /// The same error, as one of step `number` of a body.
    pub(crate) fn in_step(mut self, number: usize) -> Self {
        if let Self::BadProgram { step, .. } = &mut self {
            step.insert(0, number);
        }
        self
    }
}
