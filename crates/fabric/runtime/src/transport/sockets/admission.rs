// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of the processes of a job, among those of strangers: any process of the host can connect to a Unix socket
//! without a file, and any that reaches the host to a TCP port.
//!
//! A stranger delays nobody: all connections prove the job's secret at the same time, and a connection of another user is
//! closed before a byte is read. The number of connections on which nothing has been proven is bounded, so that the process
//! keeps descriptors for those of its job.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::Poll;
use std::time::{Duration, Instant};

use nix::libc::{EMFILE, ENFILE};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::geteuid;
use serde::de::DeserializeOwned;

use super::handshake::{Accepting, HANDSHAKE};
use super::listener::Listener;
use super::secret::Secret;
use super::stream::{Stream, is_user_of_job};

/// The most connections of one origin on which nothing has been proven.
const MOST_UNPROVEN: usize = 128;
/// The time that a process has to send its first proof before its connection may be closed in favor of a new one.
const GRACE: Duration = Duration::from_millis(100);
/// The most connections that are taken at once, so that a flood of them does not keep the process from its other work.
const MOST_TAKEN: usize = 64;

/// The source of a connection. The connections of each source have their own bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A process of this user, on this host.
    User(u32),
    Network,
}

/// A connection that proves the secret.
#[derive(Debug)]
struct Candidate {
    accepting: Accepting,
    origin: Origin,
    since: Instant,
}

/// A listener, and the connections that prove the secret.
#[derive(Debug)]
pub(crate) struct Admission {
    listener: Listener,
    secret: Secret,
    /// The oldest first.
    candidates: Vec<Candidate>,
    /// Connections that have proven it, with their first messages.
    proven: VecDeque<(Vec<u8>, Stream)>,
}

/// The outcome of looking for a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    One,
    /// None waits, or there is no room for one.
    None,
}

