// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts the segments of a stopped program on large pages.
//!
//! Text whose file the kernel can map by large pages keeps its file (`MADV_COLLAPSE`). Other text, and data, are copied to
//! anonymous memory, which is then moved to the segment's own addresses. bss and the stack are anonymous already: the kernel is asked
//! for large pages when they are touched. Only whole large pages between the ends of a segment are moved, so the ends keep
//! their file, and by it debuggers find the program's name. Libraries are treated alike, once the dynamic linker has mapped them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::image::{Image, Segment, page_bytes};
use crate::libraries::{self, Kind, Piece};
use crate::room::Room;
use crate::smaps::{self, Mapping};
use crate::tracee::{CallError, Tracee};

/// `MADV_COLLAPSE` of Linux 6.1.
const MADV_COLLAPSE: u64 = 25;
/// Bytes copied at once.
const BLOCK: usize = 1 << 20;
/// The largest part of a stack that is made ready for large pages.
const STACK: u64 = 8 << 20;
/// The most memory of a program's libraries that is copied.
const LIBRARIES: u64 = 256 << 20;
/// Left of a stack's limit for what the kernel may count with it.
const SPARE: u64 = 128 << 10;

/// How a segment came to large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Collapsed in place: the mapping keeps its file.
    Collapsed,
    /// Copied to anonymous memory at the same addresses.
    Copied,
}

/// A piece of a segment that was put on large pages before the program ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The segment.
    pub segment: Segment,
    /// The first address.
    pub start: u64,
    /// Its length.
    pub bytes: u64,
    /// The way.
    pub how: How,
}

/// Segments put on large pages, and those that were not.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    pub(crate) moved: Vec<Moved>,
    /// Segments the kernel refused, with its answer.
    pub(crate) refused: Vec<String>,
    /// The program's segments.
    pub(crate) image: Image,
    /// Code of libraries that was copied.
    pub(crate) code: Vec<Piece>,
}

/// The pages that segments are put on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// Bytes of a page.
    pub(crate) bytes: u64,
    /// True if they are huge pages, whose presence `smaps` shows.
    pub(crate) huge: bool,
    /// True if the kernel gives them to memory for which a program asks.
    pub(crate) ask: bool,
}

/// Puts the segments of a program on these pages.
///
/// # Errors
/// The reason for which nothing could be done. The program is as it was.
pub(crate) fn place(tracee: &mut Tracee, pages: Pages, room: &mut Room) -> Result<Placed, String> {
    let mappings = read_mappings(tracee.pid())?;
    let image = Image::of(tracee.pid()).ok_or("the program is not a 64-bit ELF program of this machine")?;
    tracee.find_instruction(&mappings)?;
    let mut placer = Placer { tracee, pages, room, placed: Placed::default() };
    for part in &image.parts {
        match part.segment {
            Segment::Bss => placer.advise("bss", &part.pages),
            segment => {
                let file = (segment == Segment::Text).then_some(part.offset);
                placer.segment(segment, &part.pages, file);
            }
        }
    }
    if let Some(stack) = mappings.iter().find(|m| m.name == "[stack]") {
        placer.stack(&stack.range);
    }
    placer.placed.image = image;
    Ok(placer.placed)
}

/// Puts the libraries of a program that is stopped at its entry point on large pages.
///
/// # Errors
/// The reason for which nothing was done.
pub(crate) fn place_libraries(
    tracee: &mut Tracee,
    pages: Pages,
    room: &mut Room,
    placed: &mut Placed,
) -> Result<(), String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", tracee.pid())).map(Iterator::count);
    if !threads.is_ok_and(|n| n == 1) {
        return Err("a library has started threads".into());
    }
    let pieces = libraries::pieces(&read_mappings(tracee.pid())?, &placed.image);
    let mut placer = Placer { tracee, pages, room, placed: std::mem::take(placed) };
    let mut left = LIBRARIES;
    for piece in pieces {
        let Some(inside) = placer.inside(&piece.pages) else { continue };
        if piece.kind == Kind::Bss {
            placer.advise("a library's bss", &inside);
            continue;
        }
        match left.checked_sub(inside.end - inside.start) {
            Some(rest) => left = rest,
            None => {
                placer.refuse(&piece.file, "more than 256 MiB of libraries");
                continue;
            }
        }
        let code = piece.kind == Kind::Code;
        placer.segment(Segment::Libraries, &piece.pages, code.then_some(piece.offset));
        let last = placer.placed.moved.last();
        if code && last.is_some_and(|m| m.start == inside.start && m.how == How::Copied) {
            let offset = piece.offset + (inside.start - piece.pages.start);
            placer.placed.code.push(Piece { pages: inside, offset, ..piece });
        }
    }
    *placed = placer.placed;
    Ok(())
}

