// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests to the daemon, and its replies.
//!
//! Each CPU has a channel of its own. While it waits for a reply it looks for some time, for most replies come soon,
//! and then halts until the daemon rings.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use colony_fship::Request;
use colony_fship::layout::{LOG_SIZE, POLL};
use colony_fship::message::own;
use colony_fship::ring::{Bell, Refused};

use crate::cpu::{count, cpu, obey};
use crate::machine::{apic, ops};
use crate::node::{Link, node};
use crate::process::signals;
use crate::{network, time};

/// The kind of wait for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A signal ends it: the call is taken back.
    Interruptible,
    /// No signal ends it: the reply comes soon, or nothing else can be done.
    Uninterruptible,
    /// The same, and the daemon is rung again, ever more rarely. An emulator that has just started may not know the
    /// daemon's bell yet, and loses the first ringing. No program runs meanwhile.
    RingAgain,
}

/// Times after which [`Wait::RingAgain`] rings again: the first one, and a bound of the last. Each is three times as long as
/// the one before.
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

/// Ships a call; what the daemon says.
pub fn call(n: usize, number: u32, args: [u64; 6], kind: Wait) -> i64 {
    count(&cpu(n).shipped_calls);
    let seq = send(n, number, args);
    wait(n, seq, kind)
}

/// The device has interrupted CPU `n`. Who halts looks at the rings by itself; frames are to be taken first.
pub fn interrupted(n: usize) {
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

fn wait(n: usize, seq: u32, kind: Wait) -> i64 {
    let replies = &node().channels[n].replies;
    let (spin, frames) = (node().spin, matches!(node().link, Link::Frames));
    let mut looked = 0;
    let mut cancelled = kind != Wait::Interruptible;
    let mut ring_again = (kind == Wait::RingAgain).then_some(RING_AGAIN_NS.start);
    loop {
        let reply = replies.lock().pop();
        match reply {
            Ok(Some(reply)) if reply.seq == seq => {
                if kind == Wait::RingAgain {
                    apic::alarm_off();
                }
                return reply.result;
            }
            // for a call that was given up
            Ok(Some(_)) => continue,
            Ok(None) => {}
            Err(_) => panic!("the daemon has damaged a ring"),
        }
        looked += 1;
        if frames {
            network::pump(n);
        }
        // what is lost on the way would not be sent again by one who sleeps
        let sleepy = spin != POLL && looked > spin && (!frames || network::is_settled());
        if !sleepy && looked % LOOKS != 0 {
            continue;
        }
        let mut sleeps = sleepy && replies.lock().may_sleep();
        if sleeps && node().weak_fences {
            apic::fence();
            sleeps = !replies.lock().waiting();
            if !sleeps {
                replies.lock().wake();
            }
        }
        // after the announcement: what comes now ends the halt
        obey(n);
        if !cancelled && signals::waits(n) {
            send(n, own::CANCEL, [u64::from(seq), 0, 0, 0, 0, 0]);
            cancelled = true;
        } else if sleeps {
            match ring_again {
                Some(ns) => apic::alarm_in(ns),
                None if kind == Wait::RingAgain => apic::alarm_off(),
                None => {}
            }
            ops::halt();
            if let Some(ns) = ring_again {
                if let Link::Bells(device) = &node().link {
                    device.ring(n);
                }
                ring_again = Some(ns * 3).filter(|ns| RING_AGAIN_NS.contains(ns));
            }
        }
        if sleeps {
            replies.lock().wake();
        }
    }
}

/// Offset of the next line of the log.
static LOG_OFFSET: AtomicU32 = AtomicU32::new(0);

/// A line in the making.
struct Line {
    text: [u8; 160],
    len: usize,
}

impl core::fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = &mut self.text[self.len..];
        let fits = text.len().min(room.len());
        room[..fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        Ok(())
    }
}

/// Sends a line to the daemon's log; what is too long is cut.
pub fn log(n: usize, text: core::fmt::Arguments<'_>) {
    let mut line = Line { text: [0; 160], len: 0 };
    let _ = line.write_fmt(text);
    let mut offset = u64::from(LOG_OFFSET.load(Relaxed));
    if offset + line.len as u64 > LOG_SIZE {
        offset = 0;
    }
    let length = node().window.log(offset, &line.text[..line.len]);
    LOG_OFFSET.store((offset + length) as u32, Relaxed);
    send(n, own::LOG, [offset, length, 0, 0, 0, 0]);
}
