// SPDX-License-Identifier: MIT OR Apache-2.0
//! The torus: the memory window that compute nodes share.

use std::collections::VecDeque;
use std::time::Duration;

use colony_torus::Torus;

use super::{Transport, TransportError};

/// A rank of a job on compute nodes.
#[derive(Debug)]
pub struct TorusTransport {
    torus: Torus,
    /// Frames on their way to each rank, and the bytes of the first that are sent.
    output: Vec<(VecDeque<Vec<u8>>, usize)>,
    /// The frame that is arriving from each rank.
    input: Vec<Vec<u8>>,
}

fn failed(doing: &str) -> impl FnOnce(colony_torus::Error) -> TransportError + use<'_> {
    move |e| match e {
        colony_torus::Error::Aborted { .. } => TransportError::Lost(e.to_string()),
        e => TransportError::Failed { doing: doing.to_owned(), reason: e.to_string() },
    }
}

impl TorusTransport {
    /// Returns `true` if the environment names a window.
    #[must_use]
    pub fn is_launched() -> bool {
        std::env::var_os("COLONY_TORUS").is_some()
    }

    /// Joins the window that the environment names, see [`Torus::join`].
    ///
    /// # Errors
    /// [`TransportError`].
    pub fn join() -> Result<Self, TransportError> {
        Torus::join().map(Self::new).map_err(failed("joining the torus"))
    }

    /// On a torus that this process has joined.
    #[must_use]
    pub fn new(torus: Torus) -> Self {
        let ranks = torus.size();
        let output = (0..ranks).map(|_| (VecDeque::new(), 0)).collect();
        Self { torus, output, input: vec![Vec::new(); ranks] }
    }

    /// Puts what there is room for into the rings.
    fn push(&mut self) -> Result<(), TransportError> {
        for (to, (frames, sent)) in self.output.iter_mut().enumerate() {
            while let Some(frame) = frames.front() {
                let rest = &frame[*sent..];
                let packet = &rest[..rest.len().min(Torus::PACKET_BYTES)];
                let more = packet.len() < rest.len();
                if !self.torus.try_send(to, packet, more).map_err(failed("sending on the torus"))? {
                    break;
                }
                *sent += packet.len();
                if !more {
                    frames.pop_front();
                    *sent = 0;
                }
            }
        }
        Ok(())
    }
}

impl Transport for TorusTransport {
    fn rank(&self) -> u32 {
        self.torus.rank() as u32
    }

    fn size(&self) -> u32 {
        self.torus.size() as u32
    }

    fn name(&self) -> &'static str {
        "torus"
    }

    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        self.output[to as usize].0.push_back(std::mem::take(frame));
        self.push()
    }

    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        self.push()?;
        let mut any = false;
        for from in 0..self.input.len() {
            let input = &mut self.input[from];
            while let Some(more) =
                self.torus.try_recv(from, input).map_err(failed("receiving on the torus"))?
            {
                if !more {
                    deliver(from as u32, input);
                    input.clear();
                    any = true;
                }
            }
        }
        if !any {
            self.torus.check_abort().map_err(failed("looking for messages on the torus"))?;
        }
        Ok(any)
    }

    fn wait(&mut self, _limit: Duration) -> Result<(), TransportError> {
        // nobody rings: a rank that waits looks, and leaves the CPU to others between two looks
        std::thread::yield_now();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        while self.output.iter().any(|(frames, _)| !frames.is_empty()) {
            self.poll(&mut |_, _| {})?;
        }
        self.torus.world().barrier().map_err(failed("leaving the torus"))
    }

    fn abort(&mut self, _code: i32) {
        self.torus.abort();
    }
}
