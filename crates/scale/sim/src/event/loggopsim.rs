// SPDX-License-Identifier: MIT OR Apache-2.0
//! LogGOPSim's order of service, step by step, so that results can be compared to the nanosecond.
//!
//! One queue holds all operations and messages of all ranks, in the order of time and, at one instant, of first
//! insertion. An entry whose CPU or interface is busy is put back with the time at which both are free, and keeps
//! its place in the order of insertion. An operation is inserted when the last one it requires is *processed*,
//! which for computing and sends is when they begin, with the time at which its own CPU is free. So a message
//! sent early is served before an operation that became ready earlier but was inserted later.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::matching::{Channels, Letter, Open};
use super::{EventError, Outcome, check_sizes, deadlock, order, unreceived};
use crate::MessageCost;
use crate::cpus::Cpus;
use crate::goal::{Kind, Partner, Schedule, Waiter};
use crate::network::{MachineNetwork, Network};
use crate::node::Node;
use crate::rng::Key;

/// The cost of a message, with LogGOPSim's arithmetic modulo 2^64.
#[derive(Clone, Copy, Debug)]
struct Cost {
    overhead_ns: u64,
    send_ns: u64,
    gap_ns: u64,
    /// CPU time of the receive after its overhead.
    recv_more_ns: u64,
    rendezvous: bool,
}

impl Cost {
    fn new(cost: &MessageCost, bytes: u64, network: &MachineNetwork) -> Self {
        let MessageCost { overhead_ns, send_more_ns, gap_ns, transfer_ns, recv_ns, rendezvous } = *cost;
        let more = transfer_ns + recv_ns - overhead_ns;
        let normal =
            Self { overhead_ns, send_ns: overhead_ns + send_more_ns, gap_ns, recv_more_ns: more, rendezvous };
        if bytes > 0 {
            return normal;
        }
        // the length less one is 2^64 - 1: a message of 0 bytes takes a byte's time less than one of 1
        let p = network.loggops();
        let less = |per_byte_ps: u64| (per_byte_ps / 1000).wrapping_neg();
        let (gap, overhead) = (less(p.gap_per_byte_ps), less(p.overhead_per_byte_ps));
        Self {
            send_ns: overhead_ns.wrapping_add(overhead),
            gap_ns: gap_ns.wrapping_add(gap),
            recv_more_ns: gap.max(overhead),
            ..normal
        }
    }
}

/// An entry of the queue: time, place in the order of insertion, number among all operations, and whether it is
/// that operation (a send) or its message.
const fn entry(time_ns: u64, inserted: u32, operation: usize, message: bool) -> u128 {
    (time_ns as u128) << 64 | (inserted as u128) << 32 | (operation as u128) << 1 | message as u128
}

/// An operation that waits for nothing any more.
#[derive(Clone, Copy)]
struct Freed {
    rank: u32,
    kind: u8,
    operation: u32,
}

/// A run in LogGOPSim's order.
pub(super) struct LogGopsim<'a> {
    schedule: &'a Schedule,
    network: &'a MachineNetwork,
    begin_ns: u64,
    /// Of each shape.
    costs: Vec<Cost>,
    cpus: usize,
    nics: usize,
    /// The instants at which each CPU, and each interface for its next send and receive, is free, rank by rank.
    cpu_ns: Vec<u64>,
    send_ns: Vec<u64>,
    recv_ns: Vec<u64>,
    noise: Option<Cpus>,
    rank_of: Vec<u32>,
    /// Of each message's ends, unless its receiver has open receives.
    channel_of: Vec<u32>,
    joins: Vec<u32>,
    channels: Channels,
    open: HashMap<u32, Open>,
    queue: BinaryHeap<Reverse<u128>>,
    inserted: u32,
    freed: Vec<Freed>,
    /// Of each operation: whether it is done.
    done: Vec<bool>,
    /// Of each operation: whether it waits for a message or for its receive.
    begun: Vec<bool>,
    left: u64,
}

