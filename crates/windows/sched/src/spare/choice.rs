// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cores that are left to the system.

use std::collections::BTreeSet;
use std::str::FromStr;

use colony_node::cpu::{self, CpuSet};

use crate::SchedError;

/// The cores that a user wants to leave to the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpareCores {
    /// This many cores, each with all its hardware threads.
    Count(usize),
    /// These CPUs.
    List(CpuSet),
}

impl FromStr for SpareCores {
    type Err = String;

    /// Reads a count (`1`), or a list of CPUs, which has a comma or a hyphen (`0-1`, `0,8`, `3-3`).
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if !text.contains([',', '-']) {
            let count = text.parse().ok().filter(|&n: &usize| (1..=CpuSet::LIMIT).contains(&n));
            return count.map(Self::Count).ok_or_else(|| {
                format!(
                    "`{text}` is no count of cores; write 1, or a list of CPUs such as 0-1 (one CPU: 3-3)"
                )
            });
        }
        match text.parse::<CpuSet>() {
            Ok(cpus) if cpus.is_empty() => Err("the list of spare CPUs is empty".into()),
            Ok(cpus) => Ok(Self::List(cpus)),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// The CPUs of a run: the job's, and those left to the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The job's CPUs.
    pub job: CpuSet,
    /// The CPUs of everything else.
    pub spare: CpuSet,
}

impl Split {
    /// Checks that this process may still use the job's CPUs.
    ///
    /// # Errors
    /// [`SchedError::Config`] if it may not: another run has reserved them.
    pub(super) fn check(&self) -> Result<(), SchedError> {
        self.check_among(&cpu::usable()?)
    }

    fn check_among(&self, usable: &CpuSet) -> Result<(), SchedError> {
        let taken = self.job.without(usable);
        if taken.is_empty() {
            return Ok(());
        }
        Err(SchedError::Config {
            what: format!(
                "no core is left to the job: another run has just reserved {}, which this process may no longer use",
                taken.named()
            ),
            advice: "wait until that run has ended, or choose other CPUs (--cpus)",
        })
    }
}

impl SpareCores {
    /// Splits the CPUs that this process may use. `wanted`: the CPUs that the user gives the job. Cores outside of it count
    /// as spare; where they are not enough, the lowest-numbered ones of `wanted` are taken.
    ///
    /// # Errors
    /// [`SchedError::Config`] if no core would be left to the job, or a CPU of the list may not be used.
    pub fn split(&self, wanted: Option<&CpuSet>) -> Result<Split, SchedError> {
        let usable = cpu::usable()?;
        let wanted = wanted.unwrap_or(&usable);
        cpu::check(wanted)?;
        self.split_of(&usable, wanted, |cpu| cpu::threads_of_core(cpu).unwrap_or_default())
    }

