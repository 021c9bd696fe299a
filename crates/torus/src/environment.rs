//! What a launcher tells a rank.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Dims, Error};

/// Where the window is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Mapped already.
    Memory { address: usize, bytes: usize },
    /// A file to map.
    File(PathBuf),
}

/// What a launcher tells a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) place: Place,
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) dims: Option<Dims>,
    pub(crate) patience: Patience,
}

/// How a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Looks before the CPU is offered to others.
    pub(crate) spins: u32,
    /// The longest wait for one step of another rank.
    pub(crate) timeout: Duration,
}

const MOST_SPINS: u32 = 1_000_000;

impl Patience {
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
        let mut patience = Patience::of(match place {
            Place::File(_) => size,
            // the kernel that mapped it gives a CPU to each rank
            Place::Memory { .. } => 1,
        });
        if let Some(text) = get(TIMEOUT) {
            let seconds = text.parse().ok().filter(|s: &f64| *s > 0.0 && *s <= 1e6);
            let seconds =
                seconds.ok_or_else(|| wrong(TIMEOUT, "is not a number of seconds up to 1000000"))?;
            patience.timeout = Duration::from_secs_f64(seconds);
        }
        if let Some(text) = get(SPINS) {
            // a rank that only looks does not see that the job has ended
            let spins = text.parse().ok().filter(|&spins| spins <= MOST_SPINS);
            patience.spins = spins.ok_or_else(|| wrong(SPINS, "is not a number up to 1000000"))?;
        }
        Ok(Self {
            place,
            rank: number(RANK, needed(RANK)?)?,
            size,
            dims: get(DIMS).map(|text| text.parse()).transpose()?,
            patience,
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
    fn every_variable_that_is_wrong_is_named() {
        let good =
            [(WINDOW, "/w"), (RANK, "1"), (SIZE, "2"), (DIMS, "2,1,1"), (TIMEOUT, "0.5"), (SPINS, "7")];
        let all = of(&good).expect("right");
        assert_eq!((all.rank, all.size, all.patience.spins), (1, 2, 7));
        assert_eq!(all.patience.timeout, Duration::from_millis(500));
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
