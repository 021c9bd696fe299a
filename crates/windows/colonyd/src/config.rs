// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of `colonyd`: a TOML file in which every line has a default that works.

use std::path::{Path, PathBuf};

use colony_client::DEFAULT_MOUNT;
use colony_node::cpu::{self, CpuSet};
use colony_sched::backend::BackendChoice;
use colony_sched::ext::{ExtConfig, ExtError, ExtOptions};
use colony_sched::limits::{Limits, LimitsError};
use colony_time::{DutyCycle, text};
use serde::{Deserialize, Serialize};

use crate::access::{Access, AccessNames, UnknownName};
use crate::clock::ClockRules;
use crate::health::{HealthRules, HealthRulesError};
use crate::metrics::address::{MetricsError, MetricsNames, Place};
use crate::setting::{Setting, SettingError};

/// The default path of the configuration.
pub const DEFAULT_CONFIG: &str = "/etc/colony/colonyd.toml";

/// The configuration as a file gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The directory of the file tree.
    pub mount: PathBuf,
    /// The period at the start, in nanoseconds.
    #[serde(with = "colony_time::notation::ns", rename = "period")]
    pub period_ns: u64,
    /// The duty cycle at the start.
    #[serde(with = "colony_time::notation::duty")]
    pub duty_cycle: DutyCycle,
    /// CPUs the job may have in favored windows: a list, `all`, or (without it) all but the lowest.
    pub cpus: Option<String>,
    /// The backend that is asked for.
    pub backend: BackendChoice,
    /// Settings of the scheduler in the kernel.
    pub sched_ext: ExtOptions,
    /// The limits of windows on this node.
    pub limits: Limits,
    /// The conditions under which windows are coordinated.
    pub clock: ClockRules,
    /// Users and groups that have rights.
    pub access: AccessNames,
    /// The place where monitors read the metrics.
    pub metrics: MetricsNames,
    /// The signs of a failure that the daemon watches.
    pub health: HealthRules,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mount: DEFAULT_MOUNT.into(),
            period_ns: 100_000_000,
            duty_cycle: DutyCycle::Ppm(950_000),
            cpus: None,
            backend: BackendChoice::Auto,
            sched_ext: ExtOptions::default(),
            limits: Limits::default(),
            clock: ClockRules::default(),
            access: AccessNames::default(),
            metrics: MetricsNames::default(),
            health: HealthRules::default(),
        }
    }
}

/// A configuration that has been checked against this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The directory of the file tree; absolute.
    pub mount: PathBuf,
    /// The windows at the start.
    pub setting: Setting,
    /// CPUs the job may have in favored windows.
    pub cpus: CpuSet,
    /// The backend that is asked for.
    pub backend: BackendChoice,
    /// Settings of the scheduler in the kernel.
    pub sched_ext: ExtOptions,
    /// The limits of windows on this node.
    pub limits: Limits,
    /// The conditions under which windows are coordinated.
    pub clock: ClockRules,
    /// Users and groups that have rights.
    pub access: Access,
    /// The place where monitors read the metrics; `None` if nowhere.
    pub metrics: Option<Place>,
    /// The signs of a failure that the daemon watches.
    pub health: HealthRules,
}

