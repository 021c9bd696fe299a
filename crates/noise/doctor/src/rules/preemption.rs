// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the kernel takes a CPU from a job for an ordinary task that wakes up: the preemption model. The scheduler decides whether it does.
//!
//! Whatever the model, a real-time task preempts at once, and so does a task that an interrupt on the job's CPU wakes. The models
//! differ for tasks that another CPU wakes. With all models but `lazy`, that CPU interrupts the job (`RES` in `/proc/interrupts`). With
//! `lazy`, the job runs until it enters the kernel, at the next tick at the latest (`resched_curr_lazy`, `kernel/sched/core.c`).

use crate::finding::{Finding, Level};
use crate::node::{CMDLINE, Node, is_set};
use crate::outcome::{Checked, Outcome};
use crate::root::Unread;

/// The models that can be chosen, the present one in parentheses: `none voluntary (full) lazy`. The file is there in kernels with
/// `CONFIG_PREEMPT_DYNAMIC`, and lists what the running kernel has: Linux 7.0 has dropped `none` and `voluntary` on some architectures.
const MODELS: &str = "/sys/kernel/debug/sched/preempt";
/// The version, as `uname -v` prints it: `#1 SMP PREEMPT_DYNAMIC Debian 6.12.9-1`.
const VERSION: &str = "/proc/sys/kernel/version";

/// The model, and where it was seen.
struct Seen {
    model: Model,
    file: String,
    value: String,
    /// Whether the kernel has `lazy` beside the present model; `None` if its file could not be read.
    has_lazy: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    /// Kernel code runs on until it returns or waits, or asks whether another task should run.
    None,
    Voluntary,
    /// One of the two; the files do not tell which.
    NoneOrVoluntary,
    Full,
    Lazy,
    /// `CONFIG_PREEMPT_RT`, `full` or `lazy`.
    RealTime,
}

impl Model {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "none" => Self::None,
            "voluntary" => Self::Voluntary,
            "full" => Self::Full,
            "lazy" => Self::Lazy,
            _ => return None,
        })
    }

    const fn title(self) -> &'static str {
        match self {
            Self::None => {
                "A task that another CPU wakes interrupts the job at once, unless the job is in the kernel (preemption model none)."
            }
            Self::Voluntary => {
                "A task that another CPU wakes interrupts the job at once, unless the job is in the kernel (preemption model voluntary)."
            }
            Self::NoneOrVoluntary => {
                "A task that another CPU wakes interrupts the job at once, unless the job is in the kernel (preemption model none or voluntary)."
            }
            Self::Full | Self::Lazy => {
                "A task that another CPU wakes interrupts the job at once, also in the kernel (preemption model full)."
            }
            Self::RealTime => {
                "Interrupt handlers are real-time threads, which preempt the job at once (a PREEMPT_RT kernel)."
            }
        }
    }
}

/// The reason why the model is not known.
enum Unknown {
    Unread(Unread),
    Reason(String),
}

impl From<Unread> for Unknown {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

/// The preemption model, and what it means for a job that computes.
pub(super) fn model(node: &Node) -> Checked {
    let seen = match read(node) {
        Ok(seen) => seen,
        Err(Unknown::Unread(unread)) => return Err(unread),
        Err(Unknown::Reason(reason)) => return Outcome::undecided(reason),
    };
    if seen.model == Model::Lazy {
        return Outcome::passed(seen.file, seen.value);
    }
    let finding = Finding::new(Level::Note, seen.model.title()).seen(seen.file, seen.value);
    if seen.model == Model::RealTime {
        return finding
            .advice("Bind the threads irq/* and the device's interrupts to spare CPUs (rules irq-movable and rt-tasks).")
            .into();
    }
    finding
        .advice(match seen.has_lazy {
            Some(true) => format!(
                "With lazy, a task of the ordinary classes waits until the job enters the kernel, at the next tick at the \
                 latest: echo lazy > {MODELS} (preempt=lazy on the kernel command line keeps it). Compare two measurements."
            ),
            Some(false) => "The other models of this kernel let tasks preempt as early: move the tasks.".into(),
            None => format!("Root reads in {MODELS} which other models this kernel has; with lazy, a task of the ordinary classes waits until the job enters the kernel, at the next tick at the latest."),
        })
        .into()
}

fn read(node: &Node) -> Result<Seen, Unknown> {
    match node.root.value(MODELS) {
        // a PREEMPT_RT kernel since Linux 6.13 has the file, too
        Ok(text) => match node.root.value(VERSION) {
            Ok(version) if has_flag(&version, "PREEMPT_RT") => {
                Ok(Seen { model: Model::RealTime, file: VERSION.into(), value: version, has_lazy: None })
            }
            _ => Ok(parse_models(&text)?),
        },
        Err(unread @ (Unread::Missing(_) | Unread::Denied(_))) => from_version(node, &unread),
        Err(other) => Err(other.into()),
    }
}

fn parse_models(text: &str) -> Result<Seen, Unread> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let chosen = words.iter().find_map(|word| word.strip_prefix('(')?.strip_suffix(')'));
    let model = chosen.and_then(Model::parse).ok_or_else(|| Unread::value(MODELS, text))?;
    Ok(Seen { model, file: MODELS.into(), value: text.to_owned(), has_lazy: Some(words.contains(&"lazy")) })
}

