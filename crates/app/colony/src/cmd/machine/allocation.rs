// SPDX-License-Identifier: MIT OR Apache-2.0
//! The allocation of Slurm or Flux that `colony machine up` runs in: what its variables and commands say, and what this process has.

use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use colony_control_api::api::{Allocation, Scheduler, now};

use super::ask::ask;
use crate::exit::wrong;

/// Longest wait for a command of the scheduler.
const ANSWER: Duration = Duration::from_secs(10);
/// The number of seconds by which Flux says that a job has no time limit.
const NO_LIMIT: u64 = u32::MAX as u64;

/// Where the nodes of the machine come from.
#[derive(clap::Args)]
pub(super) struct From {
    /// Take CPUs, memory and end of this Slurm allocation; without --shape, as many nodes as fit
    #[arg(long, conflicts_with = "flux")]
    slurm: bool,
    /// The same for the Flux job that the command is a task of
    #[arg(long)]
    flux: bool,
}

impl From {
    /// The allocation, with notes about it for the user.
    pub(super) fn get(&self) -> anyhow::Result<Option<(Allocation, Vec<String>)>> {
        if !(self.slurm || self.flux) {
            return Ok(None);
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let has = Limits::own()?;
        let run = |command: &mut Command| ask(command, ANSWER);
        let found = if self.slurm { slurm(variable, has, run) } else { flux(variable, has, run, now()) };
        found.map(Some)
    }
}

/// CPUs and memory that the system lets this process use.
#[derive(Clone, Copy)]
struct Limits {
    cpus: u32,
    memory_mib: Option<u64>,
}

impl Limits {
    fn own() -> anyhow::Result<Self> {
        let cpus = colony_node::cpu::affinity(0).context("the CPUs of this process")?.iter().count();
        let memory_mib = colony_node::memory::limit().map(|bytes| bytes >> 20);
        Ok(Self { cpus: u32::try_from(cpus).unwrap_or(u32::MAX), memory_mib })
    }
}

/// The value of a variable that is a number.
fn number(variable: &impl Fn(&str) -> Option<String>, name: &str) -> anyhow::Result<Option<u64>> {
    let parse = |text: String| {
        text.trim()
            .parse()
            .map_err(|_| wrong(format!("the variable {name} is {text:?}, and should be a number")))
    };
    variable(name).map(parse).transpose()
}

/// The smaller number; 1 at least.
fn narrow(value: u64, limit: u32) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX).min(limit).max(1)
}

fn slurm(
    variable: impl Fn(&str) -> Option<String>,
    has: Limits,
    run: impl Fn(&mut Command) -> Result<String, String>,
) -> anyhow::Result<(Allocation, Vec<String>)> {
    let job = variable("SLURM_JOB_ID").ok_or_else(|| {
        wrong("this is no Slurm allocation (SLURM_JOB_ID is not set): run `colony machine up --slurm` in the script of `sbatch`")
    })?;
    if variable("SLURMD_NODENAME").is_none() {
        return Err(wrong(
            "this host is not one of the allocation (SLURMD_NODENAME is not set), as in the shell of `salloc` on a login node: run \
             `srun --overlap --pty bash` first, or use the script of `sbatch`",
        ));
    }
    let number = |name| number(&variable, name);
    let hosts = number("SLURM_JOB_NUM_NODES")?.or(number("SLURM_NNODES")?).unwrap_or(1);
    let given = number("SLURM_CPUS_ON_NODE")?.unwrap_or(u64::MAX);
    // 0 means all memory of the host
    let per_cpu = number("SLURM_MEM_PER_CPU")?.map(|mib| mib.saturating_mul(given));
    let memory = number("SLURM_MEM_PER_NODE")?.or(per_cpu).filter(|mib| *mib > 0);
    let mut notes = Vec::new();
    let ends = match number("SLURM_JOB_END_TIME")? {
        Some(seconds) => Some(seconds as f64),
        None => {
            let mut squeue = Command::new("squeue");
            squeue.args(["--noheader", "--format=%e", "--jobs", &job]).env("SLURM_TIME_FORMAT", "%s");
            known(run(&mut squeue).and_then(|text| end(&text)), &format!("Slurm job {job}"), &mut notes)
        }
    };
    if let Some(step) = variable("SLURM_STEP_ID") {
        notes.push(format!(
            "the machine is a part of step {step} of Slurm job {job}, and ends with this step"
        ));
    }
    Ok(allocation(Scheduler::Slurm, job, (hosts, given, memory), (has, ends), notes))
}

