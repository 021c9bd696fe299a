// SPDX-License-Identifier: MIT OR Apache-2.0
//! The other CPUs, which are started one after another.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release};

use super::{apic, ops, phys};
use cnk_logic::clock::Rate;
use spin::Once;

/// Page where a CPU starts.
pub const TRAMPOLINE: u64 = 0x8000;

/// States of the CPU that is started (`started_cpu` in `start.s`): the first CPU waits for it.
const AWAITED: u32 = 0;
/// It is on its way to the kernel, and needs the addresses of the start.
pub const ARRIVED: u32 = 1;
/// The first CPU goes on without it and those behind it. It halts where it is.
const TOO_LATE: u32 = 2;

/// Time that the first CPU waits for another: on a crowded host the thread of a virtual CPU may wait for seconds.
pub const TIMEOUT_NS: u64 = 10_000_000_000;

/// Numbers of the interrupt controllers of the CPUs that run.
static APICS: [Once<u32>; super::CPUS] = [const { Once::new() }; super::CPUS];

unsafe extern "C" {
    static trampoline: u8;
    static trampoline_end: u8;
    static started_cpu: u8;
    static started_number: u8;
}

/// See [`AWAITED`], and the number that the CPU gets.
fn started() -> [&'static AtomicU32; 2] {
    // SAFETY: aligned words of the boot part, which is in the direct map for good and only used by atomic accesses.
    unsafe { [&raw const started_cpu, &raw const started_number].map(|word| &*phys::at(word as u64)) }
}

/// Tells that this CPU runs.
pub fn arrived(cpu: usize) {
    APICS[cpu].call_once(apic::id);
}

/// Number of a CPU's interrupt controller.
pub fn apic_of(cpu: usize) -> Option<u32> {
    APICS.get(cpu)?.get().copied()
}

/// Starts the CPUs that the firmware's tables at `rsdp` name; how many CPUs run then. A CPU that has not come within
/// `timeout_ns` never will; with 0 it is late whenever it comes.
pub fn start(rsdp: u64, rate: Rate, timeout_ns: u64) -> usize {
    let own = apic::id();
    let (from, end) = (&raw const trampoline as u64, &raw const trampoline_end as u64);
    for n in 0..end - from {
        // SAFETY: the code is there, in the boot part; the page below 1 MiB is nobody's.
        unsafe { phys::write::<u8>(TRAMPOLINE + n, phys::read(from + n)) };
    }
    let all = 1..super::CPUS;
    let comes =
        |&cpu: &usize| other_apic(rsdp, own, cpu).is_some_and(|apic| start_one(cpu, apic, rate, timeout_ns));
    1 + all.take_while(comes).count()
}

fn start_one(cpu: usize, apic: u32, rate: Rate, timeout_ns: u64) -> bool {
    let [state, number] = started();
    number.store(cpu as u32, Release);
    state.store(if timeout_ns == 0 { TOO_LATE } else { AWAITED }, Release);
    apic::send(apic, apic::INIT);
    pause(rate, 20_000, || false);
    // the second message is for processors that have missed the first
    for wait_ns in [timeout_ns.min(1_000_000), timeout_ns] {
        apic::send(apic, apic::START | (TRAMPOLINE >> 12) as u32);
        if pause(rate, wait_ns, || apic_of(cpu).is_some()) {
            return true;
        }
    }
    if state.compare_exchange(AWAITED, TOO_LATE, AcqRel, Acquire) != Err(ARRIVED) {
        return false;
    }
    // it is on its way: the addresses that it needs are not taken from it
    while apic_of(cpu).is_none() {
        core::hint::spin_loop();
    }
    true
}

fn pause(rate: Rate, ns: u64, done: impl Fn() -> bool) -> bool {
    let start = ops::tsc();
    while rate.ns(ops::tsc().wrapping_sub(start)) < ns {
        if done() {
            return true;
        }
        core::hint::spin_loop();
    }
    done()
}

/// Reads the firmware's tables; an address that the kernel has not mapped reads as zero.
fn firmware<T: Copy + Default>(at: u64) -> T {
    if at == 0 || at + size_of::<T>() as u64 > 1 << 30 {
        return T::default();
    }
    // SAFETY: in the first GiB, which is mapped; nobody writes there.
    unsafe { phys::at::<T>(at).read_unaligned() }
}

/// Of the usable CPUs other than `own` in the table `APIC` (ACPI specification, 5.2.12), number `cpu` from 1 on.
fn other_apic(rsdp: u64, own: u32, cpu: usize) -> Option<u32> {
    let (root, entry) = match firmware::<u64>(rsdp + 24) {
        wide if wide != 0 && firmware::<u8>(rsdp + 15) >= 2 => (wide, 8),
        _ => (u64::from(firmware::<u32>(rsdp + 16)), 4),
    };
    let length = u64::from(firmware::<u32>(root + 4)).min(4096);
    let table = (36..length).step_by(entry).map(|at| match entry {
        8 => firmware::<u64>(root + at),
        _ => u64::from(firmware::<u32>(root + at)),
    });
    let madt = { table }.find(|&t| firmware::<u32>(t) == u32::from_le_bytes(*b"APIC"))?;
    let end = u64::from(firmware::<u32>(madt + 4)).min(4096);
    let (mut at, mut found) = (44, 0);
    while at + 8 <= end {
        let (kind, size) = (firmware::<u8>(madt + at), firmware::<u8>(madt + at + 1));
        let (id, usable) =
            (u32::from(firmware::<u8>(madt + at + 3)), firmware::<u32>(madt + at + 4) & 1 != 0);
        if kind == 0 && usable && id != own {
            found += 1;
            if found == cpu {
                return Some(id);
            }
        }
        at += u64::from(size.max(2));
    }
    None
}
