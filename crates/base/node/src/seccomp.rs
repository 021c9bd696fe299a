// SPDX-License-Identifier: MIT OR Apache-2.0
//! Filters of system calls (seccomp). A filter holds for the calling thread and all threads and programs that it starts, for good.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

/// Added to the number of a system call by programs that use 32-bit pointers on a 64-bit kernel (x32).
const X32: c_long = 0x4000_0000;

/// A system call with the conditions on its arguments; without any, every call of this number matches.
type Call = (c_long, Vec<SeccompRule>);

/// Allows these system calls, and lets all others fail with the error number `refused`.
///
/// # Errors
/// If the kernel has no seccomp filters.
pub fn allow_only(calls: impl IntoIterator<Item = c_long>, refused: i32) -> io::Result<()> {
    let calls = calls.into_iter().map(|call| (call, Vec::new())).collect();
    install(calls, SeccompAction::Errno(refused.unsigned_abs()), SeccompAction::Allow)
}

/// Lets these system calls fail with the error number `refused`, also in their x32 variants, and allows all others.
///
/// # Errors
/// As [`allow_only`].
pub fn refuse(calls: impl IntoIterator<Item = c_long>, refused: i32) -> io::Result<()> {
    refuse_if(calls.into_iter().map(|call| (call, Vec::new())), refused)
}

/// Lets `clone` with any of these flags fail with `EPERM`, and `clone3` with `ENOSYS`: a filter cannot see the flags of `clone3`, and
/// the C library calls `clone` if there is no `clone3`.
///
/// # Errors
/// As [`allow_only`].
pub fn refuse_clone_flags(flags: &[i32]) -> io::Result<()> {
    refuse([libc::SYS_clone3], libc::ENOSYS)?;
    let rule = |flag: &i32| {
        let flag = u64::from(flag.cast_unsigned());
        let is_set = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![is_set])
    };
    let rules = flags.iter().map(rule).collect::<Result<Vec<_>, _>>().map_err(io::Error::other)?;
    refuse_if([(libc::SYS_clone, rules)], libc::EPERM)
}

fn refuse_if(calls: impl IntoIterator<Item = Call>, refused: i32) -> io::Result<()> {
    let both = |(call, rules): Call| [(call, rules.clone()), (call | X32, rules)];
    let calls = calls.into_iter().flat_map(both).collect();
    install(calls, SeccompAction::Allow, SeccompAction::Errno(refused.unsigned_abs()))
}

fn install(
    calls: BTreeMap<c_long, Vec<SeccompRule>>,
    others: SeccompAction,
    named: SeccompAction,
) -> io::Result<()> {
    let program: BpfProgram = SeccompFilter::new(calls, others, named, TargetArch::x86_64)
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}
