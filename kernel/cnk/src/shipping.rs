// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the daemon, and its replies.
//!
//! Each CPU has a channel of its own. A thread that waits for a reply looks for some time, for most replies come soon.
//! Then it leaves the CPU to others, and the daemon rings for the reply.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use colony_fship::Request;
use colony_fship::layout::{LOG_AT, LOG_SIZE, POLL};
use colony_fship::message::own;
use colony_fship::ring::{Bell, Refused};
use heapless::String;

use crate::cpu::{count, cpu, obey};
use crate::machine::context::Context;
use crate::machine::{apic, area::area, ops};
use crate::node::{Link, node};
use crate::process::{self, signals};
use crate::{network, time};

/// Times after which [`next_job`] rings again: the first one, and a bound of the last. Each is three times as long as the one
/// before.
const RING_AGAIN_NS: core::ops::Range<u64> = 10_000_000..30_000_000_000;

/// Sends a request and does not wait; its number.
pub fn send(n: usize, call: u32, args: [u64; 6]) -> u32 {
    let seq = cpu(n).seq.load(Relaxed).wrapping_add(1);
    cpu(n).seq.store(seq, Relaxed);
    let request = Request { seq, call, args, reserved: 0 };
    let Link::Bells(device) = &node().link else {
        network::send(n, &request);
        return seq;
    };
    let requests = &node().channels[n].requests;
    loop {
        let pushed = requests.lock().push(request);
        match pushed {
            Ok(mut bell) => {
                if bell == Bell::Silent && node().weak_fences {
                    apic::fence();
                    bell = requests.lock().bell();
                }
                if bell == Bell::Ring {
                    device.ring(n);
                }
                return seq;
            }
            // the daemon is behind with requests that nobody waits for
            Err(Refused::Full) => obey(n),
            Err(Refused::Corrupt) => panic!("the daemon has damaged a ring"),
        }
    }
}

/// Ships a call of the thread on CPU `n`; what the daemon says, if it says so soon and no signal comes. Else the thread
/// leaves the CPU, and its call goes on when the reply has come.
pub fn call_of_thread(n: usize, context: &Context, number: u32, args: [u64; 6]) -> i64 {
    count(&cpu(n).shipped_calls);
    let seq = send(n, number, args);
    if let Some(result) = look(n, seq) {
        return result;
    }
    // what is lost on the way would not be sent again while another thread runs
    network::settle(n);
    cpu(n).open.store(cpu(n).open.load(Relaxed) + 1, Relaxed);
    process::on(n).begin_wait(n, process::Wait::Reply(n, seq), None);
    process::switch::wait(n, context)
}

/// Looks for a reply for some time: as long as nothing else is to be done.
fn look(n: usize, seq: u32) -> Option<i64> {
    stop_listening(n);
    let mut looked = 0;
    loop {
        if let Some(result) = reply(n, Some(seq)) {
            return Some(result);
        }
        looked += 1;
        take_frames(n);
        if looked % LOOKS == 0 {
            obey(n);
            if cpu(n).crowded.load(Relaxed) || signals::waits(n) {
                return None;
            }
        }
        if looked > node().spin {
            return None;
        }
    }
}

/// Takes replies for threads that wait, and the one to request `seq`, if it has come.
fn reply(n: usize, seq: Option<u32>) -> Option<i64> {
    loop {
        let reply = node().channels[n].replies.lock().pop();
        match reply {
            Ok(Some(reply)) if Some(reply.seq) == seq => return Some(reply.result),
            Ok(Some(reply)) => process::on(n).replied(n, reply.seq, reply.result),
            Ok(None) => return None,
            Err(_) => panic!("the daemon has damaged a ring"),
        }
    }
}

/// Does what is to be done for the threads that wait for replies on channel `n`.
pub fn attend(n: usize) {
    take_frames(n);
    if cpu(n).open.load(Relaxed) == 0 {
        return;
    }
    stop_listening(n);
    reply(n, None);
    loop {
        let seq = process::on(n).next_cancelled(n);
        let Some(seq) = seq else { break };
        send(n, own::CANCEL, [u64::from(seq), 0, 0, 0, 0, 0]);
    }
}

