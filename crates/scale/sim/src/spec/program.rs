// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of a scenario: one by name, with its parameters, or steps written out.

use serde::{Deserialize, Serialize};

use super::SpecError;
use crate::SimError;
use crate::level::plan::check_steps;
use crate::machine::Machine;
use crate::program::{Algorithm, Operation, Program, Solver, Step};

/// A program. Parameters that are left out have usual values; those the program does
/// not have are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProgramSpec {
    /// One of [`ProgramSpec::NAMES`]; with steps, any name.
    pub name: String,
    /// Number of times that all of it is done.
    #[serde(default = "iterations")]
    pub iterations: u64,
    /// Bytes each rank gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The algorithm of the collective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<Algorithm>,
    /// Work of each rank before it communicates.
    #[serde(
        default,
        with = "colony_time::notation::some_ns",
        rename = "work",
        skip_serializing_if = "Option::is_none"
    )]
    pub work_ns: Option<u64>,
    /// Standard deviation of the work over its mean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<f64>,
    /// Time to combine two contributions by the user's operation.
    #[serde(
        default,
        with = "colony_time::notation::some_ns",
        rename = "combine",
        skip_serializing_if = "Option::is_none"
    )]
    pub combine_ns: Option<u64>,
    /// Passes of the solver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver_passes: Option<u64>,
    /// Work of a pass.
    #[serde(
        default,
        with = "colony_time::notation::some_ns",
        rename = "solver_work",
        skip_serializing_if = "Option::is_none"
    )]
    pub solver_work_ns: Option<u64>,
    /// Bytes to each neighbour in a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver_bytes: Option<u64>,
    /// Cells of a side of the cube.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side: Option<u32>,
    /// The steps of a program of one's own.
    #[serde(default, rename = "step", skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
}

const fn iterations() -> u64 {
    1000
}

impl Default for ProgramSpec {
    fn default() -> Self {
        Self::named("allreduce")
    }
}

impl ProgramSpec {
    /// The programs that have a name.
    pub const NAMES: [&'static str; 13] = [
        "barrier",
        "allreduce",
        "myallreduce",
        "bcast",
        "alltoall",
        "allgather",
        "bsp",
        "glob",
        "ring",
        "stencil",
        "pop",
        "flash",
        "miranda",
    ];

