// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are the standard streams of a job. The worker is the user when it opens them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::output::Output;
use super::process::{Description, Descriptor, Kind};
use crate::{JobError, JobSpec};

/// Stands for the rank in the name of a file.
pub(crate) const RANK: &str = "%r";

/// Opens a file, without waiting whatever it is. Only regular files and devices are taken.
fn open(path: &Path, options: &mut std::fs::OpenOptions, flags: i32) -> Result<(File, Kind), JobError> {
    let refused = |e: io::Error| JobError::Stream { path: path.to_owned(), why: e.to_string() };
    let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = options.custom_flags(flags).open(path).map_err(refused)?;
    let kind = file.metadata().map_err(refused)?.file_type();
    match kind {
        kind if kind.is_file() => Ok((file, Kind::File)),
        kind if kind.is_char_device() => Ok((file, Kind::Stream)),
        _ => Err(refused(io::Error::other("it is neither a regular file nor a device"))),
    }
}

/// Opens a file for output, and empties it. The programs of the job have not begun.
fn create_kind(path: &Path) -> Result<(File, Kind), JobError> {
    // several workers may write to one file
    open(path, File::options().append(true).create(true).mode(0o644), libc::O_TRUNC)
}

/// As [`create_kind`].
pub(crate) fn create(path: &Path) -> Result<File, JobError> {
    Ok(create_kind(path)?.0)
}

/// The name of the file of a rank.
pub(crate) fn of(pattern: &str, rank: u32) -> String {
    pattern.replace(RANK, &rank.to_string())
}

fn patterns(spec: &JobSpec) -> [Option<&str>; 2] {
    [spec.stdout.as_deref(), spec.stderr.as_deref()]
}

/// The standard input of rank 0, if it is a file.
pub(crate) fn input(spec: &JobSpec) -> Result<Option<Descriptor>, JobError> {
    let Some(path) = &spec.stdin else { return Ok(None) };
    let (file, kind) = open(path, File::options().read(true), 0)?;
    Ok(Some(Descriptor::new(file.into(), kind, false, false)))
}

/// The outputs of the job: a file of the user in place of a stream if all ranks have one. The limit of streams holds for the others.
pub(crate) fn outputs(spec: &JobSpec, streams: [Output; 2]) -> Result<[Output; 2], JobError> {
    let [stdout, stderr] = patterns(spec);
    let [out, err] = streams;
    let whole = |pattern: Option<&str>, stream: Output| match pattern.filter(|name| !name.contains(RANK)) {
        Some(name) => Ok(Output::new(OwnedFd::from(create(Path::new(name))?), None)),
        None => Ok(stream.with_limit(spec.stream_limit)),
    };
    Ok([whole(stdout, out)?, whole(stderr, err)?])
}

/// The outputs of one rank that has files of its own.
pub(super) fn of_rank(spec: &JobSpec, rank: u32) -> Result<[Option<Descriptor>; 2], JobError> {
    let own = |pattern: Option<&str>| {
        let Some(pattern) = pattern.filter(|name| name.contains(RANK)) else { return Ok(None) };
        let (file, kind) = create_kind(Path::new(&of(pattern, rank)))?;
        let about = Description { is_output: true, ..Description::new(kind, false, false) };
        Ok(Some(Descriptor { fd: file.into(), about: about.into(), close_on_exec: false }))
    };
    let [stdout, stderr] = patterns(spec).map(own);
    Ok([stdout?, stderr?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(stdout: &Path) -> JobSpec {
        JobSpec { stdout: stdout.to_str().map(str::to_owned), ..JobSpec::new("/bin/a") }
    }

    #[test]
    fn each_rank_has_a_file_of_its_own_or_all_have_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let null = || Output::new(File::create("/dev/null").expect("null").into(), None);
        let own = spec(&folder.path().join("out.%r.%r"));
        for rank in [0, 11] {
            let [stdout, stderr] = of_rank(&own, rank).expect("opened");
            assert!(stdout.is_some_and(|file| file.about.is_output) && stderr.is_none());
        }
        outputs(&own, [null(), null()]).expect("nothing to open");
        let name = |name: &str| folder.path().join(name);
        assert!(name("out.0.0").is_file() && name("out.11.11").is_file());
        let one = spec(&name("all"));
        std::fs::write(name("all"), "old").expect("written");
        let [mut first, _] = outputs(&one, [null(), null()]).expect("opened");
        let [mut second, _] = outputs(&one, [null(), null()]).expect("opened");
        first.put(b"one ").expect("written");
        second.put(b"two").expect("written");
        assert_eq!(std::fs::read(name("all")).expect("read"), b"one two");
        assert!(matches!(of_rank(&one, 0), Ok([None, None])));
    }

    #[test]
    fn what_is_no_file_or_cannot_be_written_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let fifo = folder.path().join("fifo.%r");
        nix::unistd::mkfifo(&folder.path().join("fifo.3"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        for path in [fifo.as_path(), &folder.path().join("no/%r"), Path::new("/proc/%r/no")] {
            assert!(matches!(of_rank(&spec(path), 3), Err(JobError::Stream { .. })), "{path:?}");
        }
        let mut spec = spec(Path::new("/dev/null"));
        spec.stdin = Some(folder.path().to_owned());
        assert!(matches!(input(&spec), Err(JobError::Stream { .. })), "a directory");
        spec.stdin = Some("/dev/null".into());
        assert!(matches!(input(&spec), Ok(Some(_))));
    }
}
