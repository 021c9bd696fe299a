// SPDX-License-Identifier: MIT OR Apache-2.0
//! Grammar of messages: numbers of things, and articles; and each note once.

use std::collections::BTreeSet;

/// So many things, as `1 rank` and `3 ranks`.
///
/// ```
/// assert_eq!(colony_sim::words::number_of(1, "rank"), "1 rank");
/// assert_eq!(colony_sim::words::number_of(0, "event"), "0 events");
/// ```
#[must_use]
pub fn number_of(n: u64, thing: &str) -> String {
    format!("{n} {}", plural(n, thing))
}

/// The name of `n` things, as `rank` of one and `ranks` of several.
#[must_use]
pub fn plural(n: u64, thing: &str) -> String {
    if n == 1 { thing.to_owned() } else { format!("{thing}s") }
}

/// A word behind its article, as `an allreduce`. It goes by the first letter: for names of operations.
///
/// ```
/// assert_eq!(colony_sim::words::a("allreduce"), "an allreduce");
/// assert_eq!(colony_sim::words::a("barrier"), "a barrier");
/// ```
#[must_use]
pub fn a(word: &str) -> String {
    let vowel = word.starts_with(['a', 'e', 'i', 'o', 'u', 'A', 'E', 'I', 'O', 'U']);
    format!("{} {word}", if vowel { "an" } else { "a" })
}

/// The first of all notes that differ in their numbers only.
///
/// ```
/// let notes = ["runs for 12 ns", "runs for 4000 ns", "other"].map(str::to_owned);
/// assert_eq!(colony_sim::words::once(&notes), ["runs for 12 ns", "other"]);
/// ```
#[must_use]
pub fn once<'a>(notes: impl IntoIterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    let words = |note: &String| note.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    notes.into_iter().filter(|note| seen.insert(words(note))).collect()
}
