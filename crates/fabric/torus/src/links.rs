// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packets that a rank sends and takes: none of its operations waits.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::arrivals::Arrivals;
use crate::inbox::Inbox;
use crate::packet::{Kind, Packet};
use crate::{Error, Window};

/// The links of a rank to all ranks.
#[derive(Debug)]
pub(crate) struct Links {
    window: Arc<Window>,
    rank: usize,
    /// The sender's end of the link to each rank.
    to: Vec<Cell<Peer>>,
    /// Packets taken from this rank's inbox.
    taken: Cell<u64>,
    arrivals: RefCell<Arrivals>,
}

/// The sender's end of a link.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// How far the reader of its inbox was.
    seen: u64,
    /// Packets that may be sent.
    credits: usize,
}

/// Packets that are taken from the inbox before the program goes on.
const BURST: u32 = 1024;

impl Links {
    /// Of a rank that has joined.
    pub(crate) fn new(window: Arc<Window>, rank: usize) -> Self {
        let layout = window.layout();
        let (ranks, credits) = (layout.dims().ranks(), layout.credits());
        let to = (0..ranks).map(|_| Cell::new(Peer { seen: 0, credits })).collect();
        let arrivals = RefCell::new(Arrivals::new(ranks, credits));
        Self { window, rank, to, taken: Cell::new(0), arrivals }
    }

    pub(crate) const fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }

    /// A rank whose next packet is here.
    pub(crate) fn arrived(&self) -> Result<Option<usize>, Error> {
        if let Some(rank) = self.arrivals.borrow().any() {
            return Ok(Some(rank));
        }
        Ok(self.head()?.map(|packet| packet.from))
    }

    fn inbox(&self, rank: usize) -> Inbox<'_, AtomicU64> {
        Inbox::new(self.window.words(self.window.layout().inbox(rank)))
    }

    fn change(&self, peer: usize, change: impl FnOnce(&mut Peer)) {
        let mut value = self.to[peer].get();
        change(&mut value);
        self.to[peer].set(value);
    }

    /// Puts a packet into the inbox of a rank; `false` if there is no room now.
    fn put(&self, to: usize, packet: Packet, bytes: &[u8]) -> Result<bool, Error> {
        let mut peer = self.to[to].get();
        let put = self.inbox(to).push(&mut peer.seen, packet, bytes);
        self.to[to].set(peer);
        put.map_err(|_| Error::Insane { rank: Some(to) })
    }

    /// Sends a packet; `false` if it cannot be sent now.
    pub(crate) fn push(&self, to: usize, bytes: &[u8], more: bool, kind: Kind) -> Result<bool, Error> {
        let packet = Packet { from: self.rank, length: bytes.len(), more, kind };
        if self.to[to].get().credits > 0 && self.put(to, packet, bytes)? {
            self.change(to, |peer| peer.credits -= 1);
            return Ok(true);
        }
        // the credits are in this rank's inbox, and the other one may wait for room there
        self.drain()?;
        Ok(false)
    }

    /// The next packet of a rank, into `bytes` as far as it fits: its length, and whether its message goes on.
    pub(crate) fn pop(
        &self,
        from: usize,
        bytes: &mut [u8],
        kind: Kind,
    ) -> Result<Option<(usize, bool)>, Error> {
        let kept = self.arrivals.borrow_mut().pop(from, bytes);
        let Some(packet) = kept.map_or_else(|| self.pop_from_inbox(from, bytes), |kept| Ok(Some(kept)))?
        else {
            return Ok(None);
        };
        if self.arrivals.borrow_mut().had(from) {
            self.pay()?;
        }
        if packet.kind == kind {
            Ok(Some((packet.length, packet.more)))
        } else {
            Err(Error::Mismatch { rank: from })
        }
    }

    /// Takes packets out of the inbox up to the next one of a rank, which goes into `bytes`.
    fn pop_from_inbox(&self, from: usize, bytes: &mut [u8]) -> Result<Option<Packet>, Error> {
        while let Some(packet) = self.head()? {
            if packet.from == from {
                self.take(packet, bytes);
                return Ok(Some(packet));
            }
            self.take(packet, self.arrivals.borrow_mut().keep(packet));
        }
        Ok(None)
    }

    /// The packet of a message that is first in the inbox, checked. Credits before it are taken.
    fn head(&self) -> Result<Option<Packet>, Error> {
        loop {
            let found = self.inbox(self.rank).peek(self.taken.get());
            let Some(packet) = found.map_err(|_| Error::Insane { rank: None })? else { return Ok(None) };
            if packet.kind != Kind::Credit {
                let rank = Some(packet.from).filter(|&rank| rank < self.to.len());
                return match self.arrivals.borrow().check(packet) {
                    Ok(()) => Ok(Some(packet)),
                    Err(_) => Err(Error::Insane { rank }),
                };
            }
            self.take(packet, &mut []);
            if packet.from >= self.to.len() {
                return Err(Error::Insane { rank: None });
            }
            self.credit(packet.from)?;
        }
    }

    fn take(&self, packet: Packet, bytes: &mut [u8]) {
        let mut taken = self.taken.get();
        self.inbox(self.rank).take(&mut taken, packet, bytes);
        self.taken.set(taken);
    }

    /// A rank has had half of the packets that may be on their way to it.
    fn credit(&self, from: usize) -> Result<(), Error> {
        let credits = self.window.layout().credits();
        self.change(from, |peer| peer.credits += credits / 2);
        if self.to[from].get().credits > credits { Err(Error::Insane { rank: Some(from) }) } else { Ok(()) }
    }

    /// Tells ranks that they may send more.
    fn pay(&self) -> Result<(), Error> {
        let packet = Packet { from: self.rank, length: 0, more: false, kind: Kind::Credit };
        self.arrivals.borrow_mut().pay(|to| match to {
            own if own == self.rank => self.credit(own).map(|()| true),
            to => self.put(to, packet, &[]),
        })
    }

    /// Empties the inbox, so that others have room: no rank waits for what this one will ask for later.
    pub(crate) fn drain(&self) -> Result<(), Error> {
        self.pay()?;
        for _ in 0..BURST {
            let Some(packet) = self.head()? else { break };
            self.take(packet, self.arrivals.borrow_mut().keep(packet));
        }
        Ok(())
    }

    /// Returns `true` if nothing is in the inbox, and nobody is about to put something there.
    pub(crate) fn nothing_comes(&self) -> bool {
        self.inbox(self.rank).is_empty(self.taken.get())
    }
}
