// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop of a PE: take what has arrived, run what is ready, wait when there is nothing.

use std::time::{Duration, Instant};

use crate::core::{Core, Failure};
use crate::parcel::{Parcel, System};

/// Entry methods between two looks at the network.
const TURN: u32 = 64;
/// Looks at the network in a row, by a PE that has nothing to do.
const BRISK: u32 = 8;
/// Looks at the network that find nothing before the CPU is offered to others.
const SPINS: u32 = 200;
/// The same, before the thread sleeps.
const YIELDS: u32 = 2000;
/// The longest sleep.
const SLEEP: Duration = Duration::from_millis(1);
/// A program that has been idle for so long may hang.
const HANG: Duration = Duration::from_secs(1);

/// The state of an idle PE.
struct Idle {
    looks: u32,
    since: Option<Instant>,
    probed: Option<Instant>,
    stole: Option<Instant>,
}

/// Runs a PE until the program ends or fails. `early` frames have arrived before.
pub(crate) fn run(core: &mut Core, mut early: Vec<(u32, Vec<u8>)>) {
    let mut idle = Idle { looks: 0, since: None, probed: None, stole: None };
    if core.is_repeating() {
        repeat(core, &mut early);
    }
    // a PE that was stopped while it ran again has not come to what the frames need
    if !core.has_lost {
        for (from, frame) in early {
            core.take_frame(from, &frame);
        }
    }
    while goes_on(core) && !core.has_lost {
        let begin = core.track.begin_pass();
        let arrived = look(core, &mut idle);
        let due = core.run_timers();
        let ran = run_ready(core);
        core.check_signals();
        move_objects(core);
        flush(core);
        core.capture_if_due();
        if ran > 0 || arrived {
            idle.looks = 0;
            idle.since = None;
        } else {
            rest(core, &mut idle, due);
            core.track.idle(begin);
        }
        core.end_pass(ran > 0);
    }
    if !core.has_lost {
        flush(core);
    }
}

fn goes_on(core: &Core) -> bool {
    core.exit.is_none() && core.failure.is_none()
}

/// Runs what is ready, up to the next look at the network.
#[inline]
fn run_ready(core: &mut Core) -> u32 {
    core.load.lap();
    let mut ran = 0;
    while ran < TURN && core.run_one() {
        ran += 1;
        if !goes_on(core) {
            break;
        }
    }
    if !core.section_parts.is_empty() {
        core.pass_sections();
    }
    ran
}

/// Objects leave an evacuated PE, and load balancing goes on.
#[inline]
fn move_objects(core: &mut Core) {
    if core.evacuation.is_due {
        core.evacuate_step();
    }
    if core.balancer.sync.is_changed && core.failure.is_none() {
        core.balance_step();
    }
}

/// Runs again what the PE ran before its process died, pass by pass. Nothing is sent meanwhile, and frames wait in `early`.
fn repeat(core: &mut Core, early: &mut Vec<(u32, Vec<u8>)>) {
    while goes_on(core) && !core.has_lost && core.is_behind() {
        core.poll_into(early);
        core.repeat_arrivals();
        let ran = run_ready(core);
        core.repeat_signal();
        move_objects(core);
        flush(core);
        core.repeat_end_of_pass(ran > 0);
    }
    if goes_on(core) && !core.has_lost {
        core.end_repeat();
    }
}

/// Looks at the network: once, or several times if there is nothing else to do. What arrives is found at once so.
#[inline]
fn look(core: &mut Core, idle: &mut Idle) -> bool {
    if idle.looks == 0 || idle.looks >= SPINS || core.port.inbox.is_some() {
        return core.poll();
    }
    for _ in 0..BRISK {
        if core.poll() {
            return true;
        }
        idle.looks += 1;
    }
    false
}

/// Sends all frames, unless the PE has failed: the others are told to end.
fn flush(core: &mut Core) {
    if core.failure.is_some() {
        return;
    }
    if let Err(error) = core.port.flush() {
        core.fail(error.into());
    }
}

