// SPDX-License-Identifier: MIT OR Apache-2.0
//! `isolcpus=`, `nohz_full=` and `rcu_nocbs=` for the job. CPUs and flags that a parameter has now are kept, and a value that cannot
//! be read is left to the administrator.
//!
//! From Linux 4.15 to 5.17 the kernel keeps one set of CPUs for `isolcpus=` and `nohz_full=`, and ignores the second parameter if
//! its list is another one. Since 5.18 this holds only for flags that both set, which is `nohz` (`kernel/sched/isolation.c`,
//! `housekeeping_setup`).

use colony_node::cpu::CpuSet;
use colony_node::kernel_list::{self, FlaggedList};

use crate::finding::Finding;
use crate::node::{CMDLINE, Node};
use crate::remedy::{Change, Remedy};
use crate::root::Unread;
use crate::touches::Touches;

/// A node with one CPU, or a job with all of them, has no CPU that could do the work instead.
pub(super) const NO_OTHER_CPU: &str = "the job has every CPU: with --cpus, leave at least one to the system";
/// The CPU that boots, which keeps the time for the others.
const BOOT_CPU: usize = 0;

/// Parameters that are proposed, and what to know beside them.
#[derive(Default)]
pub(super) struct Proposal {
    changes: Vec<Change>,
    advice: Vec<String>,
    moves: Option<Touches>,
}

impl Proposal {
    /// The sources that the parameters take from the job's CPUs, if other remedies of the finding take others.
    pub(super) fn moving(mut self, moves: Touches) -> Self {
        self.moves = Some(moves);
        self
    }

    /// Adds the parameters and the advice to a finding.
    pub(super) fn add_to(self, finding: Finding, risk: &str) -> Finding {
        let finding = match self.changes.is_empty() {
            true => finding,
            false => {
                let remedy = Remedy::new(self.changes, risk);
                finding.remedy(match self.moves {
                    Some(moves) => remedy.moves(moves),
                    None => remedy,
                })
            }
        };
        match self.advice.is_empty() {
            true => finding,
            false => finding.advice(self.advice.join(" ")),
        }
    }

    fn by_hand(advice: impl Into<String>) -> Self {
        Self { advice: vec![advice.into()], ..Self::default() }
    }

    fn set(&mut self, name: &str, now: Option<&str>, value: &str) {
        if now != Some(value) {
            let replaces = now.map(|now| word(name, now));
            self.changes.push(Change::KernelParameter { parameter: word(name, value), replaces });
        }
    }
}

/// A parameter as it stands on the command line.
fn word(name: &str, value: &str) -> String {
    if value.is_empty() { name.to_owned() } else { format!("{name}={value}") }
}

/// A parameter's text, and what it says.
struct Present<T> {
    text: Option<String>,
    list: T,
}

impl<T: Default> Present<T> {
    /// Reads the parameter that counts. The inner error is a sentence about a value that cannot be read.
    fn read(
        node: &Node,
        name: &str,
        parse: impl Fn(&str) -> Result<T, colony_node::NodeError>,
    ) -> Result<Result<Self, String>, Unread> {
        let text = node.parameter(name)?;
        Ok(match text.as_deref().map(parse).transpose() {
            Ok(list) => Ok(Self { text, list: list.unwrap_or_default() }),
            Err(e) => Err(format!(
                "{name}={} stays as it is: {e}. Add the job's CPUs by hand.",
                text.unwrap_or_default()
            )),
        })
    }
}

/// The list of `name=`; the inner error is a sentence about a value that cannot be read.
pub(super) fn read_list(node: &Node, name: &str) -> Result<Result<CpuSet, String>, Unread> {
    let last = node.last_cpu();
    Ok(Present::read(node, name, |text| kernel_list::parse(text, last))?.map(|present| present.list))
}

/// The value of `isolcpus=`, as [`read_list`].
pub(super) fn read_isolcpus(node: &Node) -> Result<Result<FlaggedList, String>, Unread> {
    let last = node.last_cpu();
    Ok(Present::read(node, "isolcpus", |text| FlaggedList::parse(text, last))?.map(|present| present.list))
}

