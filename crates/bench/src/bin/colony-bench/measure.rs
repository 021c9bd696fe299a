//! The timed loop.

use colony_bench::{DetourRecord, Measurement, Pace, Params, RankRecord, Recorder};
use colony_time::tsc::{Calibration, ClockMap, Counter, CounterKind, Tsc, Vdso};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, CommunicatorCollectives};

use crate::detour::{self, Timer};
use crate::operation::Operation;

/// What every measurement of this process shares.
pub(crate) struct Context {
    pub(crate) params: Params,
    pub(crate) calibration: Calibration,
    /// Rank in the world.
    rank: u32,
    host: String,
}

impl Context {
    pub(crate) fn new(params: Params, world: &SimpleCommunicator) -> Result<Self, String> {
        let host = mpi::environment::processor_name().map_err(|e| format!("asking MPI for the node: {e}"))?;
        Ok(Self { params, calibration: Calibration::measure(), rank: world.rank() as u32, host })
    }

    /// Measures `op` on `comm`; all its ranks do.
    pub(crate) fn measure(
        &self,
        comm: &SimpleCommunicator,
        op: &mut impl Operation,
    ) -> Result<Measurement, String> {
        let start = |d| Timer::start(d, self.params.seed, self.rank, &self.calibration);
        let timer = self.params.detours.as_ref().map(start).transpose()?;
        let measurement = match self.calibration.kind {
            CounterKind::Tsc => self.stretches::<Tsc>(comm, op),
            CounterKind::Vdso => self.stretches::<Vdso>(comm, op),
        };
        Ok(self.signed(measurement, timer.map(Timer::stop)))
    }

    fn stretches<C: Counter>(&self, comm: &SimpleCommunicator, op: &mut impl Operation) -> Measurement {
        (0..self.params.warmup).for_each(|_| op.once());
        let mut recorder = Recorder::new(&self.params, ClockMap::new(self.calibration));
        let mut pace = Pace::new(&self.params);
        // not zeros: those would be the kernel's one zero page until first written
        let mut stamps = vec![1; Pace::MOST];
        let mut wrong = 0;
        loop {
            let next = pace.next(recorder.elapsed_s(C::read()), recorder.timed_s());
            let stamps = &mut stamps[..agreed(comm, next)];
            if stamps.is_empty() {
                break;
            }
            detour::timing(true);
            let start = stretch::<C>(op, stamps);
            detour::timing(false);
            recorder.stretch(start, stamps);
            wrong += u64::from(!op.is_right());
        }
        let measurement = recorder.finish(self.rank, comm.size() as u32);
        Measurement { wrong, ..measurement }
    }

    fn signed(&self, mut m: Measurement, detours: Option<DetourRecord>) -> Measurement {
        m.per_rank.push(RankRecord {
            rank: self.rank,
            host: self.host.clone(),
            cpu: nix::sched::sched_getcpu().unwrap_or(usize::MAX),
            seconds: m.seconds,
            mean_us: m.all.mean_us,
            max_us: m.all.max_us,
            detours,
        });
        m
    }
}

/// Rank 0's `next`, at every rank; none goes on before all are here.
pub(crate) fn agreed(comm: &SimpleCommunicator, next: usize) -> usize {
    let mine = if comm.rank() == 0 { next as u64 } else { 0 };
    // the crate `mpi` does not compare the two types: an integer of another size would be overrun
    let mut of_root: u64 = 0;
    comm.all_reduce_into(&mine, &mut of_root, SystemOperation::max());
    of_root as usize
}

/// Makes as many operations as there are stamps, and stamps the end of each. Gives the start.
#[inline(never)]
pub(crate) fn stretch<C: Counter>(op: &mut impl Operation, stamps: &mut [u64]) -> u64 {
    let start = C::read();
    for stamp in stamps {
        op.once();
        *stamp = C::read();
    }
    start
}
