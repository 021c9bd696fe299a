// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony tune export`: a profile's changes for other programs.

use std::path::Path;

use anyhow::Context;
use colony_tune::{Node as _, Plan, TunedProfile};

use super::{Target, linux};

/// Print a profile's changes for other programs: the kernel command line, or a TuneD profile
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony tune export kernel-command-line
  colony tune export tuned > /etc/tuned/colony/tuned.conf
  colony tune export tuned-script > /etc/tuned/colony/script.sh")]
pub(super) struct Export {
    /// Form of the output
    #[arg(value_enum)]
    form: Form,
    #[command(flatten)]
    target: Target,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Form {
    /// Parameters that need a boot, on one line
    KernelCommandLine,
    /// A TuneD profile
    Tuned,
    /// The script that the TuneD profile calls: interrupts, and files outside /sys and /proc/sys
    TunedScript,
}

pub(super) fn export(a: &Export) -> anyhow::Result<()> {
    let profile = a.target.profile()?;
    let node = a.target.node()?;
    let plan = Plan::new(&colony_doctor::examine(&node), &profile);
    let command_line = command_line(a.target.root.as_deref())?;
    let handlers = |number| colony_doctor::interrupt_handlers(&node, number);
    let tuned = TunedProfile::new(&plan, &profile, handlers, &command_line);
    match a.form {
        Form::KernelCommandLine => {
            let removed = colony_tune::parameters_to_remove(&plan, &command_line);
            if !removed.is_empty() {
                note!(
                    "remove from the kernel command line: {}; the kernel keeps the first isolcpus= and nohz_full=",
                    removed.join(" ")
                );
            }
            crate::cmd::print_text(&format!("{}\n", colony_tune::kernel_command_line(&plan)))
        }
        Form::Tuned => {
            if tuned.script().is_some() {
                note!("the profile calls script.sh in its folder: colony tune export tuned-script");
            }
            crate::cmd::print_text(&tuned.configuration())
        }
        Form::TunedScript => match tuned.script() {
            Some(script) => crate::cmd::print_text(&script),
            None => {
                note!("the TuneD profile calls no script");
                Ok(())
            }
        },
    }
}

/// The kernel command line; empty if a collection of files has none.
fn command_line(root: Option<&Path>) -> anyhow::Result<String> {
    const FILE: &str = "/proc/cmdline";
    match linux(root).read(FILE) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.context(FILE),
    }
}
