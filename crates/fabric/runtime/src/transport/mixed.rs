// SPDX-License-Identifier: MIT OR Apache-2.0
//! MPI until a rank dies, and sockets from then on.
//!
//! Each rank joins its launcher's job as on sockets, so the launcher sees its death, and joins the ranks that are left with the
//! replacement. MPI cannot do that: no process joins the ranks of MPI later, and what it does after a death is left to the
//! installation. So a rank calls MPI never again once another has died.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::mpi::MpiTransport;
use super::sockets::Sockets;
use super::sockets::entry::{DONE, Entry, Joined, LEAVE, OVER_MPI, Roster, TOLD, failed};
use super::sockets::stream::Stream;
use super::{Place, Transport, TransportError};

/// A rank of a job that `mpirun` has started for a launcher that replaces ranks.
pub(crate) struct Mixed {
    entry: Entry,
    path: Path,
}

/// The path of frames.
enum Path {
    Mpi(OverMpi),
    Sockets(Sockets),
    /// A recovery has failed.
    None,
}

/// The first generation.
struct OverMpi {
    /// Until it is dropped.
    mpi: Option<MpiTransport>,
    roster: Roster,
    launcher: Stream,
    news: Arc<News>,
}

/// The launcher's messages.
#[derive(Default)]
struct News {
    /// It has ended this generation.
    has_ended: AtomicBool,
    /// It wants the job to go on with another number of ranks.
    is_to_leave: AtomicBool,
}

impl News {
    fn check(&self) -> Result<(), TransportError> {
        if self.has_ended.load(Relaxed) {
            return Err(TransportError::Died("the launcher has closed its connection".to_owned()));
        }
        Ok(())
    }
}

