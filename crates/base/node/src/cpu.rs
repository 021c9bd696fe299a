// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sets of CPUs, and where a thread may run.

use std::{collections::BTreeSet, fmt, str::FromStr};

use nix::sched::{CpuSet as Mask, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::NodeError;

/// A set of CPU numbers; reads and prints as the kernel's lists do (`0-3,5`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CpuSet(BTreeSet<usize>);

impl CpuSet {
    /// The largest CPU number a list may name (exclusive), as in the kernel's own masks.
    pub const LIMIT: usize = Mask::count();

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    /// Returns `true` if `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// The number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<usize> {
        self.0.first().copied()
    }

    /// The set in a sentence: `CPU 1`, `CPUs 1,3`, `no CPU`.
    #[must_use]
    pub fn named(&self) -> String {
        match self.len() {
            0 => "no CPU".into(),
            1 => format!("CPU {self}"),
            _ => format!("CPUs {self}"),
        }
    }

    /// The verb behind [`named`](Self::named): `is` of one CPU, `are` of several.
    #[must_use]
    pub fn is_or_are(&self) -> &'static str {
        if self.len() == 1 { "is" } else { "are" }
    }

    /// CPUs of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.0.difference(&other.0).copied().collect()
    }

    /// CPUs in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.0.intersection(&other.0).copied().collect()
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = NodeError;

    fn from_str(text: &str) -> Result<Self, NodeError> {
        let error = |reason| NodeError::CpuList { text: text.chars().take(80).collect(), reason };
        let number = |s: &str| match s.trim().parse::<usize>() {
            Ok(n) if n < Self::LIMIT => Ok(n),
            Ok(_) => Err(error("a CPU number is too large")),
            Err(_) => Err(error("a part of it is no number")),
        };
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|p| !p.trim().is_empty()) {
            let (a, b) = part.split_once('-').unwrap_or((part, part));
            let (a, b) = (number(a)?, number(b)?);
            if b < a {
                return Err(error("a range runs backwards"));
            }
            cpus.extend(a..=b);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if_eq(&(last + 1)) {
                last = next;
            }
            if last == first {
                write!(f, "{comma}{first}")?
            } else {
                write!(f, "{comma}{first}-{last}")?
            }
            comma = ",";
        }
        Ok(())
    }
}

impl From<CpuSet> for String {
    fn from(set: CpuSet) -> Self {
        set.to_string()
    }
}

impl TryFrom<String> for CpuSet {
    type Error = NodeError;
    fn try_from(text: String) -> Result<Self, NodeError> {
        text.parse()
    }
}

/// CPUs that are online.
///
/// # Errors
/// [`NodeError::Read`] where `/sys` is not there.
pub fn online() -> Result<CpuSet, NodeError> {
    crate::read("/sys/devices/system/cpu/online")?.parse()
}

/// CPUs the boot command line took out of the scheduler's balancing (`isolcpus=`).
#[must_use]
pub fn isolated() -> CpuSet {
    crate::read("/sys/devices/system/cpu/isolated").ok().and_then(|s| s.parse().ok()).unwrap_or_default()
}

/// CPUs the task `tid` may run on; `0` is the calling thread.
///
/// # Errors
/// [`NodeError::System`] where the task is gone.
pub fn affinity(tid: i32) -> Result<CpuSet, NodeError> {
    let mask = sched_getaffinity(Pid::from_raw(tid)).map_err(|e| NodeError::System {
        what: format!("asking for the CPUs of task {tid}"),
        source: e.into(),
        hint: None,
    })?;
    Ok((0..CpuSet::LIMIT).filter(|&c| mask.is_set(c).unwrap_or(false)).collect())
}

/// A set of CPUs as the kernel writes it, to compare with where tasks may run: no memory is allocated.
#[derive(Clone, Copy, Debug)]
pub struct CpuMask([u64; CpuMask::WORDS]);

impl CpuMask {
    const WORDS: usize = CpuSet::LIMIT / 64;

