// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs over a real MPI. They need the binary (feature `mpi`) and `mpirun`.

#[cfg(not(feature = "mpi"))]
#[test]
fn the_programs_are_tested_with_the_feature_mpi() {
    colony_testing::skip("built without the feature `mpi`");
}

#[cfg(feature = "mpi")]
mod with_mpi {
    use std::process::{Command, Output};
    use std::sync::{PoisonError, RwLockWriteGuard};
    use std::time::{Duration, Instant};

    use colony_bench::{
        BenchError, BenchResult, Detours, Distribution, Launch, Measurement, Params, Phase, Program,
    };
    use colony_time::{DutyCycle, Windows};

    const BENCH: &str = env!("CARGO_BIN_EXE_colony-bench");

    fn alone() -> RwLockWriteGuard<'static, ()> {
        crate::CPUS.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calling thread, and the ranks that it starts, have the highest weight until this is dropped. Without the privilege
    /// nothing changes.
    struct HighestWeight;

    impl HighestWeight {
        fn take() -> Self {
            let _ = colony_node::class::set_nice(0, -20);
            Self
        }
    }

    impl Drop for HighestWeight {
        fn drop(&mut self) {
            let _ = colony_node::class::set_nice(0, 0);
        }
    }

    fn small(program: Program, ops: u64) -> Params {
        let work_ns = if program == Program::Bsp { 20_000 } else { 0 };
        Params { ops: Some(ops), warmup: 5, work_ns, ..Params::new(program) }
    }

    /// The result, or `None` where there is no MPI here.
    fn result(params: Params, ranks: u32) -> Option<BenchResult> {
        let launch = Launch { timeout: Some(Duration::from_secs(120)), ..Launch::new(params, ranks) };
        match launch.run() {
            Err(e @ BenchError::NoMpi { .. }) => {
                colony_testing::skip(e);
                None
            }
            other => Some(other.expect("a launch of valid parameters works")),
        }
    }

    fn whole(result: &BenchResult) -> &Measurement {
        result.whole().expect("every run has a measurement")
    }

    /// Checks the relations that always hold between the numbers of a measurement.
    fn check(m: &Measurement, ops: u64) {
        assert_eq!(m.ops, ops, "every operation is counted");
        assert_eq!(m.all.count, ops * u64::from(m.ranks), "at every rank");
        assert_eq!(m.wrong, 0, "with the right values");
        assert_eq!(m.per_rank.len(), m.ranks as usize);
        assert!((0..m.ranks).eq(m.per_rank.iter().map(|r| r.rank)));
        let d: &Distribution = &m.all;
        let ascending = [d.min_ns, d.p50_ns, d.p99_ns, d.p999_ns, d.max_ns];
        // the extremes are whole nanoseconds, the mean is not rounded
        let (least_ns, most_ns) = (d.min_ns as f64 - 0.5, d.max_ns as f64 + 0.5);
        assert!(ascending.is_sorted() && least_ns <= d.mean_ns && d.mean_ns <= most_ns, "{d:?}");
        let sum_s = d.mean_ns * d.count as f64 / 1e9;
        let ranks_s: f64 = m.per_rank.iter().map(|r| r.seconds).sum();
        assert!(
            (sum_s - ranks_s).abs() < 1e-6 + 1e-6 * sum_s,
            "the operations fill the time: {sum_s} {ranks_s}"
        );
        let slowest_ns = m.slowest.first().expect("kept").duration_ns;
        assert!(slowest_ns.abs_diff(d.max_ns) <= 1, "{slowest_ns} {}", d.max_ns);
    }

    #[test]
    fn every_program_counts_every_operation_and_computes_rightly() {
        let _alone = alone();
        for program in Program::ALL {
            let params = small(program, 300);
            let Some(r) = result(params.clone(), 2) else { return };
            assert_eq!((&r.schema[..], r.ranks, &r.params), (BenchResult::SCHEMA, 2, &params));
            assert_eq!(r.results.len(), 1, "{program:?}");
            check(whole(&r), 300);
            assert_eq!(whole(&r).work.is_some(), program == Program::Bsp);
            assert!(!r.mpi.library.is_empty() && r.hosts.len() == 1);
        }
    }

