// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Das_Boot` (Initial Results: Experiments on Watson BlueGene/L, ANL 2005): boot time against the size of the operating
//! system, on a Linux I/O node and on a compute node.
//!
//! Each size is booted twice a repetition: once at the host's pace, for the processor time of the host, and once with
//! instructions counted, for the time of the guest. Neither includes what other programs of the host take. Repetitions go
//! through all sizes in turn, so that a change of the host's speed meets all sizes alike.

mod compute_node;
mod io_node;
mod program;

use std::time::Instant;

use colony_node::record::NodeRecord;
use colony_sim::stats::mean_ci95;
use serde::{Deserialize, Serialize};

use crate::StudyError;
use crate::format::time;
use crate::results::unix_now_s;

pub use compute_node::ComputeNodes;
pub use io_node::IoNodes;

/// Name of this study in errors.
const WHAT: &str = "booting nodes of different sizes";

/// The sentence of the ANL document on this experiment, word for word.
pub const PUBLISHED: &str = "Das_Boot: We varied the ramdisk of the I/O node kernel and then measured boot times to \
                             understand how OS size affects booting times";

/// The place of that sentence, and what else the document says.
pub const SOURCE: &str = "Initial Results: Experiments on Watson BlueGene/L (ANL 2005), Experiments. The document says \
                          nothing else about this experiment: no size, no boot time, no table and no figure. So no \
                          published value stands beside these measurements.";

/// Sizes, MiB, unless told.
pub const SIZES: [u32; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

/// The largest size, MiB: the guest holds it twice while it boots.
const MOST_MIB: u32 = 1024;
/// The most repetitions.
const MOST_REPEATS: u32 = 1000;

/// A system that is booted, and the part of it that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// Linux, until the I/O daemon starts: files added to its ramdisk.
    IoNode,
    /// The compute node kernel, until `main` of a program: initialized data added to the program, which is pushed.
    ComputeNodeImage,
    /// The same: memory of the node, with the smallest program.
    ComputeNodeMemory,
}

impl System {
    /// All.
    pub const ALL: [Self; 3] = [Self::IoNode, Self::ComputeNodeImage, Self::ComputeNodeMemory];

    /// Its name for a table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::IoNode => "I/O node (Linux), files in the ramdisk",
            Self::ComputeNodeImage => "compute node, data of the pushed program",
            Self::ComputeNodeMemory => "compute node, memory of the node",
        }
    }

    /// Returns `true` if it can have this size: memory is a power of two, 16 MiB at least.
    #[must_use]
    pub const fn can_have(self, mib: u32) -> bool {
        !matches!(self, Self::ComputeNodeMemory) || (mib.is_power_of_two() && mib >= 16)
    }
}

/// The measurement of one boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Boot {
    /// Bytes that were given to the node: ramdisk, or program.
    pub pushed_bytes: u64,
    /// Processor time of the host until the program started, ns.
    pub cpu_ns: u64,
    /// Time of the guest until the program started, ns: instructions, 2 ns each.
    pub guest_ns: u64,
}

/// Parameters of the study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Sizes, MiB, ascending.
    pub sizes_mib: Vec<u32>,
    /// Repetitions of each.
    pub repeat: u32,
}

/// Results of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`Results::SCHEMA`].
    pub schema: String,
    /// Version of Colony that made them.
    pub version: String,
    /// The command that makes them again.
    pub command: String,
    /// Begin of the study, seconds since 1970 (UTC).
    pub started_unix_s: i64,
    /// Duration of the study, seconds.
    pub took_s: f64,
    /// Its parameters.
    pub plan: Plan,
    /// The node it ran on.
    pub node: NodeRecord,
    /// Release of the I/O node's kernel.
    pub kernel: String,
    /// Memory of the I/O node, and of the compute node if it is not what grows, MiB.
    pub memory_mib: [u32; 2],
    /// The published sentence on the experiment.
    pub published: String,
    /// A curve a system.
    pub curves: Vec<Curve>,
}

/// Boot time against size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The system.
    pub system: System,
    /// A row each size.
    pub rows: Vec<Row>,
    /// Processor time of the host as a straight line, by least squares; `None` for a single size.
    pub cpu: Option<Line>,
    /// Time of the guest as a straight line.
    pub guest: Option<Line>,
}

