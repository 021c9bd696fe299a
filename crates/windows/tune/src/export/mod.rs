// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans for other programs: the kernel command line, a TuneD profile.

mod script;
mod tuned;

#[cfg(test)]
mod tests;

pub use tuned::TunedProfile;

use crate::plan::Plan;

/// The kernel parameters of a plan, as they are appended to a command line.
#[must_use]
pub fn kernel_command_line(plan: &Plan) -> String {
    plan.parameters.iter().map(|p| p.parameter.as_str()).collect::<Vec<_>>().join(" ")
}

/// The parameters of `command_line` that must be removed before those of the plan are appended.
///
/// The kernel keeps the first `isolcpus=` and the first `nohz_full=` (`housekeeping_setup`), so a parameter that is appended behind
/// another one of the same name changes nothing.
#[must_use]
pub fn parameters_to_remove(plan: &Plan, command_line: &str) -> Vec<String> {
    // the words behind `--` are the first program's
    let present = command_line.split_whitespace().take_while(|word| *word != "--");
    let is_replaced = |word: &&str| {
        let mut same =
            plan.parameters.iter().filter(|p| parameter_name(&p.parameter) == parameter_name(word));
        same.next().is_some_and(|p| p.parameter != **word)
    };
    present.filter(is_replaced).map(str::to_owned).collect()
}

/// The name of a parameter, in which the kernel takes `-` and `_` for the same.
fn parameter_name(parameter: &str) -> String {
    parameter.split('=').next().unwrap_or_default().replace('-', "_")
}
