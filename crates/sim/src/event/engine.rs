//! The loop that runs a schedule.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::matching::{Channel, Letter, Letters, Open};
use super::queue::{Event, Happening, Queue, What};
use super::{EventError, LISTED, Outcome, Progress, Unreceived, Waiting};
use crate::MessageCost;
use crate::cpus::{Cpus, Node};
use crate::goal::{Kind, Partner, Schedule, Waiter};
use crate::network::{MachineNetwork, Network};
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

/// What waits for an interface.
#[derive(Clone, Copy, Debug)]
enum Blocked {
    Send(u32),
    /// A message, with its receive where that is known.
    Message(Option<u32>, Letter),
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
    cpus: usize,
    /// When each CPU of each rank is free.
    free: Vec<u64>,
    /// Interfaces of a rank: one for sends and one for receives each.
    slots: usize,
    /// When each is free; empty where they are never busier than the CPU.
    interfaces: Vec<u64>,
    /// Who waits for one, by rank and interface, with the time they were ready. While there is an entry, an
    /// event is to come that looks after it.
    blocked: HashMap<(u32, u32), VecDeque<(u64, Blocked)>>,
    noise: Option<Cpus>,
    /// Operations that wait for a message or a receive, or have.
    begun: Bits,
    /// Those whose message or receive has come; before `begun`, where the message comes first.
    met: Bits,
    joins: Vec<u32>,
    letters: Letters,
    channels: Vec<Channel>,
    open: HashMap<u32, Open>,
    /// When the receipt of a rendezvous message began that came before its receive was reached.
    early: HashMap<usize, u64>,
    queue: Queue,
    /// Events of the window under way that were not known when it began.
    soon: BinaryHeap<Reverse<u128>>,
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
        let noisy = node.sources.iter().any(|s| node.scheduler.admits(s.class));
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
            blocked: HashMap::new(),
            noise,
            begun: Bits::new(operations),
            met: Bits::new(operations),
            joins: schedule.joins.iter().map(|j| j.requirements).collect(),
            letters: Letters::default(),
            channels: vec![Channel::EMPTY; schedule.channels as usize],
            open: HashMap::new(),
            early: HashMap::new(),
            queue: Queue::new(shift, begin_ns),
            soon: BinaryHeap::new(),
            left: schedule.operations(),
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome, EventError> {
        for rank in 0..self.schedule.ranks() {
            for (number, o) in self.schedule.operations[self.schedule.range(rank)].iter().enumerate() {
                if o.is_free() {
                    self.push(self.begin_ns, rank, Happening::Ready(number as u32));
                }
            }
            self.batch(&[]);
        }
        let mut batch = Vec::new();
        while self.queue.next_window(&mut batch) {
            let letters = &self.letters;
            // in place: a stable sort is faster here, and takes as much memory again
            batch.sort_unstable_by(|a, b| match (a.what.happening(), b.what.happening()) {
                (Happening::Letter(m), Happening::Letter(n))
                    if (a.rank, a.time_ns) == (b.rank, b.time_ns) =>
                {
                    let by = |i| (letters.get(i).from, letters.get(i).operation);
                    by(m).cmp(&by(n))
                }
                _ => a.key().cmp(&b.key()),
            });
            self.batch(&batch);
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

    fn push(&mut self, time_ns: u64, rank: u32, happening: Happening) {
        let event = Event { time_ns, rank, what: What::new(happening) };
        if self.queue.is_now(time_ns) { self.soon.push(Reverse(event.key())) } else { self.queue.push(event) }
    }

    fn happen(&mut self, Event { time_ns, rank, what }: Event) {
        match what.happening() {
            Happening::Ready(operation) => self.ready(time_ns, rank, operation),
            Happening::Met(join) => {
                let left = &mut self.joins[join as usize];
                *left -= 1;
                if *left == 0 {
                    self.ready(time_ns, rank, self.schedule.joins[join as usize].operation);
                }
            }
            Happening::Arrival(operation) => {
                let letter = self.only_letter(rank, operation);
                self.arrive(time_ns, rank, Some(operation), letter);
            }
            Happening::Letter(i) => {
                let letter = self.letters.take(i);
                self.arrive(time_ns, rank, None, letter);
            }
            Happening::Released(operation) => self.released(time_ns, rank, operation),
            Happening::Interface(slot) => self.interface(time_ns, rank, slot),
        }
    }

    fn index(&self, rank: u32, operation: u32) -> usize {
        self.schedule.first[rank as usize] as usize + operation as usize
    }

    /// The only message that a receive can have, as its letter.
    fn only_letter(&self, rank: u32, receive: u32) -> Letter {
        let i = self.index(rank, receive);
        let o = &self.schedule.operations[i];
        let Partner::Operation(operation) = self.schedule.links[i].partner() else {
            unreachable!("an arrival is sent where the receive is known")
        };
        Letter { from: o.peer, operation, shape: o.shape() as u32, tag: o.tag, channel: 0, begun_ns: 0 }
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
                self.serve_blocked(now_ns, rank);
                let cpu = self.cpu(rank, o.shape());
                let start = now_ns.max(self.free[cpu]);
                let end = self.work(rank, shape.cpu as usize, start, o.calc_ns());
                self.free[cpu] = end;
                self.begins(rank, i, start);
                self.completes(rank, i, end);
            }
            Kind::Send => {
                let slot = 2 * u32::from(shape.nic);
                if !self.is_blocked(now_ns, rank, o.shape(), slot, Blocked::Send(operation)) {
                    self.send(now_ns, rank, operation);
                }
            }
            Kind::Recv => {
                self.begins(rank, i, now_ns);
                self.reach(now_ns, rank, operation);
            }
        }
    }

