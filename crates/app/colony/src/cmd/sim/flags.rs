// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flags of `colony sim`, as changes of a scenario.

use std::path::PathBuf;

use anyhow::Context;
use colony_sim::machine::Machine;
use colony_sim::program::{Algorithm, Step};
use colony_sim::source::Phase;
use colony_sim::spec::{Leibniz, MachineSpec, ProgramSpec, Repeated, Scenario, SchedulerSpec, SourceSpec};
use colony_time::DutyCycle;

use crate::exit::wrong;
use crate::words::{Ns, duty, ns};

/// Flags that describe a scenario without a file.
#[derive(clap::Args)]
pub(crate) struct Flags {
    /// A measured node's noise, in any format `colony noise convert` reads; of several, each node replays one
    #[arg(long, value_name = "TRACE")]
    trace: Vec<PathBuf>,
    /// Modelled noise: 'leibniz 21%', '16us every 1ms', '16us around 1ms' (at random), 'none'
    #[arg(long, value_name = "NOISE", value_parser = noise)]
    noise: Vec<Noise>,
    /// Phase of the noise of different nodes
    #[arg(long, value_name = "PHASE", value_parser = ["random", "aligned"])]
    phase: Option<String>,
    /// Node counts
    #[arg(long, value_delimiter = ',', value_name = "N,N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<Vec<u32>>,
    /// Program: barrier, allreduce, myallreduce, bcast, alltoall, allgather, bsp, glob, ring, stencil, pop
    #[arg(long, value_name = "PROGRAM", value_parser = ProgramSpec::NAMES)]
    op: Option<String>,
    /// Bytes each rank gives
    #[arg(long, value_name = "N")]
    bytes: Option<u64>,
    /// Work of each rank before it communicates
    #[arg(long, value_parser = ns, value_name = "TIME")]
    work: Option<Ns>,
    /// Algorithm of the collective, as recursive-doubling
    #[arg(long, value_name = "HOW", value_parser = algorithm)]
    algorithm: Option<Algorithm>,
    /// Iterations of the program (of --what-if: of each run, instead of as many as each node count needs)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) iterations: Option<u64>,
    /// Schedulers: none, preempt, fair, coordinated, spare-core
    #[arg(long, value_delimiter = ',', value_name = "NAME,NAME", value_parser = scheduler)]
    schedulers: Option<Vec<SchedulerSpec>>,
    /// Period of the coordinated windows
    #[arg(long, value_parser = ns, value_name = "TIME")]
    period: Option<Ns>,
    /// Favored share of the period
    #[arg(long, value_parser = duty, value_name = "DUTY")]
    pub(super) duty: Option<DutyCycle>,
    /// Machine: a profile's name, or a TOML file
    #[arg(long, value_name = "MACHINE")]
    machine: Option<String>,
    /// Ranks on each node, one a core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: Option<u32>,
    /// Seed of everything random
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Independent runs of each point
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
    /// Try several values of anything in the scenario, as program.bytes=8,1024
    #[arg(long, value_name = "PATH=V,V", value_parser = swept)]
    sweep: Vec<(String, Vec<toml::Value>)>,
}

/// A short form of noise.
#[derive(Clone, Debug)]
enum Noise {
    None,
    Source(Box<SourceSpec>),
}

/// Scenario of `colony sim` without arguments: the noise daemon of the Colony report at 21 % on Blue Gene/L,
/// unmodified, and coordinated.
pub(super) fn example() -> Scenario {
    Scenario {
        machine: MachineSpec::Named("bgl".into()),
        schedulers: ["none", "fair", "coordinated"].into_iter().filter_map(SchedulerSpec::named).collect(),
        program: ProgramSpec { work_ns: Some(1_000_000), iterations: 300, ..ProgramSpec::named("allreduce") },
        noise: vec![leibniz(210_000)],
        ..Scenario::default()
    }
}

impl Flags {
    /// Returns `true` if no flag measures or names the noise.
    pub(super) fn say_no_noise(&self) -> bool {
        self.trace.is_empty() && self.noise.is_empty()
    }

    /// Returns `true` if a flag names the program or its work.
    pub(super) fn names_program(&self) -> bool {
        self.op.is_some() || self.work.is_some()
    }

