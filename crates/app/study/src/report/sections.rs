// SPDX-License-Identifier: MIT OR Apache-2.0
//! The top of the page, the published figures, the foot.

use super::card;
use super::html::Html;
use crate::neighbours::Neighbours;
use crate::results::{Figure, Published, Results, SchedulerKind};
use crate::{claims, format, seeds, table};

/// Headline, main figures, the node, what to read with care.
pub(super) fn top(h: &mut Html, r: &Results) {
    h.raw("<header>\n<p class=\"kicker\">Colony study of ").text(&r.node.host);
    h.raw(" · <time data-unix=\"").text(&r.started_unix_s.to_string()).raw("\"></time></p>\n");
    if let Some(busy) = r.neighbours.as_ref().and_then(Neighbours::warning) {
        h.prose("p class=\"busy\" role=\"note\"", &busy).raw("\n");
    }
    let (main, more) = match r.card.as_ref().and_then(card::lead) {
        Some(main) => {
            let here = [table::windows_here(r), table::spare_core_here(r), Some(r.headline.clone())];
            (main, here.into_iter().flatten().collect())
        }
        None => {
            let (main, more) = r.headline.split_once(". ").unwrap_or((&r.headline, ""));
            (format!("{}.", main.trim_end_matches('.')), vec![more.to_owned()])
        }
    };
    h.prose("h1", &main).raw("\n");
    for more in more.iter().filter(|m| !m.is_empty()) {
        h.prose("p class=\"lead\"", more).raw("\n");
    }
    tiles(h, r);
    if let Some(card) = &r.card {
        card::changes(h, card);
    }
    h.raw("<div class=\"columns\">\n<section class=\"card\"><h2>The node</h2>\n<dl>\n");
    for (name, value) in node(r) {
        h.raw("<div>").element("dt", name).element("dd", &value).raw("</div>\n");
    }
    h.raw("</dl></section>\n<section class=\"card\"><h2>Read with care</h2>\n");
    let left_out = left_out(r);
    if r.warnings.is_empty() && left_out.is_empty() {
        h.raw("<p>The node was quiet and everything could be done.</p>\n");
    }
    h.list(r.warnings.iter().map(String::as_str));
    if !left_out.is_empty() {
        h.raw("<h3>Left out</h3>\n").list(left_out.iter().map(String::as_str));
    }
    h.raw("</section>\n</div>\n</header>\n");
}

/// Steps that were left out, and missing figures that stand nowhere else on the page.
fn left_out(r: &Results) -> Vec<String> {
    let mut nowhere = Vec::new();
    if r.allreduce.is_empty() {
        nowhere.push(Figure::Allreduce);
    }
    if r.scaling.is_none() {
        nowhere.push(Figure::Projection);
    }
    r.not_done.iter().cloned().chain(table::missing(r, &nowhere)).collect()
}

fn tiles(h: &mut Html, r: &Results) {
    let mut tiles = r.card.as_ref().map(card::figures_of_node).unwrap_or_default();
    if let Some(n) = r.noise.as_ref().filter(|_| tiles.is_empty()) {
        let alone = r.neighbours.as_ref().is_none_or(Neighbours::are_quiet);
        let by = if alone { "this node's own noise" } else { "this node's noise and its other programs" };
        tiles.push((format::percent(n.stolen_share), format!("of processor time stolen by {by}")));
        if let Some(e) = n.explained {
            tiles.push((
                format::percent(e.of_stolen_without_throttle),
                "of the stolen time has a known source".into(),
            ));
        }
    }
    let worst = r.params.noise_percent.iter().copied().fold(0.0, f64::max);
    let noise = table::noise_name(worst);
    let means = |u: f64, c: f64| format!("{} → {}", format::time(u), format::time(c));
    let here = |kind| r.cell(worst, kind).map(|c| c.mean_ns);
    if let (Some(u), Some(c), Ok(_)) =
        (here(SchedulerKind::Unmodified), here(SchedulerKind::Coordinated), claims::measured(r, worst))
    {
        let name = format!("mean allreduce on this node, {noise}, unmodified → coordinated");
        tiles.push((means(u, c), name));
    }
    let mean = |kind| {
        let measured = r.scaling.as_ref().filter(|s| s.measured)?;
        Some(measured.curve(worst, kind)?.at(table::SHOWN_NODES)?.mean_ns)
    };
    let projected =
        format!("mean allreduce projected to {} nodes, {noise}", format::count(table::SHOWN_NODES));
    match (mean(SchedulerKind::Unmodified), mean(SchedulerKind::Coordinated)) {
        (Some(u), Some(c)) if claims::projected(r, worst).is_ok() => {
            tiles.push((means(u, c), format!("{projected}, unmodified → coordinated")));
        }
        (Some(u), Some(_)) => {
            tiles
                .push((format::time(u), format!("{projected}; the gain of windows is not known, see below")));
        }
        (Some(u), None) => {
            tiles.push((format::time(u), format!("{projected}; coordinated windows were not measured")));
        }
        _ => {}
    }
    h.raw("<div class=\"tiles\">\n");
    for (value, name) in tiles {
        h.raw("<div class=\"tile\">").prose("b", &value).prose("span", &name).raw("</div>\n");
    }
    h.raw("</div>\n");
}

