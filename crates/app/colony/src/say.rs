// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes on standard error. `eprintln!` would panic where it is full or closed, and end `colony run` before it can pass
//! on the exit code of its program.

/// Prints a line for people on standard error; a failure is ignored.
macro_rules! note {
    ($($text:tt)*) => { colony_sched::log::say(format_args!($($text)*)) };
}
