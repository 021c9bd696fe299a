// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration file: which strategy, when, in which iterations.

use serde::Deserialize;

use crate::error::BalanceError;
use crate::strategy::{Strategies, Strategy};
use crate::trigger::{CostModel, Trigger};

/// Schema of the configuration file.
pub const SCHEMA: &str = "colony.balance/1";

/// The largest configuration file, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The load balancing of each iteration.
///
/// ```
/// let config = colony_balance::config::Config::parse(r#"
///     schema = "colony.balance/1"
///
///     [[phase]]                    # the first 100 iterations: balance at every chance
///     to = 100
///     strategy = "greedy"
///     trigger = "at-sync"
///
///     [[phase]]                    # later: only if it pays
///     strategy = "rotate"
///     options = { by = 2 }
///     trigger = "when-it-pays"
///     cost = { bandwidth-bytes-per-s = 2e9 }
/// "#)?;
/// assert_eq!(config.rule(99).map(|r| r.strategy.name()), Some("greedy"));
/// assert_eq!(config.rule(100).map(|r| r.strategy.name()), Some("rotate"));
/// # Ok::<(), colony_balance::BalanceError>(())
/// ```
#[derive(Debug)]
pub struct Config {
    rules: Vec<Rule>,
}

/// The load balancing in a range of iterations.
#[derive(Debug)]
pub struct Rule {
    /// Name of the program's phase that it is for, or any.
    pub phase: Option<String>,
    /// The first iteration.
    pub from: u64,
    /// The iteration behind the last, if there is one.
    pub to: Option<u64>,
    /// The strategy.
    pub strategy: Box<dyn Strategy>,
    /// Condition under which the strategy runs.
    pub trigger: Trigger,
    /// Synchronization points between two decisions; 1 unless the trigger is periodic.
    pub period: u64,
    /// The cost of migrations.
    pub cost: CostModel,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(default)]
    phase: Vec<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    name: Option<String>,
    #[serde(default)]
    from: u64,
    to: Option<u64>,
    strategy: String,
    #[serde(default)]
    options: toml::Table,
    trigger: Trigger,
    period: Option<u64>,
    #[serde(default)]
    cost: CostModel,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// The text is no TOML, has an unknown field, strategy or option, or has an empty range or period.
    pub fn parse(text: &str) -> Result<Self, BalanceError> {
        let fail = |problem: String| BalanceError::Config(problem);
        if text.len() > MAX_BYTES {
            return Err(fail(format!("the file has {} bytes; at most {MAX_BYTES} are possible", text.len())));
        }
        let file: File = toml::from_str(text).map_err(|e| fail(e.to_string()))?;
        if file.schema != SCHEMA {
            return Err(fail(format!("its schema is `{}`; write schema = \"{SCHEMA}\"", file.schema)));
        }
        if file.phase.is_empty() {
            return Err(fail("it has no [[phase]]; write at least one".to_owned()));
        }
        let rules =
            (1..).zip(file.phase).map(|(n, section)| Rule::of(n, section)).collect::<Result<_, _>>()?;
        Ok(Self { rules })
    }

    /// One strategy at every synchronization point of every iteration.
    #[must_use]
    pub fn always(strategy: Box<dyn Strategy>, trigger: Trigger) -> Self {
        let cost = CostModel::default();
        Self { rules: vec![Rule { phase: None, from: 0, to: None, strategy, trigger, period: 1, cost }] }
    }

    /// The rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The first rule without a phase's name that covers an iteration.
    #[must_use]
    pub fn rule(&self, iteration: u64) -> Option<&Rule> {
        self.rules.iter().find(|r| r.phase.is_none() && r.covers(iteration))
    }

    /// The first rule that covers an iteration of a named phase: one with that name, else one without a name.
    #[must_use]
    pub fn rule_in(&self, phase: &str, iteration: u64) -> Option<&Rule> {
        let named = self.rules.iter().find(|r| r.phase.as_deref() == Some(phase) && r.covers(iteration));
        named.or_else(|| self.rule(iteration))
    }
}

