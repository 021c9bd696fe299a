// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers as people read them.

/// Digits with commas between groups of three, unless there are four or fewer: `1024`, `16,384`.
///
/// ```
/// assert_eq!(colony_stats::text::grouped("1024"), "1024");
/// assert_eq!(colony_stats::text::grouped("1048576"), "1,048,576");
/// ```
#[must_use]
pub fn grouped(digits: &str) -> String {
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count, as [`grouped`].
///
/// ```
/// assert_eq!(colony_stats::text::count(16_384), "16,384");
/// ```
#[must_use]
pub fn count(n: u64) -> String {
    grouped(&n.to_string())
}
