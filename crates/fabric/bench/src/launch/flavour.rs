// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kinds of launchers and what each has to be told.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::find;
use super::plan::{Launch, LauncherChoice};
use crate::BenchError;

/// The kind of a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flavour {
    /// `mpirun` of Open MPI, of this major version.
    OpenMpi { major: u32 },
    /// Hydra: MPICH and what descends from it.
    Mpich,
    /// `mpiexec` of HPE Cray PALS.
    Pals,
    /// Slurm.
    Srun,
}

/// The variable that names the kind of a launcher which does not say it.
const KIND_VARIABLE: &str = "COLONY_MPIRUN_KIND";

/// The launcher to take, and its kind.
pub(super) fn find(choice: LauncherChoice, path: &OsStr) -> Result<(Flavour, PathBuf), BenchError> {
    let slurm = choice == LauncherChoice::Srun
        || (choice == LauncherChoice::Auto && std::env::var_os("SLURM_JOB_ID").is_some());
    if slurm {
        match find::on_path("srun", path) {
            Some(srun) => return Ok((Flavour::Srun, srun)),
            None if choice == LauncherChoice::Srun => {
                return Err(BenchError::NoMpi { looked_for: vec!["srun".into()] });
            }
            None => {}
        }
    }
    let mpirun = match std::env::var_os("COLONY_MPIRUN").filter(|n| !n.is_empty()) {
        Some(named) => named_launcher(Path::new(&named), path)?,
        None => ["mpirun", "mpiexec"]
            .iter()
            .find_map(|name| find::on_path(name, path))
            .ok_or_else(|| BenchError::NoMpi { looked_for: vec!["mpirun".into(), "mpiexec".into()] })?,
    };
    Ok((ask(&mpirun)?, mpirun))
}

/// A launcher named by its path, or by its name on the path.
fn named_launcher(named: &Path, path: &OsStr) -> Result<PathBuf, BenchError> {
    let found = if find::is_program(named) {
        Some(named.to_owned())
    } else {
        named.to_str().and_then(|name| find::on_path(name, path))
    };
    found.ok_or_else(|| BenchError::NoMpi {
        looked_for: vec![format!("{} ($COLONY_MPIRUN)", named.display())],
    })
}

fn ask(mpirun: &Path) -> Result<Flavour, BenchError> {
    if let Some(kind) = std::env::var_os(KIND_VARIABLE).filter(|kind| !kind.is_empty()) {
        let kind = kind.to_string_lossy().into_owned();
        return named_kind(&kind).ok_or(BenchError::LauncherKind { kind });
    }
    let output = Command::new(mpirun)
        .arg("--version")
        .output()
        .map_err(|source| BenchError::Spawn { command: format!("{} --version", mpirun.display()), source })?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push('\n');
    text += &String::from_utf8_lossy(&output.stderr);
    recognise(&text).ok_or_else(|| {
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let says = line.chars().take(80).collect();
        BenchError::UnknownLauncher { launcher: mpirun.to_owned(), says }
    })
}

/// The kinds that [`KIND_VARIABLE`] can name.
fn named_kind(kind: &str) -> Option<Flavour> {
    match kind {
        "openmpi4" => Some(Flavour::OpenMpi { major: 4 }),
        "openmpi5" => Some(Flavour::OpenMpi { major: 5 }),
        "hydra" => Some(Flavour::Mpich),
        "pals" => Some(Flavour::Pals),
        "srun" => Some(Flavour::Srun),
        _ => None,
    }
}

/// The kind of the launcher that says `version`, if it is known.
fn recognise(version: &str) -> Option<Flavour> {
    let major =
        version.split_once("Open MPI)").or_else(|| version.split_once("Open MPI")).and_then(|(_, rest)| {
            let digits = rest.trim_start().trim_start_matches('v');
            digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        });
    let lower = version.to_lowercase();
    let says = |names: &[&str]| names.iter().any(|name| lower.contains(name));
    match major {
        Some(major) => Some(Flavour::OpenMpi { major }),
        // Open MPI 5 may introduce itself by its run-time system alone
        None if version.contains("PRRTE") => Some(Flavour::OpenMpi { major: 5 }),
        None if says(&["(pals)"]) => Some(Flavour::Pals),
        None if says(&["hydra", "intel(r) mpi", "mpich", "mvapich"]) => Some(Flavour::Mpich),
        None if lower.trim_start().starts_with("slurm ") => Some(Flavour::Srun),
        None => None,
    }
}

impl Flavour {
    /// The launcher's arguments; `crowded` where there are more ranks than CPUs.
    pub(super) fn args(self, launch: &Launch, root: bool, crowded: bool) -> Vec<OsString> {
        match self {
            Self::OpenMpi { major } => open_mpi(launch, major, root, crowded),
            Self::Mpich => mpich(launch, crowded),
            Self::Pals => pals(launch, crowded),
            Self::Srun => srun(launch),
        }
    }
}

