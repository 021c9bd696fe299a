// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores, level-3 caches, NUMA nodes and sockets of a node, as the kernel lists them in `/sys/devices/system/cpu/cpuN/topology`,
//! `cpuN/cache` and `/sys/devices/system/node` (`Documentation/ABI/stable/sysfs-devices-system-cpu`).

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::NodeError;
use crate::cpu::CpuSet;
use crate::kernel_list;

const CPUS: &str = "/sys/devices/system/cpu";
const NUMA_NODES: &str = "/sys/devices/system/node";

/// Most caches that are read of a CPU: the kernel lists at most two of each of its levels.
const MAX_CACHES: usize = 32;

/// A kind of hardware that several cores share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DomainKind {
    /// A cache of level 3.
    L3,
    /// A NUMA node.
    Numa,
    /// A processor package.
    Socket,
}

impl DomainKind {
    /// All kinds, the smallest first on most machines.
    pub const ALL: [Self; 3] = [Self::L3, Self::Numa, Self::Socket];

    /// The word on command lines.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::L3 => "l3",
            Self::Numa => "numa",
            Self::Socket => "socket",
        }
    }
}

impl FromStr for DomainKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|kind| kind.word() == text);
        found.ok_or_else(|| format!("`{text}` is no group of cores; write l3, numa or socket"))
    }
}

/// The CPUs that share one cache, NUMA node or socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The domain's name in a sentence: `the L3 cache of CPUs 0-7`, `NUMA node 1`, `socket 0`.
    pub name: String,
    /// Its online CPUs.
    pub cpus: CpuSet,
}

type Read<'a> = dyn Fn(&str) -> io::Result<String> + 'a;

/// Reads the kernel's description of a node's CPUs.
pub struct Topology<'a> {
    read: Box<Read<'a>>,
}

impl fmt::Debug for Topology<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Topology")
    }
}

impl Topology<'static> {
    /// The topology of the running node.
    #[must_use]
    pub fn of_this_node() -> Self {
        Self::from_files(|file| std::fs::read_to_string(file))
    }
}

impl<'a> Topology<'a> {
    /// The topology in files that `read` returns by their path (`/sys/devices/system/cpu/…`). `read` returns
    /// [`io::ErrorKind::NotFound`] for a file that is not there.
    pub fn from_files(read: impl Fn(&str) -> io::Result<String> + 'a) -> Self {
        Self { read: Box::new(read) }
    }