    /// Returns `true` if task `tid` (`0`: the calling thread) may run on no other CPUs than these.
    ///
    /// # Errors
    /// The kernel's answer; `ESRCH` if the task has ended.
    pub fn confines(&self, tid: i32) -> std::io::Result<bool> {
        let mut mask = [0u64; Self::WORDS];
        // SAFETY: the kernel writes at most the given size into `mask`, which is that large.
        let written =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, tid, size_of_val(&mask), mask.as_mut_ptr()) };
        if written < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(mask.iter().zip(&self.0).all(|(has, may)| has & !may == 0))
    }
}

impl From<&CpuSet> for CpuMask {
    fn from(set: &CpuSet) -> Self {
        let mut words = [0; Self::WORDS];
        for cpu in set.iter().filter(|&c| c < CpuSet::LIMIT) {
            words[cpu / 64] |= 1 << (cpu % 64);
        }
        Self(words)
    }
}

/// CPUs that are online and open to this thread.
///
/// # Errors
/// As [`online`] and [`affinity`].
pub fn usable() -> Result<CpuSet, NodeError> {
    Ok(online()?.and(&affinity(0)?))
}

/// Checks that every CPU of `wanted` can be used now, and that there is one.
///
/// # Errors
/// [`NodeError::CpuUnusable`] names the first that cannot, and why.
pub fn check(wanted: &CpuSet) -> Result<(), NodeError> {
    let (online, usable) = (online()?, usable()?);
    if wanted.is_empty() {
        return Err(NodeError::CpuList { text: String::new(), reason: "it names no CPU" });
    }
    let Some(cpu) = wanted.iter().find(|&c| !usable.contains(c)) else { return Ok(()) };
    let there = std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{cpu}")).exists();
    let reason = match (there, online.contains(cpu)) {
        (false, _) => "this node has no such CPU",
        (true, false) => "it is offline",
        (true, true) => "this process may not run there (affinity or cpuset)",
    };
    Err(NodeError::CpuUnusable { cpu, reason, usable })
}

/// Binds task `tid` (`0`: the calling thread) to `cpus`.
///
/// # Errors
/// [`NodeError::System`] with the kernel's reason.
pub fn bind(tid: i32, cpus: &CpuSet) -> Result<(), NodeError> {
    let mut mask = Mask::new();
    let error = |e: nix::errno::Errno| NodeError::System {
        what: format!("binding to CPU {cpus}"),
        source: e.into(),
        hint: Some("is the CPU online, and in this process's cpuset?"),
    };
    for cpu in cpus.iter() {
        mask.set(cpu).map_err(error)?;
    }
    sched_setaffinity(Pid::from_raw(tid), &mask).map_err(error)
}

/// Binds the calling thread to one CPU.
///
/// # Errors
/// As [`bind`].
pub fn pin(cpu: usize) -> Result<(), NodeError> {
    bind(0, &std::iter::once(cpu).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_thread_can_be_pinned_and_bad_cpus_are_explained() {
        let usable = usable().expect("linux");
        let last = usable.iter().last().expect("a CPU");
        std::thread::spawn(move || {
            pin(last).expect("usable");
            assert_eq!(affinity(0).expect("self").to_string(), last.to_string());
        })
        .join()
        .expect("no panic");
        let error = check(&"1000".parse().expect("a list")).expect_err("no such CPU");
        assert!(error.to_string().contains("no such CPU"), "{error}");
        assert!(check(&CpuSet::default()).is_err());
    }

    #[test]
    fn a_thread_is_confined_to_the_cpus_it_is_bound_to() {
        std::thread::spawn(|| {
            let all = usable().expect("linux");
            assert!(CpuMask::from(&all).confines(0).expect("self"));
            let first: CpuSet = all.iter().take(1).collect();
            assert_eq!(CpuMask::from(&first).confines(0).expect("self"), all.len() == 1);
            bind(0, &first).expect("usable");
            assert!(CpuMask::from(&first).confines(0).expect("self"));
            assert!(!CpuMask::from(&CpuSet::default()).confines(0).expect("self"));
            assert!(CpuMask::from(&all).confines(i32::MAX).is_err());
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn wrong_lists_are_refused() {
        for text in ["a", "3-1", "1-", "-", "0,99999999999", "4096"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_printed_set_reads_back(cpus in prop::collection::btree_set(0usize..1000, 0..50)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>().expect("own print"), set);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
