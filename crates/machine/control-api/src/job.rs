// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs, in JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use colony_ciod::Mode;
use colony_model::Shape;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::place::JobBlock;

/// Exit code of a job if the machine has failed. No program causes it: if a program exits with this code, the job ends with the
/// code below it.
pub const MACHINE_FAILED: i32 = 255;

/// A job to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// The partition that runs it.
    pub partition: String,
    /// A static program: its path on the I/O node.
    #[schema(value_type = String)]
    pub executable: PathBuf,
    /// `argv[0]`; as `executable` if it is not set.
    #[serde(default)]
    pub name: Option<String>,
    /// Arguments after the name of the program.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Programs of other ranks.
    #[serde(default)]
    pub programs: Vec<ProgramOfRanks>,
    /// The environment. The processes have no other variables but those of the job.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The folder in which the processes start.
    #[schema(value_type = String)]
    pub directory: PathBuf,
    /// `coprocessor`: a process a node; `virtual-node`: two, with half the memory each.
    #[serde(default)]
    #[schema(value_type = String)]
    pub mode: Mode,
    /// Number of processes; as many as the nodes hold if it is not set.
    #[serde(default)]
    pub processes: Option<u32>,
    /// Number of nodes; as many as the processes need if it is not set, and all of the partition if that is not set either. A
    /// job gets a block of at least one pset.
    #[serde(default)]
    pub nodes: Option<u32>,
    /// Extent of its nodes, in any orientation, instead of their number.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub shape: Option<Shape>,
    /// Print the rank before each line.
    #[serde(default)]
    pub labels: bool,
    /// The other processes continue if one crashes.
    #[serde(default)]
    pub go_on: bool,
    /// Seconds after which the job is ended.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// A file that is the standard input of rank 0. Files of standard streams are opened with the rights of the job's user; a
    /// relative name is one in `directory`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub stdin: Option<PathBuf>,
    /// The standard input of rank 0 is sent by `PUT /v1/jobs/{id}/stdin`, instead of a file.
    #[serde(default)]
    pub sends_stdin: bool,
    /// A file for standard output: one a rank if its name contains `%r`, the rank. `%j` is the number of the job.
    #[serde(default)]
    pub stdout: Option<String>,
    /// As `stdout`, for standard error.
    #[serde(default)]
    pub stderr: Option<String>,
    /// Files and folders of the host that are copied into Linux I/O nodes before the job starts, at their own paths; a relative
    /// name is one in `directory`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    pub copies: Vec<PathBuf>,
    /// Run the job again if the machine fails after its ranks have begun. If no rank has begun, the job runs again in any case.
    /// Not with `sends_stdin`, because input that was read cannot be read again.
    #[serde(default)]
    pub requeue: bool,
    /// User whose rights the job has. Only root may choose another than the caller.
    #[serde(default)]
    pub user: Option<String>,
    /// A text that the user has never used before. A request with the token of another job is that job: so a request can be
    /// repeated when its answer was lost.
    #[serde(default)]
    pub token: Option<String>,
}

/// The program of some ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProgramOfRanks {
    /// The first of its ranks.
    pub first: u32,
    /// The last of its ranks.
    pub last: u32,
    /// A static program: its path on the I/O node.
    #[schema(value_type = String)]
    pub executable: PathBuf,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// It waits for its partition.
    Queued,
    /// The partition starts the job, whose nodes may still be booting.
    Starting,
    /// All processes of the job have begun.
    Running,
    /// It has ended.
    Ended,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// The user who has submitted it.
    pub user: String,
    /// Its description.
    pub request: JobRequest,
    /// Its state.
    pub state: JobState,
    /// Its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<JobBlock>,
    /// The reason why it waits, if it is asked for by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// When it was submitted, started and ended, seconds since 1970.
    pub submitted: f64,
    /// When its partition was told to start it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<f64>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<f64>,
    /// Number of times that the machine has failed it, and it went back into the queue.
    #[serde(default)]
    pub requeues: u32,
    /// In the queue, it begins no sooner than at this time, seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<f64>,
    /// Exit code: that of the first process that failed, 0 if none did, 255 if the machine has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The reasons of the failure, one in each line; in the queue, those of the failure before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The output that the machine had kept is removed: later jobs of its user had too much.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_output_removed: bool,
}

/// A signal for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Linux signal number.
    pub signal: i32,
}

/// How far the standard input of a job has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InputTaken {
    /// Bytes from the beginning on.
    pub bytes: u64,
    /// Whether more can be taken: the input has not ended, and neither has the job.
    pub is_open: bool,
}
