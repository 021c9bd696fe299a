// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon that moves interrupts.

use colony_node::cpu::CpuSet;

use crate::distribution::Distribution;
use crate::finding::{Finding, Level};
use crate::node::Node;
use crate::outcome::{Checked, Outcome};
use crate::process::{Process, processes};
use crate::remedy::{Change, Remedy, parse_mask};
use crate::root::Unread;

const DEBIAN: &str = "/etc/default/irqbalance";
const RED_HAT: &str = "/etc/sysconfig/irqbalance";
const ARCH: &str = "/etc/irqbalance.env";
const LIST: &str = "IRQBALANCE_BANNED_CPULIST";
const MASK: &str = "IRQBALANCE_BANNED_CPUS";

/// A ban that is in effect, with the place where it was seen.
struct Ban {
    file: String,
    line: String,
    cpus: CpuSet,
}

/// irqbalance moves interrupts to any CPU, except those in its list (`IRQBALANCE_BANNED_CPULIST` since 1.8,
/// `IRQBALANCE_BANNED_CPUS` before). If it has no list, it leaves CPUs alone that are isolated or in `nohz_full` (since 1.0.8); a
/// list ends this (`setup_banned_cpus`).
pub(super) fn irqbalance(node: &Node) -> Checked {
    let Some(process) = processes(node)?.find(|p| p.name == "irqbalance") else {
        return Outcome::passed("/proc/*/stat", "irqbalance does not run");
    };
    let seen = format!("/proc/{}/stat", process.pid);
    let configuration = configuration(node);
    let ban = ban(node, &process, &configuration)?;
    let isolated = isolated(node)?;
    let spared = ban.as_ref().map_or(&isolated, |ban| &ban.cpus);
    let open = node.job.without(spared);
    if open.is_empty() {
        return match ban {
            Some(ban) => Outcome::passed(ban.file, ban.line),
            None => Outcome::passed(seen, "irqbalance leaves isolated CPUs alone"),
        };
    }
    let mut finding = Finding::new(
        Level::Low,
        format!("irqbalance may move interrupts to {} of the job at any time.", open.named()),
    )
    .seen(seen, "irqbalance");
    if let Some(ban) = &ban {
        finding = finding.seen(&ban.file, &ban.line).advice(
            "A list of banned CPUs replaces irqbalance's own protection of isolated and nohz_full CPUs: the list must name them, too.",
        );
    }
    if node.elsewhere().is_none() {
        return finding.advice("the job has every CPU: with --cpus, leave at least one to the system").into();
    }
    // the new list would end the protection of other isolated CPUs
    let banned: CpuSet = spared.iter().chain(node.job.iter()).chain(isolated.iter()).collect();
    let unit = process.system_unit(node);
    let line = Change::Line {
        file: configuration,
        line: format!("{LIST}={banned}"),
        reload: vec!["systemctl".into(), "restart".into(), unit.unwrap_or_else(|| "irqbalance".into())],
    };
    finding
        .remedy(
            Remedy::new([line], "the other CPUs serve all devices").keep(
                "the line itself; irqbalance before 1.8 reads a mask in IRQBALANCE_BANNED_CPUS instead",
            ),
        )
        .into()
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
pub(super) fn configuration(node: &Node) -> String {
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
fn ban(node: &Node, process: &Process, configuration: &str) -> Result<Option<Ban>, Unread> {
    let environment = format!("/proc/{}/environ", process.pid);
    let (file, text) = match node.root.read(&environment) {
        Ok(text) if !text.is_empty() => (environment, text.replace('\0', "\n")),
        _ => match node.root.read(configuration) {
            Ok(text) => (configuration.to_owned(), text),
            Err(e) if e.is_missing() => return Ok(None),
            Err(e) => return Err(e),
        },
    };
    let value = |name: &str| {
        let of = |line: &str| {
            let value = line.trim().strip_prefix(name)?.trim_start().strip_prefix('=')?;
            Some(value.trim().trim_matches(['"', '\'']).trim().to_owned())
        };
        // systemd takes the last assignment
        text.lines().filter_map(of).next_back().filter(|value| !value.is_empty())
    };
    let (name, value, cpus) = match (value(LIST), value(MASK)) {
        (Some(list), _) => (LIST, list.clone(), list.parse().ok()),
        (None, Some(mask)) => (MASK, mask.clone(), parse_mask(mask.trim_start_matches("0x"))),
        (None, None) => return Ok(None),
    };
    let line = format!("{name}={value}");
    let cpus = cpus.ok_or_else(|| Unread::value(&file, &line))?;
    Ok(Some(Ban { file, line, cpus }))
}
