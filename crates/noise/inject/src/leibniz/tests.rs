// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

#[test]
fn the_series_tends_to_pi_in_any_number_of_steps() {
    let mut at_once = Calculation::default();
    at_once.advance(1_000_000);
    assert!((at_once.pi() - std::f64::consts::PI).abs() < 2e-6);
    let mut in_steps = Calculation::default();
    [1, 0, 999, 999_000].into_iter().for_each(|n| in_steps.advance(n));
    assert_eq!(in_steps.pi(), at_once.pi());
}

#[test]
fn twice_the_terms_take_about_twice_the_time() {
    // were the loop left out, both would take none
    let speed = terms_per_s();
    assert!(speed > 1e5 && speed < 1e11, "{speed}");
    let time = |terms| {
        let before = Clock::ThreadCpu.now_ns();
        assert!(calculate(terms, || false));
        (Clock::ThreadCpu.now_ns() - before) as f64
    };
    let terms = (speed / 100.0) as u64;
    let shortest = |terms| (0..5).map(|_| time(terms)).fold(f64::INFINITY, f64::min);
    let ratio = shortest(4 * terms) / shortest(terms);
    assert!((2.0..8.0).contains(&ratio), "{ratio}");
}

#[test]
fn the_published_anchor_is_the_prediction_at_its_speed() {
    let bgl = crate::noise_table::BGL_TERMS_PER_S;
    assert!((predicted_noise(5_900_000, bgl) - 0.21).abs() < 1e-4);
    // 10,000 µs of calculation are 2 %
    assert!((predicted_noise(2_001, 1e5) - 0.0202).abs() < 1e-9);
}

#[test]
fn shares_are_read_as_people_write_them() {
    assert_eq!(parse_noise("21%").expect("valid"), 0.21);
    assert_eq!(parse_noise(" 0.02 ").expect("valid"), 0.02);
    for text in ["", "%", "x", "0%", "-1%", "96%", "inf", "nan", "1e999%"] {
        assert!(parse_noise(text).is_err(), "{text}");
    }
}

#[test]
fn impossible_wishes_are_refused() {
    let wish = |amount| LeibnizPlan { amount, ..LeibnizPlan::default() };
    let plans = [
        wish(Amount::Noise(0.0)),
        wish(Amount::Noise(0.96)),
        wish(Amount::Noise(f64::NAN)),
        wish(Amount::MaxTerms(0)),
        wish(Amount::MaxTerms(u64::MAX)),
        LeibnizPlan { cpus: Some(CpuSet::default()), ..LeibnizPlan::default() },
        LeibnizPlan { duration_ns: 0, ..LeibnizPlan::default() },
    ];
    assert!(plans.iter().all(|p| p.run(&AtomicBool::new(false)).is_err()));
}

#[test]
fn daemons_draw_the_same_terms_for_the_same_seed_and_others_on_another_cpu() {
    let cpu = cpu::usable().expect("some").first().expect("one");
    let daemon = Daemon { cpu, max_terms: 10_000, sleep_ns: 0, end_ns: i64::MAX, calculations: 3 };
    let terms = |seed, cpu| {
        let done = std::thread::spawn(move || daemon.run(random_of(seed, 0, cpu), stop_never()));
        done.join().expect("no panic").expect("a usable CPU").terms
    };
    assert_eq!(terms(1, 0), terms(1, 0));
    assert_ne!(terms(1, 0), terms(1, 1));
    assert_ne!(terms(1, 0), terms(2, 0));
}

fn stop_never() -> Stop<'static> {
    static NEVER: AtomicBool = AtomicBool::new(false);
    Stop { asked: &NEVER, failed: &NEVER }
}

#[test]
fn more_noise_asked_for_is_more_noise_made() {
    let made = |noise| {
        let cpus = cpu::usable().expect("some").first().into_iter().collect();
        let plan = LeibnizPlan {
            amount: Amount::Noise(noise),
            cpus: Some(cpus),
            duration_ns: 1_200_000_000,
            ..LeibnizPlan::default()
        };
        let report = plan.run(&AtomicBool::new(false)).expect("possible");
        assert!(report.cpus[0].calculations > 0 && !report.stopped, "{report}");
        serde_json::to_string(&report).expect("serialisable");
        report.cpus[0].noise_long_run
    };
    assert!(made(0.2) > 2.0 * made(0.02));
}

#[test]
fn a_stop_ends_the_longest_calculation() {
    let plan =
        LeibnizPlan { amount: Amount::MaxTerms(MOST_TERMS), duration_ns: u64::MAX, ..LeibnizPlan::default() };
    let stop = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let running = scope.spawn(|| plan.run(&stop));
        std::thread::sleep(std::time::Duration::from_millis(300));
        stop.store(true, Ordering::Relaxed);
        running.join().expect("no panic").expect("possible")
    });
    assert!(report.stopped && report.cpus.iter().all(|c| c.calculations == 0), "{report}");
}

proptest! {
    #[test]
    fn terms_and_noise_are_each_others_reverse(noise in 0.001f64..0.95, speed in 1e6f64..1e10) {
        let back = predicted_noise(max_terms_for(noise, speed), speed);
        prop_assert!((back / noise - 1.0).abs() < 0.01, "{back}");
    }

    #[test]
    fn no_text_panics(text in ".{0,20}") {
        let _ = parse_noise(&text);
    }
}
