// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as people read them: three significant digits and a unit.

use colony_project::changes::Added;
pub use colony_stats::text::count;
use colony_stats::text::grouped;

/// Stands in a cell for a figure that is not known.
pub const NOT_KNOWN: &str = "–";

/// Stands in a cell for a figure that was not observed.
pub const NOT_SEEN: &str = "not seen";

/// `text`, unless nothing was `counted`.
#[must_use]
pub fn seen(counted: u64, text: String) -> String {
    if counted == 0 { NOT_SEEN.into() } else { text }
}

/// `value` with three significant digits, thousands set apart.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        0.0 => 0,
        v => (2 - v.log10().floor() as i32).clamp(0, 9) as usize,
    };
    let text = format!("{value:.digits$}");
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |t| ("−", t));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let grouped = grouped(whole);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

/// A count of things: `1 node`, `16,384 nodes`.
#[must_use]
pub fn counted(n: u64, thing: &str) -> String {
    format!("{} {}", count(n), colony_sim::words::plural(n, thing))
}

/// Nanoseconds with a unit that fits.
#[must_use]
pub fn time(ns: f64) -> String {
    let (unit, name) = match ns.abs() {
        v if v < 999.5 => (1.0, "ns"),
        v if v < 999.5e3 => (1e3, "µs"),
        v if v < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {name}", number(ns / unit))
}

/// Seconds with a unit that fits, up to years of 365 days.
#[must_use]
pub fn span(seconds: f64) -> String {
    let (unit, name) = match seconds.abs() {
        v if v < 0.9995 => return time(seconds * 1e9),
        v if v < 119.5 => (1.0, "s"),
        v if v < 119.5 * 60.0 => (60.0, "min"),
        v if v < 72.0 * 3600.0 => (3600.0, "h"),
        v if v < 364.0 * 86_400.0 => (86_400.0, "d"),
        _ => (365.0 * 86_400.0, "y"),
    };
    format!("{} {name}", number(seconds / unit))
}

/// A share of one as per cent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// The interval is shown instead of the figure if half of it is more than this share of the figure.
const ROUGH: f64 = 0.25;

/// An upper end that is more than this many times the lower one says nothing: it is left out.
const BOUNDLESS: f64 = 30.0;

/// Time that noise adds, as far as it is known: `212 % ± 8 %`, `40–310 %`, `≤ 3 %`, without an upper end `≥ 40 %`, or `–` if neither
/// end is known; `percent` writes a share.
#[must_use]
pub fn added(a: &Added, percent: impl Fn(f64) -> String) -> String {
    match (a.low, a.high) {
        (Some(low), Some(high)) if low <= 0.0 => format!("≤ {}", percent(high.max(0.0))),
        (Some(low), Some(high)) if high > BOUNDLESS * low => format!("≥ {}", percent(low)),
        (Some(low), Some(high)) if a.ci95.is_none_or(|half| half > ROUGH * a.share) => {
            format!("{}–{}", percent(low).trim_end_matches(" %"), percent(high))
        }
        (Some(low), None) if low <= 0.0 => NOT_KNOWN.into(),
        (Some(low), None) => format!("≥ {}", percent(low)),
        // older files have no ends
        _ => a.ci95.map_or_else(
            || format!("~{}", percent(a.share)),
            |half| format!("{} ± {}", percent(a.share), percent(half)),
        ),
    }
}

/// Bytes a second with a unit that fits.
#[must_use]
pub fn bytes_per_s(rate: f64) -> String {
    let (unit, name) = match rate.abs() {
        v if !v.is_finite() => return number(v),
        v if v < 999.5e6 => (1e6, "MB/s"),
        v if v < 999.5e9 => (1e9, "GB/s"),
        _ => (1e12, "TB/s"),
    };
    format!("{} {name}", number(rate / unit))
}

/// "12×", "1.2×".
#[must_use]
pub fn times(ratio: f64) -> String {
    format!("{}×", number(ratio))
}

/// `quiet`, or the level.
#[must_use]
pub fn noise_name(percent: f64) -> String {
    if percent > 0.0 { format!("{} % noise", number(percent)) } else { "quiet".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_time_is_shown_as_far_as_it_is_known() {
        let of = |share: f64, low: Option<f64>, high: Option<f64>| {
            let ci95 = low.zip(high).map(|(low, high)| (share - low).max(high - share));
            added(&Added { share, ci95, low, high }, percent)
        };
        assert_eq!(of(2.0, Some(1.75), Some(2.25)), "200 % ± 25 %");
        assert_eq!(of(2.0, Some(0.5), Some(4.0)), "50–400 %");
        assert_eq!(of(0.01, Some(0.0), Some(0.03)), "≤ 3 %");
        assert_eq!(of(2.0, Some(1.5), None), "≥ 150 %");
        assert_eq!(of(2.0, None, None), "~200 %");
        assert_eq!(of(9.0, Some(4.0), Some(1000.0)), "≥ 400 %");
        assert_eq!(of(2.0, Some(0.0), None), "–");
        assert_eq!(of(2.0, Some(0.0), Some(163.24)), "≤ 16,324 %");
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (ns, text) in [
            (0.0, "0 ns"),
            (0.28, "0.28 ns"),
            (12.34, "12.3 ns"),
            (999.7, "1 µs"),
            (8_300.0, "8.3 µs"),
            (9_999_000.0, "10 ms"),
            (3_175.7e9, "3176 s"),
            (31_757e9, "31,757 s"),
            (f64::NAN, "– s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!((bytes_per_s(110e6), bytes_per_s(2.5e9)), ("110 MB/s".into(), "2.5 GB/s".into()));
        let spans = [0.25, 90.0, 600.0, 9600.0, 40e6, 10.0 * 365.0 * 86_400.0].map(span);
        assert_eq!(spans, ["250 ms", "90 s", "10 min", "2.67 h", "1.27 y", "10 y"]);
        assert_eq!(
            (percent(0.0214), times(1835.7), count(16_384)),
            ("2.14 %".into(), "1836×".into(), "16,384".into())
        );
        assert_eq!(
            (number(-3.25), number(0.000_123_4), count(1024)),
            ("−3.25".into(), "0.000123".into(), "1024".into())
        );
    }
}
