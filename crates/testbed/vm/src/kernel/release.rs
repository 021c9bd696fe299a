// SPDX-License-Identifier: MIT OR Apache-2.0
//! Releases of kernels: which is newer, and which one is meant.

use std::cmp::Ordering;

/// Orders releases by their numbers, piece by piece.
pub(super) fn order(a: &str, b: &str) -> Ordering {
    pieces(a).cmp(pieces(b)).then_with(|| a.cmp(b))
}

/// Numbers and the words between them; a number is above a word, so that 6.1.1 is newer than 6.1-rc1.
fn pieces(release: &str) -> impl Iterator<Item = (u64, &str)> {
    let mut rest = release;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(if digits {
            (piece.parse::<u64>().map_or(u64::MAX, |n| n.saturating_add(1)), "")
        } else {
            (0, piece)
        })
    })
}

/// Returns `true` if `wanted`, such as `7.3`, names `release`: the whole of it, or its beginning up to a separator.
pub(super) fn matches(wanted: &str, release: &str) -> bool {
    release.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', '-']))
}

/// The newest of `releases` that `wanted` means.
pub(super) fn newest<'a>(wanted: &str, releases: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    releases.into_iter().filter(|r| matches(wanted, r)).max_by(|a, b| order(a, b))
}

/// The release of `offered` that is nearest to `wanted`: the newest of those that share most pieces with the beginning of it.
pub(super) fn nearest<'a>(wanted: &str, offered: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    let shared = |release: &str| pieces(wanted).zip(pieces(release)).take_while(|(a, b)| a == b).count();
    offered.into_iter().max_by(|a, b| shared(a).cmp(&shared(b)).then_with(|| order(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_count_as_numbers() {
        let mut all = ["7.2.12+deb13", "6.18.5", "7.2.9+deb13", "7.10.1", "6.18.15", "6.18"];
        all.sort_by(|a, b| order(a, b));
        assert_eq!(all, ["6.18", "6.18.5", "6.18.15", "7.2.9+deb13", "7.2.12+deb13", "7.10.1"]);
    }

    #[test]
    fn a_prefix_selects_the_newest_matching_release() {
        let all = ["7.2.12+deb13-cloud-amd64", "7.2.9+deb13-cloud-amd64", "7.3.4+deb13-cloud-amd64"];
        let all = all.map(str::to_owned);
        assert_eq!(newest("7.2", &all), Some(&all[0]));
        assert_eq!(newest("7.2.9", &all), Some(&all[1]));
        assert_eq!(newest(&all[2], &all), Some(&all[2]));
        assert_eq!(newest("7.2.1", &all), None);
    }

    #[test]
    fn the_nearest_release_is_of_the_same_series_if_there_is_one() {
        let of = |all: &[&str], wanted: &str| {
            let all: Vec<String> = all.iter().map(|&r| r.to_owned()).collect();
            nearest(wanted, &all).cloned().unwrap_or_default()
        };
        let all = [
            "6.12.117+deb13-cloud-amd64",
            "7.2.14+deb13-cloud-amd64",
            "7.2.9+deb13-cloud-amd64",
            "8.1.3-cloud-amd64",
        ];
        assert_eq!(of(&all, "7.2.12+deb13-cloud-amd64"), all[1]);
        assert_eq!(of(&all, "6.1.4+deb13-cloud-amd64"), all[0]);
        assert_eq!(of(&all, "9.0"), all[3]);
        assert_eq!(of(&[], "9.0"), "");
    }

    proptest! {
        #[test]
        fn every_release_has_one_place(a in "[0-9a-z.+-]{0,30}", b in "[0-9a-z.+-]{0,30}") {
            prop_assert_eq!(order(&a, &b), order(&b, &a).reverse());
            prop_assert_eq!(order(&a, &b) == Ordering::Equal, a == b);
        }
    }
}
