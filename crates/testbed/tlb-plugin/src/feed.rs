// SPDX-License-Identifier: MIT OR Apache-2.0
//! What QEMU calls for blocks and accesses, the counters, and the TLBs that it feeds.

use std::cell::UnsafeCell;
use std::ffi::{c_uint, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use colony_tlb::{Bank, Counters, CpuCounters, Setup, Stream};

use crate::qemu::{self, Block, MemoryInfo, PluginId};

/// Bits of a user's address on x86-64; the kernel has the upper half.
const USER_BITS: u32 = 47;
/// No program has code below: it is the place of firmware, boot code and the start of further CPUs.
const FIRST_USER_ADDRESS: u64 = 2 << 20;
/// Bits for the number of instructions of a block, of which QEMU translates 512 at once.
const COUNT_BITS: u32 = 16;

static FEED: OnceLock<Feed> = OnceLock::new();

/// The TLBs of all CPUs, and their counters.
pub(crate) struct Feed {
    cpus: Box<[Cpu]>,
    /// Instructions are fetched through the TLB.
    unified: bool,
    /// Set once a block of a kernel was translated.
    has_kernel: AtomicBool,
}

/// A CPU, and its counters.
struct Cpu {
    state: UnsafeCell<State>,
    counters: CpuCounters<'static>,
}

/// The TLBs of a CPU.
struct State {
    /// Empty if no TLB is modelled.
    bank: Option<Bank>,
    /// True while the CPU runs a block of user code. After a block that a system call or a fault has left, QEMU calls
    /// [`on_access`] for accesses of the kernel as well.
    in_user_code: bool,
}

// SAFETY: `cpus` is the only field that is not `Sync`. QEMU calls a plugin for a virtual CPU on the thread that runs this CPU, and for
// one CPU at a time if one thread runs all of them; so a bank is used by one thread at a time (see `Feed::cpu`).
unsafe impl Sync for Feed {}

impl Feed {
    /// Begins to count into these counters.
    pub(crate) fn install(id: PluginId, setup: Option<&Setup>, counters: Counters) -> Result<(), String> {
        // a plugin stays until the emulator ends
        let counters: &'static Counters = Box::leak(Box::new(counters));
        let cpu = |number: usize| {
            let bank = setup.map(|setup| Bank::new(setup, number as u32));
            let state = State { bank, in_user_code: false };
            counters.cpu(number).map(|counters| Cpu { state: UnsafeCell::new(state), counters })
        };
        let cpus = (0..counters.cpus()).filter_map(cpu).collect();
        let unified = setup.is_some_and(Setup::unified);
        let feed = Self { cpus, unified, has_kernel: AtomicBool::new(false) };
        counters.start();
        FEED.set(feed).map_err(|_| "it is already there: give one -plugin".to_owned())?;
        // SAFETY: `id` is the one that QEMU gave to this plugin, and the function lives as long as the plugin.
        unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation) };
        Ok(())
    }

    /// The state and the counters of a CPU.
    ///
    /// # Safety
    /// Only from a callback of QEMU for this CPU, and no other result for it may be in use.
    #[allow(clippy::mut_from_ref)]
    unsafe fn cpu(&self, cpu: c_uint) -> Option<(&mut State, CpuCounters<'static>)> {
        let cpu = self.cpus.get(cpu as usize)?;
        // SAFETY: the caller is the only one that uses the state of this CPU now.
        Some((unsafe { &mut *cpu.state.get() }, cpu.counters))
    }
}

/// A block of user code as one word, so that nothing is allocated that would have to live as long as the translated code.
fn packed(address: u64, instructions: usize) -> *mut c_void {
    std::ptr::without_provenance_mut((address << COUNT_BITS | instructions as u64) as usize)
}

extern "C" fn on_translation(_: PluginId, block: *mut Block) {
    let Some(feed) = FEED.get() else { return };
    // SAFETY: QEMU passes a block that is valid until this function returns.
    let (address, count) =
        unsafe { (qemu::qemu_plugin_tb_vaddr(block), qemu::qemu_plugin_tb_n_insns(block)) };
    if address >> USER_BITS != 0 {
        feed.has_kernel.store(true, Ordering::Relaxed);
        let none = std::ptr::null_mut();
        // SAFETY: `block` is valid until this function returns, and the function lives as long as the plugin.
        unsafe {
            qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, on_kernel_block, qemu::NO_REGISTERS, none);
        }
        return;
    }
    if address < FIRST_USER_ADDRESS || !feed.has_kernel.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: as above; the functions live as long as the plugin, and the word is a value, which is never followed as a pointer.
    unsafe {
        let word = packed(address, count);
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, qemu::NO_REGISTERS, word);
        for index in 0..count {
            let instruction = qemu::qemu_plugin_tb_get_insn(block, index);
            let (flags, accesses, none) = (qemu::NO_REGISTERS, qemu::READS_AND_WRITES, std::ptr::null_mut());
            qemu::qemu_plugin_register_vcpu_mem_cb(instruction, on_access, flags, accesses, none);
        }
    }
}

extern "C" fn on_block(cpu: c_uint, word: *mut c_void) {
    let Some(feed) = FEED.get() else { return };
    // SAFETY: this is QEMU's callback for this CPU, and the result is gone when it returns.
    let Some((state, counters)) = (unsafe { feed.cpu(cpu) }) else { return };
    state.in_user_code = true;
    let word = word.addr() as u64;
    counters.add_instructions(word & ((1 << COUNT_BITS) - 1));
    if feed.unified
        && let Some(bank) = &mut state.bank
    {
        counters.add_fetch();
        bank.access(Stream::Instructions, word >> COUNT_BITS, |size| counters.add_miss(size));
    }
}

extern "C" fn on_kernel_block(cpu: c_uint, _: *mut c_void) {
    let Some(feed) = FEED.get() else { return };
    // SAFETY: as in `on_block`.
    if let Some((state, _)) = unsafe { feed.cpu(cpu) } {
        state.in_user_code = false;
    }
}

extern "C" fn on_access(cpu: c_uint, access: MemoryInfo, address: u64, _: *mut c_void) {
    let Some(feed) = FEED.get() else { return };
    // SAFETY: as in `on_block`.
    let Some((state, counters)) = (unsafe { feed.cpu(cpu) }) else { return };
    if !state.in_user_code {
        return;
    }
    counters.add_access();
    // SAFETY: both functions only read bits of their argument.
    let (is_store, shift) =
        unsafe { (qemu::qemu_plugin_mem_is_store(access), qemu::qemu_plugin_mem_size_shift(access)) };
    let bytes = 1_u64.wrapping_shl(shift);
    if is_store {
        counters.add_store(bytes);
    }
    if !is_store || qemu::is_both(access) {
        counters.add_load(bytes);
    }
    if let Some(bank) = &mut state.bank {
        bank.access(Stream::Data, address, |size| counters.add_miss(size));
    }
}
