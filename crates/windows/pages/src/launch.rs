// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program from its start to its end, with the pages that were asked for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use colony_node::memory::limits_of;

use nix::sys::resource::{UsageWho, getrusage};

use crate::fallbacks;
use crate::headroom::{self, Headroom, find_shortage};
use crate::image::Segment;
use crate::misses::Misses;
use crate::place::{Pages, Placed, place, place_libraries};
use crate::policy::PagePolicy;
use crate::report::{Counted, Faults, PagesReport, Shortage};
use crate::room::Room;
use crate::sample::{Moves, Sample};
use crate::support::{Request, Support};
use crate::symbols;
use crate::tracee::{self, Reached, Tracee};
use crate::watch::{Processes, Watcher};

/// The variable with settings of the GNU C library.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// The allocator asks for large pages (glibc 2.35).
const HEAP: &str = "glibc.malloc.hugetlb";
/// Permissions by which a program gets another user's rights.
const SET_ID: u32 = 0o6000;

/// The start of a program with large pages.
pub struct Launch {
    policy: PagePolicy,
    node: Support,
    request: Request,
    /// The shortage of memory because of which the program has base pages from its start.
    shortage: Option<Shortage>,
    program: i32,
    mask: u64,
    traced: Result<(), String>,
    placed: Placed,
    misses: Result<Misses, String>,
    first: Option<Sample>,
    perf_map: Option<PathBuf>,
    started: Instant,
    faults_before: Faults,
    fallbacks_before: Option<u64>,
    warnings: Vec<String>,
}

impl Launch {
    /// Reads the node's settings, and the memory that is left. Page faults are counted from now on.
    #[must_use]
    pub fn new(policy: PagePolicy) -> Self {
        let node = Support::here();
        let wanted = node.request(policy);
        // the program will be in the cgroup of this process, or in one below
        let limits = limits_of(std::process::id().cast_signed());
        let shortage = find_shortage(&limits, 0).filter(|_| wanted != Request::None);
        let shortage = shortage.map(|limit| Shortage::of(limit, 0, 0));
        Self {
            warnings: node.warnings(policy),
            policy,
            node,
            request: if shortage.is_some() { Request::None } else { wanted },
            shortage,
            program: 0,
            mask: 0,
            traced: Ok(()),
            placed: Placed::default(),
            misses: Err("the program was not stopped at its start".into()),
            first: None,
            perf_map: None,
            started: Instant::now(),
            faults_before: faults(),
            fallbacks_before: fallbacks::so_far(policy),
        }
    }

    /// Makes the command start with these pages. `mask` is the signal mask that the program is to have: bit n-1 for signal n. Call
    /// it after every other `pre_exec`.
    pub fn prepare(&mut self, command: &mut Command, mask: u64) {
        self.mask = mask;
        let base = self.request == Request::None;
        if self.request == Request::Ask {
            let value = tunables(std::env::var_os(TUNABLES).as_deref());
            command.env(TUNABLES, value);
        }
        self.traced = may_be_stopped(command.get_program());
        let traced = self.traced.is_ok();
        let before = move || {
            // a parent's setting is inherited; where the kernel refuses, the report shows the pages
            // SAFETY: the call takes numbers only.
            let _ = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(base), 0, 0, 0) };
            if traced {
                tracee::ask();
            }
            Ok(())
        };
        // SAFETY: between fork and exec the closure makes system calls alone.
        unsafe { command.pre_exec(before) };
    }

    /// Puts the program on its pages, and lets it run. Call it on the thread that started the program, right after the start.
    pub fn place(&mut self, pid: i32) {
        self.started = Instant::now();
        self.program = pid;
        let stopped = std::mem::replace(&mut self.traced, Ok(())).and_then(|()| Tracee::new(pid, self.mask));
        match stopped {
            Ok(mut tracee) => self.place_stopped(&mut tracee),
            Err(reason) => {
                self.warnings.push(format!("text, data, bss and stack are as the kernel made them: {reason}"))
            }
        }
    }

    fn place_stopped(&mut self, tracee: &mut Tracee) {
        self.misses = Misses::of(tracee.pid());
        if self.request != Request::None {
            let huge = self.policy == PagePolicy::Huge;
            let bytes = if huge { self.node.huge_bytes } else { PagePolicy::MEDIUM_BYTES };
            let pages = Pages { bytes, huge, ask: self.request == Request::Ask };
            let mut room = Room::of(tracee.pid());
            match place(tracee, pages, &mut room) {
                Ok(placed) => {
                    self.placed = placed;
                    self.place_libraries(tracee, pages, &mut room);
                }
                Err(reason) => {
                    self.warnings
                        .push(format!("text, data, bss and stack are as the kernel made them: {reason}"));
                }
            }
            self.warnings.append(&mut self.placed.refused);
            match symbols::write_map(tracee.pid(), &self.placed) {
                Ok(path) => self.perf_map = path,
                Err(e) => self.warnings.push(format!("perf will not name functions: no map of them: {e}")),
            }
        }
        self.first = Sample::take(&[tracee.pid()], 0, &self.moves()).map(|look| look.sample);
    }

    /// Huge pages alone: smaller ones are worth less than the sharing of libraries between processes.
    fn place_libraries(&mut self, tracee: &mut Tracee, pages: Pages, room: &mut Room) {
        if !pages.huge || !self.placed.image.is_dynamic {
            return;
        }
        let reason = match tracee.run_to_entry(self.placed.image.entry) {
            Reached::Entry => place_libraries(tracee, pages, room, &mut self.placed).err(),
            Reached::End => None,
            Reached::Elsewhere(reason) => Some(reason.to_owned()),
        };
        self.warnings.extend(reason.map(|r| format!("libraries are as the kernel made them: {r}")));
    }

    fn moves(&self) -> Moves {
        let libraries = self.placed.moved.iter().filter(|m| m.segment == Segment::Libraries);
        Moves {
            image: self.placed.image.clone(),
            libraries: libraries.map(|m| m.start..m.start + m.bytes).collect(),
        }
    }

    /// Looks at the memory of `processes` from now on.
    #[must_use]
    pub fn watch(mut self, processes: impl Fn() -> Vec<i32> + Send + Sync + 'static) -> Watch {
        let (first, moves) = (self.first.take(), self.moves());
        let processes: Processes = Arc::new(processes);
        let watcher = Watcher::start(self.started, Arc::clone(&processes), first, moves);
        let headroom = Headroom::new(self.request != Request::None);
        Watch { launch: self, watcher, processes, headroom }
    }
}

