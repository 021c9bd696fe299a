//! Tables of at most 80 columns.

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
        column.set_padding((0, 1));
        if i > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
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
    fn a_hostile_name_cannot_move_the_cursor_or_widen_the_table() {
        let name = name("thread:\u{1b}[2Jevil\n", 12);
        assert!(!name.contains(['\u{1b}', '\n']) && name.chars().count() <= 12, "{name}");
        let mut t = new(["source", "n", "m"]);
        t.add_row(["x".repeat(300), "1".into(), "2".into()]);
        assert!(t.to_string().lines().all(|l| l.chars().count() <= 80));
    }
}
