// SPDX-License-Identifier: MIT OR Apache-2.0
//! One measurement of noise from start to end: observe, attribute, report.
//!
//! * [`selfish`]: a user-space loop on each CPU that sees every detour (ANL 2005, *Selfish*),
//! * [`attrib`]: which source each detour came from, by BPF programs on the kernel's tracepoints,
//! * [`wakeups`]: a second measurement, from the instant of a timer to the thread that waits for it.
//!
//! [`measure`] runs the observers and, where BPF is allowed, the probe beside them, and returns a
//! [`Measurement`] (what `--json` prints) and the [`Trace`](colony_trace::Trace) (what `--out` keeps).

pub mod attrib;
mod condition;
mod elsewhere;
mod error;
mod following;
mod live;
mod probing;
mod report;
mod results;
pub mod selfish;
mod session;
mod until;
pub mod wakeups;

pub use condition::{Condition, ConditionError, Quantity};
pub use error::MeasureError;
pub use live::{Frame, FrameCpu, Live};
pub use probing::Attribution;
pub use report::{AttributionReport, CpuReport, Explained, Lengths, Measurement, SourceReport};
pub use session::{Config, measure};
pub use until::{BEFORE_NS, LimitDetour, Ran, StackEvent, StackReport, ThenReport, UntilReport};
