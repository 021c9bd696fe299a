// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks as processes that join by their environment, as under a launcher.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use colony_torus::{Dims, Error, Op, Torus, Window};

const ROLE: &str = "COLONY_TORUS_TEST_ROLE";

/// Not a test of its own: what the processes of the others do.
#[test]
fn helper_that_is_a_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "node" {
        map_as_a_kernel();
    }
    let torus = match Torus::join() {
        // the others ended while this one started
        Err(Error::Aborted { .. }) => std::process::exit(40),
        joined => joined.expect("a window"),
    };
    let outcome = match role.as_str() {
        "work" => work(&torus),
        "node" => {
            assert!(torus.is_on_node());
            work(&torus)
        }
        "endless" => {
            std::iter::repeat_with(|| torus.world().barrier()).find(Result::is_err).unwrap_or(Ok(()))
        }
        other => panic!("no role {other}"),
    };
    match outcome {
        Ok(()) => std::process::exit(0),
        Err(Error::Aborted { .. } | Error::Left { .. }) => std::process::exit(40),
        Err(Error::Timeout { .. }) => std::process::exit(41),
        Err(_) => std::process::exit(42),
    }
}

/// Maps the window before the library knows of it, and says where, as a compute node's kernel does.
fn map_as_a_kernel() {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap};
    let path = std::env::var("COLONY_TORUS").expect("a file");
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("there");
    let bytes = file.metadata().expect("there").len() as usize;
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at a place of the system's choice.
    let at =
        unsafe { mmap(None, bytes.try_into().expect("not empty"), access, MapFlags::MAP_SHARED, &file, 0) };
    let place = format!("{:x}:{bytes:x}", at.expect("mapped").as_ptr().expose_provenance());
    // SAFETY: the only other thread of this process waits for this one, in the test harness.
    unsafe { std::env::set_var("COLONY_TORUS", place) };
}

fn work(torus: &Torus) -> Result<(), Error> {
    let (rank, size) = (torus.rank(), torus.size());
    for turn in 0..200u64 {
        let mut sum = [rank as u64 + turn];
        torus.world().allreduce(&mut sum, Op::Sum)?;
        assert_eq!(sum[0], size as u64 * turn + (size * (size - 1) / 2) as u64);
        let mut got = vec![0; 3000];
        let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
        torus.exchange(to, &[rank as u8; 3000], from, &mut got)?;
        assert_eq!(got, [from as u8; 3000]);
    }
    torus.world().barrier()
}

struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ranks {
    fn start(path: &Path, dims: Dims, role: &str, timeout: &str) -> Self {
        let one = |rank: usize| {
            Command::new(std::env::current_exe().expect("running"))
                .args(["--exact", "processes::helper_that_is_a_rank"])
                .env(ROLE, role)
                .env("COLONY_TORUS", path)
                .env("COLONY_RANK", rank.to_string())
                .env("COLONY_SIZE", dims.ranks().to_string())
                .env("COLONY_TORUS_DIMS", dims.to_string())
                .env("COLONY_TORUS_TIMEOUT", timeout)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("this program")
        };
        Self((0..dims.ranks()).map(one).collect())
    }

    /// The exit code of each process, `None` for a signal.
    fn ends(&mut self) -> Vec<Option<i32>> {
        let start = Instant::now();
        let mut end = |child: &mut Child| loop {
            match child.try_wait().expect("ours") {
                Some(status) => return status.code(),
                None => assert!(start.elapsed() < Duration::from_secs(120), "a rank hangs"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        self.0.iter_mut().map(&mut end).collect()
    }
}

fn prepared(dims: [usize; 3]) -> (tempfile::TempDir, std::path::PathBuf, Dims, Window) {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, dims) = (dir.path().join("window"), Dims::new(dims).expect("a torus"));
    let window = Window::create(&path, dims).expect("made");
    (dir, path, dims, window)
}

#[test]
fn processes_work_together() {
    for dims in [[2, 1, 1], [3, 1, 1], [2, 2, 2]] {
        let (_dir, path, dims, _window) = prepared(dims);
        let mut ranks = Ranks::start(&path, dims, "work", "60");
        assert!(ranks.ends().iter().all(|end| *end == Some(0)), "{dims}");
    }
}

#[test]
fn a_window_that_is_mapped_already_serves_as_well() {
    let (_dir, path, dims, _window) = prepared([3, 1, 1]);
    let mut ranks = Ranks::start(&path, dims, "node", "60");
    assert_eq!(ranks.ends(), [Some(0); 3]);
}

#[test]
fn when_one_is_killed_the_launcher_ends_the_others() {
    let (_dir, path, dims, window) = prepared([4, 1, 1]);
    let mut ranks = Ranks::start(&path, dims, "endless", "600");
    std::thread::sleep(Duration::from_millis(200));
    ranks.0[2].kill().expect("ours");
    window.abort();
    let ends = ranks.ends();
    assert_eq!(ends, [Some(40), Some(40), None, Some(40)]);
}

#[test]
fn when_one_is_killed_and_nobody_tells_the_others_end_by_the_timeout() {
    let _cpus = crate::CPUS.write().unwrap_or_else(PoisonError::into_inner);
    let (_dir, path, dims, _window) = prepared([3, 1, 1]);
    let mut ranks = Ranks::start(&path, dims, "endless", "1");
    std::thread::sleep(Duration::from_millis(200));
    ranks.0[1].kill().expect("ours");
    let ends = ranks.ends();
    assert_eq!(ends[1], None);
    assert!([ends[0], ends[2]].iter().all(|e| matches!(e, Some(40 | 41))), "{ends:?}");
    assert!(ends.contains(&Some(41)), "one noticed: {ends:?}");
}

#[test]
fn a_wrong_environment_is_refused() {
    // variables of this process are left alone: the library reads those of a child
    let (_dir, path, _, _window) = prepared([2, 1, 1]);
    let refused_at = |place: &Path, rank: &str, size: &str, dims: &str| {
        let mut child = Command::new(std::env::current_exe().expect("running"))
            .args(["--exact", "processes::helper_that_is_a_rank", "--nocapture"])
            .env(ROLE, "work")
            .env("COLONY_TORUS", place)
            .env("COLONY_RANK", rank)
            .env("COLONY_SIZE", size)
            .env("COLONY_TORUS_DIMS", dims)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program");
        let mut said = String::new();
        std::io::Read::read_to_string(child.stderr.as_mut().expect("piped"), &mut said).expect("text");
        assert!(!child.wait().expect("ours").success());
        said
    };
    let refused = |rank: &str, size: &str, dims: &str| refused_at(&path, rank, size, dims);
    assert!(refused("0", "3", "2,1,1").contains("COLONY_SIZE"));
    assert!(refused("0", "2", "1,2,1").contains("COLONY_TORUS_DIMS"));
    assert!(refused("7", "2", "2,1,1").contains("Rank"));
    // memory that is not there
    assert!(refused_at(Path::new("10000:200000"), "0", "2", "2,1,1").contains("COLONY_TORUS"));
}
