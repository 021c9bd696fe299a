// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace as a Parquet file, which any data tool opens.
//!
//! Foreign bytes reach the decoder: everything it says is checked, nothing is allocated on a file's word
//! alone, and a panic in it ends as an error.

mod arrow;
mod columns;
#[cfg(test)]
mod files_tests;
mod pages;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};
use parquet::file::reader::ChunkReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use self::arrow::Unit;
use self::columns::{BATCH, Layout, damaged};
use self::pages::Group;
use super::{Detour, NO_CPU, Problem, Stated, Trace, TraceBuilder, TraceMeta};

/// Name of the metadata that holds a [`TraceMeta`] as JSON.
pub(crate) const META_KEY: &str = "colony.meta";

/// Rows of a row group: a reader that skips nothing needs few groups, a reader of a part needs small ones.
const GROUP: usize = 16 * BATCH;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    U16,
    U32,
    I64,
    U64,
    Text,
}

const COLUMNS: [(&str, Kind); 5] = [
    ("node", Kind::U32),
    ("cpu", Kind::U16),
    ("start_ns", Kind::I64),
    ("duration_ns", Kind::U64),
    ("source", Kind::Text),
];

impl Kind {
    fn physical(self) -> Physical {
        match self {
            Self::U16 | Self::U32 => Physical::INT32,
            Self::I64 | Self::U64 => Physical::INT64,
            Self::Text => Physical::BYTE_ARRAY,
        }
    }

    fn logical(self) -> Option<LogicalType> {
        match self {
            Self::U16 => Some(LogicalType::integer(16, false)),
            Self::U32 => Some(LogicalType::integer(32, false)),
            Self::I64 => None,
            Self::U64 => Some(LogicalType::integer(64, false)),
            Self::Text => Some(LogicalType::String),
        }
    }
}

/// The schema of a file with these columns.
fn schema(columns: &[(&str, Kind)]) -> Result<Type, ParquetError> {
    let column = |&(name, kind): &(&str, Kind)| {
        let builder = Type::primitive_type_builder(name, kind.physical());
        builder.with_repetition(Repetition::REQUIRED).with_logical_type(kind.logical()).build().map(Arc::new)
    };
    let columns = columns.iter().map(column).collect::<Result<_, _>>()?;
    Type::group_type_builder("trace").with_fields(columns).build()
}

/// Writes the Parquet file to `out`.
pub(crate) fn write(trace: &Trace, out: impl Write + Send) -> Result<(), Problem> {
    let failed = |e: ParquetError| Problem::Io(std::io::Error::other(e));
    let pairs = trace.meta.plain().into_iter().map(|(key, value)| (key.to_owned(), value));
    let pairs = [(META_KEY.to_owned(), trace.meta.to_json()?)].into_iter().chain(pairs);
    let keys = pairs.map(|(key, value)| KeyValue::new(key, value)).collect();
    // instants and lengths hardly repeat: differences pack better than a dictionary of them
    let packed = |b: WriterPropertiesBuilder, name: &str| {
        b.set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED)
    };
    let builder =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_key_value_metadata(Some(keys));
    let properties = packed(packed(builder, "start_ns"), "duration_ns").build();
    let names: Vec<ByteArray> =
        trace.sources.iter().map(|source| source.to_string().into_bytes().into()).collect();
    if let Some(d) = trace.detours.iter().find(|d| usize::from(d.source) >= names.len()) {
        return Err(Problem::Meta(format!("a detour names the source {}, which is not there", d.source)));
    }
    let schema = Arc::new(schema(&COLUMNS).map_err(failed)?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties)).map_err(failed)?;
    for rows in trace.detours.chunks(GROUP) {
        let mut group = writer.next_row_group().map_err(failed)?;
        let group_of = &mut group;
        // the bits of an unsigned number are stored
        write_column::<Int32Type, _>(group_of, rows, |d| d.node.cast_signed()).map_err(failed)?;
        write_column::<Int32Type, _>(group_of, rows, |d| d.cpu.into()).map_err(failed)?;
        write_column::<Int64Type, _>(group_of, rows, |d| d.start_ns).map_err(failed)?;
        write_column::<Int64Type, _>(group_of, rows, |d| d.duration_ns.cast_signed()).map_err(failed)?;
        let name = |d: &Detour| names[usize::from(d.source)].clone();
        write_column::<ByteArrayType, _>(group_of, rows, name).map_err(failed)?;
        group.close().map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(())
}

