//! Noise as it was measured.

use super::{Burst, Done, Noise, Stream};
use crate::{CpuNoise, NodeNoise};

/// The detours measured on the CPUs of one node, over and over: every simulated node replays them from
/// another instant, its cores together. Core *c* has the noise of CPU *c* (and again from the first, where
/// more cores are simulated than were measured).
#[derive(Clone, Debug)]
pub struct Trace {
    noise: NodeNoise,
}

impl Trace {
    /// Replays `noise`.
    #[must_use]
    pub const fn new(noise: NodeNoise) -> Self {
        Self { noise }
    }

    fn cpu(&self, stream: &Stream) -> &CpuNoise {
        let cpus = self.noise.cpus();
        &cpus[stream.core().core as usize % cpus.len()]
    }
}

/// Detour number `index`, counted on through all laps, where the trace begins at `offset`.
fn burst(cpu: &CpuNoise, index: u64, offset: u64) -> Option<Burst> {
    let n = cpu.detours().len() as u64;
    let d = cpu.detours()[(index % n) as usize];
    let at = (index / n).checked_mul(cpu.span_ns())?.checked_add(d.start_ns)?;
    Some(Burst { index, arrival_ns: at.checked_sub(offset)?, length_ns: d.duration_ns })
}

impl Noise for Trace {
    fn first(&self, stream: &Stream) -> Option<Burst> {
        let cpu = self.cpu(stream);
        if cpu.detours().is_empty() {
            return None;
        }
        let offset = stream.node_phase_ns(cpu.span_ns()) % cpu.span_ns();
        burst(cpu, cpu.detours().partition_point(|d| d.start_ns < offset) as u64, offset)
    }

    fn next(&self, stream: &Stream, last: Done) -> Option<Burst> {
        let cpu = self.cpu(stream);
        // where the trace begins is not kept: the last burst tells
        let offset = burst(cpu, last.index, 0)?.arrival_ns.checked_sub(last.arrival_ns)?;
        burst(cpu, last.index.checked_add(1)?, offset)
    }

    fn cycle_ns(&self) -> f64 {
        self.noise.span_ns() as f64
    }

    fn load(&self) -> f64 {
        self.noise.stolen_share()
    }
}
