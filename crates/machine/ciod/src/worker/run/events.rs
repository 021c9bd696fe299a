// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of the worker beside requests: bells, descriptors, outputs, the supervisor.

use std::io;
use std::time::{Duration, Instant};

use colony_fship::layout::CHANNELS;
use nix::poll::PollTimeout;
use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use super::{UNHEARD, Worker, token};
use crate::control::{DRAIN, Order};
use crate::worker::node::{Node, Stage};
use crate::{JobError, control};

impl Worker {
    /// The next time at which something is due that no descriptor signals.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let kills = self.processes.iter().flatten().filter_map(|p| p.deadline);
        let ends = self.nodes.iter().filter(|n| n.stage == Stage::Ended).filter_map(|n| n.deadline);
        let unheard = self.nodes.iter().any(Node::is_unheard).then(|| self.now + UNHEARD);
        kills.chain(ends).chain(unheard).chain(self.deadline).chain(self.queue.next(self.now)).min()
    }

    /// Waits for bells and descriptors until then.
    pub(super) fn poll_events(&mut self, until: Option<Instant>) -> io::Result<()> {
        self.listen_to_outputs()?;
        let timeout = match until {
            None => EpollTimeout::NONE,
            Some(at) => match at.saturating_duration_since(self.now) {
                Duration::ZERO => EpollTimeout::ZERO,
                // rounded up: an early look would find nothing
                left => EpollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(EpollTimeout::MAX),
            },
        };
        let mut events = [EpollEvent::empty(); 64];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(nix::Error::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        self.now = Instant::now();
        for node in self.nodes.iter_mut().filter(|n| n.is_unheard()) {
            for c in (0..CHANNELS).filter(|&c| node.asks(c)).collect::<Vec<_>>() {
                node.wake(c, self.now);
            }
        }
        for event in &events[..count] {
            let data = event.data();
            let number = data & !token::KIND;
            match data & token::KIND {
                token::CONTROL => self.order()?,
                token::NODE => {
                    let node = &mut self.nodes[number as usize];
                    let mut count = [0; 8];
                    let _ = nix::unistd::read(&node.bell, &mut count);
                    node.heard = true;
                    (0..CHANNELS).for_each(|c| node.wake(c, self.now));
                }
                token::OUTPUT => self.flush(number as usize)?,
                _ => self.again(number)?,
            }
        }
        Ok(())
    }

    pub(super) fn listen_to_outputs(&mut self) -> io::Result<()> {
        for n in 0..2 {
            let output = &self.world.outputs[n];
            if output.waits() != self.listened[n] {
                let event = EpollEvent::new(EpollFlags::EPOLLOUT, token::OUTPUT | n as u64);
                let done = if self.listened[n] {
                    self.epoll.delete(output.fd())
                } else {
                    self.epoll.add(output.fd(), event)
                };
                match done {
                    Ok(()) => {}
                    // a regular file, which always takes what it can: its disk may be full
                    Err(nix::Error::EPERM) => {
                        while self.world.outputs[n].waits() {
                            self.flush(n)?;
                        }
                        continue;
                    }
                    Err(e) => return Err(e.into()),
                }
                self.listened[n] = !self.listened[n];
            }
        }
        Ok(())
    }

    pub(super) fn flush(&mut self, n: usize) -> io::Result<()> {
        self.world.outputs[n].flush();
        for id in self.queue.for_output(n) {
            self.again(id)?;
        }
        Ok(())
    }

    /// The reader of the output has some time to take the rest.
    pub(super) fn drain(&mut self) {
        let deadline = Instant::now() + DRAIN;
        for output in &mut self.world.outputs {
            while output.waits() {
                let left = deadline.saturating_duration_since(Instant::now());
                let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                let mut fds = [nix::poll::PollFd::new(output.fd(), nix::poll::PollFlags::POLLOUT)];
                match nix::poll::poll(&mut fds, timeout) {
                    Ok(0) => break,
                    _ => output.flush(),
                }
            }
        }
    }

    /// Takes an order of the supervisor; the job ends at once if the supervisor has ended.
    pub(super) fn order(&mut self) -> io::Result<()> {
        match control::receive(&self.control)? {
            Some(Order::Start) => self.start(),
            Some(Order::Signal { signal: signal @ 1..=64, ranks }) if self.started => {
                self.signal_ranks(signal, ranks.as_deref());
                Ok(())
            }
            Some(Order::Signal { signal: signal @ 1..=64, ranks }) => {
                if signal == libc::SIGKILL as u32 {
                    let why = || JobError::System("the job was killed before it started".into());
                    self.error.get_or_insert_with(why);
                } else {
                    self.early.push((signal, ranks));
                }
                Ok(())
            }
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}
