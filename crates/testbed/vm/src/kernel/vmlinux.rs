// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel inside a compressed kernel file (`Documentation/arch/x86/boot.rst`).
//!
//! A `vmlinuz` is a small program that uncompresses the kernel behind it. In a guest without acceleration that takes
//! longer than all else until the first program, so the host does it, once; the emulator starts the kernel
//! itself by its PVH entry.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use crate::{VmError, cache, digest};

/// Note of the entry by PVH (`XEN_ELFNOTE_PHYS32_ENTRY`), and its owner.
const PVH_ENTRY: (&[u8], u32) = (b"Xen", 18);

/// Uncompressed kernels are tens of megabytes; more is no kernel.
const LARGEST: u64 = 1 << 30;

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    data.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

fn u16_at(data: &[u8], at: usize) -> Option<usize> {
    data.get(at..)?.first_chunk().map(|b| usize::from(u16::from_le_bytes(*b)))
}

fn is_vmlinuz(data: &[u8]) -> bool {
    data.get(0x202..0x206) == Some(b"HdrS".as_slice())
}

/// The release of a kernel file; none where it is no kernel.
pub(crate) fn release(data: &[u8]) -> Option<String> {
    if is_vmlinuz(data) {
        // the text lies 512 bytes after where the header says
        let text = data.get(u16_at(data, 0x20e)? + 0x200..)?;
        return word(text);
    }
    pvh(data)?;
    let mark = b"Linux version ";
    let at = data.windows(mark.len()).position(|w| w == mark)?;
    word(&data[at + mark.len()..])
}

fn word(text: &[u8]) -> Option<String> {
    let end = text.iter().take(128).position(|b| !b.is_ascii_graphic())?;
    let word = std::str::from_utf8(&text[..end]).ok()?;
    (!word.is_empty()).then(|| word.to_owned())
}

/// Succeeds if `data` is a kernel that can be entered by PVH.
fn pvh(data: &[u8]) -> Option<()> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, data) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if (note.name(), note.n_type(endian)) == PVH_ENTRY {
                return Some(());
            }
        }
    }
    None
}

/// The kernel in the `vmlinuz` given, where it is compressed in the way Debian does and can be entered directly.
fn unpack(data: &[u8]) -> Option<Vec<u8>> {
    if !is_vmlinuz(data) {
        return None;
    }
    let sectors = match data.get(0x1f1)? {
        0 => 4,
        &n => usize::from(n),
    };
    let at = (sectors + 1) * 512 + usize::try_from(u32_at(data, 0x248)?).ok()?;
    let length = usize::try_from(u32_at(data, 0x24c)?).ok()?;
    // the last word is the length of the uncompressed kernel
    let payload = data.get(at..at.checked_add(length.checked_sub(4)?)?)?;
    let decoder = ruzstd::decoding::StreamingDecoder::new(payload).ok()?;
    let mut kernel = Vec::new();
    decoder.take(LARGEST).read_to_end(&mut kernel).ok()?;
    pvh(&kernel).map(|()| kernel)
}

/// A file with the kernel of `file` that the emulator starts quickest, in `folder` where one had to be made.
pub(crate) fn uncompressed(file: &Path, folder: &Path) -> Result<PathBuf, VmError> {
    let data = fs::read(file).map_err(VmError::io(format!("the kernel {}", file.display())))?;
    if !is_vmlinuz(&data) {
        return Ok(file.into());
    }
    let kept = folder.join(format!("vmlinux-{}", &digest::hex(&data)[..16]));
    if kept.is_file() {
        return Ok(kept);
    }
    // what cannot be uncompressed here uncompresses itself
    let Some(kernel) = unpack(&data) else { return Ok(file.into()) };
    cache::keep(&kept, &kernel)?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_file_makes_it_panic(mut data in proptest::collection::vec(any::<u8>(), 0..2048), header: bool) {
            if header && data.len() > 0x206 {
                data[0x202..0x206].copy_from_slice(b"HdrS");
            }
            let _ = release(&data);
            let _ = unpack(&data);
        }
    }
}
