// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is measured: sizes, processes, repetitions.

use serde::Serialize;

use super::block::Setup;
use super::error::CheckpointError;
use super::simulate::Network;
use super::size::show;

/// The most processes: each has connections to all others, on this machine.
const MOST_PROCESSES: u64 = 64;
/// The most PEs of a process.
const MOST_THREADS: u64 = 256;
/// The most objects of a PE.
const MOST_OBJECTS: u64 = 4096;
/// The most checkpoints of a size.
const MOST_REPEATS: u64 = 1000;
/// Bytes of the images of all checkpoints of a size, unless the number of checkpoints is given: it takes the system some
/// tenths of a second to move the processes to different CPUs.
const ENOUGH: u64 = 1_000_000_000;
/// The fewest checkpoints that count, unless their number is given.
const FEWEST: u64 = 10;
/// The most, unless their number is given.
const MOST: u64 = 300;
/// The largest state of a PE, in bytes.
const LARGEST: u64 = 1 << 40;
/// Times the state is in memory during a checkpoint: once as objects, and two images of the checkpoint before and of the
/// one under way.
const COPIES: u64 = 5;

/// A benchmark of checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Params {
    /// Bytes of state of each PE, one run for each.
    pub bytes: Vec<u64>,
    /// Processes.
    pub processes: u32,
    /// PEs of each process, as threads.
    pub threads: u32,
    /// Objects of each PE, which share its bytes.
    pub objects: u32,
    /// Objects of each PE that change between two checkpoints. Without a number, all.
    pub changed: Option<u32>,
    /// Checkpoints of each size that count. One more comes before them. Without a number, as many as make a gigabyte of
    /// images: 10 to 300.
    pub repeat: Option<u32>,
    /// The network of the simulated machines.
    pub network: Network,
}

/// Checks that a number is in a range.
fn within(option: &str, value: u64, least: u64, most: u64) -> Result<(), CheckpointError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(CheckpointError::Params(format!("{option} is {value}; choose {least} to {most}")))
}

impl Params {
    /// PEs of a run.
    #[must_use]
    pub fn pes(&self) -> u64 {
        u64::from(self.processes) * u64::from(self.threads)
    }

    /// Checks everything that can be known before a process is started.
    pub(super) fn check(&self) -> Result<(), CheckpointError> {
        if self.processes == 1 {
            return Err(CheckpointError::Params(format!(
                "-n is 1, but the second copies of a checkpoint need another process; choose 2 to {MOST_PROCESSES}"
            )));
        }
        within("-n", self.processes.into(), 2, MOST_PROCESSES)?;
        within("--threads", self.threads.into(), 1, MOST_THREADS)?;
        within("--objects", self.objects.into(), 1, MOST_OBJECTS)?;
        within("--changed", self.changed.unwrap_or(0).into(), 0, self.objects.into())?;
        within("--repeat", self.repeat.unwrap_or(1).into(), 1, MOST_REPEATS)?;
        if self.bytes.is_empty() {
            return Err(CheckpointError::Params(
                "there is no size; name one, such as --bytes 80kB".to_owned(),
            ));
        }
        self.bytes.iter().try_for_each(|bytes| within("the state of a PE in bytes", *bytes, 1, LARGEST))?;
        self.check_network()?;
        self.check_memory(memory_available())
    }

    fn check_network(&self) -> Result<(), CheckpointError> {
        let Network { message_s, latency_s, hop_s, link_bytes_per_s } = self.network;
        for (option, seconds) in [("--message", message_s), ("--latency", latency_s), ("--hop", hop_s)] {
            if !(0.0..=1.0).contains(&seconds) {
                let us = seconds * 1e6;
                return Err(CheckpointError::Params(format!("{option} is {us} µs; choose 0 to 1000000")));
            }
        }
        if link_bytes_per_s < 1.0 {
            return Err(CheckpointError::Params("--link is 0; choose one byte a second or more".to_owned()));
        }
        Ok(())
    }