    fn split_of(
        &self,
        usable: &CpuSet,
        wanted: &CpuSet,
        threads_of: impl Fn(usize) -> CpuSet,
    ) -> Result<Split, SchedError> {
        let job = match self {
            Self::List(spare) => {
                if let Some(cpu) = spare.iter().find(|&c| !usable.contains(c)) {
                    return Err(SchedError::Config {
                        what: format!(
                            "CPU {cpu} cannot be spare: this process may use {} only",
                            usable.named()
                        ),
                        advice: "choose spare CPUs among them",
                    });
                }
                wanted.without(spare)
            }
            Self::Count(count) => {
                let outside = cores(&usable.without(wanted), &threads_of).len();
                let taken = cores(wanted, &threads_of).into_iter().take(count.saturating_sub(outside));
                wanted.without(&taken.flat_map(|core| core.iter().collect::<Vec<_>>()).collect())
            }
        };
        if job.is_empty() {
            let cores = cores(usable, &threads_of).len();
            return Err(SchedError::Config {
                what: format!(
                    "no core is left to the job: this process may use {} ({cores} {})",
                    usable.named(),
                    if cores == 1 { "core" } else { "cores" }
                ),
                advice: "leave fewer cores to the system (--spare-cores), or run where more CPUs are allowed",
            });
        }
        Ok(Split { spare: usable.without(&job), job })
    }
}

/// The CPUs grouped by core, the core of the lowest-numbered CPU first.
fn cores(cpus: &CpuSet, threads_of: impl Fn(usize) -> CpuSet) -> Vec<CpuSet> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for cpu in cpus.iter() {
        if seen.contains(&cpu) {
            continue;
        }
        let core: CpuSet = threads_of(cpu).and(cpus).iter().chain([cpu]).collect();
        seen.extend(core.iter());
        found.push(core);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(list: &str) -> CpuSet {
        list.parse().expect("a list")
    }

    /// Two threads a core: CPU n and n + 4.
    fn pairs(cpu: usize) -> CpuSet {
        [cpu % 4, cpu % 4 + 4].into_iter().collect()
    }

    #[test]
    fn a_count_takes_whole_cores_and_a_list_its_cpus() {
        let split = |spare: SpareCores, wanted: &str| {
            let split = spare.split_of(&set("0-7"), &set(wanted), pairs)?;
            Ok::<_, SchedError>((split.job.to_string(), split.spare.to_string()))
        };
        let ok = |job: &str, spare: &str| (job.to_owned(), spare.to_owned());
        assert_eq!(split(SpareCores::Count(1), "0-7").expect("room"), ok("1-3,5-7", "0,4"));
        assert_eq!(split(SpareCores::Count(3), "0-7").expect("room"), ok("3,7", "0-2,4-6"));
        assert_eq!(split(SpareCores::List(set("7")), "0-7").expect("room"), ok("0-6", "7"));
        // core 0 is outside already
        assert_eq!(split(SpareCores::Count(1), "1-3,5-7").expect("room"), ok("1-3,5-7", "0,4"));
        assert_eq!(split(SpareCores::Count(2), "1-3,5-7").expect("room"), ok("2-3,6-7", "0-1,4-5"));
        let error = split(SpareCores::Count(4), "0-7").expect_err("none left");
        assert!(error.is_wrong_use() && error.to_string().contains("4 cores"), "{error}");
        let error = split(SpareCores::List(set("9")), "0-7").expect_err("no such CPU");
        assert!(error.is_wrong_use() && error.to_string().contains("CPU 9"), "{error}");
    }

    #[test]
    fn cpus_that_another_run_has_reserved_meanwhile_are_refused() {
        let split = Split { job: set("1-3"), spare: set("0") };
        split.check_among(&set("0-3")).expect("all are there");
        let error = split.check_among(&set("0,3")).expect_err("two are gone");
        assert!(error.is_wrong_use() && error.to_string().contains("reserved CPUs 1-2"), "{error}");
    }

    #[test]
    fn a_word_is_a_count_or_a_list() {
        assert_eq!("2".parse(), Ok(SpareCores::Count(2)));
        assert_eq!("3-3".parse(), Ok(SpareCores::List(set("3"))));
        assert_eq!("0,8".parse(), Ok(SpareCores::List(set("0,8"))));
        for wrong in ["0", "", "one", "-1", "1-", ",", "99999999999999999999", "5-2"] {
            assert!(wrong.parse::<SpareCores>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nothing_is_in_both(
            usable in prop::collection::btree_set(0usize..64, 1..64),
            count in 1usize..70,
            width in 1usize..5,
        ) {
            let usable: CpuSet = usable.into_iter().collect();
            let threads = |cpu: usize| (cpu / width * width..(cpu / width + 1) * width).collect();
            if let Ok(split) = SpareCores::Count(count).split_of(&usable, &usable, threads) {
                prop_assert!(split.job.and(&split.spare).is_empty() && !split.job.is_empty());
                prop_assert_eq!(split.job.iter().chain(split.spare.iter()).collect::<CpuSet>(), usable);
                prop_assert!(split.spare.len() >= count);
            }
        }

        #[test]
        fn no_word_panics(word in ".{0,30}") {
            let _ = word.parse::<SpareCores>();
        }
    }
}
