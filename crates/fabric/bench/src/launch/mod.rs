// SPDX-License-Identifier: MIT OR Apache-2.0
//! Starting `colony-bench` with whatever launches MPI programs here.

mod find;
mod flavour;
mod plan;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use colony_node::cpu::{self, CpuSet};

pub use self::plan::{Launch, LauncherChoice};
use crate::BenchError;
use flavour::Flavour;

/// The programs and CPUs that a launch found on this node.
#[derive(Clone, Debug)]
struct Found {
    flavour: Flavour,
    launcher: PathBuf,
    bench: PathBuf,
    /// CPUs that this process may use, one of each core first.
    usable: Vec<usize>,
    root: bool,
}

impl Launch {
    /// The command that runs it, for [`run`](Self::run) or to be run as a job under coordinated
    /// scheduling. Its standard output is the result as JSON, or a table where [`out`](Self::out) is set.
    ///
    /// Ranks bind themselves, each to one CPU: rank *i* of a node to the *i*-th CPU of
    /// [`cpus`](Self::cpus); without those, to CPUs of different cores first. With more ranks than CPUs
    /// none is bound and a waiting rank yields. srun binds by itself unless CPUs are given.
    ///
    /// # Errors
    /// [`BenchError`] where the parameters are wrong, the CPUs cannot be used, or MPI or the program is
    /// not there.
    pub fn command(&self) -> Result<Command, BenchError> {
        self.check()?;
        let found = self.find()?;
        match &self.cpus {
            // other nodes are not asked from here
            Some(cpus) if !self.spread(&found) => cpu::check(cpus)?,
            _ => {}
        }
        Ok(self.command_with(&found))
    }

    fn check(&self) -> Result<(), BenchError> {
        self.params.check()?;
        let (program, ranks, least) = (self.params.program, self.ranks, self.params.program.min_ranks());
        if ranks < least {
            return Err(BenchError::Ranks { program, ranks, least });
        }
        if let Some(path) = &self.hostfile {
            // launchers are asked to be quiet, and then do not say it
            std::fs::File::open(path).map_err(|source| BenchError::Read { path: path.clone(), source })?;
        }
        Ok(())
    }

