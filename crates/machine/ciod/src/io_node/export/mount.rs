// SPDX-License-Identifier: MIT OR Apache-2.0
//! The I/O node's side: mounts a place where files of the host are seen, and passes on what the kernel asks for.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::{Advice, MmapMut};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::message::{REQUEST, is_whole};

/// A place in the files of a job.
#[derive(Debug)]
pub(in crate::io_node) struct Mount {
    place: PathBuf,
    device: Arc<File>,
}

impl Mount {
    /// Mounts it for one user, and for no other, root included.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(in crate::io_node) fn new(
        place: PathBuf,
        read_only: bool,
        (uid, gid): (u32, u32),
    ) -> io::Result<Self> {
        fs::create_dir_all(&place)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id={uid},group_id={gid}", device.as_raw_fd());
        let rights = if read_only { MsFlags::MS_RDONLY } else { MsFlags::empty() };
        let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | rights;
        mount(Some("colony"), &place, Some("fuse"), flags, Some(options.as_str()))?;
        Ok(Self { place, device: Arc::new(device) })
    }

    /// The kernel's end.
    pub(in crate::io_node) fn device(&self) -> Arc<File> {
        self.device.clone()
    }
}

impl Mount {
    /// Fails every request that is under way, and all later ones: whatever the host does, the job's worker can end then.
    /// Returns `false` if it is still mounted.
    pub(in crate::io_node) fn end(&self) -> bool {
        umount2(&self.place, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).is_ok()
    }
}

/// Passes requests of the kernel on until the place is not mounted any more.
///
/// # Errors
/// If requests cannot be read or sent.
pub(in crate::io_node) fn pass_requests(
    mut device: &File,
    mut send: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut request = room()?;
    loop {
        match device.read(&mut request) {
            Ok(count) if is_whole(&request[..count]) => send(&request[..count])?,
            Ok(count) => return Err(io::Error::other(format!("{count} bytes of the kernel are no request"))),
            Err(e) => match e.raw_os_error() {
                // a request that was taken back
                Some(libc::ENOENT | libc::EINTR | libc::EAGAIN) => {}
                Some(libc::ENODEV | libc::ECONNABORTED) => return Ok(()),
                _ => return Err(e),
            },
        }
    }
}

/// Room for a request. The kernel finds the page first and writes to it later; if the process forks between, a write of
/// another thread beside the room gives the process a copy of the page, which stays empty. So no fork shares this room.
fn room() -> io::Result<MmapMut> {
    let room = MmapMut::map_anon(REQUEST)?;
    room.advise(Advice::DontFork)?;
    Ok(room)
}

/// Passes a reply to the kernel.
///
/// # Errors
/// If the kernel refuses it.
pub(in crate::io_node) fn pass_reply(mut device: &File, reply: &[u8]) -> io::Result<()> {
    match device.write(reply) {
        // whoever has asked has gone meanwhile
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ENODEV)) => Ok(()),
        result => result.map(drop),
    }
}

/// Returns `true` if a path lies in one of these places.
pub(in crate::io_node) fn is_seen<'a>(path: &Path, mut places: impl Iterator<Item = &'a Path>) -> bool {
    places.any(|place| path.starts_with(place))
}
