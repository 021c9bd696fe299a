// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where ranks run: their machines, and what fails together with them.

use serde::{Deserialize, Serialize};

/// Names of the domains, from the largest to the smallest, with dots between them: `hall1.rack4`.
pub(crate) const DOMAINS: &str = "COLONY_DOMAINS";
/// Slurm's variable with the switches and the node of a task, `s0.s4.node17`, on clusters with a tree of switches.
const SLURM: &str = "SLURM_TOPOLOGY_ADDR";
/// What its parts are, `switch.switch.node`: the name of a node may have dots.
const SLURM_PARTS: &str = "SLURM_TOPOLOGY_ADDR_PATTERN";
/// Levels, and bytes of each name, that are kept.
const LEVELS: usize = 8;
const LONGEST: usize = 64;

/// Where a rank runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// An identifier of the machine.
    pub machine: String,
    /// What fails as a whole around the machine, from the largest to the smallest: such as racks, midplanes and node cards.
    pub domains: Vec<String>,
}

impl Place {
    /// That of this process.
    pub(crate) fn here() -> Self {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            machine: machine(),
            domains: domains(|name| std::env::var(name).ok(), host.as_deref().unwrap_or_default()),
        }
    }
}

/// The identifier of the running kernel: ranks with the same one die together with their machine.
pub(crate) fn machine() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The domains as the user says, otherwise Slurm, otherwise the host's name if it is the location of a compute node.
fn domains(variable: impl Fn(&str) -> Option<String>, host: &str) -> Vec<String> {
    let split = |text: &str, by: char| {
        let names = text.split(by).map(str::trim).filter(|name| !name.is_empty());
        names.take(LEVELS).map(|name| name.chars().take(LONGEST).collect()).collect::<Vec<String>>()
    };
    if let Some(own) = variable(DOMAINS) {
        return split(&own, '.');
    }
    if let Some(address) = variable(SLURM) {
        let parts = variable(SLURM_PARTS);
        let switches =
            parts.map_or(LEVELS, |parts| parts.split('.').take_while(|part| *part != "node").count());
        let mut all = split(&address, '.');
        // at least the last is the node's
        all.truncate(switches.min(all.len().saturating_sub(1)));
        return all;
    }
    if is_location(host) {
        let mut parts = split(host, '-');
        parts.pop();
        return parts;
    }
    Vec::new()
}

/// Returns `true` for the location of a compute node, such as `R00-M0-N04-J12`.
fn is_location(name: &str) -> bool {
    let mut parts = name.split('-');
    let is_part = |letter: char, part: Option<&str>| {
        part.and_then(|part| part.strip_prefix(letter))
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    ['R', 'M', 'N', 'J'].into_iter().all(|letter| is_part(letter, parts.next())) && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_the_users_or_slurms_or_those_of_a_location() {
        let none = |_: &str| None;
        assert_eq!(domains(none, "R01-M0-N04-J12"), ["R01", "M0", "N04"]);
        for host in ["node17", "R01-M0-N04", "R01-M0-N04-I2", "R01-M0-N04-J12-x", "R-M0-N04-J12", ""] {
            assert_eq!(domains(none, host), [""; 0], "{host}");
        }
        for (address, parts, expected) in [
            ("s0.s4.node17", "switch.switch.node", &["s0", "s4"][..]),
            ("s0.node17.site.org", "switch.node", &["s0"]),
            ("node17.site.org", "node", &[]),
            ("node17", "switch.switch", &[]),
            ("s0.s4.node17", "none", &["s0", "s4"]),
        ] {
            let slurm = |name: &str| match name {
                SLURM => Some(address.to_owned()),
                SLURM_PARTS => Some(parts.to_owned()).filter(|parts| parts != "none"),
                _ => None,
            };
            assert_eq!(domains(slurm, "R01-M0-N04-J12"), *expected, "{address} {parts}");
        }
        let own = |_: &str| Some(" hall1 ..rack4".to_owned());
        assert_eq!(domains(own, "node17"), ["hall1", "rack4"]);
        let long = |_: &str| Some(format!("{}.{}", "x".repeat(1000), "a.".repeat(100)));
        let kept = domains(long, "");
        assert_eq!((kept.len(), kept[0].len()), (LEVELS, LONGEST));
    }
}
