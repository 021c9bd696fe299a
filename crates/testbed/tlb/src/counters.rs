// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters in a file that the emulator and its starter map: they can be read while the emulator runs, and survive its kill.

use std::fs::File;
use std::io;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use crate::MOST_SIZES;

/// First word of a file of which the plugin has taken possession: `colotlb2`.
const STARTED: u64 = u64::from_le_bytes(*b"colotlb2");

/// Words before the counters of the first CPU.
const HEADER: usize = 8;
/// Words of a CPU: a multiple of a cache line, since each CPU is counted by a thread of its own.
const PER_CPU: usize = 16;
/// Words of a CPU before the misses.
const MISSES: usize = 3;
/// Words of a CPU before the loads and stores.
const BY_KIND: usize = MISSES + MOST_SIZES;

/// The counters of all CPUs of an emulator.
#[derive(Debug)]
pub struct Counters {
    map: MmapRaw,
    cpus: usize,
}

impl Counters {
    /// Bytes of the file for so many CPUs.
    #[must_use]
    pub const fn bytes(cpus: u32) -> u64 {
        ((HEADER + PER_CPU * cpus as usize) * size_of::<u64>()) as u64
    }

    /// Maps a file that has the length of [`Counters::bytes`]. The file must keep its length, or a later access is fatal: its owner
    /// seals it.
    ///
    /// # Errors
    /// A file that has another length, or cannot be mapped for writing.
    pub fn map(file: &File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let cpus = usize::try_from(bytes).unwrap_or(0) / size_of::<u64>();
        let cpus = cpus.saturating_sub(HEADER) / PER_CPU;
        if cpus == 0 || bytes != Self::bytes(cpus as u32) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{bytes} bytes are no file of counters"),
            ));
        }
        let map = MmapOptions::new().len(bytes as usize).map_raw(file)?;
        Ok(Self { map, cpus })
    }

    /// Number of CPUs that can be counted.
    #[must_use]
    pub const fn cpus(&self) -> usize {
        self.cpus
    }

    /// For the plugin: marks that it counts from now on.
    pub fn start(&self) {
        self.words()[0].store(STARTED, Ordering::Release);
    }

    /// Returns `true` if a plugin counts here.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.words()[0].load(Ordering::Acquire) == STARTED
    }

    /// The counters of a CPU, if it can be counted.
    #[must_use]
    pub fn cpu(&self, cpu: usize) -> Option<CpuCounters<'_>> {
        let first = HEADER + PER_CPU.checked_mul(cpu)?;
        let words = self.words().get(first..first + PER_CPU)?;
        words.try_into().ok().map(CpuCounters)
    }

    /// The sums of all CPUs.
    #[must_use]
    pub fn sum(&self) -> Counts {
        let mut sum = Counts::default();
        for cpu in (0..self.cpus).filter_map(|cpu| self.cpu(cpu)) {
            sum += cpu.read();
        }
        sum
    }

    fn words(&self) -> &[AtomicU64] {
        let words = HEADER + PER_CPU * self.cpus;
        // SAFETY: the mapping has `words` words (checked in `map`), begins on a page and lives as long as `self`. Memory shared with
        // another process is only accessed by atomic operations, here and there.
        unsafe { std::slice::from_raw_parts(self.map.as_mut_ptr().cast::<AtomicU64>(), words) }
    }
}

/// The counters of one CPU. Only the thread that runs the CPU adds to them, so an addition is a load and a store.
#[derive(Clone, Copy, Debug)]
pub struct CpuCounters<'a>(&'a [AtomicU64; PER_CPU]);

