// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulator's targets, measured here: `./x bench sim [--loggopsim DIRECTORY]`. `--patterns DIRECTORY` only
//! compares results with LogGOPSim, schedule by schedule.
//!
//! Each row runs in a process of its own, on one core, best of three in CPU seconds. Memory is what a run
//! adds to what was there before it (for the event engine: beyond the schedule).

#[path = "patterns/compare.rs"]
mod compare;
mod patterns;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use colony_sim::event::{Progress, run};
use colony_sim::goal::{self, Schedule};
use colony_sim::machine::Machine;
use colony_sim::node::Node;
use colony_sim::program::{Algorithm, Operation, Program, Step};
use colony_sim::rng::Key;
use colony_sim::scheduler::{Fair, Preempt};
use colony_sim::simulate::{Simulation, simulate};
use colony_sim::source::{Model, Phase, Source};

type Failed = Box<dyn std::error::Error>;

#[derive(Clone, Copy, PartialEq)]
enum Engine {
    Level,
    Event,
}

/// The noise of the nodes.
#[derive(Clone, Copy, PartialEq)]
enum Noise {
    Quiet,
    /// A daemon.
    OneSource,
    /// A tick each millisecond and that daemon.
    TwoSources,
    /// The noise daemon of the Colony report at 2 %, begun on all nodes at once, beside the job in turns.
    Leibniz,
}

struct Row {
    name: &'static str,
    engine: Engine,
    ranks: u32,
    noise: Noise,
    program: fn() -> Program,
    /// The stored figure of LogGOPSim, built with -O3.
    stored: &'static str,
    target: Target,
}

/// The target of a row; 0: no target.
#[derive(Clone, Copy)]
struct Target {
    seconds: f64,
    bytes_a_rank: u64,
    /// Peak resident memory of the process.
    peak: u64,
    events_a_second: f64,
}

const NONE: Target = Target { seconds: 0.0, bytes_a_rank: 0, peak: 0, events_a_second: 0.0 };
const EVENTS: Target = Target { events_a_second: 5e6, ..NONE };
const EVENTS_SMALL: Target = Target { bytes_a_rank: 70, ..EVENTS };

fn barriers(iterations: u64) -> Program {
    let step = Step::by(Operation::Barrier, Algorithm::Dissemination, 8);
    Program::new("barrier", iterations, vec![step])
}

fn one(operation: Operation, algorithm: Algorithm, bytes: u64) -> Program {
    Program::new("collective", 1, vec![Step::by(operation, algorithm, bytes)])
}

const ROWS: [Row; 12] = {
    use Engine::{Event, Level};
    use Noise::{Leibniz, OneSource, Quiet, TwoSources};
    [
        Row {
            name: "barrier",
            engine: Level,
            ranks: 1 << 16,
            noise: Quiet,
            program: || barriers(1),
            stored: "2.31 s, 456 MB",
            target: Target { seconds: 0.0046, bytes_a_rank: 32, ..NONE },
        },
        Row {
            name: "barrier",
            engine: Level,
            ranks: 1 << 20,
            noise: Quiet,
            program: || barriers(1),
            stored: "82.5 s, 7.7 GB",
            target: Target { seconds: 0.2, ..NONE },
        },
        Row {
            name: "barrier",
            engine: Level,
            ranks: 1 << 20,
            noise: TwoSources,
            program: || barriers(1),
            stored: "",
            target: Target { seconds: 0.2, ..NONE },
        },
        Row {
            name: "barrier",
            engine: Level,
            ranks: 1 << 24,
            noise: OneSource,
            program: || barriers(1),
            stored: "",
            target: Target { peak: 1_000_000_000, ..NONE },
        },
        Row {
            name: "10,000 barriers",
            engine: Level,
            ranks: 1 << 16,
            noise: TwoSources,
            program: || barriers(10_000),
            stored: "impractical",
            target: Target { seconds: 90.0, ..NONE },
        },
        Row {
            name: "500,000 hardware allreduces, bgl",
            engine: Level,
            ranks: 1 << 13,
            noise: Leibniz,
            program: || Program::collective(Operation::Allreduce, 32, 500_000),
            stored: "",
            target: NONE,
        },
        Row {
            name: "barrier",
            engine: Event,
            ranks: 1 << 16,
            noise: Quiet,
            program: || barriers(1),
            stored: "1.4 M events/s, 7 KB/rank",
            target: EVENTS_SMALL,
        },
        Row {
            name: "barrier",
            engine: Event,
            ranks: 1 << 16,
            noise: TwoSources,
            program: || barriers(1),
            stored: "",
            target: EVENTS,
        },
        Row {
            name: "barrier",
            engine: Event,
            ranks: 1 << 20,
            noise: Quiet,
            program: || barriers(1),
            stored: "0.76 M events/s, 7 KB/rank",
            target: EVENTS_SMALL,
        },
        Row {
            name: "barrier",
            engine: Event,
            ranks: 1 << 20,
            noise: TwoSources,
            program: || barriers(1),
            stored: "",
            target: EVENTS,
        },
        Row {
            name: "allreduce, Rabenseifner",
            engine: Event,
            ranks: 1 << 16,
            noise: Quiet,
            program: || one(Operation::Allreduce, Algorithm::Rabenseifner, 1 << 16),
            stored: "",
            target: EVENTS_SMALL,
        },
        Row {
            name: "alltoall, linear",
            engine: Event,
            ranks: 1 << 10,
            noise: Quiet,
            program: || one(Operation::Alltoall, Algorithm::Linear, 8),
            stored: "killed after 300 s",
            target: Target { seconds: 2.0, ..NONE },
        },
    ]
};