impl Admission {
    pub(crate) fn new(listener: Listener, secret: Secret) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, secret, candidates: Vec::new(), proven: VecDeque::new() })
    }

    /// Where [`Stream::connect`] finds the listener.
    pub(crate) fn address(&self) -> String {
        self.listener.address()
    }

    /// The descriptors that are readable when [`admit`](Self::admit) may have a connection.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let candidates = self.candidates.iter().map(|candidate| candidate.accepting.as_fd());
        std::iter::once(self.listener.as_fd()).chain(candidates)
    }

    /// The next process that has proven the secret: its first message, and the connection, which does not wait for it.
    ///
    /// # Errors
    /// The system refuses to take connections.
    pub(crate) fn admit<T: DeserializeOwned>(&mut self) -> io::Result<Option<(T, Stream)>> {
        if self.proven.is_empty() {
            for _ in 0..MOST_TAKEN {
                if self.take_one()? == Taken::None {
                    break;
                }
            }
            self.advance()?;
        }
        while let Some((message, stream)) = self.proven.pop_front() {
            // a process of the job that sends another type is of another build
            if let Ok(message) = postcard::from_bytes(&message) {
                return Ok(Some((message, stream)));
            }
        }
        Ok(None)
    }

    /// Takes a connection, if one waits and there is room for it.
    fn take_one(&mut self) -> io::Result<Taken> {
        if !self.make_room() {
            return Ok(Taken::None);
        }
        let stream = match self.listener.accept() {
            Ok(stream) => stream,
            Err(error) => return self.cannot_take(error),
        };
        let origin = match stream.user() {
            Ok(None) => Origin::Network,
            Ok(Some(user)) if is_user_of_job(user) => Origin::User(user),
            // closed before a byte is read
            Ok(Some(_)) | Err(_) => return Ok(Taken::One),
        };
        if let Ok(accepting) = Accepting::new(stream) {
            self.candidates.push(Candidate { accepting, origin, since: Instant::now() });
        }
        Ok(Taken::One)
    }

    /// Returns errors of `accept`, except those of a single connection and the lack of a descriptor that can be freed.
    fn cannot_take(&mut self, error: io::Error) -> io::Result<Taken> {
        let has_no_descriptor = matches!(error.raw_os_error(), Some(EMFILE | ENFILE));
        match error.kind() {
            ErrorKind::WouldBlock => Ok(Taken::None),
            ErrorKind::Interrupted | ErrorKind::ConnectionAborted => Ok(Taken::One),
            _ if has_no_descriptor && !self.candidates.is_empty() => {
                let unproven = self.candidates.iter().position(|one| one.accepting.is_unproven());
                self.candidates.remove(unproven.unwrap_or(0));
                Ok(Taken::One)
            }
            _ => Err(error),
        }
    }

    /// Makes room for one more connection, whose origin is not known before it is taken: of each origin with too many, the
    /// oldest connection on which nothing has been proven is closed. Returns `false` if that is too new to be closed.
    fn make_room(&mut self) -> bool {
        // all that `take_one` accepts
        let origins = [Origin::Network, Origin::User(0), Origin::User(geteuid().as_raw())];
        origins.into_iter().all(|origin| self.make_room_for(origin))
    }

    fn make_room_for(&mut self, origin: Origin) -> bool {
        let is_counted = |one: &&Candidate| one.origin == origin && one.accepting.is_unproven();
        if self.candidates.iter().filter(is_counted).count() < MOST_UNPROVEN {
            return true;
        }
        let oldest = self.candidates.iter().position(|one| is_counted(&one) && one.since.elapsed() > GRACE);
        oldest.is_some_and(|at| {
            self.candidates.remove(at);
            true
        })
    }

    /// Lets all connections go on whose next bytes have arrived.
    fn advance(&mut self) -> io::Result<()> {
        let ready = self.ready()?;
        let candidates = std::mem::take(&mut self.candidates);
        for (mut candidate, is_ready) in candidates.into_iter().zip(ready) {
            let step = if is_ready { candidate.accepting.advance(&self.secret) } else { Ok(Poll::Pending) };
            match step {
                Ok(Poll::Ready(message)) => {
                    self.proven.push_back((message, candidate.accepting.into_stream()));
                }
                Ok(Poll::Pending) if candidate.since.elapsed() < HANDSHAKE => self.candidates.push(candidate),
                // a stranger, or a process that has ended: its connection is closed
                Ok(Poll::Pending) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Whether bytes have arrived, or the end, for each connection.
    fn ready(&self) -> io::Result<Vec<bool>> {
        if self.candidates.is_empty() {
            return Ok(Vec::new());
        }
        let fds = self.candidates.iter().map(|one| PollFd::new(one.accepting.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = fds.collect();
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) => Ok(fds.iter().map(|fd| fd.any() != Some(false)).collect()),
            Err(nix::Error::EINTR) => Ok(vec![false; fds.len()]),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::thread::JoinHandle;

    use super::*;
    use crate::transport::sockets::handshake::Connecting;

    fn secret() -> Secret {
        Secret::new().expect("random")
    }

    fn admission(secret: &Secret) -> Admission {
        Admission::new(Listener::unix().expect("a name"), secret.clone()).expect("listens")
    }

    /// A process of the job, with its first message.
    fn join(admission: &Admission, secret: &Secret, message: u32) -> JoinHandle<io::Result<Stream>> {
        let (address, secret) = (admission.address(), secret.clone());
        std::thread::spawn(move || Connecting::begin(&address, &secret)?.finish(&secret, &message, HANDSHAKE))
    }

    /// Waits for a process of the job.
    fn admit(admission: &mut Admission) -> u32 {
        loop {
            if let Some((message, _)) = admission.admit().expect("takes connections") {
                return message;
            }
            assert!(admission.candidates.len() <= 3 * MOST_UNPROVEN, "bounded for each origin");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stranger(admission: &Admission) -> Stream {
        Stream::connect(&admission.address()).expect("anyone can connect")
    }

    fn is_closed(stranger: &mut Stream) -> bool {
        stranger.set_nonblocking(true).expect("set");
        match stranger.read(&mut [0; 64]) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        }
    }

    #[test]
    fn strangers_that_are_silent_or_slow_delay_nobody() {
        let secret = secret();
        let mut admission = admission(&secret);
        let mut strangers: Vec<Stream> = (0..5).map(|_| stranger(&admission)).collect();
        strangers[0].write_all(&[1; 63]).expect("room");
        let ranks: Vec<_> = (0..3).map(|rank| join(&admission, &secret, rank)).collect();
        let mut admitted: Vec<u32> = (0..3).map(|_| admit(&mut admission)).collect();
        admitted.sort_unstable();
        assert_eq!(admitted, [0, 1, 2]);
        assert_eq!(admission.candidates.len(), strangers.len(), "nobody has waited for their end");
        assert!(!strangers.iter_mut().any(is_closed), "they have the time that slow processes have");
        assert!(ranks.into_iter().all(|rank| rank.join().expect("no panic").is_ok()));
    }

    #[test]
    fn a_connection_without_the_secret_is_closed_by_its_first_bytes() {
        let (own, other) = (secret(), secret());
        let mut admission = admission(&own);
        let with_another = join(&admission, &other, 7);
        let mut noise = stranger(&admission);
        noise.write_all(&[7; 64]).expect("room");
        while !is_closed(&mut noise) || !with_another.is_finished() {
            assert!(admission.admit::<u32>().expect("takes connections").is_none());
        }
        assert!(with_another.join().expect("no panic").is_err());
        let rank = join(&admission, &own, 8);
        assert_eq!(admit(&mut admission), 8);
        assert!(rank.join().expect("no panic").is_ok());
    }

    #[test]
    fn a_process_that_does_not_know_the_secret_is_no_launcher() {
        let (secret, mut admission) = (secret(), admission(&secret()));
        let rank = join(&admission, &secret, 0);
        while !rank.is_finished() {
            assert!(admission.admit::<u32>().expect("takes connections").is_none());
        }
        assert!(rank.join().expect("no panic").is_err());
    }

    #[test]
    fn connections_on_which_nothing_is_proven_are_bounded_and_displace_no_process_of_the_job() {
        let secret = secret();
        let mut admission = admission(&secret);
        let mut strangers = Vec::new();
        for _ in 0..MOST_UNPROVEN + 30 {
            strangers.push(stranger(&admission));
            assert!(admission.admit::<u32>().expect("takes connections").is_none());
        }
        let rank = join(&admission, &secret, 5);
        let mut admitted = None;
        while admitted.is_none() {
            admitted = admission.admit::<u32>().expect("takes connections").map(|(message, _)| message);
            assert!(admission.candidates.len() <= MOST_UNPROVEN + 1, "{}", admission.candidates.len());
        }
        assert_eq!(admitted, Some(5));
        assert!(rank.join().expect("no panic").is_ok());
        let closed = strangers.iter_mut().map(is_closed).filter(|closed| *closed).count();
        assert!(closed >= 30, "{closed} of the oldest are closed");
    }

    const USERS: [u32; 2] = [65534, 65533];

    /// Runs a function as another user, on a thread of its own.
    fn run_as<T: Send + 'static>(user: u32, function: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(move || {
            // SAFETY: the call takes three numbers. It changes the user of this thread only, which ends below.
            let changed = unsafe { nix::libc::syscall(nix::libc::SYS_setresuid, user, user, user) };
            assert_eq!(changed, 0, "root may be any user");
            function()
        });
        thread.join().expect("no panic")
    }

    #[test]
    fn a_connection_of_another_user_is_closed_before_a_byte_is_read() {
        if !geteuid().is_root() {
            colony_testing::skip("a connection of another user needs root");
            return;
        }
        let secret = secret();
        let mut admission = admission(&secret);
        // even if it knows the secret
        let (address, known) = (admission.address(), secret.clone());
        let other =
            run_as(USERS[0], move || Connecting::begin(&address, &known)).expect("anyone can connect");
        assert_eq!(admission.take_one().expect("takes connections"), Taken::One);
        assert!(admission.candidates.is_empty() && is_closed(&mut other.into_stream()));
    }

    #[test]
    fn a_socket_of_another_user_is_refused_except_to_root() {
        if !geteuid().is_root() {
            colony_testing::skip("a socket of another user needs root");
            return;
        }
        let connect = |user: u32, address: &str| {
            let address = address.to_owned();
            run_as(user, move || Stream::connect(&address).map(drop).map_err(|error| error.kind()))
        };
        let (of_root, of_user) =
            (Listener::unix().expect("a name"), run_as(USERS[0], Listener::unix).expect("a name"));
        assert_eq!(connect(USERS[1], &of_user.address()), Err(ErrorKind::PermissionDenied));
        assert_eq!(connect(USERS[0], &of_user.address()), Ok(()));
        assert_eq!(connect(USERS[0], &of_root.address()), Ok(()));
        assert_eq!(connect(0, &of_user.address()), Ok(()));
    }

    #[test]
    fn a_process_behind_128_silent_connections_waits_a_tenth_of_a_second_for_them() {
        let secret = secret();
        let mut admission = admission(&secret);
        let mut strangers = Vec::new();
        while strangers.len() < 128 {
            strangers.push(stranger(&admission));
            assert!(admission.admit::<u32>().expect("takes connections").is_none());
        }
        let began = |admission: &mut Admission, at: Instant| {
            admission.candidates.iter_mut().for_each(|one| one.since = at);
        };
        let rank = join(&admission, &secret, 5);
        // a connection that begins later than now is a new one, however slow this test is
        began(&mut admission, Instant::now() + Duration::from_secs(3600));
        assert!(admission.admit::<u32>().expect("looks").is_none());
        assert_eq!(admission.candidates.len(), 128, "all of them are too new to be closed");
        began(&mut admission, Instant::now() - Duration::from_millis(101));
        assert_eq!(admit(&mut admission), 5);
        assert!(rank.join().expect("no panic").is_ok());
    }

    #[test]
    fn a_silent_connection_is_closed_after_a_minute() {
        let mut admission = admission(&secret());
        let mut stranger = stranger(&admission);
        assert!(admission.admit::<u32>().expect("takes connections").is_none());
        let began = |admission: &mut Admission, seconds| {
            admission.candidates[0].since = Instant::now() - Duration::from_secs(seconds);
            assert!(admission.admit::<u32>().expect("takes connections").is_none());
        };
        began(&mut admission, 30);
        assert!(!is_closed(&mut stranger), "it has the time that slow processes have");
        began(&mut admission, 60);
        assert!(is_closed(&mut stranger) && admission.candidates.is_empty());
    }

    #[test]
    fn if_descriptors_are_short_the_oldest_connection_on_which_nothing_is_proven_is_closed() {
        let mut admission = admission(&secret());
        let mut strangers = [(); 2].map(|()| stranger(&admission));
        assert!(admission.admit::<u32>().expect("takes connections").is_none());
        let short = || io::Error::from_raw_os_error(EMFILE);
        assert_eq!(admission.cannot_take(short()).expect("one is closed"), Taken::One);
        assert_eq!(strangers.each_mut().map(is_closed), [true, false]);
        assert_eq!(admission.cannot_take(short()).expect("one is closed"), Taken::One);
        assert!(admission.cannot_take(short()).is_err(), "there is none that could be closed");
    }
}
