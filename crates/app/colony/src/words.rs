// SPDX-License-Identifier: MIT OR Apache-2.0
//! Words of the command line: times, lists of CPUs, duty cycles.

use colony_doctor::remedy::quote;
use colony_node::cpu::CpuSet;

/// A time as people write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ns(pub(crate) u64);

/// Reads a time.
pub(crate) fn ns(text: &str) -> Result<Ns, String> {
    colony_time::text::parse_ns(text).map(Ns).map_err(|e| e.to_string())
}

/// Reads a list of CPUs.
pub(crate) fn cpus(text: &str) -> Result<CpuSet, String> {
    text.parse::<CpuSet>().map_err(|e| e.to_string())
}

/// Reads a duty cycle.
pub(crate) fn duty(text: &str) -> Result<colony_time::DutyCycle, String> {
    colony_time::text::parse_duty(text).map_err(|e| e.to_string())
}

/// The first few of a list, as `0, 1, 2, …`.
pub(crate) fn some_of(numbers: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<String> = numbers.iter().take(SHOWN).map(u32::to_string).collect();
    if numbers.len() > SHOWN {
        shown.push("…".into());
    }
    shown.join(", ")
}

/// The command that was given, for a shell.
pub(crate) fn command() -> String {
    let words = std::env::args_os().skip(1).map(|w| quote(&w.to_string_lossy()));
    std::iter::once("colony".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::quote as quoted;

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
