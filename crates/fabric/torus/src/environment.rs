// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment that a launcher gives to a rank.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Duration;

use nix::libc;

use crate::{Dims, Error};

/// The place of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Mapped already.
    Memory { address: usize, bytes: usize },
    /// A file to map.
    File(PathBuf),
}

/// The environment that a launcher gives to a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) place: Place,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) dims: Option<Dims>,
    pub(crate) wait_limits: WaitLimits,
}

/// The limits of a wait for another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitLimits {
    /// Looks before the CPU is offered to others.
    pub(crate) spins: u32,
    /// The longest wait for one step of another rank.
    pub(crate) timeout: Duration,
}

const MOST_SPINS: u32 = 1_000_000;

impl WaitLimits {
    /// For ranks of this number: long looks where each may have a CPU, else only a few, since the rank that
    /// is waited for needs this CPU to get on.
    pub(crate) fn of(ranks: usize) -> Self {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = ranks > 1 && ranks > cpus();
        Self { spins: if crowded { 10 } else { 1000 }, timeout: Duration::from_secs(60) }
    }
}

pub(crate) const WINDOW: &str = "COLONY_TORUS";
pub(crate) const RANK: &str = "COLONY_RANK";
pub(crate) const SIZE: &str = "COLONY_SIZE";
pub(crate) const DIMS: &str = "COLONY_TORUS_DIMS";
pub(crate) const TIMEOUT: &str = "COLONY_TORUS_TIMEOUT";
pub(crate) const SPINS: &str = "COLONY_TORUS_SPINS";

impl Environment {
    /// Of this process.
    pub(crate) fn here() -> Result<Self, Error> {
        Self::from(|name| std::env::var(name).ok())
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let wrong = |name, reason: &str| Error::Environment { name, reason: reason.to_owned() };
        let needed = |name| get(name).ok_or_else(|| wrong(name, "is not set"));
        let number = |name, text: String| {
            text.parse::<usize>().map_err(|_| wrong(name, &format!("is `{text:.40}`, not a number")))
        };
        let place = place(&needed(WINDOW)?).ok_or_else(|| {
            wrong(WINDOW, "is neither <hex address>:<hex bytes> of a mapped window nor the path of a file")
        })?;
        let size = number(SIZE, needed(SIZE)?)?;
        let mut wait_limits = WaitLimits::of(match place {
            Place::File(_) => size,
            // the kernel that mapped it gives a CPU to each rank
            Place::Memory { .. } => 1,
        });
        if let Some(text) = get(TIMEOUT) {
            let seconds = text.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= 1e6);
            let seconds =
                seconds.ok_or_else(|| wrong(TIMEOUT, "is not a number of seconds up to 1000000"))?;
            wait_limits.timeout = Duration::from_secs_f64(seconds);
        }
        if let Some(text) = get(SPINS) {
            // a rank that only looks does not see that the job has ended
            let spins = text.parse().ok().filter(|&spins| spins <= MOST_SPINS);
            wait_limits.spins = spins.ok_or_else(|| wrong(SPINS, "is not a number up to 1000000"))?;
        }
        Ok(Self {
            place,
            rank: number(RANK, needed(RANK)?)?,
            size,
            dims: get(DIMS).map(|text| text.parse()).transpose()?,
            wait_limits,
        })
    }
}

fn place(text: &str) -> Option<Place> {
    let hex = |text: &str| usize::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    match text.split_once(':').map(|(address, bytes)| (hex(address), hex(bytes))) {
        Some((Some(address), Some(bytes))) => Some(Place::Memory { address, bytes }),
        _ if text.is_empty() => None,
        // a path may hold a colon
        _ => Some(Place::File(text.into())),
    }
}

/// Returns `true` if a window can be at this address: the kernel is that of a compute node, which maps it, or the address is in
/// memory that this process shares with others, and so holds no values of its own.
pub(crate) fn may_be_window(address: usize, bytes: usize) -> bool {
    is_node() || std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| shares(&maps, address, bytes))
}

