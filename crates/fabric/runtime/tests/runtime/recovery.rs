// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranks that die are replaced, and the program goes on from the last checkpoint with the same result.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::example;
use crate::mortal::{CHECKPOINT, EVERY_ROUND, GO_ON, LOG, Mortal, assert_recovers, lines, text, undisturbed};
use crate::stand_in::stand_in;

#[test]
fn any_rank_may_die_at_any_point_and_the_result_is_the_same() {
    let expected = undisturbed();
    // objects are packed first to migrate and then for a checkpoint
    let points =
        [("start", 0), ("entry", 3), ("entry", 50), ("pack", 1), ("pack", 6), ("unpack", 2), ("resume", 9)];
    for (phase, after) in points {
        for rank in 0..3 {
            assert_recovers(Mortal::new(&[(phase, rank, after)]), &expected, 1);
        }
    }
}

/// How many entry methods each rank ran, and how many of them again.
fn counts(output: &Output) -> Vec<(u32, u32)> {
    let number = |word: Option<&str>| word.and_then(|word| word.trim_end_matches(',').parse().ok());
    let mut lines = lines(output, "rank ");
    lines.retain(|line| line.ends_with("again"));
    lines.sort();
    let of_line = |line: &String| {
        let mut words = line.split(' ').skip(3);
        Some((number(words.next())?, number(words.next())?))
    };
    lines.iter().filter_map(of_line).collect()
}

#[test]
fn with_a_log_only_the_rank_that_died_runs_again() {
    let logged = |deaths: &[(&str, u32, u32)]| {
        let output = Mortal::new(deaths).with(CHECKPOINT, LOG).with("MORTAL_COUNTS", "1").run();
        assert!(output.status.success(), "{deaths:?}: {}", text(&output.stderr));
        output
    };
    let expected = logged(&[]);
    let undisturbed = counts(&expected);
    assert_eq!(undisturbed.len(), 3);
    for dead in 0..3 {
        for (phase, after) in [("entry", 95), ("entry", 121), ("entry", 139), ("resume", 19), ("unpack", 25)]
        {
            let output = logged(&[(phase, dead, after)]);
            assert_eq!(output.stdout, expected.stdout);
            let again = format!("rank {dead} runs again from checkpoint 0, {GO_ON}");
            assert_eq!(lines(&output, &again).len(), 1, "{phase} {dead} {after}: {}", text(&output.stderr));
            for (rank, (count, before)) in (0..).zip(counts(&output).into_iter().zip(&undisturbed)) {
                if rank != dead {
                    assert_eq!(count, *before, "rank {rank} has not gone back");
                }
            }
            // the dead rank has not run what came before the checkpoint
            assert!(counts(&output)[dead as usize].0 < undisturbed[dead as usize].0);
        }
    }
}

#[test]
fn with_a_log_ranks_die_one_after_the_other_also_while_one_runs_again() {
    let expected = undisturbed();
    for first in 0..3 {
        let (second, third) = ((first + 1) % 3, (first + 2) % 3);
        for deaths in [
            [("entry", first, 95), ("entry", second, 101), ("entry", third, 115)],
            [("entry", first, 95), ("entry", second, 95), ("entry", third, 160)],
            // the replacement of the first dies when it runs again, or is restored
            [("entry", first, 130), ("entry", first, 20), ("entry", third, 150)],
            [("entry", first, 130), ("unpack", first, 3), ("pack", second, 20)],
        ] {
            // files of one rank and phase are one: only the last number is used
            let deaths: std::collections::BTreeMap<_, _> = deaths.iter().map(|d| ((d.0, d.1), d.2)).collect();
            let deaths: Vec<_> =
                deaths.into_iter().map(|((phase, rank), after)| (phase, rank, after)).collect();
            assert_recovers(Mortal::new(&deaths).with(CHECKPOINT, LOG), &expected, deaths.len());
        }
    }
}

#[test]
fn a_program_that_depends_on_time_goes_back_to_the_checkpoint() {
    let output = Mortal::new(&[("entry", 1, 121)]).with(CHECKPOINT, LOG).with("MORTAL_CLOCK", "1").run();
    assert_eq!(text(&output.stdout), undisturbed());
    let warnings = lines(&output, "warning: PE 1 does not run again as it ran before");
    // a process that differs before the others know that it runs again is replaced by one that differs, too
    assert!((1..=4).contains(&warnings.len()), "{}", text(&output.stderr));
    assert_eq!(lines(&output, "all ranks go back to checkpoint 0: rank 1 was running again").len(), 1);
}

