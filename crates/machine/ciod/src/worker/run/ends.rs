// SPDX-License-Identifier: MIT OR Apache-2.0
//! The beginning and the end of processes, and of nodes that misbehave.

use std::io;
use std::time::Instant;

use colony_fship::layout::CHANNELS;
use colony_fship::message::own;
use colony_fship::ring::SLOTS;
use colony_fship::{Errno, Request};

use super::{Placed, Worker};
use crate::control::Report;
use crate::outcome::{Counters, End, ProcessOutcome};
use crate::worker::files;
use crate::worker::node::{Stage, describe};
use crate::worker::output::label;
use crate::worker::start::Job;
use crate::{JobError, Rule, control};

impl Worker {
    /// Tells a process of a signal. Its kernel knows whether that ends a call that waits, and says so.
    pub(super) fn signal(&mut self, p: usize, signal: u32) {
        let Some(placed) = &mut self.processes[p] else { return };
        if signal == libc::SIGKILL as u32 && placed.deadline.is_none() {
            placed.deadline = self.now.checked_add(self.grace);
        }
        let (node, channel) = (placed.node, placed.channel);
        self.nodes[node].signal(channel, signal);
    }

    /// Tells the processes of these ranks of a signal, or all.
    pub(super) fn signal_ranks(&mut self, signal: u32, ranks: Option<&[u32]>) {
        for p in 0..self.processes.len() {
            let rank = self.processes[p].as_ref().map(|p| p.process.rank);
            if rank.is_some_and(|r| ranks.is_none_or(|all| all.contains(&r))) {
                self.signal(p, signal);
            }
        }
    }

    /// Ends a call that waits.
    pub(super) fn interrupt(&mut self, id: u64) -> io::Result<()> {
        let Some(waiting) = self.queue.take(id) else { return Ok(()) };
        let done = waiting.progress.done;
        let result = if done > 0 { done as i64 } else { Errno::EINTR.result() };
        self.answer(waiting.process, waiting.channel, waiting.request.seq, result)
    }

    pub(super) fn deadlines(&mut self) -> io::Result<()> {
        for p in 0..self.processes.len() {
            let Some(placed) = &self.processes[p] else { continue };
            if placed.deadline.is_some_and(|at| at <= self.now) {
                let node = placed.node;
                self.lost(node, JobError::NodeUnresponsive(self.nodes[node].number))?;
            }
        }
        for n in 0..self.nodes.len() {
            let node = &self.nodes[n];
            if node.stage == Stage::Ended && node.deadline.is_some_and(|at| at <= self.now) {
                self.lost(n, JobError::NodeUnresponsive(node.number))?;
            }
        }
        if self.deadline.is_none_or(|at| at > self.now) {
            return Ok(());
        }
        self.deadline = None;
        if !self.started {
            let late = self.nodes.iter().find(|n| n.stage == Stage::Booting);
            self.error = late.map(|n| JobError::NodeNotReady(n.number));
            return Ok(());
        }
        if let Some(seconds) = self.setup.spec.timeout_s
            && self.error.is_none()
            && self.processes.iter().any(Option::is_some)
        {
            self.error = Some(JobError::Timeout { seconds });
            self.kill_all();
        }
        Ok(())
    }

    pub(super) fn kill_all(&mut self) {
        (0..self.processes.len()).for_each(|p| self.signal(p, libc::SIGKILL as u32));
    }

    /// A node asks for work; its request stays in the ring until it can be answered, by this worker or the next.
    pub(super) fn asked(&mut self, n: usize) -> io::Result<()> {
        // nothing runs there: what another channel still asks for would be taken for a call of the next process
        for other in 1..CHANNELS {
            self.drop_requests(n, other)?;
        }
        match self.nodes[n].stage {
            Stage::Booting => self.nodes[n].stage = Stage::Ready,
            Stage::Ended => {
                self.nodes[n].stage = Stage::Idle;
                return Ok(());
            }
            _ => return Ok(()),
        }
        if self.error.is_none() && self.nodes.iter().all(|n| n.stage == Stage::Ready) {
            match self.load() {
                Ok(loaded) => {
                    (self.loaded, self.deadline) = (Some(loaded), None);
                    control::send(&self.control, &Report::Ready)?;
                }
                Err(error) => self.error = Some(error),
            }
        }
        Ok(())
    }

    /// All nodes are ready: loads all programs.
    fn load(&self) -> Result<Vec<Placed>, JobError> {
        let mut loaded = Vec::new();
        for (n, node) in self.nodes.iter().enumerate() {
            node.forget_signals();
            for (channel, mut process) in self.job.place(&self.setup, n, node)?.into_iter().enumerate() {
                let outputs = [self.world.outputs[0].fd(), self.world.outputs[1].fd()];
                self.job.streams(&mut process, &self.stdin, outputs)?;
                let own = files::of_rank(&self.setup.spec, process.rank)?;
                for (n, file) in own.into_iter().enumerate().filter_map(|(n, file)| Some((n, file?))) {
                    process.files.put(n + 1, file);
                }
                loaded.push(Placed { process, node: n, channel, deadline: None });
            }
        }
        Ok(loaded)
    }

