// SPDX-License-Identifier: MIT OR Apache-2.0
//! Options of the modelled TLB.

use std::str::FromStr;

use colony_nodes::tlb::{Counts, Prediction, Processor, Replacement, Setup, SetupError, predict};

use crate::exit::WrongUse;
use crate::words::{Ns, ns};

#[derive(clap::Args)]
#[command(next_help_heading = "Modelled TLB")]
pub(super) struct TlbArgs {
    /// Count the misses of a modelled TLB and predict their cost: `ppc440`, or a number of entries
    #[arg(long, value_name = "MODEL")]
    tlb: Option<Model>,
    /// Replacement policy: round-robin, random or lru [default: round-robin]
    #[arg(long, value_name = "POLICY", requires = "tlb")]
    tlb_replacement: Option<Replacement>,
    /// Page sizes, 4k to 1g [default: 4k,64k,16m]
    #[arg(long, value_name = "SIZES", requires = "tlb", value_delimiter = ',', value_parser = Setup::page_shift)]
    tlb_pages: Vec<u32>,
    /// Leave out the fetches of instructions
    #[arg(long, requires = "tlb")]
    tlb_data_only: bool,
    /// Clock rate of the processor, 1 to 100000 MHz [default: 700]
    #[arg(long, value_name = "MHZ", requires = "tlb", value_parser = mhz)]
    tlb_mhz: Option<f64>,
    /// Cycles of a miss [default: that of ppc440]
    #[arg(long, value_name = "N", requires = "tlb", value_parser = cycles)]
    tlb_miss_cycles: Option<f64>,
    /// Cycles of an instruction, misses not counted [default: that of ppc440]
    #[arg(long, value_name = "N", requires = "tlb", value_parser = cycles, conflicts_with = "tlb_base_time")]
    tlb_cycles_per_instruction: Option<f64>,
    /// Processor time of the program without misses, of all its CPUs together [default: computed from its instructions]
    #[arg(long, value_name = "TIME", requires = "tlb", value_parser = some_time)]
    tlb_base_time: Option<Ns>,
}

/// The modelled processor, or the entries of its TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    Ppc440,
    Entries(u16),
}

impl FromStr for Model {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "ppc440" => Ok(Self::Ppc440),
            _ => word.parse().map(Self::Entries).map_err(|_| {
                format!("`{word}` is no TLB: give ppc440, or a number of entries from 1 to 1024")
            }),
        }
    }
}

fn mhz(word: &str) -> Result<f64, String> {
    within(word, 1.0, 100_000.0)
}

fn cycles(word: &str) -> Result<f64, String> {
    within(word, 0.001, 1_000_000.0)
}

/// A number of a processor: what no processor has would give times that no table can show.
fn within(word: &str, least: f64, most: f64) -> Result<f64, String> {
    let number = word.parse().ok().filter(|n: &f64| (least..=most).contains(n));
    number.ok_or_else(|| format!("`{word}` is no number from {least} to {most}"))
}

fn some_time(word: &str) -> Result<Ns, String> {
    ns(word).and_then(|time| if time.0 > 0 { Ok(time) } else { Err("the time must be above 0".into()) })
}

impl TlbArgs {
    /// The TLB, if one was asked for.
    pub(super) fn setup(&self) -> Result<Option<Setup>, WrongUse> {
        let Some(model) = self.tlb else { return Ok(None) };
        let preset = Setup::ppc440();
        let entries = match model {
            Model::Ppc440 => preset.entries(),
            Model::Entries(entries) => entries,
        };
        let shifts = if self.tlb_pages.is_empty() { preset.page_shifts() } else { &self.tlb_pages };
        let replacement = self.tlb_replacement.unwrap_or(preset.replacement());
        let setup = Setup::new(entries, replacement, shifts, !self.tlb_data_only);
        setup.map(Some).map_err(|e: SetupError| WrongUse(e.to_string()))
    }

    /// The prediction from what was counted.
    pub(super) fn prediction(&self, setup: &Setup, counts: &Counts) -> Prediction {
        let preset = Processor::PPC440;
        let processor = Processor {
            mhz: self.tlb_mhz.unwrap_or(preset.mhz),
            miss_cycles: self.tlb_miss_cycles.unwrap_or(preset.miss_cycles),
            cycles_per_instruction: self.tlb_cycles_per_instruction.unwrap_or(preset.cycles_per_instruction),
        };
        predict(setup, counts, processor, self.tlb_base_time.map(|time| time.0 as f64 / 1e9))
    }
}
