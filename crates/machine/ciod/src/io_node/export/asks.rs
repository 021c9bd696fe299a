// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders and files of the host, asked for as the kernel of an I/O node asks, and as none asks.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use proptest::prelude::*;

use super::folder::Folder;
use super::given::Given;
use super::message::tests::fields;
use super::message::{ROOT, Reply, Request, TRANSFER, op, request};

fn path(place: &Path) -> OwnedFd {
    open(place, OFlag::O_PATH | OFlag::O_DIRECTORY, Mode::empty()).expect("a folder")
}

fn own() -> Rc<OwnedFd> {
    path(Path::new("/proc/self/fd")).into()
}

fn folder(place: &Path, read_only: bool) -> Folder {
    Folder::new(path(place), own(), read_only).expect("one")
}

/// Anything that answers.
trait Asked {
    fn answer(&mut self, request: &Request<'_>) -> Result<Reply, Errno>;

    /// The fields of the reply.
    fn ask(&mut self, op: u32, node: u64, more: Reply) -> Result<Vec<u8>, Errno> {
        let bytes = request(op, node, &more.into_bytes());
        let request = Request::read(&bytes).expect("a request");
        let reply = Reply::finish(self.answer(&request), request.unique);
        fields(&reply).map(<[u8]>::to_vec)
    }

    /// The node of an entry, and its mode.
    fn find(&mut self, parent: u64, name: &str) -> Result<(u64, u32), Errno> {
        self.ask(op::LOOKUP, parent, text(name)).map(|entry| (number(&entry, 0), mode(&entry, 40)))
    }

    fn write(&mut self, handle: u64, offset: u64, bytes: &[u8]) -> Result<Vec<u8>, Errno> {
        let head = Reply::default().u64(handle).u64(offset).u32(bytes.len() as u32).u32(0);
        self.ask(op::WRITE, 0, head.u64(0).u64(0).bytes(bytes))
    }

    fn read(&mut self, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        self.ask(op::READ, 0, Reply::default().u64(handle).u64(offset).u32(size).u32(0).u64(0).u64(0))
    }

    fn open(&mut self, node: u64, flags: i32) -> Result<u64, Errno> {
        let more = Reply::default().u32(flags.cast_unsigned()).u32(0);
        self.ask(op::OPEN, node, more).map(|reply| number(&reply, 0))
    }
}

impl Asked for Folder {
    fn answer(&mut self, request: &Request<'_>) -> Result<Reply, Errno> {
        Self::answer(self, request)
    }
}

impl Asked for Given {
    fn answer(&mut self, request: &Request<'_>) -> Result<Reply, Errno> {
        Self::answer(self, request)
    }
}

fn text(name: &str) -> Reply {
    Reply::default().bytes(name.as_bytes()).bytes(&[0])
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"))
}

/// The mode in attributes that begin there.
fn mode(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at + 60..at + 64].try_into().expect("four"))
}

/// Makes a file; its node and handle.
fn create(folder: &mut Folder, name: &str, flags: i32) -> Result<(u64, u64), Errno> {
    let flags = flags | libc::O_CREAT;
    let head = Reply::default().u32(flags.cast_unsigned()).u32(0o640).u32(0).u32(0);
    let made = folder.ask(op::CREATE, ROOT, head.bytes(name.as_bytes()).bytes(&[0]))?;
    Ok((number(&made, 0), number(&made, 128)))
}

