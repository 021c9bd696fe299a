// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance: tries every system call of the table and prints what came of it, a line a case.
//!
//! The same static program runs on the compute node kernel and on Linux; the lines must be equal, Linux being the
//! oracle. Lines hold only what does not depend on when and where it runs. Calls that the table refuses are tried
//! only on the compute node (`--refused`): Linux would do them.
//!
//! ```text
//! colony-conform FOLDER [--refused]     FOLDER is empty and ours
//! ```

mod descriptors;
mod directories;
mod files;
mod identity;
mod memory;
mod paths;
mod process;
mod protection;
mod refused;
mod report;
mod signals;
mod sockets;
mod threads;
mod time;
mod waiting;

use std::process::ExitCode;

use report::Report;

/// All families, in the order they run.
const FAMILIES: &[fn(&mut Report)] = &[
    files::try_all,
    paths::try_all,
    directories::try_all,
    descriptors::try_all,
    sockets::try_all,
    waiting::try_all,
    memory::try_all,
    time::try_all,
    identity::try_all,
    signals::try_all,
    protection::try_all,
    threads::try_all,
    process::try_all,
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let (folder, refused) = match words[..] {
        [process::AGAIN] => return process::again(),
        [folder] => (folder, false),
        [folder, "--refused"] => (folder, true),
        _ => {
            eprintln!("usage: colony-conform FOLDER [--refused]");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = std::env::set_current_dir(folder) {
        eprintln!("error: {folder}: {error}");
        return ExitCode::FAILURE;
    }
    let mut report = Report::new();
    if refused {
        refused::try_all(&mut report);
        return ExitCode::SUCCESS;
    }
    for family in FAMILIES {
        family(&mut report);
    }
    process::last(&mut report)
}
