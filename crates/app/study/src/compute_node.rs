// SPDX-License-Identifier: MIT OR Apache-2.0
//! The NAS kernels on a compute node and on a virtual Linux node: one static program, one emulator, time counted in
//! instructions.
//!
//! Both nodes have one CPU, and whatever the host does meanwhile is not seen. The emulator has no cost for a TLB miss or
//! a cache miss: what differs is what the operating systems themselves do.

use std::path::Path;
use std::time::Duration;

use colony_nodes::ciod::{Config, JobSpec};
use colony_nodes::{Accel, Machine, Partition, programs};
use colony_vm::{Exit, Image, Kernel, Vm};
use serde::Deserialize;

use crate::StudyError;
use crate::error::step;

/// Name of this step in errors.
const WHAT: &str = "running the NAS kernels on a compute node and on Linux";
/// Each instruction takes 2 to this power, ns.
pub(crate) const SHIFT: u8 = 1;
/// The longest a run may take on a machine under load.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);

/// Kernels and classes that take half a minute.
pub const SMALL: &[(&str, &str)] =
    &[("is", "S"), ("is", "W"), ("cg", "S"), ("mg", "S"), ("lu", "S"), ("sp", "S"), ("bt", "S"), ("ep", "S")];
/// Kernels of the published class, and the class below it. `lu`, `sp` and `bt` are left out: some 10^11 instructions each in
/// class A, several times those of `ep`.
pub const LARGE: &[(&str, &str)] =
    &[("is", "A"), ("cg", "W"), ("cg", "A"), ("mg", "W"), ("mg", "A"), ("ep", "W"), ("ep", "A")];

/// Memory of either node, for the largest of these: `mg.A` has 433 MiB.
pub(crate) fn memory(kernels: &[(&str, &str)]) -> u64 {
    if kernels.iter().any(|&(_, class)| class == "A") { 512 << 20 } else { 128 << 20 }
}

/// The part of `colony-nas --json` that is needed here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Run {
    /// Set if the result is the official one.
    pub verified: bool,
    /// Time of the timed part, seconds.
    pub seconds: f64,
    /// Millions of the kernel's operations a second.
    pub mops: f64,
    /// Page faults of the timed part.
    pub faults: Faults,
    /// Page faults of the whole run.
    pub faults_whole: Faults,
}

/// Page faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Faults {
    /// Without a device.
    pub minor: u64,
    /// With one.
    pub major: u64,
}

impl Faults {
    /// All.
    #[must_use]
    pub const fn all(self) -> u64 {
        self.minor + self.major
    }
}

impl Run {
    /// Instructions of the timed part: what time is a count of.
    #[must_use]
    pub fn instructions(&self) -> u64 {
        (self.seconds * 1e9 / f64::from(1u32 << SHIFT)).round() as u64
    }
}

/// A kernel on both systems.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// Name of the kernel, as in `colony-nas`.
    pub kernel: String,
    /// `S`, `W` or `A`.
    pub class: String,
    /// On the compute node kernel.
    pub node: Run,
    /// On Linux.
    pub linux: Run,
    /// Release of that Linux.
    pub release: String,
}

