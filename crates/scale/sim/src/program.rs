// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk-synchronous programs: what every rank does, step by step.

use serde::{Deserialize, Serialize};

use crate::SimError;

/// A program: `body`, over and over. One pass through it is an iteration; its time is from the instant
/// the last rank was done with the one before to the instant the last rank is done with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Name in results.
    pub name: String,
    /// Number of times that the body is done.
    pub iterations: u64,
    /// The steps.
    #[serde(rename = "step")]
    pub body: Vec<Step>,
}

/// A step, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Step {
    /// Work of each rank, alone.
    Compute {
        /// CPU time.
        ns: u64,
        /// Its standard deviation over its mean, drawn for each rank and time (normal, never below 0).
        #[serde(default, skip_serializing_if = "is_zero")]
        imbalance: f64,
    },
    /// A collective of all ranks, or of the first `ranks` ones.
    Collective {
        /// The operation.
        operation: Operation,
        /// The algorithm. Default: the machine's hardware if it has any and all ranks take part, else the usual one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        algorithm: Option<Algorithm>,
        /// Bytes each rank gives (to each other rank, in an alltoall).
        #[serde(default)]
        bytes: u64,
        /// CPU time to combine two contributions in software (a user-defined operation), nanoseconds.
        #[serde(default, skip_serializing_if = "is_none_ns")]
        combine_ns: u64,
        /// The first so many ranks only: a sub-communicator, which hardware does not serve.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ranks: Option<u32>,
    },
    /// Each rank exchanges `bytes` with its neighbours in a periodic grid of up to three dimensions, as
    /// equal as can be (a 7-point stencil has three).
    Halo {
        /// Bytes to each neighbour.
        bytes: u64,
        /// Dimensions of the grid, 1 to 3.
        dims: u32,
    },
    /// Each rank gives `bytes` to each other rank of its line along one dimension of a grid as equal as can
    /// be, by pairs; all lines at the same time. It transposes an array that lies on the grid.
    Transpose {
        /// Bytes to each other rank of the line.
        bytes: u64,
        /// Dimensions of the grid, 1 to 3, the shortest first.
        dims: u32,
        /// The dimension, from 0.
        along: u32,
    },
    /// A message goes around all ranks once (ANL 2005: "a ring of p processors").
    RingTrip {
        /// Its size.
        bytes: u64,
    },
    /// Steps repeated within the iteration.
    Repeat {
        /// Number of times.
        times: u64,
        /// The steps.
        #[serde(rename = "step")]
        body: Vec<Step>,
    },
}

impl Step {
    /// Returns `true` if times of the step are drawn.
    #[must_use]
    pub fn is_random(&self) -> bool {
        match self {
            Self::Compute { imbalance, .. } => *imbalance > 0.0,
            Self::Repeat { body, .. } => body.iter().any(Self::is_random),
            _ => false,
        }
    }
}

/// A collective operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Nobody leaves before everybody has come.
    Barrier,
    /// Everybody has the combination of all contributions.
    Allreduce,
    /// Everybody has rank 0's data.
    Bcast,
    /// Everybody has everybody's data.
    Allgather,
    /// Everybody gives everybody else data of its own.
    Alltoall,
}

impl Operation {
    /// Its name, as scenarios have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Allreduce => "allreduce",
            Self::Bcast => "bcast",
            Self::Allgather => "allgather",
            Self::Alltoall => "alltoall",
        }
    }
}

/// The algorithm of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algorithm {
    /// By the machine's collective network.
    Hardware,
    /// ⌈log₂ n⌉ rounds; in round *k* to the rank 2ᵏ above (barrier; with all data: Bruck's allgather).
    Dissemination,
    /// log₂ n rounds with the rank that differs in bit *k*; ranks beyond a power of two give theirs to one
    /// below first and get the result last (barrier, allreduce, allgather).
    RecursiveDoubling,
    /// Reduce-scatter by recursive halving, then allgather by recursive doubling (allreduce of long
    /// vectors; Rabenseifner 2004). LogGOPSim's generator calls it `allreduce_recdoub`.
    Rabenseifner,
    /// Up and down a binomial tree (barrier, allreduce, bcast).
    Binomial,
    /// n − 1 steps to the next rank (allgather; allreduce as reduce-scatter and allgather).
    Ring,
    /// ⌈log₂ n⌉ rounds of half the data (alltoall, allgather; Bruck and others 1997).
    Bruck,
    /// n − 1 rounds, in round *k* to the rank *k* above, from the one *k* below, one after the other.
    Pairwise,
    /// As pairwise, all messages at once.
    Linear,
}

impl Algorithm {
    /// Its name, as scenarios have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Dissemination => "dissemination",
            Self::RecursiveDoubling => "recursive-doubling",
            Self::Rabenseifner => "rabenseifner",
            Self::Binomial => "binomial",
            Self::Ring => "ring",
            Self::Bruck => "bruck",
            Self::Pairwise => "pairwise",
            Self::Linear => "linear",
        }
    }
}

