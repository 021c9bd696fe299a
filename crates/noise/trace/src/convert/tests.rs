// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::trace::synthetic::{any_trace, sample};
use crate::trace::{Detour, Lane, TraceMeta};
use crate::{Class, Source};
use proptest::prelude::*;

fn bytes(trace: &Trace, format: Format) -> Result<Vec<u8>, TraceError> {
    let dir = tempfile::tempdir().expect("temp dir");
    let path = dir.path().join("trace");
    write(trace, &path, Some(format))?;
    Ok(std::fs::read(&path).expect("written"))
}

fn round_trip(trace: &Trace, format: Format) -> Trace {
    parse(&bytes(trace, format).expect("written"), format).expect("own file")
}

fn rows(trace: &Trace) -> Vec<(u16, i64, u64, String)> {
    trace.detours.iter().map(|d| (d.cpu, d.start_ns, d.duration_ns, trace.source(d).to_string())).collect()
}

/// The example of the kernel's documentation.
const KERNEL_EXAMPLE: &str = "\
# tracer: osnoise
       osnoise/8-961     [008] d.h.  5789.857532: irq_noise: local_timer:236 start 5789.857529929 duration 1845 ns
       osnoise/8-961     [008] dNh.  5789.858408: irq_noise: local_timer:236 start 5789.858404871 duration 2848 ns
     migration/8-54      [008] d...  5789.858413: thread_noise: migration/8:54 start 5789.858409300 duration 3068 ns
       osnoise/8-961     [008] ....  5789.858413: sample_threshold: start 5789.858404555 duration 8812 ns interferences 2
";

#[test]
fn the_kernels_own_example_is_understood() {
    let trace = parse(KERNEL_EXAMPLE.as_bytes(), Format::Osnoise).expect("kernel text");
    assert_eq!(
        rows(&trace),
        [
            (8, 5_789_857_529_929, 1845, "irq:local_timer".into()),
            (8, 5_789_858_404_555, 8812, "thread:migration/8".into()),
        ],
        "a sample takes its causes in and is named after the longest"
    );
}

#[test]
fn osnoise_lines_of_other_printers_are_understood() {
    let text = "\
irq_noise: eth0:35 start 1.000000001 duration 10 ns
softirq_noise:  NET_RX:3 start 2.0 duration 20 ns
osnoise/1   961 [001]  3.000001: osnoise:nmi_noise: start 3.000000000 duration 30 ns
 Web [2] irq-77 [002] d.h2. 4.5: thread_noise: Web [2] x:77 start 4.000000000 duration 40 ns
 osnoise/2-9 [002] ..... 5.5: sample_threshold: start 5.000000000 duration 50 ns interference 0
 osnoise/2-9 [002] ..... 6.5: 1000000 190 99.98100 9 18 0 1007 18 1
";
    let trace = parse(text.as_bytes(), Format::Osnoise).expect("osnoise text");
    let names: Vec<_> = rows(&trace).into_iter().map(|(cpu, _, ns, name)| (cpu, ns, name)).collect();
    let expected = [
        (0, 10, "irq:eth0"),
        (0, 20, "softirq:NET_RX"),
        (1, 30, "nmi"),
        (2, 40, "thread:Web [2] x"),
        (2, 50, "unexplained"),
    ];
    assert_eq!(names, expected.map(|(c, n, s)| (c, n, s.to_owned())));
}

#[test]
fn loggopsim_can_read_the_netgauge_text() {
    let trace = sample(200);
    let lane = Lane { node: 0, cpu: 1 };
    let mut one = Vec::new();
    netgauge::write(&trace, Some(lane), &mut one).expect("memory");
    let text = String::from_utf8(one.clone()).expect("text");
    assert!(text.lines().all(|l| l.len() < 1024), "LogGOPSim reads lines of up to 1023 bytes");
    assert!(!text.ends_with('\n'), "LogGOPSim would read a last empty line as a detour");
    let data: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(data.iter().all(|l| l.split('\t').filter(|f| f.parse::<u64>().is_ok()).count() == 2));
    let back = parse(&one, Format::Netgauge).expect("own file");
    let times = |t: &Trace| t.detours.iter().map(|d| (d.start_ns, d.duration_ns)).collect::<Vec<_>>();
    assert_eq!(times(&back), {
        let mut only = trace.clone();
        only.detours.retain(|d| d.lane() == lane);
        times(&only)
    });
    let merged = round_trip(&trace, Format::Netgauge);
    assert!(
        merged.meta.notes.iter().any(|note| note.contains("begin inside another row")),
        "{:?}",
        merged.meta.notes
    );
    assert!(merged.stolen_ns() < trace.stolen_ns(), "time of two CPUs that overlaps counts once");
    assert_eq!(back.meta.observed_s, trace.meta.observed_s);
}

