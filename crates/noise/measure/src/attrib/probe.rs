// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads the BPF programs and reads what they write.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use colony_node::cpu::CpuSet;
use libbpf_rs::btf::types::Typedef;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Btf, MapCore, MapFlags};
use nix::sys::mman::{MapFlags as Sharing, ProtFlags, mmap, munmap};

use super::event::Event;
use super::senders::{self, IpiReport};
use super::skel::{self, types};
use super::stack::KernelStack;
use super::symbols::Symbols;

/// The reasons for a measurement without attribution.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// BPF is not open to this process or this kernel.
    #[error(transparent)]
    Unavailable(#[from] colony_bpf::Unavailable),
    /// The kernel refused the programs.
    #[error("loading the attribution programs: {0}; detours stay unexplained")]
    Bpf(#[from] libbpf_rs::Error),
    /// A map could not be shared.
    #[error("sharing the event rings with the kernel: {0}; detours stay unexplained")]
    Map(#[from] nix::errno::Errno),
    /// A CPU that the programs have no ring for.
    #[error(
        "CPU {cpu} cannot be attributed: the programs know CPUs up to {highest}; detours stay unexplained"
    )]
    Cpu {
        /// Its number.
        cpu: usize,
        /// The highest number.
        highest: usize,
    },
}

/// Events each CPU's ring holds between two drains: 3 MiB a CPU.
const RING_LEN: usize = 1 << 16;
/// Latest stacks kept of each CPU, where stacks are asked for: 1.2 MiB a CPU.
const STACK_LEN: usize = 1 << 12;

/// The head of one CPU's ring: the kernel side's `struct ring`, which both sides change at the same time.
#[repr(C)]
struct RingHead {
    head: AtomicU64,
    tail: AtomicU64,
    lost: AtomicU64,
    pad: [u64; 5],
}

const _: () = {
    use std::mem::offset_of;
    const fn room<S, T, const N: usize>(_: fn(&S) -> &[T; N]) -> usize {
        N
    }
    assert!(room(|r: &types::rodata| &r.slot_of) == CpuSet::LIMIT);
    assert!(size_of::<RingHead>() == size_of::<types::ring>());
    assert!(offset_of!(RingHead, head) == offset_of!(types::ring, head));
    assert!(offset_of!(RingHead, tail) == offset_of!(types::ring, tail));
    assert!(offset_of!(RingHead, lost) == offset_of!(types::ring, lost));
};

// SAFETY: only integers, and no padding between them (a C struct whose gaps are fields).
unsafe impl colony_bpf::Plain for types::sender {}

/// The events that a measurement needs beside those that every one has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The kernel's stack at every event: about two microseconds more an event on the measured CPU.
    pub stacks: bool,
    /// The idle states that a measured CPU enters and leaves, and the instants at which its observer is made ready to run
    /// ([`Probe::observers`]).
    pub sleep: bool,
}

/// Tracepoint programs on the measured CPUs.
pub struct Probe {
    cpus: Vec<usize>,
    heads: Mapped,
    events: Mapped,
    /// Per CPU: what has been read, and the head seen last time (a place before it that is still
    /// unfilled was lost).
    read: Vec<(u64, u64)>,
    missing: Vec<String>,
    /// The stacks of the latest events, if asked for.
    stacks: Option<Mapped>,
    skel: skel::AttribSkel<'static>,
}

