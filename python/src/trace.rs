// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measured noise from arrays.

use colony_sim::noise::Detour;
use colony_sim::{CpuNoise, NodeNoise};
use pyo3::prelude::*;

use crate::value_error;

/// Detours measured on the CPUs of a node.
#[pyclass(frozen, module = "colony_sim._engine")]
pub(crate) struct Trace(NodeNoise);

impl Trace {
    pub(crate) fn noise(&self) -> &NodeNoise {
        &self.0
    }
}

#[pymethods]
impl Trace {
    /// `cpus` has the start times and the durations of each CPU's detours, as the bytes of `uint64` arrays.
    #[new]
    fn new(span_ns: u64, cpus: Vec<(Vec<u8>, Vec<u8>)>) -> PyResult<Self> {
        let cpu = |(starts, durations): &(Vec<u8>, Vec<u8>)| {
            let detours = numbers(starts).zip(numbers(durations));
            CpuNoise::new(span_ns, detours.map(|(start_ns, duration_ns)| Detour { start_ns, duration_ns }))
        };
        let cpus: Result<Vec<_>, _> = cpus.iter().map(cpu).collect();
        cpus.and_then(NodeNoise::new).map(Self).map_err(value_error)
    }

    /// Length of the node's observation.
    #[getter]
    fn span_ns(&self) -> u64 {
        self.0.span_ns()
    }

    /// CPUs that were observed.
    #[getter]
    fn cpus(&self) -> usize {
        self.0.cpus().len()
    }

    /// Stolen share of the CPUs' time.
    #[getter]
    fn stolen_share(&self) -> f64 {
        self.0.stolen_share()
    }
}

/// The elements of a `uint64` array.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|c| u64::from_ne_bytes(*c))
}