    #[test]
    fn more_ranks_than_cpus_and_longer_vectors_still_compute_rightly() {
        let _alone = alone();
        for program in [Program::Myallreduce, Program::Allreduce, Program::Alltoall, Program::Ring] {
            let Some(r) = result(Params { bytes: 48_000, ..small(program, 20) }, 5) else { return };
            check(whole(&r), 20);
        }
    }

    #[test]
    fn glob_covers_every_power_of_two() {
        let _alone = alone();
        let Some(r) = result(small(Program::Glob, 40), 4) else { return };
        assert_eq!(r.results.iter().map(|m| m.ranks).collect::<Vec<_>>(), [2, 4]);
        r.results.iter().for_each(|m| check(m, 40));
    }

    #[test]
    fn windows_split_the_operations_and_the_timeline_holds_them() {
        let _alone = alone();
        let windows = Windows::new(2_000_000, DutyCycle::Ppm(500_000), 12_345).expect("valid");
        let params = Params {
            windows: Some(windows),
            timeline_ns: Some(1_000_000),
            slowest: 7,
            ..small(Program::Bsp, 500)
        };
        let Some(r) = result(params, 2) else { return };
        let m = whole(&r);
        check(m, 500);
        let (favored, regular) = (m.favored.as_ref().expect("asked"), m.regular.as_ref().expect("asked"));
        assert_eq!(favored.count + regular.count, m.all.count);
        assert!(favored.count > 0 && regular.count > 0, "500 operations of 20 us cross 2 ms windows");
        assert_eq!(m.slowest.len(), 7);
        let timeline = m.timeline.as_ref().expect("asked");
        assert!(timeline.buckets.is_sorted_by(|a, b| a.0 < b.0));
        assert!(timeline.buckets.iter().map(|b| b.1).sum::<u64>() >= 500, "of the rank with the most");
        assert_eq!(timeline.buckets.iter().map(|b| b.2).max(), Some(m.slowest[0].duration_ns));
    }

    fn with_detours(detours: Option<Detours>, seed: u64) -> Option<BenchResult> {
        let base = Params::new(Program::Allreduce);
        result(Params { ops: None, seconds: Some(0.6), detours, seed, ..base }, 2)
    }

    /// Sum of the operations that took at least `ns`.
    fn seconds_from(d: &Distribution, ns: u64) -> f64 {
        d.histogram_ns.iter().filter(|b| b.0 >= ns).map(|b| b.0 as f64 * b.1 as f64 / 1e9).sum()
    }

    #[test]
    fn detours_take_their_number_times_their_length() {
        let _alone = alone();
        let detours = Detours { length_ns: 500_000, every_ns: 1_000_000, phase: Phase::Aligned };
        let mut means = Vec::new();
        // the machine has noise of its own: the order is asked of the best of some tries
        for _ in 0..5 {
            let Some(quiet) = with_detours(None, 1) else { return };
            let noisy = with_detours(Some(detours), 1).expect("MPI was there before");
            assert!(whole(&quiet).per_rank.iter().all(|r| r.detours.is_none()));
            let m = whole(&noisy);
            let mut stolen_s = 0.0;
            for d in m.per_rank.iter().map(|r| r.detours.expect("asked")) {
                assert!(d.timed > 0 && d.ran >= d.timed, "{d:?}");
                assert!(
                    d.p50_ns >= 500_000 && d.mean_ns >= 500_000.0 && d.max_ns >= d.p50_ns,
                    "never shorter: {d:?}"
                );
                assert!(d.stolen_s >= d.timed as f64 * 500e-6 * 0.999, "{d:?}");
                stolen_s += d.stolen_s;
            }
            let slow_s = seconds_from(&m.all, 499_000);
            assert!(slow_s >= 0.98 * stolen_s, "each detour is inside one operation: {slow_s} {stolen_s}");
            means.push((whole(&quiet).all.mean_ns, m.all.mean_ns));
            if means.iter().any(|(quiet, noisy)| *noisy > 1.5 * quiet) {
                return;
            }
        }
        panic!("half of the time is stolen, and the mean operation does not show it: {means:?}");
    }

