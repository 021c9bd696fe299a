// SPDX-License-Identifier: MIT OR Apache-2.0
//! The loop that runs a schedule.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::matching::{Channels, Letter, Open};
use super::queue::{Event, Happening, Packed, Queue, Sorter};
use super::queues::{Blocked, Waiting};
use super::{EventError, Outcome, Progress, check_sizes, deadlock, unreceived};
use crate::MessageCost;
use crate::cpus::Cpus;
use crate::goal::{Kind, Partner, Schedule, Waiter};
use crate::network::{MachineNetwork, Network};
use crate::node::Node;
use crate::rng::Key;

/// One bit an operation.
#[derive(Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(n: usize) -> Self {
        Self(vec![0; n.div_ceil(64)])
    }

    fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
}

/// State of a run: 8 bytes a CPU and 2 bits an operation, 4 bytes an operation that requires several, 16 a
/// rank for noise if there is any, 8 an interface where interfaces can be what is waited for, and the events
/// to come (16 bytes each).
pub(super) struct Engine<'a> {
    schedule: &'a Schedule,
    network: &'a MachineNetwork,
    latency: Option<u64>,
    progress: Progress,
    begin_ns: u64,
    /// Of each shape.
    costs: Vec<MessageCost>,
    pub(super) cpus: usize,
    /// The instant at which each CPU of each rank is free.
    pub(super) free: Vec<u64>,
    /// Interfaces of a rank: one for sends and one for receives each.
    pub(super) slots: usize,
    /// The instant at which each interface is free; empty if interfaces are never busier than the CPU.
    pub(super) interfaces: Vec<u64>,
    /// The work that waits on each rank; empty if interfaces are never busier than the CPU, since a CPU is then taken
    /// in advance. While work waits, an event that serves it is in the queue.
    pub(super) waiting: Vec<Option<Box<Waiting>>>,
    noise: Option<Cpus>,
    /// Operations that wait for a message or a receive, or have.
    begun: Bits,
    /// Operations whose message or receive has come; set before `begun` if the message comes first.
    met: Bits,
    joins: Vec<u32>,
    /// True if any operation waits for another one to begin.
    any_starts: bool,
    channels: Channels,
    open: HashMap<u32, Open>,
    /// By send: start and end of the receipt of a message that arrived before the program reached its receive.
    early: HashMap<u32, (u64, u64)>,
    queue: Queue,
    sorter: Sorter,
    /// Events of the window under way that were not known when it began.
    soon: BinaryHeap<Reverse<u128>>,
    /// The first message whose size is not that of its receive.
    sizes: Option<EventError>,
    left: u64,
}

