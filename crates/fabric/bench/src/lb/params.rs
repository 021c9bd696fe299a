// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is compared: programs, strategies, objects.

use colony_balance::strategy::Strategies;
use serde::Serialize;

use super::error::LbError;
use super::kernel::Setup;

/// The name that stands for no load balancing.
pub const NONE: &str = "none";

/// The most PEs of a run.
const MOST_PES: u64 = 4096;
/// The most objects along a side of the mesh.
const WIDEST: u32 = 1024;
/// The largest state of an object, in bytes.
const LARGEST: u64 = 1 << 30;
/// The most iterations: records of all are kept in memory.
const MOST_ITERATIONS: u32 = 100_000;
/// The most runs of one strategy.
const MOST_REPEATS: u32 = 1000;
/// The most work of an object, in arithmetic operations.
const MOST_WORK: u64 = 1_000_000_000;

pub use super::kernel::Program;

/// A comparison of strategies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Params {
    /// Programs to run.
    pub programs: Vec<Program>,
    /// Strategies, with options; [`NONE`] stands for no load balancing.
    pub strategies: Vec<String>,
    /// Processes.
    pub processes: u32,
    /// PEs of each process, as threads.
    pub threads: u32,
    /// Objects along each side of the mesh.
    pub mesh: u32,
    /// Bytes of an object's state.
    pub bytes: u64,
    /// Arithmetic operations of the lightest object of the Lb test, in an iteration.
    pub work: u64,
    /// Iterations of a run.
    pub iterations: u32,
    /// Iterations from one load balancing to the next.
    pub period: u32,
    /// Runs of each program with each strategy.
    pub repeat: u32,
    /// Seed of the objects' loads and values, and of strategies that draw random numbers.
    pub seed: u64,
}

/// Checks that a number is in a range.
fn within(option: &str, value: u64, least: u64, most: u64) -> Result<(), LbError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(LbError::Params(format!("{option} is {value}; choose {least} to {most}")))
}

impl Params {
    /// PEs of a run.
    #[must_use]
    pub fn pes(&self) -> u64 {
        u64::from(self.processes) * u64::from(self.threads)
    }

    /// Objects of a run.
    #[must_use]
    pub fn objects(&self) -> u64 {
        u64::from(self.mesh) * u64::from(self.mesh)
    }

    /// Checks everything that can be known before a process is started.
    pub(super) fn check(&self) -> Result<(), LbError> {
        within("-n", self.processes.into(), 1, MOST_PES)?;
        within("--threads", self.threads.into(), 1, MOST_PES)?;
        within("--mesh", self.mesh.into(), 1, WIDEST.into())?;
        within("--bytes", self.bytes, 8, LARGEST)?;
        within("--work", self.work, 0, MOST_WORK)?;
        within("--iterations", self.iterations.into(), 1, MOST_ITERATIONS.into())?;
        within("--period", self.period.into(), 1, MOST_ITERATIONS.into())?;
        within("--repeat", self.repeat.into(), 1, MOST_REPEATS.into())?;
        let (pes, objects) = (self.pes(), self.objects());
        if pes > MOST_PES {
            return Err(LbError::Params(format!(
                "-n {} and --threads {} make {pes} PEs; at most {MOST_PES} are possible",
                self.processes, self.threads
            )));
        }
        if objects < pes {
            return Err(LbError::Params(format!(
                "--mesh {} makes {objects} object(s) for {pes} PEs; each PE needs at least one",
                self.mesh
            )));
        }
        if self.programs.is_empty() || self.strategies.is_empty() {
            return Err(LbError::Params("there is nothing to run; name a program and a strategy".into()));
        }
        self.strategies.iter().filter(|s| *s != NONE).try_for_each(|s| Strategies::parse(s).map(drop))?;
        self.check_memory(memory_available())
    }