/// Boot time of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The size, MiB.
    pub mib: u32,
    /// Bytes that were given to the node.
    pub pushed_bytes: u64,
    /// Processor time of the host, seconds.
    pub cpu_s: Estimate,
    /// Time of the guest, seconds.
    pub guest_s: Estimate,
}

/// A mean over repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half of its 95 % confidence interval (Student's t); `None` for one repetition.
    pub ci95: Option<f64>,
    /// Each repetition.
    pub values: Vec<f64>,
}

/// A straight line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds at size 0.
    pub at_zero_s: f64,
    /// Seconds that each MiB adds.
    pub per_mib_s: f64,
}

impl Results {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.study.das-boot/1";

    /// The main result in one sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let line = |system: System| -> Option<[f64; 2]> {
            let curve = self.curves.iter().find(|c| c.system == system)?;
            Some([curve.cpu?.per_mib_s * 1e9, curve.guest?.per_mib_s * 1e9])
        };
        match (line(System::IoNode), line(System::ComputeNodeImage)) {
            (Some(linux), Some(node)) => format!(
                "Each MiB in the ramdisk of a Linux I/O node adds {} of processor time and {} of guest time to its boot; each \
                 MiB of a program adds {} and {} on a compute node.",
                time(linux[0]),
                time(linux[1]),
                time(node[0]),
                time(node[1]),
            ),
            _ => "Boot times of one size: give more sizes to see what size costs.".into(),
        }
    }
}

impl Plan {
    /// Refuses what cannot be booted.
    ///
    /// # Errors
    /// [`StudyError::Params`].
    pub fn check(&self) -> Result<(), StudyError> {
        let wrong = |text: String| Err(StudyError::Params(text));
        if self.sizes_mib.is_empty() {
            return wrong("give --sizes at least one size".into());
        }
        if let Some(mib) = self.sizes_mib.iter().find(|&&mib| mib == 0 || mib > MOST_MIB) {
            return wrong(format!("--sizes are 1 to {MOST_MIB} MiB, not {mib}"));
        }
        if self.repeat == 0 || self.repeat > MOST_REPEATS {
            return wrong(format!("--repeat is 1 to {MOST_REPEATS}, not {}", self.repeat));
        }
        Ok(())
    }

    /// The largest size, MiB.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.sizes_mib.iter().copied().max().unwrap_or(1)
    }

    /// Number of boots, both ways counted as one.
    #[must_use]
    pub fn steps(&self) -> u64 {
        let sizes = System::ALL.map(|s| self.sizes_mib.iter().filter(|&&mib| s.can_have(mib)).count());
        sizes.iter().sum::<usize>() as u64 * u64::from(self.repeat)
    }

    /// Boots every size as often as asked for; `step` is called after each.
    ///
    /// # Errors
    /// The first error of `boot`.
    pub fn curves(
        &self,
        boot: &mut dyn FnMut(System, u32) -> Result<Boot, StudyError>,
        step: impl Fn(),
    ) -> Result<Vec<Curve>, StudyError> {
        let mut all = Vec::new();
        for system in System::ALL {
            let sizes: Vec<u32> =
                self.sizes_mib.iter().copied().filter(|&mib| system.can_have(mib)).collect();
            let mut boots = vec![Vec::new(); sizes.len()];
            for _ in 0..self.repeat {
                for (&mib, boots) in sizes.iter().zip(&mut boots) {
                    boots.push(boot(system, mib)?);
                    step();
                }
            }
            if !sizes.is_empty() {
                let rows = sizes.iter().zip(&boots).map(|(&mib, boots)| Row::of(mib, boots)).collect();
                all.push(Curve::of(system, rows));
            }
        }
        Ok(all)
    }

    /// Runs the study on this node; `notice` hears that it waits for other virtual machines of this user to end.
    ///
    /// # Errors
    /// Wrong parameters, nodes that cannot be had here, with what to install, or that did not boot.
    pub fn run(&self, command: &str, notice: fn(&str), step: impl Fn()) -> Result<Results, StudyError> {
        self.check()?;
        let (started_unix_s, began) = (unix_now_s(), Instant::now());
        let node = NodeRecord::now();
        let linux = IoNodes::new(self.largest(), notice)?;
        let compute = ComputeNodes::new(self.largest(), notice)?;
        let mut boot = |system: System, mib: u32| match system {
            System::IoNode => linux.boot(mib),
            System::ComputeNodeImage => compute.boot(mib),
            System::ComputeNodeMemory => compute.boot_with_memory(mib),
        };
        let curves = self.curves(&mut boot, step)?;
        Ok(Results {
            schema: Results::SCHEMA.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: command.into(),
            started_unix_s,
            took_s: began.elapsed().as_secs_f64(),
            plan: self.clone(),
            node,
            kernel: linux.release().into(),
            memory_mib: [linux.memory_mib(), compute.memory_mib()],
            published: PUBLISHED.into(),
            curves,
        })
    }
}

