// SPDX-License-Identifier: MIT OR Apache-2.0
//! An estimate of another clock: its reading at each reading of this node's clock, with an upper bound of the error.

use std::fmt;
use std::str::FromStr;

use crate::{DutyCycle, Windows};

/// The largest drift that is believed, either way: clocks in computers are ten times better.
pub const MAX_DRIFT_PPM: f64 = 1000.0;

/// The reference clock as this node's own clock tells it.
///
/// When this clock reads `t`, the reference reads `t + offset_ns + drift_ppm · 10⁻⁶ · (t − at_ns)`, and that is
/// wrong by at most `bound_ns + growth_ppm · 10⁻⁶ · |t − at_ns|`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Estimate {
    /// The instant it was made for, on this node's clock (TAI nanoseconds).
    pub at_ns: i64,
    /// Reference less this clock at that instant, nanoseconds.
    pub offset_ns: i64,
    /// The drift of the reference against this clock, parts per million.
    pub drift_ppm: f64,
    /// The largest error at that instant, nanoseconds.
    pub bound_ns: u64,
    /// The growth of that error before and after, parts per million.
    pub growth_ppm: f64,
}

/// `ppm` of `span_ns`, nanoseconds.
fn share(ppm: f64, span_ns: i64) -> f64 {
    ppm * 1e-6 * span_ns as f64
}

impl Estimate {
    /// A clock that is the reference.
    pub const EXACT: Self = Self { at_ns: 0, offset_ns: 0, drift_ppm: 0.0, bound_ns: 0, growth_ppm: 0.0 };

    /// Reference less this clock when this clock reads `t_ns`.
    #[must_use]
    pub fn offset_at(&self, t_ns: i64) -> i64 {
        let drifted = share(self.drift_ppm, t_ns.saturating_sub(self.at_ns)).round() as i64;
        self.offset_ns.saturating_add(drifted)
    }

    /// The reading of the reference at the reading `t_ns` of this clock.
    #[must_use]
    pub fn reference_at(&self, t_ns: i64) -> i64 {
        t_ns.saturating_add(self.offset_at(t_ns))
    }

    /// The largest error of that.
    #[must_use]
    pub fn bound_at(&self, t_ns: i64) -> u64 {
        let grown = share(self.growth_ppm, t_ns.saturating_sub(self.at_ns)).abs().ceil();
        self.bound_ns.saturating_add(grown as u64)
    }

    /// The clock above this one's reference: `upper` tells, on that reference's clock, of a clock further up.
    /// Errors add.
    #[must_use]
    pub fn then(&self, upper: &Self) -> Self {
        let between_ns = self.at_ns.saturating_add(self.offset_ns);
        let (low, up) = (self.drift_ppm * 1e-6, upper.drift_ppm * 1e-6);
        // this estimate's error is one of the instant at which `upper` is asked, too
        let asked = share(upper.drift_ppm.abs() + upper.growth_ppm, self.bound_ns as i64).ceil() as u64;
        Self {
            at_ns: self.at_ns,
            offset_ns: self.offset_ns.saturating_add(upper.offset_at(between_ns)),
            drift_ppm: ((1.0 + low) * (1.0 + up) - 1.0) * 1e6,
            bound_ns: self
                .bound_ns
                .saturating_add(upper.bound_at(between_ns))
                .saturating_add(asked)
                // what was rounded
                .saturating_add(1),
            growth_ppm: self.growth_ppm * (1.0 + up.abs()) + upper.growth_ppm * (1.0 + low.abs()),
        }
    }

    /// `windows`, which are counted on the reference, as this node's clock has them around `t_ns`: their epoch
    /// near there, their lengths as this clock tells them. Right to half a nanosecond a period away from `t_ns`.
    #[must_use]
    pub fn windows(&self, windows: &Windows, t_ns: i64) -> Windows {
        let rate = 1.0 + self.drift_ppm * 1e-6;
        let here = |ns: u64| (ns as f64 / rate).round() as u64;
        let period_ns = here(windows.period_ns()).clamp(2, Windows::MAX_PERIOD_NS);
        let favored_ns = here(windows.favored_ns()).clamp(1, period_ns - 1);
        let epoch_ns = t_ns.saturating_sub_unsigned(here(windows.phase(self.reference_at(t_ns))));
        // cannot be refused: both windows have time, and the period is in its range
        Windows::new(period_ns, DutyCycle::Ns(favored_ns), epoch_ns).unwrap_or(*windows)
    }
}

/// An estimate handed to `colonyd`: one line of `key=value` words.
///
/// ```text
/// tai_ns=1790000000000000000 monotonic_ns=512000000000 offset_ns=-1234 drift_ppm=12.5 bound_ns=800 growth_ppm=0.3 frequency_ppm=-7.25 reference=node0
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Feed {
    /// The estimate; `at_ns` is the node's TAI.
    pub estimate: Estimate,
    /// `CLOCK_MONOTONIC` at that same instant: with it a later step of the clock does no harm.
    pub monotonic_ns: i64,
    /// The kernel's correction of the clock's rate when the estimate was made, parts per million: with it a change until it is
    /// handed over shows.
    #[cfg_attr(feature = "serde", serde(default))]
    pub frequency_ppm: Option<f64>,
    /// Whose clock the reference is.
    pub reference: String,
}

