// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulated jobs against formulas, and against each other.

use colony_survival::costs::Costs;
use colony_survival::formula;
use colony_survival::optimum::search;
use colony_survival::runs::{Refusal, Runs};
use colony_survival::scenario::{Ages, Replacement, Scenario};
use colony_survival::scheme::Scheme;

/// 64 nodes, a day of work, a failure each `hours` hours.
fn scenario(hours: f64) -> Scenario {
    let mut s = Scenario::default().on(4096);
    s.job.work_s = 86_400.0;
    s.with_mtbf(hours * 3600.0 * 64.0)
}

fn costs(s: &Scenario, scheme: Scheme) -> Costs {
    Costs::of(s, scheme).expect("the machine can run it")
}

/// Mean overhead of a scheme at an interval, and half the width of its interval.
fn time(s: &Scenario, scheme: Scheme, interval_s: f64, runs: u32, seed: u64) -> (f64, f64) {
    let mut all = Runs::new(s, runs, seed);
    let lives = all.lives(&costs(s, scheme), interval_s).expect("ends");
    let time = all.estimate(&lives, None).time;
    (time.mean, time.ci95.expect("many runs"))
}

#[test]
fn the_simulation_has_the_expected_time_of_exponential_failures() {
    for hours in [0.5, 2.0, 10.0, 100.0] {
        let s = scenario(hours);
        for scheme in [Scheme::Disk, Scheme::Double] {
            for interval_s in [120.0, 1000.0, 4567.0] {
                let exact = costs(&s, scheme).expected(&s, interval_s) - 1.0;
                let (mean, half) = time(&s, scheme, interval_s, 1000, 11);
                // losses of both copies are not in the formula, and below its interval here
                assert!(
                    (mean - exact).abs() < 1.5 * half,
                    "{hours} h, {scheme:?}, {interval_s}: {mean} ± {half}, {exact}"
                );
            }
        }
    }
}

#[test]
fn a_job_without_a_scheme_has_its_expected_time() {
    let s = scenario(24.0);
    let exact = costs(&s, Scheme::None).expected(&s, f64::INFINITY) - 1.0;
    let (mean, half) = time(&s, Scheme::None, f64::INFINITY, 4000, 2);
    assert!((mean - exact).abs() < 1.5 * half, "{mean} ± {half}, {exact}");
}

#[test]
fn intervals_cover_the_expected_time() {
    let s = scenario(4.0);
    let exact = costs(&s, Scheme::Disk).expected(&s, 700.0) - 1.0;
    let covers = |seed| {
        let (mean, half) = time(&s, Scheme::Disk, 700.0, 40, seed);
        (mean - exact).abs() <= half
    };
    let covered = (0..400).filter(|&seed| covers(seed)).count();
    // 95 % of 400 is 380, with a standard deviation of 4.4
    assert!((364..=396).contains(&covered), "{covered} of 400");
}

#[test]
fn the_simulated_optimum_is_near_dalys_if_failures_are_rare() {
    let mut s = scenario(6.0);
    s.job.work_s = 30.0 * 86_400.0;
    for scheme in [Scheme::Disk, Scheme::Double] {
        let costs = costs(&s, scheme);
        let daly_s = costs.daly_s(&s).expect("checkpoints");
        assert!(s.platform_mtbf_s() > 1000.0 * costs.checkpoint_s);
        // the search does not begin at the answer
        let optimum = search(&mut Runs::new(&s, 400, 5), &costs, 1.7 * daly_s).expect("ends");
        let off = optimum.interval_s / daly_s - 1.0;
        assert!(off.abs() < 0.05, "{scheme:?}: {} s, Daly {daly_s} s", optimum.interval_s);
        assert!(optimum.flat_s.0 <= daly_s * 1.2 && optimum.flat_s.1 >= daly_s / 1.2, "{optimum:?}");
    }
}

