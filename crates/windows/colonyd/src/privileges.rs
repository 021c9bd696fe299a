// SPDX-License-Identifier: MIT OR Apache-2.0
//! Giving up privileges that are not needed any more.

use caps::errors::CapsError;
use caps::{CapSet, Capability};
use colony_node::privilege::processes_are_hidden;

/// The privileges to schedule other users' tasks: real-time classes, the scheduler in the kernel where it is wanted, and,
/// where `/proc` is mounted with `hidepid`, seeing them at all.
pub(crate) fn to_schedule(in_kernel: bool) -> Vec<Capability> {
    let mut needed = vec![Capability::CAP_SYS_NICE];
    if in_kernel {
        needed.extend([Capability::CAP_BPF, Capability::CAP_PERFMON]);
    }
    if processes_are_hidden() {
        needed.push(Capability::CAP_SYS_PTRACE);
    }
    needed
}

/// Lets the agent lock its memory when the privilege to do so without limit is gone. Where the limit cannot be
/// raised, the agent says what that costs.
pub(crate) fn allow_locked_memory() {
    use nix::sys::resource::{RLIM_INFINITY, Resource, setrlimit};
    if let Err(e) = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY) {
        tracing::debug!("the limit of locked memory stays: {e}");
    }
}

/// Gives up every capability of the calling thread (and of threads and programs it starts) but `kept`, for
/// good: programs with other privileges in their files do not bring them back.
///
/// # Errors
/// The kernel refused; some may be given up already.
pub(crate) fn keep_only(kept: &[Capability]) -> Result<(), CapsError> {
    // a program started by root would get them all again otherwise
    nix::sys::prctl::set_no_new_privs().map_err(|e| CapsError::from(format!("no_new_privs: {e}")))?;
    let now = caps::read(None, CapSet::Permitted)?;
    if now.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::read(None, CapSet::Bounding)? {
            if !kept.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    let kept = kept.iter().copied().filter(|c| now.contains(c)).collect();
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, &kept)?;
    caps::set(None, CapSet::Permitted, &kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_kept_remains() {
        std::thread::spawn(|| {
            let had = caps::has_cap(None, CapSet::Permitted, Capability::CAP_SYS_NICE).expect("readable");
            keep_only(&[Capability::CAP_SYS_NICE]).expect("giving up is always allowed");
            for set in [CapSet::Permitted, CapSet::Effective] {
                let left = caps::read(None, set).expect("readable");
                assert_eq!(left.len(), usize::from(had), "{left:?}");
            }
            assert!(nix::sys::prctl::get_no_new_privs().expect("readable"));
        })
        .join()
        .expect("no panic");
    }
}
