// SPDX-License-Identifier: MIT OR Apache-2.0
//! The seeds' numbers: the published value beside ours, by the simulator alone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};

use colony_study::results::{Basis, Published};
use colony_study::{Params, seeds};

use crate::fake::Fake;

mod fidelity;
mod figures;

/// Rows of an experiment, which is run once for all tests.
fn rows(name: &str) -> Vec<Published> {
    static RUNS: Mutex<BTreeMap<String, Arc<OnceLock<Vec<Published>>>>> = Mutex::new(BTreeMap::new());
    let run = Arc::clone(RUNS.lock().expect("no test panics here").entry(name.to_owned()).or_default());
    let rows = run.get_or_init(|| {
        let params = Params::default();
        let mut context = seeds::Context::new(&params, None, &());
        seeds::find(name).expect("there is one").run(&mut context).expect("runs").rows
    });
    rows.clone()
}

/// Our value in the row of `name` that begins so.
fn value(rows: &[Published], what: &str) -> f64 {
    let row = rows.iter().find(|r| r.what.starts_with(what)).unwrap_or_else(|| panic!("no row {what}"));
    row.value.expect("a value")
}

#[track_caller]
fn within(share: f64, ours: f64, published: f64) {
    assert!((ours / published - 1.0).abs() <= share, "ours {ours}, published {published}");
}

const US: f64 = 1e3;
const MS: f64 = 1e6;
const S: f64 = 1e9;

#[test]
fn anl_barrier_within_10_per_cent() {
    let r = rows("anl-barrier");
    within(0.01, value(&r, "512 nodes, no detours"), 1.0 * US);
    within(0.01, value(&r, "16384 nodes, no detours"), 1.3 * US);
    within(0.1, value(&r, "512 nodes, detours of 16 µs"), 18.5 * US);
    within(0.1, value(&r, "16384 nodes, detours of 16 µs"), 20.0 * US);
}

#[test]
fn anl_allreduce_within_10_per_cent() {
    let r = rows("anl-allreduce");
    within(0.01, value(&r, "512 nodes, no detours"), 8.3 * US);
    within(0.01, value(&r, "16384 nodes, no detours"), 11.6 * US);
    within(0.1, value(&r, "512 nodes, detours of 16 µs"), 43.0 * US);
    within(0.1, value(&r, "16384 nodes, detours of 16 µs"), 49.0 * US);
    within(0.1, value(&r, "512 nodes, detours of 200 µs"), 412.0 * US);
    within(0.1, value(&r, "16384 nodes, detours of 200 µs"), 417.0 * US);
}

#[test]
fn anl_user_defined_allreduce_within_10_per_cent() {
    let r = rows("anl-myallreduce");
    within(0.01, value(&r, "512 nodes, no detours"), 38.0 * US);
    within(0.01, value(&r, "16384 nodes, no detours"), 73.0 * US);
    within(0.1, value(&r, "512 nodes, detours of 16 µs"), 71.0 * US);
    within(0.1, value(&r, "16384 nodes, detours of 16 µs"), 121.0 * US);
}

#[test]
fn detours_delay_an_alltoall_the_less_the_more_nodes_it_has() {
    let r = rows("anl-alltoall");
    let ratio = |nodes| value(&r, &format!("{nodes} nodes, detours of 200 µs: over"));
    assert!(ratio(512) > ratio(4096) && ratio(4096) > ratio(16_384) && ratio(16_384) > 1.0, "{r:#?}");
}

#[test]
fn longer_detours_delay_a_reduction_longer_on_every_number_of_nodes() {
    let params = Params { projected_ops: 10, ..Params::default() };
    let experiment = seeds::find("anl-surface").expect("there is one");
    let outcome = experiment.run(&mut seeds::Context::new(&params, None, &())).expect("runs");
    let [network, software] = &outcome.surfaces[..] else { panic!("two reductions") };
    for surface in [network, software] {
        assert_eq!(surface.maps.iter().map(|m| m.nodes).collect::<Vec<_>>(), [512, 4096, 16_384]);
        for map in &surface.maps {
            assert_eq!(map.values.len(), surface.rows.len());
            for column in 0..surface.columns.len() {
                let values: Vec<Option<f64>> = map.values.iter().map(|row| row[column]).collect();
                let possible = values.iter().take_while(|v| v.is_some()).count();
                // a detour that is longer than the time between two cannot be
                assert!(possible >= 3 && values[possible..].iter().all(Option::is_none), "{values:?}");
                assert!(values[..possible].is_sorted() && values[0] >= Some(1.0), "{values:?}");
            }
        }
    }
    // each 10 ms, 16 µs: in the network all wait for the one that is in a detour
    let at = |s: &colony_study::chart::Surface| s.maps[2].values[1][3].expect("possible");
    assert!(at(network) > 2.0 * at(software), "{} and {}", at(network), at(software));
}

#[test]
fn anl_ring_by_arithmetic_and_by_simulation() {
    let r = rows("anl-ring");
    for (what, published) in [("10 µs", 2.0 * MS), ("100 ms", 20.0 * S)] {
        within(1e-9, value(&r, &format!("100 K processors, detours of {what}")), published);
        within(0.1, value(&r, &format!("100 K processors, detours of {what}, simulated")), published);
    }
}

