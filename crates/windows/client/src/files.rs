// SPDX-License-Identifier: MIT OR Apache-2.0
//! The names of the files of `colonyd`.

/// A file of the tree.
///
/// The names follow `/proc/hpc/period` and `/proc/hpc/duty_cycle` of the Colony Linux kernel technical
/// report, section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum File {
    /// The period; a write changes it.
    Period,
    /// The duty cycle, which is the favored part of the period; a write changes it.
    DutyCycle,
    /// The job class; a write adds a process to it.
    Job,
    /// The windows, the job and statistics: JSON ([`StatsReport`](crate::StatsReport)).
    Stats,
    /// The position in the period, and the clock error: JSON ([`ClockReport`](crate::ClockReport)). A write gives an estimate
    /// of the cluster's clock.
    Clock,
    /// The node's limits: TOML.
    Limits,
    /// The reason for which the reading user's last write was refused; empty if it was accepted.
    LastError,
}

impl File {
    /// All files, in the order they are listed.
    pub const ALL: [Self; 7] =
        [Self::Period, Self::DutyCycle, Self::Job, Self::Stats, Self::Clock, Self::Limits, Self::LastError];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Period => "period",
            Self::DutyCycle => "duty_cycle",
            Self::Job => "job",
            Self::Stats => "stats",
            Self::Clock => "clock",
            Self::Limits => "limits",
            Self::LastError => "last_error",
        }
    }

    /// The file of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|f| f.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_found_by_name() {
        for file in File::ALL {
            assert_eq!(File::named(file.name()), Some(file));
        }
        assert_eq!(File::named("x"), None);
    }
}
