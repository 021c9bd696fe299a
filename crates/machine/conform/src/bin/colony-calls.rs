// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times system calls, one by one, and prints how long they take as JSON: the same program on the compute node kernel and
//! on Linux.
//!
//! ```text
//! colony-calls FOLDER [SAMPLES]      FOLDER: where files are written; better in memory than on a disk
//! ```

use std::arch::x86_64::_rdtsc;
use std::ffi::CString;
use std::process::ExitCode;

use colony_fship::calls::number as n;
use colony_fship::message::own;
use serde::Serialize;

/// The report, as it is printed.
#[derive(Serialize)]
struct Report {
    schema: &'static str,
    /// Time stamp counter, Hz.
    tsc_hz: f64,
    calls: Vec<Timed>,
}

/// Times of one call, ns.
#[derive(Serialize)]
struct Timed {
    name: String,
    samples: usize,
    /// Bytes that a call moves.
    bytes: u64,
    min_ns: f64,
    p50_ns: f64,
    p90_ns: f64,
    p99_ns: f64,
    max_ns: f64,
}

fn call(number: u32, args: [u64; 4]) -> i64 {
    // SAFETY: numbers, and memory of this program that outlives the call.
    unsafe { libc::syscall(i64::from(number), args[0], args[1], args[2], args[3]) }
}

/// Reads the counter.
fn now() -> u64 {
    // SAFETY: every x86-64 has it.
    unsafe { _rdtsc() }
}

fn clock_ns() -> f64 {
    let mut time: [u64; 2] = [0; 2];
    call(n::clock_gettime, [1, time.as_mut_ptr() as u64, 0, 0]);
    time[0] as f64 * 1e9 + time[1] as f64
}

/// Counter ticks a second, over 50 ms.
fn hz() -> f64 {
    let (ns, ticks) = (clock_ns(), now());
    while clock_ns() - ns < 5e7 {}
    (now() - ticks) as f64 / (clock_ns() - ns) * 1e9
}

fn timed(
    name: &str,
    bytes: u64,
    samples: usize,
    hz: f64,
    mut f: impl FnMut() -> i64,
) -> Result<Timed, String> {
    for _ in 0..samples / 10 + 1 {
        let result = f();
        if result < 0 {
            return Err(format!("{name}: {}", std::io::Error::last_os_error()));
        }
    }
    let mut all: Vec<u64> = Vec::with_capacity(samples);
    for _ in 0..samples {
        let start = now();
        f();
        all.push(now() - start);
    }
    all.sort_unstable();
    let at = |share: f64| all[((samples - 1) as f64 * share) as usize] as f64 / hz * 1e9;
    Ok(Timed {
        name: name.to_owned(),
        samples,
        bytes,
        min_ns: at(0.0),
        p50_ns: at(0.5),
        p90_ns: at(0.9),
        p99_ns: at(0.99),
        max_ns: at(1.0),
    })
}

fn run(folder: &str, samples: usize) -> Result<Report, String> {
    let hz = hz();
    let path = CString::new(format!("{folder}/colony-calls.data")).map_err(|e| e.to_string())?;
    let name = path.as_ptr() as u64;
    let fd = call(n::open, [name, (libc::O_RDWR | libc::O_CREAT) as u64, 0o600, 0]);
    let fd = u64::try_from(fd).map_err(|_| format!("{folder}: {}", std::io::Error::last_os_error()))?;
    let mut calls = Vec::new();
    let mut time = [0u64; 2];
    let mut stat = [0u64; 18];
    calls.push(timed("getpid", 0, samples, hz, || call(n::getpid, [0; 4]))?);
    calls.push(timed("clock_gettime", 0, samples, hz, || {
        call(n::clock_gettime, [1, time.as_mut_ptr() as u64, 0, 0])
    })?);
    // what only a compute node has, so elsewhere it is left out
    if let Ok(nop) = timed("nop, shipped", 0, samples, hz, || call(own::NOP, [0; 4])) {
        calls.push(nop);
    }
    calls.push(timed("umask", 0, samples, hz, || call(n::umask, [0o22, 0, 0, 0]))?);
    calls.push(timed("fstat", 0, samples, hz, || call(n::fstat, [fd, stat.as_mut_ptr() as u64, 0, 0]))?);
    calls.push(timed("open, close", 0, samples, hz, || {
        let fd = call(n::open, [name, libc::O_RDONLY as u64, 0, 0]);
        if fd < 0 { fd } else { call(n::close, [fd as u64, 0, 0, 0]) }
    })?);
    let data = vec![0x5au8; 1 << 20];
    for (word, bytes) in
        [("1 B", 1u64), ("4 KiB", 4 << 10), ("64 KiB", 64 << 10), ("256 KiB", 256 << 10), ("1 MiB", 1 << 20)]
    {
        let few = samples.min((64 << 20) / bytes as usize).max(20);
        let write = timed(&format!("pwrite64 {word}"), bytes, few, hz, || {
            call(n::pwrite64, [fd, data.as_ptr() as u64, bytes, 0])
        })?;
        calls.push(write);
    }
    let mut data = data;
    for (word, bytes) in [("4 KiB", 4u64 << 10), ("256 KiB", 256 << 10)] {
        let few = samples.min((64 << 20) / bytes as usize).max(20);
        let read = timed(&format!("pread64 {word}"), bytes, few, hz, || {
            call(n::pread64, [fd, data.as_mut_ptr() as u64, bytes, 0])
        })?;
        calls.push(read);
    }
    call(n::close, [fd, 0, 0, 0]);
    call(n::unlink, [name, 0, 0, 0]);
    Ok(Report { schema: "colony.calls/1", tsc_hz: hz, calls })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let samples = args.get(1).map_or(Ok(10_000), |s| s.parse::<usize>());
    let (Some(folder), Ok(samples @ 1..=10_000_000)) = (args.first(), samples) else {
        eprintln!("usage: colony-calls FOLDER [SAMPLES]");
        return ExitCode::from(2);
    };
    match run(folder, samples) {
        Ok(report) => match serde_json::to_string(&report) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