    #[test]
    fn aligned_detours_cost_fewer_operations_than_random_ones() {
        let _alone = alone();
        let _weight = HighestWeight::take();
        let detours = |phase| Detours { length_ns: 200_000, every_ns: 4_000_000, phase };
        let random = detours(Phase::Random);
        let apart = |seed| random.phase_ns(seed, 0).abs_diff(random.phase_ns(seed, 1));
        let seed = (1..).find(|&s| (1_000_000..3_000_000).contains(&apart(s))).expect("most seeds do");
        // Operations, of any rank, that a detour made slow. Those of 1 ms and more are left out: another task had the CPU for a
        // time slice.
        let per_detour = |r: &BenchResult| {
            let m = whole(r);
            let timed: u64 = m.per_rank.iter().filter_map(|r| r.detours).map(|d| d.timed).sum();
            (m.all.count_from(190_000) - m.all.count_from(1_000_000)) as f64 / timed as f64
        };
        let mut seen = Vec::new();
        for _ in 0..12 {
            let Some(aligned) = with_detours(Some(detours(Phase::Aligned)), seed) else { return };
            let random = with_detours(Some(random), seed).expect("MPI was there before");
            seen.push((per_detour(&aligned), per_detour(&random)));
            // without other noise it is 1 and 2
            if seen.iter().any(|(aligned, random)| *random > 1.3 * aligned) {
                return;
            }
        }
        panic!("slow operations a detour, aligned and random: {seen:?}");
    }

    #[test]
    fn a_run_by_time_ends_at_all_ranks_together() {
        let _alone = alone();
        let params = Params { ops: None, seconds: Some(0.3), ..Params::new(Program::Barrier) };
        let Some(r) = result(params, 2) else { return };
        let m = whole(&r);
        check(m, m.ops);
        assert!(m.seconds + m.excluded_s >= 0.25 && r.wall_s >= 0.3, "{} {}", m.seconds, m.excluded_s);
    }

    #[test]
    fn an_operation_costs_as_much_as_in_c() {
        let _alone = alone();
        let params = Params { compare_blocks: 51, compare_ops: 2000, ..small(Program::Allreduce, 10) };
        let mut ratios = Vec::new();
        // medians of short alternating blocks of one run; noise can still hit one loop more than the other
        for _ in 0..5 {
            let Some(r) = result(params.clone(), 2) else { return };
            let c = r.comparison.expect("asked");
            assert_eq!((c.blocks_ns.len(), c.ops), (51, 2000));
            assert!(c.blocks_ns.iter().flatten().all(|ns| *ns > 0.0));
            ratios.push(c.ratio);
            if c.ratio <= 1.05 {
                return;
            }
        }
        panic!("Rust over C, each the median of 51 blocks: {ratios:?}");
    }

    fn direct(args: &[&str]) -> Output {
        Command::new(BENCH).args(args).output().expect("the program was built")
    }

    #[test]
    fn wrong_use_is_exit_2_with_one_clear_line() {
        for (args, word) in [
            (&["allreduce", "--ops", "0"][..], "--ops"),
            (&["allreduce", "--detour", "2ms"], "shorter than its interval"),
            (&["barrier", "--bytes", "8"], "--bytes"),
            (&["barrier", "--cpus", "1000"], "no such CPU"),
            (&["barrier", "--nonsense"], "--nonsense"),
            (&["nothing"], "nothing"),
            (&["bsp", "--work", "1"], "unit"),
            (&[], "Usage"),
        ] {
            let output = direct(args);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
            assert!(said.contains(word), "{args:?}: {said}");
        }
        assert!(direct(&["--help"]).status.success());
    }

