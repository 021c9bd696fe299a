//! `report.html`: one file that opens offline, with data, styles, plots and the chart library inside.
//!
//! Text, tables and captions are written here, escaped in one place (`html.rs`); the script in the page
//! only draws. Names of threads come from other programs: nothing of them may become markup.

mod figures;
mod html;
mod sections;

use crate::Results;
use html::Html;

const CHART_JS: &str = include_str!("../../assets/chart.umd.min.js");
const CHART_LICENCE: &str = include_str!("../../assets/chart.LICENSE.md");
const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");

/// The page.
#[must_use]
pub fn page(results: &Results) -> String {
    let mut h = Html::default();
    h.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    h.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    h.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    // no request may leave the page, whatever is in it
    h.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ");
    h.raw("style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n");
    h.raw("<link rel=\"icon\" href=\"data:,\">\n<title>Colony study: ");
    h.text(&results.node.host);
    h.raw("</title>\n<style>\n").raw(STYLE).raw("</style>\n</head>\n<body>\n");
    sections::top(&mut h, results);
    h.raw("<main>\n");
    figures::all(&mut h, results);
    sections::published(&mut h, results);
    h.raw("</main>\n");
    sections::foot(&mut h, results, CHART_LICENCE);
    h.raw("<script type=\"application/json\" id=\"data\">").raw(&html::json(results)).raw("</script>\n");
    let library = CHART_JS.split("\n//# sourceMappingURL").next().unwrap_or(CHART_JS);
    h.raw("<script>").raw(library).raw("\n</script>\n");
    h.raw("<script>\n").raw(SCRIPT).raw("</script>\n</body>\n</html>\n");
    h.finish()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_built_in_cannot_end_its_element() {
        for script in [super::CHART_JS, super::SCRIPT] {
            assert!(!script.to_ascii_lowercase().contains("</script"));
            assert!(!script.contains("<!--"));
        }
        assert!(!super::STYLE.to_ascii_lowercase().contains("</style"));
    }
}
