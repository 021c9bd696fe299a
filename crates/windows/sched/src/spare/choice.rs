// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cores that are left to the system.

use std::str::FromStr;

use colony_node::cpu::{self, CpuSet};
use colony_node::topology::{Domain, DomainKind, Topology};

use crate::SchedError;

/// The cores that a user wants to leave to the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpareCores {
    /// This many cores, each with all its hardware threads.
    Count(usize),
    /// This many cores of each domain: of each L3 cache, NUMA node or socket.
    PerDomain {
        /// Number of cores, at least 1.
        count: usize,
        /// The kind of domain.
        domain: DomainKind,
    },
    /// These CPUs.
    List(CpuSet),
}

impl FromStr for SpareCores {
    type Err = String;

    /// Reads a count (`1`), a count by domain (`1/l3`, `1/numa`, `1/socket`), or a list of CPUs, which has a comma or a hyphen
    /// (`0-1`, `0,8`, `3-3`).
    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some((count, domain)) = text.split_once('/') {
            return Ok(Self::PerDomain { count: parse_count(count)?, domain: domain.parse()? });
        }
        if !text.contains([',', '-']) {
            return parse_count(text).map(Self::Count);
        }
        match text.parse::<CpuSet>() {
            Ok(cpus) if cpus.is_empty() => Err("the list of spare CPUs is empty".into()),
            Ok(cpus) => Ok(Self::List(cpus)),
            Err(e) => Err(e.to_string()),
        }
    }
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&n: &usize| (1..=CpuSet::LIMIT).contains(&n));
    count.ok_or_else(|| {
        format!(
            "`{text}` is no count of cores; write 1, 1/l3, 1/numa or 1/socket, or a list of CPUs such as 0-1 (one CPU: 3-3)"
        )
    })
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
    /// as spare, in their domain if cores are counted by domain; where they are not enough, the lowest-numbered ones of `wanted` are
    /// taken. A core of which the job has one thread is not spare.
    ///
    /// # Errors
    /// [`SchedError::Config`] if no core would be left to the job, or none in a domain that has some of `wanted`, or if a CPU of the list
    /// may not be used. [`SchedError::Node`] if the kernel does not list the cores or domains of a CPU.
    pub fn split(&self, wanted: Option<&CpuSet>) -> Result<Split, SchedError> {
        let usable = cpu::usable()?;
        let wanted = wanted.unwrap_or(&usable);
        cpu::check(wanted)?;
        self.split_of(&usable, wanted, &Topology::of_this_node())
    }

    fn split_of(
        &self,
        usable: &CpuSet,
        wanted: &CpuSet,
        topology: &Topology<'_>,
    ) -> Result<Split, SchedError> {
        let job = match self {
            Self::List(spare) => {
                check_list(spare, usable)?;
                wanted.without(spare)
            }
            Self::Count(count) => {
                let cores = cores(usable, topology)?;
                let shared = SharedCores::of(cores.iter(), wanted);
                wanted.without(&union(shared.taken(*count)))
            }
            Self::PerDomain { count, domain } => {
                let cores = cores(usable, topology)?;
                let mut job = wanted.clone();
                for domain in topology.domains(*domain, usable)? {
                    // a core belongs to the domain of its lowest CPU
                    let is_here = |core: &&CpuSet| core.first().is_some_and(|cpu| domain.cpus.contains(cpu));
                    let shared = SharedCores::of(cores.iter().filter(is_here), wanted);
                    shared.check(*count, &domain)?;
                    job = job.without(&union(shared.taken(*count)));
                }
                job
            }
        };
        if job.is_empty() {
            let cores = cores(usable, topology)?.len();
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

fn check_list(spare: &CpuSet, usable: &CpuSet) -> Result<(), SchedError> {
    let Some(cpu) = spare.iter().find(|&c| !usable.contains(c)) else { return Ok(()) };
    Err(SchedError::Config {
        what: format!("CPU {cpu} cannot be spare: this process may use {} only", usable.named()),
        advice: "choose spare CPUs among them",
    })
}

/// Some cores, shared by the job and the system.
struct SharedCores<'a> {
    /// Number of cores of which the job has no CPU.
    spare: usize,
    /// Cores with a CPU of the job.
    job: Vec<&'a CpuSet>,
}

impl<'a> SharedCores<'a> {
    fn of(cores: impl Iterator<Item = &'a CpuSet>, wanted: &CpuSet) -> Self {
        let (spare, job): (Vec<_>, Vec<_>) = cores.partition(|core| core.and(wanted).is_empty());
        Self { spare: spare.len(), job }
    }

    /// The number of the job's cores that are to be spare so that `count` cores are.
    fn missing(&self, count: usize) -> usize {
        count.saturating_sub(self.spare)
    }

    fn taken(&self, count: usize) -> impl Iterator<Item = &'a CpuSet> {
        self.job.iter().copied().take(self.missing(count))
    }

    /// Checks that a core of `domain` is left to the job, if the job has one there.
    fn check(&self, count: usize, domain: &Domain) -> Result<(), SchedError> {
        if self.job.is_empty() || self.job.len() > self.missing(count) {
            return Ok(());
        }
        Err(SchedError::Config {
            what: format!(
                "no core of {} is left to the job: {} of its cores can be used, and {count} are to be spare",
                domain.name,
                self.job.len() + self.spare
            ),
            advice: "leave fewer cores to the system, or name CPUs of other domains for the job (--cpus)",
        })
    }
}

