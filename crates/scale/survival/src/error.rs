// SPDX-License-Identifier: MIT OR Apache-2.0

/// Parameters that describe no machine, no job or no study.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SurvivalError {
    /// A parameter outside of its range.
    #[error("{parameter} is {found}; it must be {must}")]
    Parameter {
        /// The parameter's name, as the command line has it.
        parameter: &'static str,
        /// The value found.
        found: f64,
        /// The values allowed.
        must: &'static str,
    },
    /// A state that does not fit into memory.
    #[error(
        "a PE's state is {state} bytes and its memory {memory}; give a smaller --state, or a larger --memory"
    )]
    Memory {
        /// Bytes of state of a PE.
        state: f64,
        /// Bytes of memory of a PE.
        memory: f64,
    },
    /// Two copies on two hosts, and one host.
    #[error(
        "{pes} PEs at {pes_per_node} a node are one node, and a copy in memory needs a second; \
         give at least {} PEs, or fewer --pes-per-node",
        pes_per_node + 1
    )]
    Buddy {
        /// PEs of the job.
        pes: u64,
        /// PEs of a node.
        pes_per_node: u64,
    },
    /// Nothing to compare.
    #[error("no {0} was given; give at least one")]
    Nothing(&'static str),
    /// A scheme without this name.
    #[error("there is no scheme `{name}`; choose from {}", known.join(", "))]
    Scheme {
        /// The name.
        name: String,
        /// The schemes that there are.
        known: Vec<&'static str>,
    },
}