/// Writes the next column of a row group.
fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Detour],
    value: impl Fn(&Detour) -> T::T,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General("the schema has too few columns".to_owned()));
    };
    for rows in rows.chunks(BATCH) {
        let values: Vec<T::T> = rows.iter().map(&value).collect();
        column.typed::<T>().write_batch(&values, None, None)?;
    }
    column.close()
}

/// Reads a Parquet file.
pub(crate) fn read(file: impl ChunkReader + 'static) -> Result<Trace, Problem> {
    quietly(|| decode(file)).unwrap_or_else(|| Err(Problem::Damaged("its pages do not decode".into())))
}

fn decode(file: impl ChunkReader + 'static) -> Result<Trace, Problem> {
    let parquet = ParquetMetaDataReader::new().parse_and_finish(&file).map_err(damaged)?;
    let file = &Arc::new(file);
    let (meta, stated) = meta(&parquet)?;
    let mut trace = TraceBuilder::new();
    let rows = usize::try_from(parquet.file_metadata().num_rows());
    trace.expect(rows.map_err(|_| Problem::TooManyDetours)?)?;
    let found = parquet.file_metadata().schema_descr().columns();
    let layout = Layout::of(found.iter().map(AsRef::as_ref), &durations(&parquet)?)?;
    for metadata in parquet.row_groups() {
        layout.push(&mut trace, &Group { file, metadata })?;
    }
    if let Some(meta) = meta {
        return trace.build(meta);
    }
    if trace.is_empty() {
        return Err(Problem::Empty("a row for each detour"));
    }
    if !layout.has_cpus() {
        trace.note(NO_CPU);
    }
    layout.notes().for_each(|note| trace.note(note));
    trace.build_foreign(stated)
}

/// The keys and values of a file's metadata.
fn pairs(file: &ParquetMetaData) -> impl Iterator<Item = (&str, &str)> + Clone {
    let pairs = file.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    pairs.iter().filter_map(|p| Some((p.key.as_str(), p.value.as_deref()?)))
}

/// The columns that hold durations.
fn durations(file: &ParquetMetaData) -> Result<BTreeMap<String, Unit>, Problem> {
    let Some((_, schema)) = pairs(file).find(|(key, _)| *key == arrow::KEY) else {
        return Ok(BTreeMap::new());
    };
    arrow::durations(schema).ok_or_else(|| {
        Problem::Damaged(format!(
            "its metadata `{}` cannot be read, which names the units of its times",
            arrow::KEY
        ))
    })
}

/// The metadata of a trace that Colony wrote; for that of another tool, what its metadata states.
fn meta(file: &ParquetMetaData) -> Result<(Option<TraceMeta>, Stated), Problem> {
    let pairs = pairs(file);
    match pairs.clone().find(|(key, _)| *key == META_KEY) {
        Some((_, json)) => Ok((Some(TraceMeta::from_json(json)?), Stated::default())),
        None => Ok((None, Stated::of_pairs(pairs)?)),
    }
}

