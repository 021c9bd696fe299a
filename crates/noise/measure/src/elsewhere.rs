// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the measuring program on CPUs that are not measured.

use colony_node::cpu::{self, CpuSet};

use crate::error::MeasureError;

/// Keeps the calling thread off the measured CPUs while there are others; puts it back when dropped.
pub(crate) struct Elsewhere(Option<CpuSet>);

impl Elsewhere {
    pub(crate) fn than(measured: &CpuSet) -> Self {
        let before = cpu::affinity(0).ok();
        let others = cpu::usable().map(|u| u.without(measured)).unwrap_or_default();
        // if it does not work the thread shows up in the result, by its name
        let moved = !others.is_empty() && cpu::bind(0, &others).is_ok();
        Self(before.filter(|_| moved))
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = cpu::bind(0, before);
        }
    }
}

/// Checks at the end of a measurement that its CPUs are still there.
///
/// # Errors
/// [`MeasureError::Vanished`] has the first CPU that went offline.
pub(crate) fn still_online(cpus: &CpuSet) -> Result<(), MeasureError> {
    let online = cpu::online()?;
    cpus.iter().find(|&c| !online.contains(c)).map_or(Ok(()), |gone| Err(MeasureError::Vanished(gone)))
}
