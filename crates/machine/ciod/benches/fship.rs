// SPDX-License-Identifier: MIT OR Apache-2.0
//! Function shipping, measured with a synthetic node: how long a call takes there and back, and how fast data goes.
//!
//! `cargo bench -p colony-ciod --features testing --bench fship`. Both sides need a CPU of their own; on a machine
//! that does other work, the minimum and the median tell more than the rest.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use colony_ciod::testing::{self, FREE, SyntheticNode};
use colony_ciod::{Ciod, Config, Job, JobSpec, NodeLink, Streams};
use colony_fship::calls::number as nr;
use colony_fship::message::own;

const MIB: u64 = 1 << 20;

/// A node in a job that has the file `/dev/shm/…` open as descriptor 3.
struct Bench {
    node: SyntheticNode,
    _job: Job,
    _ciod: Ciod,
    _link: NodeLink,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(config: Config, polled: bool) -> Self {
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.expect("folder");
        let program = folder.path().join("program");
        std::fs::write(&program, testing::program()).expect("written");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("mode");
        let ciod = Ciod::new(config).expect("daemon");
        let link = ciod.attach(0, 64 * MIB).expect("node");
        let mut spec = JobSpec::new(program);
        spec.directory = folder.path().into();
        let null = || std::fs::File::options().read(true).write(true).open("/dev/null").expect("null").into();
        let streams = Streams { stdin: null(), stdout: null(), stderr: null() };
        let job = ciod.launch(spec, &[0], streams).expect("launched");
        let mut node = SyntheticNode::new(&link).expect("node");
        node.polled = polled;
        node.next_job();
        let at = node.string(0, FREE, "data");
        let flags = (libc::O_CREAT | libc::O_RDWR) as u64;
        assert_eq!(node.call(0, nr::open, [at, flags, 0o600, 0, 0, 0]), 3);
        Self { node, _job: job, _ciod: ciod, _link: link, folder }
    }

    /// Times of `count` calls, sorted.
    fn times(&mut self, count: usize, call: u32, args: [u64; 6]) -> Vec<Duration> {
        for _ in 0..count / 10 + 1 {
            self.node.call(0, call, args);
        }
        let once = |_| {
            let start = Instant::now();
            assert!(self.node.call(0, call, args) >= 0);
            start.elapsed()
        };
        sorted((0..count).map(once).collect())
    }
}

fn sorted(mut all: Vec<Duration>) -> Vec<Duration> {
    all.sort_unstable();
    all
}

fn row(what: &str, times: &[Duration], bytes: u64) {
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / 1e3;
    let rate = if bytes == 0 { String::new() } else { format!("{:8.2}", bytes as f64 / at(0.5) / 1e3) };
    println!("{what:<34} {:9.2} {:9.2} {:9.2} {:9.2}  {rate}", at(0.0), at(0.5), at(0.9), at(0.99));
}

fn main() {
    let worker = env!("CARGO_BIN_EXE_ciod");
    println!("{:<34} {:>9} {:>9} {:>9} {:>9}  {:>8}", "µs", "least", "p50", "p90", "p99", "GB/s p50");
    let kinds = [
        ("polled", Config::new(worker).polled(), true),
        ("short spin", Config::new(worker), false),
        ("blocking", Config::new(worker).blocking(), false),
    ];
    for (name, config, polled) in kinds {
        let mut bench = Bench::new(config, polled);
        row(&format!("null call, {name}"), &bench.times(20_000, own::NOP, [0; 6]), 0);
        if polled {
            for size in [4096, 65_536, 262_144, MIB] {
                let times = bench.times(1000, nr::pwrite64, [3, FREE, size, 0, 0, 0]);
                row(&format!("write {} KiB, {name}", size / 1024), &times, size);
                let times = bench.times(1000, nr::pread64, [3, FREE, size, 0, 0, 0]);
                row(&format!("read {} KiB, {name}", size / 1024), &times, size);
            }
        }
    }
    local();
}

/// The same writes by this process itself, and by io_uring, for comparison.
fn local() {
    let bench = Bench::new(Config::new(env!("CARGO_BIN_EXE_ciod")), false);
    let file = std::fs::File::create(bench.folder.path().join("local")).expect("file");
    for size in [4096, 65_536, 262_144, MIB] {
        let data = vec![1u8; size as usize];
        let once = |_| {
            let start = Instant::now();
            std::os::unix::fs::FileExt::write_all_at(&file, &data, 0).expect("written");
            start.elapsed()
        };
        row(
            &format!("write {} KiB, without shipping", size / 1024),
            &sorted((0..1000).map(once).collect()),
            size,
        );
        if let Some(times) = uring(&file, &data) {
            row(&format!("write {} KiB, io_uring", size / 1024), &times, size);
        }
    }
}

/// Writes by io_uring, one at a time; none where the system has no io_uring.
fn uring(file: &std::fs::File, data: &[u8]) -> Option<Vec<Duration>> {
    use std::os::fd::AsRawFd as _;
    let mut ring = io_uring::IoUring::new(8).ok()?;
    let fd = io_uring::types::Fd(file.as_raw_fd());
    let once = |_| {
        let start = Instant::now();
        let write = io_uring::opcode::Write::new(fd, data.as_ptr(), data.len() as u32).offset(0).build();
        // SAFETY: the data lives until the completion, which is waited for below
        unsafe { ring.submission().push(&write) }.ok()?;
        ring.submit_and_wait(1).ok()?;
        let result = ring.completion().next()?.result();
        (result == data.len() as i32).then(|| start.elapsed())
    };
    (0..1000).map(once).collect::<Option<Vec<_>>>().map(sorted)
}
