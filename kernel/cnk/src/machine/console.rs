// SPDX-License-Identifier: MIT OR Apache-2.0
//! The serial line: for panics, and for more with `debug` on the command line.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::ops::{inb, outb};

const PORT: u16 = 0x3f8;
/// More than panics is to be shown.
pub static DEBUG: AtomicBool = AtomicBool::new(false);

/// The line, 8N1 at 115,200 Bd.
pub struct Serial;

/// Prepares the line.
pub fn start(debug: bool) {
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 0xc7), (4, 3)] {
        outb(PORT + register, value);
    }
    DEBUG.store(debug, Relaxed);
}

impl Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // a machine without a serial line reads all ones, and gets nothing
            for _ in 0..100_000 {
                if inb(PORT + 5) & 0x20 != 0 {
                    break;
                }
            }
            outb(PORT, byte);
        }
        Ok(())
    }
}

/// Shows a line if `debug` is on the command line.
macro_rules! debug {
    ($($text:tt)*) => {
        if $crate::machine::console::DEBUG.load(core::sync::atomic::Ordering::Relaxed) {
            use core::fmt::Write as _;
            let _ = writeln!($crate::machine::console::Serial, $($text)*);
        }
    };
}

pub(crate) use debug;
