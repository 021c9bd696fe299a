// SPDX-License-Identifier: MIT OR Apache-2.0
//! `report.html`: one file that opens offline, with data, styles, plots and the chart library inside.
//!
//! Text, tables and captions are written here, escaped in one place (`html.rs`); the script in the page
//! only draws. Names of threads come from other programs: nothing of them may become markup.

mod beside;
mod card;
mod das_boot;
mod figure;
mod figures;
mod html;
mod io_scaling;
mod io_sockets;
mod schedules;
mod sections;
mod simulation;
mod survival;
mod timeline;

use std::io::Write as _;
use std::path::Path;

use serde::Serialize;

use crate::{Results, StudyError};
use html::Html;

pub use beside::Beside;
pub use das_boot::Booted;
pub use io_scaling::Transferred;
pub use io_sockets::Streamed;
pub use schedules::{Schedule, any_of};
pub use simulation::Simulated;
pub use survival::Survived;
pub use timeline::Recorded;

const CHART_JS: &str = include_str!("../../assets/chart.umd.min.js");
const CHART_LICENCE: &str = include_str!("../../assets/chart.LICENSE.md");
const STYLE: &str = include_str!("../../assets/report.css");
/// Script that all plots share.
const PLOTS: &str = include_str!("../../assets/plots.js");
const STUDY: &str = include_str!("../../assets/study.js");
const SIM: &str = include_str!("../../assets/sim.js");
const DAS_BOOT: &str = include_str!("../../assets/das_boot.js");
const BESIDE: &str = include_str!("../../assets/beside.js");
const SURVIVAL: &str = include_str!("../../assets/survival.js");
const TIMELINE: &str = include_str!("../../assets/timeline.js");

impl Results {
    /// Writes `results.json` and `report.html` into `folder`, which is made if need be.
    ///
    /// # Errors
    /// [`StudyError::Write`] names the file.
    pub fn write(&self, folder: &Path) -> Result<(), StudyError> {
        let error = |path: &Path| {
            let path = path.to_path_buf();
            move |source| StudyError::Write { path, source }
        };
        std::fs::create_dir_all(folder).map_err(error(folder))?;
        let json = folder.join("results.json");
        colony_node::file::write_atomically::<std::io::Error>(&json, |w| {
            serde_json::to_writer_pretty(&mut *w, self)?;
            w.write_all(b"\n")
        })
        .map_err(error(&json))?;
        let html = folder.join("report.html");
        let page = page(self);
        colony_node::file::write_atomically::<std::io::Error>(&html, |w| w.write_all(page.as_bytes()))
            .map_err(error(&html))
    }
}

/// The page of a study.
#[must_use]
pub fn page(results: &Results) -> String {
    let title = format!("Colony study: {}", results.node.host);
    document(&title, results, STUDY, |h| {
        sections::top(h, results);
        h.raw("<main>\n");
        figures::all(h, results);
        sections::published(h, results);
        h.raw("</main>\n");
        sections::foot(h, results);
    })
}

/// A page that `script` draws on, from `data`.
fn document(title: &str, data: &impl Serialize, script: &str, body: impl FnOnce(&mut Html)) -> String {
    let mut h = Html::default();
    h.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    h.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    h.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
    // no request may leave the page, whatever is in it
    h.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; ");
    h.raw("style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n");
    h.raw("<link rel=\"icon\" href=\"data:,\">\n").element("title", title);
    h.raw("\n<style>\n").raw(STYLE).raw("</style>\n</head>\n<body>\n");
    body(&mut h);
    h.raw("<script type=\"application/json\" id=\"data\">").raw(&html::json(data)).raw("</script>\n");
    let library = CHART_JS.split("\n//# sourceMappingURL").next().unwrap_or(CHART_JS);
    h.raw("<script>").raw(library).raw("\n</script>\n");
    h.raw("<script>\n").raw(PLOTS).raw(script).raw("</script>\n</body>\n</html>\n");
    h.finish()
}

/// The chart library's licence, for the foot of a page.
fn licence(h: &mut Html) {
    h.raw("<details><summary>Licence of the chart library</summary><pre>").text(CHART_LICENCE);
    h.raw("</pre></details>\n");
}

/// The foot of a page with all of its data inside. `version` is that of the Colony that made the data.
fn foot(h: &mut Html, version: &str) {
    h.raw("<footer>\n");
    licence(h);
    h.raw("<p>Made by Colony ").text(version);
    h.raw(". All data of this page is inside it, as JSON.</p>\n</footer>\n");
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_built_in_cannot_end_its_element() {
        for script in [
            super::CHART_JS,
            super::PLOTS,
            super::STUDY,
            super::SIM,
            super::DAS_BOOT,
            super::BESIDE,
            super::TIMELINE,
        ] {
            assert!(!script.to_ascii_lowercase().contains("</script"));
            assert!(!script.contains("<!--"));
        }
        assert!(!super::STYLE.to_ascii_lowercase().contains("</style"));
    }
}
