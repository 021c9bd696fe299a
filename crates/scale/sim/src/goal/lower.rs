// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program as a schedule: what the level engine does on the fly, written out operation by operation.

use super::build::Builder;
use super::schedule::{Kind, Operation, Schedule};
use crate::level::job::{IMBALANCE, unequal};
use crate::level::op::{Burst, Op, Round};
use crate::level::pattern::Pattern;
use crate::level::plan::Plan;
use crate::machine::Machine;
use crate::program::Program;
use crate::rng::Key;
use crate::{LogGops, MessageCost, SimError};

/// Most operations of a schedule that is written out: 10 GiB.
const MOST_OPERATIONS: u128 = 1 << 29;

/// Writes out all iterations of `program` on `nodes` nodes of `machine`; imbalance is drawn from `seed`, as
/// the level engine does. What a rank does is in the order of the program: under
/// [`Progress::ProgramOrder`](crate::event::Progress) the schedule takes as long as the level engine says.
/// A message of 0 bytes becomes one of 1, which costs as much.
///
/// # Errors
/// [`SimError`] where the program or machine makes no sense, asks for collectives in hardware, or has too
/// many operations.
///
/// ```
/// use colony_sim::{goal, machine::Machine, program::{Operation, Program}, rng::Key};
/// let program = Program::collective(Operation::Barrier, 8, 1);
/// let schedule = goal::lower(&program, &Machine::loggopsim(), 64, Key::new(1))?;
/// assert_eq!((schedule.ranks(), schedule.messages()), (64, 64 * 6));
/// # Ok::<(), colony_sim::SimError>(())
/// ```
pub fn lower(program: &Program, machine: &Machine, nodes: u32, seed: Key) -> Result<Schedule, SimError> {
    let plan = plan(program, machine, nodes)?;
    let bad = |fault: String| SimError::bad_program(&program.name, fault);
    let ranks = machine.layout(nodes)?.ranks();
    let each = operations(&plan.body)
        .ok_or_else(|| bad("has a collective in hardware, which a schedule cannot have".into()))?;
    let all = each.saturating_mul(plan.iterations.into()).saturating_mul(ranks.into());
    if all > MOST_OPERATIONS {
        return Err(bad(format!(
            "is a schedule of up to {all} operations, more than {MOST_OPERATIONS}; fewer iterations, or the \
             level engine, which needs no schedule"
        )));
    }
    let mut writer = Writer::new(ranks, machine.loggops.eager_bytes, seed);
    let built = (0..ranks).try_for_each(|rank| {
        (writer.rank, writer.tag, writer.computes) = (rank, 0, 0);
        writer.after.clear();
        for _ in 0..plan.iterations {
            writer.body(&plan.body, ranks)?;
        }
        writer.builder.next_rank()
    });
    built.and_then(|()| writer.builder.finish()).map_err(|e| bad(format!("makes no schedule: {e}")))
}

/// The plan of `program`, in which what a message costs tells its size: the machine takes 1 ns a byte for it.
pub(super) fn plan(program: &Program, machine: &Machine, nodes: u32) -> Result<Plan, SimError> {
    let rule = LogGops { gap_per_byte_ps: 1000, overhead_per_byte_ps: 0, ..machine.loggops };
    Plan::new(program, &Machine { loggops: rule, ..machine.clone() }, nodes)
}

/// Operations of a rank, at most; `None` where hardware is asked for.
fn operations(body: &[Op]) -> Option<u128> {
    body.iter().try_fold(0u128, |sum, op| {
        let n = match op {
            Op::Compute { .. } => 1,
            Op::Hardware { .. } => return None,
            Op::Rounds(rounds) => {
                rounds.iter().map(|r| u128::from(r.times) * (2 + u128::from(r.combine_ns > 0))).sum()
            }
            Op::Burst(burst) => 2 * u128::from(burst.messages.len()),
            Op::RingTrip(_) => 2,
            Op::Repeat { times, body } => operations(body)?.saturating_mul(u128::from(*times)),
        };
        Some(sum.saturating_add(n))
    })
}

type Done = Result<(), super::BuildError>;

/// Writes out what one rank after the other does.
pub(super) struct Writer {
    pub(super) builder: Builder,
    key: Key,
    eager_bytes: u64,
    pub(super) rank: u32,
    /// Added to the number of every other rank, so that a collective may have another root than rank 0.
    pub(super) shift: u32,
    /// Every message of a rank has its own.
    pub(super) tag: u32,
    computes: u64,
    /// The operations that the next one requires: number, and true if it requires the start only.
    pub(super) after: Vec<(u32, bool)>,
}

impl Writer {
    pub(super) fn new(ranks: u32, eager_bytes: u64, seed: Key) -> Self {
        let (builder, key) = (Builder::new(ranks), seed.part(IMBALANCE));
        Self { builder, key, eager_bytes, rank: 0, shift: 0, tag: 0, computes: 0, after: Vec::new() }
    }

