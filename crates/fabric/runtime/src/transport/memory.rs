// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that are threads of one process, for tests of programs: messages are packed as between processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use super::{Transport, TransportError};

type Frame = (u32, Vec<u8>);

/// One of several ranks of a process.
#[derive(Debug)]
pub struct Memory {
    rank: u32,
    to: Vec<Sender<Frame>>,
    from: Receiver<Frame>,
    waiting: Option<Frame>,
    aborted: Arc<AtomicU32>,
    end: Arc<Barrier>,
}

impl Memory {
    /// All ranks of a job.
    #[must_use]
    pub fn ranks(size: u32) -> Vec<Self> {
        let (to, from): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        let aborted = Arc::new(AtomicU32::new(0));
        let end = Arc::new(Barrier::new(size as usize));
        let one = |(rank, from)| Self {
            rank,
            to: to.clone(),
            from,
            waiting: None,
            aborted: Arc::clone(&aborted),
            end: Arc::clone(&end),
        };
        (0..size).zip(from).map(one).collect()
    }

    fn check(&self) -> Result<(), TransportError> {
        match self.aborted.load(Ordering::Acquire) {
            0 => Ok(()),
            by => Err(TransportError::Lost(format!("rank {} has failed", by - 1))),
        }
    }
}

impl Transport for Memory {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.to.len() as u32
    }

    fn name(&self) -> &'static str {
        "memory"
    }

    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        // a rank that has ended needs it no more
        let _ = self.to[to as usize].send((self.rank, std::mem::take(frame)));
        Ok(())
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        self.check()?;
        let mut any = false;
        while let Some((from, frame)) = self.waiting.take().or_else(|| self.from.try_recv().ok()) {
            deliver(from, &frame);
            any = true;
        }
        Ok(any)
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        self.check()?;
        match self.from.recv_timeout(limit) {
            Ok(frame) => self.waiting = Some(frame),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        self.check()?;
        self.end.wait();
        Ok(())
    }

    fn abort(&mut self, _code: i32) {
        let _ = self.aborted.compare_exchange(0, self.rank + 1, Ordering::AcqRel, Ordering::Relaxed);
    }
}
