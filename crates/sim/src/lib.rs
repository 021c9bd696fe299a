//! Noise at scale: what the noise of a node costs a bulk-synchronous program on many nodes.
//!
//! The seam is [`Model`]: a [`Scenario`] (program, noise of a node, scheduler, node counts, seed) goes in,
//! a [`Projection`] comes out. [`MaxDelay`] is the first, simple model; its page lists what it assumes.
//!
//! * [`noise`] holds what was measured on one node, on plain vectors: no trace format is known here,
//! * [`curve`] turns it into the delay that work begun at each instant meets, exactly,
//! * [`tail`] turns a curve into a distribution, and draws the largest of *n* from it for any *n*,
//! * [`ring`] is the arithmetic of the ring of processors of ANL 2005.

pub mod cpus;
pub mod curve;
mod error;
pub mod event;
pub mod fit;
pub mod goal;
mod kernels;
pub mod layout;
mod level;
pub mod local;
mod loggops;
pub mod machine;
mod maxdelay;
pub mod network;
mod node;
pub mod noise;
pub mod program;
pub mod ring;
pub mod rng;
mod sample;
mod scenario;
pub mod scheduler;
pub mod simulate;
pub mod source;
pub mod spare;
pub mod spec;
pub mod stats;
pub mod sweep;
pub mod tail;
pub mod what_if;

pub use error::SimError;
pub use layout::Layout;
pub use loggops::{LogGops, MessageCost};
pub use maxdelay::MaxDelay;
pub use noise::{CpuNoise, NodeNoise};
pub use scenario::{BaseTime, Coordinated, Point, Program, Projection, Scenario, Scheduler};

/// Something that predicts what noise costs at scale.
///
/// ```
/// use colony_sim::{BaseTime, CpuNoise, MaxDelay, Model, NodeNoise, Program, Scenario, Scheduler};
/// let noise = CpuNoise::periodic(1_000_000, 16_000)?; // a detour of 16 µs each millisecond
/// let projection = MaxDelay.project(&Scenario {
///     program: Program::Collective { base: BaseTime::blue_gene_barrier(), stages: 1 },
///     noise: NodeNoise::new(vec![noise])?,
///     scheduler: Scheduler::Unmodified,
///     nodes: vec![512, 16_384, 1_048_576],
///     ops: 1000,
///     seed: 1,
/// })?;
/// assert!(projection.points.iter().all(|p| p.mean_ns > 10_000.0));
/// # Ok::<(), colony_sim::SimError>(())
/// ```
pub trait Model {
    /// Name and version of the model, as results record it.
    fn name(&self) -> &'static str;

    /// What the model takes for granted, a sentence each, for those who read its figures.
    fn assumptions(&self) -> &'static [&'static str];

    /// Predicts the time of an operation at each node count of the scenario.
    ///
    /// # Errors
    /// [`SimError`] where the scenario makes no sense (no nodes, no operations, negative times).
    fn project(&self, scenario: &Scenario) -> Result<Projection, SimError>;
}
