// SPDX-License-Identifier: MIT OR Apache-2.0
//! Any requests of a kernel about a folder of the host: none reads or changes what lies beside it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::Mode;

use super::folder::Folder;
use super::message::{ROOT, Reply, Request, TRANSFER, op, request};

/// Bytes of a file at most: an input asks for any size.
const FILE: u64 = 1 << 20;
/// Content of the file beside the folder.
const SECRET: &[u8] = b"what no request may read";

/// A place with the folder and a file beside it, removed at the end.
struct Place(PathBuf);

impl Place {
    fn new() -> io::Result<Self> {
        let place = Self(std::env::temp_dir().join(format!("colony-fuzz-{}", std::process::id())));
        place.clear();
        fs::create_dir_all(place.inside().join("folder"))?;
        fs::write(place.0.join("secret"), SECRET)?;
        fs::write(place.inside().join("a"), "a")?;
        symlink("../secret", place.inside().join("link"))?;
        Ok(place)
    }

    fn inside(&self) -> PathBuf {
        self.0.join("inside")
    }

    fn clear(&self) {
        // requests may have taken the right to list it
        let _ = fs::set_permissions(self.inside(), Permissions::from_mode(0o700));
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
    }
}

fn folder(place: &Path, read_only: bool) -> io::Result<Folder> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let [root, own] = [place, Path::new("/proc/self/fd")].map(|path| open(path, flags, Mode::empty()));
    Ok(Folder::new(root?, own?.into(), read_only)?)
}

/// Asks a folder for anything. `bytes`: whether it is read-only, then requests: number, node, length, fields.
///
/// # Panics
/// If a request reads or changes something beside the folder, or changes one that is read-only.
pub fn fuzz_files(bytes: &[u8]) {
    limit();
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let place = Place::new().expect("a folder");
    let is_read_only = first % 4 == 0;
    let mut folder = folder(&place.inside(), is_read_only).expect("opened");
    for name in ["a", "folder", "link"] {
        ask(&mut folder, op::LOOKUP, ROOT, &[name.as_bytes(), &[0]].concat());
    }
    while let [number, node, length, more @ ..] = rest {
        let (fields, later) = more.split_at(more.len().min(usize::from(*length)));
        ask(&mut folder, u32::from(*number), u64::from(*node), fields);
        rest = later;
    }
    drop(folder);
    assert_eq!(fs::read(place.0.join("secret")).expect("it is there"), SECRET);
    assert_eq!(fs::read_dir(&place.0).expect("ours").count(), 2, "something lies beside the folder");
    if is_read_only {
        assert_eq!(fs::read(place.inside().join("a")).expect("it is there"), b"a");
        assert_eq!(fs::read_dir(place.inside()).expect("ours").count(), 3);
    }
}

/// Files beyond the limit are an error, and no end.
fn limit() {
    // SAFETY: no handler is installed
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.expect("a signal that can be ignored");
    setrlimit(Resource::RLIMIT_FSIZE, FILE, FILE).expect("a lower limit");
}

fn ask(folder: &mut Folder, number: u32, node: u64, fields: &[u8]) {
    let bytes = request(number, node, fields);
    let request = Request::read(&bytes).expect("a request");
    if let Ok(reply) = folder.answer(&request) {
        let reply = Reply::finish(Ok(reply), request.unique);
        assert!(reply.len() <= TRANSFER + 40, "a reply of {} bytes", reply.len());
        assert!(!reply.windows(SECRET.len()).any(|part| part == SECRET), "it reads beside the folder");
    }
}
