// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony tune` on files in place of a node's settings. `vm::tune` has the same on a kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Public, colony, error, failed, fails, json, text};

const INTERVAL: &str = "proc/sys/vm/stat_interval";

/// A node of four CPUs as files, and settings `many` of a profile beside the doctor's.
struct Trial {
    dir: tempfile::TempDir,
    profile: PathBuf,
}

impl Trial {
    fn new(many: usize) -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let mut files = vec![
            ("sys/devices/system/cpu/online".to_owned(), "0-3\n"),
            ("proc/sys/kernel/random/boot_id".to_owned(), "trial\n"),
            (INTERVAL.to_owned(), "1\n"),
        ];
        let settings: Vec<String> = (0..many).map(|n| format!("proc/sys/trial/{n}")).collect();
        files.extend(settings.iter().map(|f| (f.clone(), "1\n")));
        let profile = dir.path().join("many.toml");
        let set = |f: &String| format!("[[set]]\nfile = \"/{f}\"\nvalue = \"0\"\n");
        let rules = "only = [\"stat-interval\"]\nlevel = \"note\"\n";
        let toml = format!("name = \"many\"\n{rules}{}", settings.iter().map(set).collect::<String>());
        fs::write(&profile, toml).expect("a file");
        let trial = Self { dir, profile };
        files.iter().for_each(|(file, value)| trial.put(file, value));
        trial
    }

    fn put(&self, file: &str, value: &str) {
        let file = self.dir.path().join(file);
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, value).expect("a file");
    }

    fn root(&self) -> &str {
        self.dir.path().to_str().expect("plain")
    }

    /// `verb` of `colony tune` with this trial's files, and its profile where the verb takes one.
    fn args<'a>(&'a self, verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let profile = ["--profile", self.profile.to_str().expect("plain")];
        let profile = if matches!(verb, "revert" | "verify") { &[][..] } else { &profile[..] };
        [&["tune", verb, "--root", self.root()][..], profile, more].concat()
    }

    /// Every setting with its value.
    fn settings(&self) -> BTreeMap<PathBuf, String> {
        fn add(folder: &Path, to: &mut BTreeMap<PathBuf, String>) {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("readable").path();
                match path.is_dir() {
                    true => add(&path, to),
                    false => drop(to.insert(path.clone(), fs::read_to_string(path).expect("text"))),
                }
            }
        }
        let mut all = BTreeMap::new();
        ["proc", "sys"].iter().for_each(|f| add(&self.dir.path().join(f), &mut all));
        all
    }

    fn interval(&self) -> String {
        fs::read_to_string(self.dir.path().join(INTERVAL)).expect("there")
    }
}

#[test]
fn a_profile_is_applied_shown_and_reverted_by_name() {
    let trial = Trial::new(3);
    let before = trial.settings();
    let shown = json(&trial.args("show", &["--json"]));
    assert_eq!(shown["plan"]["steps"].as_array().map(Vec::len), Some(4), "{shown}");
    assert_eq!(trial.settings(), before, "show changes nothing");

    let made = text(&trial.args("apply", &[]));
    assert!(made.contains("4 of 4 changes made") && made.contains("colony tune revert many"), "{made}");
    assert_ne!(trial.interval().trim(), "1");
    let again = colony().args(trial.args("apply", &[])).output().expect("runs");
    failed("a second apply", &again, 2, "the transaction many is applied already");
    assert!(text(&trial.args("show", &[])).contains("4 of 4 changes in effect"));

    // a value of somebody else's stays, and is named
    fs::write(trial.dir.path().join("proc/sys/trial/1"), "7\n").expect("ours");
    assert!(text(&trial.args("show", &[])).contains("changed since, now 7"));
    let reverted = json(&trial.args("revert", &["many", "--json"]));
    assert_eq!(reverted["reverted"][0]["changed_since"][0]["now"], "7", "{reverted}");
    fs::write(trial.dir.path().join("proc/sys/trial/1"), "1\n").expect("ours");
    assert_eq!(trial.settings(), before);
    let none = colony().args(trial.args("revert", &["many"])).output().expect("runs");
    failed("a second revert", &none, 2, "no transaction is named many; none is applied");
}