impl<'a> LogGopsim<'a> {
    pub(super) fn new(
        schedule: &'a Schedule,
        network: &'a MachineNetwork,
        node: &Node,
        seed: Key,
        begin_ns: u64,
        costs: &[MessageCost],
    ) -> Self {
        let ranks = schedule.ranks();
        let (cpus, nics) = schedule.cpus_and_nics();
        let (cpus, nics) = (cpus as usize, nics as usize);
        let noisy = node.is_disturbed();
        let n = schedule.operations() as usize;
        let cost = |(c, s): (&MessageCost, &crate::goal::Shape)| Cost::new(c, s.bytes, network);
        let (channel_of, channels) = channels(schedule);
        Self {
            schedule,
            network,
            begin_ns,
            costs: costs.iter().zip(&schedule.shapes).map(cost).collect(),
            cpus,
            nics,
            cpu_ns: vec![begin_ns; ranks as usize * cpus],
            send_ns: vec![begin_ns; ranks as usize * nics],
            recv_ns: vec![begin_ns; ranks as usize * nics],
            noise: noisy.then(|| Cpus::new(node, network.layout(), 0..ranks, seed, begin_ns)),
            rank_of: (0..ranks).flat_map(|r| schedule.range(r).map(move |_| r)).collect(),
            channel_of,
            joins: schedule.joins.iter().map(|j| j.requirements).collect(),
            channels: Channels::new(channels, schedule.operations()),
            open: HashMap::new(),
            queue: BinaryHeap::new(),
            inserted: 0,
            freed: Vec::new(),
            done: vec![false; n],
            begun: vec![false; n],
            left: schedule.operations(),
        }
    }

    pub(super) fn run(mut self) -> Result<Outcome, EventError> {
        for rank in 0..self.schedule.ranks() {
            for i in self.schedule.range(rank) {
                if self.schedule.operations[i].is_free() {
                    self.free(rank, i);
                }
            }
        }
        self.insert_freed();
        while let Some(Reverse(entry)) = self.queue.pop() {
            let (time_ns, inserted) = ((entry >> 64) as u64, (entry >> 32) as u32);
            let (i, message) = ((entry as u32 >> 1) as usize, entry & 1 == 1);
            if message {
                self.message(time_ns, inserted, i)?;
            } else {
                match self.shape(i).kind {
                    Kind::Calc => self.calc(time_ns, inserted, i),
                    Kind::Send => self.send(time_ns, inserted, i),
                    Kind::Recv => self.recv(time_ns, i)?,
                }
            }
            self.insert_freed();
        }
        self.finish()
    }

    fn shape(&self, i: usize) -> crate::goal::Shape {
        self.schedule.shapes[self.schedule.operations[i].shape()]
    }

    fn number(&self, i: usize) -> u32 {
        (i - self.schedule.first[self.rank_of[i] as usize] as usize) as u32
    }

    fn cpu(&self, rank: u32, cpu: u8) -> usize {
        rank as usize * self.cpus + cpu as usize
    }

    fn nic(&self, rank: u32, nic: u8) -> usize {
        rank as usize * self.nics + nic as usize
    }

    fn insert(&mut self, time_ns: u64, i: usize, message: bool) {
        self.queue.push(Reverse(entry(time_ns, self.inserted, i, message)));
        self.inserted += 1;
    }

    fn put_back(&mut self, time_ns: u64, inserted: u32, i: usize, message: bool) {
        self.queue.push(Reverse(entry(time_ns, inserted, i, message)));
    }

    /// Work of CPU time, with the noise of CPU 0.
    fn work(&mut self, rank: u32, cpu: u8, at_ns: u64, work_ns: u64) -> u64 {
        match &mut self.noise {
            Some(noise) if cpu == 0 => noise.done(rank as usize, at_ns, work_ns),
            _ => at_ns.wrapping_add(work_ns),
        }
    }