#[test]
fn files_are_written_read_and_listed() {
    let place = tempfile::tempdir().expect("a folder");
    let mut folder = folder(place.path(), false);
    assert_eq!(
        folder.ask(op::INIT, 0, Reply::default().u32(7).u32(38).u32(0).u32(0)).map(|r| r.len()),
        Ok(64)
    );
    let (node, handle) = create(&mut folder, "file", libc::O_RDWR | libc::O_EXCL).expect("made");
    assert_eq!(create(&mut folder, "file", libc::O_RDWR | libc::O_EXCL), Err(Errno::EEXIST));
    folder.write(handle, 3, b"words").expect("written");
    assert_eq!(folder.read(handle, 0, 100).expect("read"), b"\0\0\0words");
    assert_eq!(folder.read(handle, 0, u32::MAX).expect("no more than a transfer").len(), 8);
    let about = fs::metadata(place.path().join("file")).expect("there");
    assert_eq!((about.len(), about.permissions().mode() & 0o777), (8, 0o640));
    assert_eq!(folder.find(ROOT, "file"), Ok((node, about.mode())), "one node a file");

    let end = folder.open(node, libc::O_WRONLY | libc::O_APPEND).expect("opened");
    folder.write(end, 0, b"!").expect("written");
    assert_eq!(folder.read(handle, 0, 100).expect("read"), b"\0\0\0words!", "at the end, whatever the place");
    folder.ask(op::MKDIR, ROOT, Reply::default().u32(0o755).u32(0).bytes(b"sub\0")).expect("made");
    let (sub, _) = folder.find(ROOT, "sub").expect("there");
    folder.ask(op::RENAME, ROOT, Reply::default().u64(sub).bytes(b"file\0other\0")).expect("moved");
    assert!(place.path().join("sub/other").is_file());
    let listed = folder.ask(op::OPENDIR, ROOT, Reply::default().u64(0)).expect("opened");
    let list = |folder: &mut Folder, room| {
        let more = Reply::default().u64(number(&listed, 0)).u64(0).u32(room).u32(0).u64(0).u64(0);
        folder.ask(op::READDIR, ROOT, more)
    };
    let text = String::from_utf8_lossy(&list(&mut folder, 4096).expect("listed")).into_owned();
    assert!(text.contains("sub") && !text.contains("file"), "{text:?}");
    assert_eq!(list(&mut folder, 8), Err(Errno::EINVAL), "no room is not the end");
    assert_eq!(folder.ask(op::RMDIR, ROOT, self::text("sub")), Err(Errno::ENOTEMPTY));
    folder.ask(op::UNLINK, sub, self::text("other")).expect("removed");
    folder.ask(op::RMDIR, ROOT, self::text("sub")).expect("removed");
    folder.ask(op::RELEASE, node, Reply::default().u64(handle)).expect("closed");
    assert_eq!(folder.read(handle, 0, 1), Err(Errno::EBADF));
    assert_eq!(folder.ask(99, ROOT, Reply::default()), Err(Errno::ENOSYS));
}

#[test]
fn nothing_leads_out_of_a_folder() {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("secret"), "of others").expect("written");
    let inside = place.path().join("inside");
    fs::create_dir(&inside).expect("made");
    symlink("../secret", inside.join("link")).expect("made");
    symlink("..", inside.join("up")).expect("made");
    let mut folder = folder(&inside, false);
    for name in ["..", ".", "", "../secret", "up/secret", "/etc/passwd"] {
        assert_eq!(folder.find(ROOT, name), Err(Errno::EINVAL), "{name:?}");
        let head = Reply::default().u64(ROOT).bytes(b"link\0");
        assert_eq!(folder.ask(op::RENAME, ROOT, head.bytes(name.as_bytes()).bytes(&[0])), Err(Errno::EINVAL));
    }
    let (link, kind) = folder.find(ROOT, "link").expect("there");
    assert_eq!(kind & libc::S_IFMT, libc::S_IFLNK);
    assert_eq!(folder.ask(op::READLINK, link, Reply::default()).expect("read"), b"../secret");
    assert_eq!(folder.open(link, libc::O_RDONLY), Err(Errno::EACCES));
    assert_eq!(create(&mut folder, "link", libc::O_WRONLY), Err(Errno::ELOOP));
    let (up, _) = folder.find(ROOT, "up").expect("there");
    assert_eq!(folder.find(up, "secret"), Err(Errno::ENOTDIR));
    assert_eq!(folder.find(12345, "secret"), Err(Errno::ESTALE));
    // a size changes the file itself, and a mode not what a link leads to
    let more = Reply::default().u32(8).u32(0).u64(0).u64(0).bytes(&[0; 64]);
    assert!(folder.ask(op::SETATTR, link, more).is_err());
    let device = Reply::default().u32(libc::S_IFCHR | 0o666).u32(0x103).u64(0).bytes(b"null\0");
    assert_eq!(folder.ask(op::MKNOD, ROOT, device), Err(Errno::EPERM));
    assert_eq!(fs::read(place.path().join("secret")).expect("there"), b"of others");
    let processes = Folder::new(path(Path::new("/proc/self")), own(), false);
    assert_eq!(processes.err(), Some(Errno::EACCES));
}