#[test]
fn colony_21_per_cent_ruins_the_run_and_coordination_saves_it() {
    let r = rows("fig6");
    let unmodified = value(&r, "21 % noise, 8192 nodes, unmodified: run");
    within(0.05, unmodified, 3175.7 * S);
    within(0.15, value(&r, "21 % noise, 8192 nodes, coordinated: run"), 1.73 * S);
    within(0.15, value(&r, "21 % noise, 8192 nodes, coordinated: mean of runs"), 1.73 * S);
    within(0.15, value(&r, "shortest operation"), 4.0 * US);
    within(0.05, value(&r, "longest operation"), 9900.0 * US);
}

#[test]
fn colony_2_per_cent_costs_a_tenth() {
    for name in ["fig8", "fig9"] {
        let ratio = value(&rows(name), "2 % noise, 8192 nodes: unmodified over coordinated");
        // a tenth to an eighth of the unmodified run is saved
        assert!((0.10..=0.12).contains(&(1.0 - 1.0 / ratio)), "{ratio}");
    }
}

#[test]
fn colony_duty_cycle_gains_three_per_cent_a_step() {
    let r = rows("fig3");
    within(0.1, value(&r, "mean gain of the three steps"), 0.0333);
    assert!(value(&r, "duty cycle 0xfc000000") < 0.0026);
}

#[test]
fn two_checkpoints_of_the_table_predict_the_other_five() {
    let predicted = rows("checkpoint-table").into_iter().filter(|r| r.basis == Some(Basis::Predicted));
    let errors: Vec<f64> = predicted.filter_map(|r| r.error()).collect();
    assert_eq!(errors.len(), 5);
    assert!(errors.iter().all(|e| e.abs() < 0.1), "{errors:?}");
}

#[test]
fn a_log_of_messages_is_seen_where_tasks_compute_little() {
    let r = rows("message-logging");
    let took = |nodes: &str, near: &str, work: &str, log: &str| {
        value(&r, &format!("{nodes} nodes, neighbours {near}, {work}, {log}"))
    };
    for (near, nodes) in
        ["near", "anywhere"].iter().flat_map(|near| ["4096", "8192", "20,480"].map(|n| (near, n)))
    {
        // "the iteration time would be the same as the granularity"
        within(0.015, took(nodes, near, "10 ms", "pessimistic log"), 10.0 * MS);
        let more = |work, log| took(nodes, near, work, log) / took(nodes, near, work, "without a log") - 1.0;
        assert!(more("1 ms", "log of colony-runtime") < 0.04, "the target of colony-runtime");
        assert!(more("100 µs", "pessimistic log") > 3.0 * more("100 µs", "log of colony-runtime"));
        assert!(more("100 µs", "pessimistic log") > 50.0 * more("10 ms", "pessimistic log"));
    }
    // neighbours that are further apart on more nodes
    let far = |nodes| took(nodes, "anywhere", "100 µs", "pessimistic log");
    assert!(far("4096") < far("8192") && far("8192") < far("20,480"));
}

#[test]
fn a_domains_load_database_has_the_published_size_and_ours_is_smaller() {
    let r = rows("hybrid-lb");
    for (pes, published_mb) in [("4096", None), ("8192", Some(22.57)), ("16384", Some(22.63))] {
        let charm = value(&r, &format!("{pes} PEs, memory of the load balancer"));
        published_mb.into_iter().for_each(|mb| within(0.1, charm, mb * 1e6));
        let ours = value(&r, &format!("{pes} PEs, our load database on the fullest PE"));
        assert!(ours <= 2e6 && ours < charm, "{ours}");
        assert!(value(&r, &format!("{pes} PEs, central load database")) > 15.0 * ours);
        assert!(value(&r, &format!("{pes} PEs, imbalance after")) <= 1.01);
        // 1,024 messages of one PE are what takes the time, and their bytes decide how long
        let own = value(&r, &format!("{pes} PEs, multicast, each PE its own"));
        assert!(value(&r, &format!("{pes} PEs, multicast, each PE its domain's")) > 100.0 * own);
    }
}

#[test]
fn colony_coordination_costs_nothing_without_noise() {
    within(0.001, value(&rows("overhead"), "no noise, 16,384 nodes"), 1.0);
}

#[test]
fn colony_coordinated_runs_are_as_those_of_the_lightweight_kernel() {
    let r = rows("kernels");
    for nodes in ["1024", "2048", "4096", "8192", "16,384"] {
        let cnk = value(&r, &format!("CNK, {nodes} nodes"));
        within(0.01, value(&r, &format!("coordinated, 21 % noise, {nodes} nodes")), cnk);
        assert!(value(&r, &format!("Linux, 21 % noise, {nodes} nodes")) > 1000.0 * cnk);
    }
}

