// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of nodes that take part, and the place of this node in it.

use std::collections::HashSet;
use std::net::{SocketAddr, ToSocketAddrs};

/// The port where none is written.
pub const DEFAULT_PORT: u16 = 4271;

/// The most nodes a list may have.
pub const MOST: usize = 65_536;

/// A node of the list: its place there is its rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// Port of its datagrams.
    pub port: u16,
}

/// A list that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    /// A line names no host.
    #[error("line {line} of the host list, `{text}`, names no host; write node1, node1:4271 or [::1]:4271")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The text of the line.
        text: String,
    },
    /// A list of Slurm that is none.
    #[error("`{0}` is no list of nodes as Slurm writes it (node[1-4,7])")]
    Slurm(String),
    /// Nobody, or too many.
    #[error("the host list has {0} nodes; it takes from 1 to {MOST}")]
    Count(usize),
    /// A name that cannot be resolved.
    #[error("cannot find the address of {host}: {reason}; correct the host list or the name service")]
    Address {
        /// The name.
        host: String,
        /// The resolver's answer.
        reason: String,
    },
}

impl std::fmt::Display for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

/// Reads a list: a host a line, `#` to the end of a line is a comment, and what follows the name (`slots=2`, as
/// in a host file of `mpirun`) is passed over. Hosts without a port have `port`. A host named several times, once a slot as
/// in `PBS_NODEFILE`, is one node of the list, at its first place.
///
/// # Errors
/// [`HostsError`]: the first line that is wrong.
pub fn parse(text: &str, port: u16) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Nodes::default();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let Some(word) = text.split_whitespace().next() else { continue };
        hosts.push(host(word, port).ok_or_else(|| HostsError::Line { line, text: word.into() })?)?;
    }
    hosts.finish()
}

/// Reads a list of Slurm: `node[001-016,20],login1`.
///
/// # Errors
/// [`HostsError::Slurm`] with the part that is wrong.
pub fn parse_slurm(text: &str, port: u16) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Nodes::default();
    for part in split_outside_brackets(text.trim()) {
        let wrong = || HostsError::Slurm(part.to_owned());
        let Some((head, rest)) = part.split_once('[') else {
            hosts.push(host(part, port).ok_or_else(wrong)?)?;
            continue;
        };
        let (ranges, tail) = rest.split_once(']').ok_or_else(wrong)?;
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (from, to) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
            if to < from || to - from >= MOST as u64 {
                return Err(wrong());
            }
            for n in from..=to {
                let name = format!("{head}{n:0width$}{tail}", width = first.len());
                hosts.push(host(&name, port).ok_or_else(wrong)?)?;
            }
        }
    }
    hosts.finish()
}

