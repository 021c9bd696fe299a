//! Conformance: tries every system call of the table and prints what came of it, a line a case.
//!
//! The same static program runs on the compute node kernel and on Linux; the lines must be equal, Linux being the
//! oracle. Lines hold only what does not depend on when and where it runs. Calls that the table refuses are tried
//! only on the compute node (`--refused`): Linux would do them.
//!
//! ```text
//! colony-conform FOLDER [--refused]     FOLDER is empty and ours
//! colony-conform --uncovered            rows of the table that no case tries
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
        ["--uncovered"] => return uncovered(),
        [folder] => (folder, false),
        [folder, "--refused"] => (folder, true),
        _ => {
            eprintln!("usage: colony-conform FOLDER [--refused] | --uncovered");
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

/// What cannot be called by itself: the beginnings and ends of threads, programs and handlers. All cases need them.
const INDIRECT: &[&str] = &["clone", "clone3", "exit", "exit_group", "rt_sigreturn"];

/// Says which rows have no case.
fn uncovered() -> ExitCode {
    let sources = [
        include_str!("descriptors.rs"),
        include_str!("directories.rs"),
        include_str!("files.rs"),
        include_str!("identity.rs"),
        include_str!("memory.rs"),
        include_str!("paths.rs"),
        include_str!("process.rs"),
        include_str!("signals.rs"),
        include_str!("sockets.rs"),
        include_str!("threads.rs"),
        include_str!("time.rs"),
        include_str!("waiting.rs"),
    ];
    let rows = colony_fship::calls::CALLS.iter();
    let rows = rows.filter(|c| !matches!(c.class, colony_fship::Class::Error(_)));
    let tried = |name: &str| {
        let word = format!("n::{name}");
        let ends = |rest: &str| !rest.starts_with(|c: char| c == '_' || c.is_ascii_alphanumeric());
        INDIRECT.contains(&name) || sources.iter().any(|s| s.split(&word).skip(1).any(ends))
    };
    let missing: Vec<&str> = rows.map(|c| c.name).filter(|name| !tried(name)).collect();
    for name in &missing {
        println!("{name}");
    }
    if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_call_of_the_table_is_tried() {
        assert_eq!(format!("{:?}", super::uncovered()), format!("{:?}", std::process::ExitCode::SUCCESS));
    }
}
