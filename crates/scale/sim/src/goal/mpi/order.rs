// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collectives must be called by all ranks in the same order.

/// A collective call of a rank.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collective {
    pub(super) name: &'static str,
    pub(super) line: u64,
    pub(super) root: u32,
    /// Bytes that all ranks must agree on; `None` for calls in which each rank has its own.
    pub(super) bytes: Option<u64>,
}

/// The collectives of rank 0, which those of the other ranks are compared with.
#[derive(Debug, Default)]
pub(super) struct Collectives {
    of_rank_0: Vec<Collective>,
    /// Collectives of the rank under way.
    count: usize,
    /// Name of rank 0's file.
    file: String,
}

impl Collectives {
    pub(super) fn begin(&mut self, rank: u32, file: &str) {
        self.count = 0;
        if rank == 0 {
            self.file =
                std::path::Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned();
        }
    }

    /// Takes in the next collective of `rank`.
    pub(super) fn next(&mut self, rank: u32, call: Collective) -> Result<(), String> {
        self.count += 1;
        if rank == 0 {
            self.of_rank_0.push(call);
            return Ok(());
        }
        let number = ordinal(self.count);
        let Collective { name, root, bytes, .. } = call;
        let Some(other) = self.of_rank_0.get(self.count - 1) else {
            return Err(format!(
                "{name}, the {number} collective call of rank {rank}, has no counterpart: rank 0 has {} collective calls in {}; trace a run \
                 in which all ranks call the same collectives",
                self.of_rank_0.len(),
                self.file
            ));
        };
        let at = format!("line {} of {}", other.line, self.file);
        let differs = if name != other.name {
            format!("{} at {at}", other.name)
        } else if root != other.root {
            format!("root {} instead of {root} at {at}", other.root)
        } else {
            match (bytes, other.bytes) {
                (Some(ours), Some(theirs)) if ours != theirs => {
                    format!("{theirs} bytes instead of {ours} at {at}")
                }
                _ => return Ok(()),
            }
        };
        Err(format!(
            "{name}, the {number} collective call of rank {rank}, does not match that of rank 0, which has {differs}; all ranks must call the \
             same collectives in the same order"
        ))
    }

    /// Ends the calls of `rank`.
    pub(super) fn end(&self, rank: u32) -> Result<(), String> {
        match self.of_rank_0.get(self.count) {
            Some(missing) => Err(format!(
                "rank {rank} ends without the {} collective call, which is {} at line {} of {}; trace a run in which all ranks call the same \
                 collectives",
                ordinal(self.count + 1),
                missing.name,
                missing.line,
                self.file
            )),
            None => Ok(()),
        }
    }
}

/// `1st`, `2nd`, `3rd`, `4th`, `11th`.
pub(super) fn ordinal(n: usize) -> String {
    let suffix = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{suffix}")
}