    #[test]
    fn an_error_of_many_ranks_is_printed_once() {
        let _alone = alone();
        let Ok(mut command) = Launch::new(small(Program::Ring, 10), 2).command() else {
            colony_testing::skip("no mpirun");
            return;
        };
        let output = command.arg("--nonsense").output().expect("mpirun");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert_eq!(said.matches("unexpected argument").count(), 1, "{said}");
    }

    #[test]
    fn the_result_file_is_whole_and_alone_and_the_table_is_printed() {
        let _alone = alone();
        let dir = tempfile::tempdir().expect("temp dir");
        let file = dir.path().join("r.json");
        let launch = Launch { out: Some(file.clone()), ..Launch::new(small(Program::Barrier, 100), 2) };
        let Ok(mut command) = launch.command() else {
            colony_testing::skip("no mpirun");
            return;
        };
        let output = command.output().expect("mpirun");
        let table = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && table.starts_with("barrier: 2 ranks"), "{table}");
        let read = BenchResult::read(&file).expect("written");
        assert_eq!(whole(&read).ops, 100);
        assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
        let nowhere =
            Launch { out: Some("/nowhere/r.json".into()), ..Launch::new(small(Program::Barrier, 5), 2) };
        let error = nowhere.run().expect_err("no such folder").to_string();
        assert!(error.contains("/nowhere/r.json"), "{error}");
    }

    /// Processes whose command line holds `mark`.
    fn processes(mark: &str) -> Vec<i32> {
        let pids = std::fs::read_dir("/proc")
            .expect("linux")
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(mark)
        })
        .collect()
    }

    fn until(condition: &str, done: impl Fn() -> bool) {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(30), "{condition} did not happen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn endless(seed: u64) -> (Launch, String) {
        let params = Params { ops: None, seconds: Some(600.0), seed, ..Params::new(Program::Barrier) };
        (Launch::new(params, 2), format!("--seed={seed}"))
    }

    #[test]
    fn a_timeout_leaves_no_rank_behind() {
        let _alone = alone();
        let (launch, mark) = endless(7_000_001);
        let launch = Launch { timeout: Some(Duration::from_secs(2)), ..launch };
        match launch.run() {
            Err(BenchError::NoMpi { .. }) => colony_testing::skip("no mpirun"),
            other => assert!(matches!(other, Err(BenchError::Timeout { .. })), "{other:?}"),
        }
        assert_eq!(processes(&mark), [] as [i32; 0]);
    }

    #[test]
    fn a_killed_launcher_leaves_no_rank_behind() {
        let _alone = alone();
        let (launch, mark) = endless(7_000_002);
        let Ok(mut command) = launch.command() else {
            colony_testing::skip("no mpirun");
            return;
        };
        // killed, Open MPI leaves its own session folder behind
        let dir = tempfile::tempdir().expect("temp dir");
        command.env("TMPDIR", dir.path()).stdout(std::process::Stdio::null());
        let mut mpirun = command.spawn().expect("mpirun");
        until("the start of both ranks", || processes(&mark).len() == 3);
        mpirun.kill().and_then(|()| mpirun.wait().map(drop)).expect("ours to kill");
        until("the end of both ranks", || processes(&mark).is_empty());
    }

    const HELPER: &str = "COLONY_BENCH_TEST_HELPER";

    /// Not a test of its own: the process that the next one kills.
    #[test]
    fn helper_that_runs_a_launch() {
        if std::env::var_os(HELPER).is_some() {
            let _ = endless(7_000_003).0.run();
        }
    }

    #[test]
    fn a_killed_caller_leaves_no_rank_behind() {
        let _alone = alone();
        let (launch, mark) = endless(7_000_003);
        if launch.command().is_err() {
            colony_testing::skip("no mpirun");
            return;
        }
        let mut helper = Command::new(std::env::current_exe().expect("running"))
            .args(["--exact", "programs::with_mpi::helper_that_runs_a_launch"])
            .env(HELPER, "1")
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("this program");
        until("the start of both ranks", || processes(&mark).len() == 3);
        helper.kill().and_then(|()| helper.wait().map(drop)).expect("ours to kill");
        until("the end of launcher and ranks", || processes(&mark).is_empty());
    }
}
