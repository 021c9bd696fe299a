// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judges the clock periodically, and derives the windows to enforce from it.

use std::io;
use std::time::Duration;

use colony_client::{Cluster, Coordination, Mode};
use colony_clock::anchor::Anchor;
use colony_clock::source::Reading;
use colony_time::estimate::Feed;
use colony_time::{ClockQuality, quality};
use colony_time::{Windows, text};

use super::bound::own_bound;
use super::guards::{differ, guards, max_error_ns, rough};
use super::held::{AHEAD_NS, Held, Now, SLACK_NS};
use super::rules::{ClockRules, Fallback};

/// An estimate that is too old, or from the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the estimate was made {} {} this instant; make one now on this node (colony clock sync --feed)",
    text::Ns(.0.unsigned_abs()),
    if *.0 < 0 { "after" } else { "before" }
)]
pub struct StaleFeed(i64);

/// Judges the clock periodically, and derives the windows to enforce from it.
#[derive(Debug)]
pub(crate) struct ClockJudge {
    rules: ClockRules,
    held: Option<Held>,
    /// The reference whose clock was lost while the node slept: it went on by an unknown time.
    lost: Option<String>,
    /// The instant at which the node woke from sleep, by its monotonic clock: earlier estimates are discarded.
    woke_ns: i64,
    /// The last answer of the program that disciplines the clock, or the reasons for which no program answered.
    reading: Result<Reading, Vec<String>>,
    anchor: Anchor,
    steps: u64,
    last_step_ns: Option<i64>,
    now: Coordination,
    /// The wanted windows that `now` is for.
    wanted: Windows,
}

/// Interval at which the clock is judged.
pub(crate) const EVERY: Duration = Duration::from_secs(1);
/// The oldest estimate that is taken.
const OLDEST_NS: i64 = 3_600_000_000_000;

impl ClockJudge {
    pub(crate) fn new(rules: ClockRules, wanted: Windows, reading: Result<Reading, Vec<String>>) -> Self {
        let now = Now::read();
        let blank = Coordination {
            mode: Mode::OwnPhase,
            reason: None,
            kept: Some(wanted),
            guard_ns: 0,
            error_bound_ns: None,
            error_bound_source: None,
            max_error_ns: 0,
            cluster: None,
            steps: 0,
            last_step_ns: None,
            kernel: ClockQuality::default(),
        };
        let mut judge = Self {
            rules,
            held: None,
            lost: None,
            woke_ns: i64::MIN,
            reading,
            anchor: now.anchor,
            steps: 0,
            last_step_ns: None,
            now: blank,
            wanted,
        };
        judge.now = judge.judge(wanted, ClockQuality::now(), now);
        judge.log(None);
        judge
    }

    /// The state as of the last look.
    pub(crate) const fn state(&self) -> &Coordination {
        &self.now
    }

    /// Judges the clock for the `wanted` windows. Returns whether the windows to enforce have changed.
    pub(crate) fn update(&mut self, wanted: Windows) -> bool {
        self.update_with(wanted, ClockQuality::now(), Now::read())
    }

    /// Takes the answer of the program that disciplines the clock, for the next look.
    pub(crate) fn set_reading(&mut self, reading: Result<Reading, Vec<String>>) {
        self.reading = reading;
    }

    fn update_with(&mut self, wanted: Windows, kernel: io::Result<ClockQuality>, now: Now) -> bool {
        let step = now.anchor.step_since(&self.anchor);
        if now.anchor.sleep_since(&self.anchor).is_some() {
            self.woke_ns = now.monotonic_ns;
            self.lost = self.held.take().map(|h| h.feed.reference).or(self.lost.take());
        }
        self.anchor = now.anchor;
        if let Some(step_ns) = step {
            self.steps += 1;
            self.last_step_ns = Some(step_ns);
            tracing::warn!(
                "the clock was set by {}, or the node slept: the windows follow",
                text::rounded_ns(step_ns as f64)
            );
        }
        let before = self.now.clone();
        self.now = self.judge(wanted, kernel, now);
        self.wanted = wanted;
        let moved = match (before.kept, self.now.kept) {
            (Some(old), Some(new)) => step.is_some() || differ(&old, &new, now.tai_ns()),
            (old, new) => old != new,
        };
        if !moved {
            // kept as they are, not as they would be by now
            self.now.kept = before.kept;
        }
        self.log(Some(&before));
        moved
    }

