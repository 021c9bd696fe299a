// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scheduler in the kernel as this process sees it: its programs, its maps, and the types of `bpf/scx_state.h`.
//!
//! All of it is generated from the type information of the compiled object. Sizes of tables are those of the generated
//! types.

use colony_bpf::Plain;

pub(super) use generated::*;

#[allow(missing_docs, unreachable_pub, clippy::all, clippy::undocumented_unsafe_blocks, clippy::unwrap_used)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/scx_colony.skel.rs"));
}

/// The size of an array that is a field.
const fn room<S, T, const N: usize>(_: fn(&S) -> &[T; N]) -> usize {
    N
}

/// Names that can be exempt.
pub(super) const MAX_NAMES: usize = room(|r: &types::rodata| &r.exempt_names);
/// Cgroups that can be exempt.
pub(super) const MAX_EXEMPT_GROUPS: usize = room(|r: &types::rodata| &r.exempt_groups);
/// Cgroups that can be the job's.
pub(super) const MAX_JOB_GROUPS: usize = room(|r: &types::rodata| &r.job_groups);
/// CPUs there is room for: a bit each.
pub(super) const MAX_CPUS: usize = room(|r: &types::rodata| &r.job_cpus) * 64;
const _: () = assert!(MAX_CPUS == colony_node::cpu::CpuSet::LIMIT);

// SAFETY: integers and pointers that are never followed; padding is fields.
unsafe impl Plain for types::cpu {}
// SAFETY: integers without padding.
unsafe impl Plain for types::deferred {}
// SAFETY: an integer.
unsafe impl Plain for types::start_args {}
// SAFETY: integers without padding.
unsafe impl Plain for types::mark_args {}
