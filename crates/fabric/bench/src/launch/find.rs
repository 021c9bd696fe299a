// SPDX-License-Identifier: MIT OR Apache-2.0
//! Search for the program, for launchers, and for CPUs of different cores.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use colony_node::NodeError;
use colony_node::cpu::CpuSet;
use colony_node::topology::Topology;

use crate::BenchError;

/// Name of the program.
const BENCH: &str = "colony-bench";

/// The program: beside the running executable (or a folder above, where tests run), else
/// `$COLONY_BENCH`, else on the path.
pub(super) fn bench(path: &OsStr) -> Result<PathBuf, BenchError> {
    let beside = std::env::current_exe().ok();
    bench_in(beside.as_deref(), std::env::var_os("COLONY_BENCH").as_deref(), path)
}

fn bench_in(exe: Option<&Path>, named: Option<&OsStr>, path: &OsStr) -> Result<PathBuf, BenchError> {
    // cargo puts test programs into `deps`, one folder below
    let folders = exe.into_iter().flat_map(|e| e.ancestors().skip(1).take(2));
    let beside: Vec<PathBuf> = folders.map(|f| f.join(BENCH)).collect();
    let named = named.filter(|n| !n.is_empty()).map(PathBuf::from);
    let mut looked_at: Vec<String> = beside.iter().map(|p| p.display().to_string()).collect();
    looked_at.push(named.as_ref().map_or("$COLONY_BENCH (not set)".into(), |n| n.display().to_string()));
    looked_at.push("$PATH".into());
    beside
        .into_iter()
        .chain(named)
        .find(|p| is_program(p))
        .or_else(|| on_path(BENCH, path))
        .ok_or(BenchError::NoProgram { looked_at })
}

/// The first executable file `name` on `path`.
pub(super) fn on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|p| is_program(p))
}

pub(super) fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// `cpus` with one of each core first: two ranks on one core would disturb each other.
///
/// # Errors
/// As [`Topology::threads_of_core`].
pub(super) fn cores_first(cpus: &CpuSet) -> Result<Vec<usize>, NodeError> {
    let topology = Topology::of_this_node();
    let (mut cores, mut rest) = (Vec::new(), Vec::new());
    for cpu in cpus.iter() {
        let is_first = topology.threads_of_core(cpu)?.and(cpus).first() == Some(cpu);
        if is_first { cores.push(cpu) } else { rest.push(cpu) }
    }
    Ok([cores, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(path: &Path, mode: u32) {
        std::fs::write(path, "#!/bin/sh\n").expect("writable");
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn the_program_beside_the_executable_comes_first_then_the_named_one_then_the_path() {
        let dir = tempfile::tempdir().expect("temp dir");
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).expect("new");
            folder
        };
        let (bin, other, on_path) = (folder("bin"), folder("other"), folder("path"));
        let exe = bin.join("colony");
        let named = other.join("mine");
        let find = || bench_in(Some(&exe), Some(named.as_os_str()), on_path.as_os_str());
        let error = find().expect_err("nothing there").to_string();
        assert!(error.contains("bin/colony-bench") && error.contains("--features mpi"), "{error}");
        program(&on_path.join(BENCH), 0o644);
        assert!(find().is_err(), "a file that cannot be run is no program");
        program(&on_path.join(BENCH), 0o755);
        assert_eq!(find().expect("on the path"), on_path.join(BENCH));
        program(&named, 0o755);
        assert_eq!(find().expect("named"), named);
        program(&bin.join(BENCH), 0o755);
        assert_eq!(find().expect("beside"), bin.join(BENCH));
    }

    #[test]
    fn every_cpu_is_in_the_order_once() {
        let usable = colony_node::cpu::usable().expect("linux");
        let order = cores_first(&usable).expect("linux");
        assert_eq!(order.into_iter().collect::<CpuSet>(), usable);
    }
}
