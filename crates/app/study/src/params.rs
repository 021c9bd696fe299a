// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everything a study needs to run again.

use colony_node::cpu::CpuSet;
use colony_sched::limits::Limits;
use colony_time::{DutyCycle, Windows};
use serde::{Deserialize, Serialize};

use crate::StudyError;

/// The node count that headline and table show.
pub const SHOWN_NODES: u64 = 16_384;

/// Parameters of a study; the defaults are those of `colony study`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Params {
    /// Seed of everything random.
    pub seed: u64,
    /// CPUs of the job; `None`: all that can be used.
    pub cpus: Option<CpuSet>,
    /// Factor by which every step is shorter than usual.
    pub faster: f64,
    /// Seconds the node's own noise is measured for.
    pub measure_s: f64,
    /// Seconds the noise under each level of injection is measured for.
    pub measure_injected_s: f64,
    /// Seconds each benchmark run lasts at most.
    pub bench_s: f64,
    /// Ranks of the benchmark; one a CPU.
    pub ranks: u32,
    /// Levels of Leibniz noise, per cent; 0 is none.
    pub noise_percent: Vec<f64>,
    /// Period of the coordinated windows, nanoseconds.
    pub period_ns: u64,
    /// Favored share of a period.
    pub duty: DutyCycle,
    /// Node counts to project to.
    pub nodes: Vec<u32>,
    /// Most operations simulated for a projected point without coordination; with it, as many as fill two
    /// periods.
    pub projected_ops: u32,
    /// Simulates again the published figures that need no machine, which takes half a minute.
    pub published: bool,
    /// Longest time to wait until other programs leave the job's CPUs alone, seconds; 0 is not to wait.
    #[serde(default)]
    pub wait_quiet_s: f64,
    /// Measures the scheduler in the kernel on a virtual node, which takes a minute or more.
    #[serde(default)]
    pub virtual_node: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            seed: 20_061_114,
            cpus: None,
            faster: 1.0,
            measure_s: 15.0,
            measure_injected_s: 4.0,
            bench_s: 4.0,
            ranks: 2,
            noise_percent: vec![0.0, 2.0, 21.0],
            period_ns: 100_000_000,
            duty: DutyCycle::Ppm(800_000),
            nodes: vec![1024, 4096, 16_384],
            projected_ops: 2_000,
            published: true,
            wait_quiet_s: 0.0,
            virtual_node: false,
        }
    }
}

impl Params {
    /// The largest node count.
    pub const MAX_NODES: u32 = 1 << 24;

    /// The longest wait for a quiet node, seconds.
    pub const LONGEST_WAIT_S: f64 = 86_400.0;

    const HURRY: f64 = 10.0;

    /// The coordinated windows.
    ///
    /// # Errors
    /// [`StudyError::Params`] where period and duty cycle make no windows.
    pub fn windows(&self) -> Result<Windows, StudyError> {
        Windows::new(self.period_ns, self.duty, 0).map_err(|e| StudyError::Params(e.to_string()))
    }

    /// # Errors
    /// [`StudyError::Params`] says which parameter is impossible.
    pub fn check(&self) -> Result<(), StudyError> {
        let windows = self.windows()?;
        Limits::default().check(&windows).map_err(|e| StudyError::Params(e.to_string()))?;
        let positive = |what: &str, s: f64| match s.is_finite() && s > 0.0 {
            true => Ok(()),
            false => Err(StudyError::Params(format!("{what} is {s}; give seconds above nought"))),
        };
        positive("the measuring time", self.measure_s)?;
        positive("the measuring time under noise", self.measure_injected_s)?;
        positive("the benchmark's time", self.bench_s)?;
        if !(0.0..=Self::LONGEST_WAIT_S).contains(&self.wait_quiet_s) {
            return Err(StudyError::Params(format!(
                "waiting {} s for a quiet node is not possible; choose up to a day",
                self.wait_quiet_s
            )));
        }
        if let Some(bad) = self.noise_percent.iter().find(|p| !(0.0..=90.0).contains(*p)) {
            return Err(StudyError::Params(format!(
                "a noise level of {bad} % is not possible; choose 0 to 90"
            )));
        }
        let possible = |n: &u32| (1..=Self::MAX_NODES).contains(n);
        if self.ranks == 0 || self.nodes.is_empty() || !self.nodes.iter().all(possible) {
            return Err(StudyError::Params(format!(
                "ranks and node counts must be 1 to {}, as 1024,16384",
                Self::MAX_NODES
            )));
        }
        Ok(())
    }

