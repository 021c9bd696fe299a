// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of functions for `perf`, where text has no file any more.
//!
//! `perf` reads `/tmp/perf-PID.map` for samples in anonymous memory, as it does for compilers that generate code at run time.
//! Debuggers and core dumps do not need it: they find the program by the auxiliary vector.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolKind};

use crate::image::{Segment, page_bytes};
use crate::libraries::Piece;
use crate::place::{How, Moved, Placed};

/// Writes the functions in text that was copied; `None` if no text was copied or the program has no symbols.
pub(crate) fn write_map(pid: i32, placed: &Placed) -> io::Result<Option<PathBuf>> {
    let copied = |m: &&Moved| m.segment == Segment::Text && m.how == How::Copied;
    let ranges: Vec<_> = placed.moved.iter().filter(copied).map(|m| m.start..m.start + m.bytes).collect();
    if ranges.is_empty() && placed.code.is_empty() {
        return Ok(None);
    }
    let mut functions = Vec::new();
    if !ranges.is_empty() {
        let program = File::open(format!("/proc/{pid}/exe"))?;
        functions = read_functions(program, |_| Some(placed.image.bias))?;
        keep(&mut functions, &ranges);
    }
    for piece in &placed.code {
        // a library whose file has been replaced stays without names
        let Ok(library) = File::open(&piece.file) else { continue };
        let mut more = read_functions(library, |file| bias_of(file, piece)).unwrap_or_default();
        keep(&mut more, std::slice::from_ref(&piece.pages));
        functions.append(&mut more);
    }
    functions.sort_by_key(|f| f.start);
    functions.dedup_by_key(|f| f.start);
    if functions.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    write(&path, &functions)?;
    Ok(Some(path))
}

type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

struct Function {
    start: u64,
    bytes: u64,
    name: String,
}

/// Leaves the functions that lie in these addresses.
fn keep(functions: &mut Vec<Function>, ranges: &[Range<u64>]) {
    functions.retain(|f| ranges.iter().any(|r| f.start < r.end && r.start < f.start.saturating_add(f.bytes)));
}

/// Address in the process minus address in the file; `None` if the file has no such piece.
fn bias_of(file: &Elf<'_>, piece: &Piece) -> Option<u64> {
    // a mapping begins at the page in which its segment begins
    let last = piece.offset.checked_add(page_bytes())?;
    let segment = file.segments().find(|s| {
        let (start, bytes) = s.file_range();
        start < last && piece.offset < start.saturating_add(bytes)
    })?;
    let address = segment.address().wrapping_add(piece.offset).wrapping_sub(segment.file_range().0);
    Some(piece.pages.start.wrapping_sub(address))
}

/// The functions of a program or library: those of its symbol table, or else those it exports.
fn read_functions(program: File, bias: impl Fn(&Elf<'_>) -> Option<u64>) -> io::Result<Vec<Function>> {
    let cache = ReadCache::new(program);
    let file = object::File::parse(&cache).map_err(io::Error::other)?;
    let Some(bias) = bias(&file) else { return Ok(Vec::new()) };
    let function = |symbol: object::Symbol<'_, '_, _>| {
        let is_function = symbol.kind() == SymbolKind::Text && symbol.is_definition();
        // a name with a line break would begin another entry
        let name = symbol.name().ok().filter(|n| is_function && !n.is_empty() && !n.contains('\n'))?;
        let start = symbol.address().wrapping_add(bias);
        Some(Function { start, bytes: symbol.size().max(1), name: name.to_owned() })
    };
    let mut functions: Vec<_> = file.symbols().filter_map(function).collect();
    if functions.is_empty() {
        functions = file.dynamic_symbols().filter_map(function).collect();
    }
    Ok(functions)
}

/// A new file, for its owner to write: one of an earlier process with this number is removed.
fn write(path: &Path, functions: &[Function]) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    let mut out = BufWriter::new(file);
    for f in functions {
        writeln!(out, "{:x} {:x} {}", f.start, f.bytes, f.name)?;
    }
    out.flush()
}