    /// Takes an estimate of the cluster's clock, or forgets the one in force.
    pub(crate) fn feed(&mut self, feed: Option<Feed>) -> Result<(), StaleFeed> {
        let now = Now::read();
        let Some(feed) = feed else {
            (self.held, self.lost) = (None, None);
            return Ok(());
        };
        let age_ns = now.monotonic_ns.saturating_sub(feed.monotonic_ns);
        if !(0..OLDEST_NS).contains(&age_ns) || feed.monotonic_ns < self.woke_ns {
            return Err(StaleFeed(age_ns));
        }
        let frequency_ppm = quality::frequency_ppm().unwrap_or(0.0);
        (self.held, self.lost) = (Some(Held::new(feed, frequency_ppm, now)), None);
        Ok(())
    }

    fn judge(&mut self, wanted: Windows, kernel: io::Result<ClockQuality>, now: Now) -> Coordination {
        let max_error_ns = max_error_ns(&self.rules, &wanted);
        let tai_ns = now.tai_ns();
        let cluster = self.held.as_mut().map(|h| h.on_tai(now));
        let bound = match cluster {
            Some((estimate, extra_ns)) => {
                let later = estimate.bound_at(tai_ns).max(estimate.bound_at(tai_ns.saturating_add(AHEAD_NS)));
                Ok((later.saturating_add(extra_ns), "cluster"))
            }
            None => match &self.lost {
                Some(reference) => Err(format!(
                    "the node slept, and the clock of {reference} went on; compare anew (colony clock sync --feed), or \
                     write none into clock"
                )),
                None => own_bound(&self.rules, &self.reading, kernel.as_ref(), now.monotonic_ns),
            },
        };
        let (bound, source) = match bound {
            Ok((b, source)) => (Ok(b.saturating_add(SLACK_NS)), Some(source)),
            Err(why) => (Err(why), None),
        };
        let on_clock = cluster.map_or(wanted, |(e, _)| e.windows(&wanted, tai_ns));
        let verdict = bound.clone().and_then(|b| guards(&on_clock, b, max_error_ns, self.now.guard_ns));
        let (mode, reason, kept, guard_ns) = match verdict {
            Ok((windows, guard_ns)) => (Mode::Coordinated, None, Some(windows), guard_ns),
            Err(why) => match self.rules.fallback {
                Fallback::OwnPhase => (Mode::OwnPhase, Some(why), Some(on_clock), 0),
                Fallback::Off => (Mode::Off, Some(why), None, 0),
            },
        };
        Coordination {
            mode,
            reason,
            kept,
            guard_ns,
            error_bound_ns: bound.ok(),
            error_bound_source: source.map(str::to_owned),
            max_error_ns,
            cluster: cluster.zip(self.held.as_ref()).map(|((e, _), held)| Cluster {
                reference: held.feed.reference.clone(),
                offset_ns: e.offset_at(tai_ns),
                drift_ppm: e.drift_ppm,
                age_ns: now.monotonic_ns.saturating_sub(held.feed.monotonic_ns).max(0).unsigned_abs(),
            }),
            steps: self.steps,
            last_step_ns: self.last_step_ns,
            kernel: kernel.unwrap_or_default(),
        }
    }