/// Returns `true` if this program runs on a compute node: `uname` names the compute node kernel. Its clock is the time-stamp
/// counter, and its file system says nothing about the node: the files are those of the I/O node.
#[must_use]
pub fn is_node() -> bool {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: zeroes are names without letters; the system writes no more than there is room for.
    let names = unsafe {
        libc::uname(names.as_mut_ptr());
        names.assume_init()
    };
    names.version.map(i8::cast_unsigned).starts_with(b"Colony CNK\0")
}

/// Returns `true` if a process with these mappings shares all this memory, and may write it.
fn shares(maps: &str, address: usize, bytes: usize) -> bool {
    let hex = |text| usize::from_str_radix(text, 16).ok();
    maps.lines().any(|line| {
        let mut words = line.split_whitespace();
        let place = words.next().and_then(|range| range.split_once('-'));
        let Some((Some(first), Some(end))) = place.map(|(first, end)| (hex(first), hex(end))) else {
            return false;
        };
        let inside = first <= address && address.checked_add(bytes).is_some_and(|past| past <= end);
        inside && words.next() == Some("rw-s")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[(&str, &str)]) -> Result<Environment, Error> {
        let get = |name: &str| given.iter().find(|g| g.0 == name).map(|g| g.1.to_owned());
        Environment::from(get)
    }

    #[test]
    fn memory_and_files_are_told_apart() {
        assert_eq!(
            place("7f0000000000:4000000"),
            Some(Place::Memory { address: 0x7f00_0000_0000, bytes: 1 << 26 })
        );
        assert_eq!(place("0x1000:0x20"), Some(Place::Memory { address: 0x1000, bytes: 0x20 }));
        assert_eq!(place("/dev/shm/a:b"), Some(Place::File("/dev/shm/a:b".into())));
        assert_eq!(place(""), None);
    }

    #[test]
    fn memory_is_a_window_only_where_it_is_shared() {
        let maps = "10000-30000 rw-s 00000000 00:01 7   /memfd:window (deleted)\n\
                    30000-40000 rw-p 00000000 00:00 0   [heap]\n\
                    40000-50000 r--s 00000000 00:01 8   /dev/shm/x\n";
        assert!(shares(maps, 0x10000, 0x20000) && shares(maps, 0x11000, 0x1000));
        for (address, bytes) in [
            (0, 1),
            (0x10000, 0x20001),
            (0xf000, 0x2000),
            (0x30000, 8),
            (0x40000, 8),
            (0x50000, 8),
            (0x11000, usize::MAX),
        ] {
            assert!(!shares(maps, address, bytes), "{address:#x}");
        }
        let own = 7u64;
        assert!(!may_be_window(std::ptr::from_ref(&own).addr(), 8));
    }

    #[test]
    fn every_variable_that_is_wrong_is_named() {
        let good =
            [(WINDOW, "/w"), (RANK, "1"), (SIZE, "2"), (DIMS, "2,1,1"), (TIMEOUT, "0.5"), (SPINS, "7")];
        let all = of(&good).expect("right");
        assert_eq!((all.rank, all.size, all.wait_limits.spins), (1, 2, 7));
        assert_eq!(all.wait_limits.timeout, Duration::from_millis(500));
        for (name, value) in [(WINDOW, ""), (RANK, "x"), (SIZE, "-1"), (TIMEOUT, "0"), (SPINS, "4294967295")]
        {
            let given: Vec<_> = good.iter().map(|g| if g.0 == name { (name, value) } else { *g }).collect();
            let error = of(&given).expect_err(name).to_string();
            assert!(error.contains(name), "{error}");
        }
        assert!(matches!(of(&good[1..]), Err(Error::Environment { name: WINDOW, .. })));
        assert!(of(&[(WINDOW, "/w"), (RANK, "1"), (SIZE, "2"), (DIMS, "2,1")]).is_err());
    }
}