/// Text that is no estimate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}; write `none`, or one line: tai_ns=N monotonic_ns=N offset_ns=N drift_ppm=X bound_ns=N growth_ppm=X \
     frequency_ppm=X reference=NAME"
)]
pub struct FeedError {
    what: String,
}

impl Feed {
    const KEYS: [&str; 8] = [
        "tai_ns",
        "monotonic_ns",
        "offset_ns",
        "drift_ppm",
        "bound_ns",
        "growth_ppm",
        "frequency_ppm",
        "reference",
    ];
    /// The largest correction of a clock's rate that is believed, either way: the kernel's own limit.
    const MAX_FREQUENCY_PPM: f64 = 100_000.0;
    /// The longest name of a reference.
    const LONGEST_NAME: usize = 64;
}

impl fmt::Display for Feed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Estimate { at_ns, offset_ns, drift_ppm, bound_ns, growth_ppm } = self.estimate;
        write!(
            f,
            "tai_ns={at_ns} monotonic_ns={} offset_ns={offset_ns} drift_ppm={drift_ppm} bound_ns={bound_ns} \
             growth_ppm={growth_ppm}",
            self.monotonic_ns
        )?;
        if let Some(frequency_ppm) = self.frequency_ppm {
            write!(f, " frequency_ppm={frequency_ppm}")?;
        }
        write!(f, " reference={}", self.reference)
    }
}

impl FromStr for Feed {
    type Err = FeedError;