impl Noise {
    fn node(self) -> Node {
        let tick = || Source::new("tick", Model::periodic(1_000_000, 3_000));
        let daemon = || Source::new("daemon", Model::leibniz(20_000, 10_000_000));
        match self {
            Self::Quiet => Node::quiet(),
            Self::OneSource => Node::new(vec![daemon()], Preempt),
            Self::TwoSources => Node::new(vec![tick(), daemon()], Preempt),
            Self::Leibniz => {
                let daemon = Model::leibniz(20_000_000, 980_000_000);
                let at_boot = Phase::Together { spread_ns: 0 };
                Node::new(vec![Source::new("daemon", daemon).phase(at_boot)], Fair::LINUX_2_6_16)
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Quiet => "none",
            Self::OneSource => "one source",
            Self::TwoSources => "two sources",
            Self::Leibniz => "2 % daemon, together at boot, fair",
        }
    }
}

impl Row {
    /// LogGOPSim's, but for the one row about a machine with collectives in hardware.
    fn machine(&self) -> Result<Machine, Failed> {
        Ok(if self.noise == Noise::Leibniz { Machine::named("bgl")? } else { Machine::loggopsim() })
    }
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["row", number] => child(&ROWS[number.parse::<usize>()?]),
        [] => table(None),
        ["--loggopsim", directory] => {
            table(Some(Path::new(directory)))?;
            compare::table(Path::new(directory))
        }
        ["--patterns", directory] => compare::table(Path::new(directory)),
        _ => Err("give nothing, or --loggopsim (with --patterns: only its patterns) and the directory with LogGOPSim".into()),
    }
}

/// The figures that a row's process prints: CPU seconds, bytes a rank, peak memory, events, and the program's time.
struct Measured {
    seconds: f64,
    bytes_a_rank: u64,
    peak: u64,
    events: u64,
    total_ns: u64,
}

fn child(row: &Row) -> Result<(), Failed> {
    let (program, machine) = ((row.program)(), row.machine()?);
    let node = row.noise.node();
    let key = Key::new(1).part(0);
    let schedule = match row.engine {
        Engine::Event => Some(goal::lower(&program, &machine, row.ranks, key)?),
        Engine::Level => None,
    };
    let before = memory("VmRSS:")?;
    std::fs::write("/proc/self/clear_refs", "5")?;
    let mut best = Measured { seconds: f64::INFINITY, bytes_a_rank: 0, peak: 0, events: 0, total_ns: 0 };
    for _ in 0..if program.iterations > 100 { 1 } else { 3 } {
        let begin = cpu_seconds("self")?;
        let (total_ns, events) = once(row, schedule.as_ref(), &program, &machine, &node, key)?;
        best.seconds = best.seconds.min(cpu_seconds("self")? - begin);
        if best.events == 0 {
            best.peak = memory("VmHWM:")?;
            best.bytes_a_rank = best.peak.saturating_sub(before) / u64::from(row.ranks);
        }
        (best.total_ns, best.events) = (total_ns, events);
    }
    println!("{} {} {} {} {}", best.seconds, best.bytes_a_rank, best.peak, best.events, best.total_ns);
    Ok(())
}

fn once(
    row: &Row,
    schedule: Option<&Schedule>,
    program: &Program,
    machine: &Machine,
    node: &Node,
    key: Key,
) -> Result<(u64, u64), Failed> {
    const BEGIN_NS: u64 = 0;
    if let Some(schedule) = schedule {
        let network = machine.network(row.ranks)?;
        let outcome = run(schedule, &network, node, Progress::ProgramOrder, key, BEGIN_NS)?;
        return Ok((outcome.total_ns(), outcome.events));
    }
    let outcome = simulate(&Simulation {
        program: program.clone(),
        machine: machine.clone(),
        node: node.clone(),
        nodes: row.ranks,
        begin_ns: Some(BEGIN_NS),
        repetitions: 1,
        seed: 1,
    })?;
    Ok((outcome.totals_ns[0], 1))
}

