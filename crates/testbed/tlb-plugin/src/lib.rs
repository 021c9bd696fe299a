// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plugin of QEMU's emulation that counts instructions and accesses of user code, and feeds a modelled TLB with their addresses.
//!
//! `-plugin FILE,counters=FILE,entries=62,replacement=round-robin,pages=12:16:24,unified=true`: see [`colony_tlb::Setup::words`], without
//! which there is no TLB. The file of the counters is made by the process that starts QEMU.
//!
//! A plugin is not told the privilege level, so user code is told from other code by its address: it is below the kernel's half of
//! the addresses, not in the first 2 MiB, and does not run before the kernel. Firmware, boot code and the start of further CPUs
//! do not count.

mod feed;
mod qemu;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::sync::atomic::AtomicI32;

use colony_tlb::{Counters, Setup};

use feed::Feed;
use qemu::{Info, PluginId};

/// The version of the interface that QEMU reads before it calls [`qemu_plugin_install`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when QEMU loads the plugin, before it reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = {
    extern "C" fn choose() {
        qemu_plugin_version.store(qemu::version(), std::sync::atomic::Ordering::Relaxed);
    }
    choose
};

/// Called once by QEMU with the words of the command line. A result other than 0 ends QEMU.
///
/// # Safety
/// As QEMU calls it: `info` points to its description of itself, and `argv` to `argc` strings with a terminator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const c_void,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller passes a valid description, which is only read here.
    let info = unsafe { &*info.cast::<Info>() };
    let words: Vec<String> = (0..usize::try_from(argc).unwrap_or(0))
        .map(|n| {
            // SAFETY: the caller passes `argc` pointers to strings with a terminator.
            unsafe { CStr::from_ptr(*argv.add(n)) }.to_string_lossy().into_owned()
        })
        .collect();
    match install(id, info, &words) {
        Ok(()) => 0,
        Err(reason) => {
            eprintln!("the plugin that counts does not start: {reason}");
            -1
        }
    }
}

fn install(id: PluginId, info: &Info, words: &[String]) -> Result<(), String> {
    let counters = words.iter().find_map(|word| word.strip_prefix("counters="));
    let counters = counters.ok_or("it was given no file for counters (counters=FILE)")?;
    let others = || words.iter().map(String::as_str).filter(|word| !word.starts_with("counters="));
    let has_tlb = others().next().is_some();
    let setup = has_tlb.then(|| Setup::from_words(others())).transpose().map_err(|e| e.to_string())?;
    let file = OpenOptions::new().read(true).write(true).open(counters);
    let mapped = file.and_then(|file| Counters::map(&file)).map_err(|e| format!("{counters}: {e}"))?;
    let room = mapped.cpus();
    // CPUs that are there; a machine can have room for more that never run
    let cpus = if info.system_emulation { usize::try_from(info.smp_vcpus).unwrap_or(0) } else { room };
    if cpus > room {
        return Err(format!("{counters} has room for {room} CPUs, and this machine has {cpus}"));
    }
    Feed::install(id, setup.as_ref(), mapped)
}
