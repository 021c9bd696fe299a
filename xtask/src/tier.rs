// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two tiers of tests and steps: `./x test` runs the first one, `./x test --all` both.
//!
//! A test is in the first tier unless `budgets.toml` declares it for the second one, with a reason. So each test
//! is in exactly one tier, and a new test is in every run.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Which runs have a test or a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// Every run.
    First,
    /// `./x test --all` only.
    Second,
}

/// Tests and steps that are declared for the second tier: an entry `[[second_tier]]` of `budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Declaration {
    /// Why they are not in every run.
    pub(crate) reason: String,
    /// Beginnings of the names of tests, as `e2e::run::` or `e2e::run::a_test`.
    #[serde(default)]
    pub(crate) tests: Vec<String>,
    /// Beginnings of the names of tests that are in the first tier all the same.
    #[serde(default)]
    pub(crate) except: Vec<String>,
    /// Names of steps.
    #[serde(default)]
    pub(crate) steps: Vec<String>,
}

impl Declaration {
    /// Returns `true` if the test is declared here.
    pub(crate) fn has_test(&self, test: &str) -> bool {
        let begins = |names: &[String]| names.iter().any(|name| test.starts_with(name.as_str()));
        begins(&self.tests) && !begins(&self.except)
    }
}

/// All tests of the programs that were built, by step.
#[derive(Debug, Default)]
pub(crate) struct Inventory {
    tests: BTreeMap<String, Vec<(String, Tier)>>,
}

impl Inventory {
    /// Adds the tests of a step; names without the step's.
    pub(crate) fn add(&mut self, step: &str, tests: impl IntoIterator<Item = (String, Tier)>) {
        self.tests.entry(step.to_owned()).or_default().extend(tests);
    }

    /// Tests of a tier.
    pub(crate) fn count(&self, tier: Tier) -> usize {
        self.tests.values().flatten().filter(|(_, of)| *of == tier).count()
    }

    /// The steps that have tests.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &str> {
        self.tests.keys().map(String::as_str)
    }

    /// Beginnings of names in `declarations` that no test has.
    pub(crate) fn unknown_tests(&self, declarations: &[Declaration]) -> Vec<String> {
        let full = |(step, tests): (&String, &Vec<(String, Tier)>)| {
            tests.iter().map(|(test, _)| format!("{step}::{test}")).collect::<Vec<_>>()
        };
        let names: Vec<String> = self.tests.iter().flat_map(full).collect();
        let declared = declarations.iter().flat_map(|d| d.tests.iter().chain(&d.except));
        let unknown = declared.filter(|start| !names.iter().any(|name| name.starts_with(start.as_str())));
        unknown.cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration() -> Declaration {
        let text = "reason = \"long\"\ntests = [\"vm::\", \"e2e::run::a_test\"]\nexcept = [\"vm::boot::\"]\n";
        toml::from_str(text).expect("a declaration")
    }

    #[test]
    fn a_test_is_declared_by_the_beginning_of_its_name() {
        let declared = ["vm::run::a", "vm::boot", "e2e::run::a_test", "e2e::run::a_test_of_more"];
        assert!(declared.iter().all(|test| declaration().has_test(test)));
        let others = ["vm::boot::a", "e2e::run::b", "e2e-vm::run::a", "a::vm::b"];
        assert!(!others.iter().any(|test| declaration().has_test(test)));
    }

    #[test]
    fn a_declaration_needs_a_reason_and_known_words() {
        assert!(toml::from_str::<Declaration>("tests = [\"vm::\"]").is_err());
        assert!(toml::from_str::<Declaration>("reason = \"long\"\ntest = [\"vm::\"]").is_err());
    }

    #[test]
    fn tests_are_counted_by_tier_and_declarations_without_a_test_are_found() {
        let mut inventory = Inventory::default();
        inventory.add("vm", [("boot::a".to_owned(), Tier::First), ("run::a".to_owned(), Tier::Second)]);
        inventory.add("xtask", [("a".to_owned(), Tier::First)]);
        assert_eq!((inventory.count(Tier::First), inventory.count(Tier::Second)), (2, 1));
        assert_eq!(inventory.steps().collect::<Vec<_>>(), ["vm", "xtask"]);
        assert_eq!(inventory.unknown_tests(&[declaration()]), ["e2e::run::a_test"]);
    }
}
