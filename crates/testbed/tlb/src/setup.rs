// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modelled TLB, and its words on the emulator's command line.

use crate::{MOST_ENTRIES, MOST_SIZES, Replacement, SetupError};

/// The smallest and the largest page, as powers of two: 4 KiB and 1 GiB.
const SHIFTS: std::ops::RangeInclusive<u32> = 12..=30;

/// A modelled TLB.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Setup {
    entries: u16,
    replacement: Replacement,
    /// Powers of two, ascending.
    page_shifts: Vec<u32>,
    /// Fetches of instructions use the same TLB as data.
    unified: bool,
}

impl Setup {
    /// A TLB of so many entries; page sizes are powers of two. With `unified`, instructions use the TLB as data do.
    ///
    /// # Errors
    /// The value that is out of range, and the range.
    pub fn new(
        entries: u16,
        replacement: Replacement,
        shifts: &[u32],
        unified: bool,
    ) -> Result<Self, SetupError> {
        if !(1..=MOST_ENTRIES).contains(&entries) {
            return Err(SetupError::Entries(entries.to_string()));
        }
        let mut page_shifts = shifts.to_vec();
        page_shifts.sort_unstable();
        page_shifts.dedup();
        if page_shifts.len() != shifts.len() || !(1..=MOST_SIZES).contains(&shifts.len()) {
            return Err(SetupError::Sizes(shifts.len()));
        }
        match shifts.iter().find(|shift| !SHIFTS.contains(shift)) {
            Some(shift) => Err(SetupError::Page(format!("2^{shift}"))),
            None => Ok(Self { entries, replacement, page_shifts, unified }),
        }
    }

    /// The PowerPC 440 under Linux on a node of 512 MiB: of 64 entries, Linux keeps two for its own memory, in pages of 256 MiB, and
    /// gives the others in turn to programs (`arch/powerpc/kernel/head_44x.S`, `arch/powerpc/mm/44x_mmu.c`).
    #[must_use]
    pub fn ppc440() -> Self {
        Self {
            entries: 62,
            replacement: Replacement::RoundRobin,
            page_shifts: vec![12, 16, 24],
            unified: true,
        }
    }

    /// Number of entries that programs use.
    #[must_use]
    pub const fn entries(&self) -> u16 {
        self.entries
    }

    /// The policy of a full TLB.
    #[must_use]
    pub const fn replacement(&self) -> Replacement {
        self.replacement
    }

    /// Page sizes as powers of two, ascending.
    #[must_use]
    pub fn page_shifts(&self) -> &[u32] {
        &self.page_shifts
    }

    /// Returns `true` if fetches of instructions use the same TLB as data.
    #[must_use]
    pub const fn unified(&self) -> bool {
        self.unified
    }

    /// The words for the plugin: a list of `key=value`, separated by commas.
    #[must_use]
    pub fn words(&self) -> String {
        let pages: Vec<String> = self.page_shifts.iter().map(u32::to_string).collect();
        let (entries, replacement, pages) = (self.entries, self.replacement, pages.join(":"));
        format!("entries={entries},replacement={replacement},pages={pages},unified={}", self.unified)
    }

    /// Reads [`Setup::words`], in any order.
    ///
    /// # Errors
    /// A word that is not one of them, or a value out of range.
    pub fn from_words<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Self, SetupError> {
        let mut setup = Self::ppc440();
        for word in words {
            let unknown = || SetupError::Word(word.into());
            let (key, value) = word.split_once('=').ok_or_else(unknown)?;
            match key {
                "entries" => setup.entries = value.parse().map_err(|_| unknown())?,
                "replacement" => setup.replacement = value.parse()?,
                "pages" => {
                    let shifts: Result<_, _> = value.split(':').map(str::parse).collect();
                    setup.page_shifts = shifts.map_err(|_| unknown())?;
                }
                "unified" => setup.unified = value.parse().map_err(|_| unknown())?,
                _ => return Err(unknown()),
            }
        }
        Self::new(setup.entries, setup.replacement, &setup.page_shifts, setup.unified)
    }

    /// A page size as people write it (`4k`, `64K`, `16m`, `16MiB`, `1g`), as a power of two.
    ///
    /// # Errors
    /// A word that is no page size from 4 KiB to 1 GiB.
    pub fn page_shift(word: &str) -> Result<u32, SetupError> {
        let wrong = || SetupError::Page(word.into());
        let lower = word.to_ascii_lowercase();
        let lower = lower.strip_suffix("ib").unwrap_or(&lower);
        let (digits, unit) = match lower.char_indices().last() {
            Some((at, 'k')) => (&lower[..at], 10),
            Some((at, 'm')) => (&lower[..at], 20),
            Some((at, 'g')) => (&lower[..at], 30),
            _ => (lower, 0),
        };
        let number: u64 = digits.parse().map_err(|_| wrong())?;
        let shift = number.is_power_of_two().then(|| number.ilog2() + unit);
        shift.filter(|shift| SHIFTS.contains(shift)).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(
            entries in 1..=MOST_ENTRIES,
            policy in 0_usize..3,
            shifts in proptest::sample::subsequence(SHIFTS.collect::<Vec<_>>(), 1..=MOST_SIZES),
            unified in any::<bool>(),
        ) {
            let setup = Setup::new(entries, Replacement::ALL[policy], &shifts, unified).expect("in range");
            prop_assert_eq!(Setup::from_words(setup.words().split(',')), Ok(setup));
        }

        #[test]
        fn no_words_panic(words in proptest::collection::vec(".*", 0..4)) {
            let _ = Setup::from_words(words.iter().map(String::as_str));
            let _: Vec<_> = words.iter().map(|word| Setup::page_shift(word)).collect();
        }
    }

    #[test]
    fn page_sizes_are_powers_of_two_in_the_usual_units() {
        let shift = |word| Setup::page_shift(word).ok();
        assert_eq!((shift("4k"), shift("4096"), shift("64KiB")), (Some(12), Some(12), Some(16)));
        assert_eq!((shift("16m"), shift("1G"), shift("16MiB")), (Some(24), Some(30), Some(24)));
        for word in ["", "k", "3k", "2k", "2g", "4x", "-4k", "99999999999999999999k", "iB", "é"] {
            assert!(Setup::page_shift(word).is_err(), "{word}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        let error = |entries, shifts: &[u32]| {
            Setup::new(entries, Replacement::Lru, shifts, false).expect_err("out of range").to_string()
        };
        assert!(error(0, &[12]).contains("1 to 1024") && error(1025, &[12]).contains("1025 entries"));
        assert!(error(64, &[]).contains("0 page sizes") && error(64, &[12, 12]).contains("each once"));
        assert!(error(64, &[11]).contains("4k to 1g"));
        assert!(error(64, &[12, 13, 14, 15, 16, 17, 18, 19, 20]).contains("1 to 8"));
    }
}