/// Waits for the launcher's messages, on a thread of its own: frames over MPI do not wait for a look at a socket.
fn follow(mut launcher: Stream, news: &News) {
    let mut bytes = [0; 16];
    loop {
        match launcher.read(&mut bytes) {
            Ok(read) if read > 0 => {
                if bytes[..read].contains(&LEAVE) {
                    news.is_to_leave.store(true, Relaxed);
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => break,
        }
    }
    news.has_ended.store(true, Relaxed);
}

impl Mixed {
    /// Returns `true` if a launcher has started this process by `mpirun`, and it replaces no other.
    pub(crate) fn is_launched() -> bool {
        Sockets::is_launched() && std::env::var_os(OVER_MPI).is_some()
    }

    /// Initializes MPI, and joins the job that the environment describes.
    ///
    /// # Errors
    /// [`TransportError`].
    pub(crate) fn join() -> Result<Self, TransportError> {
        let entry = Entry::from_environment()?;
        let mpi = MpiTransport::initialize()?;
        let (found, given) = ((mpi.rank(), mpi.size()), (entry.rank, entry.size));
        if found != given {
            return Err(TransportError::Environment(format!(
                "this process is rank {} of {} of MPI, and rank {} of {} of its launcher",
                found.0, found.1, given.0, given.1
            )));
        }
        mpi.return_errors();
        let path = match OverMpi::join(&entry, mpi) {
            Ok(over) => Path::Mpi(over),
            // another rank, once all had joined
            Err(TransportError::Died(_)) => Path::Sockets(Sockets::join_again(entry.clone())?),
            Err(error) => return Err(error),
        };
        Ok(Self { entry, path })
    }
}

impl OverMpi {
    fn join(entry: &Entry, mpi: MpiTransport) -> Result<Self, TransportError> {
        // if the job fails, MPI is left alone
        let (mut mpi, news) = (Some(mpi), Arc::new(News::default()));
        let joined = entry.join(false).and_then(|Joined { roster, launcher, .. }| {
            let doing = "preparing the launcher's connection";
            launcher.set_timeout(None).map_err(failed(doing))?;
            let (reader, shared) = (launcher.try_clone().map_err(failed(doing))?, Arc::clone(&news));
            let follow = move || follow(reader, &shared);
            let thread = std::thread::Builder::new().name("launcher".to_owned());
            thread.spawn(follow).map_err(failed(doing))?;
            Ok((roster, launcher))
        });
        match joined {
            Ok((roster, launcher)) => Ok(Self { mpi: mpi.take(), roster, launcher, news }),
            Err(error) => {
                mpi.into_iter().for_each(MpiTransport::abandon);
                Err(error)
            }
        }
    }

    /// Leaves MPI, and the launcher's generation.
    fn leave(&mut self) {
        self.mpi.take().into_iter().for_each(MpiTransport::abandon);
        self.launcher.shutdown();
    }

    /// MPI. It is there until the generation has ended.
    #[inline]
    fn mpi(&mut self) -> Result<&mut MpiTransport, TransportError> {
        self.mpi.as_mut().ok_or_else(|| TransportError::Lost("this rank has left MPI".to_owned()))
    }
}

impl Drop for OverMpi {
    fn drop(&mut self) {
        match self.mpi.take() {
            // finalizes MPI, as all ranks do
            Some(mpi) if mpi.is_finished() => drop(mpi),
            Some(mpi) => mpi.abandon(),
            None => {}
        }
    }
}

impl Transport for Mixed {
    fn rank(&self) -> u32 {
        self.entry.rank
    }

    fn size(&self) -> u32 {
        self.entry.size
    }

    fn name(&self) -> &'static str {
        match self.path {
            Path::Mpi(_) => "MPI",
            Path::Sockets(_) | Path::None => "sockets",
        }
    }

    #[inline]
    fn send(&mut self, to: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        match &mut self.path {
            Path::Mpi(over) => over.mpi()?.send(to, frame),
            Path::Sockets(sockets) => sockets.send(to, frame),
            Path::None => Err(left()),
        }
    }

    #[inline]
    fn poll(&mut self, deliver: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        match &mut self.path {
            Path::Mpi(over) => {
                over.news.check()?;
                over.mpi()?.poll(deliver)
            }
            Path::Sockets(sockets) => sockets.poll(deliver),
            Path::None => Err(left()),
        }
    }

    fn wait(&mut self, limit: Duration) -> Result<(), TransportError> {
        match &mut self.path {
            Path::Mpi(over) => over.mpi()?.wait(limit),
            Path::Sockets(sockets) => sockets.wait(limit),
            Path::None => Err(left()),
        }
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        match &mut self.path {
            Path::Mpi(over) => {
                let news = Arc::clone(&over.news);
                over.mpi()?.finish_unless(&mut || news.check())?;
                // a launcher that has ended, or does not read, restarts nothing
                let _ = over.launcher.write(&[DONE]);
                Ok(())
            }
            Path::Sockets(sockets) => sockets.finish(),
            Path::None => Err(left()),
        }
    }

    fn can_rejoin(&self) -> bool {
        true
    }

    fn rejoin(&mut self) -> Result<(), TransportError> {
        match std::mem::replace(&mut self.path, Path::None) {
            Path::Mpi(mut over) => over.leave(),
            Path::Sockets(mut sockets) => {
                sockets.rejoin()?;
                self.path = Path::Sockets(sockets);
                return Ok(());
            }
            Path::None => return Err(left()),
        }
        self.path = Path::Sockets(Sockets::join_again(self.entry.clone())?);
        Ok(())
    }

    fn generation(&self) -> u32 {
        match &self.path {
            Path::Mpi(over) => over.roster.generation,
            Path::Sockets(sockets) => sockets.generation(),
            Path::None => 0,
        }
    }

    fn is_to_leave(&mut self) -> bool {
        match &mut self.path {
            Path::Mpi(over) => {
                let is_to_leave = &over.news.is_to_leave;
                is_to_leave.load(Relaxed) && is_to_leave.swap(false, Relaxed)
            }
            Path::Sockets(sockets) => sockets.is_to_leave(),
            Path::None => false,
        }
    }

    fn places(&self) -> &[Place] {
        match &self.path {
            Path::Mpi(over) => &over.roster.places,
            Path::Sockets(sockets) => sockets.places(),
            Path::None => &[],
        }
    }

    fn abort(&mut self, code: i32) {
        match &mut self.path {
            Path::Mpi(over) => {
                // the launcher sees that this rank ends, and tells the others; one that has ended says nothing any more
                let _ = over.launcher.write(&[TOLD]);
            }
            Path::None => {}
            Path::Sockets(sockets) => sockets.abort(code),
        }
    }
}

fn left() -> TransportError {
    TransportError::Lost("this rank has left the job".to_owned())
}
