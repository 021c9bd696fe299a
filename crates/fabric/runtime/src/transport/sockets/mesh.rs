// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connections between all ranks: each rank connects to those below it, and takes the connections of those above.
//!
//! All of them are made at the same time, under one timeout, so that neither a rank that is slow nor a stranger that
//! connects delays the others.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::admission::Admission;
use super::handshake::Connecting;
use super::peer::Peer;
use super::secret::Secret;
use super::stream::{Stream, explain, is_unreachable};

/// The connections of one rank, until all are there.
pub(crate) struct Mesh<'a> {
    rank: u32,
    secret: &'a Secret,
    /// Connections to ranks below that have not proven the secret.
    connecting: Vec<(usize, Connecting)>,
    /// By rank; none for this one.
    peers: Vec<Option<Peer>>,
}

impl<'a> Mesh<'a> {
    /// Connects to the ranks below `rank`, which listen at these addresses.
    ///
    /// # Errors
    /// The text names the rank and its address. [`ErrorKind::HostUnreachable`] if this host does not reach the other one.
    pub(crate) fn new(rank: u32, addresses: &[String], secret: &'a Secret) -> io::Result<Self> {
        let below = addresses.iter().take(rank as usize).enumerate();
        let connecting = below.map(|(to, address)| match Connecting::begin(address, secret) {
            Ok(one) => Ok((to, one)),
            Err(error) => {
                let kind = if is_unreachable(&error) { ErrorKind::HostUnreachable } else { error.kind() };
                Err(io::Error::new(kind, explain(&format!("rank {to}"), address, &error)))
            }
        });
        Ok(Self {
            rank,
            secret,
            connecting: connecting.collect::<io::Result<_>>()?,
            peers: addresses.iter().map(|_| None).collect(),
        })
    }

    /// Waits for all connections. By rank; none for this one.
    ///
    /// # Errors
    /// A rank below is lost, not all ranks have come within `limit`, or the launcher, if it is given, has ended this
    /// generation.
    pub(crate) fn complete(
        mut self,
        admission: &mut Admission,
        launcher: Option<&Stream>,
        limit: Duration,
    ) -> io::Result<Vec<Option<Peer>>> {
        let began = Instant::now();
        while self.peers.iter().flatten().count() + 1 < self.peers.len() {
            if self.advance(admission)? {
                continue;
            }
            let left = limit.saturating_sub(began.elapsed());
            if left.is_zero() {
                let reason = "another rank has not come within a minute";
                return Err(io::Error::new(ErrorKind::TimedOut, reason));
            }
            self.wait(admission, launcher, left)?;
        }
        Ok(self.peers)
    }

    /// Takes the steps that are possible now. Returns `false` if there was none.
    fn advance(&mut self, admission: &mut Admission) -> io::Result<bool> {
        let mut any = false;
        for (to, mut connecting) in std::mem::take(&mut self.connecting) {
            if connecting.advance(self.secret, &self.rank)?.is_ready() {
                any = true;
                self.peers[to] = Some(Peer::new(connecting.into_stream()));
            } else {
                self.connecting.push((to, connecting));
            }
        }
        while let Some((from, stream)) = admission.admit::<u32>()? {
            any = true;
            let place = self.peers.get_mut(from as usize).filter(|p| p.is_none() && from > self.rank);
            let place = place.ok_or_else(|| {
                io::Error::new(ErrorKind::InvalidData, format!("rank {from} connects twice"))
            })?;
            *place = Some(Peer::new(stream));
        }
        Ok(any)
    }

