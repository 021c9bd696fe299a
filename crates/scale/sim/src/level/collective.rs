// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives as rounds of messages.
//!
//! Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
//! IJHPCA 2005, describes all of these algorithms.

use super::op::{Burst, Messages, Op, Round};
use super::pattern::Pattern;
use crate::LogGops;
use crate::machine::{HardwareCollective, Machine};
use crate::program::{Algorithm, Operation};

/// A collective of a program, its ranks known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Collective {
    pub(crate) operation: Operation,
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) bytes: u64,
    pub(crate) combine_ns: u64,
    pub(crate) ranks: u32,
}

/// The algorithm chosen.
pub(crate) enum Chosen<'a> {
    Hardware(&'a HardwareCollective),
    Software(Algorithm),
}

/// Vectors from this size on are reduced piece by piece.
const LONG_BYTES: u64 = 64 << 10;
/// Contributions below this size are gathered in few rounds.
const SHORT_BYTES: u64 = 1 << 10;

impl Collective {
    /// The algorithm asked for, or the usual one; what is wrong with the one asked for.
    pub(crate) fn choose<'a>(&self, machine: &'a Machine, all: bool) -> Result<Chosen<'a>, String> {
        let hardware = match self.operation {
            Operation::Barrier => machine.hardware_barrier.as_ref(),
            Operation::Allreduce | Operation::Bcast => machine.hardware_reduce.as_ref(),
            Operation::Allgather | Operation::Alltoall => None,
        };
        let operation_name = crate::words::a(self.operation.name());
        match (self.algorithm, hardware) {
            (Some(Algorithm::Hardware), _) if !all => Err(format!(
                "asks for {operation_name} by hardware of only some ranks: the machine serves all or none"
            )),
            (Some(Algorithm::Hardware), _) if self.combine_ns > 0 => Err(format!(
                "asks for {operation_name} by hardware with an operation of its own (combine_ns): that is software"
            )),
            (Some(Algorithm::Hardware), None) => Err(format!(
                "asks for {operation_name} by hardware, and machine `{}` has none for it; leave `algorithm` out, or choose a \
                 machine with a collective network (such as bgl)",
                machine.name
            )),
            (Some(Algorithm::Hardware), Some(h)) => Ok(Chosen::Hardware(h)),
            (None, Some(h)) if all && self.combine_ns == 0 => Ok(Chosen::Hardware(h)),
            (Some(algorithm), _) => Ok(Chosen::Software(algorithm)),
            (None, _) => Ok(Chosen::Software(match self.operation {
                Operation::Barrier => Algorithm::Dissemination,
                Operation::Allreduce if self.bytes > LONG_BYTES => Algorithm::Rabenseifner,
                Operation::Allreduce => Algorithm::RecursiveDoubling,
                Operation::Bcast => Algorithm::Binomial,
                Operation::Allgather if self.bytes < SHORT_BYTES => Algorithm::Bruck,
                Operation::Allgather => Algorithm::Ring,
                Operation::Alltoall if self.bytes < SHORT_BYTES => Algorithm::Bruck,
                Operation::Alltoall => Algorithm::Pairwise,
            })),
        }
    }

    /// Its messages, by `algorithm`.
    pub(crate) fn op(&self, algorithm: Algorithm, p: &LogGops) -> Result<Op, String> {
        use {Algorithm as A, Operation as O};
        let n = self.ranks;
        let b = Build { p, rounds: Vec::new() };
        if n == 1 {
            return Ok(Op::Rounds(Vec::new()));
        }
        Ok(Op::Rounds(
            match (self.operation, algorithm) {
                (O::Barrier, A::Dissemination) => b.dissemination(n, |_| self.bytes),
                (O::Barrier, A::RecursiveDoubling) => b.doubling(n, self.bytes, 0),
                (O::Barrier, A::Binomial) => b.up(n, self.bytes, 0).down(n, self.bytes),
                (O::Allreduce, A::RecursiveDoubling) => b.doubling(n, self.bytes, self.combine_ns),
                (O::Allreduce, A::Binomial) => b.up(n, self.bytes, self.combine_ns).down(n, self.bytes),
                (O::Allreduce, A::Rabenseifner) => b.rabenseifner(n, self.bytes, self.combine_ns),
                (O::Allreduce, A::Ring) => {
                    let (piece, combine_ns) =
                        (self.bytes.div_ceil(n.into()), self.combine_ns.div_ceil(n.into()));
                    b.ring(n, piece, combine_ns).ring(n, piece, 0)
                }
                (O::Bcast, A::Binomial) => b.down(n, self.bytes),
                (O::Allgather, A::Ring) => b.ring(n, self.bytes, 0),
                (O::Allgather, A::RecursiveDoubling) => b.gather_doubling(n, self.bytes),
                (O::Allgather, A::Bruck | A::Dissemination) => {
                    b.dissemination(n, |bit| self.bytes.saturating_mul(bit.min(n - bit).into()))
                }
                (O::Alltoall, A::Bruck) => {
                    b.dissemination(n, |bit| self.bytes.saturating_mul(with_bit(n, bit).into()))
                }
                (O::Alltoall, A::Pairwise) => b.pairwise(n, self.bytes),
                (O::Alltoall, A::Linear) => {
                    return Ok(Op::Burst(Burst {
                        messages: Messages::All { ranks: n },
                        cost: p.cost(self.bytes),
                    }));
                }
                (operation, algorithm) => {
                    return Err(format!(
                        "asks for {} by {}, which is no way to do one",
                        crate::words::a(operation.name()),
                        algorithm.name()
                    ));
                }
            }
            .rounds,
        ))
    }
}