    /// These parameters with every step shorter by `factor`; from ten times on without the seeds' figures,
    /// which would take longer than all the rest.
    ///
    /// # Errors
    /// [`StudyError::Params`] for a factor below 1 or above 1000.
    pub fn faster(self, factor: f64) -> Result<Self, StudyError> {
        if !(1.0..=1000.0).contains(&factor) {
            return Err(StudyError::Params(format!(
                "a study {factor} times faster is not possible; choose 1 to 1000"
            )));
        }
        Ok(Self {
            faster: self.faster * factor,
            published: self.published && self.faster * factor < Self::HURRY,
            measure_s: self.measure_s / factor,
            measure_injected_s: self.measure_injected_s / factor,
            bench_s: self.bench_s / factor,
            ..self
        })
    }

    /// The command that runs a study with these parameters.
    #[must_use]
    pub fn command(&self) -> String {
        let usual = Self::default();
        let mut command = format!("colony study --seed {}", self.seed);
        if let Some(cpus) = &self.cpus {
            command += &format!(" --cpus {cpus}");
        }
        if (self.period_ns, self.duty) != (usual.period_ns, usual.duty) {
            command += &format!(" {}", self.windows_flags());
        }
        if self.nodes != usual.nodes {
            let nodes: Vec<String> = self.nodes.iter().map(ToString::to_string).collect();
            command += &format!(" --nodes {}", nodes.join(","));
        }
        if self.faster != usual.faster {
            command += &format!(" --faster {}", self.faster);
        }
        if self.wait_quiet_s > 0.0 {
            command += &format!(" --wait-quiet {}s", self.wait_quiet_s);
        }
        if self.virtual_node {
            command += " --virtual-node";
        }
        command
    }

    /// The windows on a command line.
    #[must_use]
    pub fn windows_flags(&self) -> String {
        format!("--period {} --duty {}", colony_time::text::Ns(self.period_ns), self.duty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_work_and_impossible_ones_are_named() {
        Params::default().check().expect("defaults work");
        let bad = |p: Params| p.check().expect_err("refused").to_string();
        assert!(bad(Params { noise_percent: vec![120.0], ..Params::default() }).contains("120 %"));
        assert!(bad(Params { bench_s: 0.0, ..Params::default() }).contains("benchmark"));
        assert!(bad(Params { duty: DutyCycle::Ppm(1_000_000), ..Params::default() }).contains("regular"));
        assert_eq!(Params::default().windows_flags(), "--period 100ms --duty 80%");
        assert!(bad(Params { wait_quiet_s: 1e9, ..Params::default() }).contains("up to a day"));
        assert!(Params::default().faster(0.5).is_err());
    }

    #[test]
    fn the_command_names_whatever_is_not_usual() {
        assert_eq!(Params::default().command(), "colony study --seed 20061114");
        let p = Params {
            nodes: vec![1, 2],
            cpus: Some("1".parse().expect("a list")),
            duty: DutyCycle::Ppm(900_000),
            ..Params::default()
        };
        assert_eq!(
            p.faster(4.0).expect("possible").command(),
            "colony study --seed 20061114 --cpus 1 --period 100ms --duty 90% --nodes 1,2 --faster 4"
        );
    }
}