fn has_flag(version: &str, flag: &str) -> bool {
    version.split_whitespace().any(|word| word == flag)
}

/// The model by the kernel's version line, command line and configuration. `unread`: the reason why [`MODELS`] has no value.
fn from_version(node: &Node, unread: &Unread) -> Result<Seen, Unknown> {
    let version = node.root.value(VERSION)?;
    let has = |flag: &str| has_flag(&version, flag);
    let unknown = |what: &str| Unknown::Reason(format!("{unread}, and {what}"));
    let seen = |model| Seen { model, file: VERSION.into(), value: version.clone(), has_lazy: None };
    let is_known = |word: &str| {
        !word.to_ascii_uppercase().starts_with("PREEMPT")
            || ["PREEMPT", "PREEMPT_DYNAMIC", "PREEMPT_RT"].contains(&word)
    };
    // every kernel's begins with the number of the build
    if !version.starts_with('#') || !version.split_whitespace().all(is_known) {
        return Err(Unread::value(VERSION, &version).into());
    }
    if has("PREEMPT_RT") {
        return Ok(seen(Model::RealTime));
    }
    if has("PREEMPT_DYNAMIC") {
        if let Some(value) = node.parameter("preempt")? {
            return match Model::parse(&value) {
                Some(model) if obeys(node, model) => Ok(Seen {
                    model,
                    file: CMDLINE.into(),
                    value: format!("preempt={value}"),
                    has_lazy: None,
                }),
                _ => Err(unknown(&format!("this kernel may ignore preempt={value}"))),
            };
        }
        return configured(node).ok_or_else(|| unknown("the default model of this kernel is not known"));
    }
    if has("PREEMPT") {
        // since Linux 6.13 a kernel that is built for lazy preemption has the same flag
        let by_version = || is_before(node, (6, 13)).then(|| seen(Model::Full));
        return configured(node)
            .or_else(by_version)
            .ok_or_else(|| unknown("the configuration does not say whether the model is full or lazy"));
    }
    Ok(configured(node).unwrap_or_else(|| seen(Model::NoneOrVoluntary)))
}

/// Returns `true` if the kernel is known to take the model from its command line: `lazy` since Linux 6.13; Linux 7.0 has dropped
/// `none` and `voluntary` on some architectures.
fn obeys(node: &Node, model: Model) -> bool {
    match model {
        Model::Lazy => node.version().is_some_and(|own| own >= (6, 13)),
        Model::Full => true,
        _ => is_before(node, (7, 0)),
    }
}

/// The model that the kernel was built for, by its configuration.
fn configured(node: &Node) -> Option<Seen> {
    let options = [
        ("CONFIG_PREEMPT_NONE", Model::None),
        ("CONFIG_PREEMPT_VOLUNTARY", Model::Voluntary),
        ("CONFIG_PREEMPT_LAZY", Model::Lazy),
        ("CONFIG_PREEMPT", Model::Full),
    ];
    let (file, text) = node.configuration()?;
    let (option, model) = options.into_iter().find(|(option, _)| is_set(&text, option))?;
    Some(Seen { model, file, value: format!("{option}=y"), has_lazy: None })
}

/// Returns `true` if the kernel is known to be older.
fn is_before(node: &Node, version: (u32, u32)) -> bool {
    node.version().is_some_and(|own| own < version)
}