    /// Changes `scenario` to what was said, and checks it. `has_trace` says that the noise is a trace's, which is not in the scenario.
    pub(super) fn apply(&self, scenario: &mut Scenario, has_trace: bool) -> anyhow::Result<()> {
        macro_rules! put {
            ($($from:expr => $to:expr),* $(,)?) => { $(if let Some(value) = $from { $to = value; })* };
        }
        if let Some(op) = &self.op {
            let ProgramSpec { iterations, .. } = scenario.program;
            scenario.program = ProgramSpec { iterations, ..ProgramSpec::named(op) };
        }
        put!(
            self.nodes.clone() => scenario.nodes,
            self.iterations => scenario.program.iterations,
            self.schedulers.clone() => scenario.schedulers,
            self.seed => scenario.seed,
            self.repetitions => scenario.repetitions,
        );
        scenario.program.bytes = self.bytes.or(scenario.program.bytes);
        scenario.program.algorithm = self.algorithm.or(scenario.program.algorithm);
        scenario.program.work_ns = self.work.map(|w| w.0).or(scenario.program.work_ns);
        scenario.ranks_per_node = self.ranks_per_node.or(scenario.ranks_per_node);
        if let Some(machine) = &self.machine {
            scenario.machine = machine_of(machine)?;
        }
        for scheduler in &mut scenario.schedulers {
            if let SchedulerSpec::Coordinated(windows) = scheduler {
                put!(self.period.map(|p| p.0) => windows.period_ns, self.duty => windows.duty_cycle);
            }
        }
        self.put_noise(scenario);
        self.check_lists()?;
        self.put_sweeps(scenario)?;
        self.check_effect(scenario, has_trace)?;
        Ok(scenario.check()?)
    }

    /// Refuses a list that names a value twice: the same result would be there twice.
    fn check_lists(&self) -> anyhow::Result<()> {
        let nodes = self.nodes.iter().flatten().map(ToString::to_string).collect();
        let schedulers = self.schedulers.iter().flatten().map(|s| s.name().to_owned()).collect();
        let sweeps = self.sweep.iter().map(|(path, values)| {
            (format!("--sweep {path}"), values.iter().map(ToString::to_string).collect())
        });
        let lists: [(String, Vec<String>); 2] =
            [("--nodes".to_owned(), nodes), ("--schedulers".to_owned(), schedulers)];
        for (option, values) in lists.into_iter().chain(sweeps) {
            if let Some(twice) = (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
                return Err(wrong(format!("{option} names {} twice; name each value once", values[twice])));
            }
        }
        Ok(())
    }

    /// Adds the sweeps, and refuses one that replaces the value of another option: one of the two would have no effect.
    fn put_sweeps(&self, scenario: &mut Scenario) -> anyhow::Result<()> {
        for (i, (path, values)) in self.sweep.iter().enumerate() {
            if self.sweep[..i].iter().any(|(other, _)| other == path) {
                return Err(wrong(format!(
                    "--sweep gives `{path}` twice. Write all values in one: {path}=V,V"
                )));
            }
            scenario.sweep.insert(path.clone(), values.clone());
        }
        let places = [
            ("--noise", "noise", !self.noise.is_empty()),
            ("--trace", "noise", !self.trace.is_empty()),
            ("--phase", "noise.*.phase", self.phase.is_some()),
            ("--nodes", "nodes", self.nodes.is_some()),
            ("--op", "program.name", self.op.is_some()),
            ("--bytes", "program.bytes", self.bytes.is_some()),
            ("--work", "program.work", self.work.is_some()),
            ("--algorithm", "program.algorithm", self.algorithm.is_some()),
            ("--iterations", "program.iterations", self.iterations.is_some()),
            ("--schedulers", "schedulers", self.schedulers.is_some()),
            ("--period", "schedulers.*.period", self.period.is_some()),
            ("--duty", "schedulers.*.duty_cycle", self.duty.is_some()),
            ("--machine", "machine", self.machine.is_some()),
            ("--ranks-per-node", "ranks_per_node", self.ranks_per_node.is_some()),
            ("--seed", "seed", self.seed.is_some()),
            ("--repetitions", "repetitions", self.repetitions.is_some()),
        ];
        for (option, place, _) in places.into_iter().filter(|(.., is_given)| *is_given) {
            if let Some(path) = scenario.sweep.keys().find(|path| replaces(path, place)) {
                return Err(wrong(format!(
                    "{option} has no effect: the sweep of `{path}` replaces its value. Leave {option} or the sweep out"
                )));
            }
        }
        self.check_swept_lists()
    }

