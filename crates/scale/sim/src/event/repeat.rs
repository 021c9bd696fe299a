// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of a simulation whose program is a schedule: without noise, and each repetition with it.

use super::{EventError, Outcome, Rules, run};
use crate::SimError;
use crate::goal::Schedule;
use crate::network::MachineNetwork;
use crate::node::Node;
use crate::rng::Key;
use crate::simulation::Simulation;

/// A schedule on the machine and under the noise of a simulation.
///
/// ```
/// use colony_sim::event::{Progress, Runs};
/// use colony_sim::scheduler::Preempt;
/// use colony_sim::simulate::Simulation;
/// use colony_sim::source::{Model, Source};
/// use colony_sim::{goal, machine::Machine, node::Node, program::Program, program::Operation};
/// let goal = "num_ranks 2\n rank 0 {\n send 8b to 1\n }\n rank 1 {\n recv 8b from 0\n }\n";
/// let schedule = goal::read_text(goal.as_bytes(), "example")?;
/// let noise = Source::new("tick", Model::periodic(10_000, 5_000));
/// let simulation = Simulation {
///     program: Program::collective(Operation::Barrier, 0, 1), // the schedule stands in for it
///     machine: Machine::loggopsim(),
///     node: Node::new(vec![noise], Preempt),
///     nodes: 2,
///     begin_ns: None,
///     repetitions: 3,
///     seed: 1,
/// };
/// let runs = Runs::new(&schedule, &simulation, Progress::ProgramOrder)?;
/// let quiet = runs.quiet()?;
/// let noisy = runs.noisy().collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(noisy.len(), 3);
/// assert!(noisy.iter().all(|outcome| outcome.total_ns() >= quiet.total_ns()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Runs<'a> {
    schedule: &'a Schedule,
    simulation: &'a Simulation,
    network: MachineNetwork,
    rules: Rules,
    begin_ns: u64,
}

impl<'a> Runs<'a> {
    /// Runs of `schedule` in place of the program of `simulation`.
    ///
    /// # Errors
    /// [`SimError`] where the machine has no such number of nodes, or the job begins too late to be counted.
    pub fn new(
        schedule: &'a Schedule,
        simulation: &'a Simulation,
        rules: impl Into<Rules>,
    ) -> Result<Self, SimError> {
        let network = simulation.machine.network(simulation.nodes)?;
        let begin_ns = simulation.begins_ns()?;
        Ok(Self { schedule, simulation, network, rules: rules.into(), begin_ns })
    }

    /// The run without noise.
    ///
    /// # Errors
    /// As [`run`].
    pub fn quiet(&self) -> Result<Outcome, EventError> {
        self.run(&Node::quiet(), 0)
    }

    /// The run of each repetition, as it is asked for. None if nothing disturbs the nodes: then every repetition is
    /// [`quiet`](Self::quiet).
    pub fn noisy(&self) -> impl Iterator<Item = Result<Outcome, EventError>> + '_ {
        let node = &self.simulation.node;
        let repetitions = if node.is_disturbed() { self.simulation.repetitions } else { 0 };
        (0..repetitions).map(move |repetition| self.run(node, repetition))
    }

    fn run(&self, node: &Node, repetition: u32) -> Result<Outcome, EventError> {
        let seed = Key::new(self.simulation.seed).part(repetition.into());
        run(self.schedule, &self.network, node, self.rules, seed, self.begin_ns)
    }
}