#[test]
fn dalys_interval_holds_where_checkpoints_are_long() {
    let mut s = scenario(1.0);
    s.machine.disk_bytes_per_s = 64.0 * 64e9 / 300.0; // five minutes
    s.job.work_s = 10.0 * 86_400.0;
    let costs = costs(&s, Scheme::Disk);
    let daly_s = costs.daly_s(&s).expect("checkpoints");
    let optimum = search(&mut Runs::new(&s, 400, 5), &costs, daly_s).expect("ends");
    assert!((optimum.interval_s / daly_s - 1.0).abs() < 0.08, "{} {daly_s}", optimum.interval_s);
    assert!(daly_s < 0.9 * formula::young(300.0, 3600.0), "Young's is too long");
}

#[test]
fn lives_of_shape_1_are_the_same_on_new_and_on_old_machines() {
    let old = scenario(2.0);
    let mut new = old.clone();
    new.failures.ages = Ages::New;
    let a = time(&old, Scheme::Double, 500.0, 50, 1);
    assert_eq!(a, time(&new, Scheme::Double, 500.0, 50, 1));
    // the other branch of the distribution goes over into it
    let mut near = old;
    near.failures.shape = 1.0 + 1e-9;
    assert!((time(&near, Scheme::Double, 500.0, 50, 1).0 - a.0).abs() < 1e-6);
}

#[test]
fn new_machines_with_early_deaths_cost_more_and_steady_ones_about_as_much() {
    let exponential = scenario(2.0);
    let mut steady = exponential.clone();
    steady.failures.shape = 0.7;
    let mut new = steady.clone();
    new.failures.ages = Ages::New;
    let of = |s| time(s, Scheme::Double, 300.0, 400, 3).0;
    let (e, s, n) = (of(&exponential), of(&steady), of(&new));
    assert!(n > 1.5 * e && (s / e - 1.0).abs() < 0.2, "{e} {s} {n}");
}

#[test]
fn more_failures_are_never_cheaper() {
    for scheme in Scheme::ALL {
        let mut last = -1.0;
        for hours in [500.0, 100.0, 40.0, 10.0, 3.0] {
            let (mean, _) = time(&scenario(hours), scheme, 600.0, 300, 8);
            assert!(mean >= last, "{scheme:?} at {hours} h: {mean} after {last}");
            last = mean;
        }
    }
}

#[test]
fn both_copies_are_lost_as_often_as_the_formula_says() {
    let mut s = scenario(0.2);
    s.failures.restart_s = 60.0;
    s.job.work_s = 4.0 * 3600.0;
    let costs = costs(&s, Scheme::DoubleDisk);
    let mut runs = Runs::new(&s, 4000, 4);
    let lives = runs.lives(&costs, 100.0).expect("ends");
    let lost = lives.iter().map(|l| l.both_lost).sum::<u64>() as f64;
    let wall_s: f64 = lives.iter().map(|l| l.wall_s).sum();
    let rate = -(-formula::both_lost(s.nodes(), s.failures.mtbf_s, costs.window_s, 1.0)).ln_1p();
    let expected = rate * wall_s;
    assert!(expected > 100.0 && (lost - expected).abs() < 4.0 * expected.sqrt(), "{lost}, {expected}");
}

#[test]
fn a_second_level_saves_what_the_loss_of_both_copies_costs() {
    let mut s = scenario(0.3);
    s.failures.restart_s = 120.0;
    s.job.work_s = 10.0 * 86_400.0;
    let of = |scheme| time(&s, scheme, 200.0, 100, 6).0;
    let (double, second) = (of(Scheme::Double), of(Scheme::DoubleDisk));
    assert!(second < 0.8 * double, "{second} {double}");
}

#[test]
fn a_prediction_of_nothing_is_the_plain_scheme_and_one_of_everything_loses_no_work() {
    let mut s = scenario(2.0);
    s.abilities.predicted = 0.0;
    assert_eq!(time(&s, Scheme::Evacuation, 400.0, 50, 1), time(&s, Scheme::Double, 400.0, 50, 1));
    (s.abilities.predicted, s.abilities.precision) = (1.0, 1.0);
    let evacuation = costs(&s, Scheme::Evacuation);
    let mut runs = Runs::new(&s, 100, 1);
    let lives = runs.lives(&evacuation, 1e9).expect("ends");
    let pause_s = evacuation.evacuation_s.expect("evacuates");
    for l in &lives {
        assert_eq!(l.failures, l.averted);
        assert!((l.wall_s - s.job.work_s - pause_s * l.averted as f64).abs() < 1e-3, "{l:?}");
    }
}

