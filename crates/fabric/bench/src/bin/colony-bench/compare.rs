// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same allreduce loop in Rust and in C, in alternating blocks of one run.

use std::os::raw::c_int;

use colony_bench::programs::{Allreduce, Session, agreed, stretch};
use colony_bench::{Comparison, Pace};
use colony_comm::mpi::{MPI_Comm, MpiComm, MpiError};
use colony_time::tsc::{CounterKind, Tsc, Vdso};

unsafe extern "C" {
    fn colony_c_allreduce(
        send: *const f64,
        recv: *mut f64,
        count: c_int,
        comm: MPI_Comm,
        vdso: c_int,
        stamps: *mut u64,
        ops: usize,
    ) -> u64;
}

/// A loop to compare.
#[derive(Clone, Copy)]
enum Loop {
    Rust,
    C { stamps: bool },
}

const LOOPS: [Loop; 3] = [Loop::Rust, Loop::C { stamps: true }, Loop::C { stamps: false }];

/// Runs the comparison if it was asked for; all ranks do.
pub(crate) fn run(session: &Session, world: &MpiComm) -> Result<Option<Comparison>, MpiError> {
    let (params, calibration) = (session.params(), *session.calibration());
    let (blocks, ops) = (params.compare_blocks as usize, params.compare_ops.max(1));
    if blocks == 0 {
        return Ok(None);
    }
    let mut op = Allreduce::new(world, params.bytes);
    let mut stamps = vec![1; Pace::MOST];
    let mut mean_ns = |which: Loop| {
        let mut left = ops as usize;
        let mut counts = 0;
        while left > 0 {
            let n = agreed(world, left.min(Pace::MOST))?;
            counts += once(which, &mut op, world, calibration.kind, &mut stamps[..n])?;
            left -= n;
        }
        Ok(calibration.to_ns(counts) / ops as f64)
    };
    // one round to warm up
    for which in LOOPS {
        mean_ns(which)?;
    }
    let mut blocks_ns = vec![[0.0; 3]; blocks];
    for (block, row) in blocks_ns.iter_mut().enumerate() {
        // each loop is first, second and third equally often
        for place in 0..LOOPS.len() {
            let which = (block + place) % LOOPS.len();
            row[which] = mean_ns(LOOPS[which])?;
        }
    }
    Ok(Some(Comparison::new(ops, blocks_ns)))
}

/// Makes as many operations as there are stamps, and returns the counts that they took.
fn once(
    which: Loop,
    op: &mut Allreduce<'_, MpiComm>,
    world: &MpiComm,
    kind: CounterKind,
    stamps: &mut [u64],
) -> Result<u64, MpiError> {
    let Loop::C { stamps: stamped } = which else {
        let start = match kind {
            CounterKind::Tsc => stretch::<MpiComm, Tsc>(op, stamps),
            CounterKind::Vdso => stretch::<MpiComm, Vdso>(op, stamps),
        }?;
        return Ok(stamps.last().map_or(0, |end| end.saturating_sub(start)));
    };
    let to = if stamped { stamps.as_mut_ptr() } else { std::ptr::null_mut() };
    // SAFETY: the buffers hold as many doubles as said and, where not null, `to` as many stamps; the
    // communicator lives.
    Ok(unsafe {
        colony_c_allreduce(
            op.send.as_ptr(),
            op.recv.as_mut_ptr(),
            op.send.len() as c_int,
            world.as_raw(),
            c_int::from(kind == CounterKind::Vdso),
            to,
            stamps.len(),
        )
    })
}
