// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs of this machine, for one test at a time, whichever test program and user it is of.

use std::fs::File;

/// The CPUs, until the file is dropped. A file of another user in a shared folder can be opened, but not made anew.
pub(crate) fn job_cpu() -> File {
    let path = std::env::temp_dir().join("colony-job-cpu.lock");
    let file = File::create(&path).or_else(|_| File::open(&path)).expect("a place for temporary files");
    file.lock().expect("a file system with locks");
    file
}