thread_local! {
    static EXPECTING_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`; `None` where it panicked, without the panic's message on the terminal.
fn quietly<T>(f: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !EXPECTING_PANIC.get() {
                previous(info);
            }
        }));
    });
    let before = EXPECTING_PANIC.replace(true);
    let result = catch_unwind(AssertUnwindSafe(f)).ok();
    EXPECTING_PANIC.set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::synthetic::{any_trace, sample};
    use ::parquet::file::reader::{FileReader, SerializedFileReader};
    use proptest::prelude::*;

    fn bytes(trace: &Trace) -> Vec<u8> {
        let mut out = Vec::new();
        write(trace, &mut out).expect("memory takes it");
        out
    }

    fn parse(bytes: Vec<u8>) -> Result<Trace, Problem> {
        read(bytes::Bytes::from(bytes))
    }

    #[test]
    fn a_file_is_written_and_read() {
        let dir = tempfile::tempdir().expect("temp dir");
        let path = dir.path().join("t.parquet");
        let trace = sample(200_000);
        trace.write(&path).expect("written");
        assert_eq!(Trace::read(&path).expect("read"), trace);
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1, "no temporary file stays");
        let size = std::fs::metadata(&path).expect("there").len();
        assert!(size < 200_000 * 16, "{size} bytes");
    }

    #[test]
    fn other_tools_find_plain_metadata_and_a_dictionary() {
        let file = SerializedFileReader::new(bytes::Bytes::from(bytes(&sample(10)))).expect("parquet");
        let pairs = file.metadata().file_metadata().key_value_metadata().expect("some");
        for key in [
            "tsc_hz",
            "threshold_ns",
            "smallest_loop_ns",
            "observed_s",
            "kernel",
            "cpu_model",
            "lost_events",
            "observer",
        ] {
            assert!(pairs.iter().any(|p| p.key == key && p.value.is_some()), "{key}");
        }
        let columns = file.metadata().file_metadata().schema_descr().columns();
        let columns: Vec<_> = columns.iter().map(|c| (c.name(), c.logical_type_ref().cloned())).collect();
        assert_eq!(columns, COLUMNS.map(|(name, kind)| (name, kind.logical())));
        let with_dictionary = |name: &str| {
            let at = COLUMNS.iter().position(|(other, _)| *other == name).expect("a column");
            file.metadata().row_group(0).column(at).dictionary_page_offset().is_some()
        };
        assert!(with_dictionary("source") && !with_dictionary("start_ns"));
    }

    #[test]
    fn files_that_are_no_trace_are_explained() {
        let whole = bytes(&sample(1000));
        for (content, says) in [
            (vec![], "no whole Parquet file"),
            (b"hello".to_vec(), "no whole Parquet file"),
            (whole[..whole.len() / 2].to_vec(), "no whole Parquet file"),
            (foreign(&[("x", Kind::I64)], false), "no column `start_ns`"),
            (foreign(&[("start_ns", Kind::I64)], true), "no column `duration_ns`"),
            (
                foreign(&[("start_ns", Kind::I64), ("duration_ns", Kind::Text)], true),
                "`duration_ns` is String and must be",
            ),
            (foreign(&[("start_ns", Kind::I64), ("duration_ns", Kind::U64)], false), "no detour was found"),
        ] {
            let error = parse(content).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        let missing =
            Trace::read(std::path::Path::new("/nowhere/x.parquet")).expect_err("not there").to_string();
        assert!(missing.contains("/nowhere/x.parquet") && missing.contains("No such file"), "{missing}");
    }

    /// An empty Parquet file of another tool.
    fn foreign(columns: &[(&str, Kind)], with_meta: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let schema = Arc::new(schema(columns).expect("valid"));
        let mut writer = SerializedFileWriter::new(&mut out, schema, Default::default()).expect("valid");
        if with_meta {
            let json = TraceMeta::default().to_json().expect("finite");
            writer.append_key_value_metadata(KeyValue::new(META_KEY.into(), json));
        }
        writer.close().expect("memory");
        out
    }

    /// A file as data tools write it: numbers of 64 bits with a sign, in any order, other columns too, no metadata of Colony.
    fn dataframe(cpus: &[i64], starts: &[i64], durations: &[i64], pairs: &[(&str, &str)]) -> Vec<u8> {
        let optional = |name: &str| {
            let builder = Type::primitive_type_builder(name, Physical::INT64);
            Arc::new(builder.with_repetition(Repetition::OPTIONAL).build().expect("valid"))
        };
        let fields = ["duration_ns", "x", "cpu", "start_ns"].map(optional).to_vec();
        let schema = Arc::new(Type::group_type_builder("schema").with_fields(fields).build().expect("valid"));
        let pairs = pairs.iter().map(|(k, v)| KeyValue::new((*k).to_owned(), (*v).to_owned())).collect();
        let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs)).build();
        let mut out = Vec::new();
        let mut writer = SerializedFileWriter::new(&mut out, schema, Arc::new(properties)).expect("valid");
        let mut group = writer.next_row_group().expect("memory");
        for values in [durations, starts, cpus, starts] {
            let mut column = group.next_column().expect("memory").expect("a column");
            let levels = vec![1; values.len()];
            column.typed::<Int64Type>().write_batch(values, Some(&levels), None).expect("memory");
            column.close().expect("memory");
        }
        group.close().expect("memory");
        writer.close().expect("memory");
        out
    }

    #[test]
    fn a_file_of_a_data_tool_is_read_as_csv_is() {
        let file = |pairs| parse(dataframe(&[3, 0, 3], &[50, 60, 70], &[5, 6, 7], pairs));
        let trace = file(&[]).expect("a trace");
        let rows: Vec<_> = trace.detours.iter().map(|d| (d.cpu, d.start_ns, d.duration_ns)).collect();
        assert_eq!(rows, [(3, 50, 5), (0, 60, 6), (3, 70, 7)]);
        assert_eq!((trace.meta.cpus.to_string(), trace.meta.observed_s), ("0,3".into(), 27e-9));
        assert_eq!(trace.meta.notes.len(), 1, "{:?}", trace.meta.notes);
        let stated = file(&[("observed_s", "0.5"), ("cpus", "0-7"), ("pandas", "{}")]).expect("a trace");
        assert_eq!((stated.meta.cpus.to_string(), stated.meta.observed_s), ("0-7".into(), 0.5));
        assert_eq!(stated.meta.notes, Vec::<String>::new());
        let error = file(&[("observed_s", "long")]).expect_err("no number").to_string();
        assert!(error.contains("`observed_s` is `long`"), "{error}");
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_row() {
        let negative = parse(dataframe(&[0, 0], &[5, 9], &[1, -4], &[])).expect_err("negative").to_string();
        assert!(negative.contains("the `duration_ns` of row 2 is -4"), "{negative}");
        let cpu = parse(dataframe(&[1 << 40], &[5], &[1], &[])).expect_err("no CPU").to_string();
        assert!(cpu.contains("CPU 1099511627776 cannot be"), "{cpu}");
    }

    /// Other tools write columns whose values may be missing, and names without a dictionary.
    #[test]
    fn columns_with_levels_are_read_and_missing_values_are_not() {
        let optional = |name: &str, kind: Kind| {
            let builder = Type::primitive_type_builder(name, kind.physical());
            let builder = builder.with_repetition(Repetition::OPTIONAL).with_logical_type(kind.logical());
            Arc::new(builder.build().expect("valid"))
        };
        let fields = COLUMNS.map(|(name, kind)| optional(name, kind)).to_vec();
        let schema = Arc::new(Type::group_type_builder("other").with_fields(fields).build().expect("valid"));
        let file = |levels: [i16; 2]| {
            let json = TraceMeta::default().to_json().expect("finite");
            let properties = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_key_value_metadata(Some(vec![KeyValue::new(META_KEY.into(), json)]))
                .build();
            let mut out = Vec::new();
            let mut writer =
                SerializedFileWriter::new(&mut out, schema.clone(), Arc::new(properties)).expect("valid");
            let mut group = writer.next_row_group().expect("memory");
            for (_, kind) in COLUMNS {
                let mut column = group.next_column().expect("memory").expect("a column");
                let there = levels.iter().filter(|level| **level > 0).count();
                match kind.physical() {
                    Physical::INT32 => {
                        column.typed::<Int32Type>().write_batch(&[1, 0][..there], Some(&levels), None)
                    }
                    Physical::INT64 => {
                        column.typed::<Int64Type>().write_batch(&[5, 9][..there], Some(&levels), None)
                    }
                    _ => {
                        let names = [ByteArray::from("irq:a"), ByteArray::from("irq:a")];
                        column.typed::<ByteArrayType>().write_batch(&names[..there], Some(&levels), None)
                    }
                }
                .expect("memory");
                column.close().expect("memory");
            }
            group.close().expect("memory");
            writer.close().expect("memory");
            out
        };
        let trace = parse(file([1, 1])).expect("every value is there");
        let rows: Vec<_> = trace.detours.iter().map(|d| (d.node, d.cpu, d.start_ns, d.duration_ns)).collect();
        assert_eq!(rows, [(1, 1, 5, 5), (0, 0, 9, 9)]);
        assert_eq!(trace.sources, ["irq:a".into()]);
        let error = parse(file([1, 0])).expect_err("a value is missing").to_string();
        assert!(error.contains("1 rows have no `start_ns`"), "{error}");
    }

    #[test]
    fn a_file_that_says_another_number_of_rows_is_damaged() {
        let trace = sample(1000);
        let whole = bytes(&trace);
        let mut refused = 0;
        // 1000 and 1001 in the encoding of the footer: zigzag, seven bits a byte
        let (true_rows, false_rows) = ([0xd0, 0x0f], [0xd2, 0x0f]);
        for at in (0..whole.len() - 1).filter(|&at| whole[at..at + 2] == true_rows) {
            let mut file = whole.clone();
            file[at..at + 2].copy_from_slice(&false_rows);
            match parse(file) {
                Ok(read) => assert_eq!(read, trace, "byte {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused > 0, "no count of rows was found in the footer");
    }

    #[test]
    fn text_whose_lengths_could_ask_for_any_memory_is_refused_by_name() {
        let schema = Arc::new(schema(&COLUMNS).expect("valid"));
        for encoding in [Encoding::DELTA_BYTE_ARRAY, Encoding::DELTA_LENGTH_BYTE_ARRAY] {
            let json = TraceMeta::default().to_json().expect("finite");
            let properties = WriterProperties::builder()
                .set_dictionary_enabled(false)
                .set_column_encoding(ColumnPath::from("source"), encoding)
                .set_key_value_metadata(Some(vec![KeyValue::new(META_KEY.into(), json)]))
                .build();
            let mut out = Vec::new();
            let mut writer =
                SerializedFileWriter::new(&mut out, schema.clone(), Arc::new(properties)).expect("valid");
            let mut group = writer.next_row_group().expect("memory");
            let rows = sample(10).detours;
            write_column::<Int32Type, _>(&mut group, &rows, |_| 0).expect("memory");
            write_column::<Int32Type, _>(&mut group, &rows, |_| 0).expect("memory");
            write_column::<Int64Type, _>(&mut group, &rows, |d| d.start_ns).expect("memory");
            write_column::<Int64Type, _>(&mut group, &rows, |_| 5).expect("memory");
            write_column::<ByteArrayType, _>(&mut group, &rows, |_| "irq:a".into()).expect("memory");
            group.close().expect("memory");
            writer.close().expect("memory");
            match (encoding, parse(out)) {
                (Encoding::DELTA_LENGTH_BYTE_ARRAY, read) => {
                    assert_eq!(read.expect("bounded").detours.len(), 10)
                }
                (_, refused) => {
                    let error = refused.expect_err("refused").to_string();
                    assert!(error.contains("`source` is text in the encoding DELTA_BYTE_ARRAY"), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_newer_schema_is_named() {
        let mut trace = sample(3);
        trace.meta.schema = "colony.trace/9".into();
        let error = parse(bytes(&trace)).expect_err("newer").to_string();
        assert!(error.contains("colony.trace/9") && error.contains("colony.trace/1"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_trace_survives_the_file(trace in any_trace(300)) {
            prop_assert_eq!(parse(bytes(&trace)).expect("own file"), trace);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1500))]
        #[test]
        fn a_damaged_file_never_panics(
            n in 0usize..400,
            cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
            at_the_end in any::<bool>(),
        ) {
            let mut file = bytes(&sample(n));
            // most of what the decoder trusts is in the footer
            let from = if at_the_end { file.len().saturating_sub(400) } else { 0 };
            for (at, value) in flips {
                let room = file.len() - from;
                file[from + at.index(room)] = value;
            }
            if let Some(cut) = cut {
                let keep = cut.index(file.len());
                file.truncate(keep);
            }
            let _ = parse(file);
        }
    }
}
