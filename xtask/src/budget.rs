// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each test program may take of the processor, as `budgets.toml` declares it.
//!
//! Processor time depends on the machine, and on what shares its caches and its power. So a fixed loop is timed beside the
//! tests; a budget is scaled by how much slower the loop was than on the machine where the budgets were measured. A
//! faster machine does not make a budget smaller.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;

use crate::tier::{Declaration, Tier};

/// The summary warns of a program that takes more than this multiple of its scaled budget.
const TOLERANCE: f64 = 1.5;

/// Processor time in seconds that a program may take without an entry. Programs below cause no warning: what they take varies
/// with what runs beside them.
const JUDGED_FROM_S: f64 = 20.0;

/// `budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budgets {
    /// Processor time of [`calibration`] on the machine where the budgets were measured.
    calibration_ms: f64,
    /// Parts of the names of tests that get no second attempt.
    #[serde(default)]
    steady: Vec<String>,
    /// Tests and steps that not every run has.
    #[serde(default)]
    pub(crate) second_tier: Vec<Declaration>,
    #[serde(default)]
    program: BTreeMap<String, Budget>,
}

/// The budget of a test program, and how it is run.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budget {
    /// Processor time of the program and of what it starts, in seconds.
    pub(crate) cpu_s: f64,
    /// Duration in seconds, for the order of the programs and for how many run side by side.
    pub(crate) wall_s: f64,
    /// Tests at a time within the program; as many as there are CPUs if absent.
    pub(crate) threads: Option<usize>,
    /// Resources of the machine that the program shares with no other.
    #[serde(default)]
    pub(crate) locks: Vec<String>,
    /// The test program that these tests are a part of; `None` if they are a whole one.
    of: Option<String>,
    /// Of a part: the tests whose names contain one of these words.
    #[serde(default)]
    tests: Vec<String>,
}

impl Default for Budget {
    /// For a program that the file does not name.
    fn default() -> Self {
        Self {
            cpu_s: JUDGED_FROM_S,
            wall_s: JUDGED_FROM_S,
            threads: None,
            locks: Vec::new(),
            of: None,
            tests: Vec::new(),
        }
    }
}

impl Budget {
    /// CPUs that the program keeps busy on average.
    pub(crate) fn cpus(&self) -> f64 {
        (self.cpu_s / self.wall_s.max(0.1)).clamp(0.1, 64.0)
    }
}

impl Budgets {
    /// # Errors
    /// Text that is no such file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let budgets: Self = toml::from_str(text).context("cannot read xtask/budgets.toml")?;
        for (name, budget) in &budgets.program {
            ensure!(
                budget.of.is_some() != budget.tests.is_empty(),
                "xtask/budgets.toml: {name} needs both `of` and `tests`, or neither"
            );
        }
        for declaration in &budgets.second_tier {
            ensure!(
                !declaration.reason.trim().is_empty(),
                "xtask/budgets.toml: an entry of second_tier has no reason"
            );
        }
        Ok(budgets)
    }

    /// The parts of a test program that run on their own, with the words that select the tests of each.
    pub(crate) fn parts<'a>(&'a self, program: &'a str) -> impl Iterator<Item = (&'a str, &'a [String])> {
        let parts = self.program.iter().filter(move |(_, budget)| budget.of.as_deref() == Some(program));
        parts.map(|(name, budget)| (name.as_str(), &budget.tests[..]))
    }

    /// The test program that a step runs the tests of.
    pub(crate) fn whole_of<'a>(&'a self, step: &'a str) -> &'a str {
        self.program.get(step).and_then(|budget| budget.of.as_deref()).unwrap_or(step)
    }

    /// The budget of a program; a default for one that has none.
    pub(crate) fn of(&self, program: &str) -> Budget {
        self.program.get(program).cloned().unwrap_or_default()
    }

    /// Why a program that took `cpu` is over its budget, if it is. `calibrated` is the slowest time of the
    /// [calibration] loop during the run.
    pub(crate) fn excess(&self, program: &str, cpu: Duration, calibrated: Duration) -> Option<String> {
        let budget = self.of(program).cpu_s;
        let slower = (calibrated.as_secs_f64() * 1e3 / self.calibration_ms).max(1.0);
        let limit = (budget * slower * TOLERANCE).max(JUDGED_FROM_S * TOLERANCE);
        let took = cpu.as_secs_f64();
        (took > limit).then(|| {
            format!(
                "{program} took {took:.1} s of the processor; its budget is {budget} s, here {:.1} s. Make it cheaper, \
                 or raise the budget in xtask/budgets.toml with a reason",
                budget * slower
            )
        })
    }

    /// Returns `true` if the first failure of a test counts, whatever a second attempt would say. `test` is program and test, as
    /// `e2e::run::a_test`.
    pub(crate) fn must_be_steady(&self, test: &str) -> bool {
        self.steady.iter().any(|part| test.contains(part))
    }

    /// The tier of a test of a step.
    pub(crate) fn tier(&self, step: &str, test: &str) -> Tier {
        let name = format!("{step}::{test}");
        let declared = self.second_tier.iter().any(|declaration| declaration.has_test(&name));
        if declared { Tier::Second } else { Tier::First }
    }

    /// The tier of a step as a whole.
    pub(crate) fn tier_of_step(&self, step: &str) -> Tier {
        let declared = self.second_tier.iter().any(|d| d.steps.iter().any(|name| name == step));
        if declared { Tier::Second } else { Tier::First }
    }

    /// Programs that have an entry and are not among the `known`.
    pub(crate) fn unknown<'a>(&'a self, known: &'a [&str]) -> impl Iterator<Item = &'a str> {
        self.program.keys().map(String::as_str).filter(|name| !known.contains(name))
    }
}