/// There is nothing to do.
fn rest(core: &mut Core, idle: &mut Idle, due: Option<Instant>) {
    idle.looks += 1;
    if idle.looks <= SPINS {
        // a look at a network takes longer than a pause
        if core.port.inbox.is_some() {
            std::hint::spin_loop();
        }
        return;
    }
    if idle.looks == YIELDS {
        core.trim_queue();
    }
    let now = Instant::now();
    let since = *idle.since.get_or_insert(now);
    if core.pe() == 0 {
        look_for_quiescence(core, idle, now, since);
    }
    if core.steals && core.port.threads > 1 && !core.evacuation.is_away() {
        steal(core, idle, now);
    }
    if idle.looks <= YIELDS {
        return std::thread::yield_now();
    }
    let limit = due.map_or(SLEEP, |due| due.saturating_duration_since(now).min(SLEEP));
    let mail = core.port.wait(limit);
    core.load.resume();
    match mail {
        Ok(Some(mail)) => core.take_mail(mail),
        Ok(None) => {}
        Err(error) => core.fail(error.into()),
    }
}

/// PE 0 asks for quiescence at once if an object or a checkpoint waits for it, and after a second to find a program that hangs.
fn look_for_quiescence(core: &mut Core, idle: &mut Idle, now: Instant, since: Instant) {
    let wanted = !core.quiescence.callbacks.is_empty() || core.checkpoints.awaits_quiet();
    let interval = if wanted { Duration::from_micros(50) } else { HANG / 4 };
    if !wanted && now.duration_since(since) < HANG {
        return;
    }
    if idle.probed.is_none_or(|at| now.duration_since(at) >= interval) {
        idle.probed = Some(now);
        core.note_probe();
        core.probe();
        flush(core);
    }
}

/// Asks another PE of the process for objects, each in turn.
fn steal(core: &mut Core, idle: &mut Idle, now: Instant) {
    if idle.stole.is_some_and(|at| now.duration_since(at) < Duration::from_micros(100)) {
        return;
    }
    idle.stole = Some(now);
    let (pe, threads) = (core.pe(), core.port.threads);
    let first = pe - pe % threads;
    let turn = 1 + core.counts.steals as u32 % (threads - 1);
    core.counts.steals += 1;
    let victim = first + (pe - first + turn) % threads;
    core.post(victim, Parcel::System(System::Steal { thief: pe }));
}

/// Passes on frames between the transport and the PEs of a process, until all of them have ended. `early` frames have
/// arrived before.
pub(crate) fn run_transport(
    transport: &mut dyn crate::transport::Transport,
    early: Vec<(u32, Vec<u8>)>,
    frames: &std::sync::mpsc::Receiver<(u32, Vec<u8>)>,
    siblings: &[std::sync::mpsc::Sender<crate::port::Mail>],
) -> Result<(), Failure> {
    use std::sync::mpsc::{RecvTimeoutError, TryRecvError};
    for (from, frame) in early {
        pass_on(&frame, siblings).map_err(|error| Failure::Program(format!("rank {from} sent {error}")))?;
    }
    let mut looks = 0;
    loop {
        let mut any = false;
        loop {
            match frames.try_recv() {
                Ok((to, mut frame)) => {
                    any = true;
                    transport.send(to, &mut frame)?;
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(()),
            }
        }
        let mut failure = None;
        any |= transport.poll(&mut |from, frame| {
            if let Err(error) = pass_on(frame, siblings) {
                failure = Some(Failure::Program(format!("rank {from} sent {error}")));
            }
        })?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        if transport.is_to_leave()
            && let Some(first) = siblings.first()
        {
            let _ = first.send(crate::port::Mail::Parcel(Parcel::System(System::LeaveSoon)));
        }
        looks = if any { 0 } else { looks + 1 };
        if looks > YIELDS {
            match frames.recv_timeout(Duration::from_micros(100)) {
                Ok((to, mut frame)) => transport.send(to, &mut frame)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        } else if looks > SPINS {
            std::thread::yield_now();
        }
    }
}

/// Gives the parcels of a frame to their PEs.
fn pass_on(
    mut frame: &[u8],
    siblings: &[std::sync::mpsc::Sender<crate::port::Mail>],
) -> Result<(), crate::message::Malformed> {
    while !frame.is_empty() {
        let (local, encoded, rest) = crate::parcel::split(frame)?;
        if let Some(sibling) = siblings.get(local as usize) {
            let _ = sibling.send(crate::port::Mail::Encoded(encoded.kind, encoded.bytes.to_vec()));
        }
        frame = rest;
    }
    Ok(())
}
