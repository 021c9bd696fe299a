// SPDX-License-Identifier: MIT OR Apache-2.0
//! The backends, which enforce the windows of a job.

use serde::{Deserialize, Serialize, Serializer};

/// The backend that enforces the windows of a job, or did last.
///
/// A user may leave the choice to Colony: the requested backend is `BackendChoice` of `colony-sched`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// `colonyd`, by one of the others. Only the report of a run says so.
    Daemon,
    /// The scheduler in the kernel.
    SchedExt,
    /// The agent.
    Agent,
    /// Nothing: the windows are only measured, or the last job has ended.
    #[default]
    #[serde(alias = "nothing")]
    None,
}

/// Writes a backend as the file `stats` has it, where [`Backend::None`] is `nothing`.
pub(crate) fn serialize_kept_by<S: Serializer>(backend: &Backend, s: S) -> Result<S::Ok, S::Error> {
    match backend {
        Backend::None => s.serialize_str("nothing"),
        other => other.serialize(s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_reports_are_what_they_were() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Kept(#[serde(serialize_with = "serialize_kept_by")] Backend);
        for (backend, of_run, of_stats) in [
            (Backend::Daemon, "\"daemon\"", "\"daemon\""),
            (Backend::SchedExt, "\"sched_ext\"", "\"sched_ext\""),
            (Backend::Agent, "\"agent\"", "\"agent\""),
            (Backend::None, "\"none\"", "\"nothing\""),
        ] {
            assert_eq!(serde_json::to_string(&backend).expect("plain data"), of_run);
            assert_eq!(serde_json::to_string(&Kept(backend)).expect("plain data"), of_stats);
            assert_eq!(serde_json::from_str::<Backend>(of_run).expect("own text"), backend);
            assert_eq!(serde_json::from_str::<Kept>(of_stats).expect("own text"), Kept(backend));
        }
    }
}
