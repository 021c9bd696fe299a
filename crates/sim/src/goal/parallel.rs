//! Reading a large file in parts, on all cores.
//!
//! Parts are whole ranks. A part that cannot be read leaves the file to the reader that goes through it from its
//! beginning: it says what is wrong, and where.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use rayon::prelude::*;

use super::build::Builder;
use super::schedule::Schedule;
use super::{binary, text};

/// Least size of a part.
const PART: u64 = 1 << 22;
/// What is read at once.
const BUFFER: usize = 1 << 18;

/// Reads a schedule, if its file has several parts and no fault.
pub(super) fn read(path: &Path, is_binary: bool) -> Option<Schedule> {
    let parts = (file_bytes(path)? / PART).min(rayon::current_num_threads() as u64);
    read_in(path, is_binary, parts)
}

/// The same in a number of parts.
pub(super) fn read_in(path: &Path, is_binary: bool, parts: u64) -> Option<Schedule> {
    if parts < 2 {
        return None;
    }
    if is_binary { binary(path, parts) } else { text(path, parts) }
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

fn binary(path: &Path, parts: u64) -> Option<Schedule> {
    let table = binary::table(from(path, 0).ok()?, "").ok()?;
    let ranks = table.len() as u64;
    let all = (0..parts).into_par_iter().map(|part| {
        let of = |part: u64| (ranks * part / parts) as usize;
        let (first, end) = (of(part), of(part + 1));
        let builder = Builder::part(ranks as u32, first as u32);
        let Some(&(begin, _)) = table.get(first) else { return Some(builder) };
        binary::ranks(from(path, begin + 8).ok()?, begin + 8, &table[first..end], builder).ok()
    });
    joined(all.collect::<Option<Vec<_>>>()?)
}

fn text(path: &Path, parts: u64) -> Option<Schedule> {
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
        all.append(&part).ok()?;
    }
    (all.rank() == all.ranks()).then(|| all.finish().ok()).flatten()
}