/// Runs these kernels and classes on both.
///
/// # Errors
/// [`StudyError::Step`] where nodes cannot be had here, with what to install, or a run failed.
pub fn run(kernels: &[(&str, &str)]) -> Result<Vec<Pair>, StudyError> {
    if let Some(reason) = colony_vm::testing::missing() {
        return Err(step(WHAT, &reason));
    }
    let nas = programs::static_program("colony-nas").map_err(|e| step(WHAT, &e))?;
    let worker = programs::ciod().map_err(|e| step(WHAT, &e))?;
    let machine = Machine {
        cpus: 1,
        memory: memory(kernels),
        torus: Some(0),
        accel: Accel::Counted { shift: SHIFT },
        ..Machine::default()
    };
    let mut partition = Partition::boot(machine, 1, Config::new(worker)).map_err(|e| step(WHAT, &e))?;
    let mut nodes = Vec::new();
    for &(kernel, class) in kernels {
        nodes.push(on_node(WHAT, &mut partition, &nas, kernel, class, None)?);
    }
    drop(partition);
    let (linuxes, release) = on_linux(&nas, kernels)?;
    let pairs = kernels.iter().zip(nodes).zip(linuxes);
    let pair = |((&(kernel, class), node), linux): ((&(&str, &str), Run), Run)| {
        if !(node.verified && linux.verified) {
            return Err(step(WHAT, &format!("{kernel}.{class} has a wrong result")));
        }
        Ok(Pair { kernel: kernel.into(), class: class.into(), node, linux, release: release.clone() })
    };
    pairs.map(pair).collect()
}

/// Runs a kernel of a class on a node of this partition; `what` names the step in errors.
pub(crate) fn on_node(
    what: &str,
    partition: &mut Partition,
    nas: &Path,
    kernel: &str,
    class: &str,
    iterations: Option<u32>,
) -> Result<Run, StudyError> {
    let failed = |reason: &dyn std::fmt::Display| step(what, &format!("{kernel}.{class}: {reason}"));
    let mut spec = JobSpec::new(nas);
    spec.arguments = [kernel, "--class", class, "--json"].map(str::to_owned).to_vec();
    spec.arguments.extend(iterations.iter().flat_map(|n| ["--iterations".to_owned(), n.to_string()]));
    spec.timeout_s = Some(PATIENCE.as_secs_f64());
    let ran = partition.run_captured(spec).map_err(|e| failed(&e))?;
    if !ran.outcome.success() {
        return Err(failed(&format!("{}{}", ran.outcome, ran.stdout)));
    }
    serde_json::from_str(ran.stdout.trim()).map_err(|e| failed(&e))
}

/// The runs, and the kernel's release.
fn on_linux(nas: &Path, kernels: &[(&str, &str)]) -> Result<(Vec<Run>, String), StudyError> {
    const PLACE: &str = "/usr/bin/colony-nas";
    let vm = || {
        let mut image = Image::new();
        image.busybox()?.file(nas, PLACE);
        let kernel = Kernel::find("")?;
        let release = kernel.release().to_owned();
        let vm = Vm::new(&kernel, &image).icount(SHIFT).memory_mib((memory(kernels) >> 20) as u32 + 128);
        Ok::<_, colony_vm::VmError>((vm.timeout(PATIENCE).silence(PATIENCE), release))
    };
    let (vm, release) = vm().map_err(|e| step(WHAT, &e))?;
    let script: String =
        kernels.iter().map(|(kernel, class)| format!("{PLACE} {kernel} --class {class} --json\n")).collect();
    let out = vm.run(&["sh", "-euc", &script]).map_err(|e| step(WHAT, &e))?;
    if out.exit != Exit::Code(0) {
        return Err(step(WHAT, &format!("Linux ended with {:?}: {}", out.exit, out.error_text().trim())));
    }
    let text = out.text();
    let runs: Result<Vec<Run>, _> = text.lines().map(serde_json::from_str).collect();
    match runs {
        Ok(runs) if runs.len() == kernels.len() => Ok((runs, release)),
        Ok(_) => Err(step(WHAT, &"Linux gave too few results")),
        Err(e) => Err(step(WHAT, &e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_and_its_instructions_are_counted() {
        let text = r#"{"schema":"colony.nas/1","verified":true,"iterations":10,"seconds":0.5,"mops":403.9,
            "faults":{"minor":1,"major":0},"faults_whole":{"minor":213,"major":1}}"#;
        let run: Run = serde_json::from_str(text).expect("a run");
        assert_eq!(run.instructions(), 250_000_000);
        assert_eq!((run.faults.all(), run.faults_whole.all()), (1, 214));
    }
}
