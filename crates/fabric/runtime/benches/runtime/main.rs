// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runtime's targets, measured beside plain MPI in C and charm4py: `runtime [--repetitions N] [--json FILE]`.
//!
//! Started by `./x bench runtime`, which builds the examples. This program compiles the C programs with `$MPICC`
//! (default: `mpicc`), and starts itself again for each measurement: see [`programs`].

mod programs;
mod table;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use table::{Row, Target};

/// Cells of an edge of the cube, blocks of an edge, iterations.
const STENCIL: [&str; 3] = ["256", "4", "20"];
/// Series of round trips in one run of a program, and round trips of a series.
const SERIES: [&str; 2] = ["50", "2000"];
/// Bytes of a message of our round trip over MPI: its frame with one parcel.
const MESSAGE_BYTES: &str = "75";

type Values = Result<Vec<f64>, String>;

/// The programs and how they are started.
struct Bench {
    examples: PathBuf,
    /// The folder of the programs that this one compiles.
    built: PathBuf,
    /// The folder of the programs that we compare with.
    compare: PathBuf,
    /// The output of the first stencil, which all others have to agree with.
    sums: Option<[f64; 2]>,
}

impl Bench {
    fn new() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let profile = program.ancestors().nth(2).ok_or("this program is in no folder of cargo's")?;
        let built = profile.join("compare");
        std::fs::create_dir_all(&built).map_err(|e| format!("creating {}: {e}", built.display()))?;
        let compare = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/runtime/compare");
        Ok(Self { examples: profile.join("examples"), built, compare, sums: None })
    }

    /// Compiles a C program with the wrapper compiler of MPI.
    fn compile(&self, source: &str, to: &str, flags: &[&str]) -> Result<(), String> {
        let compiler = std::env::var("MPICC").unwrap_or_else(|_| "mpicc".into());
        let mut command = Command::new(&compiler);
        command.args(flags).arg("-o").arg(self.built.join(to)).arg(self.compare.join(source));
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("{compiler} {source}: {status}")),
            Err(e) => Err(format!("{compiler}: {e}")),
        }
    }

    /// Runs a program on two processes that MPI has bound to one core each.
    fn over_mpi(&self, program: &Path) -> Command {
        let mut command = Command::new("mpirun");
        command.args(["--bind-to", "core", "-n", "2"]).arg(program);
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command
    }

    /// Runs a program on two processes that are connected by sockets, each on the CPU of its rank's number.
    fn over_sockets(&self, program: &Path) -> Command {
        let mut command = Command::new(self.examples.join("run"));
        let pinned = r#"exec taskset -c "$COLONY_JOB_RANK" "$0" "$@""#;
        command.args(["2", "sh", "-c", pinned]).arg(program);
        command
    }

    /// Starts a stencil, checks its sums, and returns milliseconds an iteration.
    fn stencil(&mut self, mut command: Command, sizes: &[&str]) -> Values {
        let (output, errors) = finish(command.args(sizes))?;
        let number = |text: &str, before: &str| {
            let (_, rest) = text.split_once(before)?;
            rest.split([',', ' ', '\n']).next()?.parse::<f64>().ok()
        };
        let sums = number(&output, "all cells: ").zip(number(&output, "squares: "));
        let sums = sums.map(|(sum, squares)| [sum, squares]).ok_or("a stencil printed no sums")?;
        let expected = *self.sums.get_or_insert(sums);
        // each program adds in another order
        if sums.iter().zip(expected).any(|(sum, other)| (sum - other).abs() > 1e-11 * other) {
            return Err(format!("stencils differ: their sums are {sums:?} and {expected:?}"));
        }
        let time = errors.split_once(" ms an iteration").map_or("", |(before, _)| before);
        let time = time.rsplit('\n').next().and_then(|t| t.parse().ok());
        time.map(|time| vec![time]).ok_or_else(|| "a stencil printed no time".to_owned())
    }
}

/// Runs a command to its end. Returns its output and its errors.
fn finish(command: &mut Command) -> Result<(String, String), String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    if output.status.success() { Ok((out, errors)) } else { Err(format!("{name}: {errors}")) }
}

/// Runs a command that prints numbers, one a line, in a unit of which `units` make one of the table's.
fn numbers(command: &mut Command, units: f64) -> Values {
    let (output, errors) = finish(command)?;
    let values: Vec<f64> = output.lines().filter_map(|l| l.parse::<f64>().ok()).map(|v| v / units).collect();
    if values.is_empty() { Err(format!("{command:?} printed no number: {errors}")) } else { Ok(values) }
}

/// The interpreter of the environment in which `./x` has installed charm4py and colony-runtime, if it has `module`.
fn python(module: &str) -> Option<PathBuf> {
    let interpreter = PathBuf::from(std::env::var_os("COMPARE_PYTHON")?);
    let known = Command::new(&interpreter).args(["-c", &format!("import {module}")]).output();
    known.is_ok_and(|k| k.status.success()).then_some(interpreter)
}

