// SPDX-License-Identifier: MIT OR Apache-2.0
//! A figure: heading, plot, what to see, the command, the numbers.

use super::html::Html;

/// A figure of a page.
pub(super) struct Figure<'a> {
    /// Element id; the script draws by it.
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    /// One sentence that tells a reader what the figure shows.
    pub(super) caption: &'a str,
    /// Makes it again; empty where the page says it elsewhere.
    pub(super) command: &'a str,
    /// Heading of the table of numbers.
    pub(super) summary: &'a str,
    /// Headings of the numbers; none where the page has them elsewhere.
    pub(super) headings: &'a [&'a str],
    pub(super) rows: Vec<Vec<String>>,
    /// Height class of the plot.
    pub(super) tall: bool,
}

impl Figure<'_> {
    pub(super) fn write(self, h: &mut Html, number: &mut u32) {
        *number += 1;
        h.raw("<figure class=\"card\" id=\"").raw(self.id).raw("\">\n<h2><span>");
        h.text(&format!("Figure {number}")).raw("</span> ").text(self.title).raw("</h2>\n");
        h.raw(if self.tall { "<div class=\"plot tall\">" } else { "<div class=\"plot\">" });
        h.raw("<canvas role=\"img\" tabindex=\"0\" aria-label=\"")
            .text(self.title)
            .raw(". ")
            .text(self.caption);
        h.raw("\"></canvas></div>\n<figcaption>").prose("p", self.caption);
        if !self.command.is_empty() {
            h.command(self.command);
        }
        if !self.headings.is_empty() {
            h.raw("<details><summary>").text(self.summary).raw("</summary>\n");
            h.table(self.headings, &self.rows).raw("</details>");
        }
        h.raw("</figcaption>\n</figure>\n");
    }
}
