// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages in a real browser: no errors, every plot drawn, nothing fetched, hostile names harmless.

use std::path::{Path, PathBuf};
use std::process::Command;

use colony_node::record::NodeRecord;
use colony_sim::simulate::simulate;
use colony_sim::spec::{Scenario, Traces};
use colony_sim::sweep::{Finished, Results};
use colony_study::chart::{Chart, Line, Quantity};
use colony_study::das_boot::{self, Boot, Plan};
use colony_study::report::{Beside, Booted, Recorded, Schedule, Simulated, Streamed, Survived, Transferred};
use colony_study::{Params, io_scaling, io_sockets, seeds, study};
use colony_survival::scenario::YEAR_S;
use colony_survival::scheme::Scheme;
use colony_survival::study::Study;
use colony_testing::browser::{QUIET, find as browser};
use colony_timeline::{Names, Noise, Timeline, sample};

use crate::fake::{Fake, HOSTILE};

fn report(folder: &Path) -> PathBuf {
    let params = Params {
        projected_ops: 100,
        nodes: vec![512, 2048],
        published: false,
        faster: 100.0,
        ..Params::default()
    };
    let mut results = study::run(&params, &mut Fake::default(), &()).expect("a study");
    results.started_unix_s = 1_790_000_000;
    results.write(folder).expect("writable");
    folder.join("report.html")
}

/// Opens `page`; returns the document after its scripts ran, and what the browser logged.
fn open(browser: &str, profile: &Path, page: &Path, more: &[&str]) -> (String, String) {
    let out = Command::new(browser)
        .args(QUIET)
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser runs");
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    assert!(out.status.success(), "{}", text(&out.stderr));
    (text(&out.stdout), text(&out.stderr))
}

/// Appended to a copy of the report: counts canvases with something on them, and requests.
const PROBE: &str = "<script>
addEventListener('load', () => {
  let painted = 0;
  for (const c of document.querySelectorAll('canvas')) {
    const { data } = c.getContext('2d').getImageData(0, 0, c.width, c.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3]) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    if (seen.size > 8) painted += 1;
  }
  document.body.dataset.painted = painted;
  document.body.dataset.requests = performance.getEntriesByType('resource').filter((r) => !r.name.startsWith('data:')).length;
  document.body.dataset.wide = document.documentElement.scrollWidth > innerWidth;
});
</script>";

/// In every width and colour: no errors, all `plots` painted, nothing fetched, nothing wider than the window.
fn assert_draws(browser: &str, folder: &Path, html: &str, plots: usize) {
    let probed = folder.join("probed.html");
    std::fs::write(&probed, html.replace("</body>", &format!("{PROBE}</body>"))).expect("writable");
    let all = plots.to_string();
    for (name, more) in [
        ("wide", &["--window-size=1280,900"][..]),
        ("phone", &["--window-size=500,900"]),
        ("dark", &["--window-size=1280,900", "--blink-settings=preferredColorScheme=0"]),
    ] {
        let (dom, log) = open(browser, &folder.join(name), &probed, more);
        let body = dom.split_once("<body").and_then(|(_, rest)| rest.split_once('>')).expect("a body").0;
        assert!(body.contains("data-errors=\"\""), "{name}: {body}");
        for (what, value) in
            [("plots", all.as_str()), ("painted", &all), ("requests", "0"), ("wide", "false")]
        {
            assert!(body.contains(&format!("data-{what}=\"{value}\"")), "{name}, {what}: {body}");
        }
        assert!(!log.contains("CONSOLE"), "{name}: {log}");
    }
}

#[test]
fn the_report_draws_every_plot_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let page = report(dir.path());
    let html = std::fs::read_to_string(&page).expect("written");
    // COLONY_KEEP_REPORT=FILE keeps it for a look
    if let Some(kept) = std::env::var_os("COLONY_KEEP_REPORT") {
        std::fs::copy(&page, kept).expect("writable");
    }
    assert_draws(browser, dir.path(), &html, 8);
}

