// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of other tools: which are read, which are refused, and the words of the errors.

use super::*;
use crate::Source;

/// Reads a file of this name with this content.
fn file(name: &str, content: &[u8]) -> Result<Trace, String> {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join(name);
    std::fs::write(&path, content).expect("written");
    read(&path, None).map_err(|e| e.to_string())
}

fn text(content: &str) -> Trace {
    file("trace.txt", content.as_bytes()).expect(content)
}

/// Length and count of the detours of each source, by name.
fn by_source(trace: &Trace) -> Vec<(String, usize, u64)> {
    let of = |source: &Source| trace.detours.iter().filter(|d| trace.source(d) == source).collect::<Vec<_>>();
    let sum = |source: &Source| of(source).iter().map(|d| d.duration_ns).sum();
    let mut sums: Vec<_> = trace.sources.iter().map(|s| (s.to_string(), of(s).len(), sum(s))).collect();
    sums.sort();
    sums
}

fn notes(trace: &Trace) -> String {
    trace.meta.notes.join("\n")
}

#[test]
fn the_idle_thread_is_no_noise() {
    let trace = text(
        "# tracer: osnoise
   app-900   [002] d..3. 50.000250: thread_noise: kworker/2:1:77 start 50.000100000 duration 40000 ns
<idle>-0     [002] d..3. 50.020000: thread_noise: swapper/2:0 start 50.001000000 duration 18990000 ns
<idle>-0     [003] d..3. 50.020000: thread_noise:  swapper:0 start 50.001000000 duration 18990000 ns
   app-900   [002] d..3. 50.030100: thread_noise: swapper/2:77 start 50.030000000 duration 50000 ns
",
    );
    let expected = [("thread:kworker/2:1", 1, 40_000), ("thread:swapper/2", 1, 50_000)];
    assert_eq!(by_source(&trace), expected.map(|(s, n, ns)| (s.to_owned(), n, ns)));
    assert_eq!(trace.meta.cpus.to_string(), "2-3", "an idle CPU was observed too");
}

/// Without the tracer's own workload, each thread that runs is in the file: the program too.
#[test]
fn the_program_of_an_osnoise_trace_of_all_threads_is_no_noise() {
    let line = |start_us: u32, name: &str, us: u32| {
        format!(
            "x-1 [000] d..3. 8.{start_us:06}: thread_noise: {name} start 8.{start_us:06}000 duration {us}000 ns\n"
        )
    };
    let all = [line(0, "app:9", 700), line(700, "swapper/0:0", 200), line(900, "sshd:7", 100)].concat();
    let trace = text(&format!("# tracer: osnoise\n{all}"));
    assert_eq!(by_source(&trace), [("thread:sshd".to_owned(), 1, 100_000)]);
    assert!(notes(&trace).contains("thread:app ran for 0.001 s on all CPUs together"), "{}", notes(&trace));
    // with the workload, a thread that takes most of the time is noise
    let sample =
        "osnoise/0-5 [000] d..3. 8.0011: sample_threshold: start 8.001 duration 50 ns interference 0\n";
    let trace = text(&format!("# tracer: osnoise\n{}{sample}", line(0, "hog:9", 900)));
    assert_eq!(by_source(&trace)[0], ("thread:hog".to_owned(), 1, 900_000));
    assert!(!notes(&trace).contains("it is taken for the program"), "{}", notes(&trace));
}

const SAMPLE: &str = "osnoise/0-900 [000] d..h2.. 10.1: sample_threshold: start 10.100000000 duration 3000 ns interference 0\n";

#[test]
fn lost_events_of_a_trace_are_counted() {
    for (mark, lost) in [
        ("# entries-in-buffer/entries-written: 40/6140   #P:1", 6100),
        ("CPU:0 [LOST 6100 EVENTS]", 6100),
        (
            "# entries-in-buffer/entries-written: 40/50   #P:1\nCPU:0 [LOST 70 EVENTS]\nCPU:1 [LOST 5 EVENTS]",
            75,
        ),
        ("CPU:1 [12 EVENTS DROPPED]", 12),
        ("# entries-in-buffer/entries-written: 40/40   #P:1", 0),
    ] {
        assert_eq!(text(&format!("# tracer: osnoise\n{mark}\n{SAMPLE}")).meta.lost_events, lost, "{mark}");
    }
    let unknown = text(&format!("CPU:1 [EVENTS DROPPED]\n{SAMPLE}"));
    assert!(notes(&unknown).contains("not how many"), "{}", notes(&unknown));
}

