// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests: what is done with each, and calls that wait.

use std::io;

use colony_fship::message::own;
use colony_fship::{Errno, Request};

use super::{Worker, token};
use crate::control::Report;
use crate::worker::calls::{Exec, Step};
use crate::worker::waits::{Progress, Wait};
use crate::worker::{image, start};
use crate::{Rule, control};

impl Worker {
    /// Answers a call of a process on channel `c`.
    pub(super) fn answer(&mut self, p: usize, c: usize, seq: u32, result: i64) -> io::Result<()> {
        let Some(placed) = &mut self.processes[p] else { return Ok(()) };
        let n = placed.node;
        let raised = std::mem::take(&mut placed.process.raised);
        for signal in (1..=64).filter(|s| raised >> (s - 1) & 1 != 0) {
            self.nodes[n].signal(placed.channel, signal);
        }
        self.nodes[n].reply(c, seq, result).or_else(|rule| self.misbehaved(n, rule))
    }

    /// A request of channel `c` of node `n`.
    pub(super) fn request(&mut self, n: usize, c: usize, request: Request) -> io::Result<()> {
        let order = |what: &str| Rule::Order(what.to_owned());
        let process = self.nodes[n].channels[c].process;
        let (seq, args) = (request.seq, &request.args);
        let done = match (request.call, process) {
            (own::NEXT_JOB, _) => Err(order("a job")),
            // the kernel waits for no reply to these four
            (own::LOG, _) => {
                self.nodes[n].forgo(c);
                match self.nodes[n].log(args[0], args[1]) {
                    Some(text) => {
                        control::send(&self.control, &Report::Log { node: self.nodes[n].number, text })?
                    }
                    None => return self.misbehaved(n, order("words beyond the log")),
                }
                Ok(())
            }
            (own::EXIT | own::FAULT, Some(p)) => return self.ended(p, c, &request),
            (own::CANCEL, _) => {
                self.nodes[n].forgo(c);
                if let Some(id) = process.and_then(|p| self.queue.find(p, c, args[0] as u32)) {
                    self.interrupt(id)?;
                }
                Ok(())
            }
            (own::NOP, _) => self.nodes[n].reply(c, seq, 0),
            (own::EXIT | own::FAULT, None) => Err(order("the end of a process")),
            (_, Some(p)) => return self.call(p, c, request, Progress::default()),
            (call, None) => Err(order(&format!("call {call}"))),
        };
        done.or_else(|rule| self.misbehaved(n, rule))
    }

    /// Makes a call, or makes it again.
    pub(super) fn call(
        &mut self,
        p: usize,
        c: usize,
        request: Request,
        mut progress: Progress,
    ) -> io::Result<()> {
        let Some(placed) = &mut self.processes[p] else { return Ok(()) };
        let step = self.world.call(&mut placed.process, &request, &mut progress);
        match step {
            Ok(Step::Done(result)) => self.answer(p, c, request.seq, result),
            Ok(Step::Wait(wait)) => self.wait(p, c, request, progress, &wait),
            Ok(Step::Exec(exec)) => self.exec(p, c, &request, *exec),
            Err(rule) => {
                let node = placed.node;
                self.misbehaved(node, rule)
            }
        }
    }

    pub(super) fn wait(
        &mut self,
        p: usize,
        c: usize,
        request: Request,
        mut progress: Progress,
        wait: &Wait,
    ) -> io::Result<()> {
        progress.again = true;
        let seq = request.seq;
        match self.queue.add((p, c), request, progress, wait, &self.epoll, |id| token::WAITING | id) {
            Ok(()) => Ok(()),
            // out of descriptors: the program hears of it, the others go on
            Err(e) => self.answer(p, c, seq, crate::worker::process::errno(&e).result()),
        }
    }

    pub(super) fn again(&mut self, id: u64) -> io::Result<()> {
        match self.queue.take(id) {
            Some(w) => self.call(w.process, w.channel, w.request, w.progress),
            None => Ok(()),
        }
    }

    /// Replaces the image of a process.
    pub(super) fn exec(&mut self, p: usize, c: usize, request: &Request, exec: Exec) -> io::Result<()> {
        let Some(placed) = &mut self.processes[p] else { return Ok(()) };
        let (n, bank_of) = (placed.node, placed.channel);
        let bank = placed.process.bank;
        let mut block: colony_fship::layout::JobBlock =
            self.nodes[n].window.get(colony_fship::layout::JOB_AT);
        // who the process is comes from the job, not from what a node may have written there
        let mut new = colony_fship::layout::Process::default();
        start::identify(&mut new, &self.setup, placed.process.rank);
        let placing = bank.clear().map_err(|e| e.to_string()).and_then(|()| {
            image::place(&exec.opened.file, &exec.opened.program, &exec.start, &bank, &mut new)
                .map_err(|e| e.to_string())
        });
        if placing.is_err() {
            // as on Linux beyond the point of no return: the signal is delivered on the way back
            self.signal(p, libc::SIGKILL as u32);
            return self.answer(p, c, request.seq, Errno::EIO.result());
        }
        block.processes[bank_of] = new;
        self.nodes[n].window.put(colony_fship::layout::JOB_AT, &block);
        placed.process.files.close_on_exec();
        placed.process.executable = exec.opened.path;
        self.answer(p, c, request.seq, 0)
    }
}
