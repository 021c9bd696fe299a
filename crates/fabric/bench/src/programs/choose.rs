// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs: which operation on which communicator.

use colony_comm::Comm;

use super::Session;
use super::measure::measure;
use super::operation::{Allreduce, Alltoall, Barrier, Bsp, MyAllreduce, Ring};
use super::work::Work;
use crate::{Measurement, Program, WorkRecord};

/// Runs the program; one measurement for each communicator, `None` where this rank was not in it.
pub(crate) fn run(session: &Session, world: &impl Comm) -> Result<Vec<Option<Measurement>>, String> {
    let bytes = session.params.bytes;
    let one = match session.params.program {
        Program::Glob => return glob(session, world),
        Program::Bsp => bsp(session, world),
        Program::Barrier => measure(session, world, &mut Barrier(world)),
        Program::Allreduce => measure(session, world, &mut Allreduce::new(world, bytes)),
        Program::Myallreduce => measure(session, world, &mut MyAllreduce::new(world, bytes)),
        Program::Alltoall => measure(session, world, &mut Alltoall::new(world, bytes)),
        Program::Ring => measure(session, world, &mut Ring::new(world, bytes)),
    };
    Ok(vec![Some(one?)])
}

fn bsp(session: &Session, world: &impl Comm) -> Result<Measurement, String> {
    let work = Work::of(session.params.work_ns, &session.calibration, world).map_err(|e| e.to_string())?;
    let measurement = measure(session, world, &mut Bsp { comm: world, work })?;
    let record = WorkRecord { loops: work.loops, turn_ns: work.turn_ns, slowdown: 0.0 };
    Ok(Measurement { work: Some(record), ..measurement })
}

/// "The node counts cover the powers of two from two to the maximum" (Colony Linux kernel technical
/// report, 3.1.3): the first ranks work, the others wait.
fn glob(session: &Session, world: &impl Comm) -> Result<Vec<Option<Measurement>>, String> {
    let mut found = Vec::new();
    for size in (1..31).map(|power| 1 << power).take_while(|&size| size <= world.size()) {
        let part = world.first_ranks(size).map_err(|e| e.to_string())?;
        let measured =
            part.map(|comm| measure(session, &comm, &mut Allreduce::new(&comm, session.params.bytes)));
        world.wait_for_all().map_err(|e| e.to_string())?;
        found.push(measured.transpose()?);
    }
    Ok(found)
}
