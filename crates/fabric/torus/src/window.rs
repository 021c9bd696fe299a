// SPDX-License-Identifier: MIT OR Apache-2.0
//! The window as memory of this process.

use std::fs::{File, OpenOptions};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::layout::{Layout, MAGIC, VERSION, header, state};
use crate::{Dims, Error};

/// The state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankState {
    /// It has not joined.
    Absent,
    /// It has joined and has not left.
    Joined,
    /// It has left.
    Left,
}

/// The memory that all ranks share.
///
/// A launcher [creates](Self::create) it; ranks join it with [`Torus::join`](crate::Torus::join).
#[derive(Debug)]
pub struct Window {
    base: NonNull<AtomicU64>,
    words: usize,
    layout: Layout,
    /// True if this process mapped it, and unmaps it.
    mapped: bool,
}

// SAFETY: the memory is only accessed through atomics, which any thread may do, until `drop`, which needs
// the window for itself.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Drop for Window {
    fn drop(&mut self) {
        if self.mapped {
            // SAFETY: the mapping was made in `map` with this length, and no reference to it outlives `self`.
            // Failure leaves it mapped, which harms nobody.
            let _ = unsafe { munmap(self.base.cast(), self.words * 8) };
        }
    }
}

impl Window {
    /// Makes the window of a job, in a new file that only this user may open; ranks may join when it
    /// returns. The launcher keeps it for as long as the job runs (to [`abort`](Self::abort) it) and
    /// removes the file afterwards.
    ///
    /// # Errors
    /// [`Error::File`], also where the file exists; [`Error::Dims`].
    pub fn create(path: &Path, dims: Dims) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(file_error("create", path))?;
        Self::create_in(&file, dims).map_err(|e| {
            // nothing half-made stays; the first error is the one to tell
            let _ = std::fs::remove_file(path);
            match e {
                Error::File { what, source, .. } => file_error(what, path)(source),
                e => e,
            }
        })
    }

    /// Makes the window of a job in a file (or memfd) that holds nothing but zeros; it is made longer where
    /// it is shorter than [`Layout::bytes`].
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Dims`].
    pub fn create_in(file: &File, dims: Dims) -> Result<Self, Error> {
        let layout = Layout::new(dims)?;
        let path = Path::new("(open file)");
        let bytes = layout.bytes();
        let found = file.metadata().map_err(file_error("measure", path))?.len();
        if found < bytes as u64 {
            file.set_len(bytes as u64).map_err(file_error("lengthen", path))?;
        }
        let base = map(file, bytes, path)?;
        let window = Self { base, words: bytes / 8, layout, mapped: true };
        let head = window.all();
        let [x, y, z] = dims.sides();
        for (place, value) in [
            (header::VERSION, VERSION),
            (header::RANKS, dims.ranks() as u64),
            (header::DIMS, x as u64),
            (header::DIMS + 1, y as u64),
            (header::DIMS + 2, z as u64),
            (header::SLOTS, layout.slots() as u64),
            (header::BYTES, bytes as u64),
        ] {
            head[place].store(value, Relaxed);
        }
        head[header::MAGIC].store(MAGIC, Release);
        Ok(window)
    }

    /// Maps the window in a file.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(file_error("open", path))?;
        let length = file.metadata().map_err(file_error("measure", path))?.len();
        let bytes = usize::try_from(length).unwrap_or(0) & !7;
        if bytes < Layout::state_at(0) * 8 {
            return Err(Error::Window { reason: format!("{} is only {length} bytes long", path.display()) });
        }
        let base = map(&file, bytes, path)?;
        // SAFETY: `map` has just mapped that many bytes, page-aligned, and nothing else knows of them.
        unsafe { Self::at(base, bytes, true) }
    }

    /// The window at an address.
    ///
    /// # Safety
    /// `bytes` bytes from `base`, aligned to 8, are mapped, readable and writable, until the window is
    /// dropped; other processes may write to them, this one only through the window. With `mapped`, they
    /// are a mapping of their own.
    pub(crate) unsafe fn at(base: NonNull<AtomicU64>, bytes: usize, mapped: bool) -> Result<Self, Error> {
        let one = Dims::new([1, 1, 1])?;
        let mut window = Self { base, words: bytes / 8, layout: Layout::with_slots(one, 4)?, mapped };
        window.layout = window.read_layout()?;
        Ok(window)
    }

    /// Reads the layout from the header, and checks it.
    fn read_layout(&self) -> Result<Layout, Error> {
        let wrong = |reason: String| Err(Error::Window { reason });
        if self.words < Layout::state_at(0) {
            return wrong(format!("{} bytes do not hold a header", self.words * 8));
        }
        let head = self.all();
        if head[header::MAGIC].load(Acquire) != MAGIC {
            return wrong("it does not begin with COLTORUS".into());
        }
        let field = |place: usize| head[place].load(Relaxed);
        if field(header::VERSION) != VERSION {
            return wrong(format!("its version is {}, and this program's {VERSION}", field(header::VERSION)));
        }
        let side = |axis: usize| usize::try_from(field(header::DIMS + axis)).unwrap_or(0);
        let dims = Dims::new([side(0), side(1), side(2)])?;
        let slots = field(header::SLOTS);
        if !(slots.is_power_of_two() && slots <= 1 << 16) {
            return wrong(format!("inboxes of {slots} packets cannot be"));
        }
        let layout = Layout::with_slots(dims, slots as usize)?;
        if field(header::RANKS) != dims.ranks() as u64 || field(header::BYTES) != layout.bytes() as u64 {
            return wrong("its sizes contradict each other".into());
        }
        if layout.bytes() > self.words * 8 {
            return wrong(format!("it is {} bytes long and should be {}", self.words * 8, layout.bytes()));
        }
        Ok(layout)
    }

    pub(crate) const fn is_own_mapping(&self) -> bool {
        self.mapped
    }

    /// Sizes and places.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Tells all ranks that the job has ended: every rank that waits, or will, gets [`Error::Aborted`]. For the
    /// launcher, when a rank has died.
    pub fn abort(&self) {
        self.set_abort(u64::MAX);
    }

    pub(crate) fn abort_by(&self, rank: usize) {
        self.set_abort(1 + rank as u64);
    }

    fn set_abort(&self, by: u64) {
        // who was first is the one to name
        let _ = self.all()[header::ABORT].compare_exchange(0, by, Release, Relaxed);
    }

    /// Returns an error if a rank or the launcher has ended the job.
    ///
    /// # Errors
    /// [`Error::Aborted`].
    pub fn check_abort(&self) -> Result<(), Error> {
        match self.all()[header::ABORT].load(Acquire) {
            0 => Ok(()),
            by => {
                let rank = usize::try_from(by - 1).ok().filter(|&rank| rank < self.layout.dims().ranks());
                Err(Error::Aborted { by: rank })
            }
        }
    }

    pub(crate) fn state(&self, rank: usize) -> u64 {
        self.all()[Layout::state_at(rank)].load(Acquire)
    }

    /// The state of a rank, for the launcher.
    #[must_use]
    pub fn rank_state(&self, rank: usize) -> RankState {
        match if rank < self.layout.dims().ranks() { self.state(rank) } else { 0 } {
            0 => RankState::Absent,
            state::JOINED => RankState::Joined,
            _ => RankState::Left,
        }
    }

    /// Takes the place of a rank.
    pub(crate) fn take(&self, rank: usize) -> Result<(), Error> {
        let word = &self.all()[Layout::state_at(rank)];
        match word.compare_exchange(0, state::JOINED, Release, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Taken { rank }),
        }
    }

    pub(crate) fn leave(&self, rank: usize) {
        self.all()[Layout::state_at(rank)].store(state::LEFT, Release);
    }

    pub(crate) fn words(&self, range: Range<usize>) -> &[AtomicU64] {
        &self.all()[range]
    }

    fn all(&self) -> &[AtomicU64] {
        // SAFETY: `base` is the start of `words` mapped words, aligned, for the life of `self`; they are
        // accessed through atomics only, by this process and by others.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }
}

fn file_error<'a>(what: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |source| Error::File { what, path: path.to_owned(), source }
}

/// Maps the first bytes of a file that is at least as long, shared.
fn map(file: &File, bytes: usize, path: &Path) -> Result<NonNull<AtomicU64>, Error> {
    let error = |source: nix::Error| file_error("map", path)(source.into());
    let length = NonZeroUsize::new(bytes).ok_or_else(|| error(nix::Error::EINVAL))?;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping, at an address that the system chooses, changes no memory that is in use.
    let base = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, file, 0) };
    Ok(base.map_err(error)?.cast())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file() -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("window");
        (dir, path)
    }

    #[test]
    fn a_created_window_opens_and_a_second_creation_is_refused() {
        let (_dir, path) = file();
        let dims = Dims::new([3, 2, 1]).expect("a torus");
        let created = Window::create(&path, dims).expect("made");
        let opened = Window::open(&path).expect("there");
        assert_eq!(opened.layout(), created.layout());
        assert_eq!(opened.layout().dims(), dims);
        assert!(matches!(Window::create(&path, dims), Err(Error::File { what: "create", .. })));
        assert!(opened.check_abort().is_ok());
        created.abort();
        assert!(matches!(opened.check_abort(), Err(Error::Aborted { by: None })));
    }

    #[test]
    fn a_rank_is_taken_once() {
        let (_dir, path) = file();
        let window = Window::create(&path, Dims::new([2, 1, 1]).expect("a torus")).expect("made");
        assert_eq!(window.rank_state(1), RankState::Absent);
        window.take(1).expect("free");
        assert_eq!(window.rank_state(1), RankState::Joined);
        assert!(matches!(window.take(1), Err(Error::Taken { rank: 1 })));
        window.leave(1);
        assert_eq!((window.rank_state(1), window.rank_state(9)), (RankState::Left, RankState::Absent));
        assert!(matches!(window.take(1), Err(Error::Taken { rank: 1 })));
    }

    #[test]
    fn other_files_are_no_windows() {
        let (_dir, path) = file();
        assert!(matches!(Window::open(&path), Err(Error::File { what: "open", .. })));
        for length in [0, 100, 4096, 1 << 20] {
            std::fs::write(&path, vec![0; length]).expect("ours");
            assert!(matches!(Window::open(&path), Err(Error::Window { .. })), "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_a_layout_that_leaves_the_window(
            changes in prop::collection::vec((0usize..9, prop_oneof![any::<u64>(), 0u64..5000]), 1..4),
        ) {
            let (_dir, path) = file();
            let window = Window::create(&path, Dims::new([2, 2, 1]).expect("a torus")).expect("made");
            for (place, value) in changes {
                window.all()[place].store(value, Relaxed);
            }
            if let Ok(opened) = Window::open(&path) {
                let layout = opened.layout();
                prop_assert!(layout.bytes() <= opened.words * 8);
                let last = layout.dims().ranks() - 1;
                prop_assert!(layout.inbox(last).end <= opened.words);
            }
        }
    }
}
