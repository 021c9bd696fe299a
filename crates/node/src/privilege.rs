//! What this process may do to the node.

use caps::{CapSet, Capability};

/// The privileges Colony can use, each for a purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Privileges {
    /// Real-time classes and other users' tasks (`CAP_SYS_NICE`, or a real-time limit for own tasks).
    pub real_time: bool,
    /// BPF programs on tracepoints: attribution and the proof of windows (`CAP_BPF` and `CAP_PERFMON`).
    pub bpf: bool,
    /// Mounts, so that `colonyd` can show its file tree (`CAP_SYS_ADMIN`).
    pub mount: bool,
}

impl Privileges {
    /// The privileges of the calling thread.
    #[must_use]
    pub fn here() -> Self {
        let has = |c| caps::has_cap(None, CapSet::Effective, c).unwrap_or(false);
        let admin = has(Capability::CAP_SYS_ADMIN);
        let rtprio = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_RTPRIO);
        Self {
            real_time: has(Capability::CAP_SYS_NICE) || rtprio.is_ok_and(|(soft, _)| soft > 0),
            bpf: admin || (has(Capability::CAP_BPF) && has(Capability::CAP_PERFMON)),
            mount: admin,
        }
    }

    /// What cannot be done without the missing ones, and how to get them; a line each.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        [
            (
                self.bpf,
                "detours stay unexplained: attribution needs root, or CAP_BPF and CAP_PERFMON \
                 (sudo setcap cap_bpf,cap_perfmon,cap_sys_nice+ep colony)",
            ),
            (
                self.real_time,
                "no real-time classes, so no coordinated scheduling and no SCHED_FIFO observer: needs \
                 root, CAP_SYS_NICE, or a real-time limit (ulimit -r 90)",
            ),
        ]
        .into_iter()
        .filter_map(|(there, text)| (!there).then_some(text))
        .collect()
    }
}
