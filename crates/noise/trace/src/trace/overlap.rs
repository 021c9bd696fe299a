// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cuts overlapping rows of one CPU, so that every instant belongs to one row.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{Detour, Lane};

/// A row that has begun and whose end has not been reached.
struct Open {
    row: Detour,
    /// Start of the part that is not in the output yet.
    from_ns: i64,
}

impl Open {
    /// The part from `from_ns` to `until_ns`, if it is not empty.
    fn part(&self, until_ns: i64) -> Option<Detour> {
        let length = until_ns.checked_sub(self.from_ns).and_then(|ns| u64::try_from(ns).ok());
        let length = length.filter(|ns| *ns > 0)?;
        Some(Detour { start_ns: self.from_ns, duration_ns: length, ..self.row })
    }
}

/// Cuts the rows of each CPU where they overlap. An instant that several rows cover belongs to the row that began last, the innermost;
/// of rows that began together, to the shortest. So the lengths add up to the time that was stolen.
///
/// Rows of length 0 stay. The result is in order of start. The second value is the number of rows that began inside another row.
pub(super) fn cut(mut rows: Vec<Detour>) -> (Vec<Detour>, usize) {
    let key = |d: &Detour| (d.start_ns, d.node, d.cpu, Reverse(d.duration_ns));
    if !rows.is_sorted_by_key(key) {
        rows.sort_by_key(key);
    }
    let inside = begun_inside_another(&rows);
    if inside == 0 {
        return (rows, 0);
    }
    let mut parts = Vec::with_capacity(rows.len() + inside);
    let mut open: HashMap<Lane, Vec<Open>> = HashMap::new();
    for row in rows {
        if row.duration_ns == 0 {
            parts.push(row);
            continue;
        }
        let open = open.entry(row.lane()).or_default();
        close(open, row.start_ns, &mut parts);
        if let Some(outer) = open.last_mut() {
            parts.extend(outer.part(row.start_ns));
            outer.from_ns = row.start_ns;
        }
        open.push(Open { row, from_ns: row.start_ns });
    }
    for mut open in open.into_values() {
        close(&mut open, i64::MAX, &mut parts);
    }
    parts.sort_by_key(key);
    (parts, inside)
}

/// Moves the rows that end until `until_ns` to `parts`, the innermost first.
fn close(open: &mut Vec<Open>, until_ns: i64, parts: &mut Vec<Detour>) {
    while let Some(inner) = open.pop_if(|inner| inner.row.end_ns() <= until_ns) {
        let end_ns = inner.row.end_ns();
        parts.extend(inner.part(end_ns));
        if let Some(outer) = open.last_mut() {
            outer.from_ns = outer.from_ns.max(end_ns).max(inner.from_ns);
        }
    }
}

/// Number of rows that begin before an earlier row of their CPU ends; `rows` are in order of start.
fn begun_inside_another(rows: &[Detour]) -> usize {
    let mut ends: HashMap<Lane, i64> = HashMap::new();
    let longer = rows.iter().filter(|row| row.duration_ns > 0);
    longer
        .filter(|row| {
            let end = ends.entry(row.lane()).or_insert(i64::MIN);
            let inside = row.start_ns < *end;
            *end = (*end).max(row.end_ns());
            inside
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(cpu: u16, start_ns: i64, duration_ns: u64, source: u16) -> Detour {
        Detour { node: 0, cpu, start_ns, duration_ns, source }
    }

    fn parts(rows: &[Detour]) -> Vec<(u16, i64, u64, u16)> {
        rows.iter().map(|d| (d.cpu, d.start_ns, d.duration_ns, d.source)).collect()
    }

    #[test]
    fn time_in_nested_rows_belongs_to_the_innermost() {
        let nested =
            vec![row(0, 0, 8000, 0), row(0, 1000, 4000, 1), row(0, 2000, 3000, 2), row(1, 500, 9000, 0)];
        let (cut, inside) = cut(nested);
        assert_eq!(inside, 2);
        let expected =
            [(0, 0, 1000, 0), (1, 500, 9000, 0), (0, 1000, 1000, 1), (0, 2000, 3000, 2), (0, 5000, 3000, 0)];
        assert_eq!(parts(&cut), expected);
    }

    #[test]
    fn a_row_that_overlaps_the_end_of_another_and_a_copy_of_a_row_count_once() {
        let (cut_end, inside) = cut(vec![row(0, 0, 5, 0), row(0, 3, 5, 1)]);
        assert_eq!((parts(&cut_end), inside), (vec![(0, 0, 3, 0), (0, 3, 5, 1)], 1));
        let (copies, inside) = cut(vec![row(0, 0, 5, 0), row(0, 0, 5, 1), row(0, 5, 5, 0)]);
        assert_eq!((parts(&copies), inside), (vec![(0, 0, 5, 1), (0, 5, 5, 0)], 1));
    }

    /// The row that owns each of the instants 0 to 99 of CPU 0.
    fn owners(rows: &[Detour]) -> Vec<Option<u16>> {
        let owner = |t: i64| {
            let covering = rows.iter().filter(|d| d.cpu == 0 && d.start_ns <= t && t < d.end_ns());
            covering.max_by_key(|d| (d.start_ns, Reverse(d.duration_ns))).map(|d| d.source)
        };
        (0..100).map(owner).collect()
    }

    proptest! {
        #[test]
        fn every_instant_belongs_to_the_row_that_began_last(
            rows in prop::collection::vec((0u16..2, 0i64..80, 0u64..20), 0..20),
        ) {
            // a source for each row, and none with the start and the length of another
            let mut rows: Vec<Detour> =
                rows.into_iter().zip(0..).map(|((cpu, start, length), i)| row(cpu, start, length, i)).collect();
            rows.sort_by_key(|d| (d.cpu, d.start_ns, d.duration_ns));
            rows.dedup_by_key(|d| (d.cpu, d.start_ns, d.duration_ns));
            let (cut, _) = cut(rows.clone());
            prop_assert_eq!(owners(&cut), owners(&rows));
            prop_assert!(cut.is_sorted_by_key(|d| d.start_ns));
            prop_assert_eq!(begun_inside_another(&cut), 0);
            let empty = |rows: &[Detour]| rows.iter().filter(|d| d.duration_ns == 0).count();
            prop_assert_eq!(empty(&cut), empty(&rows));
        }
    }
}
