// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program as the engine runs it: its steps with their algorithms chosen and their messages costed.

use super::collective::{Chosen, Collective};
use super::op::{Burst, Messages, Op, Round};
use super::pattern::Pattern;
use crate::machine::Machine;
use crate::network::{Network, Topology, grid};
use crate::program::{Program, Step};
use crate::simulation::MOST_NS;
use crate::{LogGops, MessageCost, SimError};

/// A program on a machine of some size.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its body.
    pub(crate) body: Vec<Op>,
    /// Number of iterations.
    pub(crate) iterations: u64,
    /// True if the network interface can be busy while the CPU is free.
    pub(crate) interfaces: bool,
    /// True if any send waits for its receive.
    pub(crate) rendezvous: bool,
    /// True if random numbers decide the duration of work.
    pub(crate) random: bool,
    /// Number of ranks by which an iteration's messages go up; `None` unless every rank does the same.
    pub(crate) turn: Option<u32>,
}

impl Plan {
    /// Number of times that an iteration deals with each rank: the cost of its simulation.
    pub(crate) fn passes(&self) -> u64 {
        self.body.iter().map(Op::passes).fold(0, u64::saturating_add)
    }

    /// Plans `program` on `nodes` nodes of `machine`.
    ///
    /// # Errors
    /// [`SimError`] where the program or the machine makes no sense, or its time is beyond what is counted.
    pub(crate) fn new(program: &Program, machine: &Machine, nodes: u32) -> Result<Self, SimError> {
        program.check()?;
        machine.check()?;
        let ranks = machine.layout(nodes)?.ranks();
        let planner = Planner { program, machine, nodes, ranks };
        let body = planner.ops(&program.body)?;
        let random = is_random(&body);
        let turn = machine.network(nodes)?.uniform_ns().and_then(|_| turn(&body, ranks));
        let iterations = program.iterations;
        let mut plan = Self { body, iterations, interfaces: false, rendezvous: false, random, turn };
        plan.find_waits(&machine.loggops);
        plan.turn = plan.turn.filter(|_| !plan.interfaces);
        let all = time_at_most(&plan.body, ranks, most_latency_ns(machine, nodes)?)
            .saturating_mul(u128::from(plan.iterations));
        if all > u128::from(MOST_NS) {
            return Err(SimError::TooLong { program: program.name.clone() });
        }
        Ok(plan)
    }

    /// Sets whether interfaces and rendezvous can make ranks wait.
    fn find_waits(&mut self, p: &LogGops) {
        let (mut interfaces, mut rendezvous) = (false, false);
        visit(&self.body, &mut |cost, exchange| {
            rendezvous |= cost.rendezvous;
            let after_send = cost.overhead_ns.saturating_add(cost.send_more_ns);
            interfaces |= p.gap_ns > cost.recv_ns || (!exchange && cost.gap_ns > after_send);
        });
        (self.interfaces, self.rendezvous) = (interfaces, rendezvous);
    }
}

/// Checks that `nodes` nodes of `machine` can run every step of `program`.
///
/// # Errors
/// [`SimError::BadProgram`] with the first step that they cannot run.
pub(crate) fn check_steps(program: &Program, machine: &Machine, nodes: u32) -> Result<(), SimError> {
    let ranks = machine.layout(nodes)?.ranks();
    Planner { program, machine, nodes, ranks }.ops(&program.body).map(drop)
}

/// No latency is longer.
fn most_latency_ns(machine: &Machine, nodes: u32) -> Result<u128, SimError> {
    let inside = machine.inside_ns.unwrap_or(0).max(machine.loggops.latency_ns);
    let (hops, hop_ns) = match machine.topology {
        Topology::Flat => (0, 0),
        Topology::Torus { dims, hop_ns } if dims.contains(&0) => (u128::from(nodes) + 2, hop_ns),
        Topology::Torus { dims, hop_ns } => {
            let room: u128 = dims.iter().map(|&d| u128::from(d)).product();
            if room < u128::from(nodes) {
                return Err(SimError::Torus { dims, nodes });
            }
            (dims.iter().map(|&d| u128::from(d)).sum(), hop_ns)
        }
        Topology::FatTree { hop_ns, .. } => (2 * u128::from(u32::BITS), hop_ns),
    };
    Ok(u128::from(inside) + hops * u128::from(hop_ns))
}

/// Number of ranks by which the messages of `body` go up in all, around `all` ranks; `None` if some go otherwise.
fn turn(body: &[Op], all: u32) -> Option<u32> {
    let sum = body.iter().try_fold(0u64, |sum, op| {
        let more = match op {
            Op::Compute { .. } | Op::Hardware { .. } => 0,
            Op::Rounds(rounds) => rounds.iter().try_fold(0u64, |sum, r| match r.pattern {
                Pattern::Shift { by, ranks } if ranks == all => {
                    let (by, times) = (u64::from(by), u64::from(r.times));
                    let more = if r.advances { times * (times - 1) / 2 } else { 0 };
                    Some((sum + by * times + more) % u64::from(all))
                }
                _ => None,
            })?,
            Op::Repeat { times, body } => (times % u64::from(all)) * u64::from(turn(body, all)?),
            Op::Burst(_) | Op::RingTrip(_) => return None,
        };
        Some((sum + more) % u64::from(all))
    })?;
    Some(sum as u32)
}