#[test]
fn a_netgauge_file_of_netgauge_is_read() {
    let trace =
        parse(b"# Netgauge v2.4\n#\n1200.7\t350.2\n  5e3 1000\n\n", Format::Netgauge).expect("netgauge");
    assert_eq!(rows(&trace), [(0, 1201, 350, "unexplained".into()), (0, 5000, 1000, "unexplained".into())]);
}

#[test]
fn an_hdr_log_counts_every_detour() {
    use hdrhistogram::serialization::{Deserializer, interval_log::*};
    let trace = sample(5000);
    let log = bytes(&trace, Format::Hdr).expect("written");
    let mut count = 0;
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(i) = entry.expect("valid log") {
            let raw = base64_decode(i.encoded_histogram());
            let h: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut std::io::Cursor::new(raw)).expect("valid histogram");
            assert!(i.tag().is_some_and(|t| t.as_str().starts_with("node0-cpu")));
            count += h.len();
        }
    }
    assert_eq!(count, 5000);
    assert!(matches!(parse(&log, Format::Hdr), Err(Problem::WriteOnly)));
    assert_eq!(Format::of_content(&log), Some(Format::Hdr));
}

fn base64_decode(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let bits: Vec<u8> = text.bytes().filter(|&c| c != b'=').map(value).collect();
    bits.chunks(4)
        .flat_map(|c| {
            let word = c.iter().fold(0u32, |w, &v| w << 6 | u32::from(v)) << (6 * (4 - c.len()));
            word.to_be_bytes()[1..c.len()].to_vec()
        })
        .collect()
}

#[test]
fn content_and_name_identify_the_format() {
    let trace = sample(50);
    for format in Format::ALL {
        assert_eq!(format.name().parse(), Ok(format));
        if !format.is_written() {
            let error = bytes(&trace, format).expect_err("read only");
            assert!(error.is_wrong_use() && error.to_string().contains("not written"), "{error}");
            continue;
        }
        assert_eq!(Format::of_content(&bytes(&trace, format).expect("written")), Some(format));
    }
    let dir = tempfile::tempdir().expect("temp dir");
    for name in ["a.parquet", "a.csv", "a.txt", "a.osnoise", "a.json", "a.hlog"] {
        let path = dir.path().join(name);
        write(&trace, &path, None).expect(name);
        let found = read(&path, None).map(|trace| trace.detours.len());
        match name {
            "a.hlog" => assert!(found.is_err()),
            // two CPUs merged: detours of one are cut by those of the other
            "a.txt" => assert!(found.is_ok_and(|n| n >= 50)),
            _ => assert_eq!(found.expect(name), 50, "{name}"),
        }
    }
    let error = write(&trace, &dir.path().join("a.doc"), None).expect_err("no such format").to_string();
    assert!(error.contains("a.doc") && error.contains("netgauge"), "{error}");
    assert!("tar".parse::<Format>().is_err());
}

#[test]
fn an_error_in_a_file_names_the_place_and_the_fault() {
    let csv = "node,cpu,start_ns,duration_ns,source\n0,0,5,7,nmi\n0,0,5,x,nmi\n";
    for (format, text, says) in [
        (Format::Csv, csv, "line 3: `x` is no duration_ns"),
        (Format::Csv, "# a: b\nnode,cpu\n", "line 2: the header must name"),
        (Format::Csv, "start_ns,duration_ns\n1\n", "1 fields where the header has 2"),
        (Format::Csv, "start_ns,duration_ns\n", "no detour"),
        (Format::Csv, "start_ns,duration_ns,cpu\n1,2,60000\n", "CPU 60000 cannot be"),
        (Format::Csv, "# colony.meta: {\"schema\":\"colony.trace/7\"}\n", "colony.trace/7"),
        (
            Format::Csv,
            "# classes: {\"nmi\":\"moved\"}\nstart_ns,duration_ns\n1,2\n",
            "`local`, `irq`, `task`",
        ),
        (Format::Netgauge, "# x\n12\n", "line 2: expected `offset<TAB>duration`"),
        (Format::Netgauge, "12 -5\n", "line 1: a number is out of range"),
        (Format::Netgauge, "# only comments\n", "no detour"),
        (Format::Osnoise, "irq_noise: x:1 start 5 ns\n", "line 1: expected `start"),
        (Format::Osnoise, "# RTLA osnoise histogram\nIndex CPU-000\n", "holds no single detours"),
        (Format::Chrome, "{\"traceEvents\":[{\"ph\":\"X\",\"ts\":1}]}", "`dur`"),
        (Format::Chrome, "[{\"ph\":\"X\"", "ends in the middle, at line 1, column 10"),
        (Format::Chrome, "[]", "no detour"),
        (Format::Chrome, "17", "array of events"),
    ] {
        let error = parse(text.as_bytes(), format).expect_err(text).to_string();
        assert!(error.contains(says), "{format}: {text}: {error}");
    }
}