/// A program that runs on its pages.
pub struct Watch {
    launch: Launch,
    watcher: std::io::Result<Watcher>,
    processes: Processes,
    headroom: Headroom,
}

impl Watch {
    /// Looks at the memory that is left, if a look is due. If large pages could exceed a limit, the job's processes are put on base pages, each
    /// by a stop of one thread for some microseconds. Returns the time until the next look, if there is one.
    ///
    /// Call it on the thread that waits for the job's processes, between two waits: the wait of another thread could take
    /// a stop.
    pub fn check_headroom(&mut self) -> Option<Duration> {
        let untouched = || self.watcher.as_ref().map_or(0, Watcher::untouched);
        self.headroom.check(self.launch.program, &self.processes, untouched, self.launch.started)
    }

    /// The proof, once the program has been waited for.
    #[must_use]
    pub fn finish(self) -> PagesReport {
        let Self { launch, watcher, headroom, .. } = self;
        let mut warnings = launch.warnings;
        let (later, not_stopped) = headroom.finish();
        let shortage = launch.shortage.or(later);
        warnings.extend(shortage.as_ref().map(headroom::note));
        warnings.extend(not_stopped);
        let sample = match watcher {
            Ok(watcher) => watcher.finish(),
            Err(e) => {
                warnings.push(format!("the program's memory was not looked at: no thread for that: {e}"));
                None
            }
        };
        let fallbacks = fallbacks::so_far(launch.policy);
        warnings.extend(fallbacks::warning(launch.policy, launch.fallbacks_before, fallbacks));
        let now = faults();
        let since = |now: u64, before: u64| now.saturating_sub(before);
        PagesReport {
            policy: launch.policy,
            node: launch.node,
            moved: launch.placed.moved,
            sample,
            faults: Faults {
                minor: since(now.minor, launch.faults_before.minor),
                major: since(now.major, launch.faults_before.major),
            },
            dtlb_event: launch.misses.as_ref().ok().map(|m| m.name().to_owned()),
            dtlb_misses: match launch.misses.and_then(|mut m| m.count()) {
                Ok(count) => Counted::Count(count),
                Err(reason) => Counted::NotCounted(reason),
            },
            shortage,
            perf_map: launch.perf_map,
            warnings,
        }
    }
}

/// Page faults of children that were waited for, and of theirs.
fn faults() -> Faults {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    getrusage(UsageWho::RUSAGE_CHILDREN)
        .map(|u| Faults { minor: count(u.minor_page_faults()), major: count(u.major_page_faults()) })
        .unwrap_or_default()
}

/// Settings of the C library with large pages for the heap. A value that the user chose stays.
fn tunables(before: Option<&OsStr>) -> OsString {
    let chosen = |t: &[u8]| t.split(|&b| b == b'=').next() == Some(HEAP.as_bytes());
    let mut value = before.unwrap_or_default().to_owned();
    if !value.as_bytes().split(|&b| b == b':').any(chosen) {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(format!("{HEAP}=1"));
    }
    value
}

/// A program that is traced does not get the rights of its file's owner.
fn may_be_stopped(program: &OsStr) -> Result<(), String> {
    let privileged = find(program).is_some_and(|path| {
        std::fs::metadata(&path).is_ok_and(|m| m.mode() & SET_ID != 0) || has_capabilities(&path)
    });
    let reason = "the program is set-user-ID or has capabilities, which it would lose if it were stopped";
    if privileged && !nix::unistd::geteuid().is_root() { Err(reason.into()) } else { Ok(()) }
}

/// The file that `execvp` would take.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(Path::new(program).to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: both strings end with a zero; with a length of 0 the kernel writes nothing.
    unsafe { libc::getxattr(path.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_settings_of_the_c_library_stay() {
        let of = |text: Option<&str>| tunables(text.map(OsStr::new)).into_string().expect("text");
        assert_eq!(of(None), "glibc.malloc.hugetlb=1");
        assert_eq!(of(Some("glibc.malloc.arena_max=1")), "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1");
        assert_eq!(of(Some("glibc.malloc.hugetlb=2")), "glibc.malloc.hugetlb=2");
    }

    #[test]
    fn a_program_is_found_as_execvp_finds_it() {
        assert_eq!(find(OsStr::new("./a")), Some("./a".into()));
        assert!(find(OsStr::new("sh")).is_some_and(|p| p.is_absolute()));
        assert_eq!(find(OsStr::new("no-such-program-anywhere")), None);
        assert!(!has_capabilities(Path::new("/bin/sh")));
    }
}
