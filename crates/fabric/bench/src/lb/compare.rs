// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison: starts the ranks of every run, and holds their results against each other.

use std::os::fd::AsRawFd;

use colony_runtime::launch::{LOST, Launch};

use super::error::LbError;
use super::figures::{compare, figures, least};
use super::params::{NONE, Params, Program};
use super::rank::{ARGUMENT, Task};
use super::record::{Record, Told};
use super::result::{Comparison, Run};
use crate::ranks::{cpus, host, read_told, report_file};

impl Params {
    /// The number of runs.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.programs.len() * self.strategies.len() * self.repeat as usize
    }

    /// Runs every program with every strategy, one after another, and calls `after_each` after each run. Call it on a
    /// thread that lives until all are done: ranks are killed when the thread that started them ends.
    ///
    /// # Errors
    /// [`LbError`]. Nothing is started if the parameters are wrong. No rank is left.
    pub fn run(&self, mut after_each: impl FnMut()) -> Result<Comparison, LbError> {
        self.check()?;
        if std::env::var_os("COLONY_BALANCE").is_some() {
            return Err(LbError::Params(
                "COLONY_BALANCE is set, which replaces the strategy of every run: unset it".to_owned(),
            ));
        }
        let mut runs = Vec::new();
        for &program in &self.programs {
            runs.extend(self.run_program(program, &mut after_each)?);
        }
        Ok(Comparison { schema: Comparison::SCHEMA, params: self.clone(), host: host(), cpus: cpus(), runs })
    }

    /// Runs a program with every strategy. The strategies take turns, so that a change of the machine meets all of them.
    fn run_program(&self, program: Program, after_each: &mut impl FnMut()) -> Result<Vec<Run>, LbError> {
        let mut repeats: Vec<Vec<Run>> = vec![Vec::new(); self.strategies.len()];
        let mut first: Option<Run> = None;
        for _ in 0..self.repeat {
            for (strategy, of_strategy) in self.strategies.iter().zip(&mut repeats) {
                let run = self.run_one(program, strategy)?;
                check_same(first.get_or_insert_with(|| run.clone()), &run)?;
                of_strategy.push(run);
                after_each();
            }
        }
        let mut runs: Vec<Run> = repeats.into_iter().filter_map(least).collect();
        compare(&mut runs, NONE);
        Ok(runs)
    }

    fn run_one(&self, program: Program, strategy: &str) -> Result<Run, LbError> {
        let of = || format!("{} with {strategy}", program.name());
        let failed = |why: String| LbError::Failed { of: of(), why };
        let setup = self.setup(program, strategy);
        let mut file = report_file(c"colony-bench-lb")
            .map_err(|source| LbError::System { doing: "making the file for the ranks' results", source })?;
        let task = Task { setup, report: file.as_raw_fd() };
        let text = serde_json::to_string(&task).map_err(|e| failed(e.to_string()))?;
        let arguments = vec![ARGUMENT.into(), text.into()];
        let code = Launch::new(self.processes, "/proc/self/exe", arguments).run()?;
        let told = read_told(&mut file)
            .map_err(|source| LbError::System { doing: "reading the ranks' results", source })?;
        let (mut record, mut reports, mut ended) = (Record::new(), Vec::new(), 0);
        for told in told {
            match told {
                Told::Failed(why) => return Err(failed(why)),
                Told::Ended { record: one, reports: more } => {
                    record.merge(one);
                    reports.extend(more);
                    ended += 1;
                }
            }
        }
        match code {
            0 => {}
            code if code > 128 && code != LOST => {
                return Err(LbError::Killed { of: of(), signal: code - 128 });
            }
            code => return Err(failed(format!("the ranks ended with exit code {code}"))),
        }
        if (ended, record.objects) != (self.processes, self.objects()) {
            let (ranks, objects) = (self.processes, self.objects());
            let found = record.objects;
            return Err(failed(format!(
                "{found} of {objects} objects and {ended} of {ranks} ranks came to the end"
            )));
        }
        figures((&task.setup, strategy), &record, &reports, self.pes())
            .ok_or_else(|| failed("the record of an iteration is missing".into()))
    }
}

/// Checks that two runs of a program have the same result.
fn check_same(first: &Run, run: &Run) -> Result<(), LbError> {
    if first.checksum == run.checksum {
        return Ok(());
    }
    Err(LbError::Checksum {
        program: run.program.name(),
        strategy: run.strategy.clone(),
        found: run.checksum.clone(),
        first: first.strategy.clone(),
        expected: first.checksum.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::result::{Averages, Summary};
    use super::*;

    #[test]
    fn lines_that_were_cut_are_left_out() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"{\"Failed\":\"one\"}\n{\"Ended\":{\"rec").expect("written");
        let told = read_told(&mut file).expect("readable");
        assert!(matches!(&told[..], [Told::Failed(why)] if why == "one"), "{told:?}");
    }

    #[test]
    fn runs_with_other_results_are_an_error_that_names_both() {
        let run = |strategy: &str, checksum: &str| Run {
            program: Program::Stencil,
            strategy: strategy.into(),
            checksum: checksum.into(),
            moved: 0,
            bytes_moved: 0,
            elapsed_s: Vec::new(),
            stretches: Vec::new(),
            balancings: Vec::new(),
            summary: Summary {
                before: Averages { iteration_s: 1.0, imbalance: None },
                after: None,
                decision_s: 0.0,
                migration_s: 0.0,
                balanced_s: None,
                gain: None,
            },
        };
        assert!(check_same(&run("none", "ab"), &run("greedy", "ab")).is_ok());
        let error = check_same(&run("none", "ab"), &run("greedy", "cd")).expect_err("they differ");
        assert!(!error.is_wrong_use());
        assert!(
            error.to_string().starts_with("stencil: the checksum with greedy is cd, and ab with none"),
            "{error}"
        );
    }
}
