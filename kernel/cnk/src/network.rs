// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shipping by frames, on a node that shares no memory with the daemon (`colony_fship::frame`).
//!
//! The node's window is memory of its own. A request goes with the memory that its call reads; what comes puts
//! memory where it belongs, and replies into the ring where the CPU that asked looks for them, as if the daemon had.

use colony_fship::calls::find;
use colony_fship::frame::{self, Content, FLIGHT, Flow, HEAD, Head, Heard, Side, kind};
use colony_fship::layout::{CrashRecord, LARGE_PAGE, LOG_AT, MAGIC, crash_at};
use colony_fship::message::own;
use colony_fship::ring::{Bell, Producer, Refused};
use colony_fship::{Reply, Request, spans};
use core::sync::atomic::Ordering::{AcqRel, Release};
use zerocopy::IntoBytes as _;

use crate::cpu::{self, obey};
use crate::machine::virtio::{Network, Registers, SLOTS};
use crate::machine::window::Window;
use crate::machine::{CPUS, smp};
use crate::node::node;
use crate::process::{self, timers};
use crate::time;
use spin::Mutex;

/// Frames that are not acknowledged after this time are sent again; then after twice that, up to the last one.
const AGAIN_NS: core::ops::Range<u64> = 10_000_000..1_000_000_000;
/// Time for which a CPU polls for an acknowledgement before it halts.
const SOON_NS: u64 = 300_000;

struct Link {
    device: Network,
    window: Window,
    replies: [Producer<'static, Reply>; CPUS],
    flow: Flow,
    /// Address of the other side.
    peer: [u8; 6],
    /// Bytes of the frames under way.
    lengths: [usize; FLIGHT as usize],
    /// Time at which the oldest of them was sent, or the last one was acknowledged.
    since_ns: u64,
    /// Time after that at which they are sent again.
    again_ns: u64,
}

static LINK: Mutex<Option<Link>> = Mutex::new(None);

/// Starts the device, says hello, and waits for the window's header.
pub fn start(registers: &Registers, window: Window) {
    // nobody uses it yet
    window.clear(0, LARGE_PAGE);
    let apic = smp::apic_of(0).expect("this CPU runs");
    let device = Network::start(registers, window, apic);
    let (peer, lengths) = (frame::EVERYBODY, [0; FLIGHT as usize]);
    let replies = window.reply_producers();
    let (flow, since_ns, again_ns) = (Flow::new(), 0, AGAIN_NS.start);
    *LINK.lock() = Some(Link { device, window, replies, flow, peer, lengths, since_ns, again_ns });
    emit(0, kind::HELLO, 0, 0, |_| ());
    while window.header().magic != MAGIC {
        pump(0);
        rest(0);
    }
}

/// Takes what has come, and repeats what was lost.
pub fn pump(n: usize) {
    if let Some(link) = &mut *LINK.lock() {
        link.pump(n);
    }
}

/// Returns `false` if the other side has all frames that were sent: a CPU that halts then is woken by it. Else CPU `n` halts
/// here for some time, if they are under way for long: many nodes of an emulator that wait awake leave the other side no time.
pub fn rest(n: usize) -> bool {
    let times = |link: &Link| (link.flow.in_flight() > 0).then_some((link.since_ns, link.again_ns));
    let Some((since_ns, again_ns)) = LINK.lock().as_ref().and_then(times) else { return false };
    // frames interrupt the first CPU only
    if n == 0 && time::monotonic_ns().saturating_sub(since_ns) > SOON_NS {
        timers::nap(n, again_ns);
    }
    true
}

/// Waits until the other side has all that was sent.
pub fn settle(n: usize) {
    while rest(n) {
        pump(n);
    }
}

/// Sends a request of CPU `n`, and before it what it tells of.
pub fn send(n: usize, request: &Request) {
    let args = request.args;
    match request.call {
        own::LOG => put_control(n, LOG_AT + args[0], args[1]),
        own::FAULT => put_control(n, crash_at(n), size_of::<CrashRecord>() as u64),
        _ => put_spans(n, request),
    }
    emit(n, kind::REQUEST, n as u64, size_of::<Request>(), |to| to.copy_from_slice(request.as_bytes()));
    if !own::has_reply(request.call) {
        // nobody waits for a reply, and would send it again
        settle(n);
    }
}

fn put_control(n: usize, place: u64, length: u64) {
    let window = node().window;
    emit(n, kind::PUT, place, length as usize, |to| window.read_control(place, to));
}

/// Sends the memory that a call reads.
fn put_spans(n: usize, request: &Request) {
    let Some(call) = find(u64::from(request.call)) else { return };
    // no lock is held while waiting for the link
    let user = process::on(n).user.clone();
    let most = LINK.lock().as_ref().map_or(0, |link| frame::room(link.device.mtu)) as u64;
    // the other thread may have changed an array meanwhile: the daemon looks at it itself
    let _ = spans::each(call, request, &user, &mut |span| {
        if !frame::before(request.call, &span) {
            return Ok(());
        }
        let length = if span.string { frame::string_length(&user, span.address) } else { span.length };
        let mut done = 0;
        while done < length {
            let (at, some) = (span.address + done, (length - done).min(most));
            emit(n, kind::PUT, user.bank.first() + at, some as usize, |to| {
                // the caller has looked at it
                let read = user.bank.read(at, to);
                debug_assert!(read.is_ok());
            });
            done += some;
        }
        Ok(())
    });
}

fn emit(n: usize, kind: u8, place: u64, length: usize, fill: impl Fn(&mut [u8])) {
    loop {
        if let Some(link) = &mut *LINK.lock() {
            link.pump(n);
            if link.emit(kind, place, length, &fill) {
                return;
            }
        }
        obey(n);
    }
}

/// The buffer of a frame under way.
fn slot_of(seq: u32) -> u16 {
    (seq % FLIGHT) as u16
}

impl Link {
    fn pump(&mut self, n: usize) {
        while let Some((slot, length)) = self.device.received() {
            self.take(n, slot, length);
            self.device.give_back(slot);
        }
        let now = time::monotonic_ns();
        if self.flow.in_flight() > 0 && now.saturating_sub(self.since_ns) > self.again_ns {
            self.again_ns = (2 * self.again_ns).min(AGAIN_NS.end);
            self.repeat();
        }
        if let Some(kind) = self.flow.owes() {
            // if a buffer is free for that
            if let Some(slot) = (FLIGHT as u16..SLOTS).find(|&slot| self.device.is_free(slot)) {
                self.transmit(slot, Head::new(kind, 0, 0), 0);
            }
        }
    }