fn stop_listening(n: usize) {
    if cpu(n).listens.swap(false, Relaxed) {
        node().channels[n].replies.lock().wake();
    }
}

/// Lets the daemon ring for the next reply on channel `n`, if a thread waits for one.
pub fn listen(n: usize) {
    while cpu(n).open.load(Relaxed) > 0 && !cpu(n).listens.load(Relaxed) {
        if may_sleep(n) {
            cpu(n).listens.store(true, Relaxed);
        } else {
            attend(n);
        }
    }
}

/// Returns `true` if nothing has come on channel `n`, and the daemon rings for what comes next.
fn may_sleep(n: usize) -> bool {
    let replies = &node().channels[n].replies;
    let mut sleeps = replies.lock().may_sleep();
    if sleeps && node().weak_fences {
        apic::fence();
        sleeps = !replies.lock().waiting();
        if !sleeps {
            replies.lock().wake();
        }
    }
    sleeps
}

/// Returns `true` if CPU `n` may halt: nobody has to look for replies, or for frames that are lost.
pub fn may_halt(n: usize) -> bool {
    let polls = node().spin == POLL && cpu(n).open.load(Relaxed) > 0;
    !polls && !network::rest(n)
}

/// Takes the frames that have come, if there are frames.
pub fn take_frames(n: usize) {
    if matches!(node().link, Link::Frames) {
        network::pump(n);
    }
}

/// Waits until the daemon has taken what CPU `n` has sent, but not for ever. Frames that nobody waits for have come.
pub fn drain(n: usize) {
    const LONG_NS: u64 = 100_000_000;
    let requests = &node().channels[n].requests;
    let start = time::monotonic_ns();
    while !requests.lock().drained() && time::monotonic_ns().saturating_sub(start) < LONG_NS {
        core::hint::spin_loop();
    }
}

/// Looks so often between two looks at anything else.
const LOOKS: u64 = 64;

/// Asks for a job on CPU `n`, while no program runs; what the daemon says when there is one.
///
/// The daemon is rung again, ever more rarely: an emulator that has just started may not know the daemon's bell yet, and
/// loses the first ringing.
pub fn next_job(n: usize, args: [u64; 6]) -> i64 {
    count(&cpu(n).shipped_calls);
    let seq = send(n, own::NEXT_JOB, args);
    let mut looked = 0;
    let mut ring_again = Some(RING_AGAIN_NS.start);
    stop_listening(n);
    loop {
        if let Some(result) = reply(n, Some(seq)) {
            apic::alarm_off();
            return result;
        }
        looked += 1;
        count(&area(n).pulses);
        take_frames(n);
        // what is lost on the way would not be sent again by one who sleeps
        if looked <= node().spin || network::rest(n) || !may_sleep(n) {
            continue;
        }
        match ring_again {
            Some(ns) => apic::alarm_in(ns),
            None => apic::alarm_off(),
        }
        ops::halt();
        if let Some(ns) = ring_again {
            if let Link::Bells(device) = &node().link {
                device.ring(n);
            }
            ring_again = Some(ns * 3).filter(|ns| RING_AGAIN_NS.contains(ns));
        }
        node().channels[n].replies.lock().wake();
    }
}

/// Offset of the next line of the log.
static LOG_OFFSET: AtomicU32 = AtomicU32::new(0);

/// Sends a line to the daemon's log; what is too long is cut.
pub fn log(n: usize, text: core::fmt::Arguments<'_>) {
    let mut line = String::<160>::new();
    let _ = line.write_fmt(text);
    let length = line.len() as u64;
    let mut offset = u64::from(LOG_OFFSET.load(Relaxed));
    if offset + length > LOG_SIZE {
        offset = 0;
    }
    node().window.put(LOG_AT + offset, line.as_bytes());
    LOG_OFFSET.store((offset + length) as u32, Relaxed);
    send(n, own::LOG, [offset, length, 0, 0, 0, 0]);
}