#[test]
fn a_simulations_page_draws_every_plot_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    for (more, plots) in [
        // lines of two schedulers and styles, over many nodes
        (
            "nodes = [2, 8, 100]\nschedulers = [\"none\", \"preempt\"]\n[sweep]\n\"program.bytes\" = [8, 1024]",
            2,
        ),
        // a figure each value; one node count; no interval
        ("nodes = [4]\nrepetitions = 1\n[sweep]\nseed = [1, 2, 3, 4, 5]", 10),
        // nothing to draw but a point that takes no time
        ("nodes = [1]\nmachine = \"loggopsim\"", 2),
    ] {
        assert_draws(browser, dir.path(), &simulated(more), plots);
    }
}

#[test]
fn a_study_of_fault_tolerance_draws_every_plot_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    for (schemes, sizes, plots) in [
        (&Scheme::ALL[..], &[1024, 65_536, 1 << 20][..], 5),
        // one point, without an interval
        (&[Scheme::None][..], &[1024][..], 4),
        // nothing makes progress
        (&[Scheme::None][..], &[1 << 20][..], 2),
    ] {
        let study = Study {
            scenario: colony_survival::scenario::Scenario::default(),
            schemes: schemes.to_vec(),
            pes: sizes.to_vec(),
            runs: 10,
            map_pes: vec![1024, 2048, 1 << 20],
            map_mtbf_s: vec![0.1 * YEAR_S, YEAR_S, 20.0 * YEAR_S],
            map_runs: 5,
            as_good: 0.01,
            seed: 1,
        };
        let results = study.run(|| ()).expect("runs");
        let html = Survived { results: &results, command: HOSTILE }.page();
        assert!(!html.contains(HOSTILE));
        assert_draws(browser, dir.path(), &html, plots);
    }
}

#[test]
fn a_study_of_boot_times_draws_every_plot_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    // many sizes with intervals; one boot
    for (sizes_mib, repeat) in [(das_boot::SIZES.to_vec(), 3), (vec![4], 1)] {
        let plan = Plan { sizes_mib, repeat };
        let mut turn = 0;
        let mut boot = |_: das_boot::System, mib: u32| {
            turn += 1;
            let ns = u64::from(mib) * 10_000_000 + turn % 7 * 50_000_000 + 40_000_000;
            Ok(Boot { pushed_bytes: u64::from(mib) << 20, cpu_ns: ns, guest_ns: ns / 3 })
        };
        let curves = plan.curves(&mut boot, || ()).expect("boots");
        let results = das_boot::Results {
            schema: das_boot::Results::SCHEMA.into(),
            version: "1".into(),
            command: HOSTILE.into(),
            started_unix_s: 1_790_000_000,
            took_s: 1.0,
            plan,
            node: NodeRecord::now(),
            kernel: HOSTILE.into(),
            memory_mib: [1280, 512],
            published: das_boot::PUBLISHED.into(),
            curves,
        };
        let html = Booted { results: &results }.page();
        assert!(!html.contains(HOSTILE));
        assert_draws(browser, dir.path(), &html, 2);
    }
}

#[test]
fn a_study_of_io_scaling_draws_every_plot_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let folders = vec![dir.path().into()];
    let plan = io_scaling::Plan { folders, block_bytes: 1 << 20, ..io_scaling::Plan::default() };
    let places = plan.folders().expect("a folder");
    // service times as they are measured, and none at all
    for each_s in [5e-6, 0.0] {
        let mut job = |case: &io_scaling::Case| {
            let s = case.count as f64 * f64::from(case.nodes) * each_s;
            Ok(io_scaling::Used { wall_s: s, node_s: 9.0 * s, io_s: 2.0 * s })
        };
        let mut folders = plan.measure(&places, &mut job, || ()).expect("measured");
        folders[0].path = HOSTILE.into();
        let results = io_scaling::Results {
            schema: io_scaling::Results::SCHEMA.into(),
            version: "1".into(),
            command: HOSTILE.into(),
            started_unix_s: 1_790_000_000,
            took_s: 1.0,
            plan: plan.clone(),
            node: NodeRecord::now(),
            cpus: 2,
            published: io_scaling::PUBLISHED.map(io_scaling::Quoted::from).to_vec(),
            folders,
        };
        let html = Transferred { results: &results }.page();
        assert!(!html.contains(HOSTILE));
        assert_draws(browser, dir.path(), &html, 4);
    }
}