fn number(text: &str) -> Option<u64> {
    (text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn split_outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (i, c) in text.char_indices() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// `node1`, `node1:4271`, `::1`, `[::1]:4271`.
fn host(word: &str, port: u16) -> Option<Host> {
    let (name, port) = if let Some(rest) = word.strip_prefix('[') {
        let (name, rest) = rest.split_once(']')?;
        (name, if rest.is_empty() { port } else { rest.strip_prefix(':')?.parse().ok()? })
    } else {
        match word.split_once(':') {
            Some((name, number)) if !number.contains(':') => (name, number.parse().ok()?),
            // an address of IPv6, which has more colons
            _ => (word, port),
        }
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    let whole = !name.is_empty() && name.len() <= 255 && name.chars().all(fits) && !name.starts_with('-');
    (whole && port != 0).then(|| Host { name: name.into(), port })
}

/// The nodes of a list, each once.
#[derive(Default)]
struct Nodes {
    hosts: Vec<Host>,
    /// Names in lower case, because names of hosts have no case, with their ports.
    known: HashSet<(String, u16)>,
}

impl Nodes {
    fn push(&mut self, host: Host) -> Result<(), HostsError> {
        if self.known.insert((host.name.to_ascii_lowercase(), host.port)) {
            self.hosts.push(host);
        }
        if self.hosts.len() > MOST { Err(HostsError::Count(self.hosts.len())) } else { Ok(()) }
    }

    fn finish(self) -> Result<Vec<Host>, HostsError> {
        if self.hosts.is_empty() { Err(HostsError::Count(0)) } else { Ok(self.hosts) }
    }
}

/// The addresses of `hosts`, those of IPv4 preferred so that all are of one family where that is possible.
///
/// # Errors
/// [`HostsError::Address`]: the first name without one.
pub fn addresses(hosts: &[Host]) -> Result<Vec<SocketAddr>, HostsError> {
    hosts
        .iter()
        .map(|h| {
            let wrong = |reason: String| HostsError::Address { host: h.name.clone(), reason };
            let found = (h.name.as_str(), h.port).to_socket_addrs().map_err(|e| wrong(e.to_string()))?;
            found.min_by_key(SocketAddr::is_ipv6).ok_or_else(|| wrong("it has none".into()))
        })
        .collect()
}

/// The rank that the launcher (Slurm, Open MPI, MPICH) gives this process, and the variable that says so.
#[must_use]
pub fn rank_of(variable: impl Fn(&str) -> Option<String>) -> Option<(u32, &'static str)> {
    ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
        .into_iter()
        .find_map(|name| Some((variable(name)?.trim().parse().ok()?, name)))
}

/// The rank of the host called `name` here, if the list has it: the whole name, or both up to their first dot.
#[must_use]
pub fn rank_named(hosts: &[Host], name: &str) -> Option<u32> {
    let short = |n: &str| n.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let exact = hosts.iter().position(|h| h.name.eq_ignore_ascii_case(name));
    let alike: Vec<usize> = (0..hosts.len()).filter(|&i| short(&hosts[i].name) == short(name)).collect();
    exact.or((alike.len() == 1).then(|| alike[0])).and_then(|i| u32::try_from(i).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(hosts: &[Host]) -> Vec<String> {
        hosts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_list_a_host_file_and_slurms_notation() {
        let list = "# cluster\nnode1 slots=4\nnode2:99 # second\n\n::1\n[fe80::1]:5\n10.0.0.3:7\n";
        let expected = ["node1:4271", "node2:99", "[::1]:4271", "[fe80::1]:5", "10.0.0.3:7"];
        assert_eq!(names(&parse(list, DEFAULT_PORT).expect("a list")), expected);
        let slurm = parse_slurm("n[08-10,12],login,r[1]x", 1).expect("a list");
        assert_eq!(names(&slurm), ["n08:1", "n09:1", "n10:1", "n12:1", "login:1", "r1x:1"]);
    }

    #[test]
    fn a_host_named_once_a_slot_is_one_node() {
        let list = parse("b\nb\na\nB slots=2\na\na:7\n", 1).expect("a list");
        assert_eq!(names(&list), ["b:1", "a:1", "a:7"]);
        assert_eq!(names(&parse_slurm("n[1-2],n[2-3],n1", 1).expect("a list")), ["n1:1", "n2:1", "n3:1"]);
        // the limit is of nodes, not of slots
        let slots: String = (0..MOST).flat_map(|n| [format!("n{n}\n"), format!("n{n}\n")]).collect();
        assert_eq!(parse(&slots, 1).map(|l| l.len()), Ok(MOST));
        assert_eq!(parse(&format!("{slots}more\n"), 1), Err(HostsError::Count(MOST + 1)));
    }

    #[test]
    fn wrong_lists_say_where() {
        for (text, part) in
            [("", "0 nodes"), ("a\nb:x", "line 2"), ("a:0", "line 1"), ("a/b", "line 1"), ("-a", "line 1")]
        {
            let error = parse(text, 1).expect_err(text).to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
        for text in ["n[1-", "n[2-1]", "n[a]", "n[1-99999999]", "n[]", ","] {
            assert!(parse_slurm(text, 1).is_err(), "{text}");
        }
        // a part longer than 63 letters is refused without asking anybody
        let long = "n".repeat(64) + ".invalid";
        let nobody = parse(&long, 1).expect("a list");
        let error = addresses(&nobody).expect_err("nobody").to_string();
        assert!(error.contains(&long), "{error}");
    }

    #[test]
    fn a_rank_is_the_launchers_or_the_hosts() {
        let slurm = |name: &str| (name == "SLURM_PROCID").then(|| "3".to_owned());
        assert_eq!(rank_of(slurm), Some((3, "SLURM_PROCID")));
        assert_eq!(rank_of(|_| None), None);
        let hosts = parse("node1.cluster\nnode2", 1).expect("a list");
        assert_eq!(rank_named(&hosts, "NODE2.cluster"), Some(1));
        assert_eq!(rank_named(&hosts, "node1"), Some(0));
        assert_eq!(rank_named(&hosts, "node3"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z0-9\\[\\],:.#\n -]{0,60}") {
            let _ = (parse(&text, 1), parse_slurm(&text, 1));
        }
    }
}