/// Both parameters of the scheduler's isolation.
struct Housekeeping {
    isolcpus: Present<FlaggedList>,
    nohz_full: Present<CpuSet>,
}

impl Housekeeping {
    /// Reads both. A `nohz_full=` that cannot be read is left out if `isolcpus=` does not depend on it.
    fn read(node: &Node, may_lack_nohz: bool) -> Result<Result<Self, String>, Unread> {
        let last = node.last_cpu();
        let isolcpus = Present::read(node, "isolcpus", |text| FlaggedList::parse(text, last))?;
        let nohz_full = Present::read(node, "nohz_full", |text| kernel_list::parse(text, last))?;
        let both = |isolcpus| match nohz_full {
            Ok(nohz_full) => Ok(Self { isolcpus, nohz_full }),
            Err(sentence) => {
                let alone = Self { isolcpus, nohz_full: Present { text: None, list: CpuSet::default() } };
                if may_lack_nohz && !alone.must_match(node) { Ok(alone) } else { Err(sentence) }
            }
        };
        Ok(isolcpus.and_then(both))
    }

    /// Returns `true` if this kernel ignores the second of the two parameters unless both name the same CPUs.
    fn must_match(&self, node: &Node) -> bool {
        let one_set = node.version().is_none_or(|v| ((4, 15)..(5, 18)).contains(&v));
        one_set || self.isolcpus.list.has("nohz")
    }
}

/// The job's CPUs and those of `now`, and advice; `Err` if no CPU can be added.
fn with_job(node: &Node, now: &CpuSet) -> Result<(CpuSet, Option<String>), Proposal> {
    let boot: CpuSet = [BOOT_CPU].into_iter().filter(|cpu| !now.contains(*cpu)).collect();
    let added = node.job.without(now).without(&boot);
    let advice = (!node.hit(&boot).is_empty()).then(|| {
        "CPU 0 boots the node and keeps its time, so it is left out: choose the job's CPUs without it (--cpus)."
            .to_owned()
    });
    let all: CpuSet = now.iter().chain(added.iter()).collect();
    if added.is_empty() {
        let on_line = "The command line names the job's CPUs already, but this is not in effect: the kernel log says why (dmesg | grep -iE 'housekeeping|isolcpus|nohz').";
        return Err(Proposal::by_hand(advice.unwrap_or_else(|| on_line.to_owned())));
    }
    if node.job.iter().chain(node.rest.iter()).all(|cpu| all.contains(cpu)) {
        return Err(Proposal::by_hand(format!(
            "{} and the job's CPUs are all CPUs of the node: leave at least one to the system.",
            now.named()
        )));
    }
    Ok((all, advice))
}

/// Advice about further parameters of the same name, which the kernel ignores.
fn ignored(node: &Node, name: &str) -> Result<Option<String>, Unread> {
    let others: Vec<String> = node.ignored_parameters(name)?.iter().map(|value| word(name, value)).collect();
    Ok((!others.is_empty()).then(|| {
        format!("Remove {} from the command line: the kernel keeps one {name}= only.", others.join(" "))
    }))
}

/// `isolcpus=` for the job. Flags are known since Linux 4.15, `managed_irq` since 5.6.
pub(super) fn isolcpus(node: &Node) -> Result<Proposal, Unread> {
    let now = match Housekeeping::read(node, true)? {
        Ok(now) => now,
        Err(sentence) => return Ok(Proposal::by_hand(sentence)),
    };
    let must_match = now.must_match(node);
    let listed = match must_match {
        true => union(&now.isolcpus.list.cpus, &now.nohz_full.list),
        false => now.isolcpus.list.cpus.clone(),
    };
    let flags = flags(node, &now.isolcpus);
    let is_extended = flags != now.isolcpus.list.flags || listed != now.isolcpus.list.cpus;
    let (cpus, boot) = match with_job(node, &listed) {
        Ok(found) => found,
        // `nohz_full=` names the job's CPUs, or a flag is missing
        Err(_) if is_extended && node.job.without(&listed).is_empty() => (listed, None),
        Err(proposal) => return Ok(proposal),
    };
    let mut proposal = Proposal { advice: boot.into_iter().collect(), ..Proposal::default() };
    let value = FlaggedList { flags, cpus: cpus.clone() };
    proposal.set("isolcpus", now.isolcpus.text.as_deref(), &value.to_string());
    if must_match && now.nohz_full.text.is_some() && now.nohz_full.list != cpus {
        proposal.set("nohz_full", now.nohz_full.text.as_deref(), &cpus.to_string());
        proposal.advice.push(MATCH.into());
    }
    proposal.advice.extend(ignored(node, "isolcpus")?);
    Ok(proposal)
}

