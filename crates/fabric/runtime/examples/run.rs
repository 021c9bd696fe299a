// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starts ranks of a program on this host: `run RANKS PROGRAM [ARGUMENT…]`. With `RUN_HOSTS=HOST,…` they are started by
//! `ssh`, with `RUN_SLURM=THIS-HOST` by `srun`, with `RUN_MPI=1` by `mpirun`. `RUN_RESTARTS=N` replaces ranks that die, on `RUN_SPARES=HOST,…` if their hosts are lost, also those that
//! are silent for `RUN_TIMEOUT` seconds. `colony launch` has options for that.

use std::process::ExitCode;

use colony_runtime::launch::Launch;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let ranks = words.next().and_then(|w| w.to_str()?.parse().ok());
    let (Some(ranks), Some(program)) = (ranks, words.next()) else {
        eprintln!("error: run RANKS PROGRAM [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let given = |name: &str| std::env::var(name).ok();
    let list = |name: &str| -> Vec<String> {
        given(name).iter().flat_map(|hosts| hosts.split(',').map(str::to_owned)).collect()
    };
    let hosts = list("RUN_HOSTS");
    let (slurm, arguments) = (given("RUN_SLURM").is_some(), words.collect());
    let this_host = given("RUN_SLURM").or_else(|| hosts.first().cloned());
    let restarts = given("RUN_RESTARTS").and_then(|n| n.parse().ok()).unwrap_or(0);
    let timeout = given("RUN_TIMEOUT").and_then(|n| n.parse().ok()).map(std::time::Duration::from_secs);
    let spares = list("RUN_SPARES");
    let mpi = given("RUN_MPI").is_some();
    let launch =
        Launch { ranks, hosts, spares, this_host, slurm, mpi, restarts, timeout, program, arguments };
    match launch.run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
