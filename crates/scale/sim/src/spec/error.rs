// SPDX-License-Identifier: MIT OR Apache-2.0
//! The faults of scenarios, with their places.

use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use crate::SimError;

/// A scenario that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read the scenario {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Something in the text is wrong.
    #[error("{}{line}: {fault}", file.as_ref().map_or_else(|| "line ".into(), |f| format!("{}:", f.display())))]
    Line {
        /// The file, where it is one.
        file: Option<PathBuf>,
        /// The line, from 1.
        line: usize,
        /// The fault, and the remedy.
        fault: String,
    },
    /// A value makes no sense.
    #[error("{path}: {fault}")]
    Value {
        /// The place, as `program.bytes`.
        path: String,
        /// The fault, and the remedy.
        fault: String,
    },
    /// A trace that was not given.
    #[error("the trace {0} was not read")]
    Trace(String),
    /// An error of the simulator.
    #[error(transparent)]
    Sim(#[from] SimError),
}

impl SpecError {
    /// True if another scenario would have worked.
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(self, Self::Line { .. } | Self::Value { .. })
    }

    pub(crate) fn value(path: impl Into<String>, fault: impl ToString) -> Self {
        Self::Value { path: path.into(), fault: fault.to_string() }
    }

    /// The same below `path`.
    pub(crate) fn inside(self, outer: &str) -> Self {
        match self {
            Self::Value { path, fault } => Self::Value { path: format!("{outer}.{path}"), fault },
            other => other,
        }
    }

    pub(crate) fn toml(text: &str, e: &toml::de::Error) -> Self {
        let start = e.span().map(|s| s.start);
        let path = start.and_then(|start| super::plain::path_at(text, start));
        // the decoder knows of a step only the list that it is in
        let in_steps = path.as_deref().is_some_and(|p| p.starts_with("program.step"));
        let step = in_steps.then(|| super::steps::path_of_fault(text, e.message())).flatten();
        let line = match &step {
            Some(step) => line_of(text, step),
            None => start.map_or(1, |start| line_at(text, start)),
        };
        let path = step.or(path);
        Self::Line { file: None, line, fault: super::plain(e.message(), path.as_deref()) }
    }

    /// The same with the line of the value in `text`.
    pub(crate) fn in_text(self, text: &str) -> Self {
        match self {
            Self::Value { path, fault } => {
                let line = line_of(text, &path);
                Self::Line { file: None, line, fault: format!("{path}: {fault}") }
            }
            other => other,
        }
    }

    /// The same with the file.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Line { line, fault, .. } => Self::Line { file: Some(path.to_owned()), line, fault },
            other => other,
        }
    }
}

fn line_at(text: &str, byte: usize) -> usize {
    text.bytes().take(byte).filter(|&b| b == b'\n').count() + 1
}

/// The line of what `path` names; of the deepest part of it that is there, else the first.
fn line_of(text: &str, path: &str) -> usize {
    let Ok(table) = DeTable::parse(text) else { return 1 };
    let (mut at, mut rest) = (0, path);
    let mut value: Option<&DeValue<'_>> = None;
    while !rest.is_empty() {
        let table = if value.is_none() { Some(table.get_ref()) } else { value.and_then(DeValue::as_table) };
        let array = value.and_then(DeValue::as_array);
        // a key of the table of sweeps is itself a path
        let (part, after) = match table {
            Some(t) if t.contains_key(rest) => (rest, ""),
            _ => rest.split_once('.').unwrap_or((rest, "")),
        };
        let element = array.and_then(|a| a.get(part.parse::<usize>().ok()?));
        match (table.and_then(|t| t.get_key_value(part)), element) {
            (Some((k, v)), _) => (at, value) = (k.span().start, Some(v.get_ref())),
            (None, Some(e)) => (at, value) = (e.span().start, Some(e.get_ref())),
            (None, None) => break,
        }
        rest = after;
    }
    line_at(text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_path() {
        assert_eq!(line_of("a = 1\n[sweep]\nb = 1\n\"c.d\" = 2", "sweep.c.d"), 4);
        let text = "seed = 1\n[program]\nname = \"x\"\n\n[[noise]]\nname = \"a\"\n[[noise]]\n\nmodel = 3\n";
        assert_eq!(line_of(text, "program.name"), 3);
        assert_eq!(line_of(text, "program.nothing"), 2);
        assert_eq!(line_of(text, "noise.1.model"), 9);
        assert_eq!(line_of(text, "nothing"), 1);
    }
}