    /// Checks that a checkpoint of the largest size fits into this many bytes of memory, if that is known.
    fn check_memory(&self, available: Option<u64>) -> Result<(), CheckpointError> {
        let largest = self.bytes.iter().copied().max().unwrap_or(0);
        let needed = self.pes().saturating_mul(largest).saturating_mul(COPIES);
        match available {
            Some(available) if needed > available => Err(CheckpointError::Params(format!(
                "{} a PE on {} PEs need {} of memory (the objects, two copies of a checkpoint, and two of the one \
                 before), and {} are available; choose fewer bytes or PEs",
                show(largest),
                self.pes(),
                mib(needed),
                mib(available)
            ))),
            _ => Ok(()),
        }
    }

    /// Checkpoints of a size that count.
    #[must_use]
    pub fn repeats(&self, bytes: u64) -> u32 {
        let all = self.pes().saturating_mul(bytes).max(1);
        self.repeat.unwrap_or((ENOUGH / all).clamp(FEWEST, MOST) as u32)
    }

    /// The program for one size.
    pub(super) fn setup(&self, bytes: u64) -> Setup {
        Setup {
            threads: self.threads,
            pes: self.processes * self.threads,
            objects: self.objects,
            bytes,
            changed: self.changed.unwrap_or(self.objects),
            rounds: self.repeats(bytes) + 1,
        }
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// Bytes of memory that new programs can have, if the system says so.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::checkpoint) fn small() -> Params {
        Params {
            bytes: vec![1000, 80_000],
            processes: 2,
            threads: 1,
            objects: 3,
            changed: None,
            repeat: Some(2),
            network: Network::default(),
        }
    }

    #[test]
    fn parameters_that_make_no_run_are_refused_with_the_possible_ones() {
        let wrong = |change: fn(&mut Params), part: &str| {
            let mut params = small();
            change(&mut params);
            let error = params.check().expect_err(part);
            assert!(error.is_wrong_use() && error.to_string().contains(part), "{error}");
        };
        assert!(small().check().is_ok());
        wrong(|p| p.processes = 0, "-n is 0; choose 2 to 64");
        wrong(|p| p.processes = 1, "need another process; choose 2 to 64");
        wrong(|p| p.processes = 65, "-n is 65");
        wrong(|p| p.threads = 0, "--threads is 0");
        wrong(|p| p.objects = 0, "--objects is 0; choose 1 to 4096");
        wrong(|p| p.changed = Some(4), "--changed is 4; choose 0 to 3");
        wrong(|p| p.repeat = Some(0), "--repeat is 0; choose 1 to 1000");
        wrong(|p| p.bytes.clear(), "there is no size");
        wrong(|p| p.bytes = vec![80_000, 0], "the state of a PE in bytes is 0");
        wrong(|p| p.bytes = vec![u64::MAX], "choose 1 to 1099511627776");
        wrong(|p| p.bytes = vec![1 << 40], "1024 GiB a PE on 2 PEs need 10485760 MiB of memory");
        wrong(|p| p.network.latency_s = -1e-6, "--latency is -1 µs");
        wrong(|p| p.network.hop_s = f64::NAN, "--hop is NaN");
        wrong(|p| p.network.message_s = 2.0, "--message is 2000000 µs");
        wrong(|p| p.network.link_bytes_per_s = 0.0, "--link is 0");
    }

    #[test]
    fn small_states_have_more_checkpoints() {
        let params = Params { repeat: None, ..small() };
        let repeats =
            [80_000, 5_000_000, 20_000_000, 73_500_000, u64::MAX].map(|bytes| params.repeats(bytes));
        assert_eq!(repeats, [300, 100, 25, 10, 10]);
        assert_eq!(small().repeats(80_000), 2);
    }

    #[test]
    fn memory_that_is_not_known_is_not_checked() {
        let params = Params { bytes: vec![1 << 40], ..small() };
        assert!(params.check_memory(None).is_ok());
        assert!(params.check_memory(Some(10 << 40)).is_ok());
        assert!(params.check_memory(Some((10 << 40) - 1)).is_err());
    }
}
