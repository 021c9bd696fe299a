// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remedies as data: a program can apply a [`Change`] and undo it, a person can paste its command.

use std::slice;

use colony_node::cpu::CpuSet;
use colony_node::task::TaskId;
use serde::{Deserialize, Serialize};

pub use crate::effort::Effort;
use crate::touches::Touches;

/// The tree of control groups of version 2.
const GROUPS: &str = "/sys/fs/cgroup";

/// Changes that together remove a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remedy {
    /// The changes, in order; their undos run in the opposite order.
    pub changes: Vec<Change>,
    /// What it takes to apply them.
    pub effort: Effort,
    /// The harm the changes may do, one sentence.
    pub risk: String,
    /// The sources of noise that this remedy takes from the job's CPUs; `None` for those of its finding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<Touches>,
    /// What the node or its users lose for certain. A program must not make such a change unless it was asked to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<Loss>,
    /// A way to keep the change over a restart, if the changes themselves do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
}

/// Something that the node or its users lose by a remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Memory of the job or of the node, as swap space is.
    Memory,
    /// Hardware threads.
    Threads,
    /// Clock frequency of the processor.
    Frequency,
    /// Time that the kernel keeps for ordinary tasks if a real-time task never sleeps.
    Protection,
    /// A service, or a scheduler, that an administrator has chosen to run or not to run.
    Service,
    /// A limit that a resource manager, an administrator or a user has set.
    Limit,
}

/// One change of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// The same value into some files.
    Write {
        /// The files, with the value each has now.
        files: Vec<FileNow>,
        /// The value to write.
        value: String,
    },
    /// Other CPUs for some tasks.
    Affinity {
        /// The tasks, with the CPUs each may run on now.
        tasks: Vec<TaskNow>,
        /// The CPUs they may run on.
        cpus: CpuSet,
    },
    /// A command, and the command that undoes it.
    Command {
        /// Program and arguments.
        apply: Vec<String>,
        /// Program and arguments; `None` if nothing is to be undone.
        undo: Option<Vec<String>>,
    },
    /// Another command that starts the job.
    JobStart {
        /// The command, with `CMD` for the program of the job.
        command: String,
    },
    /// An isolated cpuset partition, in which the job is started.
    Partition {
        /// CPUs of the partition.
        cpus: CpuSet,
        /// `true` if systemd makes the control groups of the node.
        by_systemd: bool,
    },
    /// A parameter of the kernel's command line; takes effect at the next boot.
    KernelParameter {
        /// The parameter with its value, as `nohz_full=1-3`.
        parameter: String,
        /// The parameter it replaces, if one is on the command line now.
        replaces: Option<String>,
    },
    /// A line in a configuration file, and the command that makes a service read it.
    Line {
        /// The file.
        file: String,
        /// The line.
        line: String,
        /// Lines of the file now that it takes the place of, whole; each that is there several times as often.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        replaces: Vec<String>,
        /// Program and arguments.
        reload: Vec<String>,
    },
}

/// A file and its value before a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNow {
    /// The file.
    pub file: String,
    /// Its value.
    pub value: String,
}

/// A task and its CPUs before a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNow {
    /// Its number and its start: the number alone may be another task's when the change is made or undone.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The CPUs it may run on.
    pub cpus: CpuSet,
}

impl Remedy {
    /// Changes with their risk.
    pub(crate) fn new(changes: impl IntoIterator<Item = Change>, risk: &str) -> Self {
        let changes: Vec<Change> = changes.into_iter().collect();
        let effort = changes.iter().map(Change::effort).max().unwrap_or(Effort::Setting);
        Self { changes, effort, risk: risk.into(), moves: None, losses: Vec::new(), keep: None }
    }

    /// Remedies of one program take less effort than other settings of the node.
    pub(crate) fn of_program(mut self) -> Self {
        self.effort = Effort::Program;
        self
    }