#[test]
fn a_trace_that_osnoise_text_cannot_hold_is_refused() {
    let mut trace = sample(3);
    trace.detours[0].start_ns = -1;
    assert!(bytes(&trace, Format::Osnoise).expect_err("before 1970").to_string().contains("1970"));
    let mut trace = sample(3);
    trace.detours[1].node = 9;
    assert!(bytes(&trace, Format::Osnoise).expect_err("two nodes").to_string().contains("one node"));
}

/// The network card's interrupt, bound to its CPU, and a thread.
fn with_classes() -> Trace {
    let sources = [Source::Irq("eth0".into()), Source::Thread("kworker/0:1".into())];
    let mut trace = sample(10);
    let meta = TraceMeta {
        classes: sources.iter().cloned().zip([Class::Local, Class::Task]).collect(),
        ..trace.meta.clone()
    };
    trace.detours.iter_mut().for_each(|d| d.source %= 2);
    Trace::from_parts(meta, sources.into(), trace.detours).expect("sources are there")
}

#[test]
fn a_file_holds_the_class_of_its_sources() {
    let trace = with_classes();
    let [eth0, kworker] = ["irq:eth0", "thread:kworker/0:1"].map(Source::from);
    for format in [Format::Parquet, Format::Csv, Format::Chrome, Format::Osnoise] {
        let back = round_trip(&trace, format);
        assert_eq!(back.meta.classes, trace.meta.classes, "{format}");
        assert_eq!((back.class(&eth0), back.class(&kworker)), (Class::Local, Class::Task), "{format}");
        let mut without = trace.clone();
        without.meta.classes.clear();
        let back = round_trip(&without, format);
        assert_eq!((back.class(&eth0), back.class(&kworker)), (Class::Irq, Class::Task), "{format}: by name");
    }
}

#[test]
fn csv_holds_the_classes_of_as_many_sources_as_a_trace_may_have() {
    let sources: Vec<Source> =
        (0..crate::MAX_SOURCES).map(|i| Source::Irq(format!("card-{i:020}"))).collect();
    let rows =
        (0..crate::MAX_SOURCES as u16).map(|source| Detour { start_ns: i64::from(source), source, ..ROW });
    let meta = TraceMeta {
        classes: sources.iter().map(|s| (s.clone(), Class::Local)).collect(),
        ..TraceMeta::default()
    };
    let trace = Trace::from_parts(meta, sources.clone(), rows.collect()).expect("sources are there");
    let text = bytes(&trace, Format::Csv).expect("written");
    assert!(text.split(|&b| b == b'\n').all(|line| line.len() < super::text::MAX_LINE / 2));
    assert_eq!(parse(&text, Format::Csv).expect("own file").meta.classes, trace.meta.classes);
}

const ROW: Detour = Detour { node: 0, cpu: 0, start_ns: 5, duration_ns: 7, source: 0 };

#[test]
fn text_of_other_tools_can_state_classes() {
    let csv =
        "# classes: {\"irq:eth0\":\"local\"}\nstart_ns,duration_ns,source\n5,7,irq:eth0\n9,7,irq:eth1\n";
    let trace = parse(csv.as_bytes(), Format::Csv).expect("sound");
    let classes = trace.sources.iter().map(|s| trace.class(s)).collect::<Vec<_>>();
    assert_eq!(classes, [Class::Local, Class::Irq]);
    let osnoise = format!("# classes: {{\"irq:local_timer\":\"task\"}}\n{KERNEL_EXAMPLE}");
    let trace = parse(osnoise.as_bytes(), Format::Osnoise).expect("sound");
    assert_eq!(trace.class(&Source::Irq("local_timer".into())), Class::Task);
    // a comment that only looks like one is none
    let comment = csv.replace("{\"irq:eth0\":\"local\"}", "two interrupts");
    assert!(parse(comment.as_bytes(), Format::Csv).expect("sound").meta.classes.is_empty());
}

