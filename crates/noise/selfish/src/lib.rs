// SPDX-License-Identifier: MIT OR Apache-2.0
//! *Selfish*: a user-space loop that sees every detour its CPU takes (Initial Results: Experiments on
//! Watson BlueGene/L).
//!
//! "By assuming that the computation wants all the available cycles (is selfish), the benchmark records
//! all interactions or detours that distract the CPU from the application." The loop reads a counter and
//! looks for gaps. Its memory is bounded and touched beforehand: a histogram that never loses a count,
//! and a ring of single detours that counts what it could not hold.
//!
//! * [`hot`]: the loop itself, and how long a bare one takes,
//! * [`recorder`]: where its detours go,
//! * [`alone`]: one loop in the calling thread, for the program `colony-selfish`.
//!
//! The package `colony-measure` runs the loop on many CPUs, in real-time classes, and says what its detours
//! were. This one asks the operating system for nothing but the time, so that its program also runs on
//! the compute node kernel.

pub mod alone;
pub mod hot;
pub mod recorder;

pub use recorder::Gap;
