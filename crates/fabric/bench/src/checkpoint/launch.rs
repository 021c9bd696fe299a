// SPDX-License-Identifier: MIT OR Apache-2.0
//! The benchmark: starts the ranks of every run, and reads their times.

use std::os::fd::AsRawFd;
use std::time::Duration;

use colony_runtime::launch::Launch;

use super::error::CheckpointError;
use super::floor::Connections;
use super::params::Params;
use super::rank::{ARGUMENT, Task};
use super::result::{CheckpointBench, Run};
use super::simulate::ASSUMPTIONS;
use super::told::{Checkpoint, Floor, Told};
use crate::ranks::{cpus, host, read_told, report_file};

/// Variables that would change the checkpoints or what else happens at a round.
const VARIABLES: [&str; 2] = ["COLONY_CHECKPOINT", "COLONY_BALANCE"];

fn system(doing: &'static str) -> impl FnOnce(std::io::Error) -> CheckpointError {
    move |source| CheckpointError::System { doing, source }
}

impl Params {
    /// Measures every size, one after another, and calls `after_each` after each. Call it on a thread that lives until all
    /// are done: ranks are killed when the thread that started them ends.
    ///
    /// # Errors
    /// [`CheckpointError`]. Nothing is started if the parameters are wrong. No rank is left.
    pub fn run(&self, mut after_each: impl FnMut()) -> Result<CheckpointBench, CheckpointError> {
        self.check()?;
        if let Some(name) = VARIABLES.iter().find(|name| std::env::var_os(name).is_some()) {
            return Err(CheckpointError::Params(format!(
                "{name} is set, which replaces the options of every run: unset it"
            )));
        }
        let mut runs = Vec::new();
        for &bytes in &self.bytes {
            runs.push(self.run_one(bytes)?);
            after_each();
        }
        Ok(CheckpointBench {
            schema: CheckpointBench::SCHEMA,
            params: self.clone(),
            host: host(),
            cpus: cpus(),
            assumptions: ASSUMPTIONS.to_vec(),
            runs,
        })
    }

    fn run_one(&self, bytes: u64) -> Result<Run, CheckpointError> {
        let failed = |why: String| CheckpointError::Failed { bytes, why };
        let mut file = report_file(c"colony-bench-checkpoint")
            .map_err(system("making the file for the ranks' results"))?;
        let connections = Connections::new(self.processes).map_err(system("connecting the ranks"))?;
        let floor = connections.descriptors();
        let task = Task { setup: self.setup(bytes), floor, report: file.as_raw_fd() };
        let text = serde_json::to_string(&task).map_err(|e| failed(e.to_string()))?;
        let launch = Launch {
            // without a replacement for ranks, the runtime makes no checkpoints
            restarts: 1,
            // a rank that dies ends the benchmark, and one that waits for its CPU has not died
            timeout: Some(Duration::from_secs(60)),
            ..Launch::new(self.processes, "/proc/self/exe", vec![ARGUMENT.into(), text.into()])
        };
        let code = launch.run()?;
        let told = read_told(&mut file).map_err(system("reading the ranks' results"))?;
        let (checkpoints, floors) = times(told, self.processes, code).map_err(failed)?;
        let wanted = task.setup.rounds as usize;
        if (checkpoints.len(), floors.len()) != (wanted, wanted) {
            return Err(failed(format!("{} of {wanted} checkpoints were made", checkpoints.len())));
        }
        Run::of(self, bytes, &checkpoints, &floors).ok_or_else(|| failed("no time counts".into()))
    }
}

/// The times of rank 0, if all ranks came to their end; the reason otherwise.
fn times(told: Vec<Told>, ranks: u32, code: u8) -> Result<(Vec<Checkpoint>, Vec<Floor>), String> {
    let (mut all_checkpoints, mut all_floors, mut ended) = (Vec::new(), Vec::new(), 0);
    for told in told {
        match told {
            Told::Failed(why) => return Err(why),
            Told::Ended { checkpoints, floors } => {
                all_checkpoints.extend(checkpoints);
                all_floors.extend(floors);
                ended += 1;
            }
        }
    }
    match code {
        0 if ended == ranks => Ok((all_checkpoints, all_floors)),
        0 => Err(format!("{ended} of {ranks} ranks came to the end")),
        code => Err(format!("the ranks ended with exit code {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_says_why_it_failed_is_quoted_before_any_exit_code() {
        let ended = || Told::Ended { checkpoints: Vec::new(), floors: Vec::new() };
        assert_eq!(times(vec![ended(), Told::Failed("no memory".into())], 2, 1), Err("no memory".into()));
        assert_eq!(times(vec![ended()], 2, 0), Err("1 of 2 ranks came to the end".into()));
        assert_eq!(times(vec![ended()], 2, 137), Err("the ranks ended with exit code 137".into()));
        assert!(times(vec![ended(), ended()], 2, 0).is_ok());
    }
}
