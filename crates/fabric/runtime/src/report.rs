// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on the standard error stream, which all ranks of a job and its launcher share.

use std::io::Write;

/// Prints a line by one system call: those of several processes do not mix.
pub(crate) fn line(mut text: String) {
    text.push('\n');
    // there is nobody else to tell
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Prints a line, as `eprintln!` does.
macro_rules! report_line {
    ($($text:tt)*) => { $crate::report::line(format!($($text)*)) };
}
pub(crate) use report_line;