    /// A program as it comes.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            iterations: iterations(),
            bytes: None,
            algorithm: None,
            work_ns: None,
            imbalance: None,
            combine_ns: None,
            solver_passes: None,
            solver_work_ns: None,
            solver_bytes: None,
            side: None,
            steps: Vec::new(),
        }
    }

    /// Parameters a named program has.
    fn parameters(name: &str) -> Option<&'static [&'static str]> {
        Some(match name {
            "barrier" | "bsp" => &["algorithm", "work", "imbalance"],
            "allreduce" | "bcast" | "alltoall" | "allgather" => &["bytes", "algorithm", "work", "imbalance"],
            "myallreduce" => &["bytes", "algorithm", "work", "imbalance", "combine"],
            "glob" | "ring" => &["bytes"],
            "stencil" | "flash" => &["bytes", "work", "imbalance"],
            "miranda" => &["side", "work"],
            "pop" => &["bytes", "work", "imbalance", "solver_passes", "solver_work", "solver_bytes"],
            _ => return None,
        })
    }

    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("bytes", self.bytes.is_some()),
            ("algorithm", self.algorithm.is_some()),
            ("work", self.work_ns.is_some()),
            ("imbalance", self.imbalance.is_some()),
            ("combine", self.combine_ns.is_some()),
            ("solver_passes", self.solver_passes.is_some()),
            ("solver_work", self.solver_work_ns.is_some()),
            ("solver_bytes", self.solver_bytes.is_some()),
            ("side", self.side.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }

    fn check(&self) -> Result<(), SpecError> {
        let has: &[&str] = match Self::parameters(&self.name) {
            _ if !self.steps.is_empty() => &[],
            Some(parameters) => parameters,
            None => {
                let names = Self::NAMES.join(", ");
                let fault =
                    format!("no program `{}`; there are: {names}; or give its [[program.step]]s", self.name);
                return Err(SpecError::value("program.name", fault));
            }
        };
        match self.given().find(|parameter| !has.contains(parameter)) {
            None => Ok(()),
            Some(parameter) => {
                let fault = match has {
                    [] => "a program of steps has its parameters in them".into(),
                    has => format!("`{}` has no such parameter; it has: {}", self.name, has.join(", ")),
                };
                Err(SpecError::value(format!("program.{parameter}"), fault))
            }
        }
    }

    /// The program on `ranks` ranks.
    ///
    /// # Errors
    /// [`SpecError::Value`] for unknown names, parameters the program has not, steps that make no sense.
    pub fn program(&self, ranks: u32) -> Result<Program, SpecError> {
        self.check()?;
        let program =
            Program { name: self.name.clone(), iterations: self.iterations, body: self.body(ranks) };
        program.check().map_err(|e| match &self.name[..] {
            "glob" if ranks < 2 => SpecError::value("program", "`glob` needs 2 ranks at least"),
            _ => self.located(e),
        })?;
        Ok(program)
    }

    /// Checks that `nodes` nodes of `machine` can run the program: its steps, and the algorithms of its collectives.
    pub(super) fn check_on(&self, machine: &Machine, nodes: u32) -> Result<(), SpecError> {
        let program = self.program(nodes.saturating_mul(machine.ranks_per_node))?;
        match check_steps(&program, machine, nodes) {
            Err(e @ SimError::BadProgram { .. }) => Err(self.located(e)),
            _ => Ok(()),
        }
    }

    /// An error of the program at the place in the scenario that causes it.
    fn located(&self, e: SimError) -> SpecError {
        let mut path = String::from("program");
        match &e {
            SimError::BadProgram { step, .. } if !self.steps.is_empty() => {
                path.extend(step.iter().map(|number| format!(".step.{number}")));
            }
            // the steps of a program with a name are made from its parameters; the algorithm is the one that can be wrong
            SimError::BadProgram { step, .. } if !step.is_empty() && self.algorithm.is_some() => {
                path += ".algorithm";
            }
            _ => {}
        }
        SpecError::value(path, e)
    }

    fn body(&self, ranks: u32) -> Vec<Step> {
        if !self.steps.is_empty() {
            return self.steps.clone();
        }
        let bytes = |usual| self.bytes.unwrap_or(usual);
        let work = |usual_ns| Step::Compute {
            ns: self.work_ns.unwrap_or(usual_ns),
            imbalance: self.imbalance.unwrap_or(0.0),
        };
        let collective = |operation, usual_bytes, usual: Option<Algorithm>| {
            let step = Step::Collective {
                operation,
                algorithm: self.algorithm.or(usual),
                bytes: bytes(usual_bytes),
                combine_ns: self.combine_ns.unwrap_or(0),
                ranks: None,
            };
            match self.work_ns.unwrap_or(0) {
                0 => vec![step],
                _ => vec![work(0), step],
            }
        };
        match &self.name[..] {
            "barrier" => collective(Operation::Barrier, 0, None),
            "bcast" => collective(Operation::Bcast, 8, None),
            "alltoall" => collective(Operation::Alltoall, 8, None),
            "allgather" => collective(Operation::Allgather, 8, None),
            // hardware cannot do what it does not know: always software
            "myallreduce" => collective(Operation::Allreduce, 8, Some(Algorithm::RecursiveDoubling)),
            "bsp" => {
                let barrier = Step::Collective {
                    operation: Operation::Barrier,
                    algorithm: self.algorithm,
                    bytes: 0,
                    combine_ns: 0,
                    ranks: None,
                };
                vec![work(1_000_000), barrier]
            }
            "glob" => Program::glob(ranks, bytes(32), 1).body,
            "ring" => Program::ring(bytes(8), 1).body,
            "stencil" => Program::stencil(work(1_000_000), bytes(8192), 1).body,
            "flash" => Program::flash(work(20_000_000), bytes(16_384), 1).body,
            "miranda" => {
                Program::miranda(ranks, self.side.unwrap_or(2048), self.work_ns.unwrap_or(1000), 1).body
            }
            "pop" => {
                let solver = Solver {
                    passes: self.solver_passes.unwrap_or(150),
                    work_ns: self.solver_work_ns.unwrap_or(20_000),
                    bytes: self.solver_bytes.unwrap_or(512),
                };
                Program::pop(work(10_000_000), bytes(8192), solver, 1).body
            }
            _ => collective(Operation::Allreduce, 8, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_program_with_its_parameters() {
        for name in ProgramSpec::NAMES {
            let spec = ProgramSpec::named(name);
            let program = spec.program(64).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!((program.name.as_str(), program.iterations), (name, 1000));
            assert!(ProgramSpec::parameters(name).is_some(), "{name}");
        }
        let wrong = ProgramSpec { bytes: Some(8), ..ProgramSpec::named("barrier") };
        let e = wrong.program(4).expect_err("a barrier has no bytes").to_string();
        assert!(e.contains("program.bytes") && e.contains("algorithm, work, imbalance"), "{e}");
        let e = ProgramSpec::named("nope").program(4).expect_err("unknown").to_string();
        assert!(e.contains("allreduce"), "{e}");
        assert!(ProgramSpec::named("glob").program(1).is_err());
    }

    #[test]
    fn glob_leaves_the_whole_machine_to_the_hardware() {
        let glob = Program::glob(8, 32, 1);
        let sizes: Vec<_> = glob
            .body
            .iter()
            .map(|s| match s {
                Step::Collective { ranks, .. } => *ranks,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sizes, [Some(2), Some(4), None]);
        assert_eq!(Program::glob(12, 32, 1).body.len(), 3);
    }
}