impl Row {
    fn of(mib: u32, boots: &[Boot]) -> Self {
        let seconds = |of: fn(&Boot) -> u64| Estimate::of(boots.iter().map(|b| of(b) as f64 / 1e9).collect());
        Self {
            mib,
            pushed_bytes: boots.first().map_or(0, |b| b.pushed_bytes),
            cpu_s: seconds(|b| b.cpu_ns),
            guest_s: seconds(|b| b.guest_ns),
        }
    }
}

impl Estimate {
    fn of(values: Vec<f64>) -> Self {
        let (mean, ci95) = mean_ci95(&values);
        Self { mean, ci95, values }
    }
}

impl Curve {
    fn of(system: System, rows: Vec<Row>) -> Self {
        let line = |of: fn(&Row) -> &Estimate| {
            Line::through(&rows.iter().map(|r| (f64::from(r.mib), of(r).mean)).collect::<Vec<_>>())
        };
        let (cpu, guest) = (line(|r| &r.cpu_s), line(|r| &r.guest_s));
        Self { system, rows, cpu, guest }
    }
}

impl Line {
    /// The line through points, by least squares; `None` if all have one size.
    #[must_use]
    pub fn through(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
        if points.is_empty() || spread == 0.0 {
            return None;
        }
        let per_mib_s = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
        Some(Self { at_zero_s: y - per_mib_s * x, per_mib_s })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(sizes_mib: &[u32], repeat: u32) -> Plan {
        Plan { sizes_mib: sizes_mib.to_vec(), repeat }
    }

    #[test]
    fn repetitions_go_through_all_sizes_in_turn_and_make_an_interval() {
        let mut booted = Vec::new();
        let mut host = |system: System, mib: u32| {
            booted.push((system, mib));
            let late = if booted.len() > 6 { 2_000_000 } else { 0 };
            let ms = |n: u64| n * 1_000_000;
            Ok(Boot { pushed_bytes: 7, cpu_ns: ms(100 + 10 * u64::from(mib)) + late, guest_ns: ms(50) })
        };
        let plan = plan(&[1, 16, 24], 3);
        assert_eq!(plan.steps(), 3 * (3 + 3 + 1));
        let curves = plan.curves(&mut host, || ()).expect("boots");
        let linux: Vec<u32> = booted.iter().take(6).map(|b| b.1).collect();
        assert_eq!(linux, [1, 16, 24, 1, 16, 24]);
        assert_eq!(booted.len() as u64, plan.steps());
        assert_eq!(curves.iter().map(|c| c.rows.len()).collect::<Vec<_>>(), [3, 3, 1]);
        let first = &curves[0].rows[0];
        assert!(
            (first.cpu_s.mean - 0.110_667).abs() < 1e-6 && first.cpu_s.ci95.is_some_and(|half| half > 0.0)
        );
        assert!(first.guest_s.ci95.is_some_and(|half| half < 1e-12), "{:?}", first.guest_s);
        let line = curves[1].cpu.expect("three sizes");
        assert!((line.per_mib_s - 0.01).abs() < 1e-9 && (line.at_zero_s - 0.102).abs() < 1e-9, "{line:?}");
        assert!(curves[1].guest.expect("three sizes").per_mib_s.abs() < 1e-12);
        assert_eq!(curves[2].cpu, None, "a single size");
    }

    #[test]
    fn impossible_parameters_are_wrong_use() {
        for (wrong, part) in [
            (plan(&[], 1), "at least one size"),
            (plan(&[0], 1), "not 0"),
            (plan(&[1, 4096], 1), "not 4096"),
            (plan(&[1], 0), "--repeat"),
        ] {
            let error = wrong.check().expect_err("impossible");
            assert!(error.is_wrong_use() && error.to_string().contains(part), "{error}");
        }
        plan(&SIZES, 3).check().expect("the default");
    }
}
