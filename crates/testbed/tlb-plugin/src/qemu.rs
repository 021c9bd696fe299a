// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of QEMU's plugin interface that is used, from `qemu-plugin.h`, which no package of Debian has.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `qemu_plugin_id_t`.
pub(crate) type PluginId = u64;
/// `qemu_plugin_meminfo_t`.
pub(crate) type MemoryInfo = u32;

/// `struct qemu_plugin_tb`: a block of instructions that QEMU is about to translate.
#[repr(C)]
pub(crate) struct Block {
    _opaque: [u8; 0],
}

/// `struct qemu_plugin_insn`.
#[repr(C)]
pub(crate) struct Instruction {
    _opaque: [u8; 0],
}

/// `qemu_info_t`, the same in versions 1 to 4 of the interface.
#[repr(C)]
pub(crate) struct Info {
    _target_name: *const c_char,
    _version: [c_int; 2],
    pub(crate) system_emulation: bool,
    /// Valid in system emulation only.
    pub(crate) smp_vcpus: c_int,
    /// As `smp_vcpus`.
    pub(crate) max_vcpus: c_int,
}

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`.
pub(crate) const READS_AND_WRITES: c_int = 3;

pub(crate) type OnTranslation = extern "C" fn(PluginId, *mut Block);
pub(crate) type OnBlock = extern "C" fn(c_uint, *mut c_void);
pub(crate) type OnAccess = extern "C" fn(c_uint, MemoryInfo, u64, *mut c_void);

// functions of versions 1 to 4, which the emulator has itself
unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: OnTranslation);
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: OnBlock,
        flags: c_int,
        user: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: OnAccess,
        flags: c_int,
        accesses: c_int,
        user: *mut c_void,
    );
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub(crate) fn qemu_plugin_tb_vaddr(block: *const Block) -> u64;
    pub(crate) fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub(crate) fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> c_uint;
}

/// Returns `true` for an atomic operation, which reads and writes at once. The interface calls it a store, and QEMU 7.2 calls functions
/// for reads alone at the wrong accesses. So this reads QEMU's own bits (`get_plugin_meminfo_rw`). A QEMU that reports a read and a write
/// instead sets one of them.
pub(crate) const fn is_both(access: MemoryInfo) -> bool {
    (access >> 16) & READS_AND_WRITES as u32 == READS_AND_WRITES as u32
}

/// The newest version of the interface that this QEMU and this plugin both know: 2 (QEMU 9.0 to 10), or 1 (QEMU 7.2 and 8).
pub(crate) fn version() -> c_int {
    // SAFETY: the name is a string with a terminator, and the symbol is not called. It came with version 2, which ended version 1.
    let of_version_2 = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_scoreboard_new".as_ptr()) };
    if of_version_2.is_null() { 1 } else { 2 }
}