/// The barotropic solver of [`Program::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Solver {
    /// Passes in an iteration of the program.
    pub passes: u64,
    /// Work of a pass.
    pub work_ns: u64,
    /// Bytes to each of the four neighbours in a pass.
    pub bytes: u64,
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

fn is_none_ns(x: &u64) -> bool {
    *x == 0
}

impl Step {
    /// A collective of all ranks, the usual way.
    #[must_use]
    pub const fn collective(operation: Operation, bytes: u64) -> Self {
        Self::Collective { operation, algorithm: None, bytes, combine_ns: 0, ranks: None }
    }

    /// A collective of all ranks in a given way.
    #[must_use]
    pub const fn by(operation: Operation, algorithm: Algorithm, bytes: u64) -> Self {
        Self::Collective { operation, algorithm: Some(algorithm), bytes, combine_ns: 0, ranks: None }
    }

    /// Work of each rank.
    #[must_use]
    pub const fn compute(ns: u64) -> Self {
        Self::Compute { ns, imbalance: 0.0 }
    }
}

impl Program {
    /// Most steps in a body, repeats not counted, and how deep repeats nest.
    const MAX_STEPS: usize = 10_000;
    const MAX_DEPTH: usize = 4;
    /// Most iterations, each of which takes 16 bytes in a run, and most steps in all of them, repeats counted.
    const MAX_ITERATIONS: u64 = 100_000_000;
    const MAX_STEPS_OF_RUN: u64 = 10_000_000_000;

    /// `body`, `iterations` times.
    #[must_use]
    pub fn new(name: impl Into<String>, iterations: u64, body: Vec<Step>) -> Self {
        Self { name: name.into(), iterations, body }
    }

    /// One collective over and over.
    #[must_use]
    pub fn collective(operation: Operation, bytes: u64, iterations: u64) -> Self {
        Self::new(operation.name(), iterations, vec![Step::collective(operation, bytes)])
    }

    /// Work, then a barrier, and again (HPC-Colony progress report 2006, Figure 3: 10,000 times 1 ms).
    #[must_use]
    pub fn bsp(work_ns: u64, iterations: u64) -> Self {
        Self::new("bsp", iterations, vec![Step::compute(work_ns), Step::collective(Operation::Barrier, 0)])
    }

    /// An allreduce on sub-communicators of every power of two of ranks, from two to all (the benchmark
    /// of the Colony report, appendix A.2). One rank has none.
    #[must_use]
    pub fn glob(ranks: u32, bytes: u64, iterations: u64) -> Self {
        let sizes = (1..32).map(|power| 1u32 << power).take_while(|&size| size <= ranks);
        let allreduce = |size| Step::Collective {
            operation: Operation::Allreduce,
            algorithm: None,
            bytes,
            combine_ns: 0,
            // all ranks are no sub-communicator: hardware serves them
            ranks: (size < ranks).then_some(size),
        };
        Self::new("glob", iterations, sizes.map(allreduce).collect())
    }

    /// A message around all ranks, over and over (ANL 2005).
    #[must_use]
    pub fn ring(bytes: u64, iterations: u64) -> Self {
        Self::new("ring", iterations, vec![Step::RingTrip { bytes }])
    }

    /// Work, then `bytes` to each of the six neighbours, and again: a 7-point stencil in three dimensions.
    #[must_use]
    pub fn stencil(work: Step, bytes: u64, iterations: u64) -> Self {
        Self::new("stencil", iterations, vec![work, Step::Halo { bytes, dims: 3 }])
    }

    /// The ocean model POP in outline (Jaguar, CUG 2010): the baroclinic part is work and a halo exchange in
    /// three dimensions; the barotropic one solves a system over the surface by conjugate gradients, `solver`
    /// passes of a little work, a halo exchange in two dimensions and an allreduce of 8 bytes.
    #[must_use]
    pub fn pop(work: Step, bytes: u64, solver: Solver, iterations: u64) -> Self {
        let pass = vec![
            Step::compute(solver.work_ns),
            Step::Halo { bytes: solver.bytes, dims: 2 },
            Step::collective(Operation::Allreduce, 8),
        ];
        let barotropic = Step::Repeat { times: solver.passes, body: pass };
        Self::new("pop", iterations, vec![work, Step::Halo { bytes, dims: 3 }, barotropic])
    }

    /// An astrophysics code on an adaptive mesh in outline (Flash: SC06, Figure 6), weak scaling. A time step is
    /// six sweeps over the blocks of each rank, each `sweep` after an exchange of guard cells with the six
    /// neighbours, and an allreduce for the next time step. In every fourth step the mesh is refined: flags and
    /// counts of blocks are reduced twice, and blocks of `bytes` move to neighbours.
    #[must_use]
    pub fn flash(sweep: Step, bytes: u64, iterations: u64) -> Self {
        let (halo, reduce) = (|| Step::Halo { bytes, dims: 3 }, || Step::collective(Operation::Allreduce, 8));
        let step = vec![Step::Repeat { times: 6, body: vec![halo(), sweep] }, reduce()];
        let body = vec![Step::Repeat { times: 4, body: step }, reduce(), reduce(), halo()];
        Self::new("flash", iterations, body)
    }

