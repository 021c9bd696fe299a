// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files, with plain tools.

use std::io::Read;

use colony_client::StatsReport;
use colony_time::DutyCycle;

use crate::support::{Daemon, possible, text};

#[test]
fn a_shell_sets_the_windows_and_reads_them_back() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let out = daemon.shell(
        "cat $M/period $M/duty_cycle
         echo 50ms > $M/period && echo 80% > $M/duty_cycle && cat $M/period $M/duty_cycle
         echo 45ms >> $M/duty_cycle && cat $M/duty_cycle
         exec 3> $M/period; echo 200ms >&3; echo 300ms >&3; cat $M/period
         printf 400ms > $M/period; cat $M/period",
    );
    assert_eq!(text(&out), "100ms\n95%\n50ms\n80%\n45ms\n300ms\n400ms\n");
}

#[test]
fn blue_gene_notation_works_as_on_blue_gene() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let out =
        daemon.shell("echo 0xffffffff > $M/period && echo 0xf4000000 > $M/duty_cycle && cat $M/duty_cycle");
    assert_eq!(text(&out), "0xf4000000\n");
    let windows = daemon.client().windows().expect("readable");
    assert_eq!(windows.period_ns(), colony_time::cycles::MAX_NS);
    assert_eq!(windows.favored_ns(), colony_time::cycles::to_ns(0xf400_0000));
}

#[test]
fn a_refused_write_changes_nothing_and_says_why() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[limits]\nlargest_duty_cycle = \"97%\"\n");
    let before = daemon.client().windows().expect("readable");
    for (file, written, errno, reason) in [
        ("period", "soon\n", libc::EINVAL, "100ms"),
        ("period", "1ms\n", libc::ERANGE, "limits, 2ms to 6.2s"),
        ("period", "7s", libc::ERANGE, "limits"),
        ("period", "10ms", libc::ERANGE, "starve"),
        ("duty_cycle", "100%", libc::EINVAL, "regular window"),
        ("duty_cycle", "97.5%", libc::ERANGE, "97%"),
        ("duty_cycle", "200ms", libc::EINVAL, "regular window"),
        ("duty_cycle", &"9".repeat(4097), libc::EINVAL, "4096"),
        ("duty_cycle", &"9".repeat(300_000), libc::EINVAL, "4096"),
        ("job", "me, please", libc::EINVAL, "write 1"),
        ("job", "-1", libc::EINVAL, "write 1"),
        ("job", "2147483647", libc::ESRCH, "2147483647"),
        ("stats", "1", libc::EACCES, "only be read"),
    ] {
        assert_eq!(daemon.errno(file, written), Some(errno), "{file}: {:.20}", written);
        let said = daemon.read("last_error");
        assert!(said.starts_with(file) && said.contains(reason), "{file}: {:.20}: {said}", written);
    }
    assert_eq!(daemon.client().windows().expect("readable"), before);
    assert_eq!(daemon.errno("period", "100ms"), None);
    assert_eq!(daemon.read("last_error"), "", "a write that was taken clears it");
}

#[test]
fn nothing_else_can_be_done_to_the_tree() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let out = daemon.shell(
        "for c in 'echo 1 > $M/perod' 'mkdir $M/x' 'rm -f $M/job' 'mv $M/job $M/jobs' 'chmod 600 $M/job' \
             'chown 1 $M/job' 'rmdir $M'; do
             if (eval $c) 2>/dev/null; then echo done: $c; fi
         done
         ls $M | xargs",
    );
    assert_eq!(text(&out), "clock duty_cycle job last_error limits period stats\n");
}

#[test]
fn a_slow_reader_gets_one_consistent_document() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let mut file = std::fs::File::open(daemon.mount.join("stats")).expect("readable");
    let mut read = Vec::new();
    let mut piece = [0; 7];
    loop {
        let n = file.read(&mut piece).expect("readable");
        if n == 0 {
            break;
        }
        read.extend_from_slice(&piece[..n]);
        let period = if read.len() % 2 == 0 { "90ms" } else { "2.5s" };
        assert_eq!(daemon.errno("period", period), None);
    }
    let stats: StatsReport = serde_json::from_slice(&read).expect("one document");
    assert_eq!((stats.schema.as_str(), stats.windows.period_ns()), (StatsReport::SCHEMA, 100_000_000));
}

#[test]
fn limits_and_clock_can_be_read_by_programs() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("[limits]\nsmallest_regular_window = \"3ms\"\n");
    let limits: toml::Table = daemon.read("limits").parse().expect("TOML");
    assert_eq!(limits["limits"]["smallest_regular_window"].as_str(), Some("3ms"));
    let clock = daemon.client().clock().expect("JSON");
    let kept = clock.coordination.kept.expect("as delivered windows are always kept");
    assert_eq!(kept.phase(clock.tai_ns), clock.phase_ns);
    assert!(clock.next_edge_ns > clock.tai_ns);
}

#[test]
fn a_program_sets_the_windows_and_hears_why_not() {
    if !possible() {
        return;
    }
    let daemon = Daemon::start("");
    let client = daemon.client();
    client.set_period(200_000_000).expect("inside the limits");
    client.set_duty(DutyCycle::Ppm(900_000)).expect("inside the limits");
    let windows = client.windows().expect("readable");
    assert_eq!((windows.period_ns(), windows.favored_ns()), (200_000_000, 180_000_000));
    let error = client.set_period(1).expect_err("too short").to_string();
    assert!(error.contains("1ns") && error.contains("period"), "{error}");
    assert!(!client.stats().expect("readable").job.active);
}
