// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrome traces of other tools: which rows are CPUs, pairs of events, and files of a tool that was killed.

use super::*;

const NAME_3: &str = r#"{"ph":"M","name":"thread_name","pid":1,"tid":77,"args":{"name":"CPU 3"}}"#;

fn rows(trace: &Trace) -> Vec<(u32, u16, i64, u64, String)> {
    let row =
        |d: &crate::trace::Detour| (d.node, d.cpu, d.start_ns, d.duration_ns, trace.source(d).to_string());
    trace.detours.iter().map(row).collect()
}

fn read(text: &str) -> Trace {
    parse(text.as_bytes(), Format::Chrome).expect(text)
}

fn error(text: &str) -> String {
    parse(text.as_bytes(), Format::Chrome).expect_err(text).to_string()
}

#[test]
fn the_name_of_a_thread_or_process_says_the_cpu() {
    for text in [
        format!(
            r#"[{{"ph":"M","name":"process_name","pid":1,"tid":"x","args":{{"a":[1]}}}},{NAME_3},{{"ph":"X","name":"irq:eth0","pid":1,"tid":77,"ts":1.5,"dur":2,"args":{{}}}}]"#
        ),
        format!(
            r#"{{"x":{{"y":[]}},"traceEvents":[{{"tid":"77","dur":2.000,"ts":15e-1,"ph":"X","pid":1,"name":"irq:eth0","cat":"q"}},{NAME_3}],"otherData":"none"}}"#
        ),
        r#"[{"ph":"X","name":"irq:eth0","pid":9,"tid":"worker","ts":1.5,"dur":2},
            {"ph":"M","name":"process_name","pid":9,"args":{"name":"cpu003"}}]"#
            .to_owned(),
    ] {
        let trace = read(&text);
        assert_eq!(rows(&trace), [(0, 3, 1500, 2000, "irq:eth0".into())]);
        assert_eq!(trace.meta.cpus.to_string(), "3");
    }
}

#[test]
fn a_thread_is_no_cpu() {
    let event = r#"{"ph":"X","name":"aten::add","pid":4711,"tid":4712,"ts":1,"dur":2}"#;
    let main = r#"{"ph":"M","name":"thread_name","pid":4711,"tid":4712,"args":{"name":"main"}}"#;
    let none = error(&format!("[{event},{main}]"));
    assert!(none.contains("thread 4712 `main` of process 4711") && none.contains("thread_name"), "{none}");
    // beside CPUs, its events are left out
    let on_cpu = r#"{"ph":"X","name":"nmi","pid":1,"tid":77,"ts":9,"dur":1}"#;
    let trace = read(&format!("[{event},{main},{on_cpu},{NAME_3}]"));
    assert_eq!(rows(&trace), [(0, 3, 9000, 1000, "nmi".into())]);
    let notes = trace.meta.notes.join("\n");
    assert!(notes.contains("1 of 2 events are of threads that are not named as CPUs"), "{notes}");
    // they say when the file was recorded
    assert_eq!((trace.meta.start_ns, trace.meta.observed_s), (1000, 9e-6));
}

#[test]
fn cpus_of_several_processes_are_those_of_nodes() {
    let cpu_0 = |pid: u32| {
        format!(
            r#"{{"ph":"M","name":"thread_name","pid":{pid},"tid":0,"args":{{"name":"CPU 0"}}}},{{"ph":"X","pid":{pid},"tid":0,"ts":1,"dur":2}}"#
        )
    };
    let trace = read(&format!("[{},{}]", cpu_0(5), cpu_0(7)));
    assert_eq!(trace.nodes(), [5, 7]);
    assert!(trace.meta.notes.iter().any(|note| note.contains("taken for nodes")), "{:?}", trace.meta.notes);
    let named = r#"{"ph":"M","name":"process_name","pid":7,"args":{"name":"Node 2"}}"#;
    assert_eq!(read(&format!("[{},{},{named}]", cpu_0(5), cpu_0(7))).nodes(), [0, 2]);
}