#[test]
fn a_log_that_is_too_long_is_dropped_and_all_ranks_go_back() {
    // the first message is too much
    let log = "memory:same-machine:every=4:log=1";
    let output = Mortal::new(&[("entry", 1, 130)]).with(CHECKPOINT, log).run();
    assert_eq!(text(&output.stdout), undisturbed());
    let warnings = lines(&output, "warning: the log of PE ");
    // each process warns once in each generation
    assert!((1..=6).contains(&warnings.len()), "{warnings:?}");
    assert_eq!(lines(&output, "all ranks go back to checkpoint").len(), 1);
    assert!(!text(&output.stderr).contains(GO_ON));
}

/// Bytes of each checkpoint since the last recovery, and those that were sent.
fn checkpoints(output: &Output) -> Vec<[u64; 2]> {
    let number = |word: &str| word.parse().expect("a number");
    let pair = |line: String| {
        let mut words = line.split_whitespace().skip(1).map(number);
        [words.next().expect("bytes"), words.next().expect("sent")]
    };
    lines(output, "checkpoint: ").into_iter().map(pair).collect()
}

#[test]
fn what_has_not_changed_is_not_sent_again_until_a_rank_dies() {
    let expected = undisturbed();
    // most of the bytes are those of shelves, of which one in three changes
    let is_less = |[bytes, sent]: [u64; 2]| sent * 2 < bytes;
    for deaths in [&[][..], &[("entry", 1, 30)], &[("resume", 2, 12), ("unpack", 2, 1)]] {
        let output = Mortal::new(deaths).with("MORTAL_REPORT", "1").run();
        assert_eq!(text(&output.stdout), expected);
        let all = checkpoints(&output);
        assert!(all.len() > 2, "{deaths:?}: {}", text(&output.stderr));
        assert_eq!(all[0][0], all[0][1], "the first one, and that after a recovery, are whole");
        assert!(all[1..].iter().all(|one| is_less(*one)), "{deaths:?}: {all:?}");
    }
}

#[test]
fn several_deaths_also_during_a_recovery_are_survived() {
    let expected = undisturbed();
    for first in 0..3 {
        let (second, third) = ((first + 1) % 3, (first + 2) % 3);
        // the replacement of the first unpacks its objects, and dies
        let deaths = [("entry", first, 30), ("unpack", first, 1)];
        assert_recovers(Mortal::new(&deaths), &expected, 2);
        let deaths = [("entry", first, 30), ("resume", second, 17), ("pack", third, 21)];
        assert_recovers(Mortal::new(&deaths), &expected, 3);
        assert_recovers(Mortal::new(&[("entry", 0, 30), ("entry", 1, 30), ("entry", 2, 30)]), &expected, 3);
        // both copies of an image may be lost: then the program begins anew
        let deaths = [("resume", first, 12), ("resume", second, 12)];
        assert_recovers(Mortal::new(&deaths), &expected, 2);
    }
}

#[test]
fn if_both_copies_in_memory_are_lost_the_program_goes_on_from_disk() {
    let expected = undisturbed();
    for first in 0..3 {
        let folder = tempfile::tempdir().expect("a folder");
        let value = format!("memory:same-machine:disk={}", folder.path().join("new").display());
        let deaths = [("resume", first, 20), ("resume", (first + 1) % 3, 20)];
        assert_recovers(Mortal::new(&deaths).with(CHECKPOINT, &value), &expected, 2);
    }
}

#[test]
fn processes_with_several_pes_recover() {
    let expected = undisturbed();
    for rank in 0..3 {
        let deaths = [("entry", rank, 20), ("pack", (rank + 1) % 3, 11)];
        assert_recovers(Mortal::new(&deaths).with("THREADS", "2"), &expected, 2);
    }
}

#[test]
fn another_build_of_the_program_restarts_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = folder.path().join("checkpoints");
    let rebuilt = folder.path().join("stencil");
    let mut bytes = std::fs::read(example("stencil")).expect("it is built");
    bytes.push(0);
    std::fs::write(&rebuilt, bytes).expect("room");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(&rebuilt, executable).expect("ours");
    let run = |program: &Path| {
        let mut command = Command::new(program);
        command.args(["16", "2", "40", "10"]).env("COLONY_RESTART", &disk);
        let output = command.env(CHECKPOINT, format!("disk={}", disk.display())).output().expect("starts");
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), lines(&output, "warning:"))
    };
    let (result, warnings) = run(&example("stencil"));
    assert!(warnings.len() == 1 && warnings[0].ends_with("no complete checkpoint; the program begins"));
    assert_eq!(run(&rebuilt), (result, Vec::new()), "it goes on from the checkpoint");
}

