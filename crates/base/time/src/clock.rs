// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clocks of the running machine.

/// A clock of `clock_gettime(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// International Atomic Time: no leap seconds; what windows are counted in.
    Tai,
    /// Since boot, steered by NTP; what BPF's `bpf_ktime_get_ns` returns.
    Monotonic,
    /// Since boot, never steered; what the time-stamp counter is calibrated against.
    MonotonicRaw,
    /// As [`Clock::Monotonic`], but goes on while the node sleeps.
    Boottime,
    /// Civil time (UTC).
    Realtime,
    /// Processor time of the calling thread.
    ThreadCpu,
}

impl Clock {
    const fn id(self) -> libc::clockid_t {
        match self {
            Self::Tai => libc::CLOCK_TAI,
            Self::Monotonic => libc::CLOCK_MONOTONIC,
            Self::MonotonicRaw => libc::CLOCK_MONOTONIC_RAW,
            Self::Boottime => libc::CLOCK_BOOTTIME,
            Self::Realtime => libc::CLOCK_REALTIME,
            Self::ThreadCpu => libc::CLOCK_THREAD_CPUTIME_ID,
        }
    }

    /// Nanoseconds this clock shows now.
    #[must_use]
    pub fn now_ns(self) -> i64 {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a valid timespec to write to. The clocks above exist since Linux 3.10,
        // so the call cannot fail.
        unsafe { libc::clock_gettime(self.id(), &raw mut t) };
        t.tv_sec * crate::NS_PER_S as i64 + t.tv_nsec
    }

    /// Sleeps until this clock shows `at_ns`; returns at once where that is past. Signals do not cut it short.
    pub fn sleep_until(self, at_ns: i64) {
        let at_ns = at_ns.max(0);
        let t = libc::timespec {
            tv_sec: at_ns / crate::NS_PER_S as i64,
            tv_nsec: at_ns % crate::NS_PER_S as i64,
        };
        loop {
            // SAFETY: `t` is a valid timespec, and an absolute sleep writes no remainder.
            let error = unsafe {
                libc::clock_nanosleep(self.id(), libc::TIMER_ABSTIME, &raw const t, std::ptr::null_mut())
            };
            if error != libc::EINTR {
                return;
            }
        }
    }
}

/// Whole seconds TAI is ahead of UTC as the kernel has it; `0` means nobody told the kernel (it takes
/// an NTP or PTP daemon to do so), and then the TAI clock shows UTC.
#[must_use]
pub fn tai_offset_s() -> i64 {
    let difference_ns = Clock::Tai.now_ns() - Clock::Realtime.now_ns();
    (difference_ns + crate::NS_PER_S as i64 / 2).div_euclid(crate::NS_PER_S as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_at_or_after_its_instant_and_a_past_one_at_once() {
        for clock in [Clock::Tai, Clock::Monotonic] {
            let at = clock.now_ns() + 2_000_000;
            clock.sleep_until(at);
            assert!(clock.now_ns() >= at);
            clock.sleep_until(at - 1_000_000_000);
            clock.sleep_until(-1);
        }
    }

    #[test]
    fn tai_is_whole_seconds_ahead_of_utc() {
        assert!((0..100).contains(&tai_offset_s()));
    }
}