    /// Sends again all that is under way.
    fn repeat(&mut self) {
        self.since_ns = time::monotonic_ns();
        for seq in (0..self.flow.in_flight()).map(|n| self.flow.oldest().wrapping_add(n)) {
            if self.device.is_free(slot_of(seq)) {
                self.device.send(slot_of(seq), self.lengths[slot_of(seq) as usize]);
            }
        }
    }

    /// Takes the frame in a buffer.
    fn take(&mut self, n: usize, slot: u16, length: usize) {
        let bytes = self.device.bytes(slot, length);
        let Some((head, content)) = frame::read(bytes, Side::Node, self.window.size()) else { return };
        self.peer = head.from;
        if self.flow.acked(head.ack) > 0 {
            (self.since_ns, self.again_ns) = (time::monotonic_ns(), AGAIN_NS.start);
        }
        match self.flow.hear(&head, &content) {
            Heard::Nothing => return,
            Heard::Repeat => return self.repeat(),
            Heard::Next => {}
        }
        let mut rung = None;
        match content {
            Content::Put { place, bytes } => self.window.put(place, bytes),
            Content::Clear { place, length } => self.window.clear(place, length),
            Content::Reply(channel, reply) => match self.replies[channel].push(reply) {
                Ok(Bell::Ring) => rung = Some(channel),
                Ok(Bell::Silent) => {}
                // it comes again
                Err(Refused::Full) => return,
                Err(Refused::Corrupt) => panic!("a ring of this kernel's own is damaged"),
            },
            Content::Signals(channel, 0) => self.window.signals(channel).store(0, Release),
            Content::Signals(channel, word) => {
                self.window.signals(channel).fetch_or(word, AcqRel);
                rung = Some(channel);
            }
            _ => {}
        }
        self.flow.take();
        if let Some(channel) = rung {
            cpu::interrupt_other(n, channel);
        }
    }

    /// Sends a frame if there is room.
    fn emit(&mut self, kind: u8, place: u64, length: usize, fill: &dyn Fn(&mut [u8])) -> bool {
        let slot = slot_of(self.flow.oldest().wrapping_add(self.flow.in_flight()));
        if !self.flow.has_room() || !self.device.is_free(slot) {
            return false;
        }
        if self.flow.in_flight() == 0 {
            self.since_ns = time::monotonic_ns();
        }
        let seq = self.flow.number();
        fill(&mut self.device.frame(slot)[HEAD..HEAD + length]);
        self.lengths[usize::from(slot)] = HEAD + length;
        let mut head = Head::new(kind, place, length as u16);
        head.seq = seq;
        self.transmit(slot, head, length);
        true
    }

    fn transmit(&mut self, slot: u16, mut head: Head, length: usize) {
        (head.to, head.from) = (self.peer, self.device.address);
        self.flow.tell(&mut head);
        self.device.frame(slot)[..HEAD].copy_from_slice(head.as_bytes());
        self.device.send(slot, HEAD + length);
    }
}