#[test]
fn a_read_only_folder_stays_as_it_is() {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("file"), "kept").expect("written");
    let mut folder = folder(place.path(), true);
    let (node, _) = folder.find(ROOT, "file").expect("there");
    let handle = folder.open(node, libc::O_RDONLY).expect("opened");
    assert_eq!(folder.read(handle, 0, 10).expect("read"), b"kept");
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
        assert_eq!(folder.open(node, flags), Err(Errno::EROFS));
    }
    assert_eq!(folder.write(handle, 0, b"x"), Err(Errno::EROFS));
    assert_eq!(create(&mut folder, "new", libc::O_RDONLY), Err(Errno::EROFS));
    for op in [op::UNLINK, op::MKDIR, op::SETATTR, op::SYMLINK, op::RENAME2, op::LINK, op::FALLOCATE] {
        assert_eq!(folder.ask(op, ROOT, text("file")), Err(Errno::EROFS), "{op}");
    }
    assert_eq!(folder.ask(op::ACCESS, node, Reply::default().u32(2).u32(0)), Err(Errno::EROFS));
    assert_eq!(fs::read_dir(place.path()).expect("ours").count(), 1);
}

#[test]
fn a_file_that_is_forgotten_is_closed() {
    let place = tempfile::tempdir().expect("a folder");
    fs::write(place.path().join("file"), "").expect("written");
    let mut folder = folder(place.path(), false);
    let (node, _) = folder.find(ROOT, "file").expect("there");
    folder.find(ROOT, "file").expect("there");
    let forget = |folder: &mut Folder, count| {
        let bytes = request(op::FORGET, node, &u64::to_le_bytes(count));
        let request = Request::read(&bytes).expect("a request");
        assert!(!request.wants_reply() && folder.answer(&request).is_ok());
    };
    forget(&mut folder, 1);
    assert!(folder.ask(op::GETATTR, node, Reply::default()).is_ok());
    forget(&mut folder, u64::MAX);
    forget(&mut folder, 1);
    assert_eq!(folder.ask(op::GETATTR, node, Reply::default()), Err(Errno::ESTALE));
}

#[test]
fn files_that_were_opened_before_are_written_and_nothing_else() {
    let place = tempfile::tempdir().expect("a folder");
    let name = place.path().join("anywhere");
    let file = fs::File::options().append(true).create(true).open(&name).expect("made");
    let mut given = Given::new(vec![("out.3".into(), file.into())], own());
    let (node, kind) = given.find(ROOT, "out.3").expect("there");
    assert_eq!(kind & libc::S_IFMT, libc::S_IFREG);
    let handle = given.open(node, libc::O_WRONLY | libc::O_TRUNC).expect("opened");
    given.write(handle, 7, b"one ").and_then(|_| given.write(handle, 0, b"two")).expect("written");
    assert_eq!(fs::read(&name).expect("there"), b"one two");
    assert_eq!(given.find(ROOT, "out.4"), Err(Errno::EACCES));
    assert_eq!(given.read(handle, 0, 3), Err(Errno::EBADF), "it was opened for writing");
    for op in [op::UNLINK, op::MKDIR, op::OPENDIR, op::CREATE, op::STATFS] {
        assert_eq!(given.ask(op, ROOT, text("x")), Err(Errno::EACCES), "{op}");
    }
    let mut closed = Given::new(Vec::new(), own());
    assert_eq!(closed.find(ROOT, "x"), Err(Errno::EACCES));
    assert_eq!(closed.open(u64::MAX, 0), Err(Errno::ESTALE));
}

#[test]
fn a_full_disk_is_an_error_of_the_write() {
    let full = fs::File::options().write(true).open("/dev/full").expect("a device");
    let mut given = Given::new(vec![("out.0".into(), full.into())], own());
    let (node, _) = given.find(ROOT, "out.0").expect("there");
    let handle = given.open(node, libc::O_WRONLY).expect("opened");
    assert_eq!(given.write(handle, 0, &[0; 100]), Err(Errno::ENOSPC));
}

proptest! {
    #[test]
    fn no_request_panics_or_leads_out(
        op in 0_u32..60, node in 0_u64..4, more in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let place = tempfile::tempdir().expect("a folder");
        let inside = place.path().join("inside");
        fs::create_dir(&inside).expect("made");
        fs::write(inside.join("a"), "a").expect("written");
        let mut folder = folder(&inside, false);
        folder.find(ROOT, "a").expect("there");
        let opened = folder.ask(op::OPENDIR, ROOT, Reply::default().u64(0));
        prop_assert!(opened.is_ok());
        let reply = folder.ask(op, node, Reply::default().bytes(&more));
        prop_assert!(reply.map_or(0, |reply| reply.len()) <= TRANSFER);
        let beside: Vec<_> = fs::read_dir(place.path()).expect("ours").flatten().collect();
        prop_assert_eq!(beside.len(), 1);
    }
}