    /// The nodes of the job's other workers are ready, too: lets all programs go.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let Some(loaded) = self.loaded.take().filter(|_| self.error.is_none()) else { return Ok(()) };
        // from here on the job runs: what goes wrong with one node is told with its processes
        self.started = true;
        let timeout = self.setup.spec.timeout().ok().flatten();
        self.deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        let mut counts = vec![0; self.nodes.len()];
        loaded.iter().for_each(|p| counts[p.node] += 1);
        for p in loaded {
            let number = Some(self.processes.len());
            let alone = counts[p.node] == 1;
            for (c, channel) in self.nodes[p.node].channels.iter_mut().enumerate() {
                // the threads of a process that is alone run on all CPUs, those of two on every other one
                if alone || c % counts[p.node] == p.channel {
                    channel.process = number;
                }
            }
            self.processes.push(Some(p));
        }
        for n in 0..self.nodes.len() {
            (0..CHANNELS).for_each(|c| self.nodes[n].wake(c, self.now));
            if self.nodes[n].channels.iter().all(|c| c.process.is_none()) {
                self.nodes[n].stage = Stage::Idle;
                continue;
            }
            Job::set_clock(&self.nodes[n]);
            if let Err(why) = self.nodes[n].begin() {
                self.lost(n, why)?;
            }
        }
        for (signal, ranks) in std::mem::take(&mut self.early) {
            self.signal_ranks(signal, ranks.as_deref());
        }
        control::send(&self.control, &Report::Started)
    }

    /// A process has ended.
    pub(super) fn ended(&mut self, p: usize, c: usize, request: &Request) -> io::Result<()> {
        let Some(placed) = &self.processes[p] else { return Ok(()) };
        let [status, timer, other, local, shipped, faults] = request.args;
        let n = placed.node;
        let signal = (status & 0x7f) as i32;
        let end = if signal == 0 { End::Exited((status >> 8 & 0xff) as i32) } else { End::Signaled(signal) };
        let crash = (request.call == own::FAULT).then(|| describe(&self.nodes[n].crash(c)));
        let counters = Counters {
            timer_interrupts: timer,
            other_interrupts: other,
            local_calls: local,
            shipped_calls: shipped,
            faults,
        };
        let broken = signal != 0;
        self.remove(p, end, counters, crash)?;
        for channel in self.nodes[n].channels.iter_mut().filter(|c| c.process == Some(p)) {
            (channel.process, channel.open) = (None, 0);
        }
        if self.nodes[n].channels.iter().all(|c| c.process.is_none()) {
            self.nodes[n].stage = Stage::Ended;
            // the node has as long to ask for work as to end a process
            self.nodes[n].deadline = self.now.checked_add(self.grace);
        }
        if broken && !self.setup.spec.go_on {
            self.kill_all();
        }
        Ok(())
    }

    /// Takes requests of channel `c` of a node whose processes have ended: a request for work, and before that requests
    /// of another thread that was stopped, which nobody waits for.
    pub(super) fn left_over(&mut self, n: usize, c: usize) -> io::Result<()> {
        self.drop_requests(n, c)?;
        if c == 0 && self.nodes[n].wants_job() { self.asked(n) } else { Ok(()) }
    }

    /// Drops what a channel asks for, but work and what the kernel says itself.
    fn drop_requests(&mut self, n: usize, c: usize) -> io::Result<()> {
        for _ in 0..SLOTS {
            if c == 0 && self.nodes[n].wants_job() {
                break;
            }
            match self.nodes[n].take(c) {
                Ok(Some(request)) if request.call == own::LOG => self.request(n, c, request)?,
                Ok(Some(_)) => self.nodes[n].forgo(c),
                Ok(None) => break,
                Err(rule) => return self.misbehaved(n, rule),
            }
        }
        Ok(())
    }

    /// Closes what a process had, and tells how it ended.
    pub(super) fn remove(
        &mut self,
        p: usize,
        end: End,
        counters: Counters,
        crash: Option<String>,
    ) -> io::Result<()> {
        for id in self.queue.of(p) {
            self.queue.take(id);
        }
        let Some(mut placed) = self.processes[p].take() else { return Ok(()) };
        let rank = placed.process.rank;
        for (n, unfinished) in placed.process.lines.iter_mut().enumerate() {
            let rest = label(rank, unfinished, &[], true);
            let _ = self.world.outputs[n].write(&rest);
        }
        let node = self.nodes[placed.node].number;
        let outcome = ProcessOutcome { rank, node, end, counters, crash };
        control::send(&self.control, &Report::Ended(Box::new(outcome)))
    }

    pub(super) fn misbehaved(&mut self, n: usize, rule: Rule) -> io::Result<()> {
        let node = self.nodes[n].number;
        self.lost(n, JobError::NodeMisbehaved { node, rule })
    }

    /// Expects nothing more of a node: its processes are over.
    pub(super) fn lost(&mut self, n: usize, why: JobError) -> io::Result<()> {
        if self.nodes[n].stage == Stage::Lost {
            return Ok(());
        }
        self.nodes[n].stage = Stage::Lost;
        control::send(&self.control, &Report::Lost { node: self.nodes[n].number })?;
        for c in 0..CHANNELS {
            if let Some(p) = self.nodes[n].channels[c].process.take()
                && self.processes[p].is_some()
            {
                self.remove(p, End::Lost(why.clone()), Counters::default(), None)?;
            }
        }
        if !self.started {
            self.error.get_or_insert(why);
        } else if !self.setup.spec.go_on {
            self.kill_all();
        }
        Ok(())
    }
}