#[test]
fn the_tracers_periods_say_what_was_observed() {
    let period = |cpu: u32, end: &str, us: u32| {
        format!(" osnoise/{cpu}-9 [00{cpu}] ..... {end}: {us} 190 99.98100 9 18 0 1007 18 1\n")
    };
    let all =
        [period(0, "11.0", 1_000_000), period(1, "11.0", 1_000_000), period(0, "12.0", 1_000_000)].concat();
    let trace = text(&format!("# tracer: osnoise\n{SAMPLE}{all}"));
    assert_eq!((trace.meta.cpus.to_string(), trace.meta.observed_s), ("0-1".to_owned(), 2.0));
    assert_eq!(trace.meta.start_ns, 10_000_000_000);
    assert_eq!(notes(&trace), "");
    let half = [period(0, "11.0", 500_000), period(0, "12.0", 500_000)].concat();
    let trace = text(&format!("# tracer: osnoise\n{SAMPLE}{half}"));
    assert!(notes(&trace).contains("sampled each CPU for 1.000 s of 1.900 s"), "{}", notes(&trace));
}

#[test]
fn the_latency_format_names_the_cpu_before_the_flags() {
    let line = |cpu: u16| {
        format!(
            " osnoise/{cpu}-1020  {cpu:>3}d.h1. {cpu}1100us : irq_noise: local_timer:236 start 3801.{cpu:06}000 duration 2000 ns\n"
        )
    };
    let trace = text(&[0, 1, 103].map(line).concat());
    assert_eq!(trace.meta.cpus.to_string(), "0-1,103");
    let bare = text("irq_noise: eth0:35 start 1.000000001 duration 10 ns\n");
    assert!(notes(&bare).contains("1 lines do not name a CPU"), "{}", notes(&bare));
}

