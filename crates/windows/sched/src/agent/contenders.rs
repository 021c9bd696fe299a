// SPDX-License-Identifier: MIT OR Apache-2.0
//! Agents of other processes on the same CPUs.
//!
//! Two agents that favor their jobs on one CPU hold each other's job up, and neither job has its windows. Agents are found by
//! their guardians, which have a name of their own and are children of the agent's process, and by their threads at the
//! edges, each of which is bound to its CPU. So agents of every user are found, no file can be left behind, and a look reads one
//! file for each process of the node.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use colony_node::cpu::{self, CpuSet};
use colony_node::task::{self, TaskId};
use nix::unistd::{Uid, User};

use super::edges::EDGE_THREAD;
use crate::guardian;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(10);
/// The longest part of a command line that is shown, in characters.
const COMMAND: usize = 80;

/// Looks for other agents, and remembers those that were reported.
#[derive(Debug, Default)]
pub(super) struct Contenders {
    looked: Option<Instant>,
    /// The task that was started last on this node before the last look.
    newest: Option<i32>,
    reported: BTreeSet<(i32, u64)>,
}

impl Contenders {
    /// Warnings of agents on `cpus` that were not there before: at most one look each [`INTERVAL`], and none if no task was
    /// started since the last one.
    pub(super) fn look_if_due(&mut self, cpus: &CpuSet) -> Vec<String> {
        if self.looked.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Vec::new();
        }
        // read before the look: what starts meanwhile is news the next time
        let newest = task::newest();
        let is_quiet = self.looked.is_some() && newest.is_some() && newest == self.newest;
        self.newest = newest;
        self.looked = Some(Instant::now());
        if is_quiet { Vec::new() } else { self.look(cpus) }
    }

    /// Warnings of agents on `cpus` that were not there before.
    pub(super) fn look(&mut self, cpus: &CpuSet) -> Vec<String> {
        let found = find(cpus).into_iter();
        let news = found.filter(|c| self.reported.insert((c.process.tid, c.process.start_ticks)));
        news.map(|c| c.warning()).collect()
    }
}

/// An agent of another process with threads on CPUs of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Contender {
    process: TaskId,
    user: String,
    command: String,
    /// The CPUs that both have.
    cpus: CpuSet,
}

impl Contender {
    /// The agent of process `pid`, if it has threads on `cpus`.
    fn on(pid: i32, cpus: &CpuSet) -> Option<Self> {
        let is_edge = |tid: &i32| task::name(*tid).is_some_and(|name| name.starts_with(EDGE_THREAD));
        let edges = task::threads(pid).into_iter().filter(is_edge);
        let theirs: CpuSet = edges.filter_map(|tid| cpu::affinity(tid).ok()?.first()).collect();
        let shared = theirs.and(cpus);
        if shared.is_empty() {
            return None;
        }
        let process = TaskId::of(pid).ok()?;
        Some(Self { process, user: user(pid), command: command(pid), cpus: shared })
    }

    fn warning(&self) -> String {
        let Self { process, user, command, cpus } = self;
        let since = process.started().map_or_else(|| "a time that is not known".into(), utc);
        format!(
            "another agent favors its job on {} too: process {} of {user}, `{command}`, since {since}; neither job has \
             its windows there: give each job CPUs of its own (--cpus), or run both under one colonyd",
            cpus.named(),
            process.tid
        )
    }
}

/// The agents of other processes with threads on `cpus`.
fn find(cpus: &CpuSet) -> Vec<Contender> {
    let me = std::process::id().cast_signed();
    let is_guardian =
        |pid: &i32| task::name(*pid).is_some_and(|name| name.as_bytes() == guardian::NAME.to_bytes());
    let guardians = task::processes().into_iter().filter(is_guardian);
    let agents: BTreeSet<i32> = guardians.filter_map(|pid| Some(task::stat(pid).ok()?.parent)).collect();
    agents.into_iter().filter(|&pid| pid != me).filter_map(|pid| Contender::on(pid, cpus)).collect()
}

/// The name of the user that process `pid` belongs to, or the number of a user without a name.
fn user(pid: i32) -> String {
    let Ok(about) = std::fs::metadata(format!("/proc/{pid}")) else {
        return "a user that is not known".into();
    };
    let user = User::from_uid(Uid::from_raw(about.uid())).ok().flatten();
    user.map_or_else(|| format!("user {}", about.uid()), |user| format!("user {}", user.name))
}

/// The command of process `pid` as text.
fn command(pid: i32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    shown(&String::from_utf8_lossy(&line))
}

/// A command line, whose words end in 0, fit for a terminal: the program without its folder, cut to [`COMMAND`] characters. Another user
/// may have chosen the words.
fn shown(line: &str) -> String {
    let line = line.strip_suffix('\0').unwrap_or(line).replace('\0', " ");
    let words = line.split_once(' ').unwrap_or((&line, ""));
    let program = words.0.rsplit('/').next().unwrap_or_default();
    let text = format!("{program} {}", words.1);
    let mut shown: String = text.trim_end().chars().take(COMMAND).collect();
    if shown.len() < text.trim_end().len() {
        shown.push('…');
    }
    shown.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// A time as date and time of day, UTC.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // years begin in March, so that the day that some years have more is their last; 719,468 days from 0000-03-01 to 1970
    let day = day + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_warning_names_process_user_command_and_start() {
        let process = TaskId::of(std::process::id().cast_signed()).expect("alive");
        let cpus: CpuSet = "2-3".parse().expect("a list");
        let me = Contender { process, user: user(process.tid), command: command(process.tid), cpus };
        let text = me.warning();
        let uid = nix::unistd::getuid();
        let name = User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| user.name);
        let (number, user) = (format!("process {}", process.tid), format!("user {name},"));
        for part in [number.as_str(), &user, "CPUs 2-3", " UTC;", "--cpus"] {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
        assert!(text.contains(&format!("`{}`", command(process.tid))), "{text}");
        // a clock that was set back since has it in the future
        let started = process.started().expect("the kernel tells").elapsed().unwrap_or_default();
        assert!(started < Duration::from_secs(7 * 86_400), "{started:?}");
    }

    #[test]
    fn a_process_without_threads_at_edges_is_no_contender() {
        let all = cpu::online().expect("linux");
        assert_eq!(Contender::on(std::process::id().cast_signed(), &all), None);
        assert_eq!(Contender::on(i32::MAX, &all), None);
    }

    #[test]
    fn a_command_is_shown_without_the_folder_of_its_program() {
        assert_eq!(shown("/usr/bin/colony\0run\0--\0./app\0"), "colony run -- ./app");
        assert_eq!(shown("colony\0"), "colony");
        assert_eq!(shown("sh\0-c\0a\nb\u{1b}[2J\0"), "sh -c a\u{fffd}b\u{fffd}[2J");
        assert_eq!(shown(""), "");
        assert!(shown(&"x\0".repeat(100)).ends_with('…'));
    }

    #[test]
    fn times_are_dates() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(at(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(at(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(at(1_795_772_700), "2026-11-27 09:45:00 UTC");
        assert_eq!(at(4_102_444_800), "2100-01-01 00:00:00 UTC");
    }

    proptest! {
        #[test]
        fn no_command_line_moves_a_cursor(text in any::<String>()) {
            let shown = shown(&text);
            prop_assert!(shown.chars().count() <= COMMAND + 1 && !shown.contains(char::is_control));
        }
    }
}
