// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strategies: pure functions from a load database to a new PE for each object.

mod domain;
mod gossip;
mod greedy;
mod hybrid;
#[cfg(feature = "metis")]
mod metis;
mod options;
mod random;
mod refine;
mod rotate;
mod shed;
mod topology;

#[cfg(test)]
mod tests;

use crate::database::Database;
use crate::error::BalanceError;
use crate::topology::Topology;

pub use gossip::Gossip;
pub use greedy::Greedy;
pub use hybrid::{Hybrid, TreeEffort};
#[cfg(feature = "metis")]
pub use metis::Metis;
pub use random::Random;
pub use refine::{GreedyRefine, Refine};
pub use rotate::Rotate;
pub use topology::TopologyAware;

/// A strategy's decision and its effort.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The new PE of each object, in the order of the objects' numbers.
    pub placement: Vec<u32>,
    /// The strategy's effort.
    pub effort: Effort,
}

/// A strategy's effort besides time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Bytes of load database on the PE that has most of it: the whole database for a central strategy.
    pub database_bytes_one_pe: u64,
    /// Messages between PEs that distribute load information and decisions.
    pub messages: u64,
}

impl Effort {
    /// A strategy that collects everything on one PE: each other PE sends its loads and receives the decisions.
    pub(crate) fn central(database: &Database) -> Self {
        let others = database.pes().len() as u64 - 1;
        Self { database_bytes_one_pe: database.memory_bytes(), messages: 2 * others }
    }
}

/// Decides where objects shall be. Strategies are pure functions: for one database and topology they always decide the
/// same. They honour background loads and speeds, and leave objects that are not migratable where they are.
pub trait Strategy: std::fmt::Debug + Send + Sync {
    /// Its name, as [`Strategies::parse`] takes it.
    fn name(&self) -> &'static str;

    /// Returns `true` if the decision depends on the messages between objects.
    fn uses_communication(&self) -> bool {
        false
    }

    /// The new PE of each object.
    ///
    /// # Errors
    /// The topology has another number of PEs than the database.
    fn assign(&self, database: &Database, topology: &Topology) -> Result<Outcome, BalanceError>;
}

/// Makes a strategy of its options.
type Maker = fn(&str, toml::Table) -> Result<Box<dyn Strategy>, BalanceError>;

/// The strategies by name.
pub struct Strategies;

impl Strategies {
    const ALL: &'static [(&'static str, Maker)] = &[
        ("greedy", options::make::<Greedy>),
        ("greedy-refine", options::make::<GreedyRefine>),
        ("refine", options::make::<Refine>),
        ("hybrid", options::make::<Hybrid>),
        ("gossip", options::make::<Gossip>),
        ("topology", options::make::<TopologyAware>),
        #[cfg(feature = "metis")]
        ("metis", options::make::<Metis>),
        ("rotate", options::make::<Rotate>),
        ("random", options::make::<Random>),
    ];

    /// Names of all strategies.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(name, _)| *name)
    }

    /// The strategy of a text such as `refine` or `refine:tolerance=1.01`: a name, and options behind colons.
    ///
    /// # Errors
    /// The name or an option is not known (the error lists the known ones), or a value is out of range.
    pub fn parse(text: &str) -> Result<Box<dyn Strategy>, BalanceError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut table = toml::Table::new();
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| BalanceError::Option {
                strategy: name.to_owned(),
                problem: format!("`{part}` is no option; write NAME=VALUE"),
            })?;
            let repeated = table.insert(key.trim().to_owned(), options::value(value.trim())).is_some();
            if repeated {
                let problem = format!("option `{key}` is given twice");
                return Err(BalanceError::Option { strategy: name.to_owned(), problem });
            }
        }
        Self::make(name, table)
    }

    /// The strategy of a name and a table of options, as in a configuration file.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn make(name: &str, options: toml::Table) -> Result<Box<dyn Strategy>, BalanceError> {
        let Some((name, maker)) = Self::ALL.iter().find(|(known, _)| *known == name) else {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            return Err(BalanceError::UnknownStrategy { found: name.to_owned(), known });
        };
        maker(name, options)
    }
}