const MATCH: &str = "This kernel ignores the second of isolcpus= and nohz_full= unless both name the same CPUs: they must match.";

/// The flags of `isolcpus=`, with those that take the scheduler and managed interrupts away.
fn flags(node: &Node, now: &Present<FlaggedList>) -> Vec<String> {
    let mut flags = now.list.flags.clone();
    let wanted: &[&str] = match node.version() {
        Some(version) if version < (4, 15) => &[],
        // a list without flags means `domain`
        Some(version) if version < (5, 6) && flags.is_empty() => &[],
        Some(version) if version < (5, 6) => &["domain"],
        _ => &["managed_irq", "domain"],
    };
    flags.extend(wanted.iter().filter(|flag| !now.list.has(flag)).map(|flag| (*flag).to_owned()));
    flags
}

/// `nohz_full=` for the job.
pub(super) fn nohz_full(node: &Node) -> Result<Proposal, Unread> {
    let now = match Housekeeping::read(node, false)? {
        Ok(now) => now,
        Err(sentence) => return Ok(Proposal::by_hand(sentence)),
    };
    let must_match = now.isolcpus.text.is_some() && now.must_match(node);
    let listed = match must_match {
        true => union(&now.isolcpus.list.cpus, &now.nohz_full.list),
        false => now.nohz_full.list.clone(),
    };
    let (cpus, boot) = match with_job(node, &listed) {
        Ok(found) => found,
        Err(_) if listed != now.nohz_full.list && node.job.without(&listed).is_empty() => (listed, None),
        Err(proposal) => return Ok(proposal),
    };
    let mut proposal = Proposal { advice: boot.into_iter().collect(), ..Proposal::default() };
    proposal.set("nohz_full", now.nohz_full.text.as_deref(), &cpus.to_string());
    if must_match && now.isolcpus.list.cpus != cpus {
        let value = FlaggedList { flags: now.isolcpus.list.flags.clone(), cpus };
        proposal.set("isolcpus", now.isolcpus.text.as_deref(), &value.to_string());
        proposal.advice.push(MATCH.into());
    }
    proposal.advice.extend(ignored(node, "nohz_full")?);
    Ok(proposal)
}

/// `rcu_nocbs=` for the job; the kernel keeps the last one, and the boot CPU may be in it.
pub(super) fn rcu_nocbs(node: &Node) -> Result<Proposal, Unread> {
    let last = node.last_cpu();
    let now = match Present::read(node, "rcu_nocbs", |text| kernel_list::parse(text, last))? {
        Ok(now) => now,
        Err(sentence) => return Ok(Proposal::by_hand(sentence)),
    };
    let advice = ignored(node, "rcu_nocbs")?.into_iter().collect();
    let mut proposal = Proposal { advice, ..Proposal::default() };
    proposal.set("rcu_nocbs", now.text.as_deref(), &union(&now.list, &node.job).to_string());
    Ok(proposal)
}

/// Whether `isolcpus=managed_irq` covers the job, and a parameter that does.
pub(super) fn spare_managed(node: &Node) -> Result<(bool, Proposal), Unread> {
    if let Ok(now) = read_isolcpus(node)?
        && now.has("managed_irq")
        && node.job.without(&now.cpus).is_empty()
    {
        return Ok((true, Proposal::default()));
    }
    if node.version().is_some_and(|v| v < (5, 6)) {
        return Ok((false, Proposal::default()));
    }
    Ok((false, isolcpus(node)?))
}

fn union(a: &CpuSet, b: &CpuSet) -> CpuSet {
    a.iter().chain(b.iter()).collect()
}

/// A command line that cannot be read.
pub(super) fn unread_parameter(sentence: String) -> Unread {
    Unread::Other { file: CMDLINE.into(), reason: sentence }
}
