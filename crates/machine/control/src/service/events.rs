// SPDX-License-Identifier: MIT OR Apache-2.0
//! News of a partition, numbered and kept for the daemon.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::api::{PartitionState, Severity, now};

/// News that are kept while no daemon listens.
const KEPT: usize = 10_000;

/// Something that happens in a partition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum News {
    /// The state of the partition has changed.
    State { state: PartitionState, error: Option<String>, boot_s: Option<f64> },
    /// An event of a node, of another location, or of the whole partition.
    Ras {
        severity: Severity,
        node: Option<u32>,
        #[serde(default)]
        location: Option<String>,
        code: String,
        message: String,
        job: Option<u64>,
    },
    /// A job has ended.
    JobEnded { job: u64, code: i32, error: Option<String> },
}

/// Something that has happened, with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) time: f64,
    pub(crate) news: News,
}

/// The news of a partition.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    kept: VecDeque<Numbered>,
    last: u64,
}

impl Journal {
    pub(crate) fn add(&mut self, news: News) {
        self.last += 1;
        self.kept.push_back(Numbered { number: self.last, time: now(), news });
        if self.kept.len() > KEPT {
            self.kept.pop_front();
        }
    }

    /// The first of the news after this number.
    pub(crate) fn after(&self, number: u64) -> Option<&Numbered> {
        let at = self.kept.partition_point(|news| news.number <= number);
        self.kept.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_news_is_found_after_the_one_before() {
        let mut journal = Journal::default();
        assert_eq!(journal.after(0), None);
        for job in 1..=KEPT as u64 + 5 {
            journal.add(News::JobEnded { job, code: 0, error: None });
        }
        assert_eq!(journal.after(0).map(|news| news.number), Some(6), "the oldest are dropped");
        assert_eq!(journal.after(7).map(|news| news.number), Some(8));
        assert_eq!(journal.after(KEPT as u64 + 5), None);
    }
}
