// SPDX-License-Identifier: MIT OR Apache-2.0
//! The causes of detours, by name.

use std::{fmt, str::FromStr};

/// The source of a detour. Prints and reads as `irq:local_timer`, `thread:kworker/0:1`, `nmi`, …
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(into = "String", from = "String")]
pub enum Source {
    /// A hardware interrupt or an inter-processor interrupt, by the handler's name.
    Irq(String),
    /// A softirq, by its vector's name (`TIMER`, `RCU`, …).
    Softirq(String),
    /// Another task ran, by its name.
    Thread(String),
    /// A non-maskable interrupt.
    Nmi,
    /// A page fault or another exception of the program itself.
    Fault(String),
    /// The kernel held a real-time or bandwidth-limited observer back (throttling, fair server).
    Throttle,
    /// The hypervisor ran something else (steal time).
    Hypervisor,
    /// Threads of the program that measured, other than the observer itself: noise of the measurement, not of
    /// the node.
    Observer,
    /// No event was seen that explains it.
    Unexplained,
    /// A name another tool gave, kept as it is.
    Other(String),
}

impl Source {
    /// True if the source is the node's. The measurement causes the others: its own threads, and the kernel that holds its
    /// real-time observer back.
    #[must_use]
    pub fn is_of_node(&self) -> bool {
        !matches!(self, Self::Observer | Self::Throttle)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Irq(name) => write!(f, "irq:{name}"),
            Self::Softirq(name) => write!(f, "softirq:{name}"),
            Self::Thread(name) => write!(f, "thread:{name}"),
            Self::Fault(name) => write!(f, "fault:{name}"),
            Self::Nmi => f.write_str("nmi"),
            Self::Throttle => f.write_str("throttle"),
            Self::Hypervisor => f.write_str("hypervisor"),
            Self::Observer => f.write_str("observer"),
            Self::Unexplained => f.write_str("unexplained"),
            Self::Other(name) => f.write_str(name),
        }
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        match text.split_once(':') {
            Some(("irq", name)) => Self::Irq(name.into()),
            Some(("softirq", name)) => Self::Softirq(name.into()),
            Some(("thread", name)) => Self::Thread(name.into()),
            Some(("fault", name)) => Self::Fault(name.into()),
            _ => match text {
                "nmi" => Self::Nmi,
                "throttle" => Self::Throttle,
                "hypervisor" => Self::Hypervisor,
                "observer" => Self::Observer,
                "unexplained" => Self::Unexplained,
                other => Self::Other(other.into()),
            },
        }
    }
}

impl From<String> for Source {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl FromStr for Source {
    type Err = std::convert::Infallible;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.into())
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_is_a_source_and_prints_back(text in ".{0,40}") {
            prop_assert_eq!(Source::from(text.as_str()).to_string(), text);
        }
    }
}
