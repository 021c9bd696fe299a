// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of settings, which the kernel may print in another form than they are written in.

use colony_node::cpu::CpuSet;

/// Returns `true` if two texts are the same value of a setting: to the character, as the choice in brackets of a list
/// (`always [madvise] never`), as a mask of CPUs (`3` and `00000003`, but for leading zeros and groups), as numbers (`-1`, `0x10`
/// and `16`), or as a list of CPUs (`0-1` and `0,1`).
#[must_use]
pub fn same(a: &str, b: &str) -> bool {
    let (a, b) = (chosen(a), chosen(b));
    a == b
        || both(a, b, mask)
        || both(a, b, number)
        || both(a, b, |t| t.parse::<CpuSet>().ok().filter(|_| !t.is_empty()))
}

fn both<T: PartialEq>(a: &str, b: &str, read: impl Fn(&str) -> Option<T>) -> bool {
    read(a).is_some_and(|a| read(b) == Some(a))
}

/// The text that writes this value again: the choice in brackets if there is one, the trimmed text otherwise.
#[must_use]
pub(crate) fn chosen(text: &str) -> &str {
    let text = text.trim();
    let in_brackets = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match in_brackets {
        Some((choice, _)) if !choice.is_empty() && !choice.contains(char::is_whitespace) => choice,
        _ => text,
    }
}

/// Hexadecimal groups of 32 bits without leading zeros. Behind a comma a group has eight digits, which tells a mask from a list.
fn mask(text: &str) -> Option<Vec<u32>> {
    let group = |(place, digits): (usize, &str)| {
        let fits = if place == 0 { digits.len() <= 8 } else { digits.len() == 8 };
        u32::from_str_radix(digits, 16).ok().filter(|_| fits)
    };
    let mut groups = text.split(',').enumerate().map(group).collect::<Option<Vec<u32>>>()?;
    let zeros = groups.iter().take_while(|&&g| g == 0).count();
    groups.drain(..zeros.min(groups.len() - 1));
    Some(groups)
}

fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_forms_of_one_value_are_the_same() {
        for (a, b) in [
            ("1\n", "1"),
            ("always [madvise] never", "madvise"),
            ("00000003", "3"),
            ("00000000,ffffffff", "ffffffff"),
            ("0-1", "0,1"),
            ("0x10", "16"),
            ("-1", "-1"),
            ("", "\n"),
        ] {
            assert!(same(a, b), "{a:?} and {b:?}");
        }
    }

    #[test]
    fn other_values_are_not_the_same() {
        for (a, b) in [
            ("1", "0"),
            ("always [madvise] never", "always"),
            ("1,00000000", "1"),
            ("0-1", "0-2"),
            ("0,1", "1"),
            ("", "0"),
            ("10", "0x10"),
            ("950000", "-1"),
        ] {
            assert!(!same(a, b), "{a:?} and {b:?}");
        }
    }

    #[test]
    fn a_choice_in_brackets_is_what_can_be_written() {
        assert_eq!(chosen("always defer [defer+madvise] madvise never\n"), "defer+madvise");
        assert_eq!(chosen("[]"), "[]");
        assert_eq!(chosen(" 42\n"), "42");
    }
}
