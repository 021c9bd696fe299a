// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony sim --report`: the results as a page.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use colony_sim::sweep::Results;
use colony_study::report::Simulated;
use colony_view::sim as view;

/// Writes the page to `path`.
pub(super) fn write(path: &Path, results: &Results) -> anyhow::Result<()> {
    let (what, command) = (view::headline(&results.scenario), command());
    let page = Simulated { results, what: &what, command: &command }.page()?;
    colony_node::file::write_atomically::<std::io::Error>(path, |w| w.write_all(page.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

/// The command that was given, for a shell.
fn command() -> String {
    let words = std::env::args_os().skip(1).map(|w| quoted(&w.to_string_lossy()));
    std::iter::once("colony".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// `word` as a shell takes it for itself.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,:=@%+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_come_through_a_shell_as_they_are() {
        for word in ["plain-1.toml", "16us every 1ms", "it's", "", "$HOME", "a\nb", "program.bytes=8,1024"] {
            let out = std::process::Command::new("sh")
                .arg("-c")
                .arg(format!("printf %s {}", quoted(word)))
                .output();
            assert_eq!(String::from_utf8(out.expect("sh").stdout).expect("text"), word);
        }
        assert_eq!(quoted("program.bytes=8,1024"), "program.bytes=8,1024");
    }
}