prop_compose! {
    /// A trace osnoise text can hold.
    fn osnoise_trace()(
        rows in prop::collection::vec((0u16..8, 0i64..1 << 60, 0u64..1 << 40, 0u16..5), 0..100),
        names in prop::array::uniform3("[a-zA-Z0-9/_.-]{1,15}"),
    ) -> Trace {
        let [irq, softirq, thread] = names;
        let sources = vec![
            Source::Irq(irq), Source::Softirq(softirq), Source::Thread(thread), Source::Nmi, Source::Unexplained,
        ];
        let detours = rows.into_iter()
            .map(|(cpu, start_ns, duration_ns, source)| Detour { node: 0, cpu, start_ns, duration_ns, source });
        let mut detours: Vec<Detour> = detours.collect();
        detours.sort_by_key(|d| (d.start_ns, d.cpu, d.duration_ns));
        detours.dedup_by_key(|d| (d.start_ns, d.cpu));
        let meta = TraceMeta { cpus: (0..8).collect(), start_ns: 0, observed_s: 1.2e9, ..sample(1).meta };
        Trace::from_parts(meta, sources, detours).expect("sources are there")
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn csv_and_chrome_lose_nothing(trace in any_trace(100)) {
        prop_assert_eq!(&round_trip(&trace, Format::Csv), &trace);
        prop_assert_eq!(&round_trip(&trace, Format::Chrome), &trace);
    }

    #[test]
    fn osnoise_text_keeps_irqs_softirqs_threads_and_nmis(trace in osnoise_trace()) {
        prop_assert_eq!(round_trip(&trace, Format::Osnoise), trace);
    }

    #[test]
    fn netgauge_keeps_offsets_and_durations_of_detours_that_do_not_overlap(mut trace in any_trace(100)) {
        prop_assume!(!trace.detours.is_empty());
        let starts: Vec<i64> = trace.detours.iter().skip(1).map(|d| d.start_ns).chain([i64::MAX]).collect();
        for (detour, next_ns) in trace.detours.iter_mut().zip(starts) {
            detour.duration_ns = detour.duration_ns.min(next_ns.abs_diff(detour.start_ns));
        }
        let back = round_trip(&trace, Format::Netgauge);
        let times = |t: &Trace| {
            let mut v: Vec<_> = t.detours.iter().map(|d| (d.start_ns, d.duration_ns)).collect();
            v.sort_unstable();
            v
        };
        prop_assert_eq!(times(&back), times(&trace));
    }

    #[test]
    fn an_hdr_log_takes_every_trace(trace in any_trace(20)) {
        prop_assert!(bytes(&trace, Format::Hdr).is_ok());
    }
}

/// Pieces that valid files are made of: random text alone hardly gets past the first check.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "irq_noise: ",
            "softirq_noise: ",
            "thread_noise: ",
            "nmi_noise: ",
            "sample_threshold: ",
            "start ",
            " start ",
            "duration ",
            " ns",
            " interference ",
            "[008]",
            " 5789.857532: ",
            " 8d.h1. 100us+: ",
            "sched_switch: prev_comm=a prev_pid=1 ==> next_comm=b next_pid=2 ",
            "irq_handler_entry: irq=1 name=x",
            "irq_handler_exit: irq=1",
            "softirq_entry: vec=1 [action=TIMER]",
            "inner/outer(us): 1/2 ts:5.1 count:3",
            "CPU:1 [LOST 3 EVENTS]",
            "# tracer: ",
            "[",
            "]",
            ":",
            ",",
            "\t",
            "\n",
            "\"",
            "{",
            "}",
            "[{",
            "\"ph\":\"X\"",
            "\"traceEvents\":",
            "\"ts\":",
            "\"dur\":",
            "\"tid\":",
            "1e309",
            "-",
            ".",
            "#",
            "# colony.meta: {",
            "# start_ns: -9223372036854775808",
            "# classes: {",
            "start_ns,duration_ns\n",
            "node,cpu,",
            "é",
            "\u{0}",
        ])
        .prop_map(str::to_owned),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        ".{0,8}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn no_text_panics(text in pieces()) {
        for format in Format::ALL {
            fuzz_parse(text.as_bytes(), format);
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for format in Format::ALL {
            fuzz_parse(&bytes, format);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_file_never_panics(
        n in 1usize..40,
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        for format in Format::ALL {
            let Ok(mut file) = bytes(&sample(n), format) else { continue };
            for (at, value) in &edits {
                let at = at.index(file.len());
                file[at] = *value;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            fuzz_parse(&file, format);
        }
    }
}
