// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors whose raw event for misses of the data TLB is known.

/// An event of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    /// The vendor's name of it.
    pub(crate) name: &'static str,
    /// Event in bits 0 to 7, unit mask in bits 8 to 15: `config` of `perf_event_open`.
    pub(crate) code: u64,
}

/// Processors of one vendor and family with one event.
struct Row {
    vendor: &'static str,
    family: u32,
    /// The models; none means all of the family.
    models: &'static [u32],
    event: RawEvent,
}

/// Loads that missed every level of the TLB, and whose page walk was done.
const fn intel(code: u64) -> RawEvent {
    RawEvent { name: "DTLB_LOAD_MISSES.WALK_COMPLETED", code }
}

/// Accesses that missed both levels of the data TLB.
const AMD: RawEvent = RawEvent { name: "LsL1DTlbMiss.AllL2Miss", code: 0xf045 };

/// From the vendors' lists of events (Intel perfmon, AMD's Processor Programming References). Processors with two kinds of cores are
/// left out, since a raw event has a meaning for one of the kinds only.
const ROWS: [Row; 7] = [
    // Sandy Bridge
    Row { vendor: INTEL, family: 6, models: &[0x2a, 0x2d], event: intel(0x0208) },
    // Ivy Bridge
    Row { vendor: INTEL, family: 6, models: &[0x3a, 0x3e], event: intel(0x8208) },
    // Haswell, Broadwell, Skylake and its successors, Ice Lake, Rocket Lake, Tiger Lake, Sierra Forest
    Row {
        vendor: INTEL,
        family: 6,
        models: &[
            0x3c, 0x3f, 0x45, 0x46, 0x3d, 0x47, 0x4f, 0x56, 0x4e, 0x5e, 0x55, 0x8e, 0x9e, 0xa5, 0xa6, 0x7d,
            0x7e, 0x6a, 0x6c, 0xa7, 0x8c, 0x8d, 0xaf,
        ],
        event: intel(0x0e08),
    },
    // Sapphire, Emerald and Granite Rapids
    Row { vendor: INTEL, family: 6, models: &[0x8f, 0xcf, 0xad, 0xae], event: intel(0x0e12) },
    // Zen to Zen 5
    Row { vendor: "AuthenticAMD", family: 0x17, models: &[], event: AMD },
    Row { vendor: "AuthenticAMD", family: 0x19, models: &[], event: AMD },
    Row { vendor: "AuthenticAMD", family: 0x1a, models: &[], event: AMD },
];

const INTEL: &str = "GenuineIntel";

/// A model of a processor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processor {
    vendor: String,
    family: u32,
    model: u32,
}

impl Processor {
    /// The first processor of this machine; that of no vendor if the kernel does not tell.
    pub(crate) fn here() -> Self {
        std::fs::read_to_string("/proc/cpuinfo").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(cpuinfo: &str) -> Self {
        let field = |name: &str| {
            let mut fields = cpuinfo.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(field, _)| field.trim() == name).map(|(_, value)| value.trim())
        };
        let number = |name| field(name).and_then(|n| n.parse().ok()).unwrap_or(0);
        Self {
            vendor: field("vendor_id").unwrap_or_default().to_owned(),
            family: number("cpu family"),
            model: number("model"),
        }
    }

    /// Its event for misses of the data TLB by loads.
    pub(crate) fn dtlb_misses(&self) -> Option<RawEvent> {
        let is_it = |row: &&Row| {
            let model = row.models.is_empty() || row.models.contains(&self.model);
            row.vendor == self.vendor && row.family == self.family && model
        };
        ROWS.iter().find(is_it).map(|row| row.event)
    }
}

impl std::fmt::Display for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let vendor = if self.vendor.is_empty() { "an unknown vendor" } else { &self.vendor };
        write!(f, "{vendor}, family {}, model {}", self.family, self.model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(vendor: &str, family: u32, model: u32) -> Option<u64> {
        Processor { vendor: vendor.into(), family, model }.dtlb_misses().map(|e| e.code)
    }

    #[test]
    fn an_event_is_chosen_by_vendor_family_and_model() {
        assert_eq!(code(INTEL, 6, 0xa7), Some(0x0e08));
        assert_eq!(code(INTEL, 6, 0x8f), Some(0x0e12));
        assert_eq!(code("AuthenticAMD", 0x19, 0x21), Some(0xf045));
        // two kinds of cores
        assert_eq!(code(INTEL, 6, 0x97), None);
        assert_eq!(code(INTEL, 15, 0xa7), None);
        assert_eq!(code("AuthenticAMD", 0x15, 0x21), None);
        assert_eq!(code("", 0, 0), None);
    }

    #[test]
    fn no_model_has_two_events() {
        for (n, row) in ROWS.iter().enumerate() {
            for &model in row.models {
                let again = ROWS[n + 1..].iter().any(|r| r.vendor == row.vendor && r.models.contains(&model));
                assert!(!again, "{model:#x}");
                assert_eq!(row.models.iter().filter(|&&m| m == model).count(), 1, "{model:#x}");
            }
        }
    }

    #[test]
    fn the_first_processor_is_read() {
        let text = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 167\nmodel name\t: Intel(R)\n";
        let processor = Processor::parse(text);
        assert_eq!(processor.to_string(), "GenuineIntel, family 6, model 167");
        assert_eq!(Processor::parse("").to_string(), "an unknown vendor, family 0, model 0");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(vendor_id|cpu family|model)?[ \t]*:?.{0,30}\n?.{0,30}") {
            let _ = Processor::parse(&text).dtlb_misses();
        }
    }
}