fn read_mappings(pid: i32) -> Result<Vec<Mapping>, String> {
    let text = std::fs::read(format!("/proc/{pid}/smaps")).map_err(|e| format!("/proc/{pid}/smaps: {e}"))?;
    Ok(smaps::parse(&String::from_utf8_lossy(&text)))
}

struct Placer<'a> {
    tracee: &'a mut Tracee,
    pages: Pages,
    room: &'a mut Room,
    placed: Placed,
}

impl Placer<'_> {
    /// The whole large pages in these addresses.
    fn inside(&self, pages: &Range<u64>) -> Option<Range<u64>> {
        let start = pages.start.checked_next_multiple_of(self.pages.bytes)?;
        let end = pages.end / self.pages.bytes * self.pages.bytes;
        (start < end).then_some(start..end)
    }

    /// Text or data. `file`: the place of text in its file.
    fn segment(&mut self, segment: Segment, pages: &Range<u64>, file: Option<u64>) {
        let Some(inside) = self.inside(pages) else { return };
        let place = file.map(|offset| inside.start - pages.start + offset);
        let how = if place.is_some_and(|place| self.collapse_in_place(place, &inside)) {
            Ok(How::Collapsed)
        } else {
            self.copy(segment, &inside).map(|()| How::Copied)
        };
        match how {
            Ok(how) => {
                let bytes = inside.end - inside.start;
                self.placed.moved.push(Moved { segment, start: inside.start, bytes, how });
            }
            Err(reason) => self.refuse(segment.name(), &reason),
        }
    }

    fn refuse(&mut self, what: &str, reason: &str) {
        self.placed.refused.push(format!("{what} stays on base pages: {reason}"));
    }

    /// Text that lies in its file as it does in memory, on a file system that can have large pages of programs.
    fn collapse_in_place(&mut self, place: u64, inside: &Range<u64>) -> bool {
        let possible = self.pages.huge && place.is_multiple_of(self.pages.bytes);
        possible && self.madvise(inside, MADV_COLLAPSE).is_ok()
    }

    /// Copies a piece of a segment to anonymous memory of large pages, and moves that to its place.
    fn copy(&mut self, segment: Segment, inside: &Range<u64>) -> Result<(), String> {
        let protection = self.protection(inside.start)?;
        let bytes = inside.end - inside.start;
        self.room.take(bytes)?;
        let whole = bytes + self.pages.bytes;
        let failed = |e: CallError| format!("no memory for a copy: {e}");
        let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let read_write = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let area = [0, whole, read_write, flags, u64::MAX, 0];
        let area = self.tracee.call(libc::SYS_mmap, area).map_err(failed)?;
        let start = area.checked_next_multiple_of(self.pages.bytes).unwrap_or(area);
        let copy = start..start + bytes;
        let moved = self.fill(inside, &copy).and_then(|()| self.move_to(&copy, inside.start, protection));
        // what is left of the area: its ends, or all of it
        let left =
            if moved.is_ok() { [area..start, copy.end..area + whole] } else { [area..area + whole, 0..0] };
        for rest in left.into_iter().filter(|rest| !rest.is_empty()) {
            let _ = self.tracee.call(libc::SYS_munmap, [rest.start, rest.end - rest.start, 0, 0, 0, 0]);
        }
        moved.map_err(|e| format!("{e} ({} bytes of {})", bytes, segment.name()))
    }

    /// Fills `copy`, whose pages are large ones, if there are any.
    fn fill(&mut self, from: &Range<u64>, copy: &Range<u64>) -> Result<(), String> {
        self.ask(copy).map_err(|e| format!("the kernel gives no large pages: {e}"))?;
        let mut block = vec![0; BLOCK];
        let mut done = 0;
        while done < copy.end - copy.start {
            let length = (copy.end - copy.start - done).min(BLOCK as u64);
            let block = block.get_mut(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            self.tracee.read(from.start + done, block).map_err(|e| format!("reading it: {e}"))?;
            self.tracee.write(copy.start + done, block).map_err(|e| format!("writing a copy: {e}"))?;
            done += length;
        }
        if !self.pages.huge {
            return Ok(());
        }
        // without effect where the pages are large already
        let collapsed = self.madvise(copy, MADV_COLLAPSE);
        let mappings = read_mappings(self.tracee.pid())?;
        let huge = mappings.iter().filter(|m| m.range.contains(&copy.start)).any(|m| m.huge > 0);
        match (huge, collapsed) {
            (true, _) => Ok(()),
            (false, Err(e)) => Err(format!("no large page is free: {e}")),
            (false, Ok(_)) => Err("the kernel gave no large page".into()),
        }
    }

    fn move_to(&mut self, copy: &Range<u64>, place: u64, protection: u64) -> Result<(), String> {
        let bytes = copy.end - copy.start;
        let protect = [copy.start, bytes, protection, 0, 0, 0];
        self.tracee.call(libc::SYS_mprotect, protect).map_err(|e| format!("protecting a copy: {e}"))?;
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
        let moved = self.tracee.call(libc::SYS_mremap, [copy.start, bytes, bytes, flags, place, 0]);
        moved.map(drop).map_err(|e| format!("moving a copy: {e}"))
    }

    /// The protection of the mapping at this address.
    fn protection(&self, address: u64) -> Result<u64, String> {
        let mappings = read_mappings(self.tracee.pid())?;
        let found = mappings.iter().find(|m| m.range.contains(&address));
        found.map(|m| m.protection as u64).ok_or_else(|| "it is not mapped".into())
    }

    fn madvise(&mut self, pages: &Range<u64>, advice: u64) -> Result<u64, CallError> {
        self.tracee.call(libc::SYS_madvise, [pages.start, pages.end - pages.start, advice, 0, 0, 0])
    }

    /// Asks for large pages, if the program has to.
    fn ask(&mut self, pages: &Range<u64>) -> Result<(), CallError> {
        if self.pages.ask {
            self.madvise(pages, libc::MADV_HUGEPAGE as u64)?;
        }
        Ok(())
    }

    /// Asks for large pages in memory that the program has not touched.
    fn advise(&mut self, what: &str, pages: &Range<u64>) {
        if let Err(e) = self.ask(pages) {
            self.refuse(what, &e.to_string());
        }
    }

    /// The stack: a large page must lie in it as a whole when it is first touched, so it is made as long as it may become, up to
    /// [`STACK`].
    fn stack(&mut self, stack: &Range<u64>) {
        self.advise("stack", stack);
        let limit = stack_limit(self.tracee.pid()).min(STACK);
        let Some(lowest) = lowest_page(stack, limit, self.pages.bytes) else { return };
        if self.tracee.write(lowest, &[0]).is_ok() {
            // the page that was touched is given back
            let page = lowest..lowest + self.pages.bytes.max(page_bytes());
            let _ = self.madvise(&page, libc::MADV_DONTNEED as u64);
        }
    }
}