    /// Waits until a step may be possible.
    fn wait(&self, admission: &Admission, launcher: Option<&Stream>, limit: Duration) -> io::Result<()> {
        // of the launcher, only the end of its connection: a request may have come
        let its_end = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);
        let launcher = launcher.map(|launcher| PollFd::new(launcher.as_fd(), its_end));
        let has_launcher = launcher.is_some();
        let others = admission.descriptors().chain(self.connecting.iter().map(|(_, one)| one.as_fd()));
        let others = others.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = launcher.into_iter().chain(others).collect();
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, limit) {
            Ok(_) if has_launcher && fds.first().is_some_and(|fd| fd.any() != Some(false)) => {
                Err(io::Error::new(ErrorKind::ConnectionAborted, "another rank has died"))
            }
            // a signal, as that of an evacuation, ends no wait
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::transport::sockets::handshake::HANDSHAKE;
    use crate::transport::sockets::listener::Listener;

    fn admissions(secret: &Secret, ranks: usize) -> (Vec<Admission>, Vec<String>) {
        let listen = || Admission::new(Listener::unix().expect("a name"), secret.clone()).expect("listens");
        let all: Vec<Admission> = (0..ranks).map(|_| listen()).collect();
        let addresses = all.iter().map(Admission::address).collect();
        (all, addresses)
    }

    #[test]
    fn a_rank_whose_address_is_refused_is_named_with_the_address() {
        let secret = Secret::new().expect("random");
        // a link-local address without an interface: the kernel answers EINVAL, or has no IPv6
        let addresses = ["tcp:[fe80::1]:9".to_owned(), String::new()];
        let Err(error) = Mesh::new(1, &addresses, &secret) else { panic!("it connects") };
        assert!(error.to_string().starts_with("rank 0 at tcp:[fe80::1]:9: "), "{error}");
    }

    #[test]
    fn all_ranks_connect_though_strangers_connect_to_each_of_them_first() {
        let secret = Secret::new().expect("random");
        let (admissions, addresses) = admissions(&secret, 4);
        let mut strangers = Vec::new();
        for address in &addresses {
            strangers.push(Stream::connect(address).expect("anyone can connect"));
            let mut slow = Stream::connect(address).expect("anyone can connect");
            slow.write_all(&[7]).expect("room");
            strangers.push(slow);
        }
        let complete = |(rank, mut admission): (u32, Admission)| {
            let (addresses, secret) = (addresses.clone(), secret.clone());
            std::thread::spawn(move || {
                let peers =
                    Mesh::new(rank, &addresses, &secret)?.complete(&mut admission, None, HANDSHAKE)?;
                // the descriptors are those of the listener and of the strangers
                Ok::<_, io::Error>((peers, admission.descriptors().count()))
            })
        };
        let ranks: Vec<_> = (0..).zip(admissions).map(complete).collect();
        let mut meshes = Vec::new();
        for (rank, thread) in ranks.into_iter().enumerate() {
            let (peers, descriptors) = thread.join().expect("no panic").expect("all come");
            let connected: Vec<bool> = peers.iter().map(Option::is_some).collect();
            assert_eq!(connected, (0..4).map(|other| other != rank).collect::<Vec<_>>());
            assert!(descriptors <= 3, "rank {rank} has waited for no stranger to end: {descriptors}");
            meshes.push(peers);
        }
        drop((strangers, meshes));
    }

    #[test]
    fn a_rank_that_does_not_come_ends_the_wait_and_so_does_the_launcher() {
        let secret = Secret::new().expect("random");
        let (mut admissions, addresses) = admissions(&secret, 2);
        let mut complete = |launcher: Option<&Stream>, limit: Duration| {
            let mesh = Mesh::new(0, &addresses, &secret).expect("nobody is below");
            mesh.complete(&mut admissions[0], launcher, limit).map(drop).expect_err("nobody comes").kind()
        };
        let (end, launcher) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let launcher = Stream::Unix(launcher);
        assert_eq!(complete(Some(&launcher), Duration::from_millis(5)), ErrorKind::TimedOut);
        assert_eq!(complete(None, Duration::from_millis(5)), ErrorKind::TimedOut);
        drop(end);
        assert_eq!(complete(Some(&launcher), HANDSHAKE), ErrorKind::ConnectionAborted);
    }
}
