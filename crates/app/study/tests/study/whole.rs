// SPDX-License-Identifier: MIT OR Apache-2.0
//! A whole study on a made-up machine.

use colony_node::privilege::Privileges;
use colony_study::results::{Figure, SchedulerKind};
use colony_study::seeds::{self, Context, Method};
use colony_study::{Params, Results, StudyError, study, table};

use crate::fake::Fake;

fn quick() -> Params {
    Params { projected_ops: 100, nodes: vec![1024], published: false, faster: 100.0, ..Params::default() }
}

#[test]
fn a_study_keeps_everything_and_reads_back() {
    let params = Params { nodes: vec![16_384], ..quick() };
    let results = study::run(&params, &mut Fake::default(), &()).expect("nothing is missing");
    assert_eq!(results.allreduce.len(), 6);
    assert_eq!(table::rows(&results).len(), 6);
    assert!(
        results.headline.contains("16,384 nodes") && results.headline.contains("faster"),
        "{}",
        results.headline
    );
    let scaling = results.scaling.as_ref().expect("projected");
    for percent in [2.0, 21.0] {
        let point = |kind| scaling.curve(percent, kind).and_then(|c| c.at(16_384)).copied().expect("there");
        let (unmodified, coordinated) = (point(SchedulerKind::Unmodified), point(SchedulerKind::Coordinated));
        assert!(unmodified.mean_ns > 10.0 * coordinated.mean_ns);
        // only the level of the headline has intervals, which take as long as the points
        let ends = unmodified.low_ns.zip(unmodified.high_ns);
        assert_eq!(ends.is_some(), percent == 21.0);
        let mean = unmodified.mean_ns;
        assert!(ends.is_none_or(|(low, high)| low < mean && mean < high && high < 100.0 * low), "{ends:?}");
    }
    assert!(results.published.iter().all(|p| p.experiment != "fig6" || p.published == "–"), "one node");
    assert!(results.published.iter().any(|p| p.experiment == "fig6" && p.note.contains("measured")));

    let page = colony_study::report::page(&results);
    let (_, row) = page.split_once("<td>softirq:NET_RX</td>").expect("in the table of sources");
    let (row, _) = row.split_once("</tr>").expect("a row");
    assert!(row.contains(">900<") && row.contains(">not seen<") && !row.contains(">0<"), "{row}");

    let dir = tempfile::tempdir().expect("temp dir");
    let folder = dir.path().join("study");
    results.write(&folder).expect("writable");
    assert!(Results::read(&folder.join("results.json")).expect("ours") == results, "read back as written");
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).expect("there").map(|e| e.expect("readable").file_name()).collect();
    names.sort();
    assert_eq!(names, ["report.html", "results.json"], "nothing half-written stays");
}

#[test]
fn the_card_begins_the_report_and_leaves_out_what_the_study_started() {
    let results = study::run(&quick(), &mut Fake::default(), &()).expect("a study");
    let card = results.card.as_ref().expect("a card");
    let noise = card.doctor.noise.as_ref().expect("costed");
    assert!(noise.all.share > 0.0 && noise.nodes == 16_384 && card.attributed, "{noise:?}");
    assert_eq!(card.own.iter().map(|s| s.source.as_str()).collect::<Vec<_>>(), ["thread:sshd"]);
    assert!(!card.sources.is_empty() && card.sources.iter().all(|s| s.source != "thread:sshd"));
    assert!(card.doctor.findings.iter().all(|f| f.finding.id != "daemon:sshd"));
    let isolation = card.steps().next().map(|(finding, _)| finding.finding.id.as_str());
    assert!(isolation == Some("isolation") || card.stopped, "{:?}", card.doctor.sequence);
    let first = card.scaling.iter().find(|s| s.nodes == 16_384).expect("the most important first");
    assert!(first.alone.len() == card.sources.len() && first.all == noise.all);
    let page = colony_study::report::page(&results);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("On 16,384 nodes like this one") < place("id=\"changes\""));
    assert!(
        place("id=\"changes\"") < place("id=\"costs\"") && place("id=\"costs\"") < place("id=\"scaling\"")
    );
    let broken = study::run(&quick(), &mut Fake { broken: &["examine"], ..Fake::default() }, &());
    let broken = broken.expect("goes on");
    assert!(broken.card.is_none() && broken.not_done.iter().any(|l| l.starts_with("examine")));
}

