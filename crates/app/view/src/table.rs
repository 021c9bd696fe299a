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

/// Text broken at blanks into lines of at most `width` characters; a longer word, such as a list of many CPUs or a
/// path, is broken behind a comma or a slash, or else cut.
#[must_use]
pub fn broken(text: &str, width: usize) -> Vec<String> {
    // the narrow blank inside a number holds it together
    let words = text.split(' ').filter(|w| !w.is_empty());
    fill(words.flat_map(|word| pieces(word, width.max(1))), width)
}

/// Text broken at blanks only, into lines of at most `width` characters, or of one longer word.
#[must_use]
pub(crate) fn broken_at_blanks(text: &str, width: usize) -> Vec<String> {
    fill(text.split(' ').filter(|w| !w.is_empty()).map(str::to_owned), width)
}

/// Words on lines of at most `width` characters.
fn fill(words: impl Iterator<Item = String>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
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

/// A word in pieces of at most `width` characters.
fn pieces(word: &str, width: usize) -> Vec<String> {
    let mut rest: Vec<char> = word.chars().collect();
    let mut pieces = Vec::new();
    while rest.len() > width {
        let end = rest[..width].iter().rposition(|c| matches!(c, ',' | '/')).map_or(width, |at| at + 1);
        // a separator at the beginning leaves a piece that is hardly one
        let end = if end > width / 4 { end } else { width };
        pieces.push(rest.drain(..end).collect());
    }
    pieces.push(rest.into_iter().collect());
    pieces
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

/// Text from elsewhere as [`name`] makes it, cut to `width` characters behind a blank or a comma: the beginning of a number would be
/// read as another number.
#[must_use]
pub fn clipped(text: &str, width: usize) -> String {
    let clean = name(text, usize::MAX - 1);
    if clean.chars().count() <= width {
        return clean;
    }
    let beginning: String = clean.chars().take(width.saturating_sub(1)).collect();
    let end = beginning.rfind([' ', ',']).map_or(beginning.len(), |at| at + 1);
    // a long word without either
    let end = if end > beginning.len() / 4 { end } else { beginning.len() };
    format!("{}…", &beginning[..end])
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
        assert_eq!(broken("CPUs 1-127,129-255,257 of", 10), ["CPUs", "1-127,", "129-255,", "257 of"]);
        assert_eq!(broken("/sys/devices/system", 13), ["/sys/devices/", "system"]);
        assert_eq!(broken_at_blanks("a bc defghi", 4), ["a bc", "defghi"]);
        assert!(!wrap("note: \u{1b}[2J").contains('\u{1b}'));
    }

    #[test]
    fn a_text_is_not_clipped_within_a_number() {
        assert_eq!(clipped("CPUs 1-127,129-255", 16), "CPUs 1-127,…");
        assert_eq!(clipped("CPUs 1-127,129-255", 18), "CPUs 1-127,129-255");
        assert_eq!(clipped("interrupts 100, 101", 18), "interrupts 100, …");
        assert_eq!(clipped("a, bcdefghijklmnop", 14), "a, bcdefghijk…");
        assert!(!clipped("\u{1b}[2J", 80).contains('\u{1b}'));
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