    /// Checks that the objects fit into this many bytes of memory, if that is known. An object that migrates is there
    /// twice for a while, and most may migrate at once.
    fn check_memory(&self, available: Option<u64>) -> Result<(), LbError> {
        let needed = self.objects().saturating_mul(self.bytes).saturating_mul(2);
        match available {
            Some(available) if needed > available => Err(LbError::Params(format!(
                "{} objects of {} bytes need {} MiB of memory while they migrate, and {} MiB are available; choose \
                 a smaller --mesh or smaller --bytes",
                self.objects(),
                self.bytes,
                needed >> 20,
                available >> 20
            ))),
            _ => Ok(()),
        }
    }

    /// A run of a program with a strategy.
    pub(super) fn setup(&self, program: Program, strategy: &str) -> Setup {
        let draws = ["random", "gossip"].contains(&strategy.split(':').next().unwrap_or_default());
        let strategy = if draws && !strategy.contains(":seed=") {
            format!("{strategy}:seed={}", self.seed)
        } else {
            strategy.to_owned()
        };
        Setup {
            program,
            strategy,
            threads: self.threads,
            mesh: self.mesh,
            bytes: self.bytes,
            work: self.work,
            iterations: self.iterations,
            period: self.period,
            seed: self.seed,
        }
    }
}

/// Bytes of memory that new programs can have, if the system says so.
fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::lb) fn small() -> Params {
        Params {
            programs: vec![Program::LbTest],
            strategies: vec![NONE.into(), "greedy".into()],
            processes: 2,
            threads: 1,
            mesh: 4,
            bytes: 512,
            work: 10,
            iterations: 6,
            period: 2,
            repeat: 1,
            seed: 1,
        }
    }

    #[test]
    fn parameters_that_make_no_run_are_refused_with_the_possible_ones() {
        let wrong = |change: fn(&mut Params), part: &str| {
            let mut params = small();
            change(&mut params);
            let error = params.check().expect_err(part);
            assert!(error.is_wrong_use() && error.to_string().contains(part), "{error}");
        };
        assert!(small().check().is_ok());
        wrong(|p| p.processes = 0, "-n is 0; choose 1 to 4096");
        wrong(|p| p.threads = 0, "--threads is 0");
        wrong(|p| p.mesh = 0, "--mesh is 0");
        wrong(|p| p.bytes = 7, "--bytes is 7; choose 8");
        wrong(|p| p.iterations = 0, "--iterations is 0");
        wrong(|p| p.period = 0, "--period is 0");
        wrong(|p| p.repeat = 0, "--repeat is 0; choose 1 to 1000");
        wrong(|p| p.mesh = 1, "1 object(s) for 2 PEs");
        wrong(|p| p.threads = 4096, "8192 PEs");
        wrong(|p| p.strategies = vec!["gredy".into()], "known are greedy");
        wrong(|p| p.strategies = vec!["refine:by=1".into()], "refine");
        wrong(|p| p.strategies.clear(), "nothing to run");
        // a million objects of 1 GiB
        wrong(|p| (p.mesh, p.bytes) = (1024, 1 << 30), "2147483648 MiB of memory");
    }

    #[test]
    fn memory_that_is_not_known_is_not_checked() {
        let params = Params { mesh: 1024, bytes: 1 << 30, ..small() };
        assert!(params.check_memory(None).is_ok());
        assert!(params.check_memory(Some(u64::MAX)).is_ok());
        assert!(params.check_memory(Some((1 << 51) - 1)).is_err());
    }

    #[test]
    fn strategies_that_draw_get_the_seed() {
        let seeded = |name: &str| Params { seed: 7, ..small() }.setup(Program::LbTest, name).strategy;
        assert_eq!(seeded("random"), "random:seed=7");
        assert_eq!(seeded("gossip:fanout=2"), "gossip:fanout=2:seed=7");
        assert_eq!(seeded("random:seed=3"), "random:seed=3");
        assert_eq!(seeded("greedy"), "greedy");
    }
}
