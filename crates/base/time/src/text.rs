// SPDX-License-Identifier: MIT OR Apache-2.0
//! Times and duty cycles as people write them: `100ms`, `1.5us`, `95%`, `0xf4000000`; parsed and printed.
//!
//! One grammar serves the command line, the configuration and `/run/colony`.

pub use crate::ns::Ns;
use crate::{DutyCycle, cycles};

/// Text that is no time or no duty cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// No number stands at the beginning.
    #[error("no number found; write a time as 100ms, 1.5us, 2s, or in Blue Gene/L cycles as 0x04000000")]
    Number,
    /// The unit is missing or unknown.
    #[error("unknown or missing unit; use ns, us, ms, s, min or h")]
    Unit,
    /// A duty cycle without `%` that is no time either.
    #[error("write a duty cycle as 95%, as the favored time (95ms), or in Blue Gene/L cycles (0xf4000000)")]
    Duty,
    /// The number is too large, or finer than the notation can say (1 ns, 0.0001 %).
    #[error("the number is too large, or finer than 1 ns (0.0001 % for a share)")]
    Range,
}

/// Nanoseconds with three digits and a unit, for people; [`Ns`] prints a time that is read back without a loss.
///
/// ```
/// use colony_time::text::rounded_ns;
///
/// assert_eq!(rounded_ns(239_999_435.0), "240 ms");
/// assert_eq!(rounded_ns(1_400.0), "1.40 µs");
/// assert_eq!(rounded_ns(58.0), "58 ns");
/// ```
#[must_use]
pub fn rounded_ns(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        x if x < 1e3 => return format!("{ns:.0} ns"),
        x if x < 1e6 => (ns / 1e3, "µs"),
        x if x < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// Three significant digits, without an exponent.
#[must_use]
pub fn three_digits(value: f64) -> String {
    match value.abs() {
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Nanoseconds of `100ms`, `1.5us`, `2s`, `1min`, or of a Blue Gene/L cycle count `0x…`.
///
/// # Errors
/// [`TextError`] says what is wrong with the text.
pub fn parse_ns(text: &str) -> Result<u64, TextError> {
    let text = text.trim();
    if let Some(c) = parse_cycles(text)? {
        return Ok(cycles::to_ns(c));
    }
    let end = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit_ns = match unit.trim_start() {
        _ if number.is_empty() => return Err(TextError::Number),
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => crate::NS_PER_S,
        "min" => 60 * crate::NS_PER_S,
        "h" => 3600 * crate::NS_PER_S,
        // a bare nought needs no unit
        "" if number.bytes().all(|b| b == b'0') => 1,
        _ => return Err(TextError::Unit),
    };
    scaled(number, unit_ns)
}

/// A duty cycle: `95%`, `80.5%`, a time (`95ms`), or Blue Gene/L cycles (`0xf4000000`).
///
/// # Errors
/// [`TextError`] says what is wrong with the text.
pub fn parse_duty(text: &str) -> Result<DutyCycle, TextError> {
    let text = text.trim();
    if let Some(c) = parse_cycles(text)? {
        return Ok(DutyCycle::Cycles(c));
    }
    if let Some(number) = text.strip_suffix('%') {
        let ppm = scaled(number.trim_end(), 10_000)?;
        return u32::try_from(ppm).map(DutyCycle::Ppm).map_err(|_| TextError::Range);
    }
    match parse_ns(text) {
        Ok(ns) => Ok(DutyCycle::Ns(ns)),
        Err(TextError::Unit) => Err(TextError::Duty),
        Err(e) => Err(e),
    }
}

fn parse_cycles(text: &str) -> Result<Option<u32>, TextError> {
    let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) else {
        return Ok(None);
    };
    if hex.is_empty() || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(TextError::Number);
    }
    u32::from_str_radix(hex, 16).map(Some).map_err(|_| TextError::Range)
}

/// `number` (decimal, with or without a fraction) × `unit`, exact or refused.
fn scaled(number: &str, unit: u64) -> Result<u64, TextError> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(TextError::Number);
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| TextError::Range)? };
    let mut ns = whole.checked_mul(unit).ok_or(TextError::Range)?;
    let mut place = unit;
    for digit in fraction.trim_end_matches('0').bytes() {
        // 60 s is no power of ten: a fraction of a minute is exact as long as its place is whole
        if !place.is_multiple_of(10) {
            return Err(TextError::Range);
        }
        place /= 10;
        ns = ns.checked_add(place * u64::from(digit - b'0')).ok_or(TextError::Range)?;
    }
    Ok(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_as_people_write_them() {
        for (text, ns) in [
            ("100ms", 100_000_000),
            (" 1.5 us ", 1_500),
            ("16µs", 16_000),
            ("2s", 2_000_000_000),
            ("1.5min", 90_000_000_000),
            ("0", 0),
            (".5ms", 500_000),
            ("0xffffffff", 6_135_667_564),
        ] {
            assert_eq!(parse_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn wrong_times_say_what_is_wrong() {
        for (text, error) in [
            ("", TextError::Number),
            ("ms", TextError::Number),
            ("-5ms", TextError::Number),
            ("5", TextError::Unit),
            ("5 fortnights", TextError::Unit),
            ("1.2.3ms", TextError::Number),
            ("0.5ns", TextError::Range),
            ("99999999999999999999s", TextError::Range),
            ("0x1ffffffff", TextError::Range),
            ("0xzz", TextError::Number),
        ] {
            assert_eq!(parse_ns(text), Err(error), "{text}");
        }
    }

    #[test]
    fn duty_cycles_as_people_write_them() {
        assert_eq!(parse_duty("95%"), Ok(DutyCycle::Ppm(950_000)));
        assert_eq!(parse_duty("80.5 %"), Ok(DutyCycle::Ppm(805_000)));
        assert_eq!(parse_duty("95ms"), Ok(DutyCycle::Ns(95_000_000)));
        assert_eq!(parse_duty("0xf4000000"), Ok(DutyCycle::Cycles(0xf400_0000)));
        assert_eq!(parse_duty("0.95"), Err(TextError::Duty));
        assert_eq!(parse_duty("99999999%"), Err(TextError::Range));
        assert_eq!(parse_duty("%"), Err(TextError::Number));
    }

    proptest! {
        #[test]
        fn a_printed_time_reads_back(ns: u64) {
            prop_assert_eq!(parse_ns(&Ns(ns).to_string()), Ok(ns));
        }

        #[test]
        fn a_printed_duty_reads_back(ppm in 0u32..=1_000_000, cycles: u32) {
            for duty in [DutyCycle::Ppm(ppm), DutyCycle::Cycles(cycles)] {
                prop_assert_eq!(parse_duty(&duty.to_string()), Ok(duty));
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = (parse_ns(&text), parse_duty(&text));
        }
    }
}
