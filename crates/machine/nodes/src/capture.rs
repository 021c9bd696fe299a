// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs whose output is kept.

use std::fs::File;
use std::io::{Read as _, Seek as _};

use colony_ciod::JobOutcome;

use crate::{CnkError, Death, Running};

/// A job under way, whose output is kept.
#[derive(Debug)]
pub struct Capturing {
    /// The job.
    pub job: Running,
    pub(crate) stdout: File,
    pub(crate) stderr: File,
}

/// The output of a job, and its outcome.
#[derive(Clone, Debug)]
pub struct Captured {
    /// Standard output of all processes.
    pub stdout: String,
    /// Standard error of all processes.
    pub stderr: String,
    /// The outcome of the job.
    pub outcome: JobOutcome,
    /// The nodes that died meanwhile.
    pub deaths: Vec<Death>,
}

impl Capturing {
    /// Waits for its end.
    ///
    /// # Errors
    /// If what it printed cannot be read.
    pub fn end(self) -> Result<Captured, CnkError> {
        let outcome = self.job.wait();
        let text = |mut file: File| {
            let mut bytes = Vec::new();
            let read = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            read.map_err(CnkError::io("what a job has printed"))?;
            Ok::<_, CnkError>(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Captured {
            stdout: text(self.stdout)?,
            stderr: text(self.stderr)?,
            outcome,
            deaths: self.job.deaths(),
        })
    }
}
