// SPDX-License-Identifier: MIT OR Apache-2.0
//! Misses of the data TLB by a program and its descendants, counted by the processor where the machine lets it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

use crate::processor::Processor;

const TYPE_HW_CACHE: u64 = 3;
const TYPE_RAW: u64 = 4;
/// Data TLB, load, miss.
const DTLB_LOAD_MISSES: u64 = 3 | 1 << 16;
/// Time that the counter was wanted, and time that it ran.
const TIMES: u64 = 1 | 1 << 1;
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
/// Words of `struct perf_event_attr`.
const WORDS: usize = 16;

/// The generic event's name, as `perf` has it.
const GENERIC: &str = "dTLB-load-misses";

/// A counter of a process and of all it starts.
pub(crate) struct Misses {
    file: File,
    name: String,
}

impl Misses {
    /// Counts from now on: the kernel's generic event, or else the processor's own.
    ///
    /// # Errors
    /// The reason for which nothing is counted here.
    pub(crate) fn of(pid: i32) -> Result<Self, String> {
        let refused = match open(pid, TYPE_HW_CACHE, DTLB_LOAD_MISSES) {
            Ok(file) => return Ok(Self { file, name: GENERIC.into() }),
            Err(e) => e,
        };
        let processor = Processor::here();
        match processor.dtlb_misses().filter(|_| has_no_event(refused)) {
            None => Err(refusal(refused, &format!("no raw event is known for it ({processor})"))),
            Some(event) => {
                let name = format!("{} (raw event {:#06x})", event.name, event.code);
                match open(pid, TYPE_RAW, event.code) {
                    Ok(file) => Ok(Self { file, name }),
                    Err(e) => Err(refusal(refused, &format!("{name} is refused too: {}", name_of(e)))),
                }
            }
        }
    }

    /// The event that is counted.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The count so far, extrapolated if the counter shared its register.
    ///
    /// # Errors
    /// The counter never ran.
    pub(crate) fn count(&mut self) -> Result<u64, String> {
        let mut bytes = [0; 24];
        self.file.read_exact(&mut bytes).map_err(|e| format!("the counter cannot be read: {e}"))?;
        let mut words = bytes.chunks_exact(8).map(|w| w.try_into().map_or(0, u64::from_ne_bytes));
        let [count, wanted, ran] = [(); 3].map(|()| words.next().unwrap_or(0));
        scaled(count, wanted, ran).ok_or_else(|| "the counter never ran: others used its register".into())
    }
}

fn scaled(count: u64, wanted: u64, ran: u64) -> Option<u64> {
    let estimate = u128::from(count) * u128::from(wanted) / u128::from(std::num::NonZeroU64::new(ran)?.get());
    Some(u64::try_from(estimate).unwrap_or(u64::MAX))
}

/// A counter of this event in user mode.
fn open(pid: i32, kind: u64, event: u64) -> Result<File, Errno> {
    let mut attributes = [0u64; WORDS];
    attributes[0] = kind | (size_of_val(&attributes) as u64) << 32;
    attributes[1] = event;
    attributes[4] = TIMES;
    attributes[5] = INHERIT | EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR;
    let (any_cpu, no_group, close_on_exec) = (-1, -1, 8u64);
    // SAFETY: the attributes are of the length they state and live until the call returns.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), pid, any_cpu, no_group, close_on_exec)
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Ok(fd) if fd >= 0 => Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) })),
        _ => Err(Errno::last()),
    }
}

/// Another event may exist.
const fn has_no_event(e: Errno) -> bool {
    matches!(e, Errno::ENOENT | Errno::EOPNOTSUPP | Errno::ENODEV | Errno::EINVAL)
}

/// The reason for which the generic event is not counted; `raw`: that for the processor's own.
fn refusal(generic: Errno, raw: &str) -> String {
    match generic {
        e if has_no_event(e) => format!(
            "this processor has no event {GENERIC}, or its hypervisor hides it ({}); {raw}",
            name_of(e)
        ),
        Errno::EACCES | Errno::EPERM => {
            "not permitted: kernel.perf_event_paranoid above 2, or a filter of system calls".into()
        }
        e => format!("perf_event_open: {e}"),
    }
}

/// `ENOENT`.
fn name_of(e: Errno) -> String {
    format!("{e:?}")
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

    #[test]
    fn a_refusal_names_both_events_and_the_kernels_answers() {
        let text = refusal(Errno::ENOENT, "X (raw event 0x0e08) is refused too: EOPNOTSUPP");
        for part in ["dTLB-load-misses", "ENOENT", "raw event 0x0e08", "EOPNOTSUPP"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(refusal(Errno::EACCES, "").contains("perf_event_paranoid"));
    }

    #[test]
    fn this_process_is_counted_or_the_reason_is_told() {
        match Misses::of(std::process::id().cast_signed()) {
            Ok(counter) => assert!(!counter.name().is_empty()),
            Err(reason) => assert!(reason.len() > 20, "{reason}"),
        }
    }
}