#[test]
fn a_study_of_sockets_draws_its_plot_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    for link_bytes_per_s in [Some(125e6), None] {
        let plan = io_sockets::Plan { link_bytes_per_s, ..io_sockets::Plan::default() };
        let mut job = |case: &io_sockets::Case| {
            let s = case.count as f64 * f64::from(case.nodes.unwrap_or(1)) * 3e-3;
            Ok(io_sockets::Used { wall_s: s, node_s: s, io_s: s, server_s: s })
        };
        let (references, measured) = plan.measure(&mut job, || ()).expect("measured");
        let results = io_sockets::Results {
            schema: io_sockets::Results::SCHEMA.into(),
            version: "1".into(),
            command: HOSTILE.into(),
            started_unix_s: 1_790_000_000,
            took_s: 1.0,
            compared: Vec::new(),
            plan,
            node: NodeRecord::now(),
            cpus: 2,
            references,
            measured,
        };
        let html = Streamed { results: &results }.page();
        assert!(!html.contains(HOSTILE));
        assert_draws(browser, dir.path(), &html, 1);
    }
}

#[test]
fn lines_beside_a_published_experiment_are_drawn_without_errors_or_requests() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let experiment = seeds::find("three-kernels").expect("there is one");
    let chart = |id: &str, quantity, nodes: &[u32]| Chart {
        id: id.into(),
        title: HOSTILE.into(),
        caption: HOSTILE.into(),
        quantity,
        nodes: nodes.to_vec(),
        lines: (1..8)
            .map(|i| Line { name: HOSTILE.into(), values: nodes.iter().map(|n| f64::from(n * i)).collect() })
            .collect(),
    };
    let charts =
        vec![chart("weak", Quantity::Ns, &[1024, 4096, 65_536]), chart("strong", Quantity::Times, &[64])];
    let outcome = seeds::Outcome {
        schema: seeds::Outcome::SCHEMA,
        name: experiment.name,
        rows: Vec::new(),
        charts,
        surfaces: Vec::new(),
    };
    let html = Beside { outcomes: &[(experiment, &outcome)], command: HOSTILE }.page();
    assert!(!html.contains(HOSTILE));
    assert_draws(browser, dir.path(), &html, 2);
}

/// The page of a small scenario with `more` in it.
fn simulated(more: &str) -> String {
    let noise =
        format!("noise = [{{ name = '{HOSTILE}', periodic = {{ every = \"1ms\", length = \"16us\" }} }}]");
    let scenario =
        Scenario::parse(&format!("program = {{ name = \"allreduce\", iterations = 20 }}\n{noise}\n{more}"));
    let scenario = scenario.expect("right");
    let points = scenario.points().expect("points");
    let mut results = Results::none_yet(scenario, &Traces::new());
    let finished = points.into_iter().map(|point| {
        let outcome = simulate(&point.simulation(&Traces::new()).expect("possible")).expect("runs");
        Finished { point, outcome }
    });
    results.points = finished.collect();
    let detour = colony_sim::noise::Detour { start_ns: 10, duration_ns: 20 };
    let schedule = Schedule {
        name: HOSTILE.into(),
        span_ns: 100,
        nodes: vec![vec![detour], Vec::new()],
        ranks_per_node: 1,
    };
    Simulated { results: &results, what: HOSTILE, command: HOSTILE, schedules: &[schedule] }
        .page()
        .expect("a page")
}

/// The page of the sample run with a hostile entry method and a hostile source of noise.
fn recorded(tracks: usize, noisy: bool) -> String {
    let ([a, b], rows) = sample::stencil();
    let t = a.merge(b).expect("one run");
    let mut names: Names = t.names().clone();
    names.entries[3].name = HOSTILE.into();
    let tracks = t.tracks().iter().take(tracks).cloned().collect();
    let t = Timeline::new(t.meta().clone(), t.processes().to_vec(), names, tracks).expect("a run");
    let (begin_ns, end_ns) = t.span();
    let mut noise = Noise::default();
    let hostile = rows.iter().map(|&(cpu, from, to, _)| (cpu, from, to, HOSTILE));
    noise.add(sample::HOST, colony_timeline::Observed { begin_ns, end_ns }, hostile);
    Recorded { timeline: &t, noise: noisy.then_some(&noise), command: HOSTILE }.page()
}