    /// The sources that this remedy takes away, if other remedies of the finding take others.
    pub(crate) fn moves(mut self, moves: Touches) -> Self {
        self.moves = Some(moves);
        self
    }

    /// `value` into one file that has `now`.
    pub(crate) fn write(file: &str, now: &str, value: &str, risk: &str) -> Self {
        Self::new([Change::write(file, now, value)], risk)
    }

    /// `value` into `/proc/sys/…`, with the line that keeps it.
    pub(crate) fn sysctl(file: &str, now: &str, value: &str, risk: &str) -> Self {
        let name = file.trim_start_matches("/proc/sys/").replace('/', ".");
        Self::write(file, now, value, risk)
            .keep(format!("the line `{name} = {value}` in /etc/sysctl.d/90-colony.conf"))
    }

    /// A kernel parameter that takes the place of `replaces`.
    pub(crate) fn parameter(parameter: String, replaces: Option<&str>, risk: &str) -> Self {
        let replaces = replaces.filter(|old| *old != parameter).map(str::to_owned);
        Self::new([Change::KernelParameter { parameter, replaces }], risk)
    }

    /// The node or its users lose this for certain.
    pub(crate) fn loses(mut self, loss: Loss) -> Self {
        self.losses.push(loss);
        self
    }

    pub(crate) fn keep(mut self, how: impl Into<String>) -> Self {
        self.keep = Some(how.into());
        self
    }

    /// Returns `true` if the node must boot again before the remedy takes effect.
    #[must_use]
    pub fn needs_reboot(&self) -> bool {
        self.effort == Effort::Boot
    }

    /// The commands that apply it, one a line, for a root shell.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        self.changes.iter().flat_map(Change::commands).collect()
    }

    /// The commands that undo it, one a line, for a root shell.
    #[must_use]
    pub fn undo_commands(&self) -> Vec<String> {
        self.changes.iter().rev().flat_map(Change::undo_commands).collect()
    }
}

impl Change {
    /// `value` into one file that has `now`.
    pub(crate) fn write(file: &str, now: &str, value: &str) -> Self {
        Self::writes([(file.to_owned(), now.to_owned())], value)
    }

    /// `value` into files, each with the value it has.
    pub(crate) fn writes(files: impl IntoIterator<Item = (String, String)>, value: &str) -> Self {
        let files = files.into_iter().map(|(file, value)| FileNow { file, value: value.trim().to_owned() });
        Self::Write { files: files.collect(), value: value.to_owned() }
    }

    /// A command with its undo.
    pub(crate) fn command(apply: &[&str], undo: &[&str]) -> Self {
        let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        Self::Command { apply: words(apply), undo: (!undo.is_empty()).then(|| words(undo)) }
    }

    fn effort(&self) -> Effort {
        match self {
            Self::Affinity { .. } => Effort::Program,
            Self::JobStart { .. } => Effort::JobStart,
            Self::Write { .. } | Self::Command { .. } | Self::Line { .. } => Effort::Setting,
            Self::Partition { .. } => Effort::Partition,
            Self::KernelParameter { .. } => Effort::Boot,
        }
    }

