// SPDX-License-Identifier: MIT OR Apache-2.0
//! The quality of this node's clock according to its kernel.
//!
//! The program that disciplines a clock (chronyd, ntpd, systemd-timesyncd, phc2sys) tells the kernel by `adjtimex(2)`.
//! NTP daemons tell it a largest error as well, which the kernel lets grow by 500 ppm until they tell it anew;
//! chronyd does so only with `rtcsync` in its configuration. phc2sys (linuxptp 4, `sysclk_set_sync`) sets that
//! error to 0 at each update, which says that the clock is disciplined and nothing about its error:
//! for such a clock the bound has to come from another source, such as the reading of `pmc` or the
//! configuration of colonyd.

use std::io;

/// The state of a clock according to the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClockQuality {
    /// True if a program disciplines the clock and reports it as synchronised.
    pub synchronised: bool,
    /// The program that disciplines the clock, if it is one of the usual ones.
    pub source: Option<String>,
    /// The largest error against UTC, nanoseconds; `None` where nobody disciplines the clock, or who does tells no
    /// such bound.
    pub error_bound_ns: Option<u64>,
    /// The kernel's own figure for that, whether it means anything or not.
    pub kernel_max_error_ns: u64,
    /// The likely error that the kernel was told.
    pub estimated_error_ns: u64,
    /// Seconds TAI is ahead of UTC; 0 where nobody told the kernel.
    pub tai_offset_s: i64,
    /// The kernel's correction of the clock's rate, parts per million.
    pub frequency_ppm: f64,
    /// A leap second is due at the end of the day (UTC): one more, or one less.
    pub leap: Option<Leap>,
}

/// A second that UTC is about to insert or to leave out. TAI, and so the windows, go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Leap {
    /// A second more.
    Insert,
    /// A second less.
    Delete,
}

/// Programs that discipline clocks; the second word is whether they tell the kernel a bound.
const SOURCES: [(&str, bool); 8] = [
    ("phc2sys", false),
    ("ptp4l", false),
    ("chronyd", true),
    ("ntpd", true),
    ("ntpd-rs", true),
    ("ntp-daemon", true),
    ("openntpd", true),
    ("systemd-timesyn", true),
];

/// The kernel's bound grows by 500 µs a second until the clock is updated again: from 0 to this in 20 s.
const NEGLECTED_NS: u64 = 10_000_000;

impl ClockQuality {
    /// The clock of this node now.
    ///
    /// # Errors
    /// The system's answer to `adjtimex(2)`; reading needs no privilege.
    pub fn now() -> io::Result<Self> {
        Ok(Self::judge(&read()?, source()))
    }

    /// Interprets `kernel` for a clock that `source` disciplines.
    fn judge(kernel: &Kernel, source: Option<(&'static str, bool)>) -> Self {
        let has_bound = source.is_none_or(|(_, tells)| tells);
        // without a bound only its growth shows that the source is still there
        let neglected = !has_bound && kernel.max_error_ns > NEGLECTED_NS;
        let synchronised = kernel.synchronised && !neglected;
        Self {
            synchronised,
            source: source.map(|(name, _)| name.to_owned()),
            error_bound_ns: (synchronised && has_bound).then_some(kernel.max_error_ns),
            kernel_max_error_ns: kernel.max_error_ns,
            estimated_error_ns: kernel.estimated_error_ns,
            tai_offset_s: kernel.tai_offset_s,
            frequency_ppm: kernel.frequency_ppm,
            leap: kernel.leap,
        }
    }
}

/// The fields of `struct timex` that matter, in one unit.
#[derive(Clone, Copy, Debug, Default)]
struct Kernel {
    synchronised: bool,
    max_error_ns: u64,
    estimated_error_ns: u64,
    tai_offset_s: i64,
    frequency_ppm: f64,
    leap: Option<Leap>,
}

/// The kernel's correction of the clock's rate now, parts per million: frequency and tick.
///
/// # Errors
/// The system's answer.
pub fn frequency_ppm() -> io::Result<f64> {
    read().map(|k| k.frequency_ppm)
}

fn read() -> io::Result<Kernel> {
    // SAFETY: all zeros is a valid `timex`, and one that asks for no change.
    let mut t: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `t` is a valid timex to read and write.
    let state = unsafe { libc::adjtimex(&raw mut t) };
    if state < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: sysconf reads a constant.
    let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
    let us = |us: libc::c_long| u64::try_from(us).unwrap_or(0).saturating_mul(1000);
    // a tick that is 1 µs longer, `hz` times a second
    let tick_ppm = (t.tick as f64 - 1e6 / hz as f64) * hz as f64;
    Ok(Kernel {
        synchronised: t.status & libc::STA_UNSYNC == 0 && state != libc::TIME_ERROR,
        max_error_ns: us(t.maxerror),
        estimated_error_ns: us(t.esterror),
        tai_offset_s: i64::from(t.tai),
        frequency_ppm: t.freq as f64 / 65_536.0 + tick_ppm,
        leap: match t.status {
            s if s & libc::STA_INS != 0 => Some(Leap::Insert),
            s if s & libc::STA_DEL != 0 => Some(Leap::Delete),
            _ => None,
        },
    })
}

/// The first of the usual programs that runs here.
fn source() -> Option<(&'static str, bool)> {
    let running: Vec<String> = std::fs::read_dir("/proc")
        .ok()?
        .filter_map(|e| {
            let path = e.ok()?.path();
            path.file_name()?.to_str()?.parse::<u32>().ok()?;
            std::fs::read_to_string(path.join("comm")).ok()
        })
        .collect();
    SOURCES.into_iter().find(|(name, _)| running.iter().any(|r| r.trim_end() == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(max_error_ns: u64) -> Kernel {
        Kernel { synchronised: true, max_error_ns, tai_offset_s: 37, ..Kernel::default() }
    }

    #[test]
    fn the_bound_is_the_kernels_where_the_source_tells_one() {
        let q = ClockQuality::judge(&kernel(250_000), Some(("chronyd", true)));
        assert_eq!((q.synchronised, q.error_bound_ns), (true, Some(250_000)));
        // somebody unknown did all that NTP daemons do
        assert_eq!(ClockQuality::judge(&kernel(250_000), None).error_bound_ns, Some(250_000));
        let free = Kernel { synchronised: false, ..kernel(16_000_000_000) };
        assert_eq!(ClockQuality::judge(&free, Some(("chronyd", true))).error_bound_ns, None);
    }

    #[test]
    fn ptp_tells_no_bound_and_its_silence_shows() {
        let q = ClockQuality::judge(&kernel(500_000), Some(("phc2sys", false)));
        assert_eq!((q.synchronised, q.error_bound_ns), (true, None));
        let silent = ClockQuality::judge(&kernel(11_000_000), Some(("phc2sys", false)));
        assert!(!silent.synchronised, "nobody has cared for 20 s");
    }

    #[test]
    fn this_nodes_clock_can_be_judged() {
        let q = ClockQuality::now().expect("adjtimex needs no privilege to read");
        assert!(q.frequency_ppm.abs() < 100_000.0, "{q:?}");
        assert!(q.synchronised || q.error_bound_ns.is_none());
        assert_eq!(q.tai_offset_s, crate::clock::tai_offset_s());
        assert!((frequency_ppm().expect("as above") - q.frequency_ppm).abs() < 1000.0);
    }
}
