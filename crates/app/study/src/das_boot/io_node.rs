// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Linux I/O node whose ramdisk grows, booted until its I/O daemon starts.

use std::io::Write as _;
use std::time::Duration;

use colony_vm::{Accel, Exit, Kernel, Outcome, Recipe, Vm};
use tempfile::NamedTempFile;

use super::{Boot, WHAT};
use crate::StudyError;
use crate::error::step;

/// Each instruction takes 2 to this power, ns.
pub(super) const SHIFT: u8 = 1;
/// The longest a boot may take on a machine under load.
const PATIENCE: Duration = Duration::from_secs(1800);
/// Bytes of each file that is added.
const PIECE: usize = 1 << 20;
/// Memory beside three times the added files, MiB: for the rest of the ramdisk and the system.
const REST_MIB: u32 = 512;

/// I/O nodes of one memory and one kernel.
#[derive(Debug)]
pub struct IoNodes {
    kernel: Kernel,
    recipe: Recipe,
    /// The content of every added file.
    piece: NamedTempFile,
    memory_mib: u32,
    notice: fn(&str),
}

impl IoNodes {
    /// Nodes with room for this size, MiB.
    ///
    /// # Errors
    /// [`StudyError::Step`] if there is no emulator or no kernel, with what to install.
    pub fn new(largest_mib: u32, notice: fn(&str)) -> Result<Self, StudyError> {
        if let Some(reason) = colony_vm::testing::missing() {
            return Err(step(WHAT, &reason));
        }
        let kernel = Kernel::find("").map_err(|e| step(WHAT, &e))?;
        let recipe = Recipe::find("io-node").map_err(|e| step(WHAT, &e))?;
        Ok(Self { kernel, recipe, piece: piece()?, memory_mib: 3 * largest_mib + REST_MIB, notice })
    }

    /// Release of their kernel.
    #[must_use]
    pub fn release(&self) -> &str {
        self.kernel.release()
    }

    /// Their memory, MiB: the same for all sizes, so that only the ramdisk differs.
    #[must_use]
    pub const fn memory_mib(&self) -> u32 {
        self.memory_mib
    }

    /// Boots a node with this much in files added to its ramdisk, MiB, measured both ways.
    ///
    /// # Errors
    /// [`StudyError::Step`] for a node that did not boot.
    pub fn boot(&self, mib: u32) -> Result<Boot, StudyError> {
        let mut image = self.recipe.image().map_err(|e| step(WHAT, &e))?;
        for n in 0..mib {
            image.file(self.piece.path(), format!("/usr/share/added/{n:04}"));
        }
        let vm = Vm::new(&self.kernel, &image).memory_mib(self.memory_mib);
        let vm = vm.timeout(PATIENCE).silence(PATIENCE).notice(self.notice);
        let run = |vm: &Vm| -> Result<Outcome, StudyError> {
            let out = vm.run(&["ciod", "--version"]).map_err(|e| step(WHAT, &e))?;
            match out.exit {
                Exit::Code(0) => Ok(out),
                other => Err(step(WHAT, &format!("ciod ended with {other:?}: {}", out.error_text().trim()))),
            }
        };
        let free = run(&vm)?;
        let counted = run(&vm.accel(Accel::Counted { shift: SHIFT }))?;
        Ok(Boot {
            pushed_bytes: free.image_bytes,
            cpu_ns: free.boot.host_cpu_ns,
            guest_ns: counted.boot.uptime_ns,
        })
    }
}

/// A file of bytes that are not zero, and differ from page to page.
fn piece() -> Result<NamedTempFile, StudyError> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(PIECE);
    while bytes.len() < PIECE {
        // xorshift (Marsaglia, 2003): the same bytes in every run
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    let make = || -> std::io::Result<NamedTempFile> {
        let mut file = NamedTempFile::new()?;
        file.write_all(&bytes)?;
        Ok(file)
    };
    make().map_err(|e| step(WHAT, &e))
}