    /// The online hardware threads of the core of `cpu`.
    ///
    /// # Errors
    /// [`NodeError::Read`] if the kernel's list is not there, or does not have `cpu` in it.
    pub fn threads_of_core(&self, cpu: usize) -> Result<CpuSet, NodeError> {
        self.cpus_with(cpu, &format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list"))
    }

    /// The domains of this kind that have one of `cpus`, by their lowest CPU. Domains without one of `cpus` are left out.
    ///
    /// # Errors
    /// [`NodeError::NoDomain`] if a CPU belongs to no domain of this kind, [`NodeError::Read`] if the kernel's files are not there,
    /// are not lists, or contradict each other.
    pub fn domains(&self, kind: DomainKind, cpus: &CpuSet) -> Result<Vec<Domain>, NodeError> {
        let numa_nodes = if kind == DomainKind::Numa { self.numa_nodes()? } else { Vec::new() };
        let mut found: Vec<Domain> = Vec::new();
        for cpu in cpus.iter() {
            if found.iter().any(|domain| domain.cpus.contains(cpu)) {
                continue;
            }
            let domain = match kind {
                DomainKind::L3 => self.l3_of(cpu)?,
                DomainKind::Numa => numa_node_of(&numa_nodes, cpu)?,
                DomainKind::Socket => self.socket_of(cpu)?,
            };
            if let Some(other) = found.iter().find(|other| !other.cpus.and(&domain.cpus).is_empty()) {
                return Err(NodeError::Read {
                    path: CPUS.into(),
                    reason: format!(
                        "{} has {}, and {} has some of them too",
                        domain.name,
                        domain.cpus.named(),
                        other.name
                    ),
                });
            }
            found.push(domain);
        }
        Ok(found)
    }

    fn l3_of(&self, cpu: usize) -> Result<Domain, NodeError> {
        let mut others = Vec::new();
        for index in 0..MAX_CACHES {
            let dir = format!("{CPUS}/cpu{cpu}/cache/index{index}");
            let Some(level) = self.text_if_there(&format!("{dir}/level"))? else { break };
            if level == "3" {
                let cpus = self.cpus_with(cpu, &format!("{dir}/shared_cpu_list"))?;
                return Ok(Domain { name: format!("the L3 cache of {}", cpus.named()), cpus });
            }
            let name = format!("L{level}");
            if !others.contains(&name) {
                others.push(name);
            }
        }
        let found = match others.is_empty() {
            true => "the kernel lists no cache of it".to_owned(),
            false => format!("the kernel lists {} of it", others.join(" and ")),
        };
        Err(NodeError::NoDomain { cpu, kind: "L3 cache", found })
    }

    fn socket_of(&self, cpu: usize) -> Result<Domain, NodeError> {
        let dir = format!("{CPUS}/cpu{cpu}/topology");
        let id = format!("{dir}/physical_package_id");
        let text = self.text(&id)?;
        let number: i32 = text.parse().map_err(|_| unexpected(&id, &text))?;
        // Linux before 5.3 has the list under its old name only
        let list = format!("{dir}/package_cpus_list");
        let cpus = match self.text_if_there(&list)? {
            Some(_) => self.cpus_with(cpu, &list)?,
            None => self.cpus_with(cpu, &format!("{dir}/core_siblings_list"))?,
        };
        Ok(Domain { name: format!("socket {number}"), cpus })
    }

    /// The NUMA nodes that have CPUs.
    fn numa_nodes(&self) -> Result<Vec<Domain>, NodeError> {
        let online = self.list(&format!("{NUMA_NODES}/online"))?;
        let node = |number: usize| {
            let cpus = self.list(&format!("{NUMA_NODES}/node{number}/cpulist"))?;
            Ok(Domain { name: format!("NUMA node {number}"), cpus })
        };
        let nodes: Result<Vec<Domain>, NodeError> = online.iter().map(node).collect();
        Ok(nodes?.into_iter().filter(|domain| !domain.cpus.is_empty()).collect())
    }

    /// The list in `file`, which must have `cpu`.
    fn cpus_with(&self, cpu: usize, file: &str) -> Result<CpuSet, NodeError> {
        let cpus = self.list(file)?;
        match cpus.contains(cpu) {
            true => Ok(cpus),
            false => Err(NodeError::Read { path: file.into(), reason: format!("CPU {cpu} is not in it") }),
        }
    }

    fn list(&self, file: &str) -> Result<CpuSet, NodeError> {
        let text = self.text(file)?;
        kernel_list::parse(&text, CpuSet::LIMIT - 1).map_err(|_| unexpected(file, &text))
    }

    fn text(&self, file: &str) -> Result<String, NodeError> {
        let missing = || NodeError::Read { path: file.into(), reason: "there is no such file".into() };
        self.text_if_there(file)?.ok_or_else(missing)
    }

    fn text_if_there(&self, file: &str) -> Result<Option<String>, NodeError> {
        match (self.read)(file) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(NodeError::Read { path: file.into(), reason: e.to_string() }),
        }
    }
}

fn numa_node_of(nodes: &[Domain], cpu: usize) -> Result<Domain, NodeError> {
    let found = nodes.iter().find(|node| node.cpus.contains(cpu));
    found.cloned().ok_or_else(|| NodeError::NoDomain {
        cpu,
        kind: "NUMA node",
        found: format!("no list of {NUMA_NODES}/node*/cpulist has it"),
    })
}

