// SPDX-License-Identifier: MIT OR Apache-2.0
//! From all ranks to rank 0, merged on the way in a binomial tree: no rank ever holds them all.

use colony_comm::Comm;

use crate::Measurement;

/// The measurements of all ranks, at rank 0; `None` elsewhere.
pub(crate) fn to_root(
    world: &impl Comm,
    mut mine: Vec<Option<Measurement>>,
    keep: usize,
) -> Result<Option<Vec<Measurement>>, String> {
    let (rank, size) = (world.rank(), world.size());
    let mut step = 1;
    while step < size {
        if rank % (2 * step) == step {
            let bytes = serde_json::to_vec(&mine)
                .map_err(|e| format!("rank {rank} cannot write its measurements: {e}"))?;
            let to = rank - step;
            world.send(to, &bytes).map_err(|e| format!("rank {rank} cannot send its measurements: {e}"))?;
            return Ok(None);
        }
        if rank + step < size {
            let from = rank + step;
            let bytes = world.recv_vec(from).map_err(|e| format!("the measurements of rank {from}: {e}"))?;
            let theirs: Vec<Option<Measurement>> = serde_json::from_slice(&bytes).map_err(|e| {
                format!("rank {rank} cannot read the measurements of rank {}: {e}", rank + step)
            })?;
            mine = merged(mine, theirs, keep);
        }
        step *= 2;
    }
    Ok(Some(mine.into_iter().flatten().collect()))
}

fn merged(
    mine: Vec<Option<Measurement>>,
    theirs: Vec<Option<Measurement>>,
    keep: usize,
) -> Vec<Option<Measurement>> {
    let pair = |(mine, theirs): (Option<Measurement>, Option<Measurement>)| match (mine, theirs) {
        (Some(mine), Some(theirs)) => Some(mine.merged(theirs, keep)),
        (mine, theirs) => mine.or(theirs),
    };
    mine.into_iter().zip(theirs).map(pair).collect()
}
