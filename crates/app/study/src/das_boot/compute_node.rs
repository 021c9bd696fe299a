// SPDX-License-Identifier: MIT OR Apache-2.0
//! A compute node whose program or memory grows, booted until `main`. It has no ramdisk: the kernel is given to the
//! emulator, and the I/O daemon pushes the program into the node's memory.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use colony_nodes::ciod::{Config, JobSpec};
use colony_nodes::{Accel, Machine, Node, Partition, programs};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use tempfile::NamedTempFile;

use super::io_node::SHIFT;
use super::{Boot, WHAT, program};
use crate::StudyError;
use crate::error::step;

/// The smallest memory of a node, MiB.
const LEAST_MIB: u32 = 64;
/// Longest wait for a line of the console that the kernel has written before the job ended.
const CONSOLE_TIMEOUT: Duration = Duration::from_secs(10);
const CONSOLE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Compute nodes of one memory.
#[derive(Debug)]
pub struct ComputeNodes {
    worker: PathBuf,
    memory_mib: u32,
    notice: fn(&str),
}

impl ComputeNodes {
    /// Nodes with room for a program of this size, MiB.
    ///
    /// # Errors
    /// [`StudyError::Step`] if the I/O daemon's program is not there.
    pub fn new(largest_mib: u32, notice: fn(&str)) -> Result<Self, StudyError> {
        let worker = programs::ciod().map_err(|e| step(WHAT, &e))?;
        // the program, its stack, and what is below it
        let memory_mib = (largest_mib + 16).next_power_of_two().max(LEAST_MIB);
        Ok(Self { worker, memory_mib, notice })
    }

    /// Their memory, MiB, if it is not what grows.
    #[must_use]
    pub const fn memory_mib(&self) -> u32 {
        self.memory_mib
    }

    /// Boots a node whose program has this much initialized data, MiB, measured both ways.
    ///
    /// # Errors
    /// [`StudyError::Step`] for a node that did not boot.
    pub fn boot(&self, mib: u32) -> Result<Boot, StudyError> {
        self.measure(&program::with_data((mib as usize) << 20), self.memory_mib)
    }

    /// Boots a node of this memory, MiB, with the smallest program.
    ///
    /// # Errors
    /// As of [`ComputeNodes::boot`].
    pub fn boot_with_memory(&self, mib: u32) -> Result<Boot, StudyError> {
        self.measure(&program::with_data(0), mib)
    }

    fn measure(&self, program: &[u8], memory_mib: u32) -> Result<Boot, StudyError> {
        let mut file = NamedTempFile::new().map_err(|e| step(WHAT, &e))?;
        file.write_all(program).map_err(|e| step(WHAT, &e))?;
        let mode = std::fs::Permissions::from_mode(0o755);
        file.as_file().set_permissions(mode).map_err(|e| step(WHAT, &e))?;
        // a program that is being written cannot be run
        let file = file.into_temp_path();
        let (cpu_ns, _) = self.run(&file, memory_mib, Accel::Emulated)?;
        let (_, guest_ns) = self.run(&file, memory_mib, Accel::Counted { shift: SHIFT })?;
        Ok(Boot { pushed_bytes: program.len() as u64, cpu_ns, guest_ns })
    }

    /// Runs the program on a node; processor time of emulator and I/O daemon, and time of the guest until `main`. With
    /// instructions counted, the clock of a halted node jumps from timer to timer: so its wait for the job is left out.
    fn run(&self, file: &Path, memory_mib: u32, accel: Accel) -> Result<(u64, u64), StudyError> {
        let memory = u64::from(memory_mib) << 20;
        // with `debug`, the kernel tells when it waited for the job
        let debug = matches!(accel, Accel::Counted { .. });
        let machine = Machine { cpus: 1, memory, torus: Some(0), accel, debug, ..Machine::default() };
        let mut partition = Partition::boot_telling(machine, 1, Config::new(&self.worker), self.notice)
            .map_err(|e| step(WHAT, &e))?;
        let before = children_ns();
        let ran = partition.run_captured(JobSpec::new(file)).map_err(|e| step(WHAT, &e))?;
        // the worker has ended and was waited for; the emulator is still there
        let worker_ns = children_ns().saturating_sub(before);
        let emulator =
            partition.nodes().first().and_then(|n| colony_node::task::cpu_ns(n.pid().cast_signed()));
        if !ran.outcome.success() {
            return Err(step(WHAT, &format!("{}{}", ran.outcome, ran.stdout)));
        }
        let emulator_ns = emulator.ok_or_else(|| step(WHAT, &"the emulator ended before it was measured"))?;
        let main_ns = u64::from_str_radix(ran.stdout.trim(), 16)
            .map_err(|e| step(WHAT, &format!("the program printed `{}` ({e})", ran.stdout.trim())))?;
        let waited_ns = if debug { time_of_wait(&partition)? } else { 0 };
        let guest_ns = main_ns.saturating_sub(waited_ns);
        Ok((emulator_ns + worker_ns, guest_ns))
    }
}

/// Time that the first node's kernel waited for its job. On a busy machine the console's text arrives after the job's output.
///
/// # Errors
/// No such line on the console within [`CONSOLE_TIMEOUT`].
fn time_of_wait(partition: &Partition) -> Result<u64, StudyError> {
    let deadline = Instant::now() + CONSOLE_TIMEOUT;
    loop {
        let console = partition.nodes().first().map(Node::console).unwrap_or_default();
        match waited_ns(&console) {
            Some(ns) => return Ok(ns),
            None if Instant::now() < deadline => std::thread::sleep(CONSOLE_POLL_INTERVAL),
            None => {
                return Err(step(WHAT, &format!("the kernel does not say how long it waited: {console}")));
            }
        }
    }
}

/// Time that the kernel waited for its job, from its console.
fn waited_ns(console: &str) -> Option<u64> {
    let words = console.lines().find_map(|l| l.trim().strip_prefix("cnk: waited for a job from "))?;
    let (from, to) = words.strip_suffix(" ns")?.split_once(" to ")?;
    to.parse::<u64>().ok()?.checked_sub(from.parse().ok()?)
}

/// Processor time of the children of this process that have ended and were waited for, ns.
fn children_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
    let used = usage.map_or(0, |u| u.user_time().num_nanoseconds() + u.system_time().num_nanoseconds());
    u64::try_from(used).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_wait_is_read_from_its_console() {
        let console = "cnk: 1 CPUs\r\ncnk: waited for a job from 2400000 to 12400000 ns\r\n";
        assert_eq!(waited_ns(console), Some(10_000_000));
        assert_eq!(waited_ns("cnk: waited for a job from 5 to 4 ns"), None);
        assert_eq!(waited_ns("cnk: 1 CPUs"), None);
    }
}