impl<'a> Engine<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        network: &'a MachineNetwork,
        node: &Node,
        progress: Progress,
        seed: Key,
        begin_ns: u64,
        costs: Vec<MessageCost>,
    ) -> Self {
        let ranks = schedule.ranks() as usize;
        let sends = || schedule.shapes.iter().zip(&costs).filter(|(s, _)| s.kind == Kind::Send);
        let (cpus, nics) = schedule.cpus_and_nics();
        let interfaces_matter = cpus > 1
            || sends().any(|(_, c)| {
                c.gap_ns > c.overhead_ns + c.send_more_ns || c.gap_ns > c.transfer_ns + c.recv_ns
            });
        let slots = if interfaces_matter { 2 * nics as usize } else { 0 };
        let least_ns = network.loggops().overhead_ns + network.least_ns();
        let rendezvous = sends().any(|(_, c)| c.rendezvous);
        let shift = if rendezvous || least_ns == 0 { 0 } else { least_ns.ilog2() };
        let noisy = node.is_disturbed();
        let noise = noisy.then(|| Cpus::new(node, network.layout(), 0..schedule.ranks(), seed, begin_ns));
        let operations = schedule.operations() as usize;
        Self {
            schedule,
            network,
            latency: network.uniform_ns(),
            progress,
            begin_ns,
            costs,
            cpus: cpus as usize,
            free: vec![begin_ns; ranks * cpus as usize],
            slots,
            interfaces: vec![begin_ns; ranks * slots],
            waiting: (0..if slots > 0 { ranks } else { 0 }).map(|_| None).collect(),
            noise,
            begun: Bits::new(operations),
            met: Bits::new(operations),
            joins: schedule.joins.iter().map(|j| j.requirements).collect(),
            channels: Channels::new(schedule.channels, schedule.operations()),
            open: HashMap::new(),
            early: HashMap::new(),
            queue: Queue::new(shift, begin_ns),
            sorter: Sorter::default(),
            any_starts: schedule.edges.iter().any(|e| e.start_only()),
            soon: BinaryHeap::new(),
            sizes: None,
            left: schedule.operations(),
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome, EventError> {
        let mut events = Vec::new();
        for rank in 0..self.schedule.ranks() {
            events.clear();
            let operations = &self.schedule.operations[self.schedule.range(rank)];
            let free = (0..).zip(operations).filter(|(_, o)| o.is_free());
            events.extend(free.map(|(number, _)| Event {
                time_ns: self.begin_ns,
                rank,
                happening: Packed::new(Happening::Ready(number)),
            }));
            self.batch(&events);
        }
        while self.queue.next_window(&mut events) {
            self.sorter.sort(&mut events, self.schedule.ranks() as usize);
            self.batch(&events);
        }
        self.finish()
    }

    /// All events of a window: those known at its beginning, sorted, and those that follow from them.
    fn batch(&mut self, mut known: &[Event]) {
        loop {
            let event = match (known.first(), self.soon.peek()) {
                (Some(next), Some(&Reverse(soon))) if soon < next.key() => self.soon.pop().map(|k| k.0),
                (Some(next), _) => {
                    known = &known[1..];
                    Some(next.key())
                }
                (None, _) => self.soon.pop().map(|k| k.0),
            };
            match event {
                Some(key) => self.happen(Event::of_key(key)),
                None => return,
            }
        }
    }

    pub(super) fn push(&mut self, time_ns: u64, rank: u32, happening: Happening) {
        let event = Event { time_ns, rank, happening: Packed::new(happening) };
        if self.queue.is_now(time_ns) { self.soon.push(Reverse(event.key())) } else { self.queue.push(event) }
    }

    fn happen(&mut self, Event { time_ns, rank, happening }: Event) {
        match happening.happening() {
            Happening::Ready(operation) => self.ready(time_ns, rank, operation),
            Happening::Met(join) => {
                let left = &mut self.joins[join as usize];
                *left -= 1;
                if *left == 0 {
                    self.ready(time_ns, rank, self.schedule.joins[join as usize].operation);
                }
            }
            Happening::Arrival(operation) => {
                let receive = self.index(rank, operation);
                let send = self.only_send(receive);
                self.arrive(time_ns, rank, Some(receive as u32), send);
            }
            Happening::Letter(send) => self.arrive(time_ns, rank, None, send),
            Happening::Released(operation) => self.released(time_ns, rank, operation),
            Happening::Free => self.freed(time_ns, rank),
        }
    }

    fn index(&self, rank: u32, operation: u32) -> usize {
        self.schedule.first[rank as usize] as usize + operation as usize
    }

    /// The send of the only message that a receive can have.
    fn only_send(&self, receive: usize) -> u32 {
        let Partner::Operation(operation) = self.schedule.links[receive].partner() else {
            unreachable!("an arrival is sent where the receive is known")
        };
        self.schedule.first[self.schedule.operations[receive].peer as usize] + operation
    }

    fn work(&mut self, rank: u32, cpu: usize, at_ns: u64, work_ns: u64) -> u64 {
        match &mut self.noise {
            Some(noise) if cpu == 0 => noise.done(rank as usize, at_ns, work_ns),
            _ => at_ns + work_ns,
        }
    }

    fn cpu(&self, rank: u32, shape: usize) -> usize {
        rank as usize * self.cpus + self.schedule.shapes[shape].cpu as usize
    }

    fn ready(&mut self, now_ns: u64, rank: u32, operation: u32) {
        let i = self.index(rank, operation);
        let o = self.schedule.operations[i];
        let shape = self.schedule.shapes[o.shape()];
        match shape.kind {
            Kind::Calc => {
                if self.may_begin(now_ns, rank, shape.cpu, None, Blocked::Calc(operation)) {
                    self.calc(now_ns, rank, operation);
                }
            }
            Kind::Send => {
                let slot = Some(2 * u32::from(shape.nic));
                if self.may_begin(now_ns, rank, shape.cpu, slot, Blocked::Send(operation)) {
                    self.send(now_ns, rank, operation);
                }
            }
            Kind::Recv => {
                self.begins(rank, i, now_ns);
                self.reach(now_ns, rank, i);
            }
        }
    }

    /// Reports the start of an operation to the operations that wait for it.
    fn begins(&mut self, rank: u32, i: usize, at_ns: u64) {
        if self.any_starts {
            self.fire(rank, i, at_ns, true);
        }
    }

    fn completes(&mut self, rank: u32, i: usize, at_ns: u64) {
        self.left -= 1;
        self.fire(rank, i, at_ns, false);
    }

    fn fire(&mut self, rank: u32, i: usize, at_ns: u64, start_only: bool) {
        let schedule = self.schedule;
        for edge in schedule.edges(i).iter().filter(|e| e.start_only() == start_only) {
            let happening = match edge.to() {
                Waiter::Operation(n) => Happening::Ready(n),
                Waiter::Join(j) => Happening::Met(j),
            };
            self.push(at_ns, rank, happening);
        }
    }

    pub(super) fn calc(&mut self, now_ns: u64, rank: u32, operation: u32) {
        let i = self.index(rank, operation);
        let o = self.schedule.operations[i];
        let cpu = self.cpu(rank, o.shape());
        let start = now_ns.max(self.free[cpu]);
        let end = self.work(rank, self.schedule.shapes[o.shape()].cpu as usize, start, o.calc_ns());
        self.free[cpu] = end;
        self.begins(rank, i, start);
        self.completes(rank, i, end);
    }

    pub(super) fn send(&mut self, now_ns: u64, rank: u32, operation: u32) {
        let i = self.index(rank, operation);
        let o = self.schedule.operations[i];
        let shape = self.schedule.shapes[o.shape()];
        let (cost, cpu) = (self.costs[o.shape()], self.cpu(rank, o.shape()));
        let start = now_ns.max(self.free[cpu]);
        let leaves = self.work(rank, shape.cpu as usize, start, cost.overhead_ns);
        let end = self.work(rank, shape.cpu as usize, leaves, cost.send_more_ns);
        self.free[cpu] = end;
        if self.slots > 0 {
            self.interfaces[rank as usize * self.slots + 2 * shape.nic as usize] = start + cost.gap_ns;
        }
        self.begins(rank, i, start);
        if cost.rendezvous {
            self.begun.set(i);
        } else {
            self.completes(rank, i, end);
        }
        let latency = self.latency.unwrap_or_else(|| self.network.latency_ns(rank, o.peer));
        let happening = match self.schedule.links[i].partner() {
            Partner::Operation(receive) => Happening::Arrival(receive),
            _ => Happening::Letter(i as u32),
        };
        self.push(leaves + latency, o.peer, happening);
    }

    /// A message arrives; `receive` is the only one it can be for, if that is known.
    fn arrive(&mut self, now_ns: u64, rank: u32, receive: Option<u32>, send: u32) {
        match self.progress {
            Progress::ProgramOrder => {
                if let Some(receive) = self.receive_for(rank, receive, send) {
                    self.receive(now_ns, rank, Some(receive), send);
                }
            }
            Progress::Asynchronous => self.receive(now_ns, rank, receive, send),
        }
    }

    /// The receive that has been reached and waits for this message, if any; else the message waits.
    fn receive_for(&mut self, rank: u32, receive: Option<u32>, send: u32) -> Option<u32> {
        let found = match receive {
            Some(receive) => {
                self.met.set(receive as usize);
                return self.begun.get(receive as usize).then_some(receive);
            }
            None => match self.schedule.links[send as usize].partner() {
                Partner::Channel(channel) => {
                    let receive = self.channels.take(channel, true);
                    if receive.is_none() {
                        self.channels.wait(channel, send, false);
                    }
                    receive
                }
                _ => {
                    let (from, tag) =
                        (self.schedule.rank_of(send), self.schedule.operations[send as usize].tag);
                    self.open.entry(rank).or_default().arrive(Letter { from, tag, send })
                }
            },
        };
        if let Some(receive) = found {
            self.met.set(receive as usize);
            self.check_sizes(receive, send);
        }
        found
    }

    fn check_sizes(&mut self, receive: u32, send: u32) {
        if self.schedule.links[send as usize].is_mixed() && self.sizes.is_none() {
            self.sizes = check_sizes(self.schedule, receive, send).err();
        }
    }

    /// The program reaches a receive.
    fn reach(&mut self, now_ns: u64, rank: u32, i: usize) {
        self.begun.set(i);
        let send = match self.schedule.links[i].partner() {
            Partner::Operation(_) => self.met.get(i).then(|| self.only_send(i)),
            Partner::Channel(channel) => {
                let message = self.channels.take(channel, false);
                if message.is_none() {
                    self.channels.wait(channel, i as u32, true);
                }
                message
            }
            Partner::Any => {
                let o = self.schedule.operations[i];
                self.open.entry(rank).or_default().post(o.peer, o.tag, i as u32).map(|l| l.send)
            }
            Partner::None => None,
        };
        let Some(send) = send else { return };
        self.met.set(i);
        self.check_sizes(i as u32, send);
        match self.progress {
            Progress::ProgramOrder => self.receive(now_ns, rank, Some(i as u32), send),
            Progress::Asynchronous => {
                let (begun_ns, done_ns) = self.early.remove(&send).unwrap_or_default();
                self.release(now_ns.max(begun_ns), send);
                self.completes(rank, i, now_ns.max(done_ns));
            }
        }
    }

    /// The operation that says which CPU and interface take a message: its receive in program order, else its send.
    fn taker(&self, receive: Option<u32>, send: u32) -> usize {
        let operation = match receive {
            Some(receive) if self.progress == Progress::ProgramOrder => receive,
            _ => send,
        };
        self.schedule.operations[operation as usize].shape()
    }

    /// A message is there for the CPU to take, unless CPU or interface are busy.
    fn receive(&mut self, now_ns: u64, rank: u32, receive: Option<u32>, send: u32) {
        if self.slots > 0 {
            let shape = self.schedule.shapes[self.taker(receive, send)];
            let slot = Some(2 * u32::from(shape.nic) + 1);
            if !self.may_begin(now_ns, rank, shape.cpu, slot, Blocked::Message(receive, send)) {
                return;
            }
        }
        self.take(now_ns, rank, receive, send);
    }

    pub(super) fn take(&mut self, now_ns: u64, rank: u32, receive: Option<u32>, send: u32) {
        let taker = self.taker(receive, send);
        // a receive may be larger than its message, which costs what its send says; if none is, either end has the cost
        let sized = if self.schedule.mixed { self.schedule.operations[send as usize].shape() } else { taker };
        let (shape, cpu, cost) = (self.schedule.shapes[taker], self.cpu(rank, taker), self.costs[sized]);
        let begun_ns = now_ns.max(self.free[cpu]);
        let end = self.work(rank, shape.cpu as usize, begun_ns + cost.transfer_ns, cost.recv_ns);
        self.free[cpu] = end;
        if self.slots > 0 {
            self.interfaces[rank as usize * self.slots + 2 * shape.nic as usize + 1] = begun_ns + cost.gap_ns;
        }
        let receive = match self.progress {
            Progress::ProgramOrder => receive,
            Progress::Asynchronous => {
                let found = self.receive_for(rank, receive, send);
                if found.is_none() {
                    self.early.insert(send, (begun_ns, end));
                }
                found
            }
        };
        if let Some(receive) = receive {
            if cost.rendezvous {
                self.release(begun_ns, send);
            }
            self.completes(rank, receive as usize, end);
        }
    }

    /// The receive of a message has begun: a rendezvous send is done.
    fn release(&mut self, at_ns: u64, send: u32) {
        if self.costs[self.schedule.operations[send as usize].shape()].rendezvous {
            let from = self.schedule.rank_of(send);
            let operation = send - self.schedule.first[from as usize];
            self.push(at_ns, from, Happening::Released(operation));
        }
    }

    fn released(&mut self, now_ns: u64, rank: u32, operation: u32) {
        let i = self.index(rank, operation);
        let cpu = self.cpu(rank, self.schedule.operations[i].shape());
        self.free[cpu] = self.free[cpu].max(now_ns);
        self.met.set(i);
        self.completes(rank, i, now_ns);
    }

    fn finish(self) -> Result<Outcome, EventError> {
        if let Some(rank) = self.noise.as_ref().and_then(Cpus::starved) {
            return Err(EventError::Starved { rank });
        }
        if let Some(sizes) = self.sizes {
            return Err(sizes);
        }
        if self.left > 0 {
            return Err(deadlock(self.schedule, |i| self.begun.get(i) && !self.met.get(i)));
        }
        unreceived(&self.open)?;
        let ends = self.free.chunks(self.cpus).map(|c| c.iter().max().map_or(0, |&e| e - self.begin_ns));
        Ok(Outcome { ends_ns: ends.collect(), events: self.schedule.operations() + self.schedule.messages() })
    }
}