    /// What has begun by an operation's start.
    fn begins(&mut self, rank: u32, i: usize, at_ns: u64) {
        self.fire(rank, i, at_ns, true);
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

    /// Whether an interface is what a message waits for, and not the CPU; then it waits here.
    fn is_blocked(&mut self, now_ns: u64, rank: u32, shape: usize, slot: u32, blocked: Blocked) -> bool {
        if self.slots == 0 {
            return false;
        }
        self.serve_blocked(now_ns, rank);
        let free_ns = self.interface_free(rank, slot);
        let busy = free_ns > now_ns.max(self.free[self.cpu(rank, shape)]);
        if let Some(others) = self.blocked.get_mut(&(rank, slot)) {
            let wait = busy || !others.is_empty();
            if wait {
                others.push_back((now_ns, blocked));
            }
            return wait;
        }
        if busy {
            self.blocked.insert((rank, slot), VecDeque::from([(now_ns, blocked)]));
            self.push(free_ns, rank, Happening::Interface(slot));
        }
        busy
    }

    fn interface_free(&self, rank: u32, slot: u32) -> u64 {
        self.interfaces[rank as usize * self.slots + slot as usize]
    }

    /// Lets those go ahead that waited for an interface, and can begin no later than what becomes ready
    /// now: they were ready before it.
    fn serve_blocked(&mut self, now_ns: u64, rank: u32) {
        if self.blocked.is_empty() {
            return;
        }
        while let Some((_, slot)) =
            (0..self.slots as u32).filter_map(|s| self.can_begin(now_ns, rank, s)).min()
        {
            match self.blocked.get_mut(&(rank, slot)).and_then(VecDeque::pop_front) {
                Some((_, Blocked::Send(operation))) => self.send(now_ns, rank, operation),
                Some((_, Blocked::Message(receive, letter))) => self.take(now_ns, rank, receive, letter),
                None => return,
            }
        }
    }

    /// Since when the first that waits for an interface has been ready, if it waits for the CPU only.
    fn can_begin(&self, now_ns: u64, rank: u32, slot: u32) -> Option<(u64, u32)> {
        let &(since_ns, blocked) = self.blocked.get(&(rank, slot))?.front()?;
        let shape = match blocked {
            Blocked::Send(operation) => self.schedule.operations[self.index(rank, operation)].shape(),
            Blocked::Message(receive, letter) => self.taker(rank, receive, letter),
        };
        let cpu_ns = now_ns.max(self.free[self.cpu(rank, shape)]);
        (self.interface_free(rank, slot) <= cpu_ns).then_some((since_ns, slot))
    }

    /// An interface may be free for those that wait for it.
    fn interface(&mut self, now_ns: u64, rank: u32, slot: u32) {
        self.serve_blocked(now_ns, rank);
        if self.blocked.get(&(rank, slot)).is_some_and(|b| b.is_empty()) {
            self.blocked.remove(&(rank, slot));
        } else {
            self.push(self.interface_free(rank, slot), rank, Happening::Interface(slot));
        }
    }

    fn send(&mut self, now_ns: u64, rank: u32, operation: u32) {
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
            partner => {
                let channel = if let Partner::Channel(n) = partner { n } else { u32::MAX };
                let shape = o.shape() as u32;
                let letter = Letter { from: rank, operation, shape, tag: o.tag, channel, begun_ns: 0 };
                Happening::Letter(self.letters.add(letter))
            }
        };
        self.push(leaves + latency, o.peer, happening);
    }