    /// Logs a change of mode, once.
    fn log(&self, before: Option<&Coordination>) {
        let now = &self.now;
        if before.is_some_and(|b| b.mode == now.mode && b.cluster.is_some() == now.cluster.is_some()) {
            return;
        }
        let by = now.cluster.as_ref().map_or_else(
            || format!("TAI as {} keeps it", now.kernel.source.as_deref().unwrap_or("the kernel")),
            |c| format!("the clock of {}", c.reference),
        );
        match (now.mode, &now.reason) {
            (Mode::Coordinated, _) => {
                tracing::info!("coordinated: windows by {by}, guards of {}", rough(now.guard_ns))
            }
            (mode, reason) => tracing::warn!(
                "uncoordinated: {}; {}",
                reason.as_deref().unwrap_or("for no reason that is known"),
                if mode == Mode::Off {
                    "no windows are kept"
                } else {
                    "windows go on by this node's own clock"
                }
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use colony_time::Estimate;

    use super::super::guards::MOVE_NS;
    use super::*;
    use colony_time::DutyCycle;
    use colony_time::clock::Clock;

    const MONO: i64 = 1_000_000_000_000;
    const TAI: i64 = 1_790_000_000_000_000_000;

    fn wanted() -> Windows {
        Windows::new(100_000_000, DutyCycle::Ppm(950_000), 0).expect("possible")
    }

    fn at(seconds: f64, set_by_ns: i64) -> Now {
        let monotonic_ns = MONO + (seconds * 1e9) as i64;
        let tai_less_monotonic_ns = TAI - MONO + set_by_ns;
        let anchor = Anchor { tai_less_monotonic_ns, steered_ns: 0, slept_ns: 0, error_ns: 20 };
        Now { monotonic_ns, anchor }
    }

    fn nobody() -> io::Result<ClockQuality> {
        Ok(ClockQuality::default())
    }

    fn good(error_ns: u64) -> ClockQuality {
        ClockQuality { synchronised: true, error_bound_ns: Some(error_ns), ..ClockQuality::default() }
    }

    fn judge(rules: ClockRules) -> ClockJudge {
        let mut k = ClockJudge::new(rules, wanted(), Err(vec!["chronyd was not asked".into()]));
        k.anchor = at(0.0, 0).anchor;
        k
    }

    fn held(drift_ppm: f64, offset_ns: i64) -> Held {
        let estimate = Estimate { at_ns: TAI, offset_ns, drift_ppm, bound_ns: 20_000, growth_ppm: 2.0 };
        let feed = Feed { estimate, monotonic_ns: MONO, frequency_ppm: None, reference: "node0".into() };
        Held::new(feed, 0.0, at(0.0, 0))
    }

    #[test]
    fn a_good_clock_gets_guards_and_a_worse_one_wider_ones() {
        let mut k = judge(ClockRules::default());
        k.update_with(wanted(), Ok(good(20_000)), at(1.0, 0));
        let narrow = k.state().clone();
        assert_eq!((narrow.mode, narrow.reason), (Mode::Coordinated, None));
        assert!(narrow.guard_ns >= 21_000, "{}", narrow.guard_ns);
        let kept = narrow.kept.expect("kept");
        assert_eq!(kept.favored_ns(), 95_000_000 + 2 * narrow.guard_ns);
        assert!(!k.update_with(wanted(), Ok(good(21_000)), at(2.0, 0)), "a guard wide enough stays");
        assert!(k.update_with(wanted(), Ok(good(400_000)), at(3.0, 0)));
        assert!(k.state().guard_ns > narrow.guard_ns);
        assert_eq!(k.state().max_error_ns, 500_000);
    }

    #[test]
    fn a_clock_that_is_not_good_enough_falls_back_and_says_why() {
        for (kernel, part) in [
            (good(600_000), "off by 601us, and 500us is allowed"),
            (ClockQuality::default(), "nobody disciplines"),
            (
                ClockQuality { source: Some("chronyd".into()), ..ClockQuality::default() },
                "clock; chronyd was not asked",
            ),
            (
                ClockQuality { error_bound_ns: None, source: Some("phc2sys".into()), ..good(0) },
                "phc2sys tells the kernel no error bound",
            ),
        ] {
            for (fallback, mode, kept) in
                [(Fallback::OwnPhase, Mode::OwnPhase, Some(wanted())), (Fallback::Off, Mode::Off, None)]
            {
                let mut k = judge(ClockRules { fallback, ..ClockRules::default() });
                k.update_with(wanted(), Ok(kernel.clone()), at(1.0, 0));
                let s = k.state();
                assert_eq!((s.mode, s.kept, s.guard_ns), (mode, kept, 0));
                assert!(s.reason.as_ref().is_some_and(|r| r.contains(part)), "{part}: {s:?}");
            }
        }
    }

    #[test]
    fn the_configuration_may_allow_more_and_vouch_for_a_clock_without_a_bound() {
        let rules = ClockRules {
            max_error_ns: Some(1_000_000),
            error_bound_ns: Some(2_000),
            fallback: Fallback::Off,
        };
        let mut k = judge(rules);
        k.update_with(wanted(), Ok(ClockQuality { error_bound_ns: None, ..good(0) }), at(1.0, 0));
        assert_eq!((k.state().mode, k.state().error_bound_ns), (Mode::Coordinated, Some(3_000)));
        let mut k = judge(ClockRules { max_error_ns: Some(u64::MAX), ..ClockRules::default() });
        assert_eq!(max_error_ns(&k.rules, &wanted()), 1_250_000, "guards never eat more than half");
        k.update_with(wanted(), Ok(good(1_200_000)), at(1.0, 0));
        assert!(k.state().kept.is_some_and(|w| w.regular_ns() >= 2_400_000), "{:?}", k.state());
    }

    #[test]
    fn windows_follow_the_clusters_clock_as_drift_adds_up() {
        let mut k = judge(ClockRules::default());
        k.held = Some(held(500.0, -7_654_321_000));
        for second in 1..30 {
            let now = at(f64::from(second), 0);
            k.update_with(wanted(), nobody(), now);
            let s = k.state();
            assert_eq!(s.mode, Mode::Coordinated, "{second}: {:?}", s.reason);
            // at any instant until the next look the kept window is open where the cluster's clock says so
            let guard = i64::try_from(s.guard_ns).expect("small");
            let (kept, e) = (s.kept.expect("kept"), held(500.0, -7_654_321_000).feed.estimate);
            for i in 0..1000 {
                let t = now.tai_ns() + i * 1_000_003;
                let cluster = e.reference_at(t);
                let inside = wanted().is_favored(cluster - guard + 2_000)
                    && wanted().is_favored(cluster + guard - 2_000);
                if inside {
                    assert!(kept.is_favored(t), "{second} s, {i} ms");
                }
                if kept.is_favored(t) {
                    let near = [-guard - 2_000, 0, guard + 2_000].map(|d| wanted().is_favored(cluster + d));
                    assert!(near.contains(&true), "{second} s, {i} ms");
                }
            }
        }
        assert!(
            k.state().cluster.as_ref().is_some_and(|c| c.reference == "node0" && c.age_ns == 29_000_000_000)
        );
        k.feed(None).expect("forgetting works always");
        k.update_with(wanted(), nobody(), at(31.0, 0));
        assert_eq!((k.state().mode, k.state().cluster.clone()), (Mode::OwnPhase, None));
    }

    fn reading(seconds: f64, bound_ns: Option<u64>) -> Reading {
        Reading { source: "chronyd", monotonic_ns: at(seconds, 0).monotonic_ns, bound_ns, growth_ppm: 10.0 }
    }

    #[test]
    fn the_bound_of_chronyd_replaces_that_of_the_kernel() {
        let mut k = judge(ClockRules::default());
        // 16 s after the last update, or without rtcsync
        for kernel in [Ok(good(8_000_000)), nobody()] {
            k.set_reading(Ok(reading(1.0, Some(100_000))));
            k.update_with(wanted(), kernel, at(1.0, 0));
            let s = k.state();
            assert_eq!(s.mode, Mode::Coordinated, "{:?}", s.reason);
            assert_eq!(s.error_bound_source.as_deref(), Some("chronyd"));
            // 10 ppm until the next look
            assert_eq!(s.error_bound_ns, Some(100_000 + 20_000 + SLACK_NS));
        }
    }

    #[test]
    fn a_source_that_falls_silent_is_believed_for_a_minute_and_less_and_less() {
        let mut k = judge(ClockRules::default());
        k.set_reading(Ok(reading(1.0, Some(100_000))));
        let mut bound = |seconds, kernel| {
            k.update_with(wanted(), kernel, at(seconds, 0));
            (k.state().error_bound_ns, k.state().error_bound_source.clone())
        };
        let (first, _) = bound(2.0, nobody());
        let (later, _) = bound(20.0, nobody());
        assert_eq!(later.zip(first).map(|(l, f)| l - f), Some(18 * 10_000));
        assert_eq!(bound(70.0, nobody()), (None, None));
        assert_eq!(bound(70.0, Ok(good(300_000))).1.as_deref(), Some("kernel"));
    }

    #[test]
    fn a_source_that_is_not_synchronised_leaves_it_to_the_kernel_and_a_configured_bound_is_first() {
        let mut k = judge(ClockRules::default());
        k.set_reading(Ok(reading(1.0, None)));
        k.update_with(wanted(), nobody(), at(1.0, 0));
        assert_eq!(k.state().mode, Mode::OwnPhase);
        let mut k = judge(ClockRules { error_bound_ns: Some(50_000), ..ClockRules::default() });
        k.set_reading(Ok(reading(1.0, Some(900_000))));
        k.update_with(wanted(), nobody(), at(1.0, 0));
        let s = k.state();
        assert_eq!((s.mode, s.error_bound_source.as_deref()), (Mode::Coordinated, Some("configuration")));
    }

    #[test]
    fn an_estimate_that_is_not_renewed_wears_out() {
        let mut k = judge(ClockRules::default());
        k.held = Some(held(1.0, 5));
        k.update_with(wanted(), nobody(), at(10.0, 0));
        assert_eq!(k.state().mode, Mode::Coordinated);
        // 2 ppm of 240 s are 480 us
        k.update_with(wanted(), nobody(), at(300.0, 0));
        assert_eq!(k.state().mode, Mode::OwnPhase);
    }

    #[test]
    fn a_step_of_the_clock_moves_the_windows_by_as_much_and_is_counted() {
        let mut k = judge(ClockRules::default());
        k.held = Some(held(0.0, 123_456));
        k.update_with(wanted(), nobody(), at(1.0, 0));
        let before = k.state().kept.expect("kept");
        let step = 37_000_000_123;
        assert!(k.update_with(wanted(), nobody(), at(2.0, step)));
        let s = k.state();
        assert_eq!((s.steps, s.last_step_ns), (1, Some(step)));
        let after = s.kept.expect("kept");
        let (t, u) = (at(2.0, 0).tai_ns(), at(2.0, step).tai_ns());
        let apart = before.phase(t).abs_diff(after.phase(u));
        assert!(apart <= MOVE_NS, "the same instant is in the same place of its window: {apart}");
        assert!(!k.update_with(wanted(), nobody(), at(3.0, step)), "nothing more to do");
    }

    #[test]
    fn a_rate_that_somebody_changes_widens_the_bound() {
        // whether the kernel tells of it or not: adjtime and its own loop steer as well
        let steered = |seconds: f64, steered_ns| {
            let now = at(seconds, 0);
            Now { anchor: Anchor { steered_ns, ..now.anchor }, ..now }
        };
        let bound = |k: &ClockJudge| k.state().error_bound_ns.expect("known");
        let mut k = judge(ClockRules::default());
        k.held = Some(held(0.0, 0));
        k.update_with(wanted(), nobody(), at(1.0, 0));
        let before = bound(&k);
        k.update_with(wanted(), nobody(), steered(2.0, 50_000));
        assert!(
            bound(&k) >= before + 50_000 + 2 * 50_000,
            "until now, and until the next look: {:?}",
            k.state()
        );
        k.update_with(wanted(), nobody(), steered(3.0, 50_000));
        let after = bound(&k);
        assert!((before + 50_000..before + 100_000).contains(&after), "it went, its trace stays: {after}");
    }

    #[test]
    fn an_estimate_does_not_outlive_sleep() {
        let mut k = judge(ClockRules::default());
        k.held = Some(held(0.0, 123_456));
        k.update_with(wanted(), Ok(good(20_000)), at(1.0, 0));
        assert!(k.state().cluster.is_some());
        let hour = 3_600_000_000_000;
        let slept = |seconds: f64| {
            let now = at(seconds, hour);
            Now { anchor: Anchor { slept_ns: hour, ..now.anchor }, ..now }
        };
        assert!(k.update_with(wanted(), Ok(good(20_000)), slept(2.0)));
        for seconds in [2.5, 3.0] {
            k.update_with(wanted(), Ok(good(20_000)), slept(seconds));
            let s = k.state();
            assert_eq!((s.mode, s.cluster.clone()), (Mode::OwnPhase, None), "others count on another clock");
            assert!(s.reason.as_ref().is_some_and(|r| r.contains("slept") && r.contains("node0")), "{s:?}");
        }
        assert_eq!(k.woke_ns, slept(2.0).monotonic_ns);
        k.feed(None).expect("forgetting works always");
        k.update_with(wanted(), Ok(good(20_000)), slept(4.0));
        assert_eq!(k.state().mode, Mode::Coordinated, "by its own clock");
        let now = Clock::Monotonic.now_ns();
        k.woke_ns = now;
        let feed = Feed { monotonic_ns: now - 1, ..held(0.0, 0).feed };
        k.feed(Some(feed)).expect_err("made before it slept");
    }

    #[test]
    fn a_kernel_that_may_not_be_asked_is_the_reason() {
        let mut k = judge(ClockRules::default());
        k.update_with(wanted(), Err(io::Error::from_raw_os_error(libc::EPERM)), at(1.0, 0));
        let reason = k.state().reason.clone().expect("a reason");
        assert!(reason.contains("adjtimex") && reason.contains("not permitted"), "{reason}");
    }

    #[test]
    fn an_estimate_from_another_boot_is_refused() {
        let mut k = judge(ClockRules::default());
        let now = Clock::Monotonic.now_ns();
        for monotonic_ns in [now + 1_000_000_000_000, now - 2 * OLDEST_NS, i64::MIN] {
            let feed = Feed { monotonic_ns, ..held(0.0, 0).feed };
            let error = k.feed(Some(feed)).expect_err("another time").to_string();
            assert!(error.contains("colony clock sync"), "{error}");
        }
    }
}
