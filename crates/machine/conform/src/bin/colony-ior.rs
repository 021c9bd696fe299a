// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes and reads files as the benchmark IOR does: each rank a block of its own, transfer by transfer, in a file of
//! its own or in one that all share. The same program on the compute node kernel and on Linux.
//!
//! ```text
//! colony-ior write|read own|shared FOLDER TRANSFER COUNT      TRANSFER: bytes, 16 or more; COUNT: transfers of a rank
//! ```
//!
//! A transfer begins with its rank and number, which `read` checks. Nothing is flushed: the caller decides when. Prints the
//! time of its transfers, ns.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes at the head of a transfer: rank and number.
const HEAD: usize = 16;

struct Task {
    reads: bool,
    shared: bool,
    folder: String,
    transfer: usize,
    count: u64,
}

impl Task {
    fn of(arguments: &[String]) -> Option<Self> {
        let [phase, layout, folder, transfer, count] = arguments else { return None };
        let reads = match phase.as_str() {
            "write" => false,
            "read" => true,
            _ => return None,
        };
        let shared = match layout.as_str() {
            "own" => false,
            "shared" => true,
            _ => return None,
        };
        let transfer = transfer.parse().ok().filter(|&bytes| bytes >= HEAD)?;
        Some(Self { reads, shared, folder: folder.clone(), transfer, count: count.parse().ok()? })
    }

    /// Time of its transfers.
    fn run(&self, rank: u64) -> io::Result<Duration> {
        let name = if self.shared { "shared".to_owned() } else { format!("rank-{rank}") };
        let path = Path::new(&self.folder).join(name);
        // ranks of a shared file come in any order, so none of them empties it
        let file = match self.reads {
            true => File::open(&path)?,
            false => File::options().write(true).create(true).truncate(false).open(&path)?,
        };
        let begin = if self.shared { rank * self.count } else { 0 };
        let mut bytes = vec![0x5a; self.transfer];
        let began = Instant::now();
        for number in 0..self.count {
            let head: Vec<u8> = rank.to_le_bytes().into_iter().chain(number.to_le_bytes()).collect();
            let offset = (begin + number) * self.transfer as u64;
            if self.reads {
                file.read_exact_at(&mut bytes, offset)?;
                if bytes[..HEAD] != head[..] {
                    return Err(io::Error::other(format!("transfer {number} of rank {rank} has other data")));
                }
            } else {
                bytes[..HEAD].copy_from_slice(&head);
                file.write_all_at(&bytes, offset)?;
            }
        }
        Ok(began.elapsed())
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(task) = Task::of(&arguments) else {
        eprintln!("usage: colony-ior write|read own|shared FOLDER TRANSFER COUNT");
        return ExitCode::from(2);
    };
    let rank = std::env::var("COLONY_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    match task.run(rank) {
        Ok(took) => {
            println!("{}", took.as_nanos());
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("colony-ior: {} in {}: {e}", arguments[0], task.folder);
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(line: &str) -> Option<Task> {
        Task::of(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn each_rank_reads_what_it_wrote_and_finds_foreign_data() {
        let folder = tempfile::tempdir().expect("folder");
        let at = folder.path().to_str().expect("plain");
        for layout in ["own", "shared"] {
            let write = task(&format!("write {layout} {at} 100 7")).expect("a task");
            let read = task(&format!("read {layout} {at} 100 7")).expect("a task");
            for rank in [1, 0, 2] {
                write.run(rank).expect("written");
            }
            assert!((0..3).all(|rank| read.run(rank).is_ok()), "{layout}");
            let more = task(&format!("read {layout} {at} 100 30")).expect("a task");
            assert!(more.run(0).is_err(), "{layout}");
        }
        let length = |name: &str| folder.path().join(name).metadata().expect("a file").len();
        assert_eq!((length("rank-2"), length("shared")), (700, 2100));
        assert!(task("write own /tmp 8 1").is_none() && task("append own /tmp 64 1").is_none());
    }
}
