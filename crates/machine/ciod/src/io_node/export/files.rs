// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of the host that a job has on its I/O node: opened by the job's relay as the user, and served by a thread of it, so
//! that a file server that does not answer holds up neither output nor signals.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open as open_path, openat2};
use nix::sys::stat::Mode;

use super::folder::Folder;
use super::given::Given;
use super::message::{Reply, Request};
use crate::control::Setup;
use crate::export::Export;
use crate::io_node::wire::{Frame, Kind, Seen, wrong};
use crate::worker::{files, filter};
use crate::{JobError, JobSpec};

/// Bytes of requests that wait at most: more than the kernel has under way.
const WAITING: usize = 16 << 20;
/// Where the I/O node has the files for the output of each rank.
const OUTPUTS: &str = "/dev/output";

/// Files that were opened, by the number of their place.
pub(in crate::io_node) struct Opened(Vec<Source>);

enum Source {
    Folder {
        root: OwnedFd,
        read_only: bool,
    },
    /// A folder that the user may not enter, or files for output.
    Given(Vec<(String, OwnedFd)>),
}

/// Opens the exports and the files for the output of each rank, as the user. The job finds the latter where `setup` says
/// afterwards.
///
/// # Errors
/// An export that is not there, a file that cannot be written.
pub(in crate::io_node) fn open(setup: &mut Setup) -> Result<(Opened, Vec<Seen>), JobError> {
    let (mut opened, mut seen) = (Vec::new(), Vec::new());
    for export in std::mem::take(&mut setup.exports) {
        opened.push(open_export(&export)?);
        seen.push(Seen { path: export.path().to_owned(), read_only: export.read_only() });
    }
    let ranks: Vec<u32> = setup.nodes.iter().flat_map(|node| node.ranks.clone()).collect();
    let outputs = open_outputs(&mut setup.spec, &ranks)?;
    if !outputs.is_empty() {
        opened.push(Source::Given(outputs));
        seen.push(Seen { path: OUTPUTS.into(), read_only: false });
    }
    Ok((Opened(opened), seen))
}

/// Opens a folder without following links: its owner could lead the jobs of others elsewhere.
fn open_export(export: &Export) -> Result<Source, JobError> {
    match open_plain(export.path()) {
        Ok(root) => Ok(Source::Folder { root, read_only: export.read_only() }),
        // as on the host: the user has other folders
        Err(Errno::EACCES) => Ok(Source::Given(Vec::new())),
        Err(why) => {
            let why = match why {
                Errno::ELOOP => "a part of the path is a link: export its target".to_owned(),
                why => io::Error::from(why).to_string(),
            };
            Err(JobError::Export { path: export.path().to_owned(), why })
        }
    }
}

fn open_plain(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    openat2(AT_FDCWD, path, OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_SYMLINKS))
}

/// Opens the files of these ranks on the host.
fn open_outputs(spec: &mut JobSpec, ranks: &[u32]) -> Result<Vec<(String, OwnedFd)>, JobError> {
    let mut all = Vec::new();
    for (name, pattern) in [("out", &mut spec.stdout), ("err", &mut spec.stderr)] {
        let Some(own) = pattern.as_ref().filter(|own| own.contains(files::RANK)) else { continue };
        for rank in ranks {
            let file = files::create(Path::new(&files::of(own, *rank)))?;
            all.push((format!("{name}.{rank}"), file.into()));
        }
        *pattern = Some(format!("{OUTPUTS}/{name}.{}", files::RANK));
    }
    Ok(all)
}

/// The thread that serves the files of a job.
pub(in crate::io_node) struct Files {
    requests: Sender<Vec<u8>>,
    /// Bytes of requests that wait.
    waits: Arc<AtomicUsize>,
}

impl Files {
    /// Starts it, if there are files; `reply` sends a frame to the I/O node. Called by a process that is the user and has no filter
    /// yet, since the filter lets no thread begin.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(in crate::io_node) fn start(
        opened: Opened,
        reply: impl Fn(Frame) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Option<Self>> {
        if opened.0.is_empty() {
            return Ok(None);
        }
        let (requests, hears) = channel::<Vec<u8>>();
        let waits = Arc::new(AtomicUsize::new(0));
        let (own, (ready, is_ready)) = (waits.clone(), channel());
        Builder::new().name("files".into()).spawn(move || {
            let servers = filter::enter().and_then(|()| opened.serve());
            if let Ok(mut servers) = servers.map_err(|e| ready.send(Err(e))) {
                let _ = ready.send(Ok(()));
                serve(&mut servers, &hears, &own, reply);
            }
        })?;
        is_ready.recv().map_err(io::Error::other)??;
        Ok(Some(Self { requests, waits }))
    }

    /// Takes a request of the I/O node: the number of a place, then what the kernel asks for.
    ///
    /// # Errors
    /// It asks for more than it may at once.
    pub(in crate::io_node) fn ask(&self, request: Vec<u8>) -> io::Result<()> {
        let waits = self.waits.fetch_add(request.len(), Ordering::Relaxed);
        if waits > WAITING {
            return Err(wrong("more requests for files than it may send"));
        }
        self.requests.send(request).map_err(io::Error::other)
    }
}

enum Server {
    Folder(Folder),
    Given(Given),
}

impl Opened {
    fn serve(self) -> io::Result<Vec<Server>> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let own = Rc::new(open_path("/proc/self/fd", flags, Mode::empty())?);
        let server = |source| match source {
            Source::Folder { root, read_only } => {
                Folder::new(root, own.clone(), read_only).map(Server::Folder)
            }
            Source::Given(files) => Ok(Server::Given(Given::new(files, own.clone()))),
        };
        Ok(self.0.into_iter().map(server).collect::<Result<_, _>>()?)
    }
}

fn serve(
    servers: &mut [Server],
    requests: &Receiver<Vec<u8>>,
    waits: &AtomicUsize,
    reply: impl Fn(Frame) -> io::Result<()>,
) {
    while let Ok(bytes) = requests.recv() {
        waits.fetch_sub(bytes.len(), Ordering::Relaxed);
        let Some((number, request)) = bytes.split_first() else { continue };
        let Some(answer) = servers.get_mut(usize::from(*number)).and_then(|server| server.answer(request))
        else {
            continue;
        };
        if reply(Frame::new(0, Kind::FileReply, [&[*number], answer.as_slice()].concat())).is_err() {
            return;
        }
    }
}

impl Server {
    /// The reply to a request, if the kernel waits for one.
    fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let request = Request::read(bytes)?;
        let result = match self {
            Self::Folder(folder) => folder.answer(&request),
            Self::Given(given) => given.answer(&request),
        };
        request.wants_reply().then(|| Reply::finish(result, request.unique))
    }
}
