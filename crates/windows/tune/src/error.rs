// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of transactions.

use std::io;

/// Errors of applying and reverting transactions.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A name that cannot be a transaction's.
    #[error("`{0}` is no name for a transaction: use 1 to 40 letters, digits, `-` and `_`")]
    Name(String),
    /// The transaction is applied already.
    #[error("the transaction {0} is applied already; revert it first, or choose another name")]
    Exists(String),
    /// No transaction has this name.
    #[error("no transaction is named {name}; {}", hint(names))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names of the applied transactions.
        names: Vec<String>,
    },
    /// A file that is not a setting of the kernel.
    #[error("{0} is not below /proc or /sys, where the kernel's settings are; nothing was changed")]
    NotASetting(String),
    /// A profile that is neither built in nor a file in the right form.
    #[error("the profile {name}: {reason}")]
    Profile {
        /// Name or file.
        name: String,
        /// The fault found, and the remedy.
        reason: String,
    },
    /// A step failed, and those before it are undone.
    #[error(
        "{step} failed: {reason}; {}. Leave this step out, or apply the others with --keep-going",
        if kept.is_empty() { "the steps before it are undone".into() } else { format!("and these could not be undone: {}", kept.join("; ")) }
    )]
    Step {
        /// The step, in words.
        step: String,
        /// The kernel's answer.
        reason: String,
        /// Steps that could not be undone, each with the reason.
        kept: Vec<String>,
    },
    /// Some settings could not be restored; the journal still has them.
    #[error("{} of the transaction {name} could not be restored: {}; the journal keeps them: try again", steps(reasons.len()), reasons.join("; "))]
    Revert {
        /// The transaction.
        name: String,
        /// Files or commands, each with the kernel's answer.
        reasons: Vec<String>,
    },
    /// A journal of this boot that another version has written.
    #[error(
        "the journal of the transaction {name} is of another version of Colony ({schema}); revert it with that version. The \
         settings that it restores are still in effect"
    )]
    Foreign {
        /// The transaction.
        name: String,
        /// The schema of its journal.
        schema: String,
    },
    /// A journal whose bytes are wrong. It stays, since nothing else has the values that it would restore.
    #[error(
        "the journal of the transaction {name} is damaged: {reason}. Its settings are still in effect: restore the values by hand \
         that {file} still shows as `before`, and remove this file; or boot the node again"
    )]
    Damaged {
        /// The transaction.
        name: String,
        /// The file of the journal.
        file: String,
        /// The fault found.
        reason: String,
    },
    /// The unit that applies a transaction at every boot cannot be made, read or removed.
    #[error("--persist: {0}")]
    Persist(String),
    /// The journal could not be written or read.
    #[error("the journal of transactions: {what}: {source}{}", if *unchanged { "; the node is unchanged" } else { "" })]
    Journal {
        /// The operation that failed.
        what: String,
        /// The file system's answer.
        source: io::Error,
        /// Set if nothing on the node had been changed yet.
        unchanged: bool,
    },
}

fn hint(names: &[String]) -> String {
    match names {
        [] => "none is applied".into(),
        names => format!("applied are: {}", names.join(", ")),
    }
}

fn steps(count: usize) -> String {
    if count == 1 { "1 step".into() } else { format!("{count} steps") }
}

impl TuneError {
    /// Returns `true` if another name or another list of steps would have succeeded (exit code 2).
    #[must_use]
    pub const fn is_wrong_use(&self) -> bool {
        matches!(
            self,
            Self::Name(_)
                | Self::Exists(_)
                | Self::Unknown { .. }
                | Self::NotASetting(_)
                | Self::Profile { .. }
        )
    }

    pub(crate) fn journal(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Journal { what, source, unchanged: false }
    }

    /// The same error, for a moment before the first change.
    pub(crate) fn before_changes(self) -> Self {
        match self {
            Self::Journal { what, source, .. } => Self::Journal { what, source, unchanged: true },
            other => other,
        }
    }
}
