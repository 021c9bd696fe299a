// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assumptions about calls of which a trace does not say enough.

use std::collections::BTreeSet;

/// Calls of which the trace does not say enough.
#[derive(Default)]
pub(super) struct Assumed {
    pub(super) tests: u64,
    pub(super) waits_for_any: u64,
    pub(super) waits_for_some: u64,
    /// Communicators of all ranks that the rank under way has sent messages in.
    handles: BTreeSet<String>,
    has_several_handles: bool,
}

impl Assumed {
    pub(super) fn begin_rank(&mut self) {
        self.handles.clear();
    }

    /// A message is sent in the communicator `handle`, one of all ranks.
    pub(super) fn message_in(&mut self, handle: &str) {
        if self.handles.len() < 2 {
            self.handles.insert(handle.to_owned());
        }
        self.has_several_handles |= self.handles.len() > 1;
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |calls: u64, text: &str| {
            if calls > 0 {
                notes.push(format!("{calls} {text}"));
            }
        };
        note(
            self.tests,
            "calls of MPI_Test, Testall, Testany and Testsome do not say what they completed: a request that is never waited for is taken to be \
             complete at the last test that names it, and no earlier",
        );
        note(
            self.waits_for_any,
            "calls of MPI_Waitany do not say what they completed: each is taken to complete the oldest open request of its array",
        );
        note(
            self.waits_for_some,
            "calls of MPI_Waitsome do not say what they completed: each is taken to complete all open requests of its array, so that the time is \
             an upper bound",
        );
        if self.has_several_handles {
            notes.push(
                "messages are sent in several communicators of all ranks: they are matched by their tags, as if all were of one communicator"
                    .into(),
            );
        }
        notes
    }
}
