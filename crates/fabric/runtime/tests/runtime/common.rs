// SPDX-License-Identifier: MIT OR Apache-2.0
//! The examples that tests start, and their processes.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use colony_node::task;

/// Variables by which the example `run` starts its ranks by `mpirun`, as root and with more ranks than CPUs, too.
#[cfg(feature = "mpi")]
pub(crate) const MPI: [(&str, &str); 4] = [
    ("RUN_MPI", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

/// An example of this package, which cargo builds before its tests.
pub(crate) fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let folder = test.parent().and_then(Path::parent).expect("the profile's folder");
    folder.join("examples").join(name)
}

/// The processes that a process has started, once there are so many.
pub(crate) fn children(of: u32, count: usize) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let children = task::children(of.cast_signed());
        let children: Vec<u32> = children.into_iter().map(i32::cast_unsigned).collect();
        if children.len() >= count {
            return children;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{children:?} of {count} processes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills a process.
pub(crate) fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it runs");
}

/// Waits until a process is gone, or is a zombie.
pub(crate) fn wait_until_gone(pid: u32) {
    let began = Instant::now();
    loop {
        if task::stat(pid.cast_signed()).map_or(true, |stat| stat.has_ended()) {
            return;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "process {pid} is left");
        std::thread::sleep(Duration::from_millis(5));
    }
}
