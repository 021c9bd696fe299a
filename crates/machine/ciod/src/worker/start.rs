// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the description of a job to processes on its nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use colony_fship::layout::{self, JobBlock};

use super::image::{self, Start};
use super::node::Node;
use super::process::{Description, Descriptor, Kind, Process};
use crate::control::{NodeSetup, Setup};
use crate::elf::{self, Program};
use crate::{JobError, JobSpec, ProgramError};

/// A program that was opened and looked at.
pub(crate) struct Opened {
    pub(crate) file: File,
    pub(crate) program: Program,
    pub(super) path: PathBuf,
}

/// Opens a program as the user, for processes with so many bytes of memory.
pub(crate) fn open(path: &Path, memory: u64) -> Result<Opened, ProgramError> {
    let file = File::options().read(true).custom_flags(OPEN).open(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ProgramError::Missing,
        io::ErrorKind::PermissionDenied => ProgramError::NotExecutable,
        _ => ProgramError::Read(e.to_string()),
    })?;
    inspect(file, path.to_owned(), memory)
}

/// Flags for opening programs: for reading, without waiting whatever the file is.
pub(super) const OPEN: i32 = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;

/// Checks a file that was opened, and reads its headers.
pub(super) fn inspect(file: File, path: PathBuf, memory: u64) -> Result<Opened, ProgramError> {
    let kind = file.metadata().map_err(|e| ProgramError::Read(e.to_string()))?.file_type();
    if !kind.is_file() {
        return Err(ProgramError::NotAFile);
    }
    use nix::unistd::{AccessFlags, faccessat};
    faccessat(
        &file,
        "",
        AccessFlags::X_OK,
        nix::fcntl::AtFlags::AT_EMPTY_PATH | nix::fcntl::AtFlags::AT_EACCESS,
    )
    .map_err(|_| ProgramError::NotExecutable)?;
    let program = elf::read(&file, memory)?;
    Ok(Opened { file, program, path })
}

/// State that every process of the job has from its start.
pub(super) struct Job {
    pub(super) directory: Rc<OwnedFd>,
    programs: BTreeMap<PathBuf, Opened>,
    random: [u64; 4],
}

