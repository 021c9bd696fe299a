// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives that the level engine does not have, as messages of one rank. Ranks count from the root where there is one.

use crate::goal::fault::BuildError;
use crate::goal::lower::Writer;
use crate::goal::schedule::Kind;

type Done = Result<(), BuildError>;

/// A binomial tree to rank 0: a rank receives from those below it, the nearest first, and sends to the one above it. `bytes` is the size of the
/// message of a subtree of so many ranks.
pub(super) fn to_root(writer: &mut Writer, ranks: u32, bytes: impl Fn(u32) -> u64) -> Done {
    writer.tag += 1;
    let (rank, tag) = (writer.rank, writer.tag);
    let mut bit = 1;
    while bit < ranks && rank & bit == 0 {
        let below = rank | bit;
        if below < ranks {
            writer.add(Kind::Recv, bytes(bit.min(ranks - below)), below, tag)?;
        }
        bit <<= 1;
    }
    if rank > 0 {
        writer.add(Kind::Send, bytes(bit.min(ranks - rank)), rank & !bit, tag)?;
    }
    Ok(())
}

/// The same tree from rank 0: a rank receives from the one above it, and sends to those below it, the farthest first.
pub(super) fn from_root(writer: &mut Writer, ranks: u32, bytes: impl Fn(u32) -> u64) -> Done {
    writer.tag += 1;
    let (rank, tag) = (writer.rank, writer.tag);
    let mut bit = 1;
    while bit < ranks && rank & bit == 0 {
        bit <<= 1;
    }
    if rank > 0 {
        writer.add(Kind::Recv, bytes(bit.min(ranks - rank)), rank & !bit, tag)?;
    }
    while bit > 1 {
        bit >>= 1;
        let below = rank | bit;
        if below < ranks {
            writer.add(Kind::Send, bytes(bit.min(ranks - below)), below, tag)?;
        }
    }
    Ok(())
}

/// Each rank sends to `root`, which receives in the order of the ranks; `bytes` is the size of the message of a rank.
pub(super) fn each_to(writer: &mut Writer, ranks: u32, root: u32, bytes: impl Fn(u32) -> u64) -> Done {
    writer.tag += 1;
    let (rank, tag) = (writer.rank, writer.tag);
    if rank != root {
        return writer.add(Kind::Send, bytes(rank), root, tag).map(|_| ());
    }
    (0..ranks)
        .filter(|from| *from != root)
        .try_for_each(|from| writer.add(Kind::Recv, bytes(from), from, tag).map(|_| ()))
}

/// `root` sends to each rank, in the order of the ranks.
pub(super) fn each_from(writer: &mut Writer, ranks: u32, root: u32, bytes: impl Fn(u32) -> u64) -> Done {
    writer.tag += 1;
    let (rank, tag) = (writer.rank, writer.tag);
    if rank != root {
        return writer.add(Kind::Recv, bytes(rank), root, tag).map(|_| ());
    }
    (0..ranks)
        .filter(|to| *to != root)
        .try_for_each(|to| writer.add(Kind::Send, bytes(to), to, tag).map(|_| ()))
}

/// In each round, all ranks send one message and receive one: to the rank `step` above, from the rank `step` below.
pub(super) fn shifts(
    writer: &mut Writer,
    ranks: u32,
    sent: impl Fn(u32) -> u64,
    received: impl Fn(u32) -> u64,
) -> Done {
    let rank = writer.rank;
    (1..ranks).try_for_each(|step| {
        let (to, from) = ((rank + step) % ranks, (rank + ranks - step) % ranks);
        exchange(writer, Some((to, sent(to))), Some((from, received(from))))
    })
}

/// Blocks of all ranks go around a ring; `bytes` is the size of the block of a rank.
pub(super) fn ring(writer: &mut Writer, ranks: u32, bytes: impl Fn(u32) -> u64) -> Done {
    let rank = writer.rank;
    let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
    (0..ranks - 1).try_for_each(|step| {
        let (sent, received) = ((rank + ranks - step) % ranks, (from + ranks - step) % ranks);
        exchange(writer, Some((to, bytes(sent))), Some((from, bytes(received))))
    })
}

/// The sum of all ranks up to each: in each round, a rank sends to the rank that is twice as far above as in the round before.
pub(super) fn scan(writer: &mut Writer, ranks: u32, bytes: u64) -> Done {
    let rank = writer.rank;
    let mut step = 1;
    while step < ranks {
        let to = Some(rank + step).filter(|to| *to < ranks);
        exchange(writer, to.map(|to| (to, bytes)), rank.checked_sub(step).map(|from| (from, bytes)))?;
        step = step.saturating_mul(2);
    }
    Ok(())
}

/// Sends and receives at once: rank and bytes of each message.
fn exchange(writer: &mut Writer, to: Option<(u32, u64)>, from: Option<(u32, u64)>) -> Done {
    writer.tag += 1;
    let tag = writer.tag;
    let before = writer.after.clone();
    if let Some((to, bytes)) = to {
        writer.add(Kind::Send, bytes, to, tag)?;
    }
    if let Some((from, bytes)) = from {
        let mut both = std::mem::replace(&mut writer.after, before);
        writer.add(Kind::Recv, bytes, from, tag)?;
        if to.is_some() {
            both.append(&mut writer.after);
            writer.after = both;
        }
    }
    Ok(())
}