impl Probe {
    /// Loads and attaches the programs for `cpus`; nothing is recorded before [`start`](Self::start).
    ///
    /// # Errors
    /// [`ProbeError`] says why attribution is not possible here.
    pub fn attach(cpus: &CpuSet, wanted: Wanted) -> Result<Self, ProbeError> {
        colony_bpf::check()?;
        let cpus: Vec<usize> = cpus.iter().collect();
        let mut open = skel::AttribSkelBuilder::default().open(colony_bpf::place())?;
        open.maps.rings.set_max_entries(cpus.len() as u32)?;
        open.maps.events.set_max_entries((cpus.len() * RING_LEN) as u32)?;
        if wanted.stacks {
            open.maps.stacks.set_max_entries((cpus.len() * STACK_LEN) as u32)?;
        }
        if let Some(data) = open.maps.rodata_data.as_deref_mut() {
            data.stack_len = if wanted.stacks { STACK_LEN as u32 } else { 0 };
            data.measured_words = cpus.iter().max().map_or(0, |highest| highest / 64 + 1) as u32;
            data.ring_len = RING_LEN as u32;
            for (slot, &cpu) in cpus.iter().enumerate() {
                let highest = data.slot_of.len() - 1;
                let of_cpu = data.slot_of.get_mut(cpu).ok_or(ProbeError::Cpu { cpu, highest })?;
                *of_cpu = slot as u16 + 1;
                // there are as many bits as places in `slot_of`
                data.measured[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        open.progs.cpu_idle.set_autoload(wanted.sleep);
        open.progs.sched_waking.set_autoload(wanted.sleep);
        let missing = leave_out_missing(&mut open)?;
        let mut skel = open.load()?;
        let heads = Mapped::new(skel.maps.rings.as_fd(), cpus.len() * size_of::<RingHead>())?;
        let events =
            Mapped::new(skel.maps.events.as_fd(), cpus.len() * RING_LEN * size_of::<types::event>())?;
        let stacks_len = cpus.len() * STACK_LEN * size_of::<types::stack>();
        let stacks = wanted.stacks.then(|| Mapped::new(skel.maps.stacks.as_fd(), stacks_len)).transpose()?;
        skel.attach()?;
        let read = vec![(0, 0); cpus.len()];
        Ok(Self { cpus, heads, events, read, missing, stacks, skel })
    }

    /// Names the thread that observes each CPU, before [`start`](Self::start): the instants at which it is made ready to run are
    /// events.
    pub fn observers(&mut self, tids: &[(usize, i32)]) {
        let Some(bss) = self.skel.maps.bss_data.as_deref_mut() else { return };
        for &(cpu, tid) in tids {
            // a CPU without a place has no events either
            if let Some(of_cpu) = bss.observers.get_mut(cpu) {
                *of_cpu = tid.cast_unsigned();
            }
        }
    }

    /// Tracepoints this kernel does not have; what they would show stays unexplained.
    #[must_use]
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Begins to record.
    pub fn start(&mut self) {
        self.switch(1);
    }

    /// Ends recording.
    pub fn stop(&mut self) {
        self.switch(0);
    }

    fn switch(&mut self, on: u32) {
        if let Some(bss) = self.skel.maps.bss_data.as_deref_mut() {
            // the kernel reads this word while we write it: one store, not to be merged
            // SAFETY: a valid, aligned, exclusively borrowed u32.
            unsafe { std::ptr::write_volatile(&raw mut bss.on, on) };
        }
    }

    /// Events lost so far because a ring was full.
    #[must_use]
    pub fn lost(&self) -> u64 {
        (0..self.cpus.len()).map(|slot| self.head(slot).lost.load(Ordering::Relaxed)).sum()
    }

    /// Hands over the events recorded since the last call, per CPU almost in order of time: an
    /// interrupt may take its place between another event's instant and its own.
    pub fn drain(&mut self, mut take: impl FnMut(usize, Event)) {
        for slot in 0..self.cpus.len() {
            let head = self.head(slot).head.load(Ordering::Acquire);
            let (mut next, settled) = self.read[slot];
            while next < head {
                match self.event(slot, next) {
                    Some(raw) => {
                        if let Some(event) = Event::decode(&raw) {
                            take(self.cpus[slot], event);
                        }
                    }
                    // a place taken before the last drain and still unfilled was lost
                    None if next < settled => {}
                    None => break,
                }
                next += 1;
            }
            self.head(slot).tail.store(next, Ordering::Release);
            self.read[slot] = (next, head);
        }
    }

    /// The stacks of the latest events of a CPU, in order of time; call it after [`stop`](Self::stop). None if they were not
    /// asked for.
    #[must_use]
    pub fn stacks(&self, cpu: usize) -> Vec<KernelStack> {
        let slot = self.cpus.iter().position(|&c| c == cpu);
        let (Some(slot), Some(stacks)) = (slot, &self.stacks) else { return Vec::new() };
        let read = |i: usize| {
            // SAFETY: `slot` is below cpus and `i` below STACK_LEN, so the place is inside the mapping, which holds
            // cpus * STACK_LEN stacks; every bit pattern is a valid stack; volatile, since the kernel may still be writing.
            unsafe { stacks.at.cast::<types::stack>().as_ptr().add(slot * STACK_LEN + i).read_volatile() }
        };
        let mut all: Vec<KernelStack> =
            (0..STACK_LEN).filter_map(|i| KernelStack::decode(&read(i))).collect();
        all.sort_by_key(|s| s.at_ns);
        all
    }

    /// Senders of interprocessor interrupts to the measured CPUs so far.
    #[must_use]
    pub fn ipi_senders(&self) -> IpiReport {
        let missing: Vec<&str> =
            self.missing.iter().map(String::as_str).filter(|name| name.starts_with("ipi_send_")).collect();
        if !missing.is_empty() {
            let reason = format!("this kernel has no tracepoint {} (Linux 6.4 has them)", missing.join(", "));
            return IpiReport { not_known: Some(reason), ..IpiReport::default() };
        }
        let senders = &self.skel.maps.senders;
        let of_key = |key: Vec<u8>| {
            let count = senders.lookup(&key, MapFlags::ANY).ok()??;
            Some((colony_bpf::read(&key)?, u64::from_ne_bytes(count.try_into().ok()?)))
        };
        let raw: Vec<(types::sender, u64)> = senders.keys().filter_map(of_key).collect();
        let symbols = if raw.is_empty() { None } else { Some(Symbols::of_kernel()) };
        let (symbols, no_functions) = match symbols {
            Some(Ok(symbols)) => (Some(symbols), None),
            Some(Err(e)) => (None, Some(e.to_string())),
            None => (None, None),
        };
        IpiReport {
            not_known: None,
            no_functions,
            lost: self.skel.maps.bss_data.as_deref().map_or(0, |bss| bss.senders_lost),
            senders: senders::named(&raw, symbols.as_ref()),
        }
    }

    fn head(&self, slot: usize) -> &RingHead {
        // SAFETY: the mapping holds one RingHead a slot and lives as long as self; the kernel
        // changes it concurrently, which the atomics allow.
        unsafe { &*self.heads.at.cast::<RingHead>().as_ptr().add(slot) }
    }

    /// The event at place `index` of a ring, if it has been written and not been overwritten.
    fn event(&self, slot: usize, index: u64) -> Option<types::event> {
        let place = slot * RING_LEN + (index as usize & (RING_LEN - 1));
        // SAFETY: `place` is below cpus * RING_LEN, the mapping's length in events; every bit
        // pattern is a valid event; volatile, since the kernel may be writing other places.
        let raw = unsafe { self.events.at.cast::<types::event>().as_ptr().add(place).read_volatile() };
        fence(Ordering::Acquire);
        (raw.ready == index + 1).then_some(raw)
    }
}

/// Switches off the programs whose tracepoint this kernel lacks, and returns their names.
fn leave_out_missing(open: &mut skel::OpenAttribSkel<'static>) -> Result<Vec<String>, ProbeError> {
    let kernel = Btf::from_vmlinux()?;
    let mut missing = Vec::new();
    for mut program in open.open_object_mut().progs_mut().filter(|program| program.autoload()) {
        let section = program.section().to_string_lossy().into_owned();
        let tracepoint = section.rsplit('/').next().unwrap_or(&section).to_owned();
        if kernel.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_none() {
            program.set_autoload(false);
            missing.push(tracepoint);
        }
    }
    Ok(missing)
}

/// A map shared with the kernel.
struct Mapped {
    at: NonNull<std::ffi::c_void>,
    len: usize,
}

impl Mapped {
    fn new(fd: impl AsFd, len: usize) -> Result<Self, nix::errno::Errno> {
        let page = 4096;
        let len = len.next_multiple_of(page);
        let size = NonZeroUsize::new(len).ok_or(nix::errno::Errno::EINVAL)?;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else refers to it.
        let at = unsafe {
            mmap(None, size, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, Sharing::MAP_SHARED, fd, 0)?
        };
        Ok(Self { at, len })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length and unmapped only here. It cannot fail then.
        let _ = unsafe { munmap(self.at, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Kind;
    use super::super::stack::StackKind;
    use super::*;

    #[test]
    fn a_context_switch_on_a_measured_cpu_is_seen_and_on_another_is_not() {
        let cpus = colony_node::cpu::usable().expect("linux");
        let last = cpus.iter().last().expect("a CPU");
        let mut probe = match Probe::attach(&[last].into_iter().collect(), Wanted::default()) {
            Ok(p) => p,
            Err(ProbeError::Unavailable(e)) => {
                colony_testing::skip(e);
                return;
            }
            Err(e) => panic!("{e}"),
        };
        probe.start();
        let tid = std::thread::spawn(move || {
            colony_node::cpu::pin(last).expect("usable");
            for _ in 0..20 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            nix::unistd::gettid().as_raw()
        })
        .join()
        .expect("no panic");
        probe.stop();
        let mut to_it = 0;
        let mut elsewhere = 0;
        // twice, so that an unfilled place is passed over
        for _ in 0..2 {
            probe.drain(|cpu, e| {
                elsewhere += usize::from(cpu != last);
                to_it += usize::from(matches!(e.kind, Kind::Switch { to, .. } if to == tid));
            });
        }
        assert!(to_it >= 20, "{to_it} switches to the task");
        assert_eq!((elsewhere, probe.lost()), (0, 0));
    }

    #[test]
    fn the_stack_of_a_task_that_sleeps_names_its_system_call() {
        let last = colony_node::cpu::usable().expect("linux").iter().last().expect("a CPU");
        let mut probe = match Probe::attach(
            &[last].into_iter().collect(),
            Wanted { stacks: true, ..Wanted::default() },
        ) {
            Ok(p) => p,
            Err(ProbeError::Unavailable(e)) => {
                colony_testing::skip(e);
                return;
            }
            Err(e) => panic!("{e}"),
        };
        probe.start();
        let tid = std::thread::spawn(move || {
            colony_node::cpu::pin(last).expect("usable");
            std::thread::sleep(std::time::Duration::from_millis(1));
            nix::unistd::gettid().as_raw()
        })
        .join()
        .expect("no panic");
        probe.stop();
        let stacks = probe.stacks(last);
        assert!(stacks.is_sorted_by_key(|s| s.at_ns));
        let symbols = match Symbols::of_kernel() {
            Ok(symbols) => symbols,
            Err(e) => {
                colony_testing::skip(e);
                return;
            }
        };
        let of_task = stacks.iter().filter(|s| s.pid == tid && s.kind == StackKind::Left);
        let frames: Vec<Vec<String>> = of_task.map(|s| symbols.names(&s.addresses)).collect();
        let sleeps = |stack: &Vec<String>| stack.iter().any(|f| f.contains("nanosleep"));
        assert!(frames.iter().any(sleeps), "{frames:#?}");
        assert!(frames.iter().flatten().all(|f| !f.contains("bpf_")), "{frames:#?}");
    }

    #[test]
    fn a_task_that_interrupts_a_measured_cpu_is_named_with_the_function_it_calls_there() {
        let cpus: Vec<usize> = colony_node::cpu::usable().expect("linux").iter().collect();
        let [first, .., last] = cpus[..] else {
            colony_testing::skip("needs two CPUs");
            return;
        };
        let mut probe = match Probe::attach(&[last].into_iter().collect(), Wanted::default()) {
            Ok(p) => p,
            Err(ProbeError::Unavailable(e)) => {
                colony_testing::skip(e);
                return;
            }
            Err(e) => panic!("{e}"),
        };
        probe.start();
        colony_node::cpu::pin(first).expect("usable");
        assert_eq!(membarrier(1 << 4), 0, "MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED");
        // a thread of this process that runs on the measured CPU is interrupted by a barrier for the process
        let end = std::sync::atomic::AtomicBool::new(false);
        let seen = std::thread::scope(|threads| {
            threads.spawn(|| {
                let _ = colony_node::cpu::pin(last);
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let seen = sent_by_barriers(&probe);
            end.store(true, Ordering::Relaxed);
            seen
        });
        match seen {
            Ok(()) => {}
            Err(IpiReport { not_known: Some(reason), .. } | IpiReport { no_functions: Some(reason), .. }) => {
                colony_testing::skip(reason);
            }
            Err(report) => panic!("{:#?}", report.senders),
        }
    }

    fn membarrier(command: i32) -> i64 {
        // SAFETY: `membarrier` takes integers and touches no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }

    /// True for a sender that is the calling thread.
    fn is_of_barrier(sender: &crate::attrib::IpiSender) -> bool {
        let function = |name: &Option<String>| {
            name.as_deref().is_some_and(|n| n.contains("membarrier") || n == "ipi_mb")
        };
        sender.pid == nix::unistd::gettid().as_raw()
            && (function(&sender.callsite) || function(&sender.callback))
    }

    /// Barriers until one was seen, for a minute at most: they interrupt the other thread only while it runs, and under load it
    /// may have to wait for its CPU. The error is what was seen instead.
    fn sent_by_barriers(probe: &Probe) -> Result<(), IpiReport> {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while std::time::Instant::now() < end {
            for _ in 0..1000 {
                // MEMBARRIER_CMD_PRIVATE_EXPEDITED
                membarrier(1 << 3);
            }
            let report = probe.ipi_senders();
            if report.senders.iter().any(is_of_barrier) {
                return Ok(());
            }
            if report.not_known.is_some() || report.no_functions.is_some() {
                return Err(report);
            }
        }
        Err(probe.ipi_senders())
    }
}