    /// A message arrives; `receive` is the only one it can be for, if that is known.
    fn arrive(&mut self, now_ns: u64, rank: u32, receive: Option<u32>, letter: Letter) {
        match self.progress {
            Progress::ProgramOrder => {
                if let Some(receive) = self.receive_for(rank, receive, letter) {
                    self.receive(now_ns, rank, Some(receive), letter);
                }
            }
            Progress::Asynchronous => self.receive(now_ns, rank, receive, letter),
        }
    }

    /// The receive that has been reached and waits for this message, if any; else the message waits.
    fn receive_for(&mut self, rank: u32, receive: Option<u32>, letter: Letter) -> Option<u32> {
        let found = match receive {
            Some(receive) => {
                let i = self.index(rank, receive);
                self.met.set(i);
                return self.begun.get(i).then_some(receive);
            }
            None if letter.channel == u32::MAX => self.open.entry(rank).or_default().arrive(letter),
            None => {
                let channel = &mut self.channels[letter.channel as usize];
                let receive = channel.take(&mut self.letters, true).map(|l| l.operation);
                if receive.is_none() {
                    channel.wait(&mut self.letters, letter, false);
                }
                receive
            }
        };
        if let Some(receive) = found {
            let i = self.index(rank, receive);
            self.met.set(i);
        }
        found
    }

    /// The program reaches a receive.
    fn reach(&mut self, now_ns: u64, rank: u32, operation: u32) {
        let i = self.index(rank, operation);
        let o = self.schedule.operations[i];
        self.begun.set(i);
        let letter = match self.schedule.links[i].partner() {
            Partner::Operation(_) => self.met.get(i).then(|| {
                let begun_ns = self.early.remove(&i).unwrap_or(0);
                Letter { begun_ns, ..self.only_letter(rank, operation) }
            }),
            Partner::Channel(n) => {
                let channel = &mut self.channels[n as usize];
                let letter = channel.take(&mut self.letters, false);
                if letter.is_none() {
                    let receive = Letter { from: rank, operation, shape: 0, tag: 0, channel: n, begun_ns: 0 };
                    channel.wait(&mut self.letters, receive, true);
                }
                letter
            }
            Partner::Any => self.open.entry(rank).or_default().post(o.peer, o.tag, operation),
            Partner::None => None,
        };
        let Some(letter) = letter else { return };
        self.met.set(i);
        match self.progress {
            Progress::ProgramOrder => self.receive(now_ns, rank, Some(operation), letter),
            Progress::Asynchronous => {
                let cpu = self.cpu(rank, o.shape());
                self.release(now_ns.max(letter.begun_ns), letter);
                self.completes(rank, i, now_ns.max(self.free[cpu]));
            }
        }
    }

