// SPDX-License-Identifier: MIT OR Apache-2.0
//! Misses of the data TLB by a program and its descendants, counted by the processor where the machine lets it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

const TYPE_HW_CACHE: u64 = 3;
/// Data TLB, load, miss.
const DTLB_LOAD_MISSES: u64 = 3 | 1 << 16;
/// Time that the counter was wanted, and time that it ran.
const TIMES: u64 = 1 | 1 << 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Words of `struct perf_event_attr`.
const WORDS: usize = 16;

/// A counter of a process and of all it starts.
pub(crate) struct Misses(File);

impl Misses {
    /// Counts from now on.
    ///
    /// # Errors
    /// The reason for which nothing is counted here.
    pub(crate) fn of(pid: i32) -> Result<Self, String> {
        let mut attributes = [0u64; WORDS];
        attributes[0] = TYPE_HW_CACHE | (size_of_val(&attributes) as u64) << 32;
        attributes[1] = DTLB_LOAD_MISSES;
        attributes[4] = TIMES;
        attributes[5] = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
        let (any_cpu, no_group, close_on_exec) = (-1, -1, 8u64);
        // SAFETY: the attributes are of the length they state and live until the call returns.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attributes.as_ptr(),
                pid,
                any_cpu,
                no_group,
                close_on_exec,
            )
        };
        match i32::try_from(fd) {
            // SAFETY: the kernel has just made this descriptor, and nobody else has it.
            Ok(fd) if fd >= 0 => Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))),
            _ => Err(refusal(Errno::last())),
        }
    }

    /// The count so far, extrapolated if the counter shared its register.
    ///
    /// # Errors
    /// The counter never ran.
    pub(crate) fn count(&mut self) -> Result<u64, String> {
        let mut bytes = [0; 24];
        self.0.read_exact(&mut bytes).map_err(|e| format!("the counter cannot be read: {e}"))?;
        let mut words = bytes.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_ne_bytes));
        let [count, wanted, ran] = [(); 3].map(|()| words.next().unwrap_or(0));
        scaled(count, wanted, ran).ok_or_else(|| "the counter never ran: others used its register".into())
    }
}

fn scaled(count: u64, wanted: u64, ran: u64) -> Option<u64> {
    let estimate = u128::from(count) * u128::from(wanted) / u128::from(std::num::NonZeroU64::new(ran)?.get());
    Some(u64::try_from(estimate).unwrap_or(u64::MAX))
}

fn refusal(e: Errno) -> String {
    match e {
        Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV => {
            "this processor has no such event, or its hypervisor hides it".into()
        }
        Errno::EACCES | Errno::EPERM => {
            "not permitted: kernel.perf_event_paranoid above 2, or a filter of system calls".into()
        }
        e => format!("perf_event_open: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_ran_half_of_the_time_has_seen_half() {
        assert_eq!(scaled(10, 100, 50), Some(20));
        assert_eq!(scaled(10, 100, 100), Some(10));
        assert_eq!(scaled(0, 100, 0), None);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), Some(u64::MAX));
    }
}
