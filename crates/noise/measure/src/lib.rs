// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement of noise from start to end: observe, attribute, report.
//!
//! * [`selfish`]: a user-space loop on each CPU that sees every detour (ANL 2005, *Selfish*),
//! * [`attrib`]: which source each detour came from, by BPF programs on the kernel's tracepoints.
//!
//! [`measure`] runs the observers and, where BPF is allowed, the probe beside them, and returns a
//! [`Measurement`] (what `--json` prints) and the [`Trace`](colony_trace::Trace) (what `--out` keeps).

pub mod attrib;
mod following;
mod live;
mod report;
mod results;
pub mod selfish;
mod session;
mod until;

pub use live::{Frame, FrameCpu, Live};
pub use report::{AttributionReport, CpuReport, Explained, Lengths, Measurement, SourceReport};
pub use session::{Attribution, Config, MeasureError, measure};
pub use until::{BEFORE_NS, LimitDetour, Ran, StackEvent, StackReport, ThenReport, UntilReport};