    fn from_str(text: &str) -> Result<Self, FeedError> {
        let wrong = |what: String| FeedError { what };
        let mut values: [Option<&str>; 8] = [None; 8];
        for word in text.split_whitespace() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| wrong(format!("`{word}` is no key=value")))?;
            let place = Self::KEYS.iter().position(|k| *k == key);
            let slot =
                place.and_then(|i| values.get_mut(i)).ok_or_else(|| wrong(format!("no key `{key}`")))?;
            if slot.replace(value).is_some() {
                return Err(wrong(format!("`{key}` stands there twice")));
            }
        }
        let [tai, monotonic, offset, drift, bound, growth, frequency, reference] = values;
        fn number<T: FromStr>(key: &str, value: Option<&str>) -> Result<T, FeedError> {
            let value = value.ok_or_else(|| FeedError { what: format!("`{key}` is missing") })?;
            value.parse().map_err(|_| FeedError { what: format!("{key}={value} is no number of its kind") })
        }
        let estimate = Estimate {
            at_ns: number("tai_ns", tai)?,
            offset_ns: number("offset_ns", offset)?,
            drift_ppm: number("drift_ppm", drift)?,
            bound_ns: number("bound_ns", bound)?,
            growth_ppm: number("growth_ppm", growth)?,
        };
        if !(-MAX_DRIFT_PPM..=MAX_DRIFT_PPM).contains(&estimate.drift_ppm) {
            return Err(wrong(format!(
                "drift_ppm={} is not within {MAX_DRIFT_PPM} of 0",
                estimate.drift_ppm
            )));
        }
        if !(0.0..=10.0 * MAX_DRIFT_PPM).contains(&estimate.growth_ppm) {
            let most = 10.0 * MAX_DRIFT_PPM;
            return Err(wrong(format!("growth_ppm={} is not from 0 to {most}", estimate.growth_ppm)));
        }
        // lines of earlier versions have none
        let frequency_ppm = frequency.map(|f| number("frequency_ppm", Some(f))).transpose()?;
        let most = Self::MAX_FREQUENCY_PPM;
        if let Some(f) = frequency_ppm.filter(|f| !(-most..=most).contains(f)) {
            return Err(wrong(format!("frequency_ppm={f} is not within {most} of 0")));
        }
        let reference = reference.unwrap_or("?").to_owned();
        if reference.chars().count() > Self::LONGEST_NAME || reference.chars().any(char::is_control) {
            return Err(wrong("the name of the reference is too long, or no text".into()));
        }
        let monotonic_ns = number("monotonic_ns", monotonic)?;
        Ok(Self { estimate, monotonic_ns, frequency_ppm, reference })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock: at true time `t` it reads `t + offset + drift · t`.
    #[derive(Clone, Copy, Debug)]
    struct True {
        offset: f64,
        drift: f64,
    }

    impl True {
        fn reads(self, t: f64) -> f64 {
            t + self.offset + self.drift * t
        }
        fn when(self, reading: f64) -> f64 {
            (reading - self.offset) / (1.0 + self.drift)
        }
        /// The true estimate of `upper` on this clock, blurred by an error within the bound.
        fn estimate(self, upper: Self, at: f64, off: f64, skew: f64) -> Estimate {
            let error = (off * 1000.0).round();
            let drift = (1.0 + upper.drift) / (1.0 + self.drift) - 1.0;
            Estimate {
                at_ns: at as i64,
                offset_ns: (upper.reads(self.when(at)) - at + error).round() as i64,
                drift_ppm: drift * 1e6 + skew,
                bound_ns: 1002,
                growth_ppm: 1.0,
            }
        }
    }

    fn a_clock() -> impl Strategy<Value = True> {
        // small enough for exact doubles
        (-1e12..1e12f64, -5e-4..5e-4f64).prop_map(|(offset, drift)| True { offset, drift })
    }

    proptest! {
        #[test]
        fn a_chain_of_estimates_holds_within_its_bound(
            clocks in prop::collection::vec((a_clock(), -1.0..1.0f64, -1.0..1.0f64, 0..10i64), 2..8),
            later in -20i64..20,
        ) {
            let mut known = Estimate::EXACT;
            for pair in clocks.windows(2) {
                let [(upper, ..), (node, off, skew, s)] = pair else { unreachable!() };
                let at = node.reads(*s as f64 * 1e9).round();
                known = node.estimate(*upper, at, *off, *skew).then(&known);
            }
            let (root, node) = (clocks[0].0, clocks[clocks.len() - 1].0);
            let t = known.at_ns + later * 1_000_000_000;
            let truth = root.reads(node.when(t as f64));
            let error = (known.reference_at(t) as f64 - truth).abs();
            prop_assert!(error <= known.bound_at(t) as f64 + 2.0, "{error} {}", known.bound_at(t));
        }

        #[test]
        fn windows_of_the_reference_are_found_on_this_clock(
            offset in -1i64 << 50..1i64 << 50, drift in -500.0..500.0f64, near in -1_000_000_000i64..1_000_000_000,
            period in 2_000_000u64..6_000_000_000, ppm in 10_000u32..990_000,
        ) {
            let w = Windows::new(period, DutyCycle::Ppm(ppm), 17).expect("possible");
            let t = 1_790_000_000_000_000_000i64;
            let e = Estimate { at_ns: t - 5_000_000_000, offset_ns: offset, drift_ppm: drift, ..Estimate::EXACT };
            let here = e.windows(&w, t);
            let phase = w.phase(e.reference_at(t + near)) as f64;
            // this clock tells the phase at its own rate
            let seen = here.phase(t + near) as f64 * (1.0 + drift * 1e-6);
            let apart = (phase - seen).abs();
            let apart = apart.min(period as f64 - apart);
            let periods = (near.unsigned_abs() / period) as f64 + 2.0;
            prop_assert!(apart <= periods, "{apart} after {periods} periods");
        }

        #[test]
        fn a_feed_reads_back(at in any::<i64>(), m in any::<i64>(), o in any::<i64>(), d in -1000.0..1000.0f64,
                             b in any::<u64>(), g in 0.0..10_000.0f64,
                             f in prop::option::of(-1e5..1e5f64), name in "[a-z0-9.:-]{1,20}") {
            let estimate = Estimate { at_ns: at, offset_ns: o, drift_ppm: d, bound_ns: b, growth_ppm: g };
            let feed = Feed { estimate, monotonic_ns: m, frequency_ppm: f, reference: name };
            prop_assert_eq!(feed.to_string().parse::<Feed>(), Ok(feed));
            // no instant and no bound overflows
            let _ = (estimate.bound_at(m), estimate.reference_at(m), estimate.then(&estimate));
        }

        #[test]
        fn no_text_panics(text in "((tai_ns|offset_ns|drift_ppm|x)(=[-0-9.einfNa]{0,25})? ?){0,9}") {
            let _ = text.parse::<Feed>();
        }
    }

    #[test]
    fn a_wrong_feed_says_what_is_wrong() {
        let good = "tai_ns=1 monotonic_ns=2 offset_ns=-3 drift_ppm=1.5 bound_ns=4 growth_ppm=0.1";
        assert_eq!(good.parse::<Feed>().expect("a feed").estimate.offset_ns, -3);
        for (text, part) in [
            ("", "`tai_ns` is missing"),
            ("12", "no key=value"),
            ("a=1", "no key `a`"),
            ("tai_ns=1 tai_ns=1", "twice"),
            ("tai_ns=x", "no number"),
            (&good.replace("1.5", "1001"), "not within"),
            (&good.replace("1.5", "NaN"), "not within"),
            (&good.replace("=0.1", "=-1"), "not from 0"),
            (&good.replace("=4", "=-4"), "no number"),
            (&(good.to_owned() + " frequency_ppm=NaN"), "not within"),
        ] {
            let error = text.parse::<Feed>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