fn memory(of: &str) -> Result<u64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix(of)).ok_or("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

/// CPU time of a process's first thread: rows run on one.
fn cpu_seconds(process: &str) -> Result<f64, Failed> {
    // the kernel counts a running thread's time at its ticks, and when it gives way
    std::thread::yield_now();
    let stat = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    Ok(stat.split(' ').next().unwrap_or("0").parse::<f64>()? / 1e9)
}

fn table(loggopsim: Option<&Path>) -> Result<(), Failed> {
    println!(
        "| engine | program | ranks | noise | here | the target | | LogGOPSim, stored | LogGOPSim, here |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (number, row) in ROWS.iter().enumerate() {
        // an address space of a gigabyte or two, and one core
        let mut process = Command::new(std::env::current_exe()?);
        let output = process
            .args(["row", &number.to_string()])
            .env("RAYON_NUM_THREADS", "1")
            .stderr(Stdio::inherit())
            .output()?;
        let line = String::from_utf8(output.stdout)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [seconds, bytes, peak, events, total] = words[..] else { return Err("a row failed".into()) };
        let m = Measured {
            seconds: seconds.parse()?,
            bytes_a_rank: bytes.parse()?,
            peak: peak.parse()?,
            events: events.parse()?,
            total_ns: total.parse()?,
        };
        let side_by_side = match loggopsim {
            Some(directory) if row.engine == Engine::Event && row.noise == Noise::Quiet => {
                theirs(row, directory, &m)?
            }
            _ => String::new(),
        };
        let engine = if row.engine == Engine::Level { "level" } else { "event" };
        let Row { name, ranks, target, stored, .. } = row;
        println!(
            "| {engine} | {name} | {ranks} | {} | {} | {} | {} | {stored} | {side_by_side} |",
            row.noise.name(),
            ours(&m, row),
            target.text(),
            target.verdict(&m)
        );
    }
    Ok(())
}

impl Target {
    fn text(&self) -> String {
        let parts = [
            (self.seconds > 0.0).then(|| time(self.seconds)),
            (self.events_a_second > 0.0).then(|| format!("{} M events/s", self.events_a_second / 1e6)),
            (self.bytes_a_rank > 0).then(|| format!("{} B/rank", self.bytes_a_rank)),
            (self.peak > 0).then(|| format!("{} MB", self.peak / 1_000_000)),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn verdict(&self, m: &Measured) -> &'static str {
        let met = [
            (self.seconds > 0.0).then_some(m.seconds <= self.seconds),
            (self.events_a_second > 0.0).then_some(m.events as f64 / m.seconds >= self.events_a_second),
            (self.bytes_a_rank > 0).then_some(m.bytes_a_rank <= self.bytes_a_rank),
            (self.peak > 0).then_some(m.peak < self.peak),
        ];
        match met.into_iter().flatten().reduce(|a, b| a && b) {
            Some(true) => "met",
            Some(false) => "missed",
            None => "",
        }
    }
}

fn ours(m: &Measured, row: &Row) -> String {
    let rate = match row.engine {
        Engine::Event => format!(", {:.1} M events/s", m.events as f64 / m.seconds / 1e6),
        Engine::Level => String::new(),
    };
    let peak = match row.target.peak {
        0 => String::new(),
        _ => format!(", {} MB in all", m.peak / 1_000_000),
    };
    format!("{}{rate}, {} B/rank{peak}", time(m.seconds), m.bytes_a_rank)
}

fn time(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.2} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Runs LogGOPSim on the same schedule, for at most five minutes.
fn theirs(row: &Row, directory: &Path, ours: &Measured) -> Result<String, Failed> {
    let file: PathBuf = std::env::temp_dir().join(format!("colony-targets-{}.bin", std::process::id()));
    let schedule = goal::lower(&(row.program)(), &Machine::loggopsim(), row.ranks, Key::new(1).part(0))?;
    goal::write_binary(&schedule, std::io::BufWriter::new(std::fs::File::create(&file)?))?;
    drop(schedule);
    let process = Command::new(directory.join("LogGOPSim"))
        .args(["-b", "-f"])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()?;
    let found = watch(process, ours);
    std::fs::remove_file(&file)?;
    found
}

fn watch(mut process: Child, ours: &Measured) -> Result<String, Failed> {
    let begin = Instant::now();
    let (mut peak, mut seconds) = (0, 0.0);
    while process.try_wait()?.is_none() {
        let id = process.id().to_string();
        seconds = cpu_seconds(&id).unwrap_or(seconds);
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let high =
            status.lines().find_map(|l| l.strip_prefix("VmHWM:")).and_then(|l| l.split_whitespace().next());
        peak = high.and_then(|kb| kb.parse::<u64>().ok()).unwrap_or(peak);
        if begin.elapsed() > Duration::from_secs(300) {
            process.kill()?;
            process.wait()?;
            return Ok(format!("killed after 300 s, {} MB", peak >> 10));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let said = String::from_utf8_lossy(&process.wait_with_output()?.stdout).into_owned();
    let end = said.lines().find_map(|l| l.strip_prefix("Maximum finishing time at host "));
    let same = end.is_some_and(|l| l.contains(&format!(": {} (", ours.total_ns)));
    let rate = ours.events as f64 / seconds / 1e6;
    let verdict = if same { "same time" } else { "another time" };
    Ok(format!("{}, {rate:.2} M events/s, {} MB, {verdict}", time(seconds), peak >> 10))
}