#[test]
fn a_rank_that_stops_responding_is_replaced() {
    let expected = undisturbed();
    for rank in 0..3 {
        // with a timeout that is chosen, and by default
        for timeout in [Some(1), None].into_iter().take(if rank == 1 { 2 } else { 1 }) {
            let output = Mortal { timeout, restarts: 20, ..Mortal::new(&[("stop", rank, 25)]) }.run();
            assert_eq!(text(&output.stdout), expected);
            let warnings = lines(&output, "warning:");
            let silent = format!("warning: rank {rank} has not responded for ");
            let replaced = format!("warning: rank {rank} was killed by signal 9; restart ");
            for begin in [silent, replaced] {
                assert!(warnings.iter().any(|line| line.starts_with(&begin)), "{warnings:?}");
            }
        }
    }
}

#[test]
fn a_rank_that_is_stopped_and_continued_goes_on() {
    let expected = undisturbed();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("stop-1"), "25").expect("room");
    let mut command = Command::new(example("run"));
    command.arg("3").arg(example("mortal")).env("MORTAL", folder.path());
    command.env("RUN_RESTARTS", "1").env(CHECKPOINT, EVERY_ROUND);
    let mut launcher =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let errors = BufReader::new(launcher.stderr.take().expect("a pipe"));
    let mut errors = errors.lines().map_while(Result::ok);
    let warning = errors.next().expect("a warning");
    let pid = warning.strip_prefix("warning: rank 1 (process ").and_then(|rest| rest.split_once(')'));
    let (pid, rest) = pid.unwrap_or_else(|| panic!("{warning}"));
    assert!(rest.starts_with(" has been stopped for "), "{warning}");
    assert!(
        rest.ends_with(&format!("counts as dead after 5.0 s; continue it by kill -CONT {pid}")),
        "{warning}"
    );
    std::thread::sleep(Duration::from_secs(2));
    kill(Pid::from_raw(pid.parse().expect("a number")), Signal::SIGCONT).expect("it is stopped");
    assert_eq!(errors.next().as_deref(), Some("rank 1 goes on"));
    let output = launcher.wait_with_output().expect("ends");
    assert_eq!((text(&output.stdout), output.status.code()), (expected, Some(0)));
    assert_eq!(errors.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Stands in for `ssh OPTIONS -- HOST LINE`. A host is lost if there is a file `down-HOST`, or once a rank on it has died and
/// the file `frail-HOST` is there.
const SSH: &str = r#"
folder=${0%/*}
for word; do host=$line; line=$word; done
[ -e "$folder/down-$host" ] && exit 255
echo "$host" >> "$folder/started"
sh -c "$line"
code=$?
[ -e "$folder/frail-$host" ] && touch "$folder/down-$host"
[ $code -gt 128 ] && exit 255
exit $code
"#;

#[test]
fn ranks_of_a_lost_host_go_on_on_a_spare_or_on_the_other_hosts() {
    let expected = undisturbed();
    for (file, spares, place) in [
        ("frail-127.0.0.2", "127.0.0.3", "127.0.0.3"),
        ("frail-127.0.0.2", "", "127.0.0.1"),
        ("down-127.0.0.2", "127.0.0.3", "127.0.0.3"),
    ] {
        let (folder, path) = stand_in("ssh", SSH);
        std::fs::write(folder.path().join(file), "").expect("room");
        let deaths: &[_] = if file.starts_with("frail") { &[("entry", 1, 50)] } else { &[] };
        let mortal = Mortal::new(deaths).with("PATH", &path).with("RUN_HOSTS", "127.0.0.1,127.0.0.2");
        let mortal = if spares.is_empty() { mortal } else { mortal.with("RUN_SPARES", spares) };
        let output = mortal.run();
        assert_eq!(text(&output.stdout), expected, "{file}: {}", text(&output.stderr));
        let moved = lines(&output, "warning: rank 1 was lost with its host or connection; restart ");
        assert!(moved.last().is_some_and(|line| line.ends_with(&format!(" on {place}"))), "{moved:?}");
        let started = std::fs::read_to_string(folder.path().join("started")).expect("ssh was started");
        assert!(started.lines().any(|host| host == place), "{started}");
    }
}

/// Stands in for `ssh` to a host that is cut off: if this is killed, the rank stays. It wakes up when the next one is started.
const CUT_OFF: &str = r#"
folder=${0%/*}
for word; do line=$word; done
case $line in *COLONY_JOB_RANK=\'1\'*) ;; *) exec sh -c "$line" ;; esac
IFS= read -r secret
[ -e "$folder/first" ] && kill -CONT "$(cat "$folder/first")"
printf '%s\n' "$secret" | setsid sh -c "echo \$\$ > '$folder/started'; exec sh -c \"\$0\"" "$line" &
until [ -s "$folder/started" ]; do sleep 0.01; done
[ -e "$folder/first" ] || cp "$folder/started" "$folder/first"
wait
"#;

#[test]
fn a_rank_that_was_cut_off_cannot_come_back_beside_its_replacement() {
    let expected = undisturbed();
    let (folder, path) = stand_in("ssh", CUT_OFF);
    let mortal = Mortal { timeout: Some(1), restarts: 20, ..Mortal::new(&[("stop", 1, 25)]) };
    let output = mortal.with("PATH", &path).with("RUN_HOSTS", "127.0.0.1").run();
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert!(!lines(&output, "warning: rank 1 has not responded").is_empty(), "{}", text(&output.stderr));
    let first = std::fs::read_to_string(folder.path().join("first")).expect("it was started");
    while Path::new("/proc").join(first.trim()).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn without_checkpoints_the_program_begins_anew() {
    let expected = undisturbed();
    for rank in 0..3 {
        assert_recovers(Mortal::new(&[("entry", rank, 40)]).with(CHECKPOINT, "none"), &expected, 1);
    }
}

#[test]
fn a_timer_that_is_set_leaves_checkpoints_out_with_one_warning() {
    let output = Mortal::new(&[]).with("MORTAL_TIMER", "1").run();
    assert_eq!(text(&output.stdout), undisturbed());
    let warnings = lines(&output, "warning:");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("timers of send_after are set"), "{warnings:?}");
}

#[test]
fn deaths_beyond_the_limit_end_the_job() {
    let mut mortal = Mortal::new(&[("entry", 1, 10), ("entry", 2, 40)]);
    mortal.restarts = 1;
    let output = mortal.run();
    assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
    let error = "error: rank 2 was killed by signal 9; the job ends (restarts used: 1)";
    assert_eq!(lines(&output, "error:"), [error]);
}

#[test]
fn a_death_after_the_program_has_ended_is_reported() {
    let expected = undisturbed();
    for rank in 0..3 {
        let output = Mortal::new(&[("end", rank, 0)]).run();
        assert_eq!(text(&output.stdout), expected);
        assert_eq!(output.status.code(), Some(137), "{}", text(&output.stderr));
        let error = format!(
            "error: rank {rank} was killed by signal 9; the job ends (the program has ended on other ranks)"
        );
        assert_eq!(lines(&output, "error:"), [error]);
    }
}

#[test]
fn a_program_that_fails_is_not_restarted() {
    let mut command = Command::new(example("run"));
    command.args(["3".as_ref(), example("ring").as_os_str()]).args(["1000000", "--fail", "1"]);
    let output = command.env("RUN_RESTARTS", "3").env(CHECKPOINT, EVERY_ROUND).output().expect("starts");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let error = "error: the entry method Token of Node 1 panicked: PE 1 fails, as asked";
    assert_eq!((lines(&output, "error:"), lines(&output, "warning:")), (vec![error.to_owned()], Vec::new()));
}

#[test]
fn checkpoints_that_cannot_be_are_refused_once() {
    let error = |ranks: u32, restarts: u32, value: &str| {
        let mut mortal = Mortal::new(&[]).with(CHECKPOINT, value);
        (mortal.ranks, mortal.restarts) = (ranks, restarts);
        let output = mortal.run();
        assert_eq!(output.status.code(), Some(1), "{value}: {}", text(&output.stderr));
        let mut errors = lines(&output, "error:");
        assert_eq!(errors.len(), 1, "{value}: {errors:?}");
        errors.remove(0)
    };
    assert!(error(2, 1, "disk=folder:log").contains("without copies in memory"));
    assert!(error(2, 1, "memory:log=0").contains("`0` is no size"));
    assert!(error(2, 1, "disk").contains("`disk` is no scheme or option"));
    assert!(error(2, 1, "memory:every=0").contains("`0` is no period"));
    assert!(error(3, 1, "memory").contains("all 3 ranks are on one machine"));
    assert!(error(1, 1, EVERY_ROUND).contains("need two processes or more"));
    assert!(error(2, 0, EVERY_ROUND).contains("--restarts N"));
}
