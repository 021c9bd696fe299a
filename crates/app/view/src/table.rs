// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tables of at most 80 columns.

use colony_node::record::NodeRecord;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// The widest table: what every terminal and every mail shows.
pub const WIDTH: u16 = 80;

/// A line under the header and nothing else: rows are for reading.
const STYLE: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─'));

/// A table with this header; columns after the first are numbers, and lean right.
#[must_use]
pub fn new<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header);
    for (i, column) in table.column_iter_mut().enumerate() {
        // none behind the last one: the rule ends where the rows end
        column.set_padding((0, u16::from(i + 1 < N)));
        if i > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// A table whose first columns are words, the others numbers.
pub fn numbers(header: &[&str], words: usize) -> Table {
    let mut t = new([""; 0]);
    t.set_header(header);
    for (i, column) in t.column_iter_mut().enumerate() {
        column.set_padding((0, 1));
        let number = i >= words || header[i] == "nodes";
        column.set_cell_alignment(if number { CellAlignment::Right } else { CellAlignment::Left });
    }
    t
}

/// The text of a table, without blanks at the ends of lines.
#[must_use]
pub fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// A line broken at blanks, at 80 columns; what follows the first is set in by two. Control characters are
/// replaced.
#[must_use]
pub fn wrap(text: &str) -> String {
    let clean = name(text, usize::MAX - 1);
    broken(&clean, usize::from(WIDTH) - 2).join("\n  ")
}

/// Text broken at blanks into lines of at most `width` characters; a longer word, such as a list of many CPUs,
/// is cut.
#[must_use]
pub fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    // the narrow blank inside a number holds it together
    let words: Vec<Vec<char>> =
        text.split(' ').filter(|w| !w.is_empty()).map(|w| w.chars().collect()).collect();
    let pieces =
        words.iter().flat_map(|w| w.chunks(width.max(1)).map(|piece| piece.iter().collect::<String>()));
    for word in pieces {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

/// A node in one line.
#[must_use]
pub fn node(n: &NodeRecord) -> String {
    format!("{} · {} · Linux {}", name(&n.host, 18), name(&n.cpu_model, 28), name(&n.kernel, 22))
}

/// A name from elsewhere (a thread's, a host's) made fit for a terminal: control characters replaced,
/// cut to `width` characters.
#[must_use]
pub fn name(text: &str, width: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c });
    let mut out: String = clean.take(width + 1).collect();
    if out.chars().count() > width {
        out = out.chars().take(width.saturating_sub(1)).collect::<String>() + "…";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_as_wide_as_the_rows_and_no_line_ends_in_a_blank() {
        let mut t = new(["noise", "mean", "16,384 nodes"]);
        t.add_row(["quiet", "1.50 µs", "89.5 ms"]);
        t.add_row(["21 % noise", "\u{2013}", "1\u{202f}000 ms"]);
        let text = t.to_string();
        let widths: Vec<usize> = text.lines().map(|l| l.trim_end().chars().count()).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{widths:?}\n{text}");
        assert!(text.lines().all(|l| !l.ends_with(' ')), "{text:?}");
    }

    #[test]
    fn long_lines_break_at_blanks() {
        let text = "word ".repeat(60);
        let wrapped = wrap(&text);
        assert!(wrapped.lines().all(|l| l.len() <= 80) && wrapped.split_whitespace().count() == 60);
        assert_eq!(wrap("short"), "short");
        assert_eq!(broken("a bc defghi", 4), ["a bc", "defg", "hi"]);
        assert_eq!(broken("1\u{202f}000 b", 5), ["1\u{202f}000", "b"]);
        assert!(!wrap("note: \u{1b}[2J").contains('\u{1b}'));
    }

    #[test]
    fn a_hostile_name_cannot_move_the_cursor_or_widen_the_table() {
        let name = name("thread:\u{1b}[2Jevil\n", 12);
        assert!(!name.contains(['\u{1b}', '\n']) && name.chars().count() <= 12, "{name}");
        let mut t = new(["source", "n", "m"]);
        t.add_row(["x".repeat(300), "1".into(), "2".into()]);
        assert!(t.to_string().lines().all(|l| l.chars().count() <= 80));
    }
}