    /// A hydrodynamics code with spectral accuracy in outline (Miranda: SC06, Figure 7), strong scaling: a cube of
    /// `side`³ cells, whatever the number of ranks, in pencils on a grid of two dimensions. A time step works
    /// on every cell for `cell_ns`, a third in each direction; for the two in which a pencil does not reach
    /// through the cube, 8 bytes a cell are transposed there and back within rows or columns of ranks. Two
    /// allreduces end it.
    #[must_use]
    pub fn miranda(ranks: u32, side: u32, cell_ns: u64, iterations: u64) -> Self {
        let cells = u64::from(side).pow(3) / u64::from(ranks.max(1));
        let work = || Step::compute(cells.saturating_mul(cell_ns) / 3);
        let grid = crate::network::grid(ranks, 2);
        let transpose = |along: u32| Step::Transpose {
            bytes: 8 * cells / u64::from(grid[along as usize]),
            dims: 2,
            along,
        };
        let mut body = vec![work()];
        body.extend((0..2).flat_map(|along| [transpose(along), work(), transpose(along)]));
        body.extend((0..2).map(|_| Step::collective(Operation::Allreduce, 8)));
        Self::new("miranda", iterations, body)
    }

    /// # Errors
    /// [`SimError::BadProgram`] where it makes no sense.
    pub fn check(&self) -> Result<(), SimError> {
        let bad = |fault: String| Err(SimError::bad_program(&self.name, fault));
        if self.iterations == 0 {
            return bad("has no iterations".into());
        }
        match self.steps(&self.body, 0)? {
            0 => return bad("has no steps".into()),
            n if n > Self::MAX_STEPS => {
                return bad(format!("has {n} steps, more than {}", Self::MAX_STEPS));
            }
            _ => {}
        }
        let run = self.iterations.saturating_mul(steps_of_iteration(&self.body));
        if self.iterations > Self::MAX_ITERATIONS || run > Self::MAX_STEPS_OF_RUN {
            return bad(format!(
                "has {} iterations of {} steps, repeats included, and may have {} iterations and {} steps in all",
                self.iterations,
                steps_of_iteration(&self.body),
                Self::MAX_ITERATIONS,
                Self::MAX_STEPS_OF_RUN
            ));
        }
        Ok(())
    }

    /// Steps of `body`, which is inside `depth` repeats; repeats are not counted.
    fn steps(&self, body: &[Step], depth: usize) -> Result<usize, SimError> {
        let count = |(number, step)| self.steps_of(step, depth).map_err(|e| e.in_step(number));
        body.iter().enumerate().map(count).sum()
    }

    fn steps_of(&self, step: &Step, depth: usize) -> Result<usize, SimError> {
        let bad = |fault: String| Err(SimError::bad_program(&self.name, fault));
        match step {
            Step::Compute { imbalance, .. } if !(imbalance.is_finite() && *imbalance >= 0.0) => {
                bad(format!("computes with an imbalance of {imbalance}; give 0 or more"))
            }
            Step::Halo { dims, .. } if !(1..=3).contains(dims) => {
                bad(format!("has a halo in {dims} dimensions; give 1, 2 or 3"))
            }
            Step::Transpose { dims, along, .. } if !(1..=3).contains(dims) || along >= dims => bad(format!(
                "transposes along dimension {along} of {dims}; give 1 to 3 dimensions, and one of them from 0"
            )),
            Step::Collective { ranks: Some(0), .. } => bad("has a collective of 0 ranks".into()),
            Step::Repeat { .. } if depth == Self::MAX_DEPTH => {
                bad(format!("has repeats nested deeper than {}", Self::MAX_DEPTH))
            }
            Step::Repeat { times: 0, .. } => bad("repeats steps 0 times".into()),
            Step::Repeat { body, .. } => self.steps(body, depth + 1),
            _ => Ok(1),
        }
    }
}

/// Steps that an iteration runs, those in repeats as often as they run.
fn steps_of_iteration(body: &[Step]) -> u64 {
    let count = |step: &Step| match step {
        Step::Repeat { times, body } => times.saturating_mul(steps_of_iteration(body)),
        _ => 1,
    };
    body.iter().map(count).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_would_run_for_ever_are_refused_with_the_limit() {
        let work = || Step::compute(1000);
        let check = |iterations, body| Program::new("x", iterations, body).check().map_err(|e| e.to_string());
        check(100_000_000, vec![work()]).expect("as many as there may be");
        let refused = check(4_294_967_295, vec![work()]).expect_err("too many");
        assert!(refused.contains("4294967295 iterations") && refused.contains("100000000"), "{refused}");
        let nested =
            |times| Step::Repeat { times, body: vec![Step::Repeat { times: 1000, body: vec![work(); 10] }] };
        check(1000, vec![nested(1000)]).expect("ten billion steps");
        assert!(check(1001, vec![nested(1000)]).is_err_and(|e| e.contains("10000000 steps")));
        assert!(check(1, vec![nested(u64::MAX)]).is_err());
    }
}
