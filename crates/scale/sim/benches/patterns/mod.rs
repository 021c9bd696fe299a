// SPDX-License-Identifier: MIT OR Apache-2.0
//! Schedules to compare with LogGOPSim: the patterns of its generator, and random ones.
//!
//! Each pattern has the operations and requirements that the generator writes, in its order. Its two patterns with
//! random partners and the one with random sizes take theirs from a formula here.

use colony_sim::goal::{BuildError, Builder, Kind, Operation, Schedule};

/// Bytes that each pattern is run with.
pub(crate) const SIZES: [u64; 8] = [1, 8, 64, 1000, 4096, 20_000, 65_536, 100_000];

/// Names, as the generator has them. Its nineteenth, `chained_dissem`, sends to a rank that there is not.
pub(crate) const PATTERNS: [&str; 18] = [
    "binomialtreereduce",
    "binarytreebcast",
    "binomialtreebcast",
    "nwaydissemination",
    "pipelinedring",
    "pipelinedringdep",
    "doublering",
    "gather",
    "scatter",
    "linbarrier",
    "dissemination",
    "random_bisect",
    "random_bisect_fd_sym",
    "linear_alltoall",
    "linear_alltoallv",
    "allreduce_recdoub",
    "allreduce_ring",
    "resnet",
];

/// The rank under way.
struct Rank {
    builder: Builder,
    tag: u32,
}

type Made<T = ()> = Result<T, BuildError>;

impl Rank {
    fn message(&mut self, kind: Kind, size: u64, peer: u32) -> Made<u32> {
        self.builder.add(Operation { kind, size, peer, tag: self.tag, cpu: 0, nic: 0 })
    }

    fn send(&mut self, bytes: u64, to: u32) -> Made<u32> {
        self.message(Kind::Send, bytes, to)
    }

    fn recv(&mut self, bytes: u64, from: u32) -> Made<u32> {
        self.message(Kind::Recv, bytes, from)
    }

    fn calc(&mut self, ns: u64) -> Made<u32> {
        self.builder.add(Operation { kind: Kind::Calc, size: ns, peer: 0, tag: 0, cpu: 0, nic: 0 })
    }

    fn require(&mut self, operation: u32, on: u32) -> Made {
        self.builder.require(operation, on, false)
    }

    /// `operation` requires `on`, if there are both.
    fn require_if(&mut self, operation: Option<u32>, on: Option<u32>) -> Made {
        match (operation, on) {
            (Some(operation), Some(on)) => self.require(operation, on),
            _ => Ok(()),
        }
    }
}

/// A pattern of the generator on `ranks` ranks; `bytes` is its size of data.
pub(crate) fn pattern(name: &str, ranks: u32, bytes: u64) -> Made<Schedule> {
    let mut r = Rank { builder: Builder::new(ranks), tag: 0 };
    for rank in 0..ranks {
        r.tag = 0;
        match name {
            "binomialtreereduce" => tree(&mut r, rank, ranks, bytes, true)?,
            "binomialtreebcast" => tree(&mut r, rank, ranks, bytes, false)?,
            "binarytreebcast" => binary_tree(&mut r, rank, ranks, bytes)?,
            "nwaydissemination" => n_way(&mut r, rank, ranks, bytes)?,
            "pipelinedring" => pipeline(&mut r, rank, ranks, bytes, false)?,
            "pipelinedringdep" => pipeline(&mut r, rank, ranks, bytes, true)?,
            "doublering" => double_ring(&mut r, rank, ranks, bytes)?,
            "gather" if rank == 0 => (1..ranks).try_for_each(|from| r.recv(bytes, from).map(drop))?,
            "gather" => drop(r.send(bytes, 0)?),
            "scatter" if rank == 0 => (1..ranks).try_for_each(|to| r.send(bytes, to).map(drop))?,
            "scatter" => drop(r.recv(bytes, 0)?),
            "linbarrier" => linear_barrier(&mut r, rank, ranks)?,
            "dissemination" => dissemination(&mut r, rank, ranks, bytes).map(drop)?,
            "random_bisect" => bisect(&mut r, rank, ranks, bytes, false)?,
            "random_bisect_fd_sym" => bisect(&mut r, rank, ranks, bytes, true)?,
            "linear_alltoall" => all_to_all(&mut r, rank, ranks, |_, _| bytes)?,
            "linear_alltoallv" => all_to_all(&mut r, rank, ranks, |from, to| uneven(bytes, from, to))?,
            "allreduce_recdoub" => doubling(&mut r, rank, ranks, bytes)?,
            "allreduce_ring" => ring(&mut r, rank, ranks, bytes)?,
            _ => resnet(&mut r, rank, ranks)?,
        }
        r.builder.next_rank()?;
    }
    r.builder.finish()
}

