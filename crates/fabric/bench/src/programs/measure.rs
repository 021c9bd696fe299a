// SPDX-License-Identifier: MIT OR Apache-2.0
//! The timed loop.

use colony_comm::{Comm, Op};
use colony_time::tsc::{ClockMap, Counter, CounterKind, Tsc, Vdso};

use super::detour::{self, Timer};
use super::{Operation, Session};
use crate::{DetourRecord, Measurement, Pace, RankRecord, Recorder};

/// Measures `op` on `comm`; all its ranks do.
pub(super) fn measure<C: Comm>(
    session: &Session,
    comm: &C,
    op: &mut impl Operation<C>,
) -> Result<Measurement, String> {
    let start = |d| Timer::start(d, session.params.seed, session.rank, &session.calibration);
    let timer = session.params.detours.as_ref().map(start).transpose()?;
    let measurement = match session.calibration.kind {
        CounterKind::Tsc => stretches::<C, Tsc>(session, comm, op),
        CounterKind::Vdso => stretches::<C, Vdso>(session, comm, op),
    }
    .map_err(|e| e.to_string())?;
    Ok(signed(session, measurement, timer.map(Timer::stop)))
}

fn stretches<C: Comm, R: Counter>(
    session: &Session,
    comm: &C,
    op: &mut impl Operation<C>,
) -> Result<Measurement, C::Error> {
    for _ in 0..session.params.warmup {
        op.once()?;
    }
    let mut recorder = Recorder::new(&session.params, ClockMap::new(session.calibration));
    let mut pace = Pace::new(&session.params);
    // not zeros: those would be the kernel's one zero page until first written
    let mut stamps = vec![1; Pace::MOST];
    let mut wrong = 0;
    loop {
        let next = pace.next(recorder.elapsed_s(R::read()), recorder.timed_s());
        let stamps = &mut stamps[..agreed(comm, next)?];
        if stamps.is_empty() {
            break;
        }
        detour::timing(true);
        let start = stretch::<C, R>(op, stamps);
        detour::timing(false);
        recorder.stretch(start?, stamps);
        wrong += u64::from(!op.is_right());
    }
    let measurement = recorder.finish(session.rank, comm.size());
    Ok(Measurement { wrong, ..measurement })
}

fn signed(session: &Session, mut m: Measurement, detours: Option<DetourRecord>) -> Measurement {
    m.per_rank.push(RankRecord {
        rank: session.rank,
        host: session.host.clone(),
        cpu: nix::sched::sched_getcpu().unwrap_or(usize::MAX),
        seconds: m.seconds,
        mean_ns: m.all.mean_ns,
        max_ns: m.all.max_ns,
        detours,
    });
    m
}

/// Rank 0's `next`, at every rank; none goes on before all are here.
///
/// # Errors
/// Errors of the network.
pub fn agreed<C: Comm>(comm: &C, next: usize) -> Result<usize, C::Error> {
    let mine = if comm.rank() == 0 { next as u64 } else { 0 };
    let mut largest = [0];
    comm.allreduce(&[mine], &mut largest, Op::Max)?;
    Ok(largest[0] as usize)
}

/// Makes as many operations as there are stamps, and stamps the end of each. Gives the start.
///
/// # Errors
/// Errors of the network.
#[inline(never)]
pub fn stretch<C: Comm, R: Counter>(op: &mut impl Operation<C>, stamps: &mut [u64]) -> Result<u64, C::Error> {
    let start = R::read();
    for stamp in stamps {
        op.once()?;
        *stamp = R::read();
    }
    Ok(start)
}