/// Uses the time lines by keys and buttons, and keeps what they show.
const DRIVE: &str = r#"<script>
addEventListener('load', () => {
  const canvas = document.querySelector('#timeline canvas');
  const key = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  const range = () => document.getElementById('range').textContent;
  const seen = [];
  const keep = () => seen.push(range());
  keep();
  for (const k of ['+', 'ArrowRight', 'Home']) { key(k); keep(); }
  key('ArrowDown'); key('n'); key('n');
  const first = document.getElementById('reading').textContent;
  key('p');
  const second = document.getElementById('reading').textContent;
  document.querySelector('[data-straggler]').click(); keep();
  document.body.dataset.ranges = seen.join('|');
  document.body.dataset.stepped = first !== second && /^PE [0-9]+ on sample/.test(first);
  document.body.dataset.straggler = document.getElementById('reading').textContent.replace(/[<>"]/g, '');
});
</script>"#;

#[test]
fn time_lines_are_drawn_and_used_by_keys() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    let html = recorded(4, true);
    assert!(!html.contains(HOSTILE) && !html.contains("<img"));
    // COLONY_KEEP_TIMELINE=FILE keeps it for a look
    if let Some(kept) = std::env::var_os("COLONY_KEEP_TIMELINE") {
        std::fs::write(kept, &html).expect("writable");
    }
    assert_draws(browser, dir.path(), &html, 4);
    let driven = dir.path().join("driven.html");
    std::fs::write(&driven, html.replace("</body>", &format!("{DRIVE}</body>"))).expect("writable");
    let (dom, log) = open(browser, &dir.path().join("keys"), &driven, &["--window-size=1280,900"]);
    let body = dom.split_once("<body").and_then(|(_, rest)| rest.split_once('>')).expect("a body").0;
    let field = |name: &str| {
        body.split_once(&format!("data-{name}=\"")).and_then(|(_, r)| r.split_once('"')).expect(name).0
    };
    let ranges: Vec<&str> = field("ranges").split('|').collect();
    assert_eq!(ranges.len(), 5, "{ranges:?}");
    assert!(
        ranges[1] != ranges[0] && ranges[2] != ranges[1] && ranges[3] == ranges[0] && ranges[4] != ranges[0],
        "{ranges:?}"
    );
    assert_eq!((field("stepped"), field("errors")), ("true", ""), "{body}");
    assert!(
        field("straggler").starts_with("PE 2 on sample") && field("straggler").contains("Detours meanwhile"),
        "{body}"
    );
    assert!(!log.contains("CONSOLE"), "{log}");
}

#[test]
fn a_run_of_nothing_and_one_without_noise_are_drawn() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().expect("temp dir");
    for (tracks, painted) in [(1, 4), (0, 4)] {
        let html = recorded(tracks, false);
        let page = dir.path().join("run.html");
        std::fs::write(&page, &html).expect("writable");
        let (dom, log) = open(browser, &dir.path().join("profile"), &page, &["--window-size=500,900"]);
        let body = dom.split_once("<body").and_then(|(_, rest)| rest.split_once('>')).expect("a body").0;
        assert!(
            body.contains("data-errors=\"\"") && body.contains(&format!("data-plots=\"{painted}\"")),
            "{body}"
        );
        assert!(!log.contains("CONSOLE"), "{log}");
    }
}

#[test]
fn the_report_refers_to_nothing_outside_and_hostile_names_stay_text() {
    let dir = tempfile::tempdir().expect("temp dir");
    let html = std::fs::read_to_string(report(dir.path())).expect("written");
    assert!(!html.contains(HOSTILE) && !html.contains("<img"));
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
    assert_eq!(html.matches("<script").count(), 3, "data, library, drawing");
    for attribute in ["src=\"http", "href=\"http", "src='http", "href='http", "url(http", "@import"] {
        assert!(!html.contains(attribute), "{attribute}");
    }
    // the data island alone: nothing in it can end it
    let data =
        html.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>")).expect("data").0;
    assert!(!data.contains('<'));
    let value: serde_json::Value = serde_json::from_str(data).expect("JSON");
    let named = value["noise"]["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .any(|s| s["source"] == format!("thread:{HOSTILE}"));
    assert!(named, "the name survives as data");
    assert!(html.len() < 1_600_000, "{} bytes", html.len());
}