#[test]
fn replay_by_several_nodes_loses_less_time_and_much_less_energy() {
    let mut s = scenario(1.0);
    s.abilities.logging = 0.0;
    let figures = |scheme| {
        let mut runs = Runs::new(&s, 200, 7);
        let lives = runs.lives(&costs(&s, scheme), 1200.0).expect("ends");
        let e = runs.estimate(&lives, None);
        (e.time.mean, e.energy.mean)
    };
    let (double, logging) = (figures(Scheme::Double), figures(Scheme::Logging));
    assert!(logging.0 < 0.6 * double.0 && logging.1 < 0.6 * double.1, "{logging:?} {double:?}");
}

#[test]
fn nodes_that_go_on_alone_for_a_while_make_replay_cheaper() {
    let mut s = scenario(0.5);
    let bound = time(&s, Scheme::Logging, 600.0, 100, 7).0;
    s.abilities.independent_s = 10.0;
    assert!(time(&s, Scheme::Logging, 600.0, 100, 7).0 < bound);
}

#[test]
fn formulas_of_first_order_are_near_if_failures_are_rare() {
    let s = scenario(20.0);
    for scheme in [Scheme::Evacuation, Scheme::Logging] {
        let costs = costs(&s, scheme);
        let daly_s = costs.daly_s(&s).expect("checkpoints");
        let (mean, _) = time(&s, scheme, daly_s, 4000, 3);
        let formula = costs.expected(&s, daly_s) - 1.0;
        assert!((mean / formula - 1.0).abs() < 0.1, "{scheme:?}: {mean} {formula}");
    }
}

#[test]
fn a_job_without_spares_is_slower() {
    let spare = scenario(5.0);
    let mut shrink = spare.clone();
    shrink.failures.replacement = Replacement::Shrink;
    let of = |s| time(s, Scheme::Double, 600.0, 200, 3).0;
    // a fifth of a failure an hour, a day of repair: five of 64 nodes are away
    assert!(of(&shrink) > of(&spare) + 0.02, "{} {}", of(&shrink), of(&spare));
}

#[test]
fn time_is_computing_or_waiting() {
    let mut s = scenario(1.0);
    s.abilities.independent_s = 3.0;
    for scheme in Scheme::ALL.into_iter().skip(1) {
        let mut runs = Runs::new(&s, 20, 3);
        for l in runs.lives(&costs(&s, scheme), 500.0).expect("ends") {
            assert!((l.busy_s + l.idle_s - l.wall_s).abs() < 1e-6 * l.wall_s, "{scheme:?}: {l:?}");
            assert!(l.busy_s >= s.job.work_s - 1e-6 && l.idle_s >= 0.0, "{scheme:?}: {l:?}");
        }
    }
}

#[test]
fn no_progress_is_said_and_not_waited_for() {
    for (mtbf_s, shape) in [(1e-9, 1.0), (64.0, 1.0), (64.0, 0.3), (1e-9, 10.0)] {
        let mut s = scenario(1.0).with_mtbf(mtbf_s);
        s.failures.shape = shape;
        for scheme in Scheme::ALL {
            let costs = costs(&s, scheme);
            let around_s = costs.daly_s(&s).unwrap_or(f64::INFINITY);
            let refused = Runs::new(&s, 5, 1).lives(&costs, around_s);
            assert!(
                matches!(refused, Err(Refusal::NoProgress | Refusal::TooMany)),
                "{mtbf_s} {shape} {scheme:?}"
            );
            assert!(search(&mut Runs::new(&s, 5, 1), &costs, around_s.min(1e9)).is_err());
        }
    }
}

#[test]
fn one_seed_makes_one_result() {
    let s = scenario(2.0);
    assert_eq!(time(&s, Scheme::Evacuation, 300.0, 30, 1), time(&s, Scheme::Evacuation, 300.0, 30, 1));
    assert_ne!(time(&s, Scheme::Evacuation, 300.0, 30, 1), time(&s, Scheme::Evacuation, 300.0, 30, 2));
}
