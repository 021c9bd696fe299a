// SPDX-License-Identifier: MIT OR Apache-2.0
//! The class of a source, and its default by the source's name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Source;

/// The remedies that can keep a source of noise away from a job: a scheduler, a spare core, both or neither.
///
/// In files and results a class is its lower-case name: `local`, `irq` or `task`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Bound to its CPU, and no scheduler delays it: timer ticks, inter-processor interrupts, the hypervisor.
    Local,
    /// Device interrupts: no scheduler delays them, but a spare core can take them.
    Irq,
    /// Threads: a scheduler decides when they run, and a spare core can take them.
    #[default]
    Task,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Local, Self::Irq, Self::Task];

    /// The name in files and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Irq => "irq",
            Self::Task => "task",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Vectors of the local APIC, as the kernel's `irq_vectors` tracepoints name them.
const LOCAL_IRQS: [&str; 11] = [
    "local_timer",
    "call_function",
    "call_function_single",
    "reschedule",
    "irq_work",
    "x86_platform_ipi",
    "thermal",
    "threshold",
    "deferred_error",
    "error",
    "spurious",
];

/// Softirqs that a CPU's own timer tick raises, as Linux names their vectors.
const LOCAL_SOFTIRQS: [&str; 3] = ["TIMER", "HRTIMER", "SCHED"];

impl Source {
    /// The default class, derived from the name. A trace that states the class of a source overrules it.
    ///
    /// Threads are tasks. Softirqs and the interrupts of devices can be moved to a spare core. The CPU's own events
    /// (its timer, calls from other CPUs, NMIs, page faults), steal time, and names of other tools are local.
    ///
    /// ```
    /// use colony_source::{Class, Source};
    /// assert_eq!(Source::from("thread:kworker/0:1").class(), Class::Task);
    /// assert_eq!(Source::from("irq:eth0").class(), Class::Irq);
    /// assert_eq!(Source::from("irq:local_timer").class(), Class::Local);
    /// ```
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Thread(_) => Class::Task,
            Self::Irq(name) if LOCAL_IRQS.contains(&name.as_str()) => Class::Local,
            Self::Softirq(name) if LOCAL_SOFTIRQS.contains(&name.as_str()) => Class::Local,
            Self::Irq(_) | Self::Softirq(_) => Class::Irq,
            Self::Nmi
            | Self::Fault(_)
            | Self::Throttle
            | Self::Hypervisor
            | Self::Observer
            | Self::Unexplained
            | Self::Other(_) => Class::Local,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_written_by_its_name() {
        for class in Class::ALL {
            let json = serde_json::to_string(&class).expect("a text");
            assert_eq!(json, format!("\"{class}\""));
            assert_eq!(serde_json::from_str::<Class>(&json).expect("reads back"), class);
        }
    }

    #[test]
    fn the_name_gives_the_default_class() {
        for (name, class) in [
            ("thread:kworker/0:1", Class::Task),
            ("irq:eth0", Class::Irq),
            ("irq:local_timer", Class::Local),
            ("irq:reschedule", Class::Local),
            ("softirq:RCU", Class::Irq),
            ("softirq:TIMER", Class::Local),
            ("softirq:SCHED", Class::Local),
            ("nmi", Class::Local),
            ("fault:page", Class::Local),
            ("hypervisor", Class::Local),
            ("unexplained", Class::Local),
            ("kworker", Class::Local),
        ] {
            assert_eq!(Source::from(name).class(), class, "{name}");
        }
    }
}
