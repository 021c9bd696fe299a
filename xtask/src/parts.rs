// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chooses the tests of a run by name and tier, and the steps that run them: a step runs one test program, or a part of one that
//! `budgets.toml` separates.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use crate::budget::Budgets;
use crate::libtest::TestProgram;
use crate::options::Options;
use crate::tier::{Inventory, Tier};

/// The test programs of a run, and the tests that exist.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) programs: Vec<TestProgram>,
    pub(crate) inventory: Inventory,
}

/// Chooses tests of the programs, by name and tier.
///
/// # Errors
/// A program that does not list its tests, or names in `options` that no program or test has.
pub(crate) fn choose(built: Vec<TestProgram>, budgets: &Budgets, options: &Options) -> Result<Chosen> {
    let mut chosen = Chosen { programs: Vec::new(), inventory: Inventory::default() };
    for program in with_names_of_their_own(built) {
        let all = match &program.tests {
            Some(tests) => tests.clone(),
            None => program.list().with_context(|| format!("cannot list the tests of {}", program.name))?,
        };
        for (step, tests) in steps_of(&program.name, &all, budgets) {
            let tiers: Vec<(String, Tier)> =
                tests.into_iter().map(|test| (test.to_owned(), budgets.tier(&step, test))).collect();
            let of_run = tiers.iter().filter(|(test, tier)| is_wanted(&step, test, *tier, options));
            let tests: Vec<String> = of_run.map(|(test, _)| test.clone()).collect();
            chosen.inventory.add(&step, tiers);
            if !tests.is_empty() {
                let whole = program.tests.is_none() && tests.len() == all.len();
                let tests = (!whole).then_some(tests);
                chosen.programs.push(TestProgram { name: step, tests, ..program.clone() });
            }
        }
    }
    check(&chosen, options)?;
    Ok(chosen)
}

/// Returns `true` if the options select the test.
fn is_wanted(step: &str, test: &str, tier: Tier, options: &Options) -> bool {
    (options.programs.is_empty() || options.names(step))
        && (options.tests.is_empty() || options.tests.iter().any(|part| test.contains(part.as_str())))
        && (tier == Tier::First || options.all || !options.tests.is_empty())
}

/// Finds names in the options that select no test.
fn check(chosen: &Chosen, options: &Options) -> Result<()> {
    let exists = |program: &String| chosen.inventory.steps().any(|step| step == program);
    for program in &options.programs {
        ensure!(
            exists(program),
            "no test program is called {program}. There are: {}",
            chosen.inventory.steps().collect::<Vec<_>>().join(", ")
        );
        let has_tests = chosen.programs.iter().any(|of_run| of_run.name == *program);
        ensure!(
            has_tests || !options.tests.is_empty(),
            "all tests of {program} are in the second tier: add --all"
        );
    }
    let of = match options.programs.as_slice() {
        [] => String::new(),
        programs => format!(" of {}", programs.join(", ")),
    };
    ensure!(
        !(options.is_narrow() && chosen.programs.is_empty()),
        "no test{of} has {} in its name",
        options.tests.join(" or ")
    );
    for part in &options.tests {
        let has = |program: &TestProgram| match &program.tests {
            Some(tests) => tests.iter().any(|test| test.contains(part.as_str())),
            // a whole program: all of its tests have a part of these in their names
            None => true,
        };
        ensure!(chosen.programs.iter().any(has), "no test{of} has {part} in its name");
    }
    Ok(())
}

/// The steps that run the tests of a program, with the tests of each, in the order of the program.
fn steps_of<'a>(program: &str, tests: &'a [String], budgets: &Budgets) -> BTreeMap<String, Vec<&'a str>> {
    let mut steps: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for test in tests {
        let has = |words: &[String]| words.iter().any(|word| test.contains(word.as_str()));
        let part = budgets.parts(program).find(|(_, words)| has(words));
        let step = part.map_or(program, |(name, _)| name);
        steps.entry(step.to_owned()).or_default().push(test);
    }
    steps
}

/// Adds the package to the name of a program whose name another one has, too.
fn with_names_of_their_own(mut programs: Vec<TestProgram>) -> Vec<TestProgram> {
    let names: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    for program in &mut programs {
        if names.iter().filter(|name| **name == program.name).count() > 1 {
            program.name = format!("{}-{}", program.name, program.package);
        }
    }
    programs
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use super::*;

    const BUDGETS: &str = "
calibration_ms = 1.0
[[second_tier]]
reason = \"long\"
tests = [\"all::far::\", \"on-nodes::cnk::\"]
[program.on-nodes]
of = \"all\"
tests = [\"vm::\", \"cnk::\"]
cpu_s = 1.0
wall_s = 1.0
";

    /// A test program with these tests.
    fn program(folder: &Path, name: &str, tests: &[&str]) -> TestProgram {
        let file = folder.join(name);
        let lines: String = tests.iter().map(|test| format!("echo '{test}: test'\n")).collect();
        std::fs::write(&file, format!("#!/bin/sh\n{lines}")).expect("a file");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).expect("our file");
        TestProgram {
            name: name.into(),
            package: "package".into(),
            file,
            folder: folder.to_owned(),
            tests: None,
            environment: Vec::new(),
            threads: None,
        }
    }

    /// What `choose` makes of two programs: steps, and the tests of each (`*` for the whole program).
    fn chosen(options: &str) -> Result<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let programs = vec![
            program(folder.path(), "all", &["near::a", "far::a", "vm::a", "cnk::a"]),
            program(folder.path(), "other", &["near::b", "vm::b"]),
        ];
        let budgets = Budgets::parse(BUDGETS).expect("a file");
        let options = Options::parse(options.split_whitespace()).expect("options");
        let chosen = choose(programs, &budgets, &options)?;
        assert_eq!((chosen.inventory.count(Tier::First), chosen.inventory.count(Tier::Second)), (4, 2));
        let step = |p: &TestProgram| {
            let tests = p.tests.as_ref().map_or("*".to_owned(), |tests| tests.join(" "));
            format!("{}: {tests}", p.name)
        };
        Ok(chosen.programs.iter().map(step).collect::<Vec<_>>().join(", "))
    }

    #[test]
    fn each_test_runs_in_one_step_and_those_of_the_second_tier_only_if_they_are_asked_for() {
        let choose = |options: &str| chosen(options).expect("tests");
        assert_eq!(choose(""), "all: near::a, on-nodes: vm::a, other: *");
        assert_eq!(choose("--all"), "all: near::a far::a, on-nodes: vm::a cnk::a, other: *");
        assert_eq!(choose("--program all"), "all: near::a");
        assert_eq!(choose("--program all --test far"), "all: far::a", "a test by name is of any tier");
        assert_eq!(choose("--test near"), "all: near::a, other: near::b");
        assert_eq!(
            choose("--program all --program other --test far --test near"),
            "all: near::a far::a, other: near::b"
        );
    }

    #[test]
    fn names_that_match_nothing_are_errors_that_say_what_there_is() {
        let error = |options: &str| format!("{:#}", chosen(options).expect_err("no such test"));
        assert_eq!(
            error("--program none"),
            "no test program is called none. There are: all, on-nodes, other"
        );
        assert_eq!(error("--program other --test far"), "no test of other has far in its name");
        assert_eq!(error("--test none"), "no test has none in its name");
        assert_eq!(error("--test near --test none"), "no test has none in its name");
    }
}