    /// Refuses a sweep over single values of what is a list already.
    fn check_swept_lists(&self) -> anyhow::Result<()> {
        let is_list = |path: &str| ["nodes", "schedulers"].contains(&path);
        let of_values = |values: &[toml::Value]| !values.iter().all(toml::Value::is_array);
        let Some((path, values)) =
            self.sweep.iter().find(|(path, values)| is_list(path) && of_values(values))
        else {
            return Ok(());
        };
        let plain = |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let values: Vec<String> = values.iter().map(plain).collect();
        Err(wrong(format!(
            "each of the scenario's {path} is simulated anyway, so a sweep of them is not needed. Write --{path} {}",
            values.join(",")
        )))
    }

    /// Refuses options that change nothing in `scenario`.
    fn check_effect(&self, scenario: &Scenario, has_trace: bool) -> anyhow::Result<()> {
        let is_coordinated = |s: &SchedulerSpec| matches!(s, SchedulerSpec::Coordinated(_));
        let has_windows = scenario.schedulers.iter().any(is_coordinated);
        let names_none = self.noise.iter().any(|n| matches!(n, Noise::None));
        let is_quiet = |s: &SchedulerSpec| matches!(s, SchedulerSpec::None);
        let lets_noise_through = !scenario.schedulers.iter().all(is_quiet);
        let no_noise_passes =
            "the only scheduler is `none`, which has no noise. Add another one to --schedulers";
        // a sweep may add noise, or work that differs between ranks
        let sweeps = |what: &str| scenario.sweep.keys().any(|path| path.starts_with(what));
        let has_noise = has_trace || !scenario.noise.is_empty() || sweeps("noise");
        let program = &scenario.program;
        let is_unequal =
            program.imbalance.is_some_and(|s| s > 0.0) || program.steps.iter().any(Step::is_random);
        let draws = has_noise || is_unequal || sweeps("program");
        let nothing_random = "nothing in the scenario is random. Add --noise or --trace";
        let no_noise = "there is no noise. Add --noise or --trace";
        let no_windows = if has_windows {
            no_noise
        } else {
            "no scheduler has windows. Add `coordinated` to --schedulers"
        };
        for (option, is_given, has_effect, why) in [
            ("--period", self.period.is_some(), has_windows && has_noise, no_windows),
            ("--duty", self.duty.is_some(), has_windows && has_noise, no_windows),
            ("--schedulers", self.names_schedulers(), has_noise, no_noise),
            ("--seed", self.seed.is_some(), draws, nothing_random),
            ("--repetitions", self.repetitions.is_some(), draws, nothing_random),
            ("--noise", self.names_noise(), lets_noise_through, no_noise_passes),
            ("--trace", !self.trace.is_empty(), lets_noise_through, no_noise_passes),
            ("--phase", self.phase.is_some(), !scenario.noise.is_empty(), no_noise),
            (
                "--noise none",
                names_none,
                self.noise.len() + self.trace.len() == 1,
                "other noise is named too. Leave one of them out",
            ),
        ] {
            if is_given && !has_effect {
                return Err(wrong(format!("{option} has no effect: {why}")));
            }
        }
        Ok(())
    }

    /// Returns `true` if a flag names modelled noise.
    fn names_noise(&self) -> bool {
        self.noise.iter().any(|noise| matches!(noise, Noise::Source(_)))
    }

    /// Returns `true` if a flag names a scheduler that lets noise through.
    fn names_schedulers(&self) -> bool {
        self.schedulers.iter().flatten().any(|s| !matches!(s, SchedulerSpec::None))
    }

    fn put_noise(&self, scenario: &mut Scenario) {
        if !self.say_no_noise() {
            let files: Vec<String> = self.trace.iter().map(|t| t.display().to_string()).collect();
            let traces = match files.len() {
                0 => None,
                1 => Some(SourceSpec { trace: files.into_iter().next(), ..SourceSpec::default() }),
                _ => Some(SourceSpec { traces: files, ..SourceSpec::default() }),
            };
            let models = self.noise.iter().filter_map(|n| match n {
                Noise::None => None,
                Noise::Source(source) => Some((**source).clone()),
            });
            scenario.noise = traces.into_iter().chain(models).collect();
        }
        if let Some(phase) = &self.phase {
            let phase = if phase == "aligned" { Phase::Aligned } else { Phase::Random };
            scenario.noise.iter_mut().for_each(|s| s.phase = phase);
        }
    }

    /// Returns `true` if a flag or the machine's name places the ranks.
    pub(super) fn places_ranks(&self) -> bool {
        self.ranks_per_node.is_some() || self.machine.as_deref().is_some_and(|m| m.contains('.'))
    }
}

