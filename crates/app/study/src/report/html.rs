// SPDX-License-Identifier: MIT OR Apache-2.0
//! Markup with everything foreign escaped.

use serde::Serialize;

/// A page as it grows.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    /// Markup of our own.
    pub(super) fn raw(&mut self, markup: &str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    /// Text of any origin.
    pub(super) fn text(&mut self, text: &str) -> &mut Self {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // bytes a terminal or a browser would act on, and text that would change direction
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                c if c.is_control() && c != '\n' && c != '\t' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        self
    }

    /// `<tag>text</tag>`.
    pub(super) fn element(&mut self, tag: &str, text: &str) -> &mut Self {
        let name = tag.split(' ').next().unwrap_or(tag);
        self.raw("<").raw(tag).raw(">").text(text).raw("</").raw(name).raw(">")
    }

    /// As [`Html::element`], for sentences: a number and its unit stay on one line.
    pub(super) fn prose(&mut self, tag: &str, text: &str) -> &mut Self {
        let mut bound = String::with_capacity(text.len());
        for (i, c) in text.char_indices() {
            let unit = || ["%", "ns", "µs", "ms", "s ", "Hz"].iter().any(|u| text[i + 1..].starts_with(u));
            let number = text[..i].ends_with(|c: char| c.is_ascii_digit());
            bound.push(if c == ' ' && number && unit() { '\u{a0}' } else { c });
        }
        self.element(tag, &bound)
    }

    /// A list of lines; nothing where there are none.
    pub(super) fn list<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) -> &mut Self {
        let mut lines = lines.into_iter().peekable();
        if lines.peek().is_some() {
            self.raw("<ul>");
            lines.for_each(|l| {
                self.prose("li", l);
            });
            self.raw("</ul>\n");
        }
        self
    }

    /// A table; a heading that starts with `#` is of a column of numbers.
    pub(super) fn table(&mut self, headings: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.table_of("", headings, rows)
    }

    /// As [`Html::table`]. On a narrow screen, a row is its first cell and then the others with their headings, one below the
    /// other.
    pub(super) fn stacked_table(&mut self, headings: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.table_of(" class=\"stacked\"", headings, rows)
    }

    fn table_of(&mut self, class: &str, headings: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.raw("<div class=\"scroll\"><table").raw(class).raw("><thead><tr>");
        let number = |i: usize| headings.get(i).is_some_and(|h| h.starts_with('#'));
        for (i, h) in headings.iter().enumerate() {
            let tag = if number(i) { "th scope=\"col\" class=\"n\"" } else { "th scope=\"col\"" };
            self.element(tag, h.trim_start_matches('#'));
        }
        self.raw("</tr></thead><tbody>\n");
        for row in rows {
            self.raw("<tr>");
            for (i, cell) in row.iter().enumerate() {
                self.raw(if number(i) { "<td class=\"n\"" } else { "<td" });
                if let (false, Some(heading)) = (class.is_empty(), headings.get(i)) {
                    self.raw(" data-heading=\"").text(heading.trim_start_matches('#')).raw("\"");
                }
                self.raw(">").text(cell).raw("</td>");
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n")
    }

    /// A heat map: a table whose cells have a step of colour each, if they have a value.
    pub(super) fn heat_map<'a>(
        &mut self,
        headings: impl IntoIterator<Item = &'a str>,
        rows: impl IntoIterator<Item = (Vec<String>, Vec<Option<u8>>)>,
    ) -> &mut Self {
        self.raw("<div class=\"scroll\"><table class=\"heat\"><thead><tr>");
        for (i, heading) in headings.into_iter().enumerate() {
            self.element(if i == 0 { "th scope=\"col\"" } else { "th scope=\"col\" class=\"n\"" }, heading);
        }
        self.raw("</tr></thead><tbody>\n");
        for (texts, heats) in rows {
            let mut texts = texts.into_iter();
            self.raw("<tr>").element("th scope=\"row\"", &texts.next().unwrap_or_default());
            for (text, heat) in texts.zip(heats) {
                let tag =
                    heat.map_or_else(|| "td class=\"n\"".into(), |heat| format!("td class=\"n h{heat}\""));
                self.element(&tag, &text);
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n")
    }

    /// A command to copy.
    pub(super) fn command(&mut self, command: &str) -> &mut Self {
        self.raw("<div class=\"command\"><code>").text(command).raw("</code>");
        self.raw(
            "<button type=\"button\" class=\"copy\" aria-label=\"Copy the command\">Copy</button></div>\n",
        )
    }

    /// Lines to copy that are no command of an ordinary user's shell.
    pub(super) fn file(&mut self, lines: &str) -> &mut Self {
        self.raw("<div class=\"command file\"><code>").text(lines).raw("</code>");
        self.raw("<button type=\"button\" class=\"copy\" aria-label=\"Copy the lines\">Copy</button></div>\n")
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// JSON that may stand inside a `<script>` element: no character of it can end one or begin a comment.
pub(super) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".into());
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn foreign_text_stays_text() {
        let mut h = Html::default();
        h.element("td class=\"n\"", "</td><script>alert('x')</script>&\u{1b}[2J\u{202e}");
        assert_eq!(
            h.finish(),
            "<td class=\"n\">&lt;/td&gt;&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;\u{fffd}[2J\u{fffd}</td>"
        );
    }

    #[test]
    fn a_number_keeps_its_unit() {
        let mut h = Html::default();
        h.prose("p", "21 % of 3.5 µs, 2 nodes <b>");
        assert_eq!(h.finish(), "<p>21\u{a0}% of 3.5\u{a0}µs, 2 nodes &lt;b&gt;</p>");
    }

    proptest! {
        #[test]
        fn json_in_a_script_ends_nothing_and_reads_back(text in ".{0,60}") {
            let hostile = format!("</script><!--{text}");
            let embedded = json(&hostile);
            prop_assert!(!embedded.contains(['<', '>', '&']));
            let back: String = serde_json::from_str(&embedded).expect("JSON");
            prop_assert_eq!(back, hostile);
        }
    }
}
