// SPDX-License-Identifier: MIT OR Apache-2.0
//! The proof from scheduler events, aggregated in the kernel (`bpf/windows.bpf.c`).

use std::fmt;

use colony_bpf::{Plain, bytes_of, read};
use colony_node::cpu::CpuSet;
use colony_time::Windows;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Btf, MapCore, MapFlags, ProgramInput};

use super::figures::{Deferred, Proof, ProofSource, WindowTimes};
use crate::SchedError;
use crate::job::JobTask;
use skel::types;

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/windows.skel.rs"));
}

// SAFETY: integers; padding is fields.
unsafe impl Plain for types::cpu {}
// SAFETY: integers without padding.
unsafe impl Plain for types::place {}
// SAFETY: integers without padding.
unsafe impl Plain for types::thread {}

/// The number space of tasks that the kernel's events use.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The programs in the kernel, while this value lives.
pub(super) struct BpfProof {
    cpus: Vec<u32>,
    skel: skel::WindowsSkel<'static>,
}

impl fmt::Debug for BpfProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BpfProof").field("cpus", &self.cpus).finish_non_exhaustive()
    }
}

fn refused(e: libbpf_rs::Error) -> SchedError {
    SchedError::Bpf(e.to_string())
}

impl BpfProof {
    /// Loads and attaches the programs, which watch `cpus` from here on.
    pub(super) fn start(windows: &Windows, cpus: &CpuSet) -> Result<Self, SchedError> {
        colony_bpf::check().map_err(|e| SchedError::Bpf(e.to_string()))?;
        if std::fs::read_link("/proc/self/ns/pid").is_ok_and(|n| n.as_os_str() != FIRST_PID_NAMESPACE) {
            return Err(SchedError::Bpf(
                "in a container (another pid namespace) the kernel's events number tasks otherwise".into(),
            ));
        }
        let mut open = skel::WindowsSkelBuilder::default().open(colony_bpf::place()).map_err(refused)?;
        leave_out_missing(&mut open).map_err(refused)?;
        let skel = open.load().map_err(refused)?;
        let room = skel.maps.cpus.max_entries();
        let known = |cpu| u32::try_from(cpu).ok().filter(|&cpu| cpu < room);
        let unknown = |cpu| SchedError::Bpf(format!("CPU {cpu} is above {}, the highest it knows", room - 1));
        let cpus = cpus.iter().map(|cpu| known(cpu).ok_or_else(|| unknown(cpu))).collect::<Result<_, _>>()?;
        let mut proof = Self { cpus, skel };
        proof.set_windows(windows);
        proof.open_accounts()?;
        proof.skel.attach().map_err(refused)?;
        Ok(proof)
    }

    /// Sets the mark on the job's CPUs: those without one are not accounted.
    fn open_accounts(&self) -> Result<(), SchedError> {
        for cpu in &self.cpus {
            let mark = colony_time::clock::Clock::Tai.now_ns().unsigned_abs();
            let mut account = types::cpu { mark, ..types::cpu::default() };
            let account = bytes_of(&mut account);
            self.skel.maps.cpus.update(&cpu.to_ne_bytes(), account, MapFlags::ANY).map_err(refused)?;
        }
        Ok(())
    }

