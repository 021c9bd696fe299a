// SPDX-License-Identifier: MIT OR Apache-2.0
//! The report of a rank to the command at its end: one line of JSON.

use serde::{Deserialize, Serialize};

/// A checkpoint as the runtime reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// Bytes of all images, once.
    pub(super) bytes: u64,
    /// Bytes of them that were sent.
    pub(super) sent: u64,
    pub(super) quiet_s: f64,
    pub(super) copy_s: f64,
}

/// One repetition of the floor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Floor {
    /// Seconds of the slowest rank's copy.
    pub(super) memcpy_s: f64,
    /// Seconds of all, as rank 0 sees it.
    pub(super) total_s: f64,
}

/// The end of a rank. Only rank 0 has times.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Told {
    Ended { checkpoints: Vec<Checkpoint>, floors: Vec<Floor> },
    Failed(String),
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::ranks::{read_told, tell};

    #[test]
    fn lines_that_were_cut_are_left_out() {
        let mut file = tempfile::tempfile().expect("a file");
        let told = Told::Ended {
            checkpoints: vec![Checkpoint { bytes: 7, sent: 7, quiet_s: 0.5, copy_s: 0.25 }],
            floors: vec![Floor { memcpy_s: 0.5, total_s: 1.5 }],
        };
        assert!(tell(&mut file, &told));
        file.write_all(b"{\"Failed\":\"one").expect("written");
        assert_eq!(read_told::<Told>(&mut file).expect("readable"), [told]);
    }
}
