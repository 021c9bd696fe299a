// SPDX-License-Identifier: MIT OR Apache-2.0
//! This program as the ranks of its own runs: the task of a rank, and the file into which ranks write their results.

use std::ffi::CStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A file without a name, which the ranks inherit: nothing stays behind, however a run ends.
pub(crate) fn report_file(name: &CStr) -> io::Result<File> {
    Ok(memfd_create(name, MFdFlags::empty()).map(File::from)?)
}

/// Becomes a rank if the first argument of this process is `argument`, and then does not return. The second argument is
/// the task; `report` gives the inherited descriptor of the report file.
pub(crate) fn run_if_asked<T: DeserializeOwned>(
    argument: &str,
    report: impl Fn(&T) -> i32,
    run: impl FnOnce(&T, &mut File) -> u8,
) {
    let mut arguments = std::env::args().skip(1);
    if std::env::args_os().nth(1).is_none_or(|first| first != argument) {
        return;
    }
    let task = arguments.nth(1).and_then(|text| serde_json::from_str::<T>(&text).ok());
    // lines of several ranks are appended whole: each rank opens the file anew
    let open = |task: &T| OpenOptions::new().append(true).open(format!("/proc/self/fd/{}", report(task)));
    let code = match task.as_ref().map(|task| (task, open(task))) {
        Some((task, Ok(mut file))) => run(task, &mut file),
        _ => 2,
    };
    std::process::exit(code.into());
}

/// Appends a line to the report file. The command reads it once all ranks have ended.
pub(crate) fn tell<T: Serialize>(file: &mut File, told: &T) -> bool {
    let line = serde_json::to_string(told).map(|line| line + "\n");
    line.is_ok_and(|line| file.write_all(line.as_bytes()).is_ok())
}

/// The lines of all ranks, in order. A line that was not written to its end is left out: its rank was killed.
pub(crate) fn read_told<T: DeserializeOwned>(file: &mut File) -> io::Result<Vec<T>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// The name of this host.
pub(crate) fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The CPUs that this process may use, if the system says so.
pub(crate) fn cpus() -> Option<u32> {
    colony_node::cpu::usable().ok().and_then(|cpus| u32::try_from(cpus.iter().count()).ok())
}