fn flux(
    variable: impl Fn(&str) -> Option<String>,
    has: Limits,
    run: impl Fn(&mut Command) -> Result<String, String>,
    now: f64,
) -> anyhow::Result<(Allocation, Vec<String>)> {
    let job = variable("FLUX_JOB_ID").ok_or_else(|| {
        wrong("this process is no task of a Flux job (FLUX_JOB_ID is not set): start it by `flux run` or `flux submit`")
    })?;
    let hosts = number(&variable, "FLUX_JOB_NNODES")?.unwrap_or(1);
    let mut notes = Vec::new();
    let left = run(Command::new("flux").args(["job", "timeleft"])).and_then(|text| {
        let seconds: u64 =
            text.trim().parse().map_err(|_| format!("flux job timeleft: {:?} is no number", text.trim()))?;
        Ok((seconds < NO_LIMIT).then_some(seconds as f64))
    });
    let ends = known(left, &format!("Flux job {job}"), &mut notes).map(|left| now + left);
    Ok(allocation(Scheduler::Flux, job, (hosts, u64::MAX, None), (has, ends), notes))
}

/// The end in the answer of `squeue`, seconds since 1970.
fn end(text: &str) -> Result<Option<f64>, String> {
    match text.trim() {
        "NONE" => Ok(None),
        text => match text.parse::<u64>() {
            Ok(seconds) => Ok(Some(seconds as f64)),
            Err(_) => Err(format!("squeue: {text:?} is no time")),
        },
    }
}

/// An end that is known, or a note for the user.
fn known(end: Result<Option<f64>, String>, of: &str, notes: &mut Vec<String>) -> Option<f64> {
    end.unwrap_or_else(|why| {
        notes.push(format!("the end of {of} is not known ({why}): run `colony machine down` before it"));
        None
    })
}

