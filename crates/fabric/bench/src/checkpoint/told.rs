// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a rank tells the command at its end: one line of JSON.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};

/// A checkpoint as the runtime reports it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// Bytes of all images, once.
    pub(super) bytes: u64,
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

/// Appends a line. The command reads it once all ranks have ended.
pub(super) fn tell(file: &mut File, told: &Told) -> bool {
    let line = serde_json::to_string(told).map(|line| line + "\n");
    line.is_ok_and(|line| file.write_all(line.as_bytes()).is_ok())
}

/// The lines of all ranks, in order. A line that was not written to its end is left out: its rank was killed.
pub(super) fn read_told(file: &mut File) -> io::Result<Vec<Told>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_were_cut_are_left_out() {
        let mut file = tempfile::tempfile().expect("a file");
        let told = Told::Ended {
            checkpoints: vec![Checkpoint { bytes: 7, quiet_s: 0.5, copy_s: 0.25 }],
            floors: vec![Floor { memcpy_s: 0.5, total_s: 1.5 }],
        };
        assert!(tell(&mut file, &told));
        file.write_all(b"{\"Failed\":\"one").expect("written");
        assert_eq!(read_told(&mut file).expect("readable"), [told]);
    }
}
