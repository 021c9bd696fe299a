// SPDX-License-Identifier: MIT OR Apache-2.0
//! Quantities of a machine on the command line: long times, bytes, shares.

/// A positive or negative number and what follows it; the library that takes the number knows its range.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

fn read(text: &str, units: &[(&str, f64)], example: &str) -> Result<f64, String> {
    let wrong = || {
        let names: Vec<&str> = units.iter().map(|u| u.0).filter(|u| !u.is_empty()).collect();
        format!("write a number with a unit ({}), such as {example}", names.join(", "))
    };
    let (number, unit) = split(text).ok_or_else(wrong)?;
    let factor = units.iter().find(|u| u.0 == unit).ok_or_else(wrong)?.1;
    Ok(number * factor)
}

/// Seconds of a time from nanoseconds to years.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("min", 60.0),
        ("h", 3600.0),
        ("d", 86_400.0),
        ("y", 365.0 * 86_400.0),
    ];
    read(text, &UNITS, "5y, 30d or 2h")
}

/// Bytes, or bytes a second.
pub(super) fn bytes(text: &str) -> Result<f64, String> {
    const UNITS: [(&str, f64); 10] = [
        ("", 1.0),
        ("B", 1.0),
        ("kB", 1e3),
        ("MB", 1e6),
        ("GB", 1e9),
        ("TB", 1e12),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
    ];
    read(text.strip_suffix("/s").unwrap_or(text), &UNITS, "512MiB or 5TB")
}

/// A share, as 0.05 or 5%.
pub(super) fn share(text: &str) -> Result<f64, String> {
    // a hundredth is no binary number: 70 % is 0.7
    let hundredths = |number: f64| if text.trim().ends_with('%') { number / 100.0 } else { number };
    read(text, &[("", 1.0), ("%", 1.0)], "0.05 or 5%").map(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_units() {
        assert_eq!(seconds("5y"), Ok(157_680_000.0));
        assert_eq!(seconds("1.5 h"), Ok(5400.0));
        assert_eq!(seconds("-5y"), Ok(-157_680_000.0));
        assert_eq!(bytes("512MiB"), Ok(536_870_912.0));
        assert_eq!(bytes("5TB/s"), Ok(5e12));
        assert_eq!((share("5%"), share("70 %"), share("0.7")), (Ok(0.05), Ok(0.7), Ok(0.7)));
        for wrong in ["", "5", "y", "5 years", "1e5s", "--json"] {
            assert!(seconds(wrong).is_err_and(|e| e.contains("5y, 30d")), "{wrong}");
        }
        assert!(bytes("much").is_err_and(|e| e.contains("512MiB")));
    }
}