    /// The commands of a root shell that make the change.
    #[must_use]
    pub fn commands(&self) -> Vec<String> {
        match self {
            Self::Write { files, value } => write_command(files.iter().map(|f| f.file.as_str()), value),
            Self::Affinity { tasks, cpus } => tasks.iter().map(|t| bind_command(t, cpus)).collect(),
            Self::Command { apply, .. } => vec![shell(apply)],
            Self::JobStart { command } => vec![command.clone()],
            Self::Partition { cpus, by_systemd: true } => vec![
                format!("systemctl set-property --runtime job.slice AllowedCPUs={cpus}"),
                "systemctl start job.slice".into(),
                format!("echo isolated > {GROUPS}/job.slice/cpuset.cpus.partition"),
            ],
            Self::Partition { cpus, by_systemd: false } => vec![
                format!("echo +cpuset > {GROUPS}/cgroup.subtree_control"),
                format!("mkdir {GROUPS}/job"),
                format!("echo {cpus} > {GROUPS}/job/cpuset.cpus"),
                format!("echo isolated > {GROUPS}/job/cpuset.cpus.partition"),
            ],
            Self::KernelParameter { parameter, replaces: None } => {
                vec![format!("# add to the kernel command line, then reboot: {parameter}")]
            }
            Self::KernelParameter { parameter, replaces: Some(old) } => {
                vec![format!("# on the kernel command line, replace {old}, then reboot: {parameter}")]
            }
            Self::Line { file, line, replaces, reload } => {
                let remove = (!replaces.is_empty()).then(|| remove_lines(file, replaces));
                remove.into_iter().chain([append_lines(file, slice::from_ref(line)), shell(reload)]).collect()
            }
        }
    }

    /// The commands of a root shell that undo the change.
    #[must_use]
    pub fn undo_commands(&self) -> Vec<String> {
        match self {
            Self::Write { files, .. } => {
                let mut values: Vec<&str> = files.iter().map(|f| f.value.as_str()).collect();
                values.sort_unstable();
                values.dedup();
                let of = |value: &str| {
                    let same = files.iter().filter(|f| f.value == value);
                    write_command(same.map(|f| f.file.as_str()), value)
                };
                values.into_iter().flat_map(of).collect()
            }
            Self::Affinity { tasks, .. } => tasks.iter().map(|t| bind_command(t, &t.cpus)).collect(),
            Self::Command { undo, .. } => undo.iter().map(|words| shell(words)).collect(),
            Self::JobStart { .. } => Vec::new(),
            Self::Partition { by_systemd: true, .. } => vec![
                format!("echo member > {GROUPS}/job.slice/cpuset.cpus.partition"),
                "systemctl set-property --runtime job.slice AllowedCPUs=".into(),
                "systemctl stop job.slice".into(),
            ],
            Self::Partition { by_systemd: false, .. } => {
                vec![
                    format!("echo member > {GROUPS}/job/cpuset.cpus.partition"),
                    format!("rmdir {GROUPS}/job"),
                ]
            }
            Self::KernelParameter { parameter, replaces: None } => {
                vec![format!("# remove from the kernel command line, then reboot: {parameter}")]
            }
            Self::KernelParameter { parameter, replaces: Some(old) } => {
                vec![format!("# on the kernel command line, replace {parameter}, then reboot: {old}")]
            }
            Self::Line { file, line, replaces, reload } => {
                let restore = (!replaces.is_empty()).then(|| append_lines(file, replaces));
                let remove = remove_lines(file, slice::from_ref(line));
                [remove].into_iter().chain(restore).chain([shell(reload)]).collect()
            }
        }
    }
}

fn append_lines(file: &str, lines: &[String]) -> String {
    format!("printf '%s\\n' {} >> {}", shell(lines), quote(file))
}

/// Takes lines out of a file, which keeps its owner and mode.
fn remove_lines(file: &str, lines: &[String]) -> String {
    let patterns: Vec<String> = lines.iter().map(|line| format!("-e {}", quote(line))).collect();
    // -x: the whole line; -F: as it stands
    let keep = format!("grep -vxF {} {}", patterns.join(" "), quote(file));
    format!("{keep} > /run/colony-line; cat /run/colony-line > {}", quote(file))
}

fn bind_command(task: &TaskNow, cpus: &CpuSet) -> String {
    format!("taskset -pc {cpus} {}", task.task.tid)
}

/// `echo` into one file, `tee` into several.
fn write_command<'a>(files: impl Iterator<Item = &'a str>, value: &str) -> Vec<String> {
    let files: Vec<String> = files.map(quote).collect();
    let echo = if value.is_empty() { "echo".to_owned() } else { format!("echo {}", quote(value)) };
    match &files[..] {
        [] => Vec::new(),
        [file] => vec![format!("{echo} > {file}")],
        files => vec![format!("{echo} | tee {} > /dev/null", files.join(" "))],
    }
}

