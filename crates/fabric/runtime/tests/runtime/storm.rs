// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kill storms: ranks are killed, stopped or evacuated at random times, and results stay the same. `./x storm` runs many.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use colony_runtime::ranks::ranks;
use colony_testing::Random;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::example;

/// A program with a result that does not depend on timing.
#[derive(Clone, Copy, Debug)]
struct Program {
    words: &'static [&'static str],
    /// The lines of the output that are the result.
    result: &'static str,
    /// One PE a process: messages can be logged.
    logs: bool,
}

/// Options of checkpoints. The logs are long enough, or too short for the time between two checkpoints.
const CHECKPOINTS: [&str; 4] = ["", ":log", ":log:every=3", ":log=100K:every=4"];

const PROGRAMS: [Program; 4] = [
    Program { words: &["medley", "200"], result: "medley", logs: true },
    Program { words: &["stencil", "32", "4", "2000", "20"], result: "sum of all cells", logs: true },
    Program {
        words: &["lb_test", "--iterations", "240", "--period", "4", "--bytes", "50000", "--work", "1000"],
        result: "64 objects, checksum",
        logs: true,
    },
    Program {
        words: &["lb_test", "--iterations", "40", "--period", "4", "--bytes", "50000", "--threads", "2"],
        result: "64 objects, checksum",
        logs: false,
    },
];

const RANKS: u32 = 3;
/// The longest run: a run that hangs does not end by itself.
const LONGEST: Duration = Duration::from_secs(120);

/// A signal to a rank, after some time.
#[derive(Clone, Copy, Debug)]
struct Strike {
    after: Duration,
    rank: u32,
    signal: Signal,
}

/// The network between the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Sockets,
    #[cfg(feature = "mpi")]
    Mpi,
}

impl Network {
    fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Sockets => &[],
            #[cfg(feature = "mpi")]
            Self::Mpi => &crate::common::MPI,
        }
    }
}

/// The outcome of a run.
#[derive(Debug)]
struct Run {
    /// The lines of the result.
    result: Vec<String>,
    code: Option<i32>,
    errors: String,
    hit: usize,
    time: Duration,
    /// The times from the last death that was found to the agreement of all ranks on how the job goes on.
    recoveries: Vec<Duration>,
}

/// The times from each last line about a death to the next about a recovery.
fn recoveries(lines: &[(Instant, String)]) -> Vec<Duration> {
    let (mut found, mut times) = (None, Vec::new());
    for (at, line) in lines {
        let is_death = line.contains("was killed by signal") && line.contains("; restart");
        let is_recovery = ["all ranks go", "and the others go on", "the program begins anew"]
            .iter()
            .any(|w| line.contains(w));
        if is_death {
            found = Some(*at);
        } else if is_recovery && let Some(since) = found.take() {
            times.push(at.duration_since(since));
        }
    }
    times
}