    fn find(&self) -> Result<Found, BenchError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let bench = find::bench(&path)?;
        let (flavour, launcher) = flavour::find(self.launcher, &path)?;
        let root = nix::unistd::geteuid().is_root();
        let usable = find::cores_first(&cpu::usable()?)?;
        Ok(Found { flavour, launcher, bench, usable, root })
    }

    /// CPUs the ranks bind themselves to; `None` where there are fewer than ranks, or somebody else binds.
    fn placement(&self, found: &Found) -> Option<CpuSet> {
        let ranks = self.ranks as usize;
        match (&self.cpus, found.flavour) {
            (Some(cpus), _) => (cpus.len() >= ranks || self.spread(found)).then(|| cpus.clone()),
            (None, Flavour::Srun) => None,
            (None, _) if self.hostfile.is_some() => None,
            (None, _) => {
                (found.usable.len() >= ranks).then(|| found.usable.iter().copied().take(ranks).collect())
            }
        }
    }

    /// True if the ranks may be on several nodes, so that their number does not limit the CPUs of this one.
    fn spread(&self, found: &Found) -> bool {
        self.hostfile.is_some() || found.flavour == Flavour::Srun
    }

    fn command_with(&self, found: &Found) -> Command {
        let placement = self.placement(found);
        let crowded = placement.is_none() && !self.spread(found);
        let mut command = Command::new(&found.launcher);
        command.args(found.flavour.args(self, found.root, crowded));
        command.arg(&found.bench).args(self.params.to_args());
        if let Some(cpus) = placement {
            command.arg(format!("--cpus={cpus}"));
        }
        match &self.out {
            Some(path) => {
                let mut option = OsString::from("--out=");
                option.push(path);
                command.arg(option)
            }
            None => command.arg("--json"),
        };
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Params, Program};

    fn found(flavour: Flavour, cpus: &str) -> Found {
        let usable: CpuSet = cpus.parse().expect("a list");
        Found {
            flavour,
            launcher: "/bin/launch".into(),
            bench: "/bin/colony-bench".into(),
            usable: usable.iter().collect(),
            root: false,
        }
    }

    fn line(launch: &Launch, found: &Found) -> String {
        run::text(&launch.command_with(found))
    }

    #[test]
    fn open_mpi_on_one_node_stays_off_the_network_and_ranks_bind_themselves() {
        let launch = Launch::new(Params::new(Program::Barrier), 2);
        let line4 = line(&launch, &found(Flavour::OpenMpi { major: 4 }, "0-3"));
        for words in [
            "-n 2",
            "--bind-to none",
            "--mca btl self,vader",
            "--mca mpi_yield_when_idle 0",
            "/bin/colony-bench barrier --ops=100000",
            "--json",
        ] {
            assert!(line4.contains(words), "{words} in {line4}");
        }
        assert!(line4.contains("--cpus=") && !line4.contains("--allow-run-as-root"), "{line4}");
        let line5 = line(&launch, &found(Flavour::OpenMpi { major: 5 }, "0-3"));
        assert!(line5.contains("--mca btl self,sm"), "{line5}");
        let root = Found { root: true, ..found(Flavour::OpenMpi { major: 4 }, "0-3") };
        assert!(line(&launch, &root).contains("--allow-run-as-root"));
    }

    #[test]
    fn more_ranks_than_cpus_are_not_bound_and_yield() {
        let mut launch = Launch::new(Params::new(Program::Barrier), 4);
        let text = line(&launch, &found(Flavour::OpenMpi { major: 4 }, "0-1"));
        assert!(text.contains("--mca mpi_yield_when_idle 1") && text.contains("--oversubscribe"), "{text}");
        assert!(!text.contains("--cpus"), "{text}");
        launch.ranks = 2;
        launch.cpus = Some("1".parse().expect("a list"));
        let text = line(&launch, &found(Flavour::OpenMpi { major: 4 }, "0-3"));
        assert!(text.contains("--mca mpi_yield_when_idle 1") && !text.contains("--cpus"), "{text}");
    }

    #[test]
    fn pals_is_given_options_that_it_has() {
        let mut launch = Launch::new(Params::new(Program::Barrier), 2);
        let text = line(&launch, &found(Flavour::Pals, "0-3"));
        assert!(text.starts_with("/bin/launch -n 2 --cpu-bind none /bin/colony-bench "), "{text}");
        launch.hostfile = Some("nodes".into());
        let text = line(&launch, &found(Flavour::Pals, "0-3"));
        assert!(text.starts_with("/bin/launch -n 2 --cpu-bind core --hostfile nodes /bin/"), "{text}");
    }

    #[test]
    fn given_cpus_and_files_reach_the_program() {
        let launch = Launch {
            cpus: Some("1,3".parse().expect("a list")),
            out: Some("/tmp/a b.json".into()),
            ..Launch::new(Params::new(Program::Ring), 2)
        };
        let text = line(&launch, &found(Flavour::Mpich, "0-3"));
        assert!(text.contains("--cpus=1,3") && text.contains("'--out=/tmp/a b.json'"), "{text}");
        assert!(!text.contains("--mca") && !text.contains("--json"), "{text}");
        assert!(text.contains("-bind-to none"), "hydra's own option: {text}");
    }

    #[test]
    fn several_nodes_use_the_network() {
        let launch = Launch { hostfile: Some("hosts".into()), ..Launch::new(Params::new(Program::Glob), 64) };
        let text = line(&launch, &found(Flavour::OpenMpi { major: 4 }, "0-3"));
        assert!(text.contains("--hostfile hosts") && text.contains("--bind-to core"), "{text}");
        assert!(!text.contains("btl") && !text.contains("--oversubscribe"), "{text}");
        let text = line(&launch, &found(Flavour::Mpich, "0-3"));
        assert!(text.contains("-f hosts") && text.contains("-bind-to core"), "{text}");
    }

    #[test]
    fn slurm_binds_unless_cpus_are_given() {
        let mut launch =
            Launch { launcher: LauncherChoice::Srun, ..Launch::new(Params::new(Program::Barrier), 8) };
        let text = line(&launch, &found(Flavour::Srun, "0-1"));
        assert!(text.contains("--ntasks=8") && text.contains("--cpu-bind=cores"), "{text}");
        launch.cpus = Some("0-1".parse().expect("a list"));
        launch.launcher = LauncherChoice::Auto;
        let text = line(&launch, &found(Flavour::Srun, "0-1"));
        assert!(text.contains("--cpu-bind=none") && text.contains("--cpus=0-1"), "on every node: {text}");
    }

    #[test]
    fn an_impossible_launch_is_refused_before_anything_starts() {
        let ring = Launch::new(Params::new(Program::Ring), 1);
        assert!(matches!(ring.command(), Err(BenchError::Ranks { least: 2, .. })));
        let none = Launch::new(Params::new(Program::Barrier), 0);
        assert!(matches!(none.command(), Err(BenchError::Ranks { .. })));
        let cpus = Some("1000".parse().expect("a list"));
        let far = Launch { cpus, ..Launch::new(Params::new(Program::Ring), 2) };
        assert!(matches!(
            far.run(),
            Err(BenchError::Node(_) | BenchError::NoMpi { .. } | BenchError::NoProgram { .. })
        ));
        let wrong = Launch::new(Params { ops: Some(0), ..Params::new(Program::Ring) }, 2);
        assert!(matches!(wrong.run(), Err(BenchError::Params(_))));
    }
}