#[test]
fn a_spare_core_stands_beside_the_windows_or_the_reason_why_it_was_not_measured() {
    let results = study::run(&quick(), &mut Fake::default(), &()).expect("a study");
    let line = table::spare_core_here(&results).expect("measured");
    assert!(
        line.contains("isolated cpuset partition") && line.contains("0.125 % of the time of CPU 1"),
        "{line}"
    );
    assert!(line.contains("4.25 % without"), "{line}");
    let page = colony_study::report::page(&results);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(
        place("Coordinated windows (") < place("A spare core (")
            && place("A spare core (") < place("id=\"changes\"")
    );
    let broken = study::run(&quick(), &mut Fake { broken: &["spare core"], ..Fake::default() }, &());
    let broken = broken.expect("goes on");
    assert!(table::spare_core_here(&broken).is_none());
    assert!(broken.not_done.iter().any(|l| l.starts_with("spare core")), "{:?}", broken.not_done);
}

#[test]
fn an_ordinary_user_gets_a_study_and_is_told_what_is_missing() {
    let privileges = Privileges { real_time: false, bpf: false, mount: false };
    let results =
        study::run(&quick(), &mut Fake { privileges, ..Fake::default() }, &()).expect("without privileges");
    assert_eq!(results.allreduce.len(), 3, "unmodified only");
    let card = results.card.as_ref().expect("costs need no privilege");
    assert!(card.worst().is_none() && card.doctor.noise.is_some());
    assert!(colony_study::report::page(&results).contains("sources were not attributed"));
    assert!(results.not_done.iter().any(|l| l.contains("CAP_SYS_NICE")), "{:?}", results.not_done);
    let scaling = results.scaling.as_ref().expect("projected");
    assert!(scaling.measured && scaling.curves.iter().all(|c| c.scheduler == SchedulerKind::Unmodified));
    let missing = table::missing(&results, &Figure::ALL);
    assert!(missing.iter().all(|l| l.contains("coordinated windows need")), "{missing:?}");
    let rows = table::rows(&results);
    assert!(rows.len() == 6 && rows[1][3] == "–" && rows[0][3] != "–", "{rows:?}");
}

#[test]
fn only_what_was_measured_is_in_the_headline() {
    let params = Params { nodes: vec![16_384], noise_percent: vec![21.0], ..quick() };
    let privileges = Privileges { real_time: false, bpf: false, mount: false };
    let run = |fake: Fake| study::run(&params, &mut { fake }, &()).expect("a study");
    let page = |results: &Results| {
        let page = colony_study::report::page(results);
        let (head, rest) = page.split_once("</header>").expect("a top");
        assert!(rest.contains("<main>"));
        head.split_once("<body>").expect("a body").1.to_owned()
    };
    let user = run(Fake { privileges, ..Fake::default() });
    assert!(user.headline.contains("as it is. What coordinated windows"), "{}", user.headline);
    assert!(!user.headline.contains("faster"), "{}", user.headline);
    assert!(page(&user).contains("coordinated windows were not measured") && !page(&user).contains(" → "));
    let broken = run(Fake { broken: &["noise", "detours", "bench"], ..Fake::default() });
    assert!(broken.headline.contains("Nothing could be measured"), "{}", broken.headline);
    assert!(!page(&broken).contains("projected to"));
}

#[test]
fn a_busy_node_is_told_first_and_waited_for_when_asked() {
    let params = Params { measure_s: 0.1, ..quick() };
    let busy =
        study::run(&params, &mut Fake { others: &[0.5, 0.6], ..Fake::default() }, &()).expect("a study");
    let warning = busy.neighbours.as_ref().and_then(|n| n.warning()).expect("busy");
    assert!(warning.contains("50 % (rustc 50 %) of the job's CPUs before"), "{warning}");
    assert!(warning.contains("60 % (rustc 60 %) while") && warning.contains("--wait-quiet"), "{warning}");
    let page = colony_study::report::page(&busy);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(place("class=\"busy\"") < place("<h1"), "told first");

    let params = Params { wait_quiet_s: 60.0, ..params };
    let mut fake = Fake { others: &[0.5, 0.5, 0.01], ..Fake::default() };
    let waited = study::run(&params, &mut fake, &()).expect("a study").neighbours.expect("told");
    assert!(waited.are_quiet() && waited.waited_s > 0.0 && waited.waited_s < 50.0, "{waited:?}");

    let params = Params { wait_quiet_s: 0.5, ..params };
    let mut fake = Fake { others: &[0.5], ..Fake::default() };
    let vain = study::run(&params, &mut fake, &()).expect("goes on").neighbours.expect("told");
    assert!(vain.warning().is_some_and(|w| w.contains("waited")), "{vain:?}");
}

