// SPDX-License-Identifier: MIT OR Apache-2.0
//! Virtual machines: kernels and images.

use std::fmt::Write;

use colony_vm::image::Content;
use colony_vm::kernel::Available;

use crate::table::{self, name};
use crate::units::three;

/// Kernels, a line each.
#[must_use]
pub fn kernels(all: &[Available]) -> String {
    if all.is_empty() {
        return "no kernel is in the cache; --available lists those of the archive\n".into();
    }
    let mut t = table::new(["kernel", "in the cache", "default"]);
    let yes = |yes: bool| if yes { "yes" } else { "" };
    for kernel in all {
        t.add_row([name(&kernel.release, 50), yes(kernel.cached).into(), yes(kernel.default).into()]);
    }
    format!("{t}\n")
}

/// Files of an image; links and folders are left out.
#[must_use]
pub fn image<'a>(contents: impl Iterator<Item = Content<'a>>) -> String {
    let mut t = table::new(["file of the guest", "KiB"]);
    let (mut files, mut bytes) = (0_u64, 0_u64);
    for content in contents.filter(|c| c.bytes > 0) {
        files += 1;
        bytes += content.bytes;
        t.add_row([name(&content.path.display().to_string(), 64), content.bytes.div_ceil(1024).to_string()]);
    }
    let mut out = format!("{t}\n");
    // writing to a String cannot fail
    let _ = writeln!(out, "{files} files, {} MiB", three(bytes as f64 / f64::from(1 << 20)));
    out
}
