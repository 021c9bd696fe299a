// SPDX-License-Identifier: MIT OR Apache-2.0
use crate::limits::{MAX_LOAD_S, MAX_OBJECTS, MAX_PES, MAX_SPEED, MIN_SPEED};

/// Input that a load balancer cannot work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BalanceError {
    /// No PE, or more than can be numbered.
    #[error("a load database needs 1 to {MAX_PES} PEs, and was given {0}")]
    Pes(u64),
    /// More objects than can be numbered.
    #[error("a load database holds at most {MAX_OBJECTS} objects")]
    Objects,
    /// A background load, or an object's load, that is no time.
    #[error("the load of {what} {number} is {found} s; it must be a number from 0 to {MAX_LOAD_S} s")]
    Load {
        /// `object` or `PE`.
        what: &'static str,
        /// The object's id, or the PE's number.
        number: u64,
        /// The value found.
        found: f64,
    },
    /// The relative speed of a PE makes no sense.
    #[error("the relative speed of PE {pe} is {found}; it must be a number from {MIN_SPEED} to {MAX_SPEED}")]
    Speed {
        /// The PE.
        pe: u32,
        /// The value found.
        found: f64,
    },
    /// An object on a PE that does not exist.
    #[error("object {id} is on PE {pe}, and the database has PEs 0 to {last}")]
    NoPe {
        /// The object's id.
        id: u64,
        /// The PE named.
        pe: u64,
        /// The last PE there is.
        last: u32,
    },
    /// A number of an object that does not exist.
    #[error("a database of {objects} objects was asked for object number {number}")]
    NoObject {
        /// The number.
        number: u64,
        /// Objects in the database.
        objects: usize,
    },
    /// Two objects with one id.
    #[error("the id {0} belongs to two objects; ids must be unique")]
    DuplicateId(u64),
    /// A placement of another database.
    #[error("a placement of {found} objects was given to a database of {expected}")]
    Placement {
        /// Objects in the database.
        expected: usize,
        /// Entries in the placement.
        found: usize,
    },
    /// No strategy has this name.
    #[error("there is no strategy `{found}`; known are {known}")]
    UnknownStrategy {
        /// The name given.
        found: String,
        /// The names there are.
        known: String,
    },
    /// An option that the strategy does not have, or a value it cannot take.
    #[error("strategy `{strategy}`: {problem}")]
    Option {
        /// The strategy.
        strategy: String,
        /// The unknown option or the value that is out of range.
        problem: String,
    },
    /// A topology that cannot be read, or has another number of PEs.
    #[error("topology `{found}`: {problem}")]
    Topology {
        /// The topology given.
        found: String,
        /// The cause.
        problem: String,
    },
    /// A configuration that cannot be read.
    #[error("load balancing configuration: {0}")]
    Config(String),
    /// Parameters of a generated database that contradict each other.
    #[error("generating a load database: {0}")]
    Generate(String),
}

impl BalanceError {
    /// Returns `true` if the arguments caused the error: the name of a strategy, an option, a topology or a shape.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(
            self,
            Self::UnknownStrategy { .. }
                | Self::Option { .. }
                | Self::Topology { .. }
                | Self::Generate(_)
                | Self::Pes(_)
        )
    }
}