    /// One requirement of all that wait for the start, or for the end, of an operation is met.
    fn fire(&mut self, i: usize, start_only: bool) {
        let (schedule, rank) = (self.schedule, self.rank_of[i]);
        let first = schedule.first[rank as usize] as usize;
        for edge in schedule.edges(i).iter().filter(|e| e.start_only() == start_only) {
            match edge.to() {
                Waiter::Operation(n) => self.free(rank, first + n as usize),
                Waiter::Join(j) => {
                    self.joins[j as usize] -= 1;
                    if self.joins[j as usize] == 0 {
                        self.free(rank, first + schedule.joins[j as usize].operation as usize);
                    }
                }
            }
        }
    }

    fn starts(&mut self, i: usize) {
        self.fire(i, true);
    }

    fn ends(&mut self, i: usize) {
        self.done[i] = true;
        self.left -= 1;
        self.fire(i, false);
    }

    fn free(&mut self, rank: u32, i: usize) {
        let kind = match self.shape(i).kind {
            Kind::Send => 1,
            Kind::Recv => 2,
            Kind::Calc => 3,
        };
        self.freed.push(Freed { rank, kind, operation: self.number(i) });
    }

    /// Inserts what an event has freed: by rank, sends before receives before computing.
    fn insert_freed(&mut self) {
        let mut freed = std::mem::take(&mut self.freed);
        if freed.len() > 1 {
            freed.sort_by_key(|f| f.rank);
            freed.chunk_by_mut(|a, b| a.rank == b.rank).for_each(|c| order::sort(c, |f| f.kind));
        }
        for f in freed.drain(..) {
            let i = self.schedule.first[f.rank as usize] as usize + f.operation as usize;
            let shape = self.shape(i);
            let cpu_ns = self.cpu_ns[self.cpu(f.rank, shape.cpu)];
            let time_ns = match shape.kind {
                Kind::Send => cpu_ns.max(self.send_ns[self.nic(f.rank, shape.nic)]),
                Kind::Recv | Kind::Calc => cpu_ns,
            };
            self.insert(time_ns, i, false);
        }
        self.freed = freed;
    }

    fn calc(&mut self, time_ns: u64, inserted: u32, i: usize) {
        let (rank, cpu) = (self.rank_of[i], self.shape(i).cpu);
        let at = self.cpu(rank, cpu);
        if self.cpu_ns[at] > time_ns {
            return self.put_back(self.cpu_ns[at], inserted, i, false);
        }
        self.cpu_ns[at] = self.work(rank, cpu, time_ns, self.schedule.operations[i].calc_ns());
        self.starts(i);
        self.ends(i);
    }

    fn send(&mut self, time_ns: u64, inserted: u32, i: usize) {
        let (rank, shape) = (self.rank_of[i], self.shape(i));
        let o = self.schedule.operations[i];
        let (cpu, nic) = (self.cpu(rank, shape.cpu), self.nic(rank, shape.nic));
        let free_ns = self.cpu_ns[cpu].max(self.send_ns[nic]);
        if free_ns > time_ns {
            return self.put_back(free_ns, inserted, i, false);
        }
        self.starts(i);
        let cost = self.costs[o.shape()];
        self.cpu_ns[cpu] = self.work(rank, shape.cpu, time_ns, cost.send_ns);
        self.send_ns[nic] = time_ns.wrapping_add(cost.gap_ns);
        let latency = self.network.latency_ns(rank, o.peer);
        self.insert(time_ns + cost.overhead_ns + latency, i, true);
        if cost.rendezvous {
            self.begun[i] = true;
        } else {
            self.ends(i);
        }
    }

    /// The program has reached a receive.
    fn recv(&mut self, time_ns: u64, i: usize) -> Result<(), EventError> {
        self.starts(i);
        self.begun[i] = true;
        let o = self.schedule.operations[i];
        let (rank, channel, receive) = (self.rank_of[i], self.channel_of[i], i as u32);
        let found = if self.schedule.links[i].partner() == Partner::Any {
            self.open.entry(rank).or_default().post(o.peer, o.tag, receive).map(|l| l.send)
        } else {
            let message = self.channels.take(channel, false);
            if message.is_none() {
                self.channels.wait(channel, receive, true);
            }
            message
        };
        let Some(send) = found else { return Ok(()) };
        check_sizes(self.schedule, receive, send)?;
        if self.costs[self.schedule.operations[send as usize].shape()].rendezvous {
            let shape = self.shape(i);
            self.release(time_ns, send as usize, shape.cpu, shape.nic);
        }
        self.ends(i);
        Ok(())
    }