/// Numbers below `n` that have `bit`: the blocks that move in one round of Bruck's alltoall.
fn with_bit(n: u32, bit: u32) -> u32 {
    let (whole, rest) = (n / (2 * bit), n % (2 * bit));
    whole * bit + rest.saturating_sub(bit)
}

/// Powers of two below `n`.
fn bits(n: u32) -> impl DoubleEndedIterator<Item = u32> {
    (0..n.next_power_of_two().ilog2()).map(|k| 1 << k)
}

struct Build<'a> {
    p: &'a LogGops,
    rounds: Vec<Round>,
}

impl Build<'_> {
    fn round(mut self, pattern: Pattern, bytes: u64, combine_ns: u64) -> Self {
        let cost = self.p.cost(bytes);
        self.rounds.push(Round { pattern, times: 1, advances: false, cost, combine_ns });
        self
    }

    fn dissemination(self, n: u32, bytes: impl Fn(u32) -> u64) -> Self {
        bits(n).fold(self, |b, bit| b.round(Pattern::Shift { by: bit, ranks: n }, bytes(bit), 0))
    }

    /// Up a binomial tree to rank 0.
    fn up(self, n: u32, bytes: u64, combine_ns: u64) -> Self {
        bits(n).fold(self, |b, bit| b.round(Pattern::Up { bit, ranks: n }, bytes, combine_ns))
    }

    /// Down a binomial tree from rank 0, to the rank farthest away first.
    fn down(self, n: u32, bytes: u64) -> Self {
        bits(n).rev().fold(self, |b, bit| b.round(Pattern::Down { bit, ranks: n }, bytes, 0))
    }

    fn ring(mut self, n: u32, bytes: u64, combine_ns: u64) -> Self {
        let (pattern, cost) = (Pattern::Shift { by: 1, ranks: n }, self.p.cost(bytes));
        self.rounds.push(Round { pattern, times: n - 1, advances: false, cost, combine_ns });
        self
    }

    fn pairwise(mut self, n: u32, bytes: u64) -> Self {
        let (pattern, cost) = (Pattern::Shift { by: 1, ranks: n }, self.p.cost(bytes));
        self.rounds.push(Round { pattern, times: n - 1, advances: true, cost, combine_ns: 0 });
        self
    }

    /// `inner` on the largest power of two of ranks, `bytes` of the others folded in before and given out
    /// after (`after` bytes).
    fn folded(
        self,
        n: u32,
        (bytes, combine_ns, after): (u64, u64, u64),
        inner: impl FnOnce(Self, u32) -> Self,
    ) -> Self {
        let whole = 1 << n.ilog2();
        if whole == n {
            return inner(self, n);
        }
        let before = self.round(Pattern::Fold { whole, ranks: n }, bytes, combine_ns);
        inner(before, whole).round(Pattern::Unfold { whole, ranks: n }, after, 0)
    }

    fn doubling(self, n: u32, bytes: u64, combine_ns: u64) -> Self {
        self.folded(n, (bytes, combine_ns, bytes), |b, whole| {
            bits(whole).fold(b, |b, bit| b.round(Pattern::Flip { bit, ranks: whole }, bytes, combine_ns))
        })
    }

    /// Each round costs what its largest message does: where ranks beyond a power of two gave theirs to
    /// one below, that one's block counts twice.
    fn gather_doubling(self, n: u32, bytes: u64) -> Self {
        let beyond = n - (1 << n.ilog2());
        let blocks = |n: u32| bytes.saturating_mul(n.into());
        self.folded(n, (bytes, 0, blocks(n)), |b, whole| {
            bits(whole).fold(b, |b, bit| {
                b.round(Pattern::Flip { bit, ranks: whole }, blocks(bit + bit.min(beyond)), 0)
            })
        })
    }

    /// Reduce-scatter from the lowest bit on, each round half the data of the one before; then the same
    /// way back.
    fn rabenseifner(self, n: u32, bytes: u64, combine_ns: u64) -> Self {
        let half = |all: u64, bit: u32| all.div_ceil(2 * u64::from(bit));
        self.folded(n, (bytes, combine_ns, bytes), |b, whole| {
            let pattern = |bit| Pattern::Flip { bit, ranks: whole };
            let b =
                bits(whole).fold(b, |b, bit| b.round(pattern(bit), half(bytes, bit), half(combine_ns, bit)));
            bits(whole).rev().fold(b, |b, bit| b.round(pattern(bit), half(bytes, bit), 0))
        })
    }
}
