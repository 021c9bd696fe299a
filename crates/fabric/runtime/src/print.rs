// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lines on the standard error output that all ranks of a job share.

use std::io::Write;

/// Prints a line in one write: several ranks that print at once do not mix their lines, as `eprintln!` does.
pub(crate) fn print_line(mut line: String) {
    line.push('\n');
    // nobody reads it: the program runs on
    let _ = std::io::stderr().write_all(line.as_bytes());
}