/// Processor time of a fixed loop of integer operations, about a third of a second without optimisation.
pub(crate) fn calibration() -> Duration {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    let began = now();
    let mut state = std::hint::black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..std::hint::black_box(40_000_000_u32) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    std::hint::black_box(state);
    now().saturating_sub(began)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
calibration_ms = 100.0
[program.e2e]
cpu_s = 100.0
wall_s = 50.0
locks = ["node"]
"#;

    #[test]
    fn a_budget_may_be_exceeded_by_half_on_a_machine_of_the_same_speed() {
        let budgets = Budgets::parse(FILE).expect("a file");
        let excess = |s, ms| budgets.excess("e2e", Duration::from_secs(s), Duration::from_millis(ms));
        assert_eq!(excess(149, 100), None);
        assert!(excess(151, 100).is_some_and(|why| why.contains("budget is 100 s")));
        assert_eq!(excess(151, 120), None, "the machine is slower by a fifth");
        assert!(excess(151, 50).is_some(), "a faster machine has the same budget");
        assert!((budgets.of("e2e").cpus() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_program_needs_no_entry_and_a_large_one_does() {
        let budgets = Budgets::parse(FILE).expect("a file");
        let excess = |s| budgets.excess("new", Duration::from_secs(s), Duration::from_millis(100));
        assert_eq!((excess(29), excess(31).is_some()), (None, true));
    }

    #[test]
    fn a_part_of_a_program_names_its_program_and_its_tests() {
        let part = "[program.e2e-on-nodes]\nof = \"e2e\"\ntests = [\"vm::\"]\ncpu_s = 1.0\nwall_s = 1.0\n";
        let budgets = Budgets::parse(&format!("{FILE}{part}")).expect("a file");
        assert_eq!(budgets.parts("e2e").collect::<Vec<_>>(), [("e2e-on-nodes", &["vm::".to_owned()][..])]);
        assert_eq!(budgets.parts("e2e-on-nodes").count(), 0);
        for line in ["of = \"e2e\"\n", "tests = [\"vm::\"]\n"] {
            assert!(Budgets::parse(&format!("{FILE}{}", part.replace(line, ""))).is_err(), "without {line}");
        }
    }

    #[test]
    fn tests_whose_first_failure_counts_are_named_by_a_part_of_their_names() {
        let budgets =
            Budgets::parse("calibration_ms = 1.0\nsteady = [\"::storm::\", \"sums::\"]\n").expect("a file");
        assert!(budgets.must_be_steady("cnk::storm::short") && budgets.must_be_steady("sums::add"));
        assert!(!budgets.must_be_steady("cnk::storms"));
    }

    #[test]
    fn a_misspelt_word_in_the_file_is_an_error() {
        assert!(Budgets::parse(&FILE.replace("locks", "lock")).is_err());
    }

    #[test]
    fn the_file_of_this_checkout_can_be_read_and_the_loop_takes_time() {
        Budgets::parse(include_str!("../budgets.toml")).expect("budgets.toml");
        assert!(calibration() > Duration::ZERO);
    }
}
