// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the first instructions to Rust, and from the entry code to what handles it.

use super::console::{self, Serial};
use super::window::Memory;
use super::{CPUS, apic, fpu, ops, phys, smp, tables};

/// The loader's description of the machine (PVH, `hvm_start_info`).
#[derive(Clone, Copy)]
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules_len: u32,
    modules: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_len: u32,
    reserved: u32,
}

/// An entry of its map of memory.
#[derive(Clone, Copy)]
#[repr(C)]
struct Area {
    first: u64,
    length: u64,
    kind: u32,
    reserved: u32,
}

/// Parameters of the start.
#[derive(Clone, Copy, Debug)]
pub struct Boot {
    /// Address of the firmware's tables.
    pub rsdp: u64,
    /// Bytes that the kernel takes.
    pub resident: u64,
    /// `hasty` is on the command line: the kernel does not wait for the second CPU, which is then late.
    pub hasty: bool,
    /// End of the memory that begins with the kernel; 0 where nobody tells.
    memory_end: u64,
}

/// First address of a window of the node's own: behind the kernel, and behind memory of the firmware.
const OWN_WINDOW_AT: u64 = 16 << 20;

impl Boot {
    /// The largest window that fits in the node's own memory.
    pub fn own_window(&self) -> Memory {
        let room = self.memory_end.saturating_sub(OWN_WINDOW_AT);
        let size = room.checked_ilog2().map_or(0, |log| 1 << log);
        Memory { physical: OWN_WINDOW_AT, size, shared: false }
    }
}

unsafe extern "C" {
    static __text_end: u8;
    static __data_end: u8;
    static __boot_start: u8;
    static __boot_end: u8;
}

/// Bytes of code, data and the boot part.
fn resident() -> u64 {
    let (text, data) = (&raw const __text_end as u64, &raw const __data_end as u64);
    let boot = &raw const __boot_end as u64 - &raw const __boot_start as u64;
    (text - 0xffff_ffff_8020_0000) + (data - 0xffff_ffff_8040_0000) + boot
}

/// Prepares a CPU, which has just come from `start.s`. On CPU 0, the node is to be brought up with what this returns.
pub fn cpu_started(cpu: usize, info: u64) -> Option<Boot> {
    assert!(cpu < CPUS);
    // SAFETY: the first thing on this CPU, once.
    unsafe { tables::start(cpu) };
    let features = ops::cpuid(7, 0).ebx;
    // SMEP and SMAP: the kernel never runs or reads what is at the user's addresses
    let protection = u64::from(features >> 7 & 1) << 20 | u64::from(features >> 20 & 1) << 21;
    // SAFETY: the processor has them by CPUID; the kernel reaches the user's memory by addresses of its own.
    unsafe { ops::set_cr4(protection) };
    fpu::start();
    apic::enable();
    apic::start();
    smp::arrived(cpu);
    if cpu > 0 {
        return None;
    }
    // SAFETY: the loader has left it in the first GiB.
    let info: StartInfo = unsafe { phys::read(info) };
    assert_eq!(info.magic, 0x336e_c578, "not started by PVH");
    let line = command_line(info.command_line);
    let mut words = line.split(|&byte| byte == 0).next().unwrap_or_default().split(|&byte| byte == b' ');
    console::start(words.clone().any(|word| word == b"debug"));
    Some(Boot {
        rsdp: info.rsdp,
        resident: resident(),
        hasty: words.any(|word| word == b"hasty"),
        memory_end: memory_end(&info),
    })
}

/// The end of the memory that the kernel is in.
fn memory_end(info: &StartInfo) -> u64 {
    const USABLE: u32 = 1;
    const KERNEL_AT: u64 = 0x10_0000;
    if info.version < 1 || info.memory_map == 0 {
        return 0;
    }
    let areas = (0..u64::from(info.memory_map_len.min(128))).map(|n| {
        // SAFETY: the loader has left the map in the first GiB.
        unsafe { phys::read::<Area>(info.memory_map + n * size_of::<Area>() as u64) }
    });
    let own = |a: &Area| a.kind == USABLE && a.first <= KERNEL_AT && KERNEL_AT - a.first < a.length;
    { areas }.find(own).map_or(0, |a| a.first + a.length)
}

/// The beginning of the command line at a physical address; none at 0.
fn command_line(at: u64) -> [u8; 256] {
    // SAFETY: the loader has left a string in the first GiB, where something can be read behind it, too.
    if at == 0 { [0; 256] } else { unsafe { phys::at::<[u8; 256]>(at).read() } }
}

/// Makes the functions that the entry code calls (`start.s`, `entry.s`) from safe ones of the rest of the kernel:
///
/// * `boot(&Boot)` brings the node up, on CPU 0;
/// * `idle(cpu) -> !` runs on a CPU without a process, after the start and after `context::leave`;
/// * `call(cpu, &mut Context) -> bool` does a system call that is not quick, and returns whether all registers are to be
///   restored as they are in the context;
/// * `trap(cpu, &mut Context)` handles an exception or an interrupt.
macro_rules! entry_points {
    (boot: $boot:path, idle: $idle:path, call: $call:path, trap: $trap:path $(,)?) => {
        /// Both CPUs come here from `start.s`.
        #[unsafe(no_mangle)]
        extern "C" fn kernel_start(cpu: usize, info: u64) -> ! {
            if let Some(boot) = $crate::machine::start::cpu_started(cpu, info) {
                $boot(&boot);
            }
            // the stack begins anew
            $crate::machine::context::leave(cpu)
        }

        #[unsafe(no_mangle)]
        extern "C" fn cpu_loop(cpu: usize) -> ! {
            $idle(cpu)
        }

        #[unsafe(no_mangle)]
        extern "C" fn syscall_dispatch(cpu: usize, context: &mut $crate::machine::context::Context) -> bool {
            $call(cpu, context)
        }

        #[unsafe(no_mangle)]
        extern "C" fn trap_dispatch(cpu: usize, context: &mut $crate::machine::context::Context) {
            $trap(cpu, context);
        }
    };
}

pub(crate) use entry_points;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    use core::fmt::Write as _;
    let _ = writeln!(Serial, "cnk: {info}");
    ops::stop()
}