fn shell(words: &[String]) -> String {
    words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" ")
}

/// A word that a POSIX shell reads as `text`, whatever is in it. Control characters cannot be in a command that is
/// pasted, and are written as `printf` writes them in octal.
#[must_use]
pub fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    if !text.chars().any(char::is_control) {
        return format!("'{}'", text.replace('\'', r"'\''"));
    }
    let octal = text.bytes().map(|b| match b {
        b if b.is_ascii_alphanumeric() || b"/._-".contains(&b) => char::from(b).to_string(),
        b => format!("\\0{b:03o}"),
    });
    format!("\"$(printf %b '{}')\"", octal.collect::<String>())
}

/// The CPUs as a hexadecimal mask in groups of 32, as the kernel's mask files read them: `1,00000000`.
#[must_use]
pub fn mask(cpus: &CpuSet) -> String {
    let words = cpus.iter().last().map_or(1, |last| last / 32 + 1);
    let mut groups = vec![0u32; words];
    for cpu in cpus.iter() {
        groups[cpu / 32] |= 1 << (cpu % 32);
    }
    let mut text = String::new();
    for (place, group) in groups.iter().rev().enumerate() {
        match place {
            0 => text.push_str(&format!("{group:x}")),
            _ => text.push_str(&format!(",{group:08x}")),
        }
    }
    text
}

/// The CPUs of a mask in the kernel's form.
#[must_use]
pub fn parse_mask(text: &str) -> Option<CpuSet> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let mut cpus = Vec::new();
    for (place, group) in text.rsplit(',').enumerate() {
        let group = u32::from_str_radix(group.trim(), 16).ok()?;
        cpus.extend((0..32).filter(|bit| group & (1 << bit) != 0).map(|bit| place * 32 + bit));
    }
    (cpus.iter().all(|&c| c < CpuSet::LIMIT)).then(|| cpus.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    #[test]
    fn a_mask_of_many_cpus_has_commas() {
        let mask_of = |list: &str| mask(&list.parse().expect("a list"));
        assert_eq!(mask_of("0"), "1");
        assert_eq!(mask_of("0-31"), "ffffffff");
        assert_eq!(mask_of("0,32"), "1,00000001");
        assert_eq!(mask_of("95"), "80000000,00000000,00000000");
        assert_eq!(parse_mask("g"), None);
    }

    #[test]
    fn undos_are_in_the_opposite_order_and_by_value() {
        let remedy = Remedy::new(
            [
                Change::writes(
                    [("/a".into(), "1\n".into()), ("/b".into(), "2".into()), ("/c".into(), "1".into())],
                    "0",
                ),
                Change::command(&["swapoff", "/dev/a b"], &["swapon", "/dev/a b"]),
            ],
            "none",
        );
        assert_eq!(remedy.commands(), ["echo 0 | tee /a /b /c > /dev/null", "swapoff '/dev/a b'"]);
        assert_eq!(
            remedy.undo_commands(),
            ["swapon '/dev/a b'", "echo 1 | tee /a /c > /dev/null", "echo 2 > /b"]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_shell_reads_a_quoted_word_as_it_was(text in "[^\0]{0,20}") {
            let script = format!("printf %s {}", quote(&text));
            let out = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            // a shell takes line ends off the end of what a command printed
            prop_assert_eq!(String::from_utf8_lossy(&out.stdout), text.trim_end_matches('\n'));
        }

        #[test]
        fn a_mask_reads_back(cpus in prop::collection::btree_set(0usize..1000, 0..20)) {
            let cpus: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(parse_mask(&mask(&cpus)).expect("own print"), cpus);
        }
    }
}
