// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement from start to end: observe, attribute, report.
//!
//! [`measure`] runs the observers and, where BPF is open to it, the probe beside them, and returns a
//! [`Measurement`] (what `--json` prints) and the [`Trace`](crate::Trace) (what `--out` keeps).

mod live;
mod report;
mod results;
mod session;

pub use live::{Frame, FrameCpu, Live};
pub use report::{AttributionReport, CpuReport, Explained, Lengths, Measurement, SourceReport};
pub use session::{Attribution, Config, MeasureError, measure};
