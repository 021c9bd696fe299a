// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers of system calls and devices of the running node, which no file has. A directory of collected files has none of it.

use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};

/// The answers; `None` where the node was not asked, with the reason as `Err` where it did not answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probes {
    /// The kernel's clock discipline.
    pub clock: Option<ClockState>,
    /// `/dev/cpu_dma_latency`: the wake-up latency that is allowed now, µs.
    pub dma_latency_us: Option<Result<i32, String>>,
    /// System management interrupts since power-on of CPU 0 (`MSR_SMI_COUNT`, 0x34, Intel since Nehalem).
    pub smis: Option<Result<u64, String>>,
}

/// The state of the kernel's clock discipline (`adjtimex(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// `true` if a daemon disciplines the clock (`STA_UNSYNC` is off).
    pub disciplined: bool,
    /// Upper bound of the clock's error, µs, as the daemon tells the kernel.
    pub max_error_us: i64,
    /// TAI − UTC, seconds; 0 if nobody has set it.
    pub tai_offset_s: i32,
}

impl Probes {
    /// Asks the running node. Reads only: the request of `/dev/cpu_dma_latency` that opening makes has the default value,
    /// which asks for nothing (`Documentation/power/pm_qos_interface.rst`).
    #[must_use]
    pub fn now() -> Self {
        Self {
            clock: clock(),
            dma_latency_us: Some(device("/dev/cpu_dma_latency", 0).map(i32::from_le_bytes)),
            smis: Some(device("/dev/cpu/0/msr", 0x34).map(u64::from_le_bytes)),
        }
    }
}

fn clock() -> Option<ClockState> {
    // SAFETY: a structure of integers, for which zero is a value; `modes` 0 changes nothing.
    let mut answer: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes into the structure given.
    let state = unsafe { libc::adjtimex(&raw mut answer) };
    (state >= 0).then_some(ClockState {
        disciplined: answer.status & libc::STA_UNSYNC == 0,
        max_error_us: answer.maxerror,
        tai_offset_s: answer.tai,
    })
}

/// So many bytes of a character device.
fn device<const N: usize>(path: &str, offset: u64) -> Result<[u8; N], String> {
    let told = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{path} is not there"),
        std::io::ErrorKind::PermissionDenied => {
            format!("{path} may not be read (permission denied; try as root)")
        }
        _ => format!("{path}: {e}"),
    };
    let file =
        std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(told)?;
    if !file.metadata().map_err(told)?.file_type().is_char_device() {
        return Err(format!("{path} is no device"));
    }
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, offset).map_err(told)?;
    Ok(bytes)
}
