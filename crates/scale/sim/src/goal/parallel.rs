// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reading a file in parts, on all cores.
//!
//! Parts are whole ranks. A part with a fault leaves the file to the reader that goes through it from its
//! beginning: it says what is wrong, and where.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use super::build::Builder;
use super::schedule::Schedule;
use super::{binary, text};

/// Least size of a part of a text.
const PART: u64 = 1 << 22;
/// Bytes of a binary file that are read at once.
const PIECE: u64 = 1 << 20;
/// Bytes that are read at once.
const BUFFER: usize = 1 << 18;

/// Reads a schedule, if its file has no fault, and is large enough if it is a text.
pub(super) fn read(path: &Path, is_binary: bool) -> Option<Schedule> {
    let most = rayon::current_num_threads() as u64;
    let bytes = file_bytes(path)?;
    if is_binary { binary(path, most, PIECE) } else { text(path, most.min(bytes / PART)) }
}

/// Size of a file; none for pipes and the like, which are read once, from their beginning.
fn file_bytes(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|m| m.len())
}

fn from(path: &Path, offset: u64) -> std::io::Result<BufReader<File>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(offset))?;
    Ok(BufReader::with_capacity(BUFFER, file))
}

/// Reads a binary file: as many pieces at once as `most`, of about `piece` bytes, and then the next ones. So the file is
/// never in memory as a whole.
pub(super) fn binary(path: &Path, most: u64, piece: u64) -> Option<Schedule> {
    let table = binary::table(from(path, 0).ok()?, "").ok()?;
    let bytes = file_bytes(path)?;
    // no more memory is asked for than the file gives reason to
    if table.last()?.1 + 8 > bytes {
        return None;
    }
    let ranks = table.len() as u32;
    let mut all = Builder::new(ranks);
    all.reserve((bytes / binary::OPERATION) as usize + 1);
    let open = |_| Some(Reader::new(File::open(path).ok()?, ranks));
    let mut readers = (0..most.min(bytes / piece + 1)).map(open).collect::<Option<Vec<_>>>()?;
    let mut next = 0;
    while next < table.len() {
        let mut work: Vec<(&mut Reader, Range<usize>)> = Vec::new();
        for reader in &mut readers {
            let ranks = next_piece(&table, next, piece);
            next = ranks.end;
            work.push((reader, ranks));
        }
        let read = |(reader, ranks): &mut (&mut Reader, Range<usize>)| reader.read(&table, ranks.clone());
        work.par_iter_mut().map(read).collect::<Option<()>>()?;
        for (reader, _) in work {
            all.append(&reader.builder, &mut reader.shapes).ok()?;
        }
    }
    all.finish().ok()
}

/// The ranks from `first` on whose parts have no more than `piece` bytes together, or one that has more.
fn next_piece(table: &[(u64, u64)], first: usize, piece: u64) -> Range<usize> {
    let rest = &table[first..];
    let begin = rest.first().map_or(0, |r| r.0);
    let fits = rest.iter().take_while(|r| r.1 - begin <= piece).count();
    first..first + fits.max(1).min(rest.len())
}

/// Reads pieces of a binary file, one after the other.
struct Reader {
    file: File,
    bytes: Vec<u8>,
    builder: Builder,
    /// Numbers in the whole schedule of the shapes of pieces before.
    shapes: Vec<u32>,
}

impl Reader {
    fn new(file: File, ranks: u32) -> Self {
        Self { file, bytes: Vec::new(), builder: Builder::new(ranks), shapes: Vec::new() }
    }

    /// Reads some ranks of the table.
    fn read(&mut self, table: &[(u64, u64)], ranks: Range<usize>) -> Option<()> {
        self.builder.restart(ranks.start as u32);
        let ranks = &table[ranks];
        let (Some(&(begin, _)), Some(&(_, end))) = (ranks.first(), ranks.last()) else { return Some(()) };
        let length = (end - begin) as usize;
        if self.bytes.len() < length {
            self.bytes.try_reserve(length - self.bytes.len()).ok()?;
            self.bytes.resize(length, 0);
        }
        self.file.seek(SeekFrom::Start(begin + 8)).ok()?;
        self.file.read_exact(&mut self.bytes[..length]).ok()?;
        ranks.iter().try_for_each(|&(from, to)| {
            binary::rank(&self.bytes[(from - begin) as usize..(to - begin) as usize], &mut self.builder)
        })
    }
}

/// Reads a text in parts.
pub(super) fn text(path: &Path, parts: u64) -> Option<Schedule> {
    if parts < 2 {
        return None;
    }
    let bytes = file_bytes(path)?;
    let ranks = text::head(from(path, 0).ok()?)?;
    let mut begins: Vec<u64> = (1..parts)
        .into_par_iter()
        .map(|part| next_rank(path, bytes * part / parts))
        .collect::<Option<Vec<_>>>()?;
    begins.push(bytes);
    begins.insert(0, 0);
    begins.dedup();
    let all: Vec<Builder> = begins
        .par_windows(2)
        .map(|w| text::part(from(path, w[0]).ok()?.take(w[1] - w[0]), w[0] == 0, ranks))
        .collect::<Option<_>>()?;
    joined(all).filter(|s| s.ranks() == ranks)
}

/// The first line from an offset on that begins a rank, or the end of the file.
fn next_rank(path: &Path, offset: u64) -> Option<u64> {
    let mut file = from(path, offset).ok()?;
    let (mut at, mut line) = (offset, Vec::new());
    // the line that the offset is in belongs to the part before
    let mut whole = false;
    loop {
        line.clear();
        let got = (&mut file).take(text::LONGEST_LINE).read_until(b'\n', &mut line).ok()? as u64;
        if got == 0 || (whole && line.starts_with(b"rank ")) {
            return Some(at);
        }
        whole = line.ends_with(b"\n");
        at += got;
    }
}

fn joined(parts: Vec<Builder>) -> Option<Schedule> {
    let mut parts = parts.into_iter();
    let mut all = parts.next()?;
    for part in parts {
        if part.base() != all.rank() {
            return None;
        }
        all.append(&part, &mut Vec::new()).ok()?;
    }
    (all.rank() == all.ranks()).then(|| all.finish().ok()).flatten()
}
