// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of pandas, polars and DuckDB, as these tools write them.

use crate::trace::{Problem, Trace};

fn file(name: &str) -> Result<Trace, Problem> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/trace/parquet/files");
    super::read(std::fs::File::open(format!("{folder}/{name}.parquet")).expect(name))
}

#[test]
fn times_text_and_compression_of_data_tools_are_read() {
    let expected = [
        (0, 5_000, 5_000, "irq:local_timer"),
        (1, 1_005_000, 6_000, "thread:kworker/0:1"),
        (0, 2_005_000, 7_000, "irq:local_timer"),
        (1, 3_005_000, 8_000, "nmi"),
    ];
    let expected = expected.map(|(cpu, ns, length, source): (u16, i64, u64, &str)| {
        (cpu, 1_700_000_000_000_000_000 + ns, length, source.to_owned())
    });
    for (name, coarse) in [
        ("pandas-times-us", &["start_ns", "duration_ns"][..]),
        ("pandas-gzip-category", &[]),
        ("polars-times", &["duration_ns"]),
        ("duckdb-v1", &["start_ns"]),
        ("duckdb-v2-zstd", &[]),
    ] {
        let trace = file(name).expect(name);
        let row = |d: &crate::trace::Detour| (d.cpu, d.start_ns, d.duration_ns, trace.source(d).to_string());
        assert_eq!(trace.detours.iter().map(row).collect::<Vec<_>>(), expected, "{name}");
        let notes: Vec<&String> =
            trace.meta.notes.iter().filter(|note| note.contains("known to 1 µs")).collect();
        assert_eq!(notes.len(), coarse.len(), "{name}: {notes:?}");
        assert!(coarse.iter().zip(notes).all(|(column, note)| note.contains(column)), "{name}");
    }
}

#[test]
fn a_column_that_is_not_read_is_named_with_its_type_and_the_remedy() {
    for (name, says) in [
        ("pandas-brotli", ["`cpu` is compressed with BROTLI", "compression=\"zstd\""]),
        ("pandas-float", ["`duration_ns` is DOUBLE", "write it as int64"]),
        ("duckdb-interval", ["`duration_ns` is FIXED_LEN_BYTE_ARRAY (INTERVAL)", "write it as int64"]),
    ] {
        let error = file(name).expect_err(name).to_string();
        assert!(says.iter().all(|part| error.contains(part)), "{error}");
    }
}
