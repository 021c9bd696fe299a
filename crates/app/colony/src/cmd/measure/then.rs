// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command that runs when a detour has met the condition of `colony measure --until`.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use colony_measure::{LimitDetour, ThenReport};

/// Runs `command` with `sh -c` and waits for its end. The command's standard output goes to standard error, so that the report
/// alone is on standard output. It has the privileges of this process's user: capabilities of the program's file are not passed on.
pub(super) fn run(command: &str, detour: &LimitDetour, trace: Option<&Path>) -> ThenReport {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", command])
        .stdout(Stdio::from(std::io::stderr()))
        .env("COLONY_CPU", detour.cpu.to_string())
        .env("COLONY_DETOUR_NS", detour.duration_ns.to_string())
        .env("COLONY_DETOUR_START_NS", detour.start_ns.to_string());
    // a value of the caller's environment would be another detour's
    match &detour.source {
        Some(source) => shell.env("COLONY_SOURCE", source.to_string()),
        None => shell.env_remove("COLONY_SOURCE"),
    };
    match trace {
        Some(trace) => shell.env("COLONY_TRACE", trace),
        None => shell.env_remove("COLONY_TRACE"),
    };
    let (code, problem) = match shell.status() {
        Err(e) => (None, Some(format!("could not be started with sh: {e}"))),
        Ok(status) if status.success() => (status.code(), None),
        Ok(status) => (status.code(), Some(ending(status))),
    };
    let error = problem.map(|problem| format!("the command of --then, `{command}`, {problem}"));
    ThenReport { command: command.to_owned(), code, error }
}

fn ending(status: std::process::ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended without an exit code".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detour() -> LimitDetour {
        LimitDetour {
            cpu: 3,
            start_ns: 17,
            after_ns: 0,
            duration_ns: 50_001,
            source: Some("thread:a b".into()),
            source_ns: None,
        }
    }

    #[test]
    fn the_command_knows_the_detour() {
        let test = "[ \"$COLONY_CPU $COLONY_DETOUR_NS $COLONY_DETOUR_START_NS\" = '3 50001 17' ]";
        let known =
            format!("{test} && [ \"$COLONY_SOURCE\" = 'thread:a b' ] && [ -z \"${{COLONY_TRACE+set}}\" ]");
        assert_eq!(run(&known, &detour(), None).error, None);
        let unknown = LimitDetour { source: None, ..detour() };
        let no_source = "[ -z \"${COLONY_SOURCE+set}\" ] && [ $COLONY_TRACE = t.csv ]";
        assert_eq!(run(no_source, &unknown, Some(Path::new("t.csv"))).error, None);
    }

    #[test]
    fn a_command_that_fails_says_how() {
        let failed = run("exit 7", &detour(), None);
        assert_eq!(failed.code, Some(7));
        assert_eq!(failed.error.as_deref(), Some("the command of --then, `exit 7`, exited with code 7"));
        let killed = run("kill -9 $$", &detour(), None);
        assert!(killed.code.is_none() && killed.error.is_some_and(|e| e.contains("signal 9")));
    }
}