/// The lowest large page that a stack below its limit can have; `None` if that is part of it already, or if none fits.
fn lowest_page(stack: &Range<u64>, limit: u64, large: u64) -> Option<u64> {
    let lowest = stack.end.checked_sub(limit.checked_sub(SPARE)?)?.checked_next_multiple_of(large)?;
    (lowest.checked_add(large)? <= stack.start).then_some(lowest)
}

/// The largest stack of a process.
fn stack_limit(pid: i32) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes into `limit`, which lives on this stack, and reads nothing.
    let got = unsafe { libc::prlimit(pid, libc::RLIMIT_STACK, std::ptr::null(), &raw mut limit) };
    if got == 0 { limit.rlim_cur } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LARGE: u64 = 2 << 20;

    proptest! {
        /// Wherever a stack ends: most of the limit is on large pages, and the limit is kept.
        #[test]
        fn a_stack_of_8_mib_has_two_large_pages_and_more(end in (1u64 << 30)..(1 << 47)) {
            let end = end & !4095;
            let lowest = lowest_page(&(end - (132 << 10)..end), STACK, LARGE).expect("there is room");
            prop_assert!(lowest.is_multiple_of(LARGE) && end - lowest <= STACK - SPARE);
            prop_assert!((end / LARGE * LARGE - lowest) / LARGE >= 2);
        }

        #[test]
        fn no_stack_panics(start in any::<u64>(), end in any::<u64>(), limit in any::<u64>()) {
            let _ = lowest_page(&(start..end), limit, LARGE);
        }
    }
}
