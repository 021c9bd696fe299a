// SPDX-License-Identifier: MIT OR Apache-2.0
//! Strategies of load balancing, compared: a table, and a page with a plot.

use std::fmt::Write;

use colony_balance::quality::Quality;
use serde::Serialize;

use crate::table;
use crate::units::{bytes, counted, percent, time};

/// The result of `colony lb replay`.
#[derive(Clone, Debug, Serialize)]
pub struct Replay {
    /// [`Replay::SCHEMA`].
    pub schema: &'static str,
    /// Number of PEs.
    pub pes: usize,
    /// Number of objects.
    pub objects: usize,
    /// Pairs of objects that exchange messages.
    pub edges: usize,
    /// Messages left out: an end of theirs is no object of the files.
    pub skipped_edges: u64,
    /// The network.
    pub topology: String,
    /// The placement of the files.
    pub before: Quality,
    /// The strategies.
    pub rows: Vec<Row>,
}

impl Replay {
    /// The schema this version writes.
    pub const SCHEMA: &str = "colony.lb.replay/1";
}

/// A strategy and its placement.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The strategy with its options.
    pub strategy: String,
    /// CPU seconds that it took, all PEs together.
    pub cpu_s: f64,
    /// The placement.
    pub quality: Quality,
    /// Bytes of load database on the PE that has most of it.
    pub database_bytes_one_pe: u64,
    /// Messages between PEs for loads and decisions.
    pub messages: u64,
}

/// The strategies in one table of 80 columns.
#[must_use]
pub fn table(r: &Replay) -> String {
    let mut t = table::new(["strategy", "max/avg", "moved", "bytes moved", "hop-bytes", "CPU", "on one PE"]);
    let name = |text: &str| table::name(text, 24);
    let imbalance = |q: &Quality| format!("{:.4}", q.imbalance);
    let hop_bytes = |q: &Quality| hop_bytes(r, q);
    let none = String::new;
    t.add_row([name("before"), imbalance(&r.before), none(), none(), hop_bytes(&r.before), none(), none()]);
    for row in &r.rows {
        let q = &row.quality;
        t.add_row([
            name(&row.strategy),
            imbalance(q),
            percent(q.moved_objects as f64 / r.objects.max(1) as f64),
            moved_bytes(q),
            hop_bytes(q),
            time(row.cpu_s * 1e9),
            bytes(row.database_bytes_one_pe),
        ]);
    }
    let objects = counted(r.objects as u64, "object");
    format!("{objects} on {}, network {}\n{}\n", counted(r.pes as u64, "PE"), r.topology, table::trimmed(&t))
}

/// The bytes of moved objects; a dash if the load files do not tell them.
fn moved_bytes(quality: &Quality) -> String {
    quality.moved_bytes.map_or_else(|| "–".to_owned(), bytes)
}

/// Bytes of messages times links; a dash if the load files have no messages, which is not known to be none.
fn hop_bytes(r: &Replay, quality: &Quality) -> String {
    if r.edges == 0 { "–".to_owned() } else { bytes(quality.hop_bytes as u64) }
}

