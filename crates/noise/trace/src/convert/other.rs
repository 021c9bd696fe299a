// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of other tools that hold no single detours, or that another program has to print or unpack first.

use super::wakeups;
use crate::trace::OtherFile;

/// How a kind of file begins, or a text in its first lines.
enum Mark {
    /// The file's first bytes.
    Magic(&'static [u8]),
    /// A line begins with this text, spaces before it left out.
    Line(&'static str),
    /// The text is somewhere in a comment, a line that begins with `#`.
    Comment(&'static str),
    /// The text is somewhere in another line.
    Text(&'static str),
}
use Mark::{Comment, Line, Magic, Text};

const RECORD: &str = "it holds no single detours. Record them: `colony measure`, or the kernel's tracepoints with `trace-cmd record -p \
                      osnoise -e osnoise` and `trace-cmd report > trace.txt`";
const WAKE_UPS: &str = "it holds how late threads woke up, and no detours: `colony noise show` shows histograms of it. Measure detours with \
                        `colony measure`, or record the tracepoints: `trace-cmd record -p osnoise -e osnoise`";
const TIMES_OF_MPI: &str =
    "it holds times of MPI operations, and no detours. Measure the nodes with `colony measure`";
const UNPACK: &str = "unpack it first. Files of gzip and zstd are read as they are";

/// Each kind, its marks and the remedy.
const KINDS: &[(&str, &[Mark], &str)] = &[
    (
        "a trace.dat of trace-cmd",
        &[Magic(b"\x17\x08\x44tracing")],
        "print its text: `trace-cmd report FILE > trace.txt`",
    ),
    (
        "a perf.data of perf",
        &[Magic(b"PERFILE2"), Magic(b"PERFFILE")],
        "print its text: `perf script -i FILE > trace.txt`",
    ),
    (
        "a trace of MPI calls in DUMPI",
        &[Magic(b"\xff\xaa\xddDUMPI")],
        "it holds no detours. `dumpi2ascii FILE` prints its calls; measure the nodes with `colony measure`",
    ),
    (
        "an OTF2 archive",
        &[
            Magic(b"\x03BOTF2"),
            Magic(b"\x03#OTF2"),
            // files of events and definitions: the number of their first event
            Magic(b"\x03B\x01\0\0\0\0\0\0\0"),
            Magic(b"\x03#\0\0\0\0\0\0\0\x01"),
        ],
        "it holds events of programs, and no detours. `otf2-print traces.otf2` prints them; measure the nodes with `colony measure`",
    ),
    ("text in UTF-16", &[Magic(b"\xff\xfe"), Magic(b"\xfe\xff")], "save it as UTF-8"),
    ("a file compressed with xz", &[Magic(b"\xfd7zXZ\0")], UNPACK),
    ("a file compressed with bzip2", &[Magic(b"BZh")], UNPACK),
    ("a file compressed with lz4", &[Magic(b"\x04\x22\x4d\x18")], UNPACK),
    ("a zip archive", &[Magic(b"PK\x03\x04")], UNPACK),
    ("an HDF5 file", &[Magic(b"\x89HDF\r\n\x1a\n")], "write the trace as Parquet or CSV"),
    ("an Arrow (Feather) file", &[Magic(b"ARROW1"), Magic(b"FEA1")], "write the trace as Parquet or CSV"),
    ("an SQLite database", &[Magic(b"SQLite format 3\0")], "write the trace as Parquet or CSV"),
    ("a program or an object file", &[Magic(b"\x7fELF")], "name the file with the trace"),
    (
        "a web page",
        &[Line("<!DOCTYPE html"), Line("<!doctype html"), Line("<html")],
        "download the file itself",
    ),
    ("a table of `rtla osnoise top`", &[Text("Operating System Noise")], RECORD),
    ("a table of `rtla hwnoise`", &[Text("Hardware-related Noise")], RECORD),
    ("a table of `rtla timerlat top`", &[Text("Timer Latency")], WAKE_UPS),
    ("a histogram of `rtla timerlat hist`", &[Line("# RTLA timerlat hist")], WAKE_UPS),
    ("a result of rtla", &[Line("# RTLA ")], RECORD),
    ("a result of oslat without its histogram", &[Line("oslat V"), Line("Version: oslat")], RECORD),
    (
        "a result of cyclictest",
        &[
            Line("# /dev/cpu_dma_latency"),
            Line("policy: fifo"),
            Line("policy: other"),
            Line("T: 0 ("),
            Line("# Histogram"),
        ],
        WAKE_UPS,
    ),
    (
        "a table of `perf sched timehist`",
        &[Text("wait time  sch delay   run time")],
        "print the events themselves: `perf script -F +cpu,+time > trace.txt`",
    ),
    ("a result of hwlatdetect", &[Line("hwlatdetect:")], RECORD),
    ("a result of sysjitter", &[Line("core_i:"), Line("threshold(ns):")], RECORD),
    ("a table of jHiccup or HdrHistogram", &[Text("TotalCount 1/(1-Percentile)")], RECORD),
    ("a result of the OSU benchmarks", &[Line("# OSU ")], TIMES_OF_MPI),
    (
        "a result of the Intel MPI benchmarks",
        &[Comment("Intel(R) MPI Benchmark"), Comment("Intel (R) MPI Benchmark"), Line("#bytes #repetitions")],
        TIMES_OF_MPI,
    ),
    (
        "a trace of MPI calls by liballprof",
        &[Line("MPI_Init:"), Line("# htor's PMPI Tracer"), Line("# alltrace")],
        "it holds no detours. Simulate the folder that has the files of all ranks: `colony sim --goal FOLDER`",
    ),
    ("a GOAL schedule", &[Line("num_ranks ")], "simulate it with `colony sim --goal FILE`"),
];

/// The kind of a file that begins with `head`, if it is one of these.
pub(super) fn of_content(head: &[u8], text: &str) -> Option<OtherFile> {
    let has = |mark: &Mark| match mark {
        Magic(magic) => head.starts_with(magic),
        Line(start) => text.lines().any(|line| line.trim_start().starts_with(start)),
        Comment(part) => text.lines().any(|line| line.starts_with('#') && line.contains(part)),
        Text(part) => text.lines().any(|line| !line.starts_with('#') && line.contains(part)),
    };
    let known = KINDS.iter().find(|(_, marks, _)| marks.iter().any(has));
    if let Some((what, _, remedy)) = known {
        return Some(OtherFile::new(*what, *remedy));
    }
    if wakeups::is_in(text) {
        return Some(OtherFile::new("a result of cyclictest", WAKE_UPS));
    }
    if let Some(tracer) = text.lines().find_map(|line| line.strip_prefix("# tracer: ")).map(str::trim) {
        let tracer: String = tracer.chars().take(40).collect();
        return Some(match tracer.as_str() {
            "timerlat" => OtherFile::new("text of the kernel's timerlat tracer", WAKE_UPS),
            "nop" | "osnoise" => OtherFile::new(
                "text of the kernel's tracer without an event that says what ran",
                "record the events osnoise, or sched_switch with irq, softirq and irq_vectors: `trace-cmd record -e sched_switch -e irq \
                 -e irq_vectors`",
            ),
            _ => OtherFile::new(format!("text of the kernel's tracer `{tracer}`"), RECORD),
        });
    }
    head.contains(&0).then(|| {
        OtherFile::new(
            "binary data of a kind that this version does not know",
            "write the trace as Parquet, or as text in one of the formats of `colony noise convert`",
        )
    })
}