fn rounds(ranks: u32) -> u32 {
    ranks.next_power_of_two().ilog2()
}

fn tree(r: &mut Rank, rank: u32, ranks: u32, bytes: u64, reduce: bool) -> Made {
    let (mut last_send, mut last_recv) = (None, None);
    for distance in (0..rounds(ranks)).map(|round| 1 << round) {
        if rank + distance < ranks && rank < distance {
            if reduce {
                last_recv = Some(r.recv(bytes, rank + distance)?);
            } else {
                last_send = Some(r.send(bytes, rank + distance)?);
            }
        }
        r.require_if(last_send, last_recv)?;
        if (distance..2 * distance).contains(&rank) {
            if reduce {
                last_send = Some(r.send(bytes, rank - distance)?);
            } else {
                last_recv = Some(r.recv(bytes, rank - distance)?);
            }
        }
    }
    Ok(())
}

fn binary_tree(r: &mut Rank, rank: u32, ranks: u32, bytes: u64) -> Made {
    let recv = if rank > 0 { Some(r.recv(bytes, (rank - 1) / 2)?) } else { None };
    let children = [2 * rank + 1, 2 * rank + 2];
    let sends: Vec<u32> =
        children.into_iter().filter(|&c| c < ranks).map(|c| r.send(bytes, c)).collect::<Made<_>>()?;
    sends.into_iter().try_for_each(|send| r.require_if(Some(send), recv))
}

/// With two partners in each round.
fn n_way(r: &mut Rank, rank: u32, ranks: u32, bytes: u64) -> Made {
    let (mut distance, mut received) = (1, Vec::new());
    while distance < ranks {
        let partner = |w: u32| w * distance % ranks;
        let sent = [1, 2].map(|w| r.send(bytes, (rank + partner(w)) % ranks));
        let [first, second] = sent;
        let (first, second) = (first?, second?);
        if let [recv, other] = received[..] {
            let reduced = r.calc(bytes)?;
            r.require(reduced, other)?;
            r.require(reduced, recv)?;
            let last = r.calc(bytes)?;
            r.require(last, recv)?;
            r.require(second, reduced)?;
            r.require(first, last)?;
            r.require(second, last)?;
        }
        received = [1, 2]
            .into_iter()
            .map(|w| r.recv(bytes, (rank + ranks - partner(w)) % ranks))
            .collect::<Made<_>>()?;
        distance *= 3;
    }
    Ok(())
}

/// In ten segments.
fn pipeline(r: &mut Rank, rank: u32, ranks: u32, bytes: u64, ordered: bool) -> Made {
    let segment = bytes.div_ceil(10);
    let rounds = bytes.div_ceil(segment);
    let mut last_send = None;
    for round in 0..rounds {
        let size = if round + 1 == rounds { bytes - segment * round } else { segment };
        let recv = if rank > 0 { Some(r.recv(size, rank - 1)?) } else { None };
        let send = if rank + 1 < ranks { Some(r.send(size, rank + 1)?) } else { None };
        r.require_if(send, recv)?;
        if ordered {
            r.require_if(recv, last_send)?;
        }
        last_send = send;
    }
    Ok(())
}