    /// The shape that says which CPU and interface take a message.
    fn taker(&self, rank: u32, receive: Option<u32>, letter: Letter) -> usize {
        match receive {
            Some(receive) if self.progress == Progress::ProgramOrder => {
                self.schedule.operations[self.index(rank, receive)].shape()
            }
            _ => letter.shape as usize,
        }
    }

    /// A message is there for the CPU to take, unless the interface is busy.
    fn receive(&mut self, now_ns: u64, rank: u32, receive: Option<u32>, letter: Letter) {
        if self.slots > 0 {
            let shape = self.taker(rank, receive, letter);
            let slot = 2 * u32::from(self.schedule.shapes[shape].nic) + 1;
            if self.is_blocked(now_ns, rank, shape, slot, Blocked::Message(receive, letter)) {
                return;
            }
        }
        self.take(now_ns, rank, receive, letter);
    }

    fn take(&mut self, now_ns: u64, rank: u32, receive: Option<u32>, letter: Letter) {
        let taker = self.taker(rank, receive, letter);
        let (shape, cpu) = (self.schedule.shapes[taker], self.cpu(rank, taker));
        let cost = self.costs[letter.shape as usize];
        let begun_ns = now_ns.max(self.free[cpu]);
        let end = self.work(rank, shape.cpu as usize, begun_ns + cost.transfer_ns, cost.recv_ns);
        self.free[cpu] = end;
        if self.slots > 0 {
            self.interfaces[rank as usize * self.slots + 2 * shape.nic as usize + 1] = begun_ns + cost.gap_ns;
        }
        let letter = Letter { begun_ns, ..letter };
        let receive = match self.progress {
            Progress::ProgramOrder => receive,
            Progress::Asynchronous => {
                let found = self.receive_for(rank, receive, letter);
                if let (None, Some(only), true) = (found, receive, cost.rendezvous) {
                    self.early.insert(self.index(rank, only), begun_ns);
                }
                found
            }
        };
        if let Some(receive) = receive {
            self.release(begun_ns, letter);
            self.completes(rank, self.index(rank, receive), end);
        }
    }

    /// The receive of a message has begun: a rendezvous send is done.
    fn release(&mut self, at_ns: u64, letter: Letter) {
        if self.costs[letter.shape as usize].rendezvous {
            self.push(at_ns, letter.from, Happening::Released(letter.operation));
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
        if self.left > 0 {
            return Err(self.deadlock());
        }
        let mut left: Vec<(u32, &Open)> = self.open.iter().map(|(&rank, open)| (rank, open)).collect();
        left.sort_unstable_by_key(|(rank, _)| *rank);
        let mut messages = left.into_iter().flat_map(|(to, open)| {
            open.messages().into_iter().map(move |l| Unreceived { from: l.from, to, tag: l.tag })
        });
        let first: Vec<Unreceived> = messages.by_ref().take(LISTED).collect();
        if !first.is_empty() {
            return Err(EventError::Unreceived { messages: (first.len() + messages.count()) as u32, first });
        }
        let ends = self.free.chunks(self.cpus).map(|c| c.iter().max().map_or(0, |&e| e - self.begin_ns));
        Ok(Outcome { ends_ns: ends.collect(), events: self.schedule.operations() + self.schedule.messages() })
    }

    fn deadlock(&self) -> EventError {
        let (mut ranks, mut first) = (0, Vec::new());
        for rank in 0..self.schedule.ranks() {
            let waits = self.schedule.range(rank).find(|&i| self.begun.get(i) && !self.met.get(i));
            let Some(i) = waits else { continue };
            ranks += 1;
            if first.len() < LISTED {
                let o = self.schedule.unpack(&self.schedule.operations[i]);
                let operation = (i - self.schedule.range(rank).start) as u32;
                first.push(Waiting { rank, operation, kind: o.kind, peer: o.peer, tag: o.tag });
            }
        }
        EventError::Deadlock { ranks, first }
    }
}
