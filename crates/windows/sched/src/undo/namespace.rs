// SPDX-License-Identifier: MIT OR Apache-2.0
//! The mount namespace in which a process changed its node: a path means something there, and often something else elsewhere.
//!
//! The kernel starts the [release agent](super::arm) in its own mount namespace, and a daemon may run in another one, as in a
//! container that shares the process numbers and the folders for undo with its host.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::sched::{CloneFlags, setns, unshare};
use serde::{Deserialize, Serialize};

/// A mount namespace. The number is unique among those that exist, and used again when one has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountNamespace {
    device: u64,
    inode: u64,
}

impl MountNamespace {
    /// The mount namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn here() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self")).map(|(namespace, _)| namespace)
    }

    /// The namespace of the process with this folder in `/proc`, and a descriptor that keeps it.
    fn open(process: &Path) -> io::Result<(Self, File)> {
        let file = File::open(process.join("ns/mnt"))?;
        let about = file.metadata()?;
        Ok((Self { device: about.dev(), inode: about.ino() }, file))
    }

    /// Does the work in a thread that has entered this namespace. Returns `None` if no process is in it any more: its mounts have
    /// ended with it.
    ///
    /// # Errors
    /// The kernel refuses: this needs `CAP_SYS_ADMIN` and `CAP_SYS_CHROOT`.
    pub(super) fn enter<T: Send>(self, work: impl FnOnce() -> T + Send) -> io::Result<Option<T>> {
        let Some(file) = self.find()? else { return Ok(None) };
        std::thread::scope(|scope| {
            let inside = scope.spawn(move || {
                // the root folder changes with the namespace, and is this thread's alone from here on
                unshare(CloneFlags::CLONE_FS)?;
                setns(file, CloneFlags::CLONE_NEWNS)?;
                Ok(Some(work()))
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A descriptor of this namespace, from any process that is in it.
    fn find(self) -> io::Result<Option<File>> {
        for entry in std::fs::read_dir("/proc")? {
            // skips processes that end meanwhile, and those that this user may not inspect
            let Ok(entry) = entry else { continue };
            if let Ok((found, file)) = Self::open(&entry.path())
                && found == self
            {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn work_is_done_in_the_namespace_of_another_process_and_only_while_one_is_in_it() {
        if !nix::unistd::geteuid().is_root() {
            return colony_testing::skip("only root enters a mount namespace");
        }
        let folder = tempfile::tempdir().expect("temp dir");
        let here = MountNamespace::here().expect("linux");
        let script = "mount -t tmpfs colony-test \"$0\" && touch \"$0/inside\" && echo ready && read end";
        let mut other = Command::new("unshare");
        other.args(["--mount", "--propagation", "private", "sh", "-c", script]).arg(folder.path());
        let mut other =
            other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("unshare is in every Debian");
        let mut ready = [0; 5];
        io::Read::read_exact(other.stdout.as_mut().expect("piped"), &mut ready).expect("mounted");
        let (there, _) =
            MountNamespace::open(&Path::new("/proc").join(other.id().to_string())).expect("alive");
        assert_ne!(there, here);
        let file = folder.path().join("inside");
        let seen = there.enter(|| (file.exists(), MountNamespace::here().expect("linux")));
        assert_eq!(seen.expect("root may"), Some((true, there)));
        assert!(!file.exists(), "the other threads are where they were");
        drop(other.stdin.take());
        other.wait().expect("ours");
        // the kernel frees a namespace a little later, and may use its number again for one of another program
        assert!(!there.enter(|| file.exists()).expect("root may").unwrap_or(false));
    }
}