fn node(r: &Results) -> Vec<(&'static str, String)> {
    let n = &r.node;
    let or = |text: String, other: &str| if text.is_empty() { other.to_owned() } else { text };
    vec![
        ("Host", n.host.clone()),
        ("Processor", n.cpu_model.clone()),
        ("CPUs", format!("{} ({})", n.online.len(), n.online)),
        ("Kernel", n.kernel.clone()),
        ("Isolation", or(n.isolation.join(" "), "none")),
        ("Governor", n.governor.clone().unwrap_or_else(|| "none".into())),
        ("Hypervisor", if n.virtual_machine { "yes" } else { "no" }.into()),
        ("Load", n.load.map(|l| format!("{l:.2}")).join(", ")),
        (
            "Windows",
            format!("period {}, {} favored", colony_time::text::Ns(r.params.period_ns), r.params.duty),
        ),
        ("Seed", r.params.seed.to_string()),
        ("Took", format!("{:.0} s", r.took_s)),
        ("Again", r.command.clone()),
    ]
}

/// Published values beside ours.
pub(super) fn published(h: &mut Html, r: &Results) {
    if r.published.is_empty() {
        return;
    }
    h.raw("<section class=\"card wide\" id=\"published\"><h2>The published figures beside ours</h2>\n<p>");
    h.text("Each experiment of the source documents that one node and the projection can reach. The documents give \
            these values in their text; curves without printed values are not read off. Where ours is far from theirs, the rows further down say why.");
    h.raw("</p>\n");
    let telling: Vec<Vec<String>> = seeds::all()
        .filter_map(|e| telling(r, e.name))
        .map(|p| {
            vec![p.experiment.clone(), p.what.clone(), p.published.clone(), p.ours.clone(), p.fidelity()]
        })
        .collect();
    h.raw("<div class=\"telling\">")
        .table(&["Experiment", "What", "Published", "#Ours", "Error, origin"], &telling)
        .raw("</div>\n");
    h.raw("<h3>All of them, with the words of the documents</h3>\n");
    for e in seeds::all() {
        let rows: Vec<Vec<String>> = r
            .published
            .iter()
            .filter(|p| p.experiment == e.name)
            .map(|p| vec![p.what.clone(), p.published.clone(), p.ours.clone(), p.fidelity(), p.note.clone()])
            .collect();
        if rows.is_empty() {
            continue;
        }
        h.raw("<details class=\"experiment\"><summary>").element("b", e.name).raw(" ").text(e.what);
        h.raw("</summary>\n").element("p class=\"source\"", &e.citation());
        for quote in e.published {
            h.element("blockquote", quote);
        }
        h.table(&["What", "Published", "#Ours", "Error, origin", "How"], &rows);
        h.command(&format!("colony study {}", e.name));
        h.raw("</details>\n");
    }
    h.raw("</section>\n");
}

/// The row that tells most of an experiment: the first with a published value, or else the last.
fn telling<'a>(r: &'a Results, name: &str) -> Option<&'a Published> {
    let mut rows = r.published.iter().filter(|p| p.experiment == name && p.value.is_some());
    rows.clone().find(|p| p.published_value.is_some()).or_else(|| rows.next_back())
}

/// The model's assumptions, the chart library's licence, where the data is.
pub(super) fn foot(h: &mut Html, r: &Results) {
    h.raw("<footer>\n");
    if let Some(s) = &r.scaling {
        h.raw("<details><summary>What the projection takes for granted (").text(&s.model);
        h.raw(")</summary>\n").list(s.assumptions.iter().map(String::as_str));
        h.element("p", &format!("Noise: {}. Base: {}.", s.noise_from, s.base_from)).raw("</details>\n");
    }
    super::licence(h);
    h.raw("<p>Made by Colony ").text(&r.version).raw(". ");
    h.text("All data of this page is inside it, as JSON, and in results.json beside it.");
    h.raw("</p>\n</footer>\n");
}