fn measure(repetitions: u32) -> Result<Vec<Row>, String> {
    let mut bench = Bench::new()?;
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    bench.compile("roundtrip.c", "roundtrip", &["-O3"])?;
    bench.compile("stencil.c", "stencil", &["-O3"])?;
    bench.compile("stencil.c", "stencil-native", &["-O3", "-march=native"])?;
    let [stencil, native] = ["stencil", "stencil-native"].map(|p| bench.examples.join(p));
    let [c_trip, c_stencil, c_native] =
        ["roundtrip", "stencil", "stencil-native"].map(|p| bench.built.join(p));
    let (charm4py, colony) = (python("charm4py"), python("colony_runtime"));

    let mut call = Row::new("entry call in one PE", "ns", Target::AtMost(100.0));
    let mut memory = ["1", "10"]
        .map(|millions| Row::new(&format!("memory of one of {millions} M"), "B", Target::AtMost(1000.0)));
    let mut trip = Row::new("round trip, MPI", "us", Target::AtMost(1.2));
    let mut one_way = Row::new("  half of it", "us", Target::None);
    let mut socket_trip = Row::new("round trip, sockets", "us", Target::None);
    let mut thread_trip = Row::new("round trip, threads", "us", Target::None);
    let mut python_trip = Row::new("round trip, Python", "us", Target::None);
    let mut cubes = ["stencil, MPI", "stencil, MPI, native", "stencil, sockets"]
        .map(|name| Row::new(name, "ms", Target::TimesPlain(1.15)));
    for repetition in 1..=repetitions {
        eprintln!("repetition {repetition} of {repetitions}");
        let trips = |mut command: Command, mode: &str| {
            numbers(command.args(mode.split_whitespace()).args(SERIES), 1000.0)
        };
        // an entry call is half of a round trip
        call.ours.extend(numbers(Command::new(&this).arg("trip").arg("1").args(SERIES), 2.0)?);
        let ours = trips(bench.over_mpi(&this), "trip 1")?;
        let plain = trips(bench.over_mpi(&c_trip), MESSAGE_BYTES)?;
        one_way.ours.extend(ours.iter().map(|t| t / 2.0));
        one_way.plain.extend(plain.iter().map(|t| t / 2.0));
        trip.ours.extend(ours);
        trip.plain.extend(plain);
        socket_trip.ours.extend(trips(bench.over_sockets(&this), "trip 1")?);
        thread_trip.ours.extend(trips(Command::new(&this), "trip 2")?);
        let plain = bench.stencil(bench.over_mpi(&c_stencil), &[STENCIL[0], STENCIL[2]])?;
        cubes[0].ours.extend(bench.stencil(bench.over_mpi(&stencil), &STENCIL)?);
        cubes[2].ours.extend(bench.stencil(bench.over_sockets(&stencil), &STENCIL)?);
        cubes[0].plain.extend(&plain);
        cubes[2].plain.extend(&plain);
        cubes[1].plain.extend(bench.stencil(bench.over_mpi(&c_native), &[STENCIL[0], STENCIL[2]])?);
        cubes[1].ours.extend(bench.stencil(bench.over_mpi(&native), &STENCIL)?);
        if let Some(python) = &charm4py {
            let mut command = Command::new(python);
            command.args(["-m", "charmrun.start", "+p2"]);
            command.arg(bench.compare.join("roundtrip_charm4py.py")).args(SERIES).arg("+setcpuaffinity");
            python_trip.charm4py.extend(numbers(&mut command, 1000.0)?);
        }
        if let Some(python) = &colony {
            let script = bench.compare.join("roundtrip_colony.py");
            python_trip.ours.extend(numbers(Command::new(python).arg(script).args(SERIES), 1000.0)?);
        }
    }
    for (row, objects) in memory.iter_mut().zip(["1000000", "10000000"]) {
        row.ours = numbers(Command::new(&this).args(["memory", objects]), 1.0)?;
    }
    if charm4py.is_some() {
        trip.charm4py.clone_from(&python_trip.charm4py);
    }
    let [million, millions] = memory;
    let [cube, native, by_sockets] = cubes;
    Ok(vec![
        call,
        million,
        millions,
        trip,
        one_way,
        thread_trip,
        socket_trip,
        python_trip,
        cube,
        native,
        by_sockets,
    ])
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|w| w != "--bench").collect();
    let numbers: Vec<u32> = words.iter().skip(1).filter_map(|w| w.parse().ok()).collect();
    match (words.first().map(String::as_str), numbers.as_slice()) {
        (Some("trip"), &[threads, series, rounds]) => return programs::round_trips(threads, series, rounds),
        (Some("memory"), &[objects]) => return programs::memory(objects),
        _ => {}
    }
    let after = |name: &str| words.iter().position(|w| w == name).and_then(|at| words.get(at + 1));
    let repetitions = after("--repetitions").and_then(|n| n.parse().ok()).unwrap_or(5);
    let written = measure(repetitions).and_then(|rows| {
        print!("{}", table::text(&rows, charm4py_state()));
        let Some(file) = after("--json") else { return Ok(()) };
        std::fs::write(file, table::json(&rows)).map_err(|e| format!("writing {file}: {e}"))
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn charm4py_state() -> &'static str {
    if python("charm4py").is_some() { "" } else { "not installed" }
}
