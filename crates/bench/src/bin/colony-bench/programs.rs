//! The programs: which operation on which communicator.

use std::time::Duration;

use colony_bench::{Measurement, Program, WorkRecord};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator, CommunicatorCollectives};

use crate::measure::Context;
use crate::operation::{Allreduce, Alltoall, Barrier, Bsp, MyAllreduce, Ring};
use crate::work::Work;

/// Runs the program; one measurement for each communicator, `None` where this rank was not in it.
pub(crate) fn run(context: &Context, world: &SimpleCommunicator) -> Result<Vec<Option<Measurement>>, String> {
    let bytes = context.params.bytes;
    let one = match context.params.program {
        Program::Glob => return glob(context, world),
        Program::Bsp => bsp(context, world),
        Program::Barrier => context.measure(world, &mut Barrier(world)),
        Program::Allreduce => context.measure(world, &mut Allreduce::new(world, bytes)),
        Program::Myallreduce => context.measure(world, &mut MyAllreduce::new(world, bytes)),
        Program::Alltoall => context.measure(world, &mut Alltoall::new(world, bytes)),
        Program::Ring => context.measure(world, &mut Ring::new(world, bytes)),
    };
    Ok(vec![Some(one?)])
}

fn bsp(context: &Context, world: &SimpleCommunicator) -> Result<Measurement, String> {
    let work = Work::of(context.params.work_ns, &context.calibration, world);
    let measurement = context.measure(world, &mut Bsp { comm: world, work })?;
    let record = WorkRecord { loops: work.loops, turn_ns: work.turn_ns, slowdown: 0.0 };
    Ok(Measurement { work: Some(record), ..measurement })
}

/// "The node counts cover the powers of two from two to the maximum" (Colony Linux kernel technical
/// report, 3.1.3): the first ranks work, the others wait.
fn glob(context: &Context, world: &SimpleCommunicator) -> Result<Vec<Option<Measurement>>, String> {
    let mut found = Vec::new();
    for size in (1..31).map(|power| 1 << power).take_while(|&size| size <= world.size()) {
        let color = if world.rank() < size { Color::with_value(0) } else { Color::undefined() };
        let part = world.split_by_color(color);
        let measured =
            part.map(|comm| context.measure(&comm, &mut Allreduce::new(&comm, context.params.bytes)));
        wait_for_all(world);
        found.push(measured.transpose()?);
    }
    Ok(found)
}

/// A barrier that leaves the processor to others while it waits.
fn wait_for_all(world: &SimpleCommunicator) {
    let mut request = world.immediate_barrier();
    while let Err(pending) = request.test() {
        request = pending;
        std::thread::sleep(Duration::from_millis(1));
    }
}
