//! One measurement from start to end: observe, attribute, report.
//!
//! [`measure`] runs the observers and, where BPF is open to it, the probe beside them, and returns a
//! [`Measurement`] (what `--json` prints) and the [`Trace`] (what `--out` keeps).

mod report;
mod session;

pub use report::{AttributionReport, CpuReport, Explained, Lengths, Measurement, SourceReport};
pub use session::{Attribution, Config, MeasureError, measure};