impl Program {
    fn run(&self, network: Network, checkpoints: &str, strikes: &[Strike]) -> Run {
        let mut command = Command::new(example("run"));
        command.arg(RANKS.to_string()).arg(example(self.words[0])).args(&self.words[1..]);
        command
            .env("COLONY_CHECKPOINT", format!("memory:same-machine{checkpoints}"))
            .env("RUN_RESTARTS", "30")
            .envs(network.variables().iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let began = Instant::now();
        let mut launcher = command.spawn().expect("the launcher starts");
        let id = launcher.id();
        let errors = BufReader::new(launcher.stderr.take().expect("a pipe"));
        let errors = std::thread::spawn(move || {
            let lines = errors.split(b'\n').map_while(Result::ok);
            lines
                .map(|line| (Instant::now(), String::from_utf8_lossy(&line).into_owned()))
                .collect::<Vec<_>>()
        });
        let (done, is_done) = std::sync::mpsc::channel();
        let output = std::thread::spawn(move || {
            let output = launcher.wait_with_output().expect("the launcher ends");
            let _ = done.send(());
            output
        });
        let mut hit = 0;
        for strike in strikes {
            let left = strike.after.saturating_sub(began.elapsed());
            if is_done.recv_timeout(left).is_ok() {
                break;
            }
            let struck =
                ranks().into_iter().filter(|one| one.launcher == id as i32 && one.rank == strike.rank);
            hit += struck.filter(|one| kill(Pid::from_raw(one.pid), strike.signal).is_ok()).count();
        }
        let hangs = !output.is_finished()
            && is_done.recv_timeout(LONGEST) == Err(std::sync::mpsc::RecvTimeoutError::Timeout);
        if hangs {
            let _ = kill(Pid::from_raw(id as i32), Signal::SIGKILL);
        }
        let output = output.join().expect("no panic");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let lines = errors.join().expect("no panic");
        let recoveries = recoveries(&lines);
        let errors: String = lines.into_iter().map(|(_, line)| line + "\n").collect();
        assert!(!hangs, "{self:?} {checkpoints} hangs after {strikes:?}: {errors}");
        let lines = text(&output.stdout);
        let result = lines.lines().filter(|line| line.starts_with(self.result)).map(str::to_owned).collect();
        Run { result, code: output.status.code(), errors, hit, time: began.elapsed(), recoveries }
    }
}

/// Runs programs until so many ranks have been struck. Returns the number of runs.
fn storm(network: Network, seed: u64, strikes: usize) -> usize {
    let expected = PROGRAMS.map(|program| program.run(network, "", &[]));
    for run in &expected {
        assert_eq!((run.code, run.result.len()), (Some(0), 1), "{run:?}");
    }
    let mut random = Random::new(seed);
    let (mut hit, mut runs, mut after_end, mut alone, mut all) = (0, 0, 0, 0, 0);
    let mut recoveries: Vec<Duration> = Vec::new();
    while hit < strikes {
        let which = random.below(PROGRAMS.len() as u64) as usize;
        let time = expected[which].time;
        let mut plan: Vec<Strike> = (0..=random.below(3))
            .map(|_| Strike {
                after: random.up_to(time),
                rank: random.below(u64::from(RANKS)) as u32,
                signal: match random.below(8) {
                    0 => Signal::SIGSTOP,
                    // evacuates or readmits the rank, or kills it if it has just started
                    1 => Signal::SIGUSR1,
                    2 => Signal::SIGUSR2,
                    _ => Signal::SIGKILL,
                },
            })
            .collect();
        plan.sort_by_key(|strike| strike.after);
        let options = CHECKPOINTS[random.below(CHECKPOINTS.len() as u64) as usize];
        let options = if PROGRAMS[which].logs { options } else { "" };
        let run = PROGRAMS[which].run(network, options, &plan);
        hit += run.hit;
        runs += 1;
        // a rank that is killed while it leaves a program that has ended is not replaced
        if run.code == Some(137) && run.errors.contains("the program ha") {
            after_end += 1;
            continue;
        }
        let words = PROGRAMS[which].words;
        let shown = format!("seed {seed}, run {runs}: {words:?} {options} after {plan:?}: {run:?}");
        assert!(!run.errors.contains("does not run again"), "{shown}");
        alone += run.errors.matches("and the others go on").count();
        all += run.errors.matches("all begin again").count();
        recoveries.extend(&run.recoveries);
        assert_eq!((run.code, &run.result), (Some(0), &expected[which].result), "{shown}");
    }
    recoveries.sort();
    let [median, longest] = [recoveries.len() / 2, recoveries.len().saturating_sub(1)]
        .map(|i| recoveries.get(i).copied().unwrap_or_default());
    println!(
        "seed {seed}: {runs} runs, {hit} ranks struck, {after_end} of them after the end, {alone} ran again alone, {all} jobs \
         began again; all results equal; {} recoveries, median {median:?}, longest {longest:?}",
        recoveries.len()
    );
    runs
}

#[test]
fn ranks_killed_at_random_times_change_no_result() {
    storm(Network::Sockets, 1, 12);
}

/// The objects of `medley` have long tables of pairs, so the runtime asks about idle ones as they resume.
#[test]
fn a_rank_that_runs_again_does_not_send_twice_what_it_sends_as_its_objects_resume() {
    let program = PROGRAMS[0];
    let expected = program.run(Network::Sockets, ":log", &[]);
    for (rank, part) in (0..RANKS).flat_map(|rank| [(rank, 2), (rank, 3)]) {
        let strike = Strike { after: expected.time / part, rank, signal: Signal::SIGKILL };
        let run = program.run(Network::Sockets, ":log", &[strike]);
        assert_eq!((run.code, &run.result), (Some(0), &expected.result), "{strike:?}: {run:?}");
    }
}

#[cfg(feature = "mpi")]
#[test]
fn ranks_of_mpi_killed_at_random_times_change_no_result() {
    storm(Network::Mpi, 1, 8);
}

#[test]
#[ignore = "takes half an hour: ./x storm"]
fn a_long_storm() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    storm(Network::Sockets, number("STORM_SEED", 1) as u64, number("STORM_KILLS", 1000));
}

#[cfg(feature = "mpi")]
#[test]
#[ignore = "takes minutes: ./x storm"]
fn a_long_storm_over_mpi() {
    let number =
        |name: &str, default| std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default);
    storm(Network::Mpi, number("STORM_SEED", 1) as u64, number("STORM_KILLS", 1000));
}
