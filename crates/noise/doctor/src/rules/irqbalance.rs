// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that moves interrupts.

use colony_node::cpu::CpuSet;

use crate::distribution::Distribution;
use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::{Process, processes};
use crate::remedy::{Change, Remedy, mask, parse_mask};
use crate::root::Unread;

const DEBIAN: &str = "/etc/default/irqbalance";
const RED_HAT: &str = "/etc/sysconfig/irqbalance";
const ARCH: &str = "/etc/irqbalance.env";
const LIST: &str = "IRQBALANCE_BANNED_CPULIST";
const MASK: &str = "IRQBALANCE_BANNED_CPUS";

/// A ban that is in effect, with the place where it was seen.
struct Ban {
    file: String,
    name: &'static str,
    value: String,
    cpus: CpuSet,
}

/// irqbalance moves interrupts to any CPU, except those that it is told to spare: in the mask `IRQBALANCE_BANNED_CPUS`, or else in
/// `IRQBALANCE_BANNED_CPULIST` (since 1.8), which it does not read beside a mask. Without both, it leaves CPUs alone that are isolated
/// or in `nohz_full` (since 1.0.8); a list or a mask ends this (`setup_banned_cpus`).
pub(super) fn irqbalance(node: &Node) -> Checked {
    let Some(process) = processes(node)?.find(|p| p.name == "irqbalance") else {
        return Outcome::passed("/proc/*/stat", "irqbalance does not run");
    };
    let seen = format!("/proc/{}/stat", process.pid);
    let configuration = configuration(node);
    let ban = ban(node, Some(&process), &configuration)?;
    let isolated = isolated(node)?;
    let spared = ban.as_ref().map_or(&isolated, |ban| &ban.cpus);
    let open = node.job.without(spared);
    if open.is_empty() {
        return match ban {
            Some(ban) => Outcome::passed(&ban.file, ban.line()),
            None => Outcome::passed(seen, "irqbalance leaves isolated CPUs alone"),
        };
    }
    let mut finding = Finding::new(
        Level::Low,
        format!("irqbalance may move interrupts to {} of the job at any time.", open.named()),
    )
    .seen(seen, "irqbalance");
    if let Some(ban) = &ban {
        finding = ban
            .advice(node, &isolated)
            .into_iter()
            .fold(finding.seen(&ban.file, ban.line()), Finding::advice);
    }
    if node.elsewhere().is_none() {
        return finding.advice("the job has every CPU: with --cpus, leave at least one to the system").into();
    }
    let new = NewList::choose(node, ban.as_ref(), &isolated);
    let remedy = new.remedy(node, &process, ban.as_ref(), configuration);
    new.advice.into_iter().fold(finding.remedy(remedy), Finding::advice).into()
}

/// The line that keeps irqbalance from moving interrupts back to the job's CPUs, with its file.
pub(super) fn line_and_file(node: &Node) -> String {
    let file = configuration(node);
    let process = processes(node).ok().and_then(|mut all| all.find(|p| p.name == "irqbalance"));
    let ban = ban(node, process.as_ref(), &file).ok().flatten();
    let list = NewList::choose(node, ban.as_ref(), &isolated(node).unwrap_or_default());
    let is_mask = ban.is_some_and(|ban| ban.name == MASK);
    let instead = if is_mask { format!(" instead of {MASK}") } else { String::new() };
    format!("{} in {file}{instead}", list.line())
}

impl Ban {
    fn line(&self) -> String {
        format!("{}={}", self.name, self.value)
    }

    /// Reasons why the ban does not protect the job.
    fn advice(&self, node: &Node, isolated: &CpuSet) -> Vec<String> {
        let mut advice = Vec::new();
        if !isolated.without(&self.cpus).is_empty() {
            advice.push(
                "A list of banned CPUs replaces irqbalance's own protection of isolated and nohz_full CPUs: the list must name them, too."
                    .into(),
            );
        }
        let unknown = self.cpus.without(&cpus_of(node));
        if !unknown.is_empty() {
            advice.push(format!("{} bans {}, which this node does not have.", self.line(), unknown.named()));
        }
        if self.name == MASK {
            advice.push(format!("irqbalance does not read {LIST} as long as {MASK} is set."));
        }
        advice
    }
}

/// The list of CPUs to ban.
struct NewList {
    cpus: CpuSet,
    advice: Option<String>,
}

impl NewList {
    /// The job's CPUs, with those that are spared now: a list would end the protection of isolated CPUs. If these are all CPUs of the
    /// node, CPUs beside the job's are left out, because one at least must serve interrupts.
    fn choose(node: &Node, ban: Option<&Ban>, isolated: &CpuSet) -> Self {
        let known = cpus_of(node);
        let banned = ban.map(|ban| ban.cpus.and(&known)).unwrap_or_default();
        let isolated = isolated.and(&known);
        let with_job = |sets: [&CpuSet; 2]| -> CpuSet {
            sets.into_iter().chain([&node.job]).flat_map(CpuSet::iter).collect()
        };
        let all = with_job([&banned, &isolated]);
        let serves = |cpus: &CpuSet| !node.rest.without(cpus).is_empty();
        if serves(&all) {
            return Self { cpus: all, advice: None };
        }
        let apart = with_job([&isolated, &isolated]);
        let cpus = if serves(&apart) { apart } else { node.job.clone() };
        let kept = match ban {
            Some(ban) => format!("The CPUs that {} bans, isolated CPUs", ban.line()),
            None => "Isolated CPUs".into(),
        };
        let advice = format!(
            "{kept} and the job's CPUs together leave no CPU for interrupts: the new list is without {}.",
            all.without(&cpus).named()
        );
        Self { cpus, advice: Some(advice) }
    }