fn unexpected(file: &str, text: &str) -> NodeError {
    let shown: String = text.chars().take(60).collect();
    NodeError::Read { path: file.into(), reason: format!("unknown value `{shown}`") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// 8 CPUs: two threads a core (N and N + 4), two L3 caches, one socket; NUMA node 1 has memory only.
    fn described() -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for cpu in 0..8 {
            let dir = format!("{CPUS}/cpu{cpu}");
            let core = cpu % 4;
            let cache = if core < 2 { "0-1,4-5" } else { "2-3,6-7" };
            for (file, text) in [
                ("topology/thread_siblings_list", format!("{core},{}\n", core + 4)),
                ("topology/physical_package_id", "0\n".into()),
                ("topology/package_cpus_list", "0-7\n".into()),
                ("cache/index0/level", "1\n".into()),
                ("cache/index1/level", "2\n".into()),
                ("cache/index2/level", "3\n".into()),
                ("cache/index2/shared_cpu_list", format!("{cache}\n")),
            ] {
                files.insert(format!("{dir}/{file}"), text);
            }
        }
        for (file, text) in [("online", "0-1\n"), ("node0/cpulist", "0-7\n"), ("node1/cpulist", "\n")] {
            files.insert(format!("{NUMA_NODES}/{file}"), text.to_owned());
        }
        files
    }

    fn topology(files: BTreeMap<String, String>) -> Topology<'static> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        Topology::from_files(move |file| files.get(file).cloned().ok_or_else(missing))
    }

    fn set(list: &str) -> CpuSet {
        list.parse().expect("a list")
    }

    fn named(files: BTreeMap<String, String>, kind: DomainKind, cpus: &str) -> Vec<(String, String)> {
        let domains = topology(files).domains(kind, &set(cpus)).expect("described");
        domains.into_iter().map(|d| (d.name, d.cpus.to_string())).collect()
    }

    fn error(files: BTreeMap<String, String>, kind: DomainKind) -> NodeError {
        topology(files).domains(kind, &set("0-7")).expect_err("an error")
    }

    #[test]
    fn domains_are_those_of_the_kernels_files() {
        let pair = |name: &str, cpus: &str| (name.to_owned(), cpus.to_owned());
        let caches = [
            pair("the L3 cache of CPUs 0-1,4-5", "0-1,4-5"),
            pair("the L3 cache of CPUs 2-3,6-7", "2-3,6-7"),
        ];
        assert_eq!(named(described(), DomainKind::L3, "0-7"), caches);
        assert_eq!(named(described(), DomainKind::L3, "3,7"), caches[1..]);
        assert_eq!(named(described(), DomainKind::Numa, "0-7"), [pair("NUMA node 0", "0-7")]);
        assert_eq!(named(described(), DomainKind::Socket, "0-7"), [pair("socket 0", "0-7")]);
        let mut old = described();
        for cpu in 0..8 {
            old.remove(&format!("{CPUS}/cpu{cpu}/topology/package_cpus_list"));
            old.insert(format!("{CPUS}/cpu{cpu}/topology/core_siblings_list"), "0-7".into());
        }
        assert_eq!(named(old, DomainKind::Socket, "0-7"), [pair("socket 0", "0-7")]);
        assert_eq!(topology(described()).threads_of_core(6).expect("described"), set("2,6"));
    }

    #[test]
    fn a_cpu_without_an_l3_cache_is_an_error_that_names_its_caches() {
        let mut files = described();
        files.remove(&format!("{CPUS}/cpu0/cache/index2/level"));
        let none = error(files, DomainKind::L3);
        assert!(none.is_wrong_use());
        assert_eq!(
            none.to_string(),
            "CPU 0 belongs to no L3 cache: the kernel lists L1 and L2 of it; name another group of cores, or a number of cores"
        );
        let mut files = described();
        files.retain(|file, _| !file.contains("/cache/"));
        assert!(error(files, DomainKind::L3).to_string().contains("lists no cache"));
    }

    #[test]
    fn files_that_are_missing_or_contradict_each_other_are_errors() {
        let without = |file: &str| {
            let mut files = described();
            assert!(files.remove(file).is_some(), "{file}");
            files
        };
        for (file, kind) in [
            (format!("{CPUS}/cpu0/topology/physical_package_id"), DomainKind::Socket),
            (format!("{CPUS}/cpu0/topology/package_cpus_list"), DomainKind::Socket),
            (format!("{CPUS}/cpu2/cache/index2/shared_cpu_list"), DomainKind::L3),
            (format!("{NUMA_NODES}/online"), DomainKind::Numa),
            (format!("{NUMA_NODES}/node1/cpulist"), DomainKind::Numa),
        ] {
            let error = error(without(&file), kind);
            assert!(!error.is_wrong_use() && error.to_string().contains("no such file"), "{file}: {error}");
        }
        let with =
            |file: String, text: &str| described().into_iter().chain([(file, text.to_owned())]).collect();
        let cache = format!("{CPUS}/cpu2/cache/index2/shared_cpu_list");
        for (text, part) in
            [("0-2", "some of them too"), ("3", "CPU 2 is not in it"), ("2-", "unknown value `2-`")]
        {
            let error = error(with(cache.clone(), text), DomainKind::L3);
            assert!(error.to_string().contains(part), "{error}");
        }
        let error = error(with(format!("{NUMA_NODES}/node0/cpulist"), "0-6"), DomainKind::Numa);
        assert!(error.to_string().starts_with("CPU 7 belongs to no NUMA node"), "{error}");
        let error = topology(with(format!("{CPUS}/cpu1/topology/thread_siblings_list"), ""));
        assert!(error.threads_of_core(1).is_err());
    }

    #[test]
    fn this_nodes_cores_and_sockets_can_be_read() {
        let usable = crate::cpu::usable().expect("linux");
        let topology = Topology::of_this_node();
        for cpu in usable.iter() {
            assert!(topology.threads_of_core(cpu).expect("linux").contains(cpu));
        }
        assert!(!topology.domains(DomainKind::Socket, &usable).expect("linux").is_empty());
    }
}
