// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls by their names, and the faults of the messages that they are made of.

use std::fs::File;
use std::io::{BufRead, BufReader};

use super::order::ordinal;
use crate::goal::fault::{BuildError, Fault};

/// Tags of collectives begin here; those of MPI programs are smaller.
pub(super) const COLLECTIVE_TAGS: u32 = 1 << 31;

/// Calls that exchange nothing. Their time is computation.
pub(super) const LOCAL: [&str; 25] = [
    "MPI_Comm_rank",
    "MPI_Comm_size",
    "MPI_Comm_group",
    "MPI_Comm_free",
    "MPI_Comm_set_errhandler",
    "MPI_Group_incl",
    "MPI_Group_excl",
    "MPI_Group_rank",
    "MPI_Group_size",
    "MPI_Group_free",
    "MPI_Group_translate_ranks",
    "MPI_Get_address",
    "MPI_Get_count",
    "MPI_Get_processor_name",
    "MPI_Initialized",
    "MPI_Finalized",
    "MPI_Wtime",
    "MPI_Wtick",
    "MPI_Op_create",
    "MPI_Op_free",
    "MPI_Type_commit",
    "MPI_Type_size",
    "MPI_Type_contiguous",
    "MPI_Type_vector",
    "MPI_Type_free",
];

/// The calls that are read, for an error.
pub(super) const KNOWN: &str = "Send, Ssend, Rsend, Recv, Isend, Irecv, Sendrecv, persistent requests, Wait, Test and their forms for several requests, \
                     Barrier, Bcast, Reduce, Allreduce, Allgather(v), Alltoall(v), Gather(v), Scatter(v), Reduce_scatter, Scan, and \
                     Comm_dup, Comm_create, Comm_split";

/// Collectives: the places of the communicator and of the root among the arguments. An array of counts takes two places.
pub(super) const COLLECTIVES: [(&str, usize, Option<usize>); 17] = [
    ("MPI_Barrier", 0, None),
    ("MPI_Bcast", 4, Some(3)),
    ("MPI_Reduce", 6, Some(5)),
    ("MPI_Allreduce", 5, None),
    ("MPI_Scan", 5, None),
    ("MPI_Allgather", 6, None),
    ("MPI_Alltoall", 6, None),
    ("MPI_Gather", 7, Some(6)),
    ("MPI_Scatter", 7, Some(6)),
    ("MPI_Gatherv", 10, Some(9)),
    ("MPI_Scatterv", 10, Some(9)),
    ("MPI_Allgatherv", 9, None),
    ("MPI_Alltoallv", 12, None),
    ("MPI_Reduce_scatter", 6, None),
    ("MPI_Comm_dup", 0, None),
    ("MPI_Comm_create", 0, None),
    ("MPI_Comm_split", 0, None),
];

/// The fault of a message that a collective was made of, in terms of the call; `None` for a message of the program.
pub(super) fn of_collective(e: &BuildError, file: &str, line: u64) -> Option<String> {
    let (from, to, tag, found) = match e.fault {
        Fault::Sizes { from, to, tag, sent, received } => {
            (from, to, tag, format!("rank {from} sends {sent} bytes to rank {to}, which receives {received}"))
        }
        Fault::Unmatched { from, to, tag, sends, receives } => (
            from,
            to,
            tag,
            format!("rank {from} sends {sends} messages to rank {to}, which receives {receives}"),
        ),
        _ => return None,
    };
    if tag < COLLECTIVE_TAGS {
        return None;
    }
    let other = if e.rank == to { from } else { to };
    let (name, number) = collective_at(file, line)?;
    Some(format!(
        "{name}, the {} collective call of rank {}: {found}; compare the counts of this call in the trace of rank {other}",
        ordinal(number),
        e.rank
    ))
}

/// The name of the collective at a line of a file, and its number among those of the file.
fn collective_at(file: &str, line: u64) -> Option<(String, usize)> {
    let lines = BufReader::new(File::open(file).ok()?).lines().map_while(Result::ok);
    let name = |line: String| Some(line.split(':').next()?.trim().to_owned());
    let names: Vec<Option<String>> = lines.take(line as usize).map(name).collect();
    let is_collective = |name: &&str| COLLECTIVES.iter().any(|c| c.0 == *name);
    let number = names.iter().filter_map(Option::as_deref).filter(is_collective).count();
    Some((names.last()?.clone()?, number))
}
