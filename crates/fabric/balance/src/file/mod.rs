// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load files: one of ours for all PEs (`colony.loads/1`), or one of DARMA/vt for each rank (`LBDatafile`).

mod number;
mod own;
pub mod vt;

use serde::Deserialize;

use crate::database::Database;
use crate::error::BalanceError;

pub use own::{SCHEMA, write, write_generated};

/// A load file that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FileError {
    /// The file is compressed.
    #[error("the file is compressed with {0}; uncompress it first, as with `{0} -d`")]
    Compressed(&'static str),
    /// The file holds no text.
    #[error(
        "the file is binary, and load files are JSON; write its loads as a file of schema `{SCHEMA}`, which docs/balance.md \
         describes"
    )]
    Binary,
    /// The file is named as Charm++ names its dumps, which are binary.
    #[error(
        "the file is binary, as are the dumps that Charm++ writes with `+LBDump`, and their form differs between versions \
         of Charm++; write its loads as a file of schema `{SCHEMA}`, which docs/balance.md describes"
    )]
    CharmDump,
    /// The file is no JSON, or its content does not follow its schema.
    #[error("{0}")]
    Json(String),
    /// The schema of the file is unknown.
    #[error("the file is neither of schema `{SCHEMA}` nor of type `LBDatafile`; its schema is `{0}`")]
    Schema(String),
    /// The file does not have the phase.
    #[error("the file has no phase {wanted}; it has {there}")]
    Phase {
        /// The phase asked for.
        wanted: u64,
        /// The phases that the file has.
        there: String,
    },
    /// Files that do not belong together, or values that the format does not allow.
    #[error("{0}")]
    Content(String),
    /// Values that no load database can have.
    #[error(transparent)]
    Database(#[from] BalanceError),
}

impl FileError {
    /// Returns `true` if the arguments caused the error: the file does not have the phase.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Phase { .. })
    }
}

impl From<serde_json::Error> for FileError {
    fn from(e: serde_json::Error) -> Self {
        Self::Json(e.to_string())
    }
}

/// The format of a load file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One file for all PEs.
    Own,
    /// A file of DARMA/vt: one rank's.
    Vt,
}

#[derive(Deserialize)]
#[serde(expecting = "a load file: a JSON object")]
struct Head {
    schema: Option<String>,
    r#type: Option<String>,
    metadata: Option<Metadata>,
    phases: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object with the type of the file")]
struct Metadata {
    r#type: Option<String>,
}

impl Format {
    /// The format of a file. Its name tells binary files apart.
    ///
    /// # Errors
    /// The content is compressed, binary, no JSON, or of another schema.
    pub fn of(name: &str, content: &[u8]) -> Result<Self, FileError> {
        if let Some(fault) = binary_fault(name, content) {
            return Err(fault);
        }
        // our files begin with their schema: they need not be read twice
        let text = &content[..content.len().min(256)];
        let squeezed: Vec<u8> = text.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
        if squeezed.starts_with(format!("{{\"schema\":\"{SCHEMA}\"").as_bytes()) {
            return Ok(Self::Own);
        }
        let head: Head = number::parse(content, "")?;
        let kind = head.r#type.or(head.metadata.and_then(|m| m.r#type));
        match (head.schema.as_deref(), kind.as_deref()) {
            (Some(SCHEMA), _) => Ok(Self::Own),
            (None, Some("LBDatafile")) => Ok(Self::Vt),
            // both of vt's fields are optional
            (None, None) if head.phases.is_some() => Ok(Self::Vt),
            (schema, kind) => {
                Err(FileError::Schema(schema.or(kind).unwrap_or("none").chars().take(60).collect()))
            }
        }
    }
}

/// The fault of content that is no text, if it is none. Only compressions with a magic number are recognized by it: brotli
/// has none, so the suffix of the name has to say so.
fn binary_fault(name: &str, content: &[u8]) -> Option<FileError> {
    const MAGIC: [(&[u8], &str); 5] = [
        (&[0x1f, 0x8b], "gzip"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
        (b"BZh", "bzip2"),
        (&[0x04, 0x22, 0x4d, 0x18], "lz4"),
    ];
    if let Some((_, compression)) = MAGIC.iter().find(|(magic, _)| content.starts_with(magic)) {
        return Some(FileError::Compressed(compression));
    }
    let start = &content[..content.len().min(4096)];
    let is_text =
        std::str::from_utf8(start).map_or_else(|e| e.error_len().is_none(), |_| true) && !start.contains(&0);
    if is_text {
        return None;
    }
    let file = name.rsplit('/').next().unwrap_or(name);
    Some(if file.ends_with(".br") {
        FileError::Compressed("brotli")
    } else if file.starts_with("lbdump") || file.contains(".dat.") {
        FileError::CharmDump
    } else {
        FileError::Binary
    })
}

/// Reads a database from one file of ours, or from the files of all of vt's ranks. Of vt's phases, the one asked for or
/// else the last one is taken.
///
/// # Errors
/// A file cannot be read, or the files do not belong together. The error begins with the file's name.
pub fn read(files: &[(String, Vec<u8>)], phase: Option<u64>) -> Result<Read, (String, FileError)> {
    let mut ranks = vt::Ranks::new(phase);
    for (name, content) in files {
        let fail = |e: FileError| (name.clone(), e);
        match Format::of(name, content).map_err(fail)? {
            Format::Own if files.len() == 1 => {
                if phase.is_some_and(|p| p != 0) {
                    return Err(fail(FileError::Phase { wanted: phase.unwrap_or(0), there: "0".to_owned() }));
                }
                return Ok(Read {
                    database: own::read(content).map_err(fail)?,
                    skipped_edges: 0,
                    missing_ranks: Vec::new(),
                });
            }
            Format::Own => {
                let text =
                    format!("a file of schema `{SCHEMA}` holds all PEs: give it alone, not with others");
                return Err(fail(FileError::Content(text)));
            }
            Format::Vt => ranks.add(content).map_err(fail)?,
        }
    }
    let last = files.last().map(|f| f.0.clone()).unwrap_or_default();
    ranks.finish().map_err(|e| (last, e))
}

/// A database that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Read {
    /// The database.
    pub database: Database,
    /// Messages left out: an end of theirs is a node, or an object that no file has.
    pub skipped_edges: u64,
    /// Ranks of vt that have no file although others of this machine do: their PEs are taken for idle.
    pub missing_ranks: Vec<u32>,
}

/// For fuzzers: reads any bytes as each format. A database that was read is the same after it is written and read again.
///
/// # Panics
/// A database that was read cannot be written and read again.
pub fn fuzz_read(content: &[u8]) {
    let files = [("fuzz".to_owned(), content.to_vec())];
    let _ = own::read(content);
    let Ok(read) = read(&files, None) else { return };
    let mut text = Vec::new();
    write(&read.database, &mut text).expect("memory takes every byte");
    let again = own::read(&text).expect("what was written can be read");
    assert_eq!(again, read.database, "a database changes when it is written");
    if read.database.pes().len() <= 1024 {
        let strategy = crate::strategy::Strategies::parse("greedy-refine").expect("it exists");
        let outcome = strategy.assign(&again, &crate::topology::Topology::Flat).expect("flat fits");
        again.check_placement(&outcome.placement).expect("a valid placement");
    }
}

#[cfg(test)]
mod tests;