    pub(super) fn body(&mut self, body: &[Op], ranks: u32) -> Done {
        body.iter().try_for_each(|op| match op {
            Op::Compute { ns, imbalance } => {
                let key = self.key.part(self.computes);
                self.computes += 1;
                let work =
                    if *imbalance == 0.0 { *ns } else { unequal(*ns, *imbalance, key, self.rank.into()) };
                self.compute(work)
            }
            Op::Hardware { .. } => Ok(()),
            Op::Rounds(rounds) => rounds.iter().try_for_each(|r| self.round(r)),
            Op::Burst(burst) => self.burst(burst),
            Op::RingTrip(cost) => self.ring_trip(cost, ranks),
            Op::Repeat { times, body } => (0..*times).try_for_each(|_| self.body(body, ranks)),
        })
    }

    /// Adds an operation after what it requires; the next one comes after it.
    pub(super) fn add(
        &mut self,
        kind: Kind,
        size: u64,
        peer: u32,
        tag: u32,
    ) -> Result<u32, super::BuildError> {
        let peer = if self.shift > 0 { (peer + self.shift) % self.builder.ranks() } else { peer };
        let number = self.builder.add(Operation { kind, size, peer, tag, cpu: 0, nic: 0 })?;
        for (on, start_only) in self.after.drain(..) {
            self.builder.require(number, on, start_only)?;
        }
        self.after.push((number, false));
        Ok(number)
    }

    fn bytes(&self, cost: &MessageCost) -> u64 {
        // where one byte is a rendezvous, none is not
        let none = !cost.rendezvous && self.eager_bytes == 0;
        cost.transfer_ns + u64::from(!none)
    }

    pub(super) fn compute(&mut self, ns: u64) -> Done {
        self.add(Kind::Calc, ns, 0, 0).map(|_| ())
    }

    /// Sends; what comes next needs no more than its start, as the CPU goes on with that when it can.
    fn send(&mut self, cost: &MessageCost, to: u32, tag: u32) -> Result<u32, super::BuildError> {
        let number = self.add(Kind::Send, self.bytes(cost), to, tag)?;
        self.after = vec![(number, true)];
        Ok(number)
    }

    fn receive(&mut self, cost: &MessageCost, from: u32, tag: u32) -> Done {
        self.add(Kind::Recv, self.bytes(cost), from, tag).map(|_| ())
    }

    /// The next operation waits for the receives, and for `sent` if the send waits for its receive or if nothing was
    /// received.
    fn end_of_exchange(&mut self, cost: &MessageCost, sent: impl IntoIterator<Item = u32>) {
        self.after.retain(|(_, start_only)| !start_only);
        if cost.rendezvous || self.after.is_empty() {
            self.after.extend(sent.into_iter().map(|s| (s, false)));
        }
    }

    fn round(&mut self, round: &Round) -> Done {
        for k in 0..round.times {
            let pattern = round.pattern(k);
            self.tag = self.tag.wrapping_add(1) % u32::MAX;
            let sent = pattern.to(self.rank).map(|to| self.send(&round.cost, to, self.tag)).transpose()?;
            if let Some(from) = pattern.from(self.rank) {
                self.receive(&round.cost, from, self.tag)?;
                if round.combine_ns > 0 {
                    self.compute(round.combine_ns)?;
                }
            }
            self.end_of_exchange(&round.cost, sent);
        }
        Ok(())
    }

    fn burst(&mut self, burst: &Burst) -> Done {
        let (n, group, first) = (burst.messages.len(), burst.messages.group(), self.tag);
        let pattern = |k: u32| -> Pattern { burst.messages.pattern(k) };
        let tag = |k: u32| first.wrapping_add(k + 1) % u32::MAX;
        let mut sent = Vec::new();
        for k in 0..n {
            if let Some(to) = pattern(k).to(self.rank) {
                sent.push(self.send(&burst.cost, to, tag(k))?);
            }
        }
        for k in (0..n).step_by(group as usize).flat_map(|k| (k..k + group).rev()) {
            if let Some(from) = pattern(k).from(self.rank) {
                self.receive(&burst.cost, from, tag(k))?;
            }
        }
        self.end_of_exchange(&burst.cost, sent);
        self.tag = tag(n - u32::from(n > 0));
        Ok(())
    }

    fn ring_trip(&mut self, cost: &MessageCost, ranks: u32) -> Done {
        if ranks == 1 {
            return Ok(());
        }
        self.tag = self.tag.wrapping_add(1) % u32::MAX;
        let (next, last) = ((self.rank + 1) % ranks, (self.rank + ranks - 1) % ranks);
        if self.rank > 0 {
            self.receive(cost, last, self.tag)?;
        }
        let sent = self.send(cost, next, self.tag)?;
        if self.rank == 0 {
            self.receive(cost, last, self.tag)?;
        }
        self.end_of_exchange(cost, [sent]);
        Ok(())
    }
}