impl Rule {
    fn of(number: usize, section: Section) -> Result<Self, BalanceError> {
        let fail = |problem: String| BalanceError::Config(format!("phase {number}: {problem}"));
        let Section { name, from, to, strategy, options, trigger, period, cost } = section;
        if to.is_some_and(|to| to <= from) {
            return Err(fail(format!("it ends at iteration {} and begins at {from}", to.unwrap_or(0))));
        }
        if period == Some(0) || period.is_some() != (trigger == Trigger::Periodic) {
            return Err(fail(
                "period = N (at least 1) belongs to trigger = \"periodic\", and to no other".to_owned(),
            ));
        }
        let positive = |x: f64| x.is_finite() && x > 0.0;
        if !positive(cost.bandwidth_bytes_per_s) || !(0.0..1e9).contains(&cost.per_object_s) {
            return Err(fail(
                "the bandwidth must be above 0 and the cost of an object at least 0".to_owned(),
            ));
        }
        let strategy = Strategies::make(&strategy, options).map_err(|e| fail(e.to_string()))?;
        Ok(Self { phase: name, from, to, strategy, trigger, period: period.unwrap_or(1), cost })
    }

    const fn covers(&self, iteration: u64) -> bool {
        self.from <= iteration && (self.to.is_none() || matches!(self.to, Some(to) if iteration < to))
    }

    /// Returns `true` if the strategy runs at this synchronization point. Points are numbered from 1 within the run.
    #[must_use]
    pub const fn runs_at(&self, point: u64) -> bool {
        point.is_multiple_of(self.period)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "schema = \"colony.balance/1\"\n[[phase]]\n";

    fn error(body: &str) -> String {
        Config::parse(&format!("{HEAD}{body}")).expect_err(body).to_string()
    }

    #[test]
    fn unknown_fields_strategies_and_options_are_errors() {
        assert!(error("strategy = 'gredy'\ntrigger = 'at-sync'").contains("known are greedy"));
        assert!(error("strategy = 'rotate'\noptions = { bye = 1 }\ntrigger = 'at-sync'").contains("bye"));
        assert!(error("strategy = 'rotate'\ntrigger = 'at-sync'\ncolour = 1").contains("colour"));
        assert!(error("strategy = 'rotate'\ntrigger = 'sometimes'").contains("when-it-pays"));
        assert!(error("strategy = 'rotate'").contains("trigger"));
    }

    #[test]
    fn ranges_periods_and_costs_that_make_no_sense_are_errors() {
        let rotate = "strategy = 'rotate'\n";
        assert!(
            error(&format!("{rotate}trigger = 'at-sync'\nfrom = 5\nto = 5")).contains("ends at iteration 5")
        );
        assert!(error(&format!("{rotate}trigger = 'at-sync'\nperiod = 5")).contains("period"));
        assert!(error(&format!("{rotate}trigger = 'periodic'")).contains("period"));
        assert!(error(&format!("{rotate}trigger = 'periodic'\nperiod = 0")).contains("period"));
        let cost = "trigger = 'at-sync'\ncost = { bandwidth-bytes-per-s = 0 }";
        assert!(error(&format!("{rotate}{cost}")).contains("bandwidth"));
        assert!(Config::parse("schema = 'colony.balance/2'").is_err() && Config::parse("schema").is_err());
        assert!(Config::parse("schema = 'colony.balance/1'").is_err());
    }

    #[test]
    fn the_first_rule_that_covers_an_iteration_holds() {
        let text = "schema = 'colony.balance/1'
            phase = [
              { strategy = 'rotate', trigger = 'periodic', period = 3, to = 10 },
              { strategy = 'random', trigger = 'at-sync', name = 'solve' },
              { strategy = 'greedy', trigger = 'when-it-pays', from = 20 },
            ]";
        let config = Config::parse(text).expect("a configuration");
        let name = |rule: Option<&Rule>| rule.map(|r| r.strategy.name());
        assert_eq!(name(config.rule(9)), Some("rotate"));
        assert_eq!(name(config.rule(10)), None);
        assert_eq!(name(config.rule(20)), Some("greedy"));
        assert_eq!(name(config.rule_in("solve", 15)), Some("random"));
        assert_eq!(name(config.rule_in("assemble", 15)), None);
        assert!(config.rules()[0].runs_at(3) && !config.rules()[0].runs_at(4));
    }
}
