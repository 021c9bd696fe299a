// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command that runs when a detour or a latency has met the condition of `colony measure --until`.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colony_measure::{LimitDetour, Quantity, ThenReport};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The interval at which the command's end and signals are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Variables with the length of a detour and with its begin.
const DETOUR_VARIABLES: [&str; 2] = ["COLONY_DETOUR_NS", "COLONY_DETOUR_START_NS"];
/// Variables with a wake-up latency and with the instant of the timer.
const LATENCY_VARIABLES: [&str; 2] = ["COLONY_LATENCY_NS", "COLONY_TIMER_NS"];

/// Runs `command` with `sh -c` and waits for its end. A signal that sets `stop` ends the command, a second one kills it. The command's
/// standard output goes to standard error, so that the report alone is on standard output. It has the privileges of this process's user: capabilities of the program's file are not passed on.
pub(super) fn run(
    command: &str,
    quantity: Quantity,
    detour: &LimitDetour,
    trace: Option<&Path>,
    stop: &AtomicBool,
) -> ThenReport {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdout(Stdio::from(std::io::stderr()));
    // a value of the caller's environment would be another detour's
    for name in [DETOUR_VARIABLES, LATENCY_VARIABLES].concat() {
        shell.env_remove(name);
    }
    let [length, start] = match quantity {
        Quantity::Detour => DETOUR_VARIABLES,
        Quantity::Latency => LATENCY_VARIABLES,
    };
    shell
        .env("COLONY_CPU", detour.cpu.to_string())
        .env(length, detour.duration_ns.to_string())
        .env(start, detour.start_ns.to_string());
    match &detour.source {
        Some(source) => shell.env("COLONY_SOURCE", source.to_string()),
        None => shell.env_remove("COLONY_SOURCE"),
    };
    match trace {
        Some(trace) => shell.env("COLONY_TRACE", trace),
        None => shell.env_remove("COLONY_TRACE"),
    };
    let (code, problem) = match shell.spawn().and_then(|child| wait(child, stop)) {
        Err(e) => (None, Some(format!("could not be run with sh: {e}"))),
        Ok(status) if status.success() => (status.code(), None),
        Ok(status) => (status.code(), Some(ending(status))),
    };
    let shown = shortened(command);
    let error = problem.map(|problem| format!("the command of --then, `{shown}`, {problem}"));
    ThenReport { command: command.to_owned(), code, error }
}

/// The first line of a command, as far as a message has room for it.
fn shortened(command: &str) -> String {
    const MOST: usize = 60;
    let line = command.trim().lines().next().unwrap_or_default();
    let short: String = line.chars().take(MOST).collect();
    if short.len() < command.trim().len() { format!("{short}…") } else { short }
}

/// Waits for the end of the command, and passes signals on: the first as SIGTERM, a further one as SIGKILL.
fn wait(mut child: Child, stop: &AtomicBool) -> std::io::Result<ExitStatus> {
    let mut signal = Signal::SIGTERM;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // taken back, so that the next signal is passed on, too, instead of ending this process
        if stop.swap(false, Ordering::Relaxed) {
            // a child that was not waited for keeps its process id
            kill(Pid::from_raw(child.id().cast_signed()), signal)?;
            signal = Signal::SIGKILL;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended without an exit code".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &str, detour: &LimitDetour, trace: Option<&Path>) -> ThenReport {
        super::run(command, Quantity::Detour, detour, trace, &AtomicBool::new(false))
    }

    #[test]
    fn a_signal_ends_the_command() {
        let stopped =
            super::run("exec sleep 3600", Quantity::Detour, &detour(), None, &AtomicBool::new(true));
        assert!(stopped.error.is_some_and(|e| e.contains("was ended by signal 15")));
        // one that ignores the first is killed by the second
        let stop = AtomicBool::new(false);
        let folder = tempfile::tempdir().expect("temp dir");
        let ready = folder.path().join("ready");
        let deaf = format!("trap '' TERM; : > {}; while :; do sleep 0.01; done", ready.display());
        let killed = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !ready.exists() {
                    std::thread::yield_now();
                }
                for _ in 0..2 {
                    stop.store(true, Ordering::Relaxed);
                    while stop.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                }
            });
            super::run(&deaf, Quantity::Detour, &detour(), None, &stop)
        });
        assert!(killed.error.is_some_and(|e| e.contains("was ended by signal 9")));
    }

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
    fn the_command_knows_the_latency_and_no_detour() {
        let known = "[ \"$COLONY_LATENCY_NS $COLONY_TIMER_NS ${COLONY_DETOUR_NS-no}\" = '50001 17 no' ]";
        let report = super::run(known, Quantity::Latency, &detour(), None, &AtomicBool::new(false));
        assert_eq!(report.error, None);
    }

    #[test]
    fn a_command_that_fails_says_how() {
        let failed = run("exit 7", &detour(), None);
        assert_eq!(failed.code, Some(7));
        assert_eq!(failed.error.as_deref(), Some("the command of --then, `exit 7`, exited with code 7"));
        assert_eq!(shortened("exit 7\nrm x"), "exit 7…");
        assert_eq!(shortened(&"x".repeat(5000)), format!("{}…", "x".repeat(60)));
        let killed = run("kill -9 $$", &detour(), None);
        assert!(killed.code.is_none() && killed.error.is_some_and(|e| e.contains("signal 9")));
    }
}
