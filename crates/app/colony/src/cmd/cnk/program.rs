// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program of a job on compute nodes: its file, its environment, its mode, the signals that it gets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use colony_nodes::ciod::Mode;

use crate::exit::WrongUse;

#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(crate) enum ModeWord {
    /// One process a node
    #[default]
    Coprocessor,
    /// Two processes a node, one on each CPU
    VirtualNode,
}

impl From<ModeWord> for Mode {
    fn from(word: ModeWord) -> Self {
        match word {
            ModeWord::Coprocessor => Self::Coprocessor,
            ModeWord::VirtualNode => Self::VirtualNode,
        }
    }
}

#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum IoNodesWord {
    /// Processes on this machine, with its files
    #[default]
    Process,
    /// Virtual Linux machines, each with its own files; nodes reach theirs over network devices
    Linux,
}

/// Does `work`, and passes interrupts to a job meanwhile: one after a polite one is a kill.
pub(crate) fn passing_signals<T>(pass: impl Fn(i32) + Send, work: impl FnOnce() -> T) -> anyhow::Result<T> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let handle = signals.handle();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut asked = false;
            for signal in &mut signals {
                pass(if asked { SIGKILL } else { signal });
                asked = true;
            }
        });
        let result = work();
        handle.close();
        Ok(result)
    })
}

/// The program as the job will find it: by its path, or in PATH.
pub(crate) fn find(program: &str, below_root: bool) -> Result<PathBuf, WrongUse> {
    if program.contains('/') || below_root {
        return if below_root { Ok(program.into()) } else { absolute(program) };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or_else(|| {
        WrongUse(format!("`{program}` is in no folder of PATH; write ./{program} for one here"))
    })
}

fn absolute(program: &str) -> Result<PathBuf, WrongUse> {
    std::path::absolute(program).map_err(|e| WrongUse(format!("{program}: {e}")))
}

/// The variables of a job: `PATH`, `HOME`, and those of `words`, set or passed on.
pub(crate) fn environment(words: &[String]) -> Result<BTreeMap<String, String>, WrongUse> {
    let mut all = BTreeMap::new();
    for name in ["PATH", "HOME"] {
        if let Ok(value) = std::env::var(name) {
            all.insert(name.to_owned(), value);
        }
    }
    for word in words {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (
                word.as_str(),
                std::env::var(word)
                    .map_err(|_| WrongUse(format!("there is no variable {word} to pass on")))?,
            ),
        };
        all.insert(name.to_owned(), value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_or_passed_on() {
        let all = environment(&["A=1=2".into(), "PATH=".into()]).expect("right");
        assert_eq!((all["A"].as_str(), all["PATH"].as_str()), ("1=2", ""));
        assert!(environment(&["NO_SUCH_VARIABLE_HERE".into()]).is_err());
    }
}