#[test]
fn tables_of_other_benchmarks_are_named() {
    for (content, what) in [
        (
            "# OSU MPI Allreduce Latency Test v7.4\n# Size Avg Latency(us)\n4 2.31\n8 2.33\n",
            "the OSU benchmarks",
        ),
        ("#    Intel(R) MPI Benchmarks 2021.8\n0 1000 0.5\n", "the Intel MPI benchmarks"),
        (
            "        Operating System Noise\nduration: 0 00:00:30\nCPU Period\n  1 #29 29000000 1250\n",
            "rtla osnoise top",
        ),
        (
            "# RTLA osnoise histogram\n# Time unit is microseconds (us)\nIndex CPU-000\n0 5\n",
            "how long it was measured",
        ),
        ("# RTLA timerlat histogram\nIndex IRQ-000 Thr-000\n0 5 6\n", "rtla timerlat hist"),
        ("oslat V 2.40\nTotal runtime: 30 seconds\n", "oslat without its histogram"),
        ("# /dev/cpu_dma_latency set to 0us\npolicy: fifo: loadavg: 0.00\n", "cyclictest"),
        ("hwlatdetect:  test duration 60 seconds\n   detector: tracer\n", "hwlatdetect"),
        (
            "           time    cpu  task name                       wait time  sch delay   run time\n",
            "`perf sched timehist`; print the events themselves: `perf script -F +cpu,+time",
        ),
        (
            "{\"cmdline\": \"cyclictest -q\", \"rt_test_version\": \"2.7\", \"thread\": {}}",
            "a result of cyclictest; it holds how late threads woke up, and no detours: `colony noise show`",
        ),
        ("core_i: 0 1\nthreshold(ns): 200 200\n", "sysjitter"),
        ("# tracer: function\n# x\n app-9 [000] d... 5.0: schedule <-x\n", "tracer `function`"),
        (
            "# tracer: timerlat\n app-9 [000] d.h1. 5.0: #1 context irq timer_latency 932 ns\n",
            "timerlat tracer",
        ),
        ("num_ranks 2\nrank 0 {\n}\n", "a GOAL schedule"),
        ("<!DOCTYPE html>\n<html>5 7</html>\n", "a web page"),
        ("0 100\n1 200\n2 300\n3 50\n", "would overlap"),
        ("0 3\n1000 5\n2000 4\n3000 9\n", "grows by one step"),
        ("50 3\n10 5\n", "decreases"),
        ("1 1.21\n2 1.20\n4 1.22\n8 1.22\n", "doubles"),
    ] {
        for name in ["a.txt", "a.dat", "a.trace", "a"] {
            let error = file(name, content.as_bytes()).expect_err(content);
            assert!(error.contains(what) && !error.contains("offset<TAB>"), "{content}: {error}");
        }
    }
    for (content, what) in [
        (&b"\x17\x08\x44tracing\0\0"[..], "trace-cmd report"),
        (b"PERFILE2\0\0", "perf script"),
        (b"\xff\xaa\xddDUMPI\0\0\0", "`dumpi2ascii FILE`"),
        (b"\x03BOTF2\0\x01", "an OTF2 archive; it holds events of programs, and no detours. `otf2-print"),
        (b"\x03B\x01\0\0\0\0\0\0\0\0", "an OTF2 archive"),
        (b"\x03#\0\0\0\0\0\0\0\x01\0", "an OTF2 archive"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x01\x02\0\x03", "binary data"),
        (b"", "the file is empty"),
        (b"Jan 5 message\n", "its first line is `Jan 5 message`"),
    ] {
        let error = file("a.dat", content).expect_err(what);
        assert!(error.contains(what) && !error.contains("offset<TAB>"), "{error}");
    }
}

#[test]
fn two_columns_without_a_header_are_read_with_a_note() {
    let trace = text("1200.7\t350.2\n5000\t1000\n");
    assert_eq!(trace.detours.len(), 2);
    assert!(notes(&trace).contains("no header says"), "{}", notes(&trace));
    let own = text("# noise trace: offset_ns duration_ns\n# observed_s: 1\n0\t100\n1\t200\n");
    assert_eq!((own.stolen_ns(), notes(&own).contains("no header")), (201, false), "{}", notes(&own));
}

#[test]
fn a_result_of_colony_that_is_no_trace_is_named() {
    let error = file("m.json", br#"{"schema":"colony.measure/1","cpus":[]}"#).expect_err("no trace");
    assert!(error.contains("colony.measure/1"), "{error}");
}

#[test]
fn time_in_rows_that_overlap_counts_once() {
    let trace = file(
        "in.csv",
        b"# observed_s: 0.00001\n# cpus: 0\ncpu,start_ns,duration_ns,source\n0,0,8000,thread:worker\n0,1000,4000,irq:nic\n\
          0,2000,3000,softirq:NET_RX\n",
    )
    .expect("rows");
    assert_eq!(trace.stolen_ns(), 8000);
    let expected = [("irq:nic", 1, 1000), ("softirq:NET_RX", 1, 3000), ("thread:worker", 2, 4000)];
    assert_eq!(by_source(&trace), expected.map(|(s, n, ns)| (s.to_owned(), n, ns)));
    assert_eq!(trace.meta.notes.len(), 1);
    assert!(notes(&trace).contains("2 of 3 rows begin inside another row"), "{}", notes(&trace));
}

#[test]
fn a_value_that_the_header_states_must_be_readable() {
    let error = file("in.csv", b"# observed_s: long\nstart_ns,duration_ns\n1,2\n").expect_err("no number");
    assert!(error.contains("`observed_s` is `long`"), "{error}");
}

/// What `sched_switch`, `irq` and `irq_vectors` say of CPU 3, as the `trace` file, trace-cmd and perf print it.
const SCHED: [&str; 3] = [
    "\
# tracer: nop
     app-900  [003] d...2 100.000000: sched_switch: prev_comm=init x prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=app next_pid=900 next_prio=120
     app-900  [003] d..h1 100.000100: local_timer_entry: vector=236
     app-900  [003] d..h1 100.000103: local_timer_exit: vector=236
     app-900  [003] d...2 100.000120: sched_switch: prev_comm=app prev_pid=900 prev_prio=120 prev_state=R+ ==> next_comm=kworker/3:1 next_pid=210 next_prio=120
 kworker/3:1-210 [003] d..h1 100.000130: irq_handler_entry: irq=35 name=PCIe PME, nic
 kworker/3:1-210 [003] d..h1 100.000134: irq_handler_exit: irq=35 ret=handled
 kworker/3:1-210 [003] d.s.1 100.000136: softirq_entry: vec=3 [action=NET_RX]
 kworker/3:1-210 [003] d.s.1 100.000138: softirq_exit: vec=3 [action=NET_RX]
 kworker/3:1-210 [003] d...2 100.000155: sched_switch: prev_comm=kworker/3:1 prev_pid=210 prev_prio=120 prev_state=I ==> next_comm=app next_pid=900 next_prio=120
     app-900  [003] d...2 100.001000: sched_switch: prev_comm=app prev_pid=900 prev_prio=120 prev_state=S ==> next_comm=swapper/3 next_pid=0 next_prio=120
  <idle>-0    [003] d...2 100.001500: sched_switch: prev_comm=swapper/3 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=app next_pid=900 next_prio=120
",
    "\
cpus=4
     app-900  [003] 100.000000: sched_switch:         init x:1 [120] S ==> app:900 [120]
     app-900  [003] 100.000100: local_timer_entry:    vector=236
     app-900  [003] 100.000103: local_timer_exit:     vector=236
     app-900  [003] 100.000120: sched_switch:         app:900 [120] R ==> kworker/3:1:210 [120]
 kworker/3:1-210 [003] 100.000130: irq_handler_entry: irq=35 name=PCIe PME, nic
 kworker/3:1-210 [003] 100.000134: irq_handler_exit:  irq=35 ret=handled
 kworker/3:1-210 [003] 100.000136: softirq_entry:     vec=3 [action=NET_RX]
 kworker/3:1-210 [003] 100.000138: softirq_exit:      vec=3 [action=NET_RX]
 kworker/3:1-210 [003] 100.000155: sched_switch:      kworker/3:1:210 [120] I ==> app:900 [120]
     app-900  [003] 100.001000: sched_switch:         app:900 [120] S ==> swapper/3:0 [120]
  <idle>-0    [003] 100.001500: sched_switch:         swapper/3:0 [120] R ==> app:900 [120]
",
    "\
app           900 [003]   100.000000: sched:sched_switch: prev_comm=init x prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=app next_pid=900 next_prio=120
app           900 [003]   100.000100: irq_vectors:local_timer_entry: vector=236
app           900 [003]   100.000103: irq_vectors:local_timer_exit: vector=236
app           900 [003]   100.000120: sched:sched_switch: prev_comm=app prev_pid=900 prev_prio=120 prev_state=R ==> next_comm=kworker/3:1 next_pid=210 next_prio=120
kworker/3:1   210 [003]   100.000130: irq:irq_handler_entry: irq=35 name=PCIe PME, nic
kworker/3:1   210 [003]   100.000134: irq:irq_handler_exit: irq=35 ret=handled
kworker/3:1   210 [003]   100.000136: irq:softirq_entry: vec=3 [action=NET_RX]
kworker/3:1   210 [003]   100.000138: irq:softirq_exit: vec=3 [action=NET_RX]
kworker/3:1   210 [003]   100.000155: sched:sched_switch: prev_comm=kworker/3:1 prev_pid=210 prev_prio=120 prev_state=I ==> next_comm=app next_pid=900 next_prio=120
app           900 [003]   100.001000: sched:sched_switch: prev_comm=app prev_pid=900 prev_prio=120 prev_state=S ==> next_comm=swapper/3 next_pid=0 next_prio=120
swapper         0 [003]   100.001500: sched:sched_switch: prev_comm=swapper/3 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=app next_pid=900 next_prio=120
",
];

#[test]
fn switches_and_interrupts_are_the_noise_beside_the_program() {
    let expected = [
        ("irq:PCIe PME, nic", 1, 4_000),
        ("irq:local_timer", 1, 3_000),
        ("softirq:NET_RX", 1, 2_000),
        ("thread:kworker/3:1", 3, 29_000),
    ];
    for printed in SCHED {
        let trace = text(printed);
        assert_eq!(by_source(&trace), expected.map(|(s, n, ns)| (s.to_owned(), n, ns)), "{printed}");
        // trace-cmd says how many CPUs there were
        let cpus = if printed.starts_with("cpus=4") { "0-3" } else { "3" };
        assert_eq!((trace.meta.cpus.to_string(), trace.meta.observed_s), (cpus.to_owned(), 0.0015));
        assert!(
            notes(&trace).contains("thread:app ran for 0.001 s on all CPUs together"),
            "{}",
            notes(&trace)
        );
        assert!(
            !notes(&trace).contains("inside another row"),
            "an interrupt of a thread needs no note: {}",
            notes(&trace)
        );
    }
}

/// A switch at `at` seconds on a CPU, from one thread to another, each `name:pid`.
fn switch(cpu: u16, at: f64, from: &str, to: &str) -> String {
    format!(" app-9 [{cpu:03}] d..2. {at:.6}: sched_switch: {from} [120] R ==> {to} [120]\n")
}

#[test]
fn the_program_of_a_cpu_with_few_switches_ran_since_the_trace_began() {
    let quiet = [
        switch(0, 100.0, "swapper/0:0", "sshd:5"),
        switch(0, 100.001, "sshd:5", "swapper/0:0"),
        switch(3, 170.0, "app:9", "kworker/3:1:77"),
        switch(3, 170.001, "kworker/3:1:77", "app:9"),
        switch(0, 200.0, "swapper/0:0", "sshd:5"),
    ]
    .concat();
    let trace = text(&quiet);
    let expected = [("thread:kworker/3:1", 1, 1_000_000), ("thread:sshd", 1, 1_000_000)];
    assert_eq!(by_source(&trace), expected.map(|(s, n, ns)| (s.to_owned(), n, ns)));
    // if the beginning was overwritten, the time before a CPU's first event is not known
    let trace = text(&format!("# entries-in-buffer/entries-written: 5/900   #P:4\n{quiet}"));
    assert_eq!(by_source(&trace), expected.map(|(s, n, ns)| (s.to_owned(), n, ns)));
    assert!(notes(&trace).contains("thread:app ran for 29.999 s"), "{}", notes(&trace));
}

#[test]
fn a_program_that_migrates_is_no_noise_on_any_cpu() {
    let slice = |cpu: u16| {
        let at = 10.0 + f64::from(cpu);
        let idle = format!("swapper/{cpu}:0");
        [switch(cpu, at, &idle, "app:9"), switch(cpu, at + 1.0, "app:9", &idle)].concat()
    };
    let all: String = (0..4).map(slice).collect();
    let trace = text(&format!("{all}{}", switch(0, 13.5, "swapper/0:0", "sshd:5")));
    assert_eq!(by_source(&trace), [("thread:sshd".to_owned(), 1, 500_000_000)]);
    let rare = [switch(0, 1.0, "swapper/0:0", "sshd:5"), switch(0, 1.1, "sshd:5", "swapper/0:0")].concat();
    let trace = text(&format!("{rare}{}", switch(0, 9.0, "swapper/0:0", "sshd:5")));
    assert!(notes(&trace).contains("every thread is taken for noise"), "{}", notes(&trace));
}

#[test]
fn what_ran_while_events_were_lost_is_not_known() {
    let irq = |at: f64, what: &str| format!(" app-9 [003] d..2. {at:.6}: {what}\n");
    let lost = "CPU:3 [LOST 400 EVENTS]\n";
    let program = [switch(3, 100.0, "swapper/3:0", "app:9"), switch(3, 110.0, "app:9", "swapper/3:0")];
    for between in [
        format!(
            "{}{lost}{}",
            irq(101.0, "irq_handler_entry: irq=24 name=eth0"),
            irq(105.0, "irq_handler_exit: irq=24 ret=handled")
        ),
        format!(
            "{}{}",
            irq(101.0, "irq_handler_entry: irq=24 name=eth0"),
            irq(105.0, "irq_handler_exit: irq=30 ret=handled")
        ),
        format!(
            "{}{}",
            irq(101.0, "softirq_entry: vec=1 [action=TIMER]"),
            irq(105.0, "softirq_exit: vec=9 [action=RCU]")
        ),
        format!(
            "{}{}",
            irq(101.0, "irq_handler_entry: irq=24 name=eth0"),
            irq(105.0, "local_timer_exit: vector=236")
        ),
        format!("{}{lost}{}", switch(3, 101.0, "app:9", "sshd:5"), switch(3, 104.9, "sshd:5", "app:9")),
    ] {
        let trace = text(&[&program[0], between.as_str(), &program[1]].concat());
        assert_eq!(trace.stolen_ns(), 0, "{between}{:?}", by_source(&trace));
        assert!(notes(&trace).contains("beginning or"), "{}", notes(&trace));
    }
}

#[test]
fn names_of_threads_may_look_like_anything() {
    let names = ["a==>b", "Web [2]", "x: sched_switch: ", "y_entry: vector=1", "a ==> b"];
    for name in names {
        let trace = text(
            &[
                switch(0, 1.0, "app:9", &format!("{name}:7")),
                switch(0, 1.5, &format!("{name}:7"), "app:9"),
                switch(0, 9.0, "app:9", "app:8"),
            ]
            .concat(),
        );
        assert_eq!(by_source(&trace), [(format!("thread:{name}"), 1, 500_000_000)]);
        let long = format!(
            "{name}-7 [000] d..2. 1.0: sched_switch: prev_comm=app prev_pid=9 prev_prio=120 prev_state=R ==> next_comm={name} next_pid=7 next_prio=120\n\
             {name}-7 [000] d..2. 1.5: sched_switch: prev_comm={name} prev_pid=7 prev_prio=120 prev_state=R ==> next_comm=app next_pid=9 next_prio=120\n{}",
            switch(0, 9.0, "app:9", "app:8")
        );
        assert_eq!(by_source(&text(&long)), [(format!("thread:{name}"), 1, 500_000_000)], "{long}");
    }
}

#[test]
fn cpus_that_were_traced_and_are_empty_were_observed() {
    let trace = text(&format!("CPU 1 is empty\nCPU 2 is empty\n{}", SCHED[1]));
    assert_eq!(trace.meta.cpus.to_string(), "0-3", "of four, CPU 0 has no line");
    let kernel = text(&format!("# entries-in-buffer/entries-written: 11/11   #P:4\n{}", SCHED[0]));
    assert_eq!(kernel.meta.cpus.to_string(), "0-3");
    assert!(
        notes(&kernel).contains("CPUs 0-2, which have no event, were observed too"),
        "{}",
        notes(&kernel)
    );
}

#[test]
fn traces_of_two_machines_in_one_text_are_refused() {
    let of = |machine: &str| {
        SCHED[1].lines().skip(1).map(|line| format!("{machine:>12}: {line}\n")).collect::<String>()
    };
    let error =
        file("a.txt", [of("host.dat"), of("guest.dat")].concat().as_bytes()).expect_err("two machines");
    assert!(error.contains("several traces (guest.dat, host.dat)"), "{error}");
    // names of other widths, and with a blank
    let unlike = of("host.dat").replace("    host.dat:", "host:")
        + &of("guest.dat").replace("guest.dat:", "vm 1.dat:");
    let error = file("a.txt", unlike.as_bytes()).expect_err("two machines").to_string();
    assert!(error.contains("vm 1.dat"), "{error}");
    assert_eq!(by_source(&text(&of("guest.dat"))), by_source(&text(SCHED[1])), "the lines of one are read");
}

#[test]
fn no_words_in_comments_or_rows_decide_against_a_header() {
    let csv = "# events irq_noise: and thread_noise: only, as # RTLA osnoise hist\n# Operating System Noise\n\
               start_ns,duration_ns,source\n5,7,thread:perf: local_timer_entry: vector=1\n9,7,other:inner/outer(us): x\n";
    assert_eq!(text(csv).detours.len(), 2);
    let netgauge = "# noise trace: offset_ns duration_ns\n# from rtla, irq_noise: only\n5\t7\n";
    assert_eq!(text(netgauge).detours.len(), 1);
    let marked =
        format!("{} app-9 [003] d..2. 100.0002: tracing_mark_write: my irq_noise: marker\n", SCHED[0]);
    assert_eq!(text(&marked).detours.len(), 6);
    let bracket = "[003]   100.000000: sched:sched_switch: a:9 [120] R ==> b:1 [120]\n";
    assert_eq!(text(bracket).meta.cpus.to_string(), "3");
    assert!(
        file("a.txt", b"[    0.000000] Linux version 6.1\n")
            .expect_err("dmesg")
            .contains("first line is `[    0.0")
    );
}

#[test]
fn osnoise_rows_never_take_more_than_all_of_a_cpu() {
    let row = |at: u32, us: u32| {
        format!(
            "osnoise/0-5 [000] d.h. {}.0: irq_noise: a:5 start {at}.000000000 duration {us}000 ns\n",
            at + 1
        )
    };
    let rows = [row(10, 800_000), row(11, 700_000)].concat();
    let once = text(&rows);
    let twice = text(&format!("{rows}{rows}"));
    assert_eq!(twice.detours, once.detours);
    assert!(notes(&twice).contains("2 of 4 rows are copies"), "{}", notes(&twice));
    let other = [row(10, 700_000), row(11, 900_000)].concat();
    let error = file("a.txt", format!("{rows}{other}").as_bytes()).expect_err("two nodes");
    assert!(error.contains("the detours of CPU 0 take 3.1 s of"), "{error}");
    let early = "osnoise/0-5 [000] d.h. 10.000399: irq_noise: a:5 start 10.000199000 duration 199000 ns\n\
                 osnoise/0-5 [000] .... 10.000400: sample_threshold: start 10.000200000 duration 200000 ns interference 1\n";
    assert_eq!(by_source(&text(early)), [("irq:a".to_owned(), 1, 200_000)]);
}

#[test]
fn every_line_of_a_trace_says_how_long_it_is() {
    let timerlat =
        |n: u32| format!("timerlat/0-7 [000] ..... {}.0: #{n} context irq timer_latency 932 ns\n", 53 + n);
    let irq =
        "timerlat/0-7 [000] d.h.. 54.000100: irq_noise: local_timer:236 start 54.000099000 duration 900 ns\n";
    let trace = text(&format!("# tracer: timerlat\n{}{irq}{}", timerlat(1), timerlat(2)));
    assert_eq!((trace.meta.observed_s, trace.detours.len()), (1.0, 1));
    // a trace on another clock than the tracer's
    let trace =
        text(&format!("{}{irq}", timerlat(2).replace("55.0", "99955.0")).replace(" 54.000100", " 99954.5"));
    assert_eq!(trace.meta.observed_s, 0.0000009);
}

#[test]
fn the_header_of_a_csv_file_may_follow_a_mark_or_an_empty_line() {
    let rows = "# observed_s: 30\n# cpus: 0-3\ncpu,start_ns,duration_ns\n0,5,7\n";
    for before in ["", "\u{feff}", "\n", "\r\n"] {
        let trace = file("a.csv", format!("{before}{rows}").as_bytes()).expect("rows");
        assert_eq!(
            (trace.meta.cpus.to_string(), trace.meta.observed_s),
            ("0-3".to_owned(), 30.0),
            "{before:?}"
        );
    }
    let long = format!("# observed_s: 1e30\n{}", "cpu,start_ns,duration_ns\n9,5000,100\n");
    assert_eq!(file("a.csv", long.as_bytes()).expect("a long time").detours.len(), 1);
}

#[test]
fn columns_may_lie_between_semicolons_or_tabs() {
    let rows = "# observed_s: 30\ncpu,start_ns,duration_ns,source\n3,5,7,irq:a\n";
    for between in [";", "\t"] {
        let trace = file("a.csv", rows.replace(',', between).as_bytes()).expect("rows");
        let d = trace.detours[0];
        assert_eq!(
            (d.cpu, d.start_ns, d.duration_ns, trace.sources[0].to_string()),
            (3, 5, 7, "irq:a".into())
        );
    }
}

#[test]
fn a_spreadsheet_may_state_its_delimiter_above_the_header() {
    let rows = "# observed_s: 30\ncpu,start_ns,duration_ns,source\n3,5,7,irq:a,b\n";
    let semicolons = rows.replace(",b", " b").replace(',', ";").replace(" b", ",b");
    for text in [
        format!("sep=;\n{semicolons}"),
        format!("\u{feff}sep=;\r\n{semicolons}"),
        format!("# x\nsep=;\n{semicolons}"),
    ] {
        let trace = file("a.csv", text.as_bytes()).expect(&text);
        assert_eq!((trace.detours[0].duration_ns, trace.meta.observed_s), (7, 30.0));
        assert_eq!(trace.sources[0].to_string(), "irq:a,b");
    }
    let bar = file("a.csv", b"sep=|\ncpu|start_ns|duration_ns\n1|2|3\n").expect_err("a bar").to_string();
    assert!(bar.contains("line 1: the line `sep=|` states a delimiter that is not read"), "{bar}");
    let wrong = file("a.csv", b"sep=;\nstart_ns;duration_ns\n1;x\n").expect_err("no number").to_string();
    assert!(wrong.contains("line 3: `x` is no duration_ns"), "{wrong}");
}

#[test]
fn a_column_that_is_there_twice_is_refused_with_both_numbers() {
    let text = b"# a\ncpu,start_ns,duration_ns,node, start_ns\n1,2,3,0,9\n";
    let twice = file("a.csv", text).expect_err("twice").to_string();
    assert!(twice.contains("line 2: columns 2 and 5 are both named `start_ns`"), "{twice}");
    let other = b"cpu,start_ns,duration_ns,note,note\n1,2,3,x,y\n";
    assert_eq!(file("a.csv", other).expect("columns that are not read").detours.len(), 1);
}

#[test]
fn summaries_of_the_osnoise_tracer_are_named_with_the_way_to_detours() {
    let header = "# tracer: osnoise\n#\n#           TASK-PID      CPU# ||||   TIMESTAMP    IN US           IN US  AVAILABLE  IN US     HW    NMI    IRQ   SIRQ THREAD\n";
    let line = "       <...>-859     [000] ....    81.637220: 1000000        190  99.98100       9     18      0   1007     18     1\n";
    let report = "       osnoise/0-859   [000]    81.637220: osnoise:              noise:190\tmax_sample:9\thw:18\tnmi:0\tirq:1007\tsoftirq:18\tthread:1\n";
    for text in [format!("{header}{line}"), line.to_owned(), report.to_owned(), format!("cpus=8\n{report}")] {
        for error in [
            file("a.txt", text.as_bytes()).expect_err("no detours").to_string(),
            super::parse(text.as_bytes(), super::Format::Osnoise).expect_err("no detours").to_string(),
        ] {
            assert!(
                error.contains("this is the osnoise tracer's summary of each period")
                    && error.contains("-e osnoise"),
                "{error}"
            );
        }
    }
}

#[test]
fn interrupts_between_processors_of_arm_are_read_by_their_names() {
    let lines = "app-900  [003] d..h1 100.000100: ipi_entry: (Rescheduling interrupts)\n\
                 app-900  [003] d..h1 100.000103: ipi_exit: (Rescheduling interrupts)\n\
                 app-900  [003] d..h1 100.000200: ipi_entry: (Function call interrupts)\n\
                 app-900  [003] d..h1 100.000207: ipi_exit: (Function call interrupts)\n";
    let trace = text(lines);
    let lengths: Vec<(String, u64)> = trace
        .detours
        .iter()
        .map(|d| (trace.sources[usize::from(d.source)].to_string(), d.duration_ns / 1000))
        .collect();
    let expected = [("irq:Rescheduling interrupts", 3), ("irq:Function call interrupts", 7)];
    assert_eq!(lengths, expected.map(|(name, us)| (name.to_owned(), us)));
}

#[test]
fn traces_of_mpi_calls_are_named_with_the_way_to_a_schedule() {
    let calls = b"MPI_Init:1254762342.1:-:1254762343.2\nMPI_Comm_rank:12:0:0:13\n";
    let error = file("trace.0", calls).expect_err("no detours").to_string();
    assert!(error.contains("colony sim --goal FOLDER"), "{error}");
}

#[test]
fn intervals_without_a_beginning_or_an_end_are_left_out_and_counted() {
    let lines: Vec<&str> = SCHED[1].lines().collect();
    // without the switch to kworker, the exit of the timer and the entry of the softirq
    let without = |line: &usize| ![3, 4, 7].contains(line);
    let rest: Vec<&str> = (0..lines.len()).filter(without).map(|i| lines[i]).collect();
    let trace = text(&format!("{}\nCPU:3 [LOST 3 EVENTS]\n", rest.join("\n")));
    assert_eq!(by_source(&trace), [("irq:PCIe PME, nic".to_owned(), 1, 4_000)]);
    assert!(notes(&trace).contains("4 intervals of threads and interrupts lack"), "{}", notes(&trace));
    assert_eq!(trace.meta.lost_events, 3);
}

#[test]
fn a_line_without_cpu_or_instant_is_refused() {
    let error = file("t.txt", b" app-9 3d..2. 100us : sched_switch: a:9 [120] R ==> b:1 [120]\n")
        .expect_err("latency");
    assert!(error.contains("line 1: the line must name its CPU and its instant"), "{error}");
}

#[test]
fn the_hwlat_tracer_is_read() {
    let trace = text(
        "# tracer: hwlat
           <...>-1729  [001] d....   678.473449: #1     inner/outer(us):   11/12    ts:1700000483.343962693 count:6
           <...>-1729  [004] d....   689.556542: #2     inner/outer(us):   16/9     ts:1700000494.889008092
",
    );
    let rows: Vec<_> = trace.detours.iter().map(|d| (d.cpu, d.start_ns, d.duration_ns)).collect();
    assert_eq!(rows, [(1, 1_700_000_483_343_962_693, 12_000), (4, 1_700_000_494_889_008_092, 16_000)]);
    assert_eq!((trace.meta.dropped, trace.sources[0].to_string()), (5, "hardware".to_owned()));
    assert!(notes(&trace).contains("one CPU at a time"), "{}", notes(&trace));
}

#[test]
fn compressed_files_of_any_tool_are_read() {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(SCHED[0].as_bytes()).expect("memory");
    let trace = file("trace.gz", &gzip.finish().expect("memory")).expect("unpacked");
    assert_eq!(trace.detours.len(), 6);
    let mut parquet = Vec::new();
    parquet::write(&trace, &mut parquet).expect("memory");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let packed = ruzstd::encoding::compress_to_vec(&parquet[..], level);
    assert!(file("trace.parquet.zst", &packed).expect_err("packed").contains("unpack it first"));
}
