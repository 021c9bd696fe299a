// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node as the I/O node has it: its window, its bells, and how a virtual machine gets them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use colony_fship::layout::{self, CHANNELS, Header, LARGE_PAGE};
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use zerocopy::IntoBytes as _;

use crate::CiodError;
use colony_node::rights;

/// Between a connection that cannot be taken and the next look.
const PAUSE: Duration = Duration::from_millis(100);

/// State of a node, as far as the daemon knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It can be given a job.
    Free,
    /// It is in a job.
    Busy,
    /// It was left in the middle of a job: it must be started anew, with a new link.
    Lost,
}

/// The daemon's link with a node. Clones are the same link.
#[derive(Clone, Debug)]
pub struct NodeLink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    number: u32,
    window: u64,
    /// Bytes of it that are the memory of processes.
    process_memory: u64,
    memory: File,
    /// Rung by the node, heard by the daemon.
    to_daemon: EventFd,
    /// Rung by the daemon, heard by the CPUs of the node.
    to_node: [EventFd; CHANNELS],
    state: Mutex<NodeState>,
    /// It has asked for work, as the I/O node says that has its memory.
    has_asked: AtomicBool,
    /// The reason why that I/O node cannot serve it any more.
    failed: OnceLock<String>,
    /// The daemon's ends of the sockets: a virtual machine takes a closed one for a daemon that is gone.
    sockets: Mutex<Vec<UnixStream>>,
}

impl NodeLink {
    /// Makes the window, with its header, and the bells.
    pub(crate) fn new(number: u32, process_memory: u64, window: u64, spin: u64) -> Result<Self, CiodError> {
        for bytes in [process_memory.min(window), window] {
            if !layout::WINDOW_SIZES.contains(&bytes) || !bytes.is_power_of_two() {
                return Err(CiodError::Window(bytes));
            }
        }
        let make = || -> io::Result<Inner> {
            let memory =
                File::from(memfd_create("colony-node", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?);
            // the file is reached through its descriptor only, never by a user through /proc
            nix::sys::stat::fchmod(&memory, nix::sys::stat::Mode::empty())?;
            memory.set_len(window)?;
            let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
            fcntl(&memory, FcntlArg::F_ADD_SEALS(seals))?;
            let header =
                Header { magic: layout::MAGIC, version: colony_fship::VERSION, node: number, window, spin };
            memory.write_all_at(header.as_bytes(), layout::HEADER_AT)?;
            let state = Mutex::new(NodeState::Free);
            let sockets = Mutex::default();
            Ok(Inner {
                number,
                window,
                process_memory,
                memory,
                to_daemon: bell()?,
                to_node: bells()?,
                state,
                has_asked: AtomicBool::new(false),
                failed: OnceLock::new(),
                sockets,
            })
        };
        make().map(Arc::new).map(Self).map_err(CiodError::system(format!("the window of node {number}")))
    }

    /// Number of the node in its partition.
    pub fn number(&self) -> u32 {
        self.0.number
    }

    /// Bytes of its window.
    pub fn window(&self) -> u64 {
        self.0.window
    }

    /// Bytes of the window that are the memory of processes.
    pub fn process_memory(&self) -> u64 {
        self.0.process_memory
    }

    /// Its state.
    pub fn state(&self) -> NodeState {
        *self.lock()
    }

    /// Returns `true` if the node has asked for work since this link was made: its kernel has booted.
    #[must_use]
    pub fn has_asked(&self) -> bool {
        // the word that counts the node's requests; the supervisor reads a copy of it and never maps the window
        let at = layout::channel_at(0) + layout::REQUESTS_IN_CHANNEL;
        let mut published = [0; 4];
        let has_published = self.0.memory.read_exact_at(&mut published, at).is_ok() && published != [0; 4];
        has_published || self.0.has_asked.load(Ordering::Relaxed)
    }

    /// The I/O node that has its memory says that it has asked for work.
    pub(crate) fn set_asked(&self) {
        self.0.has_asked.store(true, Ordering::Relaxed);
    }

    /// The I/O node that has its memory cannot serve it any more, for this reason.
    pub(crate) fn set_failed(&self, why: String) {
        let _ = self.0.failed.set(why);
    }

    /// The reason why the I/O node that has its memory cannot serve it any more, if that is so.
    #[must_use]
    pub fn failed(&self) -> Option<&str> {
        self.0.failed.get().map(String::as_str)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, NodeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The window's file.
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.0.memory.as_fd()
    }

    /// The bell that the node rings.
    pub fn bell_to_daemon(&self) -> BorrowedFd<'_> {
        self.0.to_daemon.as_fd()
    }

