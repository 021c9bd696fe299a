//! *Selfish*: a user-space loop per CPU that sees every detour the CPU takes (ANL 2005).
//!
//! "By assuming that the computation wants all the available cycles (is selfish), the benchmark records
//! all interactions or detours that distract the CPU from the application." The loop reads a counter and
//! looks for gaps. It runs for a fixed time, its memory is bounded and touched beforehand: a histogram
//! that never loses a count, and a ring of single detours that counts what it could not hold.
//!
//! * [`hot`]: the loop itself, and how long a bare one takes,
//! * [`recorder`]: where its detours go,
//! * [`observers`]: a pinned thread per CPU, real-time if asked, with a watchdog.

pub mod hot;
pub mod observers;
pub mod recorder;

pub use observers::{Config, Gaps, ObservedCpu, Observers, SelfishError};
pub use recorder::Gap;
