// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of units in a folder of files.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{TuneError, Units};

/// A root with systemd and a program.
struct Trial {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Trial {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let root = fs::canonicalize(dir.path()).expect("there");
        for folder in ["run/systemd/system", "etc/systemd/system", "usr/bin"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        for folder in ["run", "run/systemd", "etc", "etc/systemd", "etc/systemd/system", "usr", "usr/bin"] {
            set_mode(&root.join(folder), 0o755);
        }
        let trial = Self { dir, root };
        fs::write(trial.program(), "#!/bin/sh\n").expect("a file");
        set_mode(&trial.program(), 0o755);
        trial
    }

    fn program(&self) -> PathBuf {
        self.root.join("usr/bin/colony")
    }

    fn units(&self) -> Units {
        Units::below(self.dir.path().canonicalize().expect("there").as_path())
    }

    fn folder(&self) -> PathBuf {
        self.root.join("etc/systemd/system")
    }

    /// Every file in the folder of units, links too.
    fn files(&self) -> Vec<String> {
        let wants = self.folder().join("multi-user.target.wants");
        let folders = [self.folder(), wants].into_iter().filter_map(|f| fs::read_dir(f).ok()).flatten();
        let names = folders.map(|e| e.expect("readable").path()).filter(|p| !p.is_dir());
        let mut names: Vec<String> =
            names.map(|p| p.strip_prefix(self.folder()).expect("below").display().to_string()).collect();
        names.sort();
        names
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|w| (*w).to_owned()).collect()
}

const BOTH: [&str; 2] = ["colony-tune-hpc.service", "multi-user.target.wants/colony-tune-hpc.service"];

#[test]
fn a_unit_is_written_enabled_and_removed() {
    let trial = Trial::new();
    let units = trial.units();
    let arguments = words(&["tune", "apply", "--name", "hpc", "--profile", "/a b/50%$x\"y\\z"]);
    let unit = units.plan("hpc", &trial.program(), &arguments, &[]).expect("right");
    assert!(trial.files().is_empty(), "nothing is written by a plan");
    let file = units.install(&unit).expect("installed");
    assert_eq!(trial.files(), BOTH);
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o777, 0o644);
    let text = fs::read_to_string(&file).expect("there");
    for line in ["Type=oneshot\n", "RemainAfterExit=yes\n", "WantedBy=multi-user.target\n"] {
        assert!(text.contains(line), "{text}");
    }
    let start = format!(
        "ExecStart={} tune apply --name hpc --profile \"/a b/50%%$$x\\\"y\\\\z\"\n",
        trial.program().display()
    );
    assert!(text.contains(&start), "{text}");
    let link = trial.folder().join(BOTH[1]);
    assert_eq!(fs::canonicalize(link).expect("no dangling link"), file);
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => eprintln!("systemd-analyze: {e}"),
    }
    // a second time, as after an apply that was killed
    units.install(&unit).expect("installed again");
    assert_eq!(units.names().expect("readable"), ["hpc"]);
    assert!(units.remove("hpc").expect("removed") && trial.files().is_empty());
    assert!(!units.remove("hpc").expect("none is left"));
}

#[test]
fn whatever_a_kill_leaves_is_removed() {
    for left in [&BOTH[..1], &BOTH[..]] {
        let trial = Trial::new();
        let units = trial.units();
        let unit = units.plan("hpc", &trial.program(), &[], &[]).expect("right");
        units.install(&unit).expect("installed");
        for file in BOTH.iter().filter(|file| !left.contains(file)) {
            fs::remove_file(trial.folder().join(file)).expect("there");
        }
        // a file that a process was writing when it was killed
        let mut child = Command::new("true").spawn().expect("true is there");
        let pid = child.id();
        child.wait().expect("ours");
        fs::write(trial.folder().join(format!(".new.{pid}.1.x")), "half").expect("ours");
        assert!(units.remove("hpc").expect("removed"));
        assert!(trial.files().is_empty(), "{:?}", trial.files());
    }
}

#[test]
fn a_program_or_profile_that_others_can_change_is_refused_before_anything_is_written() {
    let trial = Trial::new();
    let profile = trial.root.join("etc/site.toml");
    fs::write(&profile, "name = \"site\"\n").expect("a file");
    set_mode(&profile, 0o644);
    let plan = || trial.units().plan("hpc", &trial.program(), &[], std::slice::from_ref(&profile));
    plan().expect("root's alone");
    for (path, open, private) in [
        (trial.program(), 0o775, 0o755),
        (trial.root.join("usr"), 0o777, 0o755),
        (profile.clone(), 0o666, 0o644),
        (trial.folder(), 0o775, 0o755),
    ] {
        set_mode(&path, open);
        let error = plan().expect_err("open to others").to_string();
        assert!(error.contains("may write to") && error.contains(path.to_str().expect("plain")), "{error}");
        set_mode(&path, private);
    }
    for program in ["usr/bin/colony", "/no/such/program"] {
        let refused = trial.units().plan("hpc", Path::new(program), &[], &[]);
        assert!(matches!(refused, Err(TuneError::Persist(_))), "{program}: {refused:?}");
    }
    assert!(trial.files().is_empty());
}

#[test]
fn without_systemd_nothing_is_planned_and_units_of_others_stay() {
    let trial = Trial::new();
    let units = trial.units();
    let own = trial.folder().join(BOTH[0]);
    fs::write(&own, "[Service]\n").expect("ours");
    let plan = || units.plan("hpc", &trial.program(), &[], &[]);
    assert!(plan().expect_err("another author's").to_string().contains("remove it first"));
    assert!(
        !units.remove("hpc").expect("not ours") && own.exists() && units.names().expect("none").is_empty()
    );
    fs::remove_file(own).expect("ours");
    assert!(units.plan("hpc", &trial.program(), &words(&["a\nb"]), &[]).is_err(), "a line end");
    fs::remove_dir(trial.root.join("run/systemd/system")).expect("ours");
    assert!(plan().expect_err("no systemd").to_string().contains("systemd does not run"));
}
