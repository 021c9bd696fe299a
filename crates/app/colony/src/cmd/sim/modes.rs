// SPDX-License-Identifier: MIT OR Apache-2.0
//! The modes of `colony sim`, and the arguments that each mode uses. An argument without effect is an error.

use std::fmt;
use std::path::Path;

use clap::ArgMatches;
use clap::parser::ValueSource;
use colony_sim::spec::Scenario;

use crate::exit::wrong;

/// A mode of `colony sim`, which an option selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Simulation,
    PrintScenario,
    WhatIf,
    Choose,
    Goal,
    FitMachine,
}

use Mode::{Choose, FitMachine, Goal, PrintScenario, Simulation, WhatIf};

/// Every argument, by its field in `Args` or `Flags`, and the modes that use it.
const USED_BY: [(&[&str], &[Mode]); 15] = [
    (
        &["scenario", "machine", "seed", "repetitions", "duty"],
        &[Simulation, PrintScenario, WhatIf, Choose, Goal],
    ),
    (&["trace", "noise", "phase", "schedulers"], &[Simulation, PrintScenario, Goal]),
    (&["period"], &[Simulation, PrintScenario, WhatIf, Goal]),
    (
        &["nodes", "op", "bytes", "work", "algorithm", "iterations"],
        &[Simulation, PrintScenario, WhatIf, Choose],
    ),
    (&["ranks_per_node"], &[Simulation, PrintScenario, WhatIf]),
    (&["sweep"], &[Simulation, PrintScenario]),
    (&["json"], &[Simulation, WhatIf, Choose, Goal, FitMachine]),
    (&["out"], &[Simulation, FitMachine]),
    (&["report", "resume"], &[Simulation]),
    (&["print_scenario"], &[PrintScenario]),
    (&["what_if"], &[WhatIf, Choose]),
    (&["choose", "cores"], &[Choose]),
    (&["goal"], &[Goal]),
    (&["progress", "queue"], &[Goal]),
    (&["fit_machine"], &[FitMachine]),
];

/// Reasons why modes do not use arguments; an empty list of arguments is all of them. An argument of one mode only needs none.
const REASONS: [(&[Mode], &[&str], &str); 10] = [
    (
        &Mode::ALL,
        &["what_if", "goal", "fit_machine", "print_scenario"],
        "each of the two selects a mode of its own",
    ),
    (&[PrintScenario], &["out", "report", "resume", "json"], "it writes TOML and simulates nothing"),
    (&[WhatIf, Choose], &["trace", "noise", "phase"], "its noise is that of its trace, at random phases"),
    (&[WhatIf, Choose], &["schedulers"], "it compares schedulers of its own"),
    (&[WhatIf, Choose, Goal], &["sweep"], "its answer is for one scenario"),
    (&[WhatIf, Choose, Goal], &["out", "report", "resume"], "it only prints its answer, see --json"),
    (&[Choose], &["period"], "throughput depends on the favored share alone, see --duty"),
    (&[Choose], &["ranks_per_node"], "each core that is not spare has one rank, see --cores"),
    (
        &[Goal],
        &["nodes", "ranks_per_node", "op", "bytes", "work", "algorithm", "iterations"],
        "the schedule is the program, with one rank a node",
    ),
    (&[FitMachine], &[], "it fits a machine to benchmarks and simulates nothing"),
];

impl Mode {
    const ALL: [Self; 6] = [Simulation, PrintScenario, WhatIf, Choose, Goal, FitMachine];

    pub(super) fn uses(self, argument: &str) -> bool {
        USED_BY.iter().any(|(arguments, modes)| arguments.contains(&argument) && modes.contains(&self))
    }

    /// Keys of a scenario's file that this mode does not use: each the key, and what of it if that is not all.
    const fn unused_keys(self) -> &'static [&'static str] {
        match self {
            Simulation | PrintScenario | FitMachine => &[],
            WhatIf => &["noise", "schedulers except the first `coordinated`", "sweep"],
            Choose => &["noise", "ranks_per_node", "schedulers", "sweep"],
            Goal => &["nodes", "program", "ranks_per_node", "sweep"],
        }
    }

    /// Reads a scenario's file, and the keys that the file states. A note names those that this mode does not use.
    pub(super) fn read(self, file: &Path) -> anyhow::Result<(Scenario, toml::Table)> {
        let (scenario, keys) = Scenario::read_with_keys(file)?;
        let is_stated = |key: &&&str| key.split(' ').next().is_some_and(|key| keys.contains_key(key));
        let unused: Vec<&str> = self.unused_keys().iter().filter(is_stated).copied().collect();
        if !unused.is_empty() {
            note!("note: {self} does not use these keys of {}: {}", file.display(), unused.join(", "));
        }
        Ok((scenario, keys))
    }

    /// The error about an argument that this mode does not use.
    pub(super) fn refusal(self, argument: &str) -> String {
        let name = match argument {
            "scenario" => "SCENARIO".to_owned(),
            option => format!("--{}", option.replace('_', "-")),
        };
        let mut reasons = REASONS.iter().filter(|(modes, arguments, _)| {
            modes.contains(&self) && (arguments.is_empty() || arguments.contains(&argument))
        });
        match reasons.next() {
            Some((_, _, why)) => format!("{name} has no effect with {self}: {why}. Leave {name} out"),
            None => {
                let users: Vec<String> =
                    Self::ALL.iter().filter(|m| m.uses(argument)).map(Self::to_string).collect();
                format!("{name} has no effect without {}. Leave {name} out", users.join(" or "))
            }
        }
    }
}

/// The options that select the mode.
impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Simulation => "a simulation",
            PrintScenario => "--print-scenario",
            WhatIf => "--what-if",
            Choose => "--what-if TRACE --choose",
            Goal => "--goal",
            FitMachine => "--fit-machine",
        })
    }
}

/// The arguments on the command line, by their fields. As a part of a structure of arguments it must be the first field: the
/// fields before it take their values out of the matches.
pub(super) struct Given(Vec<String>);

impl Given {
    /// The mode that the arguments select.
    ///
    /// # Errors
    /// If the mode does not use one of them.
    pub(super) fn mode(&self) -> anyhow::Result<Mode> {
        let has = |argument: &str| self.0.iter().any(|given| given == argument);
        let mode = match () {
            () if has("what_if") && has("choose") => Choose,
            () if has("what_if") => WhatIf,
            () if has("goal") => Goal,
            () if has("fit_machine") => FitMachine,
            () if has("print_scenario") => PrintScenario,
            () => Simulation,
        };
        match self.0.iter().find(|argument| !mode.uses(argument)) {
            Some(argument) => Err(wrong(mode.refusal(argument))),
            None => Ok(mode),
        }
    }
}

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // groups have ids too
        let is_argument = |id: &str| USED_BY.iter().any(|(arguments, _)| arguments.contains(&id));
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let ids = matches.ids().map(clap::Id::as_str).filter(|id| is_argument(id) && is_given(id));
        Ok(Self(ids.map(str::to_owned).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Given {
    fn augment_args(command: clap::Command) -> clap::Command {
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command
    }
}

/// Each argument in the table, as many times as it stands there.
#[cfg(test)]
pub(super) fn listed() -> Vec<&'static str> {
    USED_BY.iter().flat_map(|(arguments, _)| arguments.iter().copied()).collect()
}
