// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers of bytes, as people write and read them.

/// Units, the larger ones first. Decimal ones are those of the published table.
const UNITS: [(&str, u64); 6] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
];

/// A number of bytes with a unit.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "" | "B" => Some(1),
        unit => UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor),
    };
    let wrong = || "write a number of bytes such as 80000, 80kB, 20MB, 512KiB or 2MiB".to_owned();
    let (factor, number) = (factor.ok_or_else(wrong)?, number.parse::<u64>().map_err(|_| wrong())?);
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
}

/// Bytes with three digits or more, and the largest unit of which they are a whole number or have more than one.
pub(super) fn show(bytes: u64) -> String {
    if let Some((name, factor)) = UNITS.iter().find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor))
        && bytes / factor < 100_000
    {
        return format!("{} {name}", bytes / factor);
    }
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_decimal_and_binary_units() {
        for (text, value) in [
            ("80000", 80_000),
            ("7B", 7),
            ("80kB", 80_000),
            ("20MB", 20_000_000),
            ("1GB", 1_000_000_000),
            ("512KiB", 512 << 10),
            ("2MiB", 2 << 20),
            ("1GiB", 1 << 30),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
        for text in ["", "kB", "80 kB", "-1", "1.5MB", "80kb", "99999999999999999999", "99999999999GB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_shown_as_they_were_written() {
        for text in ["80 kB", "1200 kB", "5 MB", "20 MB", "512 KiB", "2 MiB", "3 GiB", "7 B"] {
            assert_eq!(show(parse(&text.replace(' ', "")).expect("bytes")), text);
        }
        assert_eq!(show(73_500_001), "73.5 MB");
        assert_eq!(show(12_345), "12.3 kB");
    }
}