/// True if a sweep of `path` replaces the value at `place`: the value itself, or all that it is in. A `*` in a place stands for the
/// elements of a list.
fn replaces(path: &str, place: &str) -> bool {
    let Some((list, key)) = place.split_once(".*.") else {
        return place.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    };
    path == list
        || path.strip_prefix(list).and_then(|rest| rest.strip_prefix('.')).is_some_and(|inside| {
            // the element itself, or this key of it
            !inside.contains('.') || inside.rsplit('.').next() == Some(key)
        })
}

/// A profile, or the file of one.
fn machine_of(word: &str) -> anyhow::Result<MachineSpec> {
    Ok(match word.ends_with(".toml") {
        true => {
            let text =
                std::fs::read_to_string(word).with_context(|| format!("reading the machine {word}"))?;
            let machine = Machine::from_toml(&text, word).map_err(|e| wrong(e.to_string()))?;
            MachineSpec::Given(Box::new(machine))
        }
        false => MachineSpec::Named(word.to_owned()),
    })
}

/// The daemon of the Colony report: sleeps of 500 ms, calculations of so many millionths of that.
fn leibniz(ppm: u32) -> SourceSpec {
    let sleep_ns = 500_000_000;
    let mean_ns = sleep_ns / 1_000_000 * u64::from(ppm);
    SourceSpec {
        name: Some("leibniz".into()),
        leibniz: Some(Leibniz { mean_ns, sleep_ns }),
        ..SourceSpec::default()
    }
}

fn noise(text: &str) -> Result<Noise, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let source = match words[..] {
        ["none"] => return Ok(Noise::None),
        ["leibniz", level] => match duty(level)? {
            DutyCycle::Ppm(ppm) if ppm > 0 => leibniz(ppm),
            _ => return Err("the daemon's noise is a share above 0, as `leibniz 21%`".into()),
        },
        [length, how @ ("every" | "around"), every] => {
            let repeated = Some(Repeated { every_ns: ns(every)?.0, length_ns: ns(length)?.0 });
            let name = Some(text.to_owned());
            match how {
                "every" => SourceSpec { name, periodic: repeated, ..SourceSpec::default() },
                _ => SourceSpec { name, poisson: repeated, ..SourceSpec::default() },
            }
        }
        _ => return Err("write it as 'leibniz 21%', '16us every 1ms', '16us around 1ms' or 'none'".into()),
    };
    Ok(Noise::Source(Box::new(source)))
}

fn scheduler(name: &str) -> Result<SchedulerSpec, String> {
    SchedulerSpec::named(name).ok_or_else(|| format!("there are: {}", SchedulerSpec::NAMES))
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    let value = toml::Value::String(name.to_owned());
    value.try_into().map_err(|e: toml::de::Error| colony_sim::spec::plain(e.message(), Some("algorithm")))
}

/// `PATH=V,V`: values are TOML, and words without quotes are texts.
fn swept(text: &str) -> Result<(String, Vec<toml::Value>), String> {
    let (path, values) = text.split_once('=').ok_or("write it as program.bytes=8,1024")?;
    let value = |word: &str| {
        let parsed = format!("v = {word}").parse::<toml::Table>().ok();
        parsed.and_then(|mut t| t.remove("v")).unwrap_or_else(|| toml::Value::String(word.to_owned()))
    };
    Ok((path.trim().to_owned(), values.split(',').map(|w| value(w.trim())).collect()))
}

#[cfg(test)]
mod tests {
    use super::replaces;

    #[test]
    fn a_sweep_replaces_a_value_and_all_that_is_in_it() {
        for (path, place) in [
            ("seed", "seed"),
            ("program", "program.bytes"),
            ("program.bytes", "program.bytes"),
            ("schedulers", "schedulers.*.period"),
            ("schedulers.coordinated", "schedulers.*.period"),
            ("schedulers.1.coordinated.period", "schedulers.*.period"),
            ("noise.tick.phase", "noise.*.phase"),
        ] {
            assert!(replaces(path, place), "{path}");
        }
        for (path, place) in [
            ("program.byte", "program.bytes"),
            ("noise.tick.leibniz.mean", "noise"),
            ("schedulers.coordinated.duty_cycle", "schedulers.*.period"),
            ("noise.tick.periodic.length", "noise.*.phase"),
        ] {
            assert!(!replaces(path, place), "{path}");
        }
    }
}