#[test]
fn a_transaction_killed_at_any_moment_is_undone_whole() {
    let trial = Trial::new(400);
    let before = trial.settings();
    let mut interrupted = 0;
    for round in 0..25 {
        // longer than a whole run at the end, on a quiet machine
        let mut child = Command::new(crate::common::program())
            .args(trial.args("apply", &[]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        std::thread::sleep(Duration::from_micros(1500 * round));
        let _ = child.kill();
        child.wait().expect("ours");
        // one that is killed while it undoes is undone by the next
        let mut child = colony_revert(&trial).spawn().expect("runs");
        std::thread::sleep(Duration::from_micros(700 * (round % 7)));
        let _ = child.kill();
        child.wait().expect("ours");
        let last = colony_revert(&trial).stderr(Stdio::piped()).output().expect("runs");
        let was_interrupted = error(&last).contains("was interrupted");
        interrupted += usize::from(was_interrupted);
        // to undo what was interrupted is what was asked for
        let allowed: &[i32] = if was_interrupted { &[0] } else { &[0, 2] };
        assert!(last.status.code().is_some_and(|code| allowed.contains(&code)), "{}", error(&last));
        assert!(trial.settings() == before, "round {round}: {}", error(&last));
    }
    eprintln!("{interrupted} of 25 were interrupted in a transaction");
}

fn colony_revert(trial: &Trial) -> Command {
    let mut command = Command::new(crate::common::program());
    command.args(trial.args("revert", &["--all"])).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn a_setting_that_fails_undoes_the_others_or_is_left_out() {
    let trial = Trial::new(3);
    let before = trial.settings();
    let refusing = trial.dir.path().join("proc/sys/trial/2");
    fs::remove_file(&refusing).expect("ours");
    fs::create_dir(&refusing).expect("a folder in place of the setting");
    let out = colony().args(trial.args("apply", &[])).output().expect("runs");
    failed("a folder", &out, 1, "/proc/sys/trial/2");
    assert_eq!(trial.interval().trim(), "1", "nothing is changed");
    let out = colony().args(trial.args("apply", &["--keep-going"])).output().expect("runs");
    assert_eq!(out.status.code(), Some(1));
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("3 of 4 changes made") && said.contains("not made"), "{said}");
    text(&trial.args("revert", &[]));
    fs::remove_dir(&refusing).expect("ours");
    fs::write(&refusing, "1\n").expect("ours");
    assert_eq!(trial.settings(), before);
}

#[test]
fn two_transactions_at_once_and_in_either_order_leave_the_first_values() {
    let trial = Trial::new(50);
    let before = trial.settings();
    let both = ["one", "two"].map(|name| {
        let more = ["--name", name];
        let mut command = Command::new(crate::common::program());
        command.args(trial.args("apply", &more)).stdout(Stdio::null()).spawn().expect("runs")
    });
    for mut child in both {
        assert!(child.wait().expect("ours").success());
    }
    // the second found every value made, and is no transaction
    let shown = json(&trial.args("show", &["--json"]));
    assert_eq!(shown["transactions"].as_array().map(Vec::len), Some(1), "{shown}");
    text(&trial.args("revert", &["--all"]));
    assert_eq!(trial.settings(), before);
}

#[test]
fn limits_of_groups_are_changed_only_where_their_rule_is_named() {
    const JOB: &str = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_42";
    let trial = Trial::new(0);
    trial.put("sys/fs/cgroup/cgroup.controllers", "");
    for group in ["sys/fs/cgroup/system.slice", "sys/fs/cgroup/system.slice/slurmstepd.scope", JOB] {
        trial.put(&format!("{group}/cgroup.procs"), "");
    }
    for (file, value) in [
        ("memory.events", "high 0\nmax 3\noom_kill 1\n"),
        ("memory.max", "1048576\n"),
        ("cpu.stat", "nr_throttled 7\n"),
        ("cpu.max", "50000 100000\n"),
    ] {
        trial.put(&format!("{JOB}/{file}"), value);
    }
    let before = trial.settings();
    let apply = |more: &[&str]| json(&[&["tune", "apply", "--root", trial.root(), "--json"], more].concat());
    let limit = || fs::read_to_string(trial.dir.path().join(JOB).join("memory.max")).expect("there");
    for profile in ["hpc", "latency"] {
        let made = apply(&["--profile", profile]);
        let left = made["plan"]["left_out"].as_array().expect("a list");
        let of_job = |id: &str| {
            left.iter()
                .any(|l| l["id"] == id && l["reason"].as_str().is_some_and(|r| r.contains("Slurm job 42")))
        };
        assert!(of_job("memory-reclaim") && of_job("cpu-quota"), "{made:#}");
        assert_eq!(limit().trim(), "1048576");
        text(&["tune", "revert", "--root", trial.root()]);
    }
    apply(&["--also", "memory-reclaim"]);
    assert_eq!(limit().trim(), "max");
    text(&["tune", "revert", "--root", trial.root()]);
    assert_eq!(trial.settings(), before);
}

#[test]
fn a_trial_moves_no_task_of_this_machine() {
    let trial = Trial::new(0);
    let stat = "1 (init) S 0 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 -51 0 1 0 100 1000 10 1 1 1 1 1 1 1 0 0 0 0 0 0 17 1 50 1 0 0 0 1 1 1 1 1 1 1 0\n";
    trial.put("proc/1/stat", stat);
    trial.put("proc/1/status", "Cpus_allowed_list:\t0-3\n");
    let made = json(&["tune", "apply", "--root", trial.root(), "--json"]);
    let left = made["plan"]["left_out"].as_array().expect("a list");
    let told = left.iter().find(|l| l["id"] == "rt-tasks").and_then(|l| l["reason"].as_str());
    assert!(told.is_some_and(|reason| reason.contains("on this machine")), "{made:#}");
    text(&["tune", "revert", "--root", trial.root()]);
}

#[test]
fn wrong_profiles_and_names_are_told_with_the_remedy() {
    let trial = Trial::new(1);
    let root = trial.root();
    fails(&["tune", "apply", "--root", root, "--profile", "/no/such.toml"], 2, "built in are hpc, latency");
    fails(&["tune", "apply", "--root", root, "--skip", "irqs"], 2, "--skip irqs");
    fails(&["tune", "apply", "--root", root, "--also", "irqs"], 2, "there is no rule irqs");
    fails(&["tune", "apply", "--root", root, "--name", "a/b"], 2, "letters, digits");
    fails(&["tune", "apply", "--root", root, "--cpus", "9"], 2, "CPU 9 is not online");
    fails(&["tune", "show", "--root", "/no/such"], 2, "/no/such");
    fails(&["tune", "revert", "--root", root], 2, "no transaction is applied");
    fails(&["tune", "revert", "--root", root, "x", "--all"], 2, "--all");
    let wrong = trial.dir.path().join("wrong.toml");
    fs::write(&wrong, "name = \"x\"\n[[set]]\nfile = \"/etc/passwd\"\nvalue = \"\"\n").expect("ours");
    fails(&["tune", "apply", "--root", root, "--profile", wrong.to_str().expect("plain")], 2, "/etc/passwd");
}

#[test]
fn other_users_see_the_plan_and_change_nothing() {
    let Some(public) = Public::new() else { return };
    let out = public.colony().args(["tune", "apply"]).output().expect("runs");
    assert_eq!(out.status.code(), Some(1), "{}", error(&out));
    assert!(error(&out).contains("only root changes settings"), "{}", error(&out));
    let out = public.colony().args(["tune", "show"]).output().expect("runs");
    assert!(out.status.success(), "{}", error(&out));
}

#[test]
fn a_plan_is_exported_for_other_programs() {
    let trial = Trial::new(1);
    let tuned = text(&[
        "tune",
        "export",
        "tuned",
        "--root",
        trial.root(),
        "--profile",
        trial.profile.to_str().expect("plain"),
    ]);
    assert!(tuned.contains("[main]") && tuned.contains("[sysctl]\nvm.stat_interval="), "{tuned}");
    assert!(tuned.contains("trial.0=0"), "{tuned}");
    // one line, also where no parameter is proposed
    let line = text(&["tune", "export", "kernel-command-line", "--root", trial.root()]);
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn an_export_names_interrupts_by_handler_and_parameters_that_must_go() {
    let trial = Trial::new(0);
    for (file, value) in [
        ("proc/irq/61/smp_affinity_list", "0-3\n"),
        ("proc/irq/61/effective_affinity_list", "3\n"),
        ("proc/irq/61/eth0-rx-1/x", ""),
        ("proc/sys/kernel/osrelease", "6.12.0\n"),
        ("proc/cmdline", "ro isolcpus=3\n"),
        ("sys/devices/system/cpu/isolated", "3\n"),
    ] {
        trial.put(file, value);
    }
    let export = |form| {
        colony()
            .args(["tune", "export", form, "--root", trial.root(), "--cpus", "1-3"])
            .output()
            .expect("runs")
    };
    let tuned = export("tuned");
    let conf = String::from_utf8_lossy(&tuned.stdout);
    assert!(conf.contains("script=${i:PROFILE_DIR}/script.sh") && !conf.contains("/proc/irq"), "{conf}");
    assert!(conf.contains("# Remove from the kernel command line: isolcpus=3"), "{conf}");
    assert!(error(&tuned).contains("colony tune export tuned-script"), "{}", error(&tuned));
    let script = export("tuned-script");
    let script = String::from_utf8_lossy(&script.stdout);
    assert!(script.contains("interrupts eth0-rx-1 smp_affinity_list 0"), "{script}");
    let line = export("kernel-command-line");
    assert!(String::from_utf8_lossy(&line.stdout).contains("isolcpus=managed_irq,domain,1-3"));
    assert!(error(&line).contains("remove from the kernel command line: isolcpus=3"), "{}", error(&line));
}

#[test]
fn verify_compares_the_settings_now_with_what_was_applied() {
    let trial = Trial::new(2);
    let verify = |more: &[&str]| colony().args(trial.args("verify", more)).output().expect("runs");
    failed("nothing is applied", &verify(&[]), 2, "no transaction is applied");
    text(&trial.args("apply", &[]));
    let before = trial.settings();
    let same = text(&trial.args("verify", &[]));
    assert!(same.contains("many: 3 of 3 changes as applied"), "{same}");
    assert!(same.lines().all(|line| line.chars().count() <= 80), "{same}");
    assert_eq!(trial.settings(), before, "verify changes nothing");

    let long = "7 ".repeat(200);
    fs::write(trial.dir.path().join("proc/sys/trial/1"), long).expect("ours");
    let out = verify(&["many"]);
    let table = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{table}");
    assert!(table.contains("2 of 3 changes as applied") && table.contains("different"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    let out = verify(&["--json"]);
    let document: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!((out.status.code(), &document["as_applied"]), (Some(1), &false.into()));
    let checks = document["transactions"][0]["checks"].as_array().expect("a list");
    assert!(checks.iter().any(|c| c["result"] == "different" && c["applied"] == "0"), "{document:#}");
    failed("another name", &verify(&["none"]), 2, "no transaction is named none");
}

/// A trial whose files say that systemd runs, or `None` if this program is not one that root alone can change.
fn trial_with_systemd() -> Option<Trial> {
    let program = crate::common::program().canonicalize().expect("there");
    let owner = nix::unistd::geteuid().as_raw();
    if let Err(e) = colony_node::trust::check_file(&program, owner) {
        colony_testing::skip(format!("a unit cannot name this program: {e}"));
        return None;
    }
    let trial = Trial::new(2);
    trial.put("run/systemd/system/x", "");
    trial.put("etc/systemd/system/x", "");
    Some(trial)
}

#[test]
fn a_persistent_transaction_has_a_unit_until_it_is_reverted() {
    let Some(trial) = trial_with_systemd() else { return };
    let before = trial.settings();
    let folder = trial.dir.path().join("etc/systemd/system");
    let (unit, link) = ("colony-tune-many.service", "multi-user.target.wants/colony-tune-many.service");
    let made = text(&trial.args("apply", &["--persist", "--skip", "swap", "--cpus", "1-3"]));
    assert!(made.contains("at every boot:") && made.contains(unit), "{made}");
    let written = fs::read_to_string(folder.join(unit)).expect("a unit");
    let start = written.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    for part in ["tune apply --profile /", "many.toml", "--name many", "--cpus 1-3", "--skip swap"] {
        assert!(start.contains(part), "{start}");
    }
    assert!(!start.contains("--persist") && folder.join(link).exists());

    assert!(text(&trial.args("show", &[])).contains("Applied again at every boot: many"));
    // a boot: the settings and the journal's meaning are gone, and systemd runs the command of the unit
    for (file, value) in &before {
        fs::write(file, value).expect("ours");
    }
    trial.put("proc/sys/kernel/random/boot_id", "next\n");
    let words: Vec<&str> = start.split(' ').collect();
    let out = Command::new(words[0]).args(&words[1..]).output().expect("runs");
    assert!(out.status.success(), "{}", error(&out));
    text(&trial.args("verify", &["many"]));

    let reverted = json(&trial.args("revert", &["many", "--json"]));
    assert_eq!(reverted["reverted"][0]["unit_removed"], true, "{reverted}");
    assert!(!folder.join(unit).exists() && folder.join(link).symlink_metadata().is_err());
    assert_eq!(trial.interval().trim(), "1");

    // a boot at which the unit failed leaves a unit without a transaction
    text(&trial.args("apply", &["--persist"]));
    trial.put("proc/sys/kernel/random/boot_id", "third\n");
    assert!(text(&trial.args("revert", &[])).contains("its unit is removed"));
    assert!(!folder.join(unit).exists());
    assert_eq!(json(&trial.args("show", &["--json"]))["units"], serde_json::json!([]));
}

#[test]
fn a_transaction_cannot_persist_without_systemd_or_with_a_profile_of_anybody_and_nothing_is_changed() {
    let trial = Trial::new(2);
    let before = trial.settings();
    let persist = |trial: &Trial| colony().args(trial.args("apply", &["--persist"])).output().expect("runs");
    failed("no systemd", &persist(&trial), 1, "systemd does not run on this node");
    assert_eq!(trial.settings(), before);
    let Some(trial) = trial_with_systemd() else { return };
    let before = trial.settings();
    fs::set_permissions(&trial.profile, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("ours");
    failed("a profile", &persist(&trial), 1, "others than root may write to");
    assert_eq!(trial.settings(), before);
    assert!(!trial.dir.path().join("etc/systemd/system/colony-tune-many.service").exists());
}

#[test]
fn a_persistent_transaction_that_is_killed_leaves_nothing_that_revert_does_not_undo() {
    let Some(trial) = trial_with_systemd() else { return };
    let before = trial.settings();
    let units = || {
        let folder = trial.dir.path().join("etc/systemd/system");
        let names = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
        let all = names(&folder).chain(names(&folder.join("multi-user.target.wants")).collect::<Vec<_>>());
        all.filter(|p| !p.ends_with("x") && !p.ends_with("multi-user.target.wants")).collect::<Vec<_>>()
    };
    for round in 0..25 {
        for (args, delay) in [
            (trial.args("apply", &["--persist"]), 1000 * round),
            (trial.args("revert", &["--all"]), 700 * (round % 7)),
        ] {
            let mut command = Command::new(crate::common::program());
            let mut child =
                command.args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("runs");
            std::thread::sleep(Duration::from_micros(delay));
            let _ = child.kill();
            child.wait().expect("ours");
        }
        let last = colony_revert(&trial).stderr(Stdio::piped()).output().expect("runs");
        assert!(matches!(last.status.code(), Some(0 | 2)), "{}", error(&last));
        assert!(trial.settings() == before && units().is_empty(), "round {round}: {:?}", units());
    }
}
