// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces made of the blocks of a measured one: what another measurement of the same node could have seen.

use super::bootstrap::Order;
use crate::SimError;
use crate::noise::{CpuNoise, Detour, NodeNoise};
use crate::rng::Key;
use crate::source::MeasuredSource;
use crate::spec::Measured;

/// Part of the seed for the blocks of [`resampled`].
const RESAMPLED: u64 = 1 << 44;

/// The trace number `number` of those that another measurement of the node could have been: 16 blocks of `noise`, drawn at
/// random with replacement, the same on all CPUs (block bootstrap). Its length is that of `noise`.
///
/// # Errors
/// [`SimError`] if the blocks leave a CPU no time to run a program.
pub fn resampled(noise: &NodeNoise, seed: u64, number: u32) -> Result<NodeNoise, SimError> {
    remade_node(noise, &order(Key::new(seed).part(RESAMPLED).part(number.into())))
}

/// Blocks drawn at random, any with equal probability.
pub(super) fn order(key: Key) -> Order {
    let blocks = Order::default().len() as f64;
    std::array::from_fn(|place| (key.uniform(place as u64) * blocks) as usize)
}

/// A trace made of blocks of `measured`.
pub(super) fn remade(measured: &Measured, order: &Order) -> Result<Measured, SimError> {
    let source = |s: &MeasuredSource| -> Result<MeasuredSource, SimError> {
        Ok(MeasuredSource { noise: remade_node(&s.noise, order)?, ..s.clone() })
    };
    Ok(Measured { sources: measured.sources.iter().map(source).collect::<Result<_, _>>()? })
}

/// A trace of a node made of blocks of another one, the same blocks on all CPUs.
fn remade_node(noise: &NodeNoise, order: &Order) -> Result<NodeNoise, SimError> {
    let cpus = noise.cpus().iter().map(|cpu| remade_cpu(cpu, order)).collect::<Result<Vec<_>, _>>()?;
    NodeNoise::new(cpus)
}

fn remade_cpu(cpu: &CpuNoise, order: &Order) -> Result<CpuNoise, SimError> {
    let begin_ns = |place: usize| (u128::from(cpu.span_ns()) * place as u128 / order.len() as u128) as u64;
    let detours = cpu.detours();
    let of_place = |(place, &block): (usize, &usize)| {
        let from = detours.partition_point(|d| d.start_ns < begin_ns(block));
        let to = detours.partition_point(|d| d.start_ns < begin_ns(block + 1));
        let (old_ns, new_ns) = (begin_ns(block), begin_ns(place));
        detours[from..to]
            .iter()
            .map(move |d| Detour { start_ns: d.start_ns - old_ns + new_ns, duration_ns: d.duration_ns })
    };
    CpuNoise::new(cpu.span_ns(), order.iter().enumerate().flat_map(of_place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_the_blocks_in_their_order_is_the_trace() {
        let starts = [0, 40, 999, 1000, 1590];
        let detours = starts.map(|start_ns| Detour { start_ns, duration_ns: 10 });
        let cpu = CpuNoise::new(1600, detours).expect("some time");
        assert_eq!(remade_cpu(&cpu, &std::array::from_fn(|place| place)), Ok(cpu.clone()));
        let first = remade_cpu(&cpu, &[0; 16]).expect("some time");
        let starts: Vec<u64> = first.detours().iter().map(|d| d.start_ns).collect();
        assert_eq!(starts[..4], [0, 40, 100, 140]);
    }
}