/// Binding by the launcher: only where the ranks do not bind themselves.
fn bound_by_launcher(launch: &Launch, crowded: bool) -> bool {
    launch.hostfile.is_some() && launch.cpus.is_none() && !crowded
}

fn open_mpi(launch: &Launch, major: u32, root: bool, crowded: bool) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["--quiet".into(), "-n".into(), launch.ranks.to_string().into()];
    let mut add = |words: &[&str]| args.extend(words.iter().map(OsString::from));
    if root {
        add(&["--allow-run-as-root"]);
    }
    add(&["--bind-to", if bound_by_launcher(launch, crowded) { "core" } else { "none" }]);
    // a waiting rank polls; it yields only where it could keep another off the CPU
    add(&["--mca", "mpi_yield_when_idle", if crowded { "1" } else { "0" }]);
    match &launch.hostfile {
        Some(file) => args.extend(["--hostfile".into(), file.into()]),
        None => {
            // shared memory alone: no network is searched for or warned about, and no other process's
            // memory is read, which containers forbid
            let memory = if major < 5 { "vader" } else { "sm" };
            add(&["--mca", "pml", "ob1", "--mca", "btl", &format!("self,{memory}")]);
            add(&["--mca", &format!("btl_{memory}_single_copy_mechanism"), "none"]);
            // slots are counted in cores; the ranks here are placed on CPUs, or crowded on purpose
            add(if major < 5 { &["--oversubscribe"] } else { &["--map-by", ":OVERSUBSCRIBE"] });
        }
    }
    args
}

fn mpich(launch: &Launch, crowded: bool) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["-n".into(), launch.ranks.to_string().into()];
    let bind = if bound_by_launcher(launch, crowded) { "core" } else { "none" };
    args.extend(["-bind-to".into(), bind.into()]);
    if let Some(file) = &launch.hostfile {
        args.extend(["-f".into(), file.into()]);
    }
    args
}

fn pals(launch: &Launch, crowded: bool) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["-n".into(), launch.ranks.to_string().into()];
    let bind = if bound_by_launcher(launch, crowded) { "core" } else { "none" };
    args.extend(["--cpu-bind".into(), bind.into()]);
    if let Some(file) = &launch.hostfile {
        args.extend(["--hostfile".into(), file.into()]);
    }
    args
}

fn srun(launch: &Launch) -> Vec<OsString> {
    let bind = if launch.cpus.is_some() { "none" } else { "cores" };
    vec![
        format!("--ntasks={}", launch.ranks).into(),
        format!("--cpu-bind={bind}").into(),
        "--quit-on-interrupt".into(),
        "--kill-on-bad-exit=1".into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn launchers_are_recognised_by_their_version_text() {
        for (text, flavour) in [
            ("mpirun (Open MPI) 4.1.4\n\nReport bugs to", Flavour::OpenMpi { major: 4 }),
            ("mpirun (Open MPI) 5.0.7", Flavour::OpenMpi { major: 5 }),
            ("mpirun (PRRTE) 3.0.1", Flavour::OpenMpi { major: 5 }),
            ("HYDRA build details:\n    Version: 4.0.2", Flavour::Mpich),
            ("Intel(R) MPI Library for Linux* OS, Version 2021.9", Flavour::Mpich),
            ("mpiexec version 1.3.4 revision 0000000 (pals)", Flavour::Pals),
            ("slurm 23.02.6", Flavour::Srun),
        ] {
            assert_eq!(recognise(text), Some(flavour), "{text}");
        }
    }

    #[test]
    fn an_unknown_launcher_is_not_taken_for_hydra() {
        for text in
            ["", "jsrun version 10.3", "mpiexec version 1.3.4", "usage: mpirun_rsh", "Open MPI of old"]
        {
            assert_eq!(recognise(text), None, "{text}");
        }
        let error = ask(Path::new("/bin/true")).expect_err("true launches nothing").to_string();
        for word in ["/bin/true", "COLONY_MPIRUN_KIND", "hydra", "pals"] {
            assert!(error.contains(word), "{word} in {error}");
        }
        assert_eq!((named_kind("pals"), named_kind("mpi")), (Some(Flavour::Pals), None));
    }

    #[test]
    fn an_absent_mpi_is_explained() {
        let error = find(LauncherChoice::Mpirun, OsStr::new("/nowhere")).expect_err("empty path").to_string();
        for word in ["mpirun and mpiexec", "./x setup", "apt install openmpi-bin"] {
            assert!(error.contains(word), "{word} in {error}");
        }
        let error = find(LauncherChoice::Srun, OsStr::new("/nowhere")).expect_err("empty path").to_string();
        assert!(error.contains("srun"), "{error}");
        let error = named_launcher(Path::new("mine"), OsStr::new("/nowhere")).expect_err("none").to_string();
        assert!(error.contains("mine ($COLONY_MPIRUN)"), "{error}");
    }

    proptest! {
        #[test]
        fn no_version_text_panics(text in "(Open MPI\\)? ?v?)?.{0,40}") {
            let _ = recognise(&text);
        }
    }
}