fn is_random(body: &[Op]) -> bool {
    body.iter().any(|op| match op {
        Op::Compute { imbalance, .. } => *imbalance > 0.0,
        Op::Repeat { body, .. } => is_random(body),
        _ => false,
    })
}

/// Calls `f` with the cost of each kind of message, and whether each send is followed by a receive of the
/// same size.
fn visit(body: &[Op], f: &mut impl FnMut(&MessageCost, bool)) {
    for op in body {
        match op {
            Op::Rounds(rounds) => {
                for r in rounds {
                    f(
                        &r.cost,
                        matches!(
                            r.pattern,
                            Pattern::Shift { .. } | Pattern::Flip { .. } | Pattern::Grid { .. }
                        ),
                    );
                }
            }
            Op::Burst(b) => f(&b.cost, false),
            Op::RingTrip(cost) => f(cost, false),
            Op::Repeat { body, .. } => visit(body, f),
            Op::Compute { .. } | Op::Hardware { .. } => {}
        }
    }
}

/// No pass through `body` takes longer without noise.
fn time_at_most(body: &[Op], ranks: u32, latency_ns: u128) -> u128 {
    let message = |c: &MessageCost| {
        let parts = [c.overhead_ns, c.send_more_ns, c.gap_ns, c.gap_ns, c.transfer_ns, c.recv_ns];
        parts.iter().map(|&ns| u128::from(ns)).sum::<u128>() + latency_ns
    };
    body.iter().fold(0u128, |sum, op| {
        sum.saturating_add(match op {
            // a normal number is never 12 standard deviations out here
            Op::Compute { ns, imbalance } => (*ns as f64 * (1.0 + 12.0 * imbalance)) as u128,
            Op::Hardware { cpu_ns, wire_ns, phases } => {
                (u128::from(*cpu_ns) + u128::from(*wire_ns)) * (u128::from(*phases) + 1)
            }
            Op::Rounds(rounds) => rounds
                .iter()
                .map(|r| (message(&r.cost) + u128::from(r.combine_ns)) * u128::from(r.times))
                .sum(),
            Op::Burst(b) => message(&b.cost) * u128::from(b.messages.len()),
            Op::RingTrip(cost) => message(cost) * u128::from(ranks),
            Op::Repeat { times, body } => {
                time_at_most(body, ranks, latency_ns).saturating_mul(u128::from(*times))
            }
        })
    })
}

struct Planner<'a> {
    program: &'a Program,
    machine: &'a Machine,
    nodes: u32,
    ranks: u32,
}

impl Planner<'_> {
    fn bad(&self, fault: String) -> SimError {
        SimError::bad_program(&self.program.name, fault)
    }

    fn ops(&self, body: &[Step]) -> Result<Vec<Op>, SimError> {
        let op = |(number, step)| self.op(step).map_err(|e| e.in_step(number));
        body.iter().enumerate().map(op).collect()
    }

    fn op(&self, step: &Step) -> Result<Op, SimError> {
        let p = &self.machine.loggops;
        Ok(match step {
            Step::Compute { ns, imbalance } => Op::Compute { ns: *ns, imbalance: *imbalance },
            Step::Collective { operation, algorithm, bytes, combine_ns, ranks } => {
                let all = self.ranks;
                let n = ranks.unwrap_or(all);
                if n > all {
                    return Err(self.bad(format!("has a collective of {n} ranks, and the machine has {all}")));
                }
                let c = Collective {
                    operation: *operation,
                    algorithm: *algorithm,
                    bytes: *bytes,
                    combine_ns: *combine_ns,
                    ranks: n,
                };
                match c.choose(self.machine, n == all).map_err(|fault| self.bad(fault))? {
                    Chosen::Hardware(h) => Op::Hardware {
                        cpu_ns: h.cpu_ns,
                        wire_ns: h.wire_ns(u64::from(self.nodes)),
                        phases: h.phases,
                    },
                    Chosen::Software(algorithm) => c.op(algorithm, p).map_err(|fault| self.bad(fault))?,
                }
            }
            Step::Halo { bytes, dims } => Op::Burst(Burst {
                messages: Messages::Neighbours(neighbours(self.ranks, *dims)),
                cost: p.cost(*bytes),
            }),
            Step::Transpose { bytes, dims, along } => {
                Op::Rounds(transpose(self.ranks, (*dims, *along), p.cost(*bytes)))
            }
            Step::RingTrip { bytes } => Op::RingTrip(p.cost(*bytes)),
            Step::Repeat { times, body } => Op::Repeat { times: *times, body: self.ops(body)? },
        })
    }
}

/// An alltoall by pairs within each line of a dimension of the ranks' grid.
fn transpose(ranks: u32, (dims, along): (u32, u32), cost: MessageCost) -> Vec<Round> {
    let grid = grid(ranks, dims as usize);
    let (before, from) = grid.split_at(along as usize);
    let (stride, len) = (before.iter().product(), from[0]);
    let round = |times| Round {
        pattern: Pattern::Grid { stride, len, by: 1 },
        times,
        advances: true,
        cost,
        combine_ns: 0,
    };
    len.checked_sub(1).filter(|&times| times > 0).map(round).into_iter().collect()
}

fn neighbours(ranks: u32, dims: u32) -> Vec<Pattern> {
    let mut stride = 1;
    let mut patterns = Vec::new();
    for len in grid(ranks, dims as usize) {
        if len > 1 {
            patterns.extend([len - 1, 1].map(|by| Pattern::Grid { stride, len, by }));
        }
        stride *= len;
    }
    patterns
}