#[test]
fn colony_runs_grow_faster_than_the_noise() {
    let r = rows("beyond");
    let run = |percent: u32| value(&r, &format!("{percent} % noise, 8192 nodes, unmodified: run"));
    // what noise adds to the run without noise
    let added = |percent| run(percent) - 1.73 * S;
    assert!(added(5) / added(2) > 2.5 && run(10) / run(5) > 100.0);
    assert!([10, 15, 21, 25, 30, 35].windows(2).all(|p| run(p[1]) > run(p[0])));
    within(0.05, value(&r, "noise up to which the longest calculation ends"), 0.21);
    assert!(value(&r, "15 % noise: longest calculation over the daemon's turns") < 1.0);
}

#[test]
fn colony_glob_on_a_part_of_the_block_takes_longer_than_on_the_whole_block() {
    let r = rows("fig7");
    // by the collective network
    let whole = value(&r, "0 % noise, unmodified, 8192 nodes: run") / 500_000.0;
    for nodes in ["8", "32", "128", "512", "2048", "4096"] {
        let operation = |kernel: &str| value(&r, &format!("part of {nodes} nodes, {kernel}: operation"));
        assert!(operation("no noise") > whole);
        within(0.05, operation("21 % noise, coordinated"), operation("no noise"));
        assert!(operation("21 % noise, unmodified") > 3.0 * operation("no noise"), "{nodes}");
    }
}

/// The parameters behind all figures are those that fit half of them; the others were not used.
#[test]
fn colony_figures_of_one_half_follow_from_parameters_fitted_to_the_other() {
    let r = rows("daemons-begin");
    let of = |half: &str, what: &str| value(&r, &format!("fit to {half}: {what}"));
    let first = "Fig. 6 (3175.7 s) and Fig. 8 (1.1×)";
    // DAEMONS_BEGIN_NS and TICK_NS of the model
    assert_eq!(of(first, "begin of the daemons"), 340.0 * MS);
    assert_eq!(of(first, "time between two ticks"), 4.0 * MS);
    for predicted in ["Fig. 9 (1.12×), predicted: error", "Fig. 3 (3.33% a step), predicted: error"] {
        assert!(of(first, predicted).abs() < 0.05);
    }
    let second = "Fig. 9 (1.12×) and Fig. 3 (3.33% a step)";
    assert!(of(second, "Fig. 6 (3175.7 s), predicted: error").abs() < 0.15);
    assert!(of(second, "Fig. 8 (1.1×), predicted: error").abs() < 0.05);
}

#[test]
fn progress_report_only_uncoordinated_daemons_hurt() {
    let r = rows("bsp-noise");
    for nodes in [1, 4, 16, 64, 256, 1024, 4096] {
        let unit = if nodes == 1 { "node" } else { "nodes" };
        let run = |which: &str| value(&r, &format!("{which}, {nodes} {unit}:"));
        within(0.01, run("Linux, no daemon"), run("CNK"));
        within(0.01, run("Linux, daemons in phase"), run("CNK"));
        if nodes >= 256 {
            assert!(run("Linux, daemons out of phase") > 1.2 * run("CNK"), "{nodes}");
        }
    }
}

#[test]
fn jaguar_a_spare_core_gains_two_orders_of_magnitude() {
    let r = rows("jaguar-allreduce");
    let ratio = value(&r, "18,688 nodes, daemons of 10 ms");
    assert!((50.0..200.0).contains(&ratio), "{ratio}");
}

#[test]
fn jaguar_the_ocean_model_gains_tens_of_per_cent() {
    let r = rows("jaguar-pop");
    let gain = value(&r, "1024 nodes, steps of 100 ms and 100 passes");
    assert!((0.1..0.5).contains(&gain), "{gain}");
}

#[test]
fn a_benchmark_that_fails_leaves_the_simulated_rows_and_says_why() {
    let params = Params::default();
    let run = |fake: &mut Fake, params: &Params| {
        let mut context = seeds::Context::new(params, Some(fake), &());
        seeds::find("fig7").expect("there is one").run(&mut context).expect("rows").rows
    };
    let whole = run(&mut Fake::default(), &params);
    let broken = run(&mut Fake { broken: &["bench"], ..Fake::default() }, &params);
    let simulated = |rows: &[Published]| {
        rows.iter().filter(|r| !r.what.contains("on this node")).cloned().collect::<Vec<_>>()
    };
    assert!(!simulated(&whole).is_empty());
    assert_eq!(simulated(&broken), simulated(&whole));
    let of_node: Vec<&Published> = broken.iter().filter(|r| r.what.contains("on this node")).collect();
    assert!(!of_node.is_empty());
    for row in of_node {
        assert_eq!((row.ours.as_str(), row.value), ("–", None));
        assert!(row.note.contains("not measured") && row.note.contains("broken on purpose"), "{row:?}");
    }
    // one rank waits for nobody: its time is no allreduce
    let alone = run(&mut Fake::default(), &Params { ranks: 1, ..Params::default() });
    assert!(alone.iter().any(|r| r.what.contains("1 rank") && r.note.contains("not measured")), "{alone:?}");
    assert!(whole.iter().any(|r| r.what.contains("on this node") && r.what.contains("2 ranks")));
}
