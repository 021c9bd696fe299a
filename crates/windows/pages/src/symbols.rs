// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of functions for `perf`, where text has no file any more.
//!
//! `perf` reads `/tmp/perf-PID.map` for samples in anonymous memory, as it does for compilers that generate code at run time.
//! Debuggers and core dumps do not need it: they find the program by the auxiliary vector.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSymbol, ReadCache, SymbolKind};

use crate::image::Segment;
use crate::place::{How, Moved, Placed};

/// Writes the functions in text that was copied; `None` if no text was copied or the program has no symbols.
pub(crate) fn write_map(pid: i32, placed: &Placed) -> io::Result<Option<PathBuf>> {
    let copied = |m: &&Moved| m.segment == Segment::Text && m.how == How::Copied;
    let ranges: Vec<_> = placed.moved.iter().filter(copied).map(|m| m.start..m.start + m.bytes).collect();
    if ranges.is_empty() {
        return Ok(None);
    }
    let program = File::open(format!("/proc/{pid}/exe"))?;
    let mut functions = functions(program, placed.image.bias)?;
    functions.retain(|f| ranges.iter().any(|r| f.start < r.end && r.start < f.start.saturating_add(f.bytes)));
    if functions.is_empty() {
        return Ok(None);
    }
    let path = PathBuf::from(format!("/tmp/perf-{pid}.map"));
    write(&path, &functions)?;
    Ok(Some(path))
}

struct Function {
    start: u64,
    bytes: u64,
    name: String,
}

/// The functions of a program, by address: those of its symbol table, or else those it exports.
fn functions(program: File, bias: u64) -> io::Result<Vec<Function>> {
    let cache = ReadCache::new(program);
    let file = object::File::parse(&cache).map_err(io::Error::other)?;
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
    functions.sort_by_key(|f| f.start);
    functions.dedup_by_key(|f| f.start);
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