fn double_ring(r: &mut Rank, rank: u32, ranks: u32, bytes: u64) -> Made {
    let (next, last) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    for (to, from) in [(next, last), (last, next)] {
        let (send, recv) = (r.send(bytes, to)?, r.recv(bytes, from)?);
        if rank > 0 {
            r.require(send, recv)?;
        }
    }
    Ok(())
}

fn linear_barrier(r: &mut Rank, rank: u32, ranks: u32) -> Made {
    if rank > 0 {
        r.send(1, 0)?;
        return r.recv(1, 0).map(drop);
    }
    let all = r.calc(0)?;
    for other in 1..ranks {
        let (recv, send) = (r.recv(1, other)?, r.send(1, other)?);
        r.require(all, recv)?;
        r.require(send, all)?;
    }
    Ok(())
}

/// Returns the operations that no other requires.
fn dissemination(r: &mut Rank, rank: u32, ranks: u32, bytes: u64) -> Made<Vec<u32>> {
    let (mut ends, mut last_recv) = (Vec::new(), None);
    for distance in (0..rounds(ranks)).map(|round| 1 << round) {
        let send = r.send(bytes, (rank + distance) % ranks)?;
        r.require_if(Some(send), last_recv)?;
        last_recv = Some(r.recv(bytes, (rank + ranks - distance) % ranks)?);
        ends.push(send);
    }
    ends.extend(last_recv);
    Ok(ends)
}

fn bisect(r: &mut Rank, rank: u32, ranks: u32, bytes: u64, both_ways: bool) -> Made {
    // odd, so it permutes powers of two
    let place = |rank: u32| (5 * rank + 3) % ranks;
    let of_place = |place_wanted: u32| (0..ranks).find(|&r| place(r) == place_wanted).unwrap_or(0);
    let half = ranks / 2;
    if place(rank) < half {
        let partner = of_place(place(rank) + half);
        r.send(bytes, partner)?;
        if both_ways {
            r.recv(bytes, partner)?;
        }
    } else {
        let partner = of_place(place(rank) - half);
        r.recv(bytes, partner)?;
        if both_ways {
            r.send(bytes, partner)?;
        }
    }
    Ok(())
}

fn all_to_all(r: &mut Rank, rank: u32, ranks: u32, bytes: impl Fn(u32, u32) -> u64) -> Made {
    for step in 1..ranks {
        let (to, from) = ((rank + step) % ranks, (rank + ranks - step) % ranks);
        r.send(bytes(rank, to), to)?;
        r.recv(bytes(from, rank), from)?;
    }
    Ok(())
}

/// Bytes from one rank to another; rank 0 receives as many from all.
fn uneven(bytes: u64, from: u32, to: u32) -> u64 {
    let mixed = u64::from(from * 131 + to * 7919).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
    if to == 0 { bytes } else { mixed % bytes + 1 }
}

fn doubling(r: &mut Rank, rank: u32, ranks: u32, bytes: u64) -> Made {
    let (mut bytes, mut last_recv) = (bytes, None);
    let rounds = ranks.ilog2();
    let out = (0..rounds).map(|round| (round, true));
    let back = (0..rounds).rev().map(|round| (round, false));
    for (round, halve) in out.chain(back) {
        if halve {
            bytes /= 2;
        }
        let send = r.send(bytes, rank ^ 1 << round)?;
        r.require_if(Some(send), last_recv)?;
        last_recv = Some(r.recv(bytes, rank ^ 1 << round)?);
        if !halve {
            bytes *= 2;
        }
    }
    Ok(())
}

fn ring(r: &mut Rank, rank: u32, ranks: u32, bytes: u64) -> Made {
    let mut last_recv = None;
    for _ in 0..2 * (ranks - 1) {
        let send = r.send(bytes / u64::from(ranks), (rank + 1) % ranks)?;
        r.require_if(Some(send), last_recv)?;
        last_recv = Some(r.recv(bytes / u64::from(ranks), (rank + ranks - 1) % ranks)?);
    }
    Ok(())
}

