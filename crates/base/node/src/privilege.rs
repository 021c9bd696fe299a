// SPDX-License-Identifier: MIT OR Apache-2.0
//! The privileges of this process.

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

    /// The operations that fail without the missing privileges, and how to get these; one line each.
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

/// Returns `true` if task `tid` may give itself the real-time priority `priority`: it is root's, has `CAP_SYS_NICE`, or a real-time
/// limit (`RLIMIT_RTPRIO`) that allows it. If the kernel does not tell, the answer is no.
#[must_use]
pub fn may_be_real_time(tid: i32, priority: u8) -> bool {
    const SYS_NICE: u64 = 1 << 23;
    let status = crate::read_of_task(tid, "status").unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name));
    let effective_uid = field("Uid:").and_then(|u| u.split_whitespace().nth(1));
    if effective_uid == Some("0") {
        return true;
    }
    // the root of a user namespace has every capability there, and none here
    let namespace = |tid: &str| std::fs::read_link(format!("/proc/{tid}/ns/user")).ok();
    let capabilities = field("CapEff:").and_then(|c| u64::from_str_radix(c.trim(), 16).ok());
    if capabilities.is_some_and(|c| c & SYS_NICE != 0)
        && namespace("self").is_some_and(|own| namespace(&tid.to_string()) == Some(own))
    {
        return true;
    }
    let limits = crate::read_of_task(tid, "limits").unwrap_or_default();
    let limit = limits.lines().find_map(|l| l.strip_prefix("Max realtime priority"));
    let soft = limit.and_then(|l| l.split_whitespace().next());
    soft.is_some_and(|l| l == "unlimited" || l.parse().is_ok_and(|l: u64| l >= u64::from(priority)))
}

/// Returns `true` if `/proc` shows a process to its user and to those with `CAP_SYS_PTRACE` only (`hidepid`, proc(5)).
#[must_use]
pub fn processes_are_hidden() -> bool {
    // without the file, nothing hides anything
    hides_processes(&std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

fn hides_processes(mountinfo: &str) -> bool {
    let options = mountinfo.lines().rev().find_map(|l| l.split_once(" /proc ").map(|(_, rest)| rest));
    let hidden = |o: &str| o.strip_prefix("hidepid=").is_some_and(|v| v != "0" && v != "off");
    options.is_some_and(|o| o.split([' ', ',']).any(hidden))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_that_hides_processes_is_known_by_its_options() {
        for (options, hidden) in [
            ("rw,relatime", false),
            ("rw,hidepid=0", false),
            ("rw,gid=4,hidepid=invisible", true),
            ("rw,hidepid=2", true),
        ] {
            let line =
                format!("1 2 0:3 / / rw - ext4 a rw\n4 5 0:6 / /proc rw,nosuid - proc proc {options}\n");
            assert_eq!(hides_processes(&line), hidden, "{options}");
        }
    }
    use std::os::unix::process::CommandExt;

    #[test]
    fn real_time_is_for_root_and_for_those_with_a_limit() {
        if !nix::unistd::geteuid().is_root() {
            return colony_testing::skip("other users' processes need root");
        }
        let sleep = |user: u32, limit: &str| {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &format!("ulimit -r {limit}; echo; exec sleep 60")]);
            let mut child = command.uid(user).stdout(std::process::Stdio::piped()).spawn().expect("sh");
            let mut line = [0];
            std::io::Read::read_exact(child.stdout.as_mut().expect("piped"), &mut line).expect("said");
            child
        };
        for (user, limit, may) in [(0, "0", true), (65534, "0", false)] {
            let mut child = sleep(user, limit);
            assert_eq!(may_be_real_time(child.id().cast_signed(), 50), may, "user {user}, limit {limit}");
            child.kill().and_then(|()| child.wait()).expect("ours");
        }
        assert!(!may_be_real_time(i32::MAX, 1));
    }
}