/// The CPUs grouped by core, the core of the lowest-numbered CPU first.
fn cores(cpus: &CpuSet, topology: &Topology<'_>) -> Result<Vec<CpuSet>, SchedError> {
    let mut found = Vec::new();
    let mut left = cpus.clone();
    while let Some(cpu) = left.first() {
        let core = topology.threads_of_core(cpu)?.and(&left);
        left = left.without(&core);
        found.push(core);
    }
    Ok(found)
}

fn union<'a>(sets: impl IntoIterator<Item = &'a CpuSet>) -> CpuSet {
    sets.into_iter().flat_map(CpuSet::iter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io;

    fn set(list: &str) -> CpuSet {
        list.parse().expect("a list")
    }

    /// A node whose CPUs N and N + `cores` are threads of core N. Caches have `cores_by_cache` cores, and there are two NUMA nodes and
    /// sockets, the first of which has the lower half of the cores.
    #[derive(Clone, Copy, Debug)]
    struct Described {
        cores: usize,
        cores_by_cache: usize,
        threads: usize,
    }

    /// Frontier's node: 64 cores, two threads each, 8 L3 caches.
    const FRONTIER: Described = Described { cores: 64, cores_by_cache: 8, threads: 2 };
    const FOUR_PAIRS: Described = Described { cores: 4, cores_by_cache: 2, threads: 2 };

    impl Described {
        fn all(&self) -> CpuSet {
            (0..self.cores * self.threads).collect()
        }

        fn cpus_where(&self, is_core: impl Fn(usize) -> bool) -> CpuSet {
            self.all().iter().filter(|cpu| is_core(cpu % self.cores)).collect()
        }

        fn half(&self, core: usize) -> usize {
            core * 2 / self.cores
        }

        fn cpus_beside(&self, cpu: usize, kind: DomainKind) -> CpuSet {
            let core = cpu % self.cores;
            self.cpus_where(|other| match kind {
                DomainKind::L3 => other / self.cores_by_cache == core / self.cores_by_cache,
                DomainKind::Numa | DomainKind::Socket => self.half(other) == self.half(core),
            })
        }

        /// The file of the kernel; `None` if it has none of this name.
        fn read(&self, file: &str) -> Option<String> {
            let node = |number: usize| self.cpus_where(|core| self.half(core) == number).to_string();
            if let Some(file) = file.strip_prefix("/sys/devices/system/node/") {
                return match file {
                    "online" => Some("0-1".into()),
                    "node0/cpulist" => Some(node(0)),
                    "node1/cpulist" => Some(node(1)),
                    _ => None,
                };
            }
            let (cpu, file) = file.strip_prefix("/sys/devices/system/cpu/cpu")?.split_once('/')?;
            let cpu: usize = cpu.parse().ok()?;
            match file {
                "topology/thread_siblings_list" => {
                    Some(self.cpus_where(|core| core == cpu % self.cores).to_string())
                }
                "topology/physical_package_id" => Some(self.half(cpu % self.cores).to_string()),
                "topology/package_cpus_list" => Some(self.cpus_beside(cpu, DomainKind::Socket).to_string()),
                "cache/index0/level" => Some("1".into()),
                "cache/index1/level" => Some("3".into()),
                "cache/index1/shared_cpu_list" => Some(self.cpus_beside(cpu, DomainKind::L3).to_string()),
                _ => None,
            }
        }

        fn topology(self) -> Topology<'static> {
            let missing = || io::Error::from(io::ErrorKind::NotFound);
            Topology::from_files(move |file| self.read(file).ok_or_else(missing))
        }

        fn split(self, spare: &str, usable: &str, wanted: &str) -> Result<(String, String), SchedError> {
            let spare: SpareCores = spare.parse().expect("spare cores");
            let split = spare.split_of(&set(usable), &set(wanted), &self.topology())?;
            Ok((split.job.to_string(), split.spare.to_string()))
        }
    }

    fn ok(job: &str, spare: &str) -> (String, String) {
        (job.to_owned(), spare.to_owned())
    }

    #[test]
    fn a_count_takes_whole_cores_and_a_list_its_cpus() {
        let split = |spare: &str, wanted: &str| FOUR_PAIRS.split(spare, "0-7", wanted);
        assert_eq!(split("1", "0-7").expect("room"), ok("1-3,5-7", "0,4"));
        assert_eq!(split("3", "0-7").expect("room"), ok("3,7", "0-2,4-6"));
        assert_eq!(split("7-7", "0-7").expect("room"), ok("0-6", "7"));
        // core 0 is outside already
        assert_eq!(split("1", "1-3,5-7").expect("room"), ok("1-3,5-7", "0,4"));
        assert_eq!(split("2", "1-3,5-7").expect("room"), ok("2-3,6-7", "0-1,4-5"));
        // the other thread of core 0 is the job's, so the core is not spare
        assert_eq!(split("1", "1-7").expect("room"), ok("1-3,5-7", "0,4"));
        let error = split("4", "0-7").expect_err("none left");
        assert!(error.is_wrong_use() && error.to_string().contains("4 cores"), "{error}");
        let error = split("9-9", "0-7").expect_err("no such CPU");
        assert!(error.is_wrong_use() && error.to_string().contains("CPU 9"), "{error}");
    }

    #[test]
    fn one_core_of_each_domain_is_spare() {
        let split = |spare: &str, wanted: &str| FRONTIER.split(spare, "0-127", wanted).expect("room");
        let by_cache = "0,8,16,24,32,40,48,56,64,72,80,88,96,104,112,120";
        assert_eq!(split("1/l3", "0-127").1, by_cache);
        assert_eq!(split("1/numa", "0-127").1, "0,32,64,96");
        assert_eq!(split("2/socket", "0-127").1, "0-1,32-33,64-65,96-97");
        // cache 0 has two cores outside of the job, cache 1 is left to the system, and the others give up one core
        assert_eq!(
            split("1/l3", "2-7,16-31,66-71,80-95"),
            ok("2-7,17-23,25-31,66-71,81-87,89-95", "0-1,8-16,24,32-65,72-80,88,96-127")
        );
    }

    #[test]
    fn a_domain_without_a_core_for_the_job_is_named() {
        let error = |spare: &str, usable: &str| {
            let error = FRONTIER.split(spare, usable, usable).expect_err("no core is left");
            assert!(error.is_wrong_use());
            error.to_string()
        };
        // a batch system gave the job all of the first cache, and one core of the second
        let one = error("1/l3", "0-8,64-72");
        assert!(
            one.contains("no core of the L3 cache of CPUs 8-15,72-79 is left to the job: 1 of its cores"),
            "{one}"
        );
        assert!(error("8/l3", "0-127").contains("CPUs 0-7,64-71"));
        assert!(error("32/numa", "0-127").contains("NUMA node 0"));
        assert!(error("1/socket", "0-31,40").contains("socket 1"));
        // without the core, the job has no CPU in the cache
        FRONTIER.split("1/l3", "0-8,64-72", "0-7,64-71").expect("room in the first cache");
    }

    #[test]
    fn cores_that_the_kernel_does_not_list_are_an_error() {
        let topology = Topology::from_files(|_| Err(io::ErrorKind::NotFound.into()));
        for spare in ["1", "1/l3", "1/numa", "1/socket"] {
            let spare: SpareCores = spare.parse().expect("spare cores");
            let error = spare.split_of(&set("0-3"), &set("0-3"), &topology).expect_err("no file");
            assert!(matches!(error, SchedError::Node(_)), "{error}");
        }
    }

    #[test]
    fn cpus_that_another_run_has_reserved_meanwhile_are_refused() {
        let split = Split { job: set("1-3"), spare: set("0") };
        split.check_among(&set("0-3")).expect("all are there");
        let error = split.check_among(&set("0,3")).expect_err("two are gone");
        assert!(error.is_wrong_use() && error.to_string().contains("reserved CPUs 1-2"), "{error}");
    }

    #[test]
    fn a_word_is_a_count_a_count_by_domain_or_a_list() {
        let per = |count, domain| Ok(SpareCores::PerDomain { count, domain });
        assert_eq!("2".parse(), Ok(SpareCores::Count(2)));
        assert_eq!("1/l3".parse(), per(1, DomainKind::L3));
        assert_eq!("2/numa".parse(), per(2, DomainKind::Numa));
        assert_eq!("1/socket".parse(), per(1, DomainKind::Socket));
        assert_eq!("3-3".parse(), Ok(SpareCores::List(set("3"))));
        assert_eq!("0,8".parse(), Ok(SpareCores::List(set("0,8"))));
        for wrong in [
            "0",
            "",
            "one",
            "-1",
            "1-",
            ",",
            "99999999999999999999",
            "5-2",
            "0/l3",
            "/l3",
            "1/",
            "1/l2",
            "1/L3/",
            "0-1/l3",
        ] {
            assert!(wrong.parse::<SpareCores>().is_err(), "{wrong}");
        }
    }

    fn any_described() -> impl Strategy<Value = Described> {
        (1usize..9, 1usize..9, 1usize..4).prop_map(|(caches, cores_by_cache, threads)| Described {
            cores: (caches * cores_by_cache).max(2),
            cores_by_cache,
            threads,
        })
    }

    fn any_spare() -> impl Strategy<Value = SpareCores> {
        let domain = prop::sample::select(DomainKind::ALL.to_vec());
        prop_oneof![
            (1usize..70).prop_map(SpareCores::Count),
            (1usize..5, domain).prop_map(|(count, domain)| SpareCores::PerDomain { count, domain }),
        ]
    }

    proptest! {
        #[test]
        fn nothing_is_lost_nothing_is_in_both_and_cores_are_whole(
            node in any_described(),
            spare in any_spare(),
            chosen in prop::collection::btree_set(0usize..192, 1..192),
        ) {
            let usable = node.all().and(&chosen.into_iter().collect());
            prop_assume!(!usable.is_empty());
            let topology = node.topology();
            if let Ok(split) = spare.split_of(&usable, &usable, &topology) {
                prop_assert!(split.job.and(&split.spare).is_empty() && !split.job.is_empty());
                prop_assert_eq!(union([&split.job, &split.spare]), usable.clone());
                for core in cores(&usable, &topology).expect("described") {
                    let spare = core.and(&split.spare);
                    prop_assert!(spare.is_empty() || spare == core, "{} of {} is spare", spare, core);
                }
            }
        }

        #[test]
        fn each_domain_of_the_job_has_as_many_spare_cores_as_asked_for(
            node in any_described(),
            count in 1usize..4,
            kind in prop::sample::select(DomainKind::ALL.to_vec()),
            chosen in prop::collection::btree_set(0usize..192, 1..192),
            left_out in prop::collection::btree_set(0usize..192, 0..20),
        ) {
            let usable = node.all().and(&chosen.into_iter().collect());
            let wanted = usable.without(&left_out.into_iter().collect());
            prop_assume!(!wanted.is_empty());
            let topology = node.topology();
            let spare = SpareCores::PerDomain { count, domain: kind };
            if let Ok(split) = spare.split_of(&usable, &wanted, &topology) {
                prop_assert!(split.job.without(&wanted).is_empty());
                for domain in topology.domains(kind, &wanted).expect("described") {
                    prop_assert!(!domain.cpus.and(&split.job).is_empty(), "{} has no job CPU", domain.name);
                    let spare = cores(&split.spare.and(&domain.cpus), &topology).expect("described").len();
                    prop_assert!(spare >= count, "{}: {spare} spare", domain.name);
                }
            }
        }

        #[test]
        fn no_word_panics(word in ".{0,30}") {
            let _ = word.parse::<SpareCores>();
        }
    }
}