impl Checked {
    /// The backend that is asked for, and the settings of the scheduler in the kernel.
    #[must_use]
    pub fn backend(&self) -> (BackendChoice, ExtOptions) {
        (self.backend, self.sched_ext.clone())
    }
}

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is no configuration; the text shows the line.
    #[error(
        "{path} is no configuration of colonyd: {source}correct that line, or see packaging/colonyd.toml"
    )]
    Toml {
        /// The file.
        path: PathBuf,
        /// The problem, with line and column.
        source: Box<toml::de::Error>,
    },
    /// The mount point is not absolute.
    #[error("the mount point {0} is no absolute path below /; write one such as /run/colony")]
    Mount(PathBuf),
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] LimitsError),
    /// The windows at the start are not possible.
    #[error("period = {}, duty_cycle = {duty_cycle}: {source}", text::Ns(*period_ns))]
    Setting {
        /// The period.
        period_ns: u64,
        /// The duty cycle.
        duty_cycle: DutyCycle,
        /// The reason.
        source: SettingError,
    },
    /// A user or group is not there.
    #[error(transparent)]
    Access(#[from] UnknownName),
    /// The metrics cannot be served at that place.
    #[error(transparent)]
    Metrics(#[from] MetricsError),
    /// The health of the node cannot be watched so.
    #[error(transparent)]
    Health(#[from] HealthRulesError),
    /// The scheduler in the kernel cannot work with these settings.
    #[error("[sched_ext] {0}")]
    SchedExt(ExtError),
    /// The CPUs cannot be used.
    #[error("cpus: {0}")]
    Cpus(#[from] colony_node::NodeError),
}

impl Config {
    /// Reads `path`. Without it, reads [`DEFAULT_CONFIG`] if that exists, and takes the defaults otherwise.
    ///
    /// # Errors
    /// [`ConfigError::Read`] where a file that was named is not there; [`ConfigError::Toml`] with the line.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let named = path.is_some();
        let path = path.unwrap_or(Path::new(DEFAULT_CONFIG));
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text)
                .map_err(|e| ConfigError::Toml { path: path.to_owned(), source: Box::new(e) }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && !named => Ok(Self::default()),
            Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }

    /// Reads the text of a configuration.
    ///
    /// # Errors
    /// The problem with the text, with line and column.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        toml::from_str(text)
    }

    /// Checks everything against this node: mount point, limits, windows, CPUs, users and groups.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that is wrong, and what to do.
    pub fn check(&self) -> Result<Checked, ConfigError> {
        if !self.mount.is_absolute() || self.mount.parent().is_none() {
            return Err(ConfigError::Mount(self.mount.clone()));
        }
        self.limits.validate()?;
        let setting = Setting::new(self.period_ns, self.duty_cycle, 0, &self.limits).map_err(|source| {
            ConfigError::Setting { period_ns: self.period_ns, duty_cycle: self.duty_cycle, source }
        })?;
        let cpus = job_cpus(self.cpus.as_deref())?;
        let options = self.sched_ext.clone();
        let ext = ExtConfig { windows: setting.windows(), cpus: cpus.clone(), entry: None, options };
        ext.check().map_err(ConfigError::SchedExt)?;
        self.health.check()?;
        Ok(Checked {
            mount: self.mount.clone(),
            setting,
            cpus,
            backend: self.backend,
            sched_ext: self.sched_ext.clone(),
            limits: self.limits,
            clock: self.clock,
            access: Access::resolve(&self.access)?,
            metrics: self.metrics.resolve(&self.mount)?,
            health: self.health.clone(),
        })
    }
}

/// The CPUs that `written` names. Default: every CPU except the lowest-numbered one, which is left for everything else.
fn job_cpus(written: Option<&str>) -> Result<CpuSet, colony_node::NodeError> {
    let usable = cpu::usable()?;
    let chosen = match written {
        Some("all") => usable,
        Some(list) => list.parse()?,
        None if usable.len() > 1 => usable.iter().skip(1).collect(),
        None => usable,
    };
    cpu::check(&chosen)?;
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_empty_file_is_the_default_and_the_example_too() {
        assert_eq!(Config::parse("").expect("empty"), Config::default());
        let example = include_str!("../../../../packaging/colonyd.toml");
        assert_eq!(Config::parse(example).expect("our example"), Config::default());
        // every line of the example may be uncommented as it stands
        let all: String = example
            .lines()
            .filter(|l| !l.starts_with("##"))
            .map(|l| format!("{}\n", l.strip_prefix("# ").unwrap_or(l)))
            .collect();
        let c = Config::parse(&all).expect("our example, uncommented");
        assert_eq!((c.period_ns, c.limits), (100_000_000, Limits::default()), "{all}");
    }

    #[test]
    fn a_wrong_line_is_shown_with_what_may_stand_there() {
        for (text, expected) in [
            ("\n\nperiodd = \"100ms\"\n", ["line 3", "unknown field `periodd`"]),
            ("period = \"100\"\n", ["line 1", "unit"]),
            ("[limits]\nlargest_duty_cycle = \"98ms\"\n", ["line 2", "98%"]),
            ("[limits]\nsmallest_regular = \"2ms\"\n", ["line 2", "smallest_regular_window"]),
            ("[clock]\nmax_error = \"1\"\n", ["line 2", "unit"]),
            ("[clock]\nfallback = \"on\"\n", ["line 2", "own-phase"]),
            ("[metrics]\nlisten = \"9464\"\n", ["line 2", "127.0.0.1:9464"]),
            ("backend = \"ext\"\n", ["line 1", "sched_ext"]),
            ("[sched_ext]\nexempt = [\"*\"]\n", ["line 2", "mmfsd"]),
            ("[health]\nslurm_period = \"5\"\n", ["line 2", "unit"]),
            ("[health]\nedac = true\n", ["line 2", "corrected_errors_per_hour"]),
            ("period = [", ["line 1", ""]),
        ] {
            let error = Config::parse(text).expect_err(text).to_string();
            assert!(expected.iter().all(|e| error.contains(e)), "{text:?} gives {error}");
        }
    }

    #[test]
    fn a_configuration_beyond_this_node_is_refused_at_the_start() {
        let base = Config::default();
        let bad = [
            (Config { mount: "run".into(), ..base.clone() }, "absolute"),
            (Config { mount: "/".into(), ..base.clone() }, "absolute"),
            (Config { cpus: Some("999".into()), ..base.clone() }, "no such CPU"),
            (Config { cpus: Some("".into()), ..base.clone() }, "CPU list"),
            (Config { duty_cycle: DutyCycle::Ppm(990_000), ..base.clone() }, "duty_cycle = 99%"),
            (Config { period_ns: 1, ..base.clone() }, "period"),
            (
                Config { sched_ext: ExtOptions { watchdog_ms: 0, ..ExtOptions::default() }, ..base.clone() },
                "[sched_ext] a watchdog of 0 ms",
            ),
            (
                Config {
                    metrics: MetricsNames { listen: "unix:/run/colony/x".parse().ok(), group: None },
                    ..base.clone()
                },
                "inside the file tree",
            ),
            (
                Config {
                    health: HealthRules { scontrol: Some("scontrol".into()), ..HealthRules::default() },
                    ..base.clone()
                },
                "/usr/bin/scontrol",
            ),
            (
                Config {
                    access: AccessNames { users: vec!["nobody at all".into()], ..AccessNames::default() },
                    ..base.clone()
                },
                "nobody at all",
            ),
        ];
        for (config, expected) in bad {
            let error = config.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
        let checked = base.check().expect("the defaults work on every node");
        assert!(!checked.cpus.is_empty());
    }

    #[test]
    fn one_cpu_is_left_for_everything_else_unless_told() {
        let usable = cpu::usable().expect("linux");
        let chosen = job_cpus(None).expect("a CPU");
        assert!(usable.len() == 1 || chosen.len() == usable.len() - 1);
        assert_eq!(job_cpus(Some("all")).expect("all"), usable);
    }

    #[test]
    fn a_named_file_must_be_there() {
        let error = Config::load(Some(Path::new("/nonexistent/colonyd.toml"))).expect_err("not there");
        assert!(error.to_string().contains("/nonexistent/colonyd.toml"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(period|duty_cycle|cpus|mount|\\[limits\\]|\\[access\\]|\\[metrics\\]\nlisten|x)?.{0,60}") {
            let _ = Config::parse(&text);
        }
    }
}
