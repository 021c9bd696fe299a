// SPDX-License-Identifier: MIT OR Apache-2.0
//! The script that a profile of TuneD calls for settings that no plug-in of every TuneD makes.

use colony_doctor::remedy::quote;

/// The line of `[script]`. TuneD replaces the variable by the folder of the profile.
pub(super) const SECTION: &str = "script=${i:PROFILE_DIR}/script.sh";

/// A change that the script makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ScriptChange {
    /// The CPUs of all interrupts with this handler.
    Interrupt {
        handler: String,
        /// `smp_affinity` or `smp_affinity_list`.
        file: String,
        value: String,
    },
    /// A value into a file.
    Setting { file: String, value: String },
}

impl ScriptChange {
    /// Returns `true` if the other change writes another value to the same interrupts or the same file.
    pub(super) fn contradicts(&self, other: &Self) -> bool {
        let is_same_place = match (self, other) {
            (Self::Interrupt { handler: own, .. }, Self::Interrupt { handler, .. }) => own == handler,
            (Self::Setting { file: own, .. }, Self::Setting { file, .. }) => own == file,
            _ => false,
        };
        is_same_place && self != other
    }

    fn line(&self) -> String {
        match self {
            Self::Interrupt { handler, file, value } => {
                format!("    interrupts {} {file} {}\n", quote(handler), quote(value))
            }
            Self::Setting { file, value } => format!("    setting {} {}\n", quote(file), quote(value)),
        }
    }
}

/// The script. It saves each value before the change, for `stop`, and the value read back after it, for `verify`: the kernel prints
/// some values in another form than they are written in.
pub(super) fn text(changes: &[ScriptChange]) -> String {
    let lines: String = changes.iter().map(ScriptChange::line).collect();
    format!("{BEGIN}{lines}{END}")
}

const BEGIN: &str = r#"#!/bin/sh
# Written by colony tune export tuned-script. TuneD calls it with start, stop or verify.
# An interrupt may have another number after a boot, so interrupts are found by their handlers.

changes() {
"#;

const END: &str = r#"}

# File, value after the change and value before it, a line each.
saved=/run/colony-tuned
failed=0

# interrupts HANDLER FILE VALUE: the value into the file of every interrupt with this handler
interrupts() {
    for folder in /proc/irq/[0-9]*; do
        handlers=$(cat "/sys/kernel/irq/${folder##*/}/actions" 2>/dev/null)
        case ",$handlers," in
        *",$1,"*) ;;
        *) [ -d "$folder/$1" ] || continue ;;
        esac
        setting "$folder/$2" "$3"
    done
}

# setting FILE VALUE
setting() {
    before=$(cat "$1" 2>/dev/null) || { complain "$1 cannot be read"; return; }
    [ "$(printf '%s' "$before" | wc -l)" -eq 0 ] || { complain "$1 has several lines"; return; }
    # a choice is written without its brackets
    case $before in
    *\[*\]*) before=${before#*\[} before=${before%%\]*} ;;
    esac
    put "$1" "$2" || { complain "the kernel does not take $2 into $1"; return; }
    printf '%s\n' "$1" "$(cat "$1")" "$before" >> "$saved"
}

put() {
    { printf '%s\n' "$2" > "$1"; } 2>/dev/null
}

complain() {
    echo "$1" >&2
    failed=1
}

restore() {
    [ -e "$saved" ] || return
    while IFS= read -r file && IFS= read -r after && IFS= read -r before; do
        put "$file" "$before" || complain "the kernel does not take $before into $file"
    done < "$saved"
    rm -f "$saved"
}

verify() {
    [ -e "$saved" ] || { complain "the changes are not made"; return; }
    while IFS= read -r file && IFS= read -r after && IFS= read -r before; do
        now=$(cat "$file" 2>/dev/null)
        [ "$now" = "$after" ] || complain "$file has $now instead of $after"
    done < "$saved"
}

case $1 in
start)
    restore
    : > "$saved"
    changes
    ;;
stop) restore ;;
verify) verify ;;
esac
exit $failed
"#;