/// The smaller of what a scheduler gives and what this process has. `given` is hosts, CPUs and memory.
fn allocation(
    scheduler: Scheduler,
    job: String,
    given: (u64, u64, Option<u64>),
    (has, ends): (Limits, Option<f64>),
    mut notes: Vec<String>,
) -> (Allocation, Vec<String>) {
    let (hosts, cpus) = (narrow(given.0, u32::MAX), narrow(given.1, has.cpus));
    let memory_mib = given.2.into_iter().chain(has.memory_mib).min();
    let new = Allocation { scheduler, job, hosts, cpus, memory_mib, ends, stops: None };
    if hosts > 1 {
        notes.push(format!("{new} has {hosts} hosts: the machine takes the part of this host alone"));
    }
    (new, notes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: [(&str, &str); 6] = [
        ("SLURM_JOB_ID", "77"),
        ("SLURMD_NODENAME", "n1"),
        ("SLURM_JOB_NUM_NODES", "1"),
        ("SLURM_CPUS_ON_NODE", "4"),
        ("SLURM_MEM_PER_NODE", "2000"),
        ("SLURM_JOB_END_TIME", "1800000000"),
    ];
    const ALL: Limits = Limits { cpus: 64, memory_mib: Some(100_000) };

    /// The variable of this name, by `others` before the usual ones.
    fn variable<'a>(others: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| {
            let found = others.iter().chain(&USUAL).find(|(own, _)| *own == name);
            found.map(|(_, value)| (*value).to_owned()).filter(|value| !value.is_empty())
        }
    }

    fn read(others: &[(&str, &str)], has: Limits, answer: &str) -> anyhow::Result<(Allocation, Vec<String>)> {
        slurm(variable(others), has, |_| Ok(answer.to_owned()))
    }

    fn own(others: &[(&str, &str)]) -> Allocation {
        read(others, ALL, "NONE\n").expect("an allocation").0
    }

    #[test]
    fn an_allocation_is_what_slurm_tells_about_this_host() {
        let (scheduler, job) = (Scheduler::Slurm, "77".to_owned());
        let (ends, stops) = (Some(1_800_000_000.0), None);
        let expected = Allocation { scheduler, job, hosts: 1, cpus: 4, memory_mib: Some(2000), ends, stops };
        assert_eq!(own(&[]), expected);
        let per_cpu = [("SLURM_MEM_PER_NODE", ""), ("SLURM_MEM_PER_CPU", "500")];
        assert_eq!(own(&per_cpu).memory_mib, Some(2000));
        assert_eq!(
            own(&[("SLURM_MEM_PER_NODE", "0")]).memory_mib,
            Some(100_000),
            "all that this process has"
        );
        assert_eq!(own(&[("SLURM_JOB_NUM_NODES", ""), ("SLURM_NNODES", "3")]).hosts, 3);
        for (name, value, said) in [
            ("SLURM_JOB_ID", "", "no Slurm allocation"),
            ("SLURMD_NODENAME", "", "srun --overlap"),
            ("SLURM_CPUS_ON_NODE", "many", "SLURM_CPUS_ON_NODE is \"many\""),
            ("SLURM_MEM_PER_NODE", "-1", "SLURM_MEM_PER_NODE"),
            ("SLURM_JOB_END_TIME", "1e9", "SLURM_JOB_END_TIME"),
        ] {
            let text = read(&[(name, value)], ALL, "NONE").expect_err(name).to_string();
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn this_process_may_have_less_than_slurm_tells() {
        let less = |cpus, memory_mib| read(&[], Limits { cpus, memory_mib }, "").expect("an allocation").0;
        let narrow = less(1, Some(500));
        assert_eq!((narrow.cpus, narrow.memory_mib), (1, Some(500)));
        let wide = less(64, None);
        assert_eq!((wide.cpus, wide.memory_mib), (4, Some(2000)));
        let own = Limits::own().expect("Linux tells");
        assert!(own.cpus > 0 && own.memory_mib > Some(0));
    }

    #[test]
    fn the_end_is_asked_for_if_no_variable_has_it() {
        let unset = [("SLURM_JOB_END_TIME", "")];
        for (answer, ends) in [("1800000001\n", Some(1_800_000_001.0)), ("NONE\n", None)] {
            let (own, notes) = read(&unset, ALL, answer).expect("an allocation");
            assert_eq!((own.ends, notes.len()), (ends, 0), "{answer}");
        }
        for answer in ["", "N/A", "2026-11-26T09:30:56", "-1", "17 18", "\u{1b}[2J"] {
            let (own, notes) = read(&unset, ALL, answer).expect("an allocation");
            assert!(own.ends.is_none() && notes[0].contains("`colony machine down` before it"), "{notes:?}");
            assert!(notes[0].chars().all(|c| !c.is_control()), "{notes:?}");
        }
        let (_, notes) =
            slurm(variable(&unset), ALL, |_| Err("squeue: gone".to_owned())).expect("an allocation");
        assert!(notes[0].contains("(squeue: gone)"), "{notes:?}");
        let (_, notes) =
            read(&[("SLURM_JOB_NUM_NODES", "3"), ("SLURM_STEP_ID", "0")], ALL, "").expect("an allocation");
        assert!(notes[0].contains("step 0") && notes[1].contains("3 hosts"), "{notes:?}");
    }

    #[test]
    fn a_task_of_flux_has_its_affinity_and_the_time_that_is_left() {
        let variables = [("FLUX_JOB_ID", "f7"), ("FLUX_JOB_NNODES", "2")];
        let read =
            |answer: &str| flux(variable(&variables), ALL, |_| Ok(answer.to_owned()), 1000.0).expect("a job");
        let (own, notes) = read("50\n");
        assert_eq!((own.job.as_str(), own.hosts, own.cpus, own.ends), ("f7", 2, 64, Some(1050.0)));
        assert!(notes[0].contains("2 hosts"), "{notes:?}");
        assert_eq!(read("4294967295\n").0.ends, None, "it has no limit");
        assert!(read("infinity").1[0].contains("is no number"));
        let none = flux(variable(&[]), ALL, |_| Ok(String::new()), 0.0).expect_err("no job").to_string();
        assert!(none.contains("flux run"), "{none}");
    }
}