/// Goes to the job's directory and opens its programs.
pub(super) fn job(setup: &Setup, memory: u64) -> Result<Job, JobError> {
    let spec = &setup.spec;
    let stopped = |e: &io::Error| JobError::Directory { path: spec.directory.clone(), why: e.to_string() };
    std::env::set_current_dir(&spec.directory).map_err(|e| stopped(&e))?;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    let directory = File::options().read(true).custom_flags(flags).open(".").map_err(|e| stopped(&e))?;
    let mut programs = BTreeMap::new();
    for path in self::programs(setup) {
        let opened = open(&path, memory).map_err(|why| JobError::Program { path: path.clone(), why })?;
        programs.insert(path, opened);
    }
    let mut random = [0u8; 32];
    File::open("/dev/urandom")
        .and_then(|mut f| io::Read::read_exact(&mut f, &mut random))
        .or_else(|_| {
            // a root directory without devices
            // SAFETY: so many bytes are there
            let n = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
            if n == 32 { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
        .map_err(|e| JobError::System(format!("random numbers: {e}")))?;
    let random = std::array::from_fn(|n| u64::from_le_bytes(std::array::from_fn(|i| random[n * 8 + i])));
    Ok(Job { directory: Rc::new(directory.into()), programs, random })
}

/// The programs of a worker's ranks.
pub(crate) fn programs(setup: &Setup) -> BTreeSet<PathBuf> {
    let ranks = setup.nodes.iter().flat_map(|node| node.ranks.clone());
    ranks.map(|rank| program_of(&setup.spec, rank).0.to_owned()).collect()
}

/// Program and arguments of a rank.
fn program_of(spec: &JobSpec, rank: u32) -> (&Path, &[String]) {
    let own = spec.programs.iter().rev().find(|p| (p.first..=p.last).contains(&rank));
    own.map_or((&spec.executable, &spec.arguments), |p| (&p.executable, &p.arguments))
}

fn text(s: &str) -> Result<CString, JobError> {
    CString::new(s).map_err(|_| JobError::Spec(format!("{s:?}: a zero in an argument or the environment")))
}

impl Job {
    /// Random numbers that no other use has, from the job's seed.
    fn mixed(&self, rank: u32, n: u64) -> u64 {
        // SplitMix64 over the seed: different streams, not secrets
        let mut z =
            self.random[(n % 4) as usize] ^ (u64::from(rank) << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The start of a rank: arguments, environment, identity.
    fn start(&self, setup: &Setup, rank: u32) -> Result<Start, JobError> {
        let spec = &setup.spec;
        let (path, arguments) = program_of(spec, rank);
        let path = path.to_string_lossy();
        let mut all = vec![text(spec.name.as_deref().unwrap_or(&path))?];
        for a in arguments {
            all.push(text(a)?);
        }
        let [x, y, z] = setup.torus;
        let mut environment = spec.environment.clone();
        let mut own = |name: &str, value: String| environment.insert(name.to_owned(), value);
        own("COLONY_RANK", rank.to_string());
        own("COLONY_SIZE", setup.size.to_string());
        own("COLONY_TORUS_DIMS", format!("{x},{y},{z}"));
        if let Some(bytes) = spec.torus_bytes {
            own("COLONY_TORUS", format!("{:#x}:{bytes:#x}", layout::TORUS_VA));
        }
        let environment =
            environment.iter().map(|(k, v)| text(&format!("{k}={v}"))).collect::<Result<Vec<_>, _>>()?;
        let random = [self.mixed(rank, 0), self.mixed(rank, 1)];
        let random = std::array::from_fn(|n| random[n / 8].to_le_bytes()[n % 8]);
        let (uid, gid) = (setup.identity.uid, setup.identity.gid);
        Ok(Start { arguments: all, environment, path: text(&path)?, uid, gid, random })
    }

    /// Writes job block and images of node `n` of the worker; its processes, by channel.
    pub(super) fn place(&self, setup: &Setup, n: usize, node: &Node) -> Result<Vec<Process>, JobError> {
        let banks = setup.spec.mode.processes();
        let NodeSetup { ranks, personality, .. } = &setup.nodes[n];
        let first = ranks.start;
        let mut block = JobBlock {
            version: colony_fship::VERSION,
            processes_len: ranks.end.saturating_sub(first).min(banks),
            realtime_ns: 0,
            random: std::array::from_fn(|i| self.mixed(first, 8 + i as u64)),
            personality: *personality,
            processes: Default::default(),
        };
        let mut all = Vec::new();
        for c in 0..block.processes_len {
            let rank = first + c;
            let bank = node.window.bank(c as usize, banks as usize);
            let (path, _) = program_of(&setup.spec, rank);
            let Some(opened) = self.programs.get(path) else { continue };
            let start = self.start(setup, rank)?;
            let to = &mut block.processes[c as usize];
            identify(to, setup, rank);
            image::place(&opened.file, &opened.program, &start, &bank, to)
                .map_err(|why| JobError::Program { path: path.to_owned(), why })?;
            let mut process = Process::new(rank, bank, self.directory.clone());
            process.executable = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            all.push(process);
        }
        node.window.put(layout::JOB_AT, &block);
        Ok(all)
    }

    /// Writes the wall clock into the job block of a node that begins now.
    pub(super) fn set_clock(node: &Node) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now: u64 = now.as_nanos().try_into().unwrap_or(u64::MAX);
        node.window.put(layout::JOB_AT + offset_of!(JobBlock, realtime_ns) as u64, &now);
    }

    /// A process's standard streams: input for rank 0 only.
    pub(super) fn streams(
        &self,
        process: &mut Process,
        stdin: &Descriptor,
        outputs: [std::os::fd::BorrowedFd<'_>; 2],
    ) -> Result<(), JobError> {
        let failed = |e: io::Error| JobError::System(format!("standard streams: {e}"));
        let input = if process.rank == 0 {
            stdin.duplicate(false).map_err(|e| JobError::System(e.to_string()))?
        } else {
            // of nothing at all, where there is no /dev/null: an empty pipe, whose writer is gone
            let null = File::open("/dev/null").map(OwnedFd::from);
            let null = null.or_else(|_| std::io::pipe().map(|(reader, _)| reader.into())).map_err(failed)?;
            Descriptor::new(null, Kind::Stream, false, false)
        };
        process.files.put(0, input);
        for (n, fd) in outputs.into_iter().enumerate() {
            let fd = fd.try_clone_to_owned().map_err(failed)?;
            // reading it may wait: others share it
            let about = Description::new(Kind::Output(n), false, true);
            process.files.put(n + 1, Descriptor { fd, about: about.into(), close_on_exec: false });
        }
        Ok(())
    }
}

/// Writes the identity of a process into its block.
pub(super) fn identify(to: &mut layout::Process, setup: &Setup, rank: u32) {
    let identity = &setup.identity;
    (to.rank, to.pid, to.ppid) = (rank, rank + 2, 1);
    (to.uid, to.gid) = (identity.uid, identity.gid);
    let known = identity.groups.len().min(to.groups.len());
    to.groups[..known].copy_from_slice(&identity.groups[..known]);
    to.groups_len = known as u32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_cannot_run_say_why() {
        let why = |path: &str| open(Path::new(path), 64 << 20).err();
        assert_eq!(why("/no/such"), Some(ProgramError::Missing));
        assert_eq!(why("/tmp"), Some(ProgramError::NotAFile));
        assert_eq!(why("/dev/null"), Some(ProgramError::NotAFile));
        assert_eq!(why("/etc/passwd"), Some(ProgramError::NotExecutable));
        assert!(matches!(why("/bin/sh"), Some(ProgramError::Dynamic(_))));
    }
}
