// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections of a PE to the others: channels inside the process, a transport to other processes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use crate::logging::log::Log;
use crate::parcel::{DETERMINANTS, EPOCH, Encoded, Parcel};
use crate::transport::{Single, Transport, TransportError};

/// Mail of a PE from its process.
pub(crate) enum Mail {
    /// A parcel of another PE of the process.
    Parcel(Parcel),
    /// The bytes of a parcel that another process has sent, with their kind.
    Encoded(u8, Vec<u8>),
    /// The process ends because of a failure that has been reported.
    Stop,
}

/// Where frames for other processes go.
pub(crate) enum Remote {
    /// Into the transport, which this PE polls.
    Own(Box<dyn Transport>),
    /// To the thread that polls the transport.
    Thread(Sender<(u32, Vec<u8>)>),
}

/// The frames that are being filled, by rank. A frame is sent once it has this many bytes.
const FRAME_BYTES: usize = 16 << 10;

/// The connections of one PE.
pub(crate) struct Port {
    pub(crate) pe: u32,
    /// All PEs of the job.
    pub(crate) pes: u32,
    /// PEs of each process.
    pub(crate) threads: u32,
    /// To the PEs of this process, this one included; empty if it is the only one.
    pub(crate) siblings: Vec<Sender<Mail>>,
    pub(crate) inbox: Option<Receiver<Mail>>,
    pub(crate) remote: Remote,
    frames: Vec<Vec<u8>>,
    filled: Vec<u32>,
    /// The transport is delivering frames, and takes none.
    pub(crate) is_polling: bool,
    /// The log of messages, if the program may keep one.
    pub(crate) log: Option<Box<Log>>,
}

impl Port {
    pub(crate) fn new(
        pe: u32,
        (pes, threads): (u32, u32),
        siblings: Vec<Sender<Mail>>,
        inbox: Option<Receiver<Mail>>,
        remote: Remote,
    ) -> Self {
        let ranks = pes / threads.max(1);
        let frames = (0..ranks).map(|_| Vec::new()).collect();
        let (filled, is_polling, log) = (Vec::new(), false, None);
        Self { pe, pes, threads, siblings, inbox, remote, frames, filled, is_polling, log }
    }

    /// Takes the transport out, if this PE polls it.
    pub(crate) fn take_transport(&mut self) -> Option<Box<dyn Transport>> {
        match std::mem::replace(&mut self.remote, Remote::Own(Box::new(Single))) {
            Remote::Own(transport) => Some(transport),
            thread @ Remote::Thread(_) => {
                self.remote = thread;
                None
            }
        }
    }

    /// The process of a PE.
    #[inline]
    pub(crate) fn rank_of(&self, pe: u32) -> u32 {
        if self.threads == 1 { pe } else { pe / self.threads }
    }

    /// Returns `true` if a PE is in this process.
    #[inline]
    pub(crate) fn is_here(&self, pe: u32) -> bool {
        self.rank_of(pe) == self.rank_of(self.pe)
    }

    /// Gives a parcel to a PE of this process. A PE that has ended needs it no more.
    pub(crate) fn give(&self, pe: u32, parcel: Parcel) {
        if let Some(sibling) = self.siblings.get((pe % self.threads) as usize) {
            let _ = sibling.send(Mail::Parcel(parcel));
        }
    }

    /// The frame for a process, to which a parcel's bytes are appended.
    #[inline]
    pub(crate) fn frame(&mut self, rank: u32) -> &mut Vec<u8> {
        let frame = &mut self.frames[rank as usize];
        if frame.is_empty() {
            self.filled.push(rank);
        }
        frame
    }

    /// Marks the first parcel of an epoch to a process, before it is appended.
    #[inline]
    pub(crate) fn mark_epoch(&mut self, rank: u32) {
        if let Some(epoch) = self.log.as_mut().and_then(|log| log.mark(rank)) {
            let bytes = &epoch.to_le_bytes();
            Encoded { kind: EPOCH, bytes }.append_to(self.frame(rank));
        }
    }

    /// Logs the parcel with which a frame ends, from byte `begin` on. A PE that runs again only logs it: it may have been
    /// received.
    #[inline]
    pub(crate) fn log_parcel(&mut self, rank: u32, begin: usize) {
        let Self { log: Some(log), frames, .. } = self else { return };
        let frame = &mut frames[rank as usize];
        log.keep(rank, &frame[begin..]);
        if log.is_repeating() {
            frame.truncate(begin);
        }
    }

    /// Drops all frames: their process has died, or they are in the log.
    pub(crate) fn clear_frames(&mut self) {
        self.filled.clear();
        self.frames.iter_mut().for_each(Vec::clear);
    }

    /// Sends a frame that is long enough, unless frames are being delivered.
    pub(crate) fn flush_if_long(&mut self, rank: u32) -> Result<(), TransportError> {
        let is_long = self.frames[rank as usize].len() >= FRAME_BYTES && !self.is_polling;
        if is_long { self.flush_one(rank) } else { Ok(()) }
    }

    fn flush_one(&mut self, rank: u32) -> Result<(), TransportError> {
        let frame = &mut self.frames[rank as usize];
        if frame.is_empty() {
            return Ok(());
        }
        if let Some((first, determinants)) = self.log.as_mut().and_then(|log| log.give(rank)) {
            let bytes = postcard::to_allocvec(&(first, determinants)).map_err(|error| {
                let doing = "packing the log of messages".to_owned();
                TransportError::Failed { doing, reason: error.to_string() }
            })?;
            Encoded { kind: DETERMINANTS, bytes: &bytes }.append_to(frame);
        }
        match &mut self.remote {
            Remote::Own(transport) => transport.send(rank, frame),
            Remote::Thread(thread) => {
                let _ = thread.send((rank, std::mem::take(frame)));
                Ok(())
            }
        }
    }

    /// Sends all frames.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), TransportError> {
        while let Some(rank) = self.filled.pop() {
            self.flush_one(rank)?;
        }
        Ok(())
    }

    /// The next mail of this process, if there is any.
    #[inline]
    pub(crate) fn mail(&self) -> Option<Mail> {
        match self.inbox.as_ref()?.try_recv() {
            Ok(mail) => Some(mail),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Mail::Stop),
        }
    }

    /// Waits for mail or a frame, at most for `limit`. Returns the mail if there is any.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<Mail>, TransportError> {
        match (&mut self.remote, &self.inbox) {
            (_, Some(inbox)) => match inbox.recv_timeout(limit) {
                Ok(mail) => Ok(Some(mail)),
                Err(RecvTimeoutError::Timeout) => Ok(None),
                Err(RecvTimeoutError::Disconnected) => Ok(Some(Mail::Stop)),
            },
            (Remote::Own(transport), None) => transport.wait(limit).map(|()| None),
            (Remote::Thread(_), None) => Ok(None),
        }
    }
}
