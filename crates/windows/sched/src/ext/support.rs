// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conditions under which this kernel can run the scheduler.

use std::ffi::OsStr;
use std::path::Path;

use libbpf_rs::Btf;
use libbpf_rs::btf::types::{Enum, Enum64, Func, FuncProto};

use super::error::ExtError;

const DIRECTORY: &str = "/sys/kernel/sched_ext";

/// Checks that the scheduler could start here now, as far as that is possible without loading it.
///
/// # Errors
/// [`ExtError`] says what is missing, or which other scheduler is loaded.
pub fn check() -> Result<(), ExtError> {
    if !exists() {
        return Err(ExtError::Kernel);
    }
    colony_bpf::check()?;
    match active() {
        Some(name) => Err(ExtError::Taken(name)),
        None => Ok(()),
    }
}

/// Returns `true` if this kernel has sched_ext.
#[must_use]
pub fn exists() -> bool {
    Path::new(DIRECTORY).exists()
}

/// The name of the sched_ext scheduler that is loaded, if one is.
#[must_use]
pub fn active() -> Option<String> {
    if read("state")? == "disabled" {
        return None;
    }
    Some(read("root/ops").unwrap_or_else(|| "unnamed".into()))
}

/// Returns `true` if the kernel is ending a scheduler: it then runs every task in turn, and ignores the scheduler.
pub(super) fn ending() -> bool {
    read("state").is_some_and(|state| state == "disabling")
}

fn read(file: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("{DIRECTORY}/{file}")).ok()?;
    Some(text.trim().to_owned())
}

/// Returns `true` if the kernel's type information is complete: since 7.1 a function with hidden arguments is described twice, by
/// what a program passes and, as `…_impl`, by what it takes. Some builds lack the second for some functions, and then
/// refuse every scheduler that calls them.
pub(super) fn check_types(kernel: &Btf<'_>) -> Result<(), ExtError> {
    let arguments = |name: &str| {
        let function = kernel.type_by_name::<Func<'_>>(name)?;
        FuncProto::try_from(function.next_type()?).ok().map(|proto| proto.len())
    };
    // the queue's number and its memory node; a third one is the hidden one
    let hidden = arguments("scx_bpf_create_dsq").is_some_and(|n| n > 2);
    if hidden && arguments("scx_bpf_create_dsq_impl").is_none() {
        return Err(ExtError::TypeInformation);
    }
    Ok(())
}

/// The operations' flags (`enum scx_ops_flags`) that the kernel knows, of those wanted, as one word.
pub(super) fn known_flags(kernel: &Btf<'_>, wanted: &[&str]) -> u64 {
    let wanted = |name: Option<&OsStr>| name.and_then(OsStr::to_str).is_some_and(|n| wanted.contains(&n));
    // 64 bits wide where one of them needs more than 32
    if let Some(flags) = kernel.type_by_name::<Enum64<'_>>("scx_ops_flags") {
        return flags.iter().filter(|m| wanted(m.name)).fold(0, |all, m| all | m.value as u64);
    }
    let flags = kernel.type_by_name::<Enum<'_>>("scx_ops_flags");
    flags.map_or(0, |flags| flags.iter().filter(|m| wanted(m.name)).fold(0, |all, m| all | m.value as u64))
}
