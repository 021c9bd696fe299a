// SPDX-License-Identifier: MIT OR Apache-2.0
//! The choice of a measurement with or without attribution.

use colony_node::cpu::CpuSet;

use crate::attrib::{Probe, ProbeError, Wanted};

/// The choice between a measurement with and without attribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribution {
    /// With attribution if the privileges allow it.
    #[default]
    Auto,
    /// No: the probe costs the measured CPUs some time (0.1–0.6 µs an event).
    Off,
    /// Fail where it is not possible.
    Required,
}

/// Attaches the probe, or gives the reason for none.
///
/// # Errors
/// The reason, if the probe was required.
pub(crate) fn attach(
    attribution: Attribution,
    cpus: &CpuSet,
    wanted: Wanted,
) -> Result<(Option<Probe>, Option<String>), ProbeError> {
    match attribution {
        Attribution::Off => Ok((None, Some("switched off (--no-attribution)".into()))),
        Attribution::Required => Ok((Some(Probe::attach(cpus, wanted)?), None)),
        Attribution::Auto => Ok(match Probe::attach(cpus, wanted) {
            Ok(probe) => (Some(probe), None),
            Err(e) => (None, Some(e.to_string())),
        }),
    }
}