    pub(super) fn set_windows(&mut self, windows: &Windows) {
        // what is past belongs to the windows before; without, a part of it goes by the new ones
        for &cpu in &self.cpus {
            let _ = self.settle(cpu);
        }
        if let Some(data) = self.skel.maps.data_data.as_deref_mut() {
            data.period_ns = windows.period_ns();
            data.favored_ns = windows.favored_ns();
        }
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            bss.epoch_ns = windows.first_ns();
        }
    }

    /// Follows what thread `tid` forks from now on; 0 ends that.
    pub(super) fn follow_children_of(&mut self, tid: i32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // the kernel reads this word while we write it: one store, not to be merged
            // SAFETY: a valid, aligned, exclusively borrowed u32.
            unsafe { std::ptr::write_volatile(&raw mut bss.parent_tid, tid.unsigned_abs()) };
        }
    }

    /// Charges the time of a CPU up to now.
    fn settle(&self, cpu: u32) -> libbpf_rs::Result<()> {
        let mut number = cpu.to_ne_bytes();
        let input = ProgramInput { context_in: Some(&mut number), ..ProgramInput::default() };
        self.skel.progs.settle.test_run(input).map(drop)
    }

    /// Follows these tasks and all that they fork.
    pub(super) fn follow(&self, tasks: &[JobTask]) {
        for task in tasks {
            // one that is followed already keeps its state
            let mut nowhere = types::place::default();
            let nowhere = bytes_of(&mut nowhere);
            let _ = self.skel.maps.job.update(&task.tid.to_ne_bytes(), nowhere, MapFlags::NO_EXIST);
        }
    }

    pub(super) fn proof(&mut self) -> Proof {
        let mut proof = Proof {
            source: ProofSource::Bpf,
            favored: WindowTimes::default(),
            regular: WindowTimes::default(),
            threads: self.threads(),
            notes: Vec::new(),
        };
        for cpu in &self.cpus {
            let mut number = cpu.to_ne_bytes();
            let settled = self
                .skel
                .progs
                .settle
                .test_run(ProgramInput { context_in: Some(&mut number), ..ProgramInput::default() });
            if let Err(e) = settled {
                proof.notes.push(format!("CPU {cpu} is charged up to its last event only: {e}"));
            }
            let value = self.skel.maps.cpus.lookup(&cpu.to_ne_bytes(), MapFlags::ANY).ok().flatten();
            let Some(account) = value.and_then(|value| read::<types::cpu>(&value)) else {
                proof.notes.push(format!("the account of CPU {cpu} could not be read"));
                continue;
            };
            add(&mut proof.favored, &account.favored);
            add(&mut proof.regular, &account.regular);
            proof.favored.interrupts_ns += account.irq_favored;
            proof.regular.interrupts_ns += account.irq_regular;
        }
        let lost = self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.lost);
        if lost > 0 {
            proof.notes.push(format!(
                "{lost} tasks or names did not fit the kernel's tables; totals hold, names lack"
            ));
        }
        proof
    }

    fn threads(&self) -> Vec<Deferred> {
        let map = &self.skel.maps.threads;
        let mut threads: Vec<Deferred> = map
            .keys()
            .filter_map(|key| {
                let thread = read::<types::thread>(&map.lookup(&key, MapFlags::ANY).ok()??)?;
                let name = key.split(|&b| b == 0).next().unwrap_or_default();
                // what ran when the account was opened is not known
                let name = if name.is_empty() { b"(unseen)" } else { name };
                Some(Deferred {
                    comm: String::from_utf8_lossy(name).into_owned(),
                    favored_ns: thread.favored_ns,
                    regular_ns: thread.regular_ns,
                    times: thread.times,
                })
            })
            .collect();
        threads.sort_by_key(|t| (std::cmp::Reverse(t.favored_ns + t.regular_ns), t.comm.clone()));
        threads
    }
}

/// Leaves out the programs for interrupts this kernel has no tracepoint for.
fn leave_out_missing(open: &mut skel::OpenWindowsSkel<'static>) -> libbpf_rs::Result<()> {
    let kernel = Btf::from_vmlinux()?;
    for mut program in open.open_object_mut().progs_mut() {
        if !program.name().to_string_lossy().starts_with("irq_") {
            continue;
        }
        let section = program.section().to_string_lossy().into_owned();
        let tracepoint = section.strip_prefix("tp_btf/").unwrap_or(&section);
        if kernel.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_none() {
            program.set_autoload(false);
        }
    }
    Ok(())
}

/// Adds the accounts of one CPU.
fn add(times: &mut WindowTimes, accounts: &[u64; types::account::ACCOUNTS.0 as usize]) {
    for (total, account) in [
        (&mut times.job_ns, types::account::A_JOB),
        (&mut times.stolen_ns, types::account::A_STOLEN),
        (&mut times.contended_ns, types::account::A_CONTENDED),
        (&mut times.waking_ns, types::account::A_WAKING),
        (&mut times.filled_ns, types::account::A_FILLED),
        (&mut times.idle_ns, types::account::A_IDLE),
    ] {
        *total += accounts[account.0 as usize];
    }
    times.observed_ns += accounts.iter().sum::<u64>();
}