/// A page with a bar for each strategy and figure. It opens without a network: the plots are SVG inside.
#[must_use]
pub fn page(r: &Replay) -> String {
    let mut out = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Load balancing strategies</title>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <style>body{font:15px sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}h2{font-size:1rem}\
         svg{width:100%;height:auto}text{font:13px sans-serif}rect{fill:#2f6f9f}rect.before{fill:#999}</style>\n\
         </head>\n<body>\n<h1>Load balancing strategies</h1>\n",
    );
    let (objects, pes) = (counted(r.objects as u64, "object"), counted(r.pes as u64, "PE"));
    let _ = writeln!(out, "<p>{objects} on {pes}, network {}.</p>", escaped(&r.topology));
    let each = |f: &dyn Fn(&Row) -> (f64, String)| -> Vec<(String, f64, String)> {
        r.rows.iter().map(|row| (row.strategy.clone(), f(row).0, f(row).1)).collect()
    };
    let with_before = |f: &dyn Fn(&Quality) -> (f64, String)| {
        let (value, text) = f(&r.before);
        let mut bars = vec![("before".to_owned(), value, text)];
        bars.extend(each(&|row| f(&row.quality)));
        bars
    };
    plot(
        &mut out,
        "Imbalance: slowest PE over the average, above 1",
        &with_before(&|q| (q.imbalance - 1.0, format!("{:.4}", q.imbalance))),
    );
    let share = |row: &Row| row.quality.moved_objects as f64 / r.objects.max(1) as f64;
    plot(&mut out, "Objects moved", &each(&|row| (share(row), percent(share(row)))));
    plot(
        &mut out,
        "Bytes moved",
        &each(&|row| (row.quality.moved_bytes.unwrap_or(0) as f64, moved_bytes(&row.quality))),
    );
    plot(&mut out, "Hop-bytes of a step", &with_before(&|q| (q.hop_bytes, hop_bytes(r, q))));
    plot(&mut out, "CPU seconds of the strategy", &each(&|row| (row.cpu_s, time(row.cpu_s * 1e9))));
    let held = |row: &Row| (row.database_bytes_one_pe as f64, bytes(row.database_bytes_one_pe));
    plot(&mut out, "Load database on the PE that has most of it", &each(&held));
    out + "</body>\n</html>\n"
}

/// Horizontal bars: name, value, and the value as text.
fn plot(out: &mut String, title: &str, bars: &[(String, f64, String)]) {
    const ROW: usize = 22;
    let most = bars.iter().map(|b| b.1).fold(f64::MIN_POSITIVE, f64::max);
    let height = bars.len() * ROW + 4;
    let _ = writeln!(
        out,
        "<h2>{title}</h2>\n<svg viewBox=\"0 0 700 {height}\" role=\"img\" aria-label=\"{title}\">"
    );
    for (i, (name, value, text)) in bars.iter().enumerate() {
        let (y, width) = (i * ROW, (value / most * 380.0).max(1.0));
        let class = if name == "before" { " class=\"before\"" } else { "" };
        let name = escaped(&table::name(name, 26));
        let _ = writeln!(out, "<text x=\"0\" y=\"{}\">{name}</text>", y + 15);
        let _ = writeln!(out, "<rect{class} x=\"190\" y=\"{}\" width=\"{width:.1}\" height=\"16\"/>", y + 2);
        let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{}\">{}</text>", 196.0 + width, y + 15, escaped(text));
    }
    out.push_str("</svg>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay() -> Replay {
        let quality = |imbalance, moved_objects| Quality {
            max_s: 1.0,
            ideal_s: 1.0,
            imbalance,
            moved_objects,
            moved_bytes: Some(u64::MAX / 4),
            moved_bytes_one_pe: Some(0),
            hop_bytes: 3e18,
        };
        let row = |strategy: &str, moved| Row {
            strategy: strategy.into(),
            cpu_s: 12_345.678,
            quality: quality(1.0005, moved),
            database_bytes_one_pe: 137_000_000_000,
            messages: 1,
        };
        Replay {
            schema: Replay::SCHEMA,
            pes: 1 << 20,
            objects: 1 << 26,
            edges: 1,
            skipped_edges: 0,
            topology: "torus:16x32x32".into(),
            before: quality(1234.5, 0),
            rows: vec![row("greedy-refine:tolerance=1.0001", 1 << 25), row("<b>hybrid", 0)],
        }
    }

    #[test]
    fn the_table_fits_into_eighty_columns() {
        let text = table(&replay());
        assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
        assert!(text.contains("before") && text.contains("1.0005"), "{text}");
    }

    #[test]
    fn bytes_that_the_files_do_not_tell_are_a_dash() {
        let mut unknown = Replay { edges: 0, ..replay() };
        unknown.rows.iter_mut().for_each(|row| row.quality.moved_bytes = None);
        let text = table(&unknown);
        let line = text.lines().find(|l| l.starts_with("greedy-refine")).expect("a row");
        assert_eq!(line.matches('–').count(), 2, "{text}");
    }

    #[test]
    fn the_page_needs_no_network_and_escapes_names() {
        let page = page(&replay());
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("<b>"));
    }
}