/// An iteration of training a network, with reductions beside the computing.
fn resnet(r: &mut Rank, rank: u32, ranks: u32) -> Made {
    const GRADIENTS: [u64; 10] = [
        6_511_592, 6_567_936, 5_905_920, 6_113_280, 6_176_256, 6_112_768, 6_176_256, 6_112_768, 5_321_216,
        5_194_816,
    ];
    let forward = r.calc(119_000)?;
    for (number, gradients) in (0..).zip(GRADIENTS) {
        let backward = r.calc(23_800)?;
        r.require(backward, forward)?;
        let ready = r.calc(0)?;
        r.require(ready, backward)?;
        r.tag = 1 << 24 | (100_000 + number);
        for end in dissemination(r, rank, ranks, 4 * gradients)? {
            r.require(end, ready)?;
        }
    }
    Ok(())
}

/// Kinds of random schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Random {
    /// Eager messages, one CPU.
    Eager,
    /// Eager and rendezvous messages, one CPU.
    Rendezvous,
    /// The same on several CPUs and interfaces.
    Cpus,
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) % n
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A random schedule: messages and computing in random order, some of which require others. Some wait for ever.
pub(crate) fn random(kind: Random, seed: u64) -> Made<Schedule> {
    let mut n = Numbers(seed.wrapping_mul(3) + kind as u64);
    let ranks = n.of(&[2u32, 3, 4, 7, 12]);
    let (cpus, nics) = if kind == Random::Cpus { (n.of(&[2, 3]), n.of(&[1, 2])) } else { (1, 1) };
    let sizes: &[u64] = match kind {
        Random::Eager => &[0, 1, 8, 1000, 20_000],
        _ => &[1, 8, 1000, 20_000, 65_536, 100_000, 300_000],
    };
    let mut of_rank = vec![Vec::new(); ranks as usize];
    for number in 0..n.of(&[3, 10, 30, 60]) {
        let from = n.below(ranks.into()) as u32;
        let to = (from + 1 + n.below(u64::from(ranks) - 1) as u32) % ranks;
        let shared = n.below(5) == 0;
        let (tag, size) = if shared { (5000, 1000) } else { (number, n.of(sizes)) };
        let mut place = |kind, rank: u32, peer, n: &mut Numbers| {
            let (cpu, nic) = (n.below(cpus) as u8, n.below(nics) as u8);
            let all: &mut Vec<Operation> = &mut of_rank[rank as usize];
            let at = n.below(all.len() as u64 + 1) as usize;
            all.insert(at, Operation { kind, size, peer, tag, cpu, nic });
        };
        place(Kind::Send, from, to, &mut n);
        place(Kind::Recv, to, from, &mut n);
        if n.below(2) == 0 {
            let (rank, size) = (n.below(ranks.into()) as usize, n.of(&[0, 1, 500, 10_000, 80_000]));
            let cpu = n.below(cpus) as u8;
            of_rank[rank].push(Operation { kind: Kind::Calc, size, peer: 0, tag: 0, cpu, nic: 0 });
        }
    }
    let often = n.of(&[0, 3, 8]);
    let mut builder = Builder::new(ranks);
    for operations in of_rank {
        for &o in &operations {
            let number = builder.add(o)?;
            for _ in 0..n.below(3) {
                if number == 0 || n.below(10) >= often {
                    continue;
                }
                let on = number - 1 - n.below(number.min(4).into()) as u32;
                // a send that waits for a receive waits for ever when the other side does the same
                let may =
                    o.kind == Kind::Recv || operations[on as usize].kind != Kind::Recv || n.below(3) == 0;
                if may {
                    builder.require(number, on, n.below(3) == 0)?;
                }
            }
        }
        builder.next_rank()?;
    }
    builder.finish()
}
