// SPDX-License-Identifier: MIT OR Apache-2.0
//! One job on three systems: a compute node, Linux, and Linux with coordinated scheduling, the last two beside no noise, a little
//! and much of it. One static program, one emulator, time counted in instructions: load of the host is not seen.

use std::path::Path;
use std::time::Duration;

use colony_client::Backend;
use colony_nodes::programs;
use colony_sched::run::RunReport;

use crate::StudyError;
use crate::compute_node;
use crate::error::step;
use crate::virtual_node::{self, run_script};

/// Name of this step in errors.
pub const WHAT: &str = "running a job on three systems";
/// The longest the node may take on a machine under load; it takes some minutes of one CPU.
const PATIENCE: Duration = Duration::from_secs(3600);
/// The job, as in [`SCRIPT`]: kernels of the NAS benchmarks. Its run lasts several of the noise's pauses.
const JOB: [(&str, &str); 2] = [("ep", "S"); 2];

/// Levels of the noise, percent of its pause, and what the report calls them.
pub const LEVELS: [u32; 3] = [0, 2, 21];

/// The node's programs. Noise that has been calibrated runs for ever: it is killed.
const SCRIPT: &str = r#"
export COLONY_FAILURE=/tmp/failure.json
mkdir /tmp/bin; ln -s "$(which colony)" /tmp/bin/noise
run() {
    out=/tmp/$1.json; shift
    colony run --cpus 0 --period 200ms --duty 80% --out $out "$@" -- /usr/bin/colony-nas ep ep --class S --json
}
for level in 0 2 21; do
    if [ $level != 0 ]; then
        /tmp/bin/noise inject leibniz --noise $level% --cpus 0 --duration 1h > /dev/null & noise=$!
        sleep 3
    fi
    run linux-$level --backend none
    run coordinated-$level --backend sched-ext
    [ $level = 0 ] || { kill $noise; wait $noise || true; }
done
"#;

/// The job on Linux beside some noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The noise, percent of its pause.
    pub level: u32,
    /// Without coordination.
    pub unmodified: RunReport,
    /// With windows kept in the kernel.
    pub coordinated: RunReport,
}

/// Measurements on all three.
#[derive(Clone, Debug, PartialEq)]
pub struct Runs {
    /// Release of the Linux kernel.
    pub release: String,
    /// Time of the job on a compute node, nanoseconds.
    pub node_ns: u64,
    /// Time of the job on Linux without noise, as the job itself measures it, nanoseconds.
    pub linux_ns: u64,
    /// On Linux, by level of noise: [`LEVELS`].
    pub cases: Vec<Case>,
}

/// Runs the job on all three.
///
/// # Errors
/// [`StudyError::Step`] where nodes cannot be had here, with what to install, or a run failed.
pub fn run(colony: &Path) -> Result<Runs, StudyError> {
    let pairs = compute_node::run(&JOB)?;
    let sum = |of: fn(&compute_node::Pair) -> &compute_node::Run| {
        (pairs.iter().map(|pair| of(pair).seconds).sum::<f64>() * 1e9) as u64
    };
    let (node_ns, linux_ns) = (sum(|pair| &pair.node), sum(|pair| &pair.linux));
    let nas = programs::static_program("colony-nas").map_err(|e| step(WHAT, &e))?;
    let vm = virtual_node::node_with(WHAT, colony, &[(&nas, "/usr/bin/colony-nas")])?;
    let vm = vm.icount(1).timeout(PATIENCE).silence(PATIENCE);
    let names = |level| [format!("linux-{level}"), format!("coordinated-{level}")];
    let all: Vec<String> = LEVELS.into_iter().flat_map(names).collect();
    let out = run_script(WHAT, vm, SCRIPT, all.iter().map(String::as_str))?;
    let case = |level| {
        let [linux, coordinated] = names(level);
        Ok(Case {
            level,
            unmodified: virtual_node::report(WHAT, &out, &linux, Backend::None)?,
            coordinated: virtual_node::report(WHAT, &out, &coordinated, Backend::SchedExt)?,
        })
    };
    let cases = LEVELS.into_iter().map(case).collect::<Result<_, StudyError>>()?;
    Ok(Runs { release: out.kernel, node_ns, linux_ns, cases })
}
