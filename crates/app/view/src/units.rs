// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as people read them.

pub use colony_stats::text::count;
pub use colony_time::text::{rounded_ns as time, three_digits as three};

/// Two times with their unit: `18–140 µs`, the upper one with two digits.
#[must_use]
pub fn interval(low_ns: f64, high_ns: f64) -> String {
    let (unit, name) = match high_ns.abs().max(low_ns.abs()) {
        x if x < 1e3 => (1.0, "ns"),
        x if x < 1e6 => (1e3, "µs"),
        x if x < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {name}", ends(low_ns / unit, high_ns / unit))
}

/// Two shares as percentages: `0.5–1.1 %`.
#[must_use]
pub fn percent_interval([low, high]: [f64; 2]) -> String {
    format!("{} %", ends(100.0 * low, 100.0 * high))
}

/// Two numbers with the decimals that give the upper one two digits, the lower one to a seventh, and that tell them apart.
fn ends(low: f64, high: f64) -> String {
    let two_digits = match high.abs() {
        x if x >= 10.0 => 0,
        x if x >= 1.0 => 1,
        x if x >= 0.1 => 2,
        _ => 3,
    };
    let text = |decimals: usize| (format!("{low:.decimals$}"), format!("{high:.decimals$}"));
    let is_exact = |decimals: &usize| {
        let off = (low - (low * 10f64.powi(*decimals as i32)).round() / 10f64.powi(*decimals as i32)).abs();
        let (low_text, high_text) = text(*decimals);
        off <= low.abs() / 7.0 && (low_text != high_text || low == high)
    };
    let decimals = (two_digits..two_digits + 2).find(is_exact).unwrap_or(two_digits + 2);
    let (low, high) = text(decimals);
    format!("{low}–{high}")
}

/// A share 0..=1 as a percentage: `0.021 %`, `21.0 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    let p = share * 100.0;
    match p.abs() {
        0.0 => "0 %".into(),
        x if x < 0.001 => "<0.001 %".into(),
        x if x < 1.0 => format!("{p:.3} %"),
        x if x < 99.95 => format!("{} %", three(p)),
        _ => format!("{p:.0} %"),
    }
}

/// Bytes with three digits and a binary unit: `64 KiB`, `1.50 GiB`.
#[must_use]
pub fn bytes(n: u64) -> String {
    let (value, unit) = match n {
        n if n < 1 << 10 => return format!("{n} B"),
        n if n < 1 << 20 => (n as f64 / 1024.0, "KiB"),
        n if n < 1 << 30 => (n as f64 / f64::from(1 << 20), "MiB"),
        _ => (n as f64 / f64::from(1 << 30), "GiB"),
    };
    // a whole number needs no decimals
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{} {unit}", three(value)) }
}

/// A count of things: `1 rank`, `12,345 ranks`.
#[must_use]
pub fn counted(n: u64, thing: &str) -> String {
    format!("{} {}", count(n), colony_sim::words::plural(n, thing))
}

/// A number in four places at most, for a narrow column.
#[must_use]
pub fn scaled(n: f64) -> String {
    const UNITS: [(f64, &str); 6] =
        [(1e18, " E"), (1e15, " P"), (1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")];
    match UNITS.iter().find(|(unit, _)| n >= *unit) {
        // counts below 10,000 are exact
        Some((unit, name)) if n >= 1e4 => {
            let scaled = n / unit;
            let places = if scaled < 10.0 { 2 } else { usize::from(scaled < 100.0) };
            format!("{scaled:.places$}{name}")
        }
        _ => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        let seen: Vec<_> = [9.8, 999.0, 1_400.0, 20_000_000.0, 3.5e9].map(time).into();
        assert_eq!(seen, ["10 ns", "999 ns", "1.40 µs", "20.0 ms", "3.50 s"]);
        let seen = [512, 4096, 1 << 21, 3 << 19, 1_610_612_736].map(bytes);
        assert_eq!(seen, ["512 B", "4 KiB", "2 MiB", "1.50 MiB", "1.50 GiB"]);
        assert_eq!(percent(0.00021), "0.021 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(count(12), "12");
        let seen =
            [(18_200.0, 140_000.0), (410.0, 9_000.0), (0.04e6, 3.14e6), (1.041e6, 1.049e6), (9e3, 69e3)];
        let seen = seen.map(|(low, high)| interval(low, high));
        assert_eq!(seen, ["18–140 µs", "0.4–9.0 µs", "0.04–3.14 ms", "1.04–1.05 ms", "9–69 µs"]);
        assert_eq!(percent_interval([0.005, 0.0112]), "0.5–1.1 %");
    }

    #[test]
    fn numbers_have_four_places_at_most() {
        let found = [0.0, 9999.0, 10_000.0, 86_300_000.0, 1.5e9, 2e13, u64::MAX as f64].map(scaled);
        assert_eq!(found, ["0", "9999", "10.0 k", "86.3 M", "1.50 G", "20.0 T", "18.4 E"]);
    }
}