impl CpuCounters<'_> {
    fn add(self, word: usize, number: u64) {
        if let Some(counter) = self.0.get(word) {
            counter.store(counter.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
        }
    }

    /// Counts instructions of a block.
    pub fn add_instructions(self, number: u64) {
        self.add(0, number);
    }

    /// Counts a read or write.
    pub fn add_access(self) {
        self.add(1, 1);
    }

    /// Counts a read of so many bytes.
    pub fn add_load(self, bytes: u64) {
        self.add(BY_KIND, 1);
        self.add(BY_KIND + 1, bytes);
    }

    /// Counts a write of so many bytes.
    pub fn add_store(self, bytes: u64) {
        self.add(BY_KIND + 2, 1);
        self.add(BY_KIND + 3, bytes);
    }

    /// Counts a fetch of a block of instructions.
    pub fn add_fetch(self) {
        self.add(2, 1);
    }

    /// Counts a miss of the page size of this index.
    pub fn add_miss(self, size: usize) {
        if size < MOST_SIZES {
            self.add(MISSES + size, 1);
        }
    }

    fn read(self) -> Counts {
        let word = |n: usize| self.0.get(n).map_or(0, |counter| counter.load(Ordering::Relaxed));
        Counts {
            cpus: u32::from(word(0) > 0),
            instructions: word(0),
            accesses: word(1),
            fetches: word(2),
            misses: std::array::from_fn(|size| word(MISSES + size)),
            loads: word(BY_KIND),
            bytes_loaded: word(BY_KIND + 1),
            stores: word(BY_KIND + 2),
            bytes_stored: word(BY_KIND + 3),
        }
    }
}

/// Counts of user code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// CPUs on which user code ran.
    pub cpus: u32,
    /// Instructions.
    pub instructions: u64,
    /// Reads and writes; one instruction that does both at once is one access.
    pub accesses: u64,
    /// Blocks of instructions that were fetched; 0 unless instructions use the TLB.
    pub fetches: u64,
    /// Misses, by index of the page size.
    pub misses: [u64; MOST_SIZES],
    /// Reads, also those of instructions that write, too.
    pub loads: u64,
    /// Bytes of the reads.
    pub bytes_loaded: u64,
    /// Writes.
    pub stores: u64,
    /// Bytes of the writes.
    pub bytes_stored: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        // wrapping: another process writes the counters, and may write anything
        let add = |to: &mut u64, from: u64| *to = to.wrapping_add(from);
        self.cpus = self.cpus.wrapping_add(other.cpus);
        add(&mut self.instructions, other.instructions);
        add(&mut self.accesses, other.accesses);
        add(&mut self.fetches, other.fetches);
        add(&mut self.loads, other.loads);
        add(&mut self.bytes_loaded, other.bytes_loaded);
        add(&mut self.stores, other.stores);
        add(&mut self.bytes_stored, other.bytes_stored);
        self.misses.iter_mut().zip(other.misses).for_each(|(to, from)| add(to, from));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(bytes).expect("room");
        file
    }

    #[test]
    fn counts_of_one_mapping_are_seen_in_another() {
        let file = file(Counters::bytes(2));
        let (plugin, host) = (Counters::map(&file).expect("mapped"), Counters::map(&file).expect("mapped"));
        assert!(!host.has_started());
        plugin.start();
        assert!(host.has_started());
        for cpu in [0, 1] {
            let counters = plugin.cpu(cpu).expect("two CPUs");
            counters.add_instructions(10);
            counters.add_access();
            counters.add_fetch();
            counters.add_load(8);
            counters.add_store(2);
            counters.add_miss(cpu);
            counters.add_miss(MOST_SIZES);
        }
        assert!(plugin.cpu(2).is_none() && plugin.cpu(usize::MAX).is_none());
        drop(plugin);
        let mut misses = [0; MOST_SIZES];
        (misses[0], misses[1]) = (1, 1);
        let expected = Counts {
            cpus: 2,
            instructions: 20,
            accesses: 2,
            fetches: 2,
            misses,
            loads: 2,
            bytes_loaded: 16,
            stores: 2,
            bytes_stored: 4,
        };
        assert_eq!(host.sum(), expected);
    }

    #[test]
    fn files_of_other_lengths_are_refused() {
        for bytes in [0, 8, 64, Counters::bytes(1) - 1, Counters::bytes(1) + 8] {
            assert!(Counters::map(&file(bytes)).is_err(), "{bytes}");
        }
        assert_eq!(Counters::map(&file(Counters::bytes(4))).expect("right").cpus(), 4);
    }
}