    fn line(&self) -> String {
        format!("{LIST}={}", self.cpus)
    }

    /// The list in the place of all lists and masks of the file.
    fn remedy(&self, node: &Node, process: &Process, ban: Option<&Ban>, file: String) -> Remedy {
        let unit = process.system_unit(node).unwrap_or_else(|| "irqbalance".into());
        let text = node.root.read(&file).unwrap_or_default();
        let assigns = |line: &str, name: &str| assigned(line, name).is_some();
        // with what ends a line, as the commands look for whole lines
        let replaces: Vec<String> = text
            .split('\n')
            .filter(|line| assigns(line, LIST) || assigns(line, MASK))
            .map(str::to_owned)
            .collect();
        let change = |line: String, replaces| Change::Line {
            file: file.clone(),
            line,
            replaces,
            reload: vec!["systemctl".into(), "restart".into(), unit.clone()],
        };
        // a mask that another file sets: the last file that the unit reads ends it
        let foreign = ban.filter(|ban| ban.name == MASK && !replaces.iter().any(|line| assigns(line, MASK)));
        let foreign = foreign.map(|_| change(format!("{MASK}="), Vec::new()));
        let serving = node.rest.without(&self.cpus);
        let serve = if serving.len() == 1 { "serves" } else { "serve" };
        let changes = foreign.into_iter().chain([change(self.line(), replaces)]);
        Remedy::new(changes, &format!("{} {serve} all devices", serving.named())).keep(format!(
            "the line itself; irqbalance before 1.8 reads only a mask: there, write {MASK}={} instead",
            mask(&self.cpus)
        ))
    }
}

/// CPUs that the node may have; the online ones if its files do not tell.
fn cpus_of(node: &Node) -> CpuSet {
    let online = || node.job.iter().chain(node.rest.iter());
    let possible = node.cpus("/sys/devices/system/cpu/possible").unwrap_or_default();
    possible.iter().chain(online()).collect()
}

/// CPUs that irqbalance leaves alone by itself.
fn isolated(node: &Node) -> Result<CpuSet, Unread> {
    let mut all = Vec::new();
    for name in ["isolated", "nohz_full"] {
        match node.cpus(&format!("/sys/devices/system/cpu/{name}")) {
            Ok(cpus) => all.extend(cpus.iter()),
            Err(e) if e.is_missing() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all.into_iter().collect())
}

/// The file that the unit reads: as the unit says, or else by the distribution, or else the one that is there.
fn configuration(node: &Node) -> String {
    let folders =
        ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];
    for folder in folders {
        let Ok(unit) = node.root.read(&format!("{folder}/irqbalance.service")) else { continue };
        let files = unit.lines().filter_map(|line| line.trim().strip_prefix("EnvironmentFile="));
        // defaults of the package are read first, the administrator's file last
        if let Some(file) = files.map(|f| f.trim_start_matches('-')).rfind(|f| f.starts_with("/etc/")) {
            return file.to_owned();
        }
    }
    let usual = match Distribution::of(node) {
        Some(Distribution::RedHat | Distribution::Suse) => Some(RED_HAT),
        Some(Distribution::Debian) => Some(DEBIAN),
        Some(Distribution::Arch) => Some(ARCH),
        None => None,
    };
    let there = [DEBIAN, RED_HAT, ARCH].into_iter().find(|file| node.root.exists(file));
    usual.or(there).unwrap_or(DEBIAN).to_owned()
}

/// The ban that the running process has, by its environment if this user may read it, or else by its configuration.
fn ban(node: &Node, process: Option<&Process>, configuration: &str) -> Result<Option<Ban>, Unread> {
    let environment = process.map(|process| format!("/proc/{}/environ", process.pid));
    let environment = environment.and_then(|file| Some((node.root.read(&file).ok()?, file)));
    let (text, file) = match environment {
        Some((text, file)) if !text.is_empty() => (text.replace('\0', "\n"), file),
        _ => match node.root.read(configuration) {
            Ok(text) => (text, configuration.to_owned()),
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e),
        },
    };
    let value = |name: &str| {
        // systemd takes the last assignment
        text.lines().filter_map(|line| assigned(line, name)).next_back().filter(|value| !value.is_empty())
    };
    let (name, value, cpus) = match (value(MASK), value(LIST)) {
        (Some(mask), _) => (MASK, mask, parse_mask(mask.trim_start_matches("0x"))),
        (None, Some(list)) => (LIST, list, list.parse().ok()),
        (None, None) => return Ok(None),
    };
    let cpus = cpus.ok_or_else(|| Unread::value(&file, &format!("{name}={value}")))?;
    Ok(Some(Ban { name, value: value.to_owned(), cpus, file }))
}

/// The value that a line gives the variable `name`.
fn assigned<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let value = line.trim().strip_prefix(name)?.trim_start().strip_prefix('=')?;
    Some(value.trim().trim_matches(['"', '\'']).trim())
}