    /// The bells that the daemon rings, one a CPU.
    pub fn bells_to_node(&self) -> [BorrowedFd<'_>; CHANNELS] {
        self.0.to_node.each_ref().map(AsFd::as_fd)
    }

    /// Writes the node's whole personality into the control area.
    pub(crate) fn write_record(&self, record: &[u8; layout::PERSONALITY_BYTES]) -> io::Result<()> {
        self.0.memory.write_all_at(record, layout::PERSONALITY_AT)
    }

    /// Makes the memory of the processes zero and gives it back to the system; the control area stays as it is.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let length = self.0.window - LARGE_PAGE;
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        // offsets of files are signed; windows are far smaller
        let at = |n: u64| i64::try_from(n).map_err(io::Error::other);
        Ok(fallocate(&self.0.memory, hole, at(LARGE_PAGE)?, at(length)?)?)
    }

    /// The other end of a socket on which the window and the bells are waiting, in the protocol of ivshmem servers:
    /// for QEMU's `-chardev socket,id=c,fd=N -device ivshmem-doorbell,vectors=4,chardev=c`. The node is peer 1, the
    /// daemon peer 0; CPU `n` of the node hears vector `n`, and may ring any vector of the daemon's.
    ///
    /// The socket is closed on `exec` unless the caller passes it on.
    ///
    /// # Errors
    /// If the system refuses a socket.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = UnixStream::pair()?;
        self.greet(ours)?;
        Ok(theirs.into())
    }

    /// Waits at `path` for virtual machines that others start: `-chardev socket,id=c,path=PATH`. Each connection
    /// gets the same window: start one node at a time. Ends when the listener is dropped.
    ///
    /// # Errors
    /// If the socket cannot be made.
    pub fn listen(&self, path: &Path) -> io::Result<Listener> {
        let socket = private_socket(path)?;
        let place = path.to_owned();
        let stop = socket.try_clone()?;
        let link = self.clone();
        let thread = std::thread::spawn(move || {
            while let Some(stream) = accept(&socket) {
                // who hangs up in the middle gets nothing more
                let _ = link.greet(stream);
            }
        });
        Ok(Listener { stop, thread: Some(thread), place })
    }

    /// Says version, the node's number, the window, the daemon's bell and the node's own
    /// (QEMU, docs/specs/ivshmem-spec.txt, client-server protocol).
    fn greet(&self, stream: UnixStream) -> io::Result<()> {
        const DAEMON: i64 = 0;
        const NODE: i64 = 1;
        let inner = &*self.0;
        say(&stream, 0, None)?;
        say(&stream, NODE, None)?;
        say(&stream, -1, Some(inner.memory.as_fd()))?;
        for _ in 0..CHANNELS {
            say(&stream, DAEMON, Some(inner.to_daemon.as_fd()))?;
        }
        for bell in &inner.to_node {
            say(&stream, NODE, Some(bell.as_fd()))?;
        }
        self.0.sockets.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        Ok(())
    }
}

/// A bell for each CPU of a node.
fn bells() -> io::Result<[EventFd; CHANNELS]> {
    let all = (0..CHANNELS).map(|_| bell()).collect::<Result<Vec<_>, _>>()?;
    all.try_into().map_err(|_| io::ErrorKind::Other.into())
}