#[test]
fn pairs_of_events_and_nested_events_count_once() {
    let pair = |ph: &str, name: &str, ts: u32| {
        format!(r#"{{"ph":"{ph}","name":"{name}","pid":1,"tid":77,"ts":{ts}}}"#)
    };
    let events = [
        NAME_3.to_owned(),
        pair("E", "lost", 1),
        pair("B", "thread:worker", 2),
        pair("B", "irq:nic", 3),
        r#"{"ph":"X","name":"nmi","pid":1,"tid":77,"ts":4,"dur":1}"#.to_owned(),
        r#"{"ph":"E","pid":1,"tid":77,"ts":6}"#.to_owned(),
        pair("E", "thread:worker", 10),
        pair("B", "open", 11),
        r#"{"ph":"C","name":"counter","pid":1,"ts":21,"args":{"x":1}}"#.to_owned(),
    ];
    let trace = read(&format!("[{}]", events.join(",")));
    assert_eq!((trace.stolen_ns(), trace.meta.start_ns, trace.meta.observed_s), (8000, 1000, 20e-6));
    let of = |name: &str| rows(&trace).iter().filter(|row| row.4 == name).map(|row| row.3).sum::<u64>();
    assert_eq!([of("thread:worker"), of("irq:nic"), of("nmi")], [5000, 2000, 1000]);
    let notes = trace.meta.notes.join("\n");
    assert!(notes.contains("2 events lack their beginning or their end"), "{notes}");
}

#[test]
fn an_array_without_its_end_is_read() {
    let event = r#"{"ph":"X","name":"nmi","pid":1,"tid":77,"ts":9,"dur":1}"#;
    for end in ["", ",", ",\n", ",{\"ph\":\"X\",\"na", ",{\"ph\":\"B\""] {
        let trace = read(&format!("[{NAME_3},\n{event}{end}"));
        assert_eq!(trace.detours.len(), 1, "{end}");
        assert!(trace.meta.notes.join("\n").contains("without the closing `]`"), "{:?}", trace.meta.notes);
    }
    assert!(error(&format!("[{NAME_3},{event};")).contains("expected"), "damage is no end");
}

#[test]
fn a_trace_that_ends_in_the_middle_is_named_with_its_place() {
    let event = r#"{"ph":"X","name":"nmi","pid":1,"tid":77,"ts":9,"dur":1}"#;
    for (text, place, end) in [
        (format!("{{\"traceEvents\":[{NAME_3},\n{event}"), "line 2, column 55, after 2 whole events", "`]}`"),
        (
            format!("{{\"traceEvents\":[{NAME_3},\n{event},\n{{\"ph\":\"X"),
            "line 3, column 8, after 2",
            "`]}`",
        ),
        (
            format!("{{\"traceEvents\":[{NAME_3},{event}],\n\"otherData\":{{"),
            "line 2, column 13, after 2",
            "`]}`",
        ),
        ("[{\"ph\":\"X".to_owned(), "line 1, column 9, after 0", "`]`"),
    ] {
        let says = error(&text);
        assert!(says.contains("a Chrome trace that ends in the middle") && says.contains(place), "{says}");
        assert!(says.ends_with(&format!("end it behind its last whole event with {end}")), "{says}");
    }
    // the remedy works
    assert_eq!(read(&format!("{{\"traceEvents\":[{NAME_3},\n{event}]}}")).detours.len(), 1);
    let cut = error("{\"displayTimeUnit\":\"ns\",\"otherData\":{");
    assert!(cut.contains("no Chrome trace: EOF"), "without events nothing says that it is one: {cut}");
}

#[test]
fn files_with_loads_of_objects_are_named_with_the_command_that_reads_them() {
    let task = r#"{"entity":{"id":3,"home":0,"type":"object"},"node":0,"resource":"cpu","time":0.25}"#;
    let phases = format!(r#""phases":[{{"id":1,"tasks":[{task}]}}]"#);
    for text in [
        format!("{{{phases}}}"),
        format!(r#"{{"type":"LBDatafile",{phases}}}"#),
        format!(r#"{{"metadata":{{"rank":0,"type":"LBDatafile"}},{phases}}}"#),
        // cut off
        format!(r#"{{"metadata":{{"type":"LBDatafile"}},{}"#, &phases[..30]),
    ] {
        let says = error(&text);
        assert!(
            says.contains("a load file of DARMA/vt") && says.contains("`colony lb replay FOLDER`"),
            "{says}"
        );
    }
    let own = error(r#"{"schema":"colony.loads/1","objects":[]}"#);
    assert!(own.contains("a load file of Colony (`colony.loads/1`)"), "{own}");
    let other = error(r#"{"type":"FeatureCollection","phases":[]}"#);
    assert!(other.contains("no Chrome trace: the object has no `traceEvents`"), "{other}");
    let result = error(r#"{"schema":"colony.noise.show/1","meta":{}}"#);
    assert!(result.contains("a result of Colony (`colony.noise.show/1`)"), "{result}");
}

#[test]
fn the_length_and_the_cpus_may_be_stated() {
    let event = r#"{"ph":"X","name":"nmi","pid":1,"tid":77,"ts":9,"dur":1}"#;
    let stated = r#"{"observed_s":30,"cpus":"0-3","start_ns":"0","x":{}}"#;
    let trace = read(&format!("{{\"traceEvents\":[{NAME_3},{event}],\"otherData\":{stated}}}"));
    assert_eq!((trace.meta.cpus.to_string(), trace.meta.observed_s), ("0-3".into(), 30.0));
    assert_eq!(trace.meta.notes, Vec::<String>::new());
}
