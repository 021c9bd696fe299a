// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of the kernel's command line.

/// Parameters of which the kernel keeps the first since Linux 4.15: `housekeeping_setup` refuses another one with other CPUs.
const FIRST_COUNTS: [&str; 2] = ["isolcpus", "nohz_full"];

/// All parameters `name` of a command line, in order: an empty text if one has no value.
pub(crate) fn all(cmdline: &str, name: &str) -> Vec<String> {
    let of = |word: &str| {
        let word = word.trim_matches('"');
        match word.split_once('=') {
            Some((n, value)) => is_same(n, name).then(|| value.trim_matches('"').to_owned()),
            None => is_same(word, name).then(String::new),
        }
    };
    // what follows `--` is the first program's
    cmdline.split_whitespace().take_while(|w| *w != "--").filter_map(of).collect()
}

/// Takes the one that counts out of `all`. The rest has no effect.
pub(crate) fn take_effective(
    all: &mut Vec<String>,
    name: &str,
    version: Option<(u32, u32)>,
) -> Option<String> {
    if all.is_empty() {
        return None;
    }
    let is_first = FIRST_COUNTS.contains(&name) && version.is_none_or(|v| v >= (4, 15));
    Some(all.remove(if is_first { 0 } else { all.len() - 1 }))
}

/// The kernel takes `-` and `_` in names of parameters for the same.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes().zip(b.bytes()).all(|(x, y)| x == y || (b"-_".contains(&x) && b"-_".contains(&y)))
}
