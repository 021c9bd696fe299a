//! What Python asks for, as the simulator understands it.

use colony_sim::cpus::Node;
use colony_sim::machine::Machine;
use colony_sim::program::{Operation, Program, Step};
use colony_sim::scheduler::{ClockError, Coordinated, Fair, Preempt, Quiet, SpareCore};
use colony_sim::simulate::Simulation;
use colony_sim::source::{self, Class, Model, Noise as _, Phase, Placement, Source};
use colony_sim::{NodeNoise, SimError};
use colony_time::{DutyCycle, Windows, WindowsError};
use serde::Deserialize;

/// What cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpecError {
    #[error(transparent)]
    Sim(#[from] SimError),
    #[error(transparent)]
    Windows(#[from] WindowsError),
    #[error("there is no program {0:?}; choose one of {all}, or give steps", all = NAMED.join(", "))]
    Program(String),
    #[error("a duty cycle of {0} is no share of a period; give a number between 0 and 1, as 0.95")]
    Duty(f64),
    #[error("{what} is {found}; give a number of 0 or more")]
    Negative { what: &'static str, found: f64 },
    #[error("turns of 0 ns: give noise_slice_ns and job_slice_ns above 0")]
    Slices,
    #[error("the source {0:?} has neither a model nor a trace")]
    Source(String),
}

/// A simulation at several node counts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    machine: MachineSpec,
    ranks_per_node: Option<u32>,
    nodes: Vec<u32>,
    program: ProgramSpec,
    noise: Vec<SourceSpec>,
    scheduler: SchedulerSpec,
    begin_ns: Option<u64>,
    repetitions: u32,
    seed: u64,
}

impl Spec {
    /// One simulation a node count, in their order.
    pub(crate) fn simulations(self, traces: &[NodeNoise]) -> Result<Vec<Simulation>, SpecError> {
        let mut machine = self.machine.machine()?;
        machine.ranks_per_node = self.ranks_per_node.unwrap_or(machine.ranks_per_node);
        machine.check()?;
        let program = self.program.program()?;
        program.check()?;
        let sources: Result<_, _> = self.noise.into_iter().map(|s| s.source(traces)).collect();
        let node = self.scheduler.node(sources?)?;
        if self.nodes.is_empty() {
            return Err(SimError::Nodes.into());
        }
        let simulation = |&nodes| Simulation {
            program: program.clone(),
            machine: machine.clone(),
            node: node.clone(),
            nodes,
            begin_ns: self.begin_ns,
            repetitions: self.repetitions,
            seed: self.seed,
        };
        Ok(self.nodes.iter().map(simulation).collect())
    }
}

/// A machine.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MachineSpec {
    /// Name of a profile, or of a file.
    Named(String),
    /// Its figures.
    Given(Box<Machine>),
}

impl MachineSpec {
    pub(crate) fn machine(self) -> Result<Machine, SimError> {
        match self {
            Self::Named(name) => Machine::named_or_file(&name),
            Self::Given(machine) => machine.check().map(|()| *machine),
        }
    }
}

/// A program.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProgramSpec {
    /// One of the seeds'.
    Named(NamedProgram),
    /// Its steps.
    Steps(Program),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedProgram {
    name: String,
    iterations: u64,
    bytes: u64,
    work_ns: u64,
}

const NAMED: [&str; 7] = ["barrier", "allreduce", "bcast", "allgather", "alltoall", "bsp", "ring"];

impl ProgramSpec {
    fn program(self) -> Result<Program, SpecError> {
        let NamedProgram { name, iterations, bytes, work_ns } = match self {
            Self::Steps(program) => return Ok(program),
            Self::Named(named) => named,
        };
        let operation = match name.as_str() {
            "barrier" => Operation::Barrier,
            "allreduce" => Operation::Allreduce,
            "bcast" => Operation::Bcast,
            "allgather" => Operation::Allgather,
            "alltoall" => Operation::Alltoall,
            "bsp" => return Ok(Program::bsp(work_ns, iterations)),
            "ring" => return Ok(Program::new("ring", iterations, vec![Step::RingTrip { bytes }])),
            _ => return Err(SpecError::Program(name)),
        };
        Ok(Program::collective(operation, bytes, iterations))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SourceSpec {
    name: String,
    model: Option<Model>,
    /// Number of its trace.
    trace: Option<usize>,
    class: Class,
    phase: Phase,
    placement: Placement,
}

impl SourceSpec {
    fn source(self, traces: &[NodeNoise]) -> Result<Source, SpecError> {
        let source = match (self.model, self.trace.and_then(|n| traces.get(n))) {
            (Some(model), None) => {
                model.check()?;
                Source::new(self.name, model)
            }
            (None, Some(noise)) => Source::new(self.name, source::Trace::new(noise.clone())),
            _ => return Err(SpecError::Source(self.name)),
        };
        Ok(source.class(self.class).phase(self.phase).placement(self.placement))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SchedulerSpec {
    None,
    Preempt,
    Fair(Slices),
    Coordinated(Windowed),
    SpareCore,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slices {
    noise_slice_ns: Option<u64>,
    job_slice_ns: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Windowed {
    period_ns: u64,
    duty: f64,
    clock_offset_ns: f64,
    clock_drift_ppm: f64,
    edge_lateness_ns: Vec<u64>,
}

impl SchedulerSpec {
    fn node(self, sources: Vec<Source>) -> Result<Node, SpecError> {
        Ok(match self {
            Self::None => Node::new(sources, Quiet),
            Self::Preempt => Node::new(sources, Preempt),
            Self::SpareCore => Node::new(sources, SpareCore),
            Self::Fair(slices) => Node::new(sources, slices.fair()?),
            Self::Coordinated(windowed) => Node::new(sources, windowed.coordinated()?),
        })
    }
}

impl Slices {
    fn fair(&self) -> Result<Fair, SpecError> {
        let usual = Fair::LINUX_2_6_16;
        let fair = Fair {
            noise_slice_ns: self.noise_slice_ns.unwrap_or(usual.noise_slice_ns),
            job_slice_ns: self.job_slice_ns.unwrap_or(usual.job_slice_ns),
        };
        match fair.noise_slice_ns.min(fair.job_slice_ns) {
            0 => Err(SpecError::Slices),
            _ => Ok(fair),
        }
    }
}

impl Windowed {
    fn coordinated(self) -> Result<Coordinated, SpecError> {
        if !(0.0..=1.0).contains(&self.duty) {
            return Err(SpecError::Duty(self.duty));
        }
        for (what, found) in
            [("clock_offset_ns", self.clock_offset_ns), ("clock_drift_ppm", self.clock_drift_ppm)]
        {
            if !(found.is_finite() && found >= 0.0) {
                return Err(SpecError::Negative { what, found });
            }
        }
        let favored_ns = DutyCycle::Ns((self.duty * self.period_ns as f64).round() as u64);
        let mut coordinated = Coordinated {
            windows: Windows::new(self.period_ns, favored_ns, 0)?,
            clock: ClockError::default(),
            edge_lateness_ns: self.edge_lateness_ns,
        };
        coordinated.clock.offset_sigma_ns = self.clock_offset_ns;
        coordinated.clock.drift_sigma_ppm = self.clock_drift_ppm;
        Ok(coordinated)
    }
}
