// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading BPF objects.

use std::mem::MaybeUninit;

use libbpf_rs::{OpenObject, PrintLevel};

/// The reason for which BPF programs cannot be used on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// The process lacks the capabilities.
    #[error(
        "BPF needs root, or CAP_BPF and CAP_PERFMON (sudo setcap cap_bpf,cap_perfmon,cap_sys_nice+ep colony)"
    )]
    Privilege,
    /// The kernel has no type information of its own.
    #[error(
        "this kernel has no /sys/kernel/btf/vmlinux (CONFIG_DEBUG_INFO_BTF); BPF programs cannot be fitted to it"
    )]
    NoBtf,
}

/// A place for an object to be opened in. From here on libbpf's messages, which go to standard error by default, are
/// debug events: the errors of Colony say what matters.
///
/// A skeleton borrows this pointer-sized place for as long as it lives; it is not worth a self-referential struct to
/// get eight bytes back.
#[must_use]
pub fn place() -> &'static mut MaybeUninit<OpenObject> {
    libbpf_rs::set_print(Some((PrintLevel::Debug, |_, text| tracing::debug!("{}", text.trim_end()))));
    Box::leak(Box::new(MaybeUninit::uninit()))
}

/// A type of a skeleton (`types::…`), as values of maps and arguments of programs have it.
///
/// # Safety
/// Any bytes are a value of the type, and every byte of a value is initialised: the type has no padding but fields.
pub unsafe trait Plain: Copy {}

/// A value of a map; `None` if it is too short, so of another object than the skeleton's.
#[must_use]
pub fn read<T: Plain>(value: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes, and any are a value of the type.
    (value.len() >= size_of::<T>()).then(|| unsafe { value.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of a value, for a map or as the argument of a program.
pub fn bytes_of<T: Plain>(value: &mut T) -> &mut [u8] {
    // SAFETY: as many bytes, all initialised, borrowed as long and as exclusively; whatever is written is a value.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(value).cast::<u8>(), size_of::<T>()) }
}

/// Checks that BPF programs can be loaded here, as far as that is possible without loading one.
///
/// # Errors
/// [`Unavailable`] says what is missing.
pub fn check() -> Result<(), Unavailable> {
    if !std::path::Path::new("/sys/kernel/btf/vmlinux").exists() {
        return Err(Unavailable::NoBtf);
    }
    if !colony_node::privilege::Privileges::here().bpf {
        return Err(Unavailable::Privilege);
    }
    Ok(())
}
