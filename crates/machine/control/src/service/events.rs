// SPDX-License-Identifier: MIT OR Apache-2.0
//! News of a partition, numbered and kept for the daemon.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::api::{PartitionState, Severity, now};

/// Events that are kept while no daemon listens.
const KEPT: usize = 10_000;

const fn yes() -> bool {
    true
}

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
    /// The ranks of a job have begun.
    JobBegan { job: u64 },
    /// A job has ended.
    JobEnded {
        job: u64,
        code: i32,
        error: Option<String>,
        /// A rank may have begun.
        #[serde(default = "yes")]
        has_begun: bool,
        /// The machine has failed, not the job.
        #[serde(default)]
        by_machine: bool,
    },
}

/// Something that has happened, with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Numbered {
    pub(crate) number: u64,
    pub(crate) time: f64,
    pub(crate) news: News,
}

/// News that are kept.
#[derive(Debug)]
struct Kept {
    numbered: Numbered,
    /// Events that it stands for, itself among them: more than one if others were dropped.
    events: u64,
}

/// The news of a partition that the daemon has not stored yet.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    kept: VecDeque<Kept>,
    last: u64,
    /// Number of the last that the daemon has been told.
    told: u64,
}

impl Journal {
    /// Adds news. Of too many events that nobody has been told, the oldest is dropped; other news are never dropped.
    pub(crate) fn add(&mut self, news: News) {
        self.last += 1;
        let events = u64::from(matches!(news, News::Ras { .. }));
        self.kept.push_back(Kept { numbered: Numbered { number: self.last, time: now(), news }, events });
        if self.kept.len() > KEPT {
            self.drop_event();
        }
    }

    /// Drops the oldest event, if there are too many. The event after it is replaced by one that says how many were dropped.
    fn drop_event(&mut self) {
        let can_go = |kept: &Kept| kept.events > 0 && kept.numbered.number > self.told;
        let count = self.kept.iter().filter(|kept| can_go(kept)).count();
        let mut oldest = (0..).zip(&self.kept).filter(|(_, kept)| can_go(kept)).map(|(at, _)| at);
        let (Some(oldest), Some(next), true) = (oldest.next(), oldest.next(), count > KEPT) else { return };
        let gone = self.kept.remove(oldest).map_or(0, |gone| gone.events);
        if let Some(report) = self.kept.get_mut(next - 1) {
            report.events += gone;
            let (severity, code) = (Severity::Warning, "events-dropped".to_owned());
            let message = format!("{} events were dropped: no control daemon has listened", report.events);
            report.numbered.news =
                News::Ras { severity, node: None, location: None, code, message, job: None };
        }
    }

    /// The first of the news after this number.
    pub(crate) fn after(&self, number: u64) -> Option<&Numbered> {
        let at = self.kept.partition_point(|kept| kept.numbered.number <= number);
        self.kept.get(at).map(|kept| &kept.numbered)
    }

    /// The first of the news after this number, to tell it to the daemon.
    pub(crate) fn tell_after(&mut self, number: u64) -> Option<Numbered> {
        let news = self.after(number)?.clone();
        self.told = self.told.max(news.number);
        Some(news)
    }

    /// A daemon listens, which has stored the news up to this number and has been told no others.
    pub(crate) fn listened(&mut self, number: u64) {
        self.told = number;
    }

    /// The news up to this number have been stored. Returns the jobs whose ends are among them.
    pub(crate) fn stored(&mut self, number: u64) -> Vec<u64> {
        let rest = self.kept.partition_point(|kept| kept.numbered.number <= number);
        let job = |stored: Kept| match stored.numbered.news {
            News::JobEnded { job, .. } => Some(job),
            _ => None,
        };
        self.kept.drain(..rest).filter_map(job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(message: u64) -> News {
        let (severity, code, message) = (Severity::Info, "test".to_owned(), message.to_string());
        News::Ras { severity, node: None, location: None, code, message, job: None }
    }

    fn ended(job: u64) -> News {
        News::JobEnded { job, code: 0, error: None, has_begun: true, by_machine: false }
    }

    /// All that a daemon is told that has stored the news up to this number.
    fn told(journal: &mut Journal, mut number: u64) -> Vec<News> {
        journal.listened(number);
        let next = std::iter::from_fn(|| {
            let news = journal.tell_after(number)?;
            assert!(news.number > number);
            number = news.number;
            Some(news.news)
        });
        next.collect()
    }

    #[test]
    fn each_of_the_news_is_found_after_the_one_before_until_it_is_stored() {
        let mut journal = Journal::default();
        assert_eq!(journal.after(0), None);
        [event(1), ended(7), event(3), ended(8)].into_iter().for_each(|news| journal.add(news));
        assert_eq!(journal.after(0).map(|news| news.number), Some(1));
        assert_eq!(journal.stored(3), [7]);
        assert_eq!(journal.after(0).map(|news| news.number), Some(4));
        assert_eq!((journal.stored(4), journal.after(0)), (vec![8], None));
        journal.add(event(5));
        assert_eq!(journal.after(4).map(|news| news.number), Some(5));
    }

    #[test]
    fn of_too_many_news_only_events_are_dropped_and_counted_and_no_end_of_a_job() {
        let mut journal = Journal::default();
        let all = 3 * KEPT as u64;
        (0..all).for_each(|n| journal.add(if n % 3 == 0 { ended(n) } else { event(n) }));
        assert_eq!(told(&mut journal, 0).len(), KEPT + KEPT, "ends of jobs, and as many events as are kept");
        // a daemon that was killed before it stored anything is told the same
        (0..10).for_each(|n| journal.add(event(all + n)));
        let news = told(&mut journal, 0);
        let ends = news.iter().filter(|news| matches!(news, News::JobEnded { .. })).count();
        assert_eq!(ends, KEPT);
        let dropped: Vec<&String> = news
            .iter()
            .filter_map(|news| match news {
                News::Ras { code, message, .. } if code == "events-dropped" => Some(message),
                _ => None,
            })
            .collect();
        let count = 2 * KEPT + 10 - (news.len() - ends - 1);
        assert_eq!(dropped, [&format!("{count} events were dropped: no control daemon has listened")]);
        let kept: Vec<&News> = news.iter().filter(|news| matches!(news, News::Ras { .. })).collect();
        assert_eq!(kept.last(), Some(&&event(all + 9)), "the newest are kept");
        assert_eq!(journal.stored(u64::MAX).len(), KEPT);
    }

    #[test]
    fn what_the_daemon_has_been_told_is_neither_dropped_nor_counted() {
        let mut journal = Journal::default();
        journal.listened(0);
        journal.add(event(0));
        assert_eq!(journal.tell_after(0).map(|news| news.number), Some(1));
        (0..KEPT as u64 + 5).for_each(|n| journal.add(event(n)));
        assert_eq!(journal.after(0).map(|news| news.news.clone()), Some(event(0)));
        let Some(News::Ras { message, .. }) = journal.tell_after(1).map(|news| news.news) else { panic!() };
        assert_eq!(message, "6 events were dropped: no control daemon has listened");
    }
}
