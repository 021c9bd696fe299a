// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error of a `colony` command, for the program that started it.

use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Environment variable with the file that a `colony` command writes its [`Failure`] to. Programs that the command starts
/// inherit it: the file has the failure of the last command that failed.
pub const VARIABLE: &str = "COLONY_FAILURE";

/// The failure of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// [`Failure::SCHEMA`].
    pub schema: String,
    /// The error's text: attempt, finding, remedy.
    pub error: String,
    /// Exit code: 1 if the run failed, 2 for wrong use, 126 or 127 if a program could not be started.
    pub code: u8,
}

impl Failure {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.failure/1";

    /// A failure with this text, and the exit code of the command.
    #[must_use]
    pub fn new(error: String, code: u8) -> Self {
        Self { schema: Self::SCHEMA.into(), error, code }
    }

    /// Writes it to the file that the environment names; does nothing where it names none.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn leave(&self) -> std::io::Result<()> {
        let Some(file) = std::env::var_os(VARIABLE).filter(|f| !f.is_empty()) else { return Ok(()) };
        let text = serde_json::to_vec(self)?;
        colony_node::file::write_atomically(Path::new(&file), |out| out.write_all(&text))
    }

    /// The failure in this document; `None` if it is something else.
    #[must_use]
    pub fn read(document: &[u8]) -> Option<Self> {
        serde_json::from_slice::<Self>(document).ok().filter(|f| f.schema == Self::SCHEMA)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_another_kind_is_no_failure() {
        let failure = Failure::new("reading x: no such file".into(), 1);
        let mut text = serde_json::to_vec(&failure).expect("JSON");
        assert_eq!(Failure::read(&text), Some(failure));
        text.pop();
        assert_eq!(Failure::read(&text), None);
        assert_eq!(Failure::read(br#"{"schema":"colony.failure/2","error":"","code":1}"#), None);
    }
}