#[test]
fn what_fails_is_said_and_the_rest_goes_on() {
    let mut fake = Fake { broken: &["noise", "detours", "bench"], ..Fake::default() };
    let results = study::run(&quick(), &mut fake, &()).expect("the projection is left");
    assert!(results.noise.is_none() && results.allreduce.is_empty());
    assert_eq!(results.not_done.iter().filter(|l| l.contains("broken on purpose")).count(), 1);
    // no figure of the documents stands in for what was not measured
    assert!(results.scaling.is_none() && results.published.is_empty());
    let rows = table::rows(&results);
    assert!(
        rows.len() == 6 && rows.iter().flat_map(|r| &r[2..7]).all(|value| value.contains('–')),
        "{rows:?}"
    );
    let missing = table::missing(&results, &Figure::ALL);
    assert_eq!(missing.len(), 2, "one line a reason: {missing:?}");
    assert!(missing[0].starts_with("– quiet, unmodified; quiet, coordinated; 2 % noise"), "{missing:?}");
}

#[test]
fn a_disturbed_figure_is_measured_again_and_struck_out_if_that_does_not_help() {
    // before the study, the node's noise, the first run twice, the others
    let mut fake = Fake { others: &[0.0, 0.01, 0.4, 0.0], ..Fake::default() };
    let again = study::run(&quick(), &mut fake, &()).expect("a study");
    assert!(again.missing.is_empty() && again.allreduce.len() == 6, "{:?}", again.missing);
    let load = again.allreduce[0].load.as_ref().expect("watched");
    assert_eq!(load.others, 0.0, "the quiet run counts");

    let mut fake = Fake { others: &[0.0, 0.01, 0.4], ..Fake::default() };
    let busy = study::run(&quick(), &mut fake, &()).expect("a study");
    assert!(busy.allreduce.is_empty() && busy.missing.iter().any(|m| m.noise_percent == 21.0));
    let line = table::missing(&busy, &Figure::ALL).concat();
    assert!(line.contains("40 % (rustc 40 %) of the job's CPUs meanwhile, 1 % while"), "{line}");
    assert!(!busy.headline.contains("faster"), "{}", busy.headline);
    assert!(
        colony_study::report::page(&busy).contains("the job&#39;s CPUs meanwhile") || busy.scaling.is_none()
    );

    // a node that is as busy as while its noise was measured has figures, below a warning
    let mut fake = Fake { others: &[0.3, 0.3], ..Fake::default() };
    let always = study::run(&quick(), &mut fake, &()).expect("a study");
    assert!(always.missing.is_empty() && always.neighbours.is_some_and(|n| n.warning().is_some()));
}

#[test]
fn no_gain_is_claimed_from_levels_that_contradict_each_other() {
    let params = Params { nodes: vec![16_384], ..quick() };
    let fake = || Fake { falls: true, ..Fake::default() };
    let results = study::run(&params, &mut fake(), &()).expect("a study");
    assert!(!results.headline.contains("faster"), "{}", results.headline);
    assert!(
        results.headline.contains("That is no measure of the gain: 2 % noise takes"),
        "{}",
        results.headline
    );
    let page = colony_study::report::page(&results);
    assert!(page.contains("the gain of windows is not known") && !page.contains(" → "));
    let published = results.published.iter().find(|p| p.experiment == "fig6").expect("measured");
    assert!(
        published.ours == "–" && published.value.is_none() && published.note.contains("no gain to claim")
    );
}

#[test]
fn wrong_parameters_and_foreign_files_are_refused() {
    let bad = Params { nodes: vec![0], ..quick() };
    assert!(matches!(study::run(&bad, &mut Fake::default(), &()), Err(StudyError::Params(_))));
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("results.json");
    for (text, says) in [
        ("", "EOF"),
        ("{}", "no schema"),
        (r#"{"schema":"colony.study/9"}"#, "colony.study/9"),
        (r#"{"schema":"colony.study/1"}"#, "missing field"),
    ] {
        std::fs::write(&path, text).expect("writable");
        let error = Results::read(&path).expect_err("refused").to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn every_experiment_runs_on_a_machine() {
    let params = quick();
    let mut node = Fake::default();
    // what needs a virtual node is run in one, where the command that goes into it is built
    for e in
        seeds::all().filter(|e| !matches!(e.method, Method::Virtual | Method::Compute | Method::ComputeNode))
    {
        let mut context = Context::new(&params, Some(&mut node), &());
        let outcome = e.run(&mut context).unwrap_or_else(|error| panic!("{}: {error}", e.name));
        assert!(outcome.rows.iter().all(|r| r.value.is_some_and(f64::is_finite)), "{outcome:?}");
    }
}