    /// A message has arrived, or waits for CPU and interface; `i` is its send.
    fn message(&mut self, time_ns: u64, inserted: u32, i: usize) -> Result<(), EventError> {
        let (from, o, shape) = (self.rank_of[i], self.schedule.operations[i], self.shape(i));
        let rank = o.peer;
        let (cpu, nic) = (self.cpu(rank, shape.cpu), self.nic(rank, shape.nic));
        let free_ns = self.cpu_ns[cpu].max(self.recv_ns[nic]);
        if free_ns > time_ns {
            self.put_back(free_ns, inserted, i, true);
            return Ok(());
        }
        let cost = self.costs[o.shape()];
        let taken_ns = self.work(rank, shape.cpu, time_ns, cost.overhead_ns);
        self.cpu_ns[cpu] = taken_ns.wrapping_add(cost.recv_more_ns);
        self.recv_ns[nic] = time_ns.wrapping_add(cost.gap_ns);
        let (channel, send) = (self.channel_of[i], i as u32);
        let found = if self.schedule.links[i].partner() == Partner::Any {
            self.open.entry(rank).or_default().arrive(Letter { from, tag: o.tag, send })
        } else {
            let receive = self.channels.take(channel, true);
            if receive.is_none() {
                self.channels.wait(channel, send, false);
            }
            receive
        };
        let Some(receive) = found else { return Ok(()) };
        check_sizes(self.schedule, receive, send)?;
        if cost.rendezvous {
            self.release(time_ns, i, shape.cpu, shape.nic);
        }
        self.ends(receive as usize);
        Ok(())
    }

    /// A rendezvous send is done; LogGOPSim looks at the CPU and the interface that the end named last has.
    fn release(&mut self, time_ns: u64, send: usize, cpu: u8, nic: u8) {
        let from = self.rank_of[send];
        let (cpu, nic) = (self.cpu(from, cpu), self.nic(from, nic));
        self.cpu_ns[cpu] = self.cpu_ns[cpu].max(time_ns);
        self.send_ns[nic] = self.send_ns[nic].max(time_ns);
        self.ends(send);
    }

    fn finish(self) -> Result<Outcome, EventError> {
        if let Some(rank) = self.noise.as_ref().and_then(Cpus::starved) {
            return Err(EventError::Starved { rank });
        }
        if self.left > 0 {
            return Err(deadlock(self.schedule, |i| self.begun[i] && !self.done[i]));
        }
        unreceived(&self.open)?;
        let end = |c: &[u64]| c.iter().max().map_or(0, |&e| e.wrapping_sub(self.begin_ns));
        let ends_ns = self.cpu_ns.chunks(self.cpus).map(end).collect();
        Ok(Outcome { ends_ns, events: self.schedule.operations() + self.schedule.messages() })
    }
}

/// The channel of each send and receive, one for each pair of ranks and tag, and how many there are.
fn channels(s: &Schedule) -> (Vec<u32>, u32) {
    let mut of = vec![u32::MAX; s.operations() as usize];
    let mut channels = s.channels;
    let mut group: Vec<((u32, u32), usize)> = Vec::new();
    for rank in 0..s.ranks() {
        group.clear();
        for i in s.range(rank) {
            let o = &s.operations[i];
            match s.links[i].partner() {
                Partner::Channel(n) => of[i] = n,
                Partner::Operation(_) if s.shapes[o.shape()].kind == Kind::Recv => {
                    group.push(((o.peer, o.tag), i));
                }
                _ => {}
            }
        }
        group.sort_unstable();
        for same in group.chunk_by(|a, b| a.0 == b.0) {
            for &((from, _), i) in same {
                of[i] = channels;
                if let Partner::Operation(send) = s.links[i].partner() {
                    of[s.first[from as usize] as usize + send as usize] = channels;
                }
            }
            channels += 1;
        }
    }
    (of, channels)
}