/// A socket that only its owner can connect to.
pub(crate) fn private_socket(path: &Path) -> io::Result<UnixListener> {
    use nix::sys::stat::{Mode, umask};
    // before it is there, not after
    let old = umask(Mode::S_IXUSR | Mode::S_IRWXG | Mode::S_IRWXO);
    let socket = UnixListener::bind(path);
    umask(old);
    socket
}

/// The next one who connects, whatever happens to others; none when the socket was shut down.
pub(crate) fn accept(socket: &UnixListener) -> Option<UnixStream> {
    loop {
        match socket.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return None,
            // who connected is gone, or there are too many descriptors: some are closed in time
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn say(stream: &UnixStream, value: i64, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = value.to_le_bytes();
    let sent = rights::send(stream, &bytes, fd.as_slice())?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Reads a message as an ivshmem client: a number, and the descriptor that comes with it; `None` at the end.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn hear(stream: &UnixStream) -> io::Result<Option<(i64, Option<OwnedFd>)>> {
    let mut value = [0u8; 8];
    let (count, fds) = rights::receive(stream, &mut value)?;
    Ok((count == value.len()).then(|| (i64::from_le_bytes(value), fds.into_iter().next())))
}

/// A bell that nobody waits for in reading it.
pub(crate) fn bell() -> nix::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
}

/// Rings a bell; one that cannot be counted up any more has been rung.
pub(crate) fn ring(bell: impl AsFd) {
    let _ = nix::unistd::write(bell, &1u64.to_ne_bytes());
}

/// See [`NodeLink::listen`].
#[derive(Debug)]
pub struct Listener {
    stop: UnixListener,
    thread: Option<std::thread::JoinHandle<()>>,
    place: PathBuf,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = nix::sys::socket::shutdown(self.stop.as_raw_fd(), nix::sys::socket::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_file(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(link: &NodeLink, socket: &UnixStream) {
        let all: Vec<_> = std::iter::from_fn(|| hear(socket).expect("read")).take(3 + 2 * CHANNELS).collect();
        let said: Vec<_> = all.iter().map(|(value, fd)| (*value, fd.is_some())).collect();
        assert_eq!(said[..3], [(0, false), (1, false), (-1, true)]);
        assert_eq!(said[3..], [[(0, true); CHANNELS], [(1, true); CHANNELS]].concat());
        let memory = File::from(all[2].1.as_ref().expect("window").try_clone().expect("dup"));
        assert_eq!(memory.metadata().expect("window").len(), link.window());
        let mut magic = [0; 8];
        memory.read_exact_at(&mut magic, 0).expect("header");
        assert_eq!(u64::from_le_bytes(magic), layout::MAGIC);
        assert!(memory.set_len(0).is_err(), "sealed");
    }

    #[test]
    fn a_virtual_machine_gets_the_window_and_the_bells() {
        let link = NodeLink::new(3, 16 << 20, 16 << 20, 0).expect("link");
        check(&link, &link.connect().expect("socket").into());
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("node");
        let listener = link.listen(&path).expect("listener");
        check(&link, &UnixStream::connect(&path).expect("connects"));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn windows_have_sensible_sizes() {
        for size in [0, 8 << 20, (16 << 20) + 4096, 128 << 30] {
            assert!(matches!(NodeLink::new(0, size, size, 0), Err(CiodError::Window(n)) if n == size));
        }
    }

    #[test]
    fn clearing_leaves_the_control_area() {
        let link = NodeLink::new(0, 16 << 20, 16 << 20, 0).expect("link");
        link.0.memory.write_all_at(b"secret", LARGE_PAGE).expect("write");
        link.0.memory.write_all_at(b"last", (16 << 20) - 4).expect("write");
        link.clear().expect("cleared");
        let mut bytes = [1; 6];
        link.0.memory.read_exact_at(&mut bytes, LARGE_PAGE).expect("read");
        assert_eq!(bytes, [0; 6]);
        link.0.memory.read_exact_at(&mut bytes, 0).expect("read");
        assert_eq!(&bytes, b"COLONY");
    }
}
