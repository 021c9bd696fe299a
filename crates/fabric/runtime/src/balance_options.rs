// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of load balancing, and the file of each load database.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use colony_balance::config::{Config, Rule};
use colony_balance::database::Database;
use colony_balance::strategy::Strategies;
use colony_balance::topology::Topology;
use colony_balance::trigger::Trigger;

/// The variable with a strategy, or the path of a configuration file.
const STRATEGY: &str = "COLONY_BALANCE";
/// The variable with the topology.
const TOPOLOGY: &str = "COLONY_BALANCE_TOPOLOGY";
/// The variable that names the files of load databases.
const RECORD: &str = "COLONY_BALANCE_RECORD";

/// Load balancing: strategies, and when they run.
#[derive(Clone, Debug)]
pub struct BalanceOptions {
    /// Strategies and triggers by iteration; an iteration is one `at_sync` of all objects.
    pub config: Arc<Config>,
    /// Links between PEs.
    pub topology: Topology,
    /// PE 0 writes the load database of each iteration into the file `PREFIX.ITERATION.json`, for `colony lb replay`.
    pub record: Option<PathBuf>,
}

impl BalanceOptions {
    /// Load balancing by a configuration, on PEs that are all one link from each other.
    #[must_use]
    pub fn new(config: impl Into<Arc<Config>>) -> Self {
        Self { config: config.into(), topology: Topology::Flat, record: None }
    }

    /// One strategy at every `at_sync`, by its name and options such as `refine:tolerance=1.01`.
    ///
    /// # Errors
    /// A text for people, if there is no such strategy or option.
    pub fn strategy(text: &str) -> Result<Self, String> {
        let strategy = Strategies::parse(text).map_err(|e| e.to_string())?;
        Ok(Self::new(Config::always(strategy, Trigger::AtSync)))
    }

    /// These options with what the environment changes in them: `COLONY_BALANCE` is a strategy and its options, the path
    /// of a configuration file (with a `/`, or `.toml` at its end), or `none`; `COLONY_BALANCE_TOPOLOGY` is a topology
    /// such as `torus:4x8`; `COLONY_BALANCE_RECORD` is the prefix of [`record`](Self::record).
    ///
    /// # Errors
    /// A text for people, which names the variable.
    pub fn with_environment(given: Option<Self>) -> Result<Option<Self>, String> {
        let text = |name: &str| match std::env::var_os(name).map(OsString::into_string) {
            Some(Err(wrong)) => Err(format!("{name} is {wrong:?}, which is no UTF-8")),
            Some(Ok(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            None => Ok(None),
        };
        let mut options = match text(STRATEGY)?.as_deref() {
            None => given,
            Some("none") => None,
            Some(name) => {
                let found = if name.contains('/') || name.ends_with(".toml") {
                    Self::read(Path::new(name))
                } else {
                    Self::strategy(name)
                };
                let new = found.map_err(|e| format!("{STRATEGY}: {e}"))?;
                let Self { topology, record, .. } = given.unwrap_or_else(|| new.clone());
                Some(Self { topology, record, ..new })
            }
        };
        if let Some(options) = &mut options {
            if let Some(topology) = text(TOPOLOGY)? {
                options.topology = topology.parse().map_err(|e| format!("{TOPOLOGY}: {e}"))?;
            }
            if let Some(prefix) = std::env::var_os(RECORD).filter(|prefix| !prefix.is_empty()) {
                options.record = Some(prefix.into());
            }
        }
        Ok(options)
    }

    fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| format!("cannot read {shown}: {e}"))?;
        Config::parse(&text).map(Self::new).map_err(|e| format!("{shown}: {e}"))
    }

    /// The rule by which this iteration is balanced, if it is.
    pub(crate) fn rule_of(&self, iteration: u64) -> Option<&Rule> {
        self.config.rule(iteration).filter(|rule| rule.runs_at(iteration + 1))
    }

    /// Returns `true` if messages between objects of this iteration have to be known.
    pub(crate) fn wants_traffic(&self, iteration: u64) -> bool {
        self.record.is_some()
            || self.rule_of(iteration).is_some_and(|rule| rule.strategy.uses_communication())
    }

    /// Returns `true` if messages between objects have to be recorded in a run.
    pub(crate) fn records_traffic(&self) -> bool {
        self.record.is_some() || self.config.rules().iter().any(|rule| rule.strategy.uses_communication())
    }

    /// Writes the load database of an iteration, if it is to be. The file is there whole, or not at all.
    pub(crate) fn write(&self, iteration: u64, database: &Database) -> Result<(), String> {
        let Some(prefix) = &self.record else { return Ok(()) };
        let named = |end: &str| {
            let mut path = prefix.clone().into_os_string();
            path.push(format!(".{iteration}.{end}"));
            PathBuf::from(path)
        };
        let (path, part) = (named("json"), named("json.part"));
        let written = std::fs::File::create(&part).and_then(|file| {
            let mut file = std::io::BufWriter::new(file);
            colony_balance::file::write(database, &mut file)?;
            file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
            std::fs::rename(&part, &path)
        });
        written.map_err(|e| {
            let _ = std::fs::remove_file(&part);
            format!("cannot write the load database {}: {e}", path.display())
        })
    }
}
