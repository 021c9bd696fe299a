// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trace as a Parquet file, which any data tool opens.
//!
//! Foreign bytes reach the decoder: everything it says is checked, nothing is allocated on a file's word
//! alone, and a panic in it ends as an error.

use std::cell::Cell;
use std::collections::HashMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int64Array, RecordBatch, StringArray, UInt16Array, UInt32Array,
    UInt64Array,
};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, Encoding};
use parquet::file::metadata::{KeyValue, ParquetMetaData};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnPath;

use super::{Detour, MAX_DETOURS, Problem, Trace, TraceBuilder, TraceMeta};
use crate::Source;

/// Name of the metadata that holds a [`TraceMeta`] as JSON.
pub(crate) const META_KEY: &str = "colony.meta";

/// Rows that are decoded or encoded at a time.
const BATCH: usize = 64 * 1024;

fn columns(source_key: DataType) -> [(&'static str, DataType); 5] {
    [
        ("node", DataType::UInt32),
        ("cpu", DataType::UInt16),
        ("start_ns", DataType::Int64),
        ("duration_ns", DataType::UInt64),
        ("source", DataType::Dictionary(Box::new(source_key), Box::new(DataType::Utf8))),
    ]
}

/// Writes the Parquet file to `out`.
pub(crate) fn write(trace: &Trace, out: impl Write + Send) -> Result<(), Problem> {
    let failed = |e: parquet::errors::ParquetError| Problem::Io(std::io::Error::other(e));
    let fields: Fields =
        columns(DataType::UInt16).into_iter().map(|(name, kind)| Field::new(name, kind, false)).collect();
    let pairs = trace.meta.plain().into_iter().map(|(key, value)| (key.to_owned(), value));
    let pairs: Vec<_> = [(META_KEY.to_owned(), trace.meta.to_json()?)].into_iter().chain(pairs).collect();
    let keys = pairs.iter().map(|(k, v)| KeyValue::new(k.clone(), v.clone())).collect();
    // in the Arrow schema too: it is what other tools show and keep when they write the table again
    let metadata: HashMap<String, String> = pairs.into_iter().collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    // instants and lengths hardly repeat: differences pack better than a dictionary of them
    let packed = |b: parquet::file::properties::WriterPropertiesBuilder, name: &str| {
        b.set_column_dictionary_enabled(ColumnPath::from(name), false)
            .set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED)
    };
    let builder =
        WriterProperties::builder().set_compression(Compression::SNAPPY).set_key_value_metadata(Some(keys));
    let properties = packed(packed(builder, "start_ns"), "duration_ns").build();
    let names: ArrayRef =
        Arc::new(StringArray::from_iter_values(trace.sources.iter().map(Source::to_string)));
    let mut writer = ArrowWriter::try_new(out, schema.clone(), Some(properties)).map_err(failed)?;
    for rows in trace.detours.chunks(BATCH) {
        let keys: UInt16Array = rows.iter().map(|d| Some(d.source)).collect();
        let source = DictionaryArray::<UInt16Type>::try_new(keys, names.clone())
            .map_err(|e| Problem::Meta(format!("a detour names a source that is not there ({e})")))?;
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|d| d.node))),
            Arc::new(UInt16Array::from_iter_values(rows.iter().map(|d| d.cpu))),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|d| d.start_ns))),
            Arc::new(UInt64Array::from_iter_values(rows.iter().map(|d| d.duration_ns))),
            Arc::new(source),
        ];
        let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(|e| failed(e.into()))?;
        writer.write(&batch).map_err(failed)?;
    }
    writer.close().map_err(failed)?;
    Ok(())
}

/// Reads a Parquet file.
pub(crate) fn read(file: impl ChunkReader + 'static) -> Result<Trace, Problem> {
    quietly(|| decode(file)).unwrap_or_else(|| Err(Problem::Damaged("its pages do not decode".into())))
}

fn decode(file: impl ChunkReader + 'static) -> Result<Trace, Problem> {
    let damaged = |e: parquet::errors::ParquetError| Problem::Damaged(e.to_string());
    // the Arrow schema another tool left must not decide how columns are decoded
    let plain = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let found = ArrowReaderMetadata::load(&file, plain).map_err(damaged)?;
    let parquet = found.metadata().clone();
    let meta = meta(&parquet)?;
    for column in parquet.row_groups().iter().flat_map(|g| g.columns()) {
        match column.compression() {
            Compression::UNCOMPRESSED | Compression::SNAPPY => {}
            other => return Err(Problem::Compression(other.to_string())),
        }
    }
    let rows = parquet.file_metadata().num_rows();
    if rows < 0 || rows as u64 > MAX_DETOURS as u64 {
        return Err(Problem::TooManyDetours);
    }
    let schema = Arc::new(wanted(found.schema())?);
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true).with_schema(schema.clone());
    let metadata = ArrowReaderMetadata::try_new(parquet, options).map_err(damaged)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata);
    let ours = columns(DataType::Int32).map(|(name, _)| schema.index_of(name).unwrap_or_default());
    let mask = ProjectionMask::roots(builder.parquet_schema(), ours);
    let reader = builder.with_projection(mask).with_batch_size(BATCH).build().map_err(damaged)?;
    let mut trace = TraceBuilder::new();
    for batch in reader {
        push(&mut trace, &batch.map_err(|e| Problem::Damaged(e.to_string()))?)?;
    }
    trace.build(meta)
}

fn meta(file: &ParquetMetaData) -> Result<TraceMeta, Problem> {
    let pairs = file.file_metadata().key_value_metadata().map_or(&[][..], Vec::as_slice);
    let json = pairs.iter().find(|p| p.key == META_KEY).and_then(|p| p.value.as_deref());
    TraceMeta::from_json(json.ok_or_else(|| Problem::NotATrace(format!("it has no metadata `{META_KEY}`")))?)
}

/// The file's schema with the source as a dictionary, if the five columns are what they should be.
fn wanted(found: &Schema) -> Result<Schema, Problem> {
    let mut fields: Vec<Field> = found.fields().iter().map(|f| f.as_ref().clone()).collect();
    for (name, kind) in columns(DataType::Int32) {
        let Some(field) = fields.iter_mut().find(|f| f.name() == name) else {
            return Err(Problem::NotATrace(format!("it has no column `{name}`")));
        };
        let as_stored = if name == "source" { &DataType::Utf8 } else { &kind };
        if field.data_type() != as_stored {
            return Err(Problem::NotATrace(format!("its column `{name}` is {}", field.data_type())));
        }
        *field = field.clone().with_data_type(kind);
    }
    Ok(Schema::new(fields))
}

fn push(trace: &mut TraceBuilder, batch: &RecordBatch) -> Result<(), Problem> {
    let column = |name: &str| {
        let column =
            batch.column_by_name(name).ok_or_else(|| Problem::NotATrace(format!("no column `{name}`")))?;
        match column.null_count() {
            0 => Ok(column),
            n => Err(Problem::NotATrace(format!("{n} rows have no `{name}`"))),
        }
    };
    let wrong = || Problem::NotATrace("a column has another type than its schema says".into());
    let nodes = column("node")?.as_primitive_opt::<UInt32Type>().ok_or_else(wrong)?;
    let cpus = column("cpu")?.as_primitive_opt::<UInt16Type>().ok_or_else(wrong)?;
    let starts = column("start_ns")?.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let durations = column("duration_ns")?.as_primitive_opt::<UInt64Type>().ok_or_else(wrong)?;
    let sources = column("source")?.as_dictionary_opt::<Int32Type>().ok_or_else(wrong)?;
    let names = sources.values().as_string_opt::<i32>().ok_or_else(wrong)?;
    // indexes of this batch's names, found when a row first uses them: a dictionary may hold unused ones
    let mut known: Vec<Option<u16>> = vec![None; names.len()];
    for row in 0..batch.num_rows() {
        let key = usize::try_from(sources.keys().value(row)).map_err(|_| wrong())?;
        let source = match known.get(key).ok_or_else(wrong)? {
            Some(index) => *index,
            None => {
                let index = trace.source(&names.value(key).into())?;
                known[key] = Some(index);
                index
            }
        };
        trace.push(Detour {
            node: nodes.value(row),
            cpu: cpus.value(row),
            start_ns: starts.value(row),
            duration_ns: durations.value(row),
            source,
        })?;
    }
    Ok(())
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
        let file = bytes::Bytes::from(bytes(&sample(10)));
        let found = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).expect("parquet");
        let pairs = found.metadata().file_metadata().key_value_metadata().expect("some");
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
        let fields: Vec<_> =
            found.schema().fields().iter().map(|f| (f.name().as_str(), f.data_type().clone())).collect();
        assert_eq!(fields, columns(DataType::UInt16));
    }

    #[test]
    fn files_that_are_no_trace_are_explained() {
        let whole = bytes(&sample(1000));
        for (content, says) in [
            (vec![], "no whole Parquet file"),
            (b"hello".to_vec(), "no whole Parquet file"),
            (whole[..whole.len() / 2].to_vec(), "no whole Parquet file"),
            (foreign(&[("x", DataType::Int64)], false), "no metadata `colony.meta`"),
            (foreign(&[("node", DataType::UInt32)], true), "no column `cpu`"),
            (foreign(&[("node", DataType::Int64)], true), "column `node` is Int64"),
        ] {
            let error = parse(content).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
        }
        let missing =
            Trace::read(std::path::Path::new("/nowhere/x.parquet")).expect_err("not there").to_string();
        assert!(missing.contains("/nowhere/x.parquet") && missing.contains("No such file"), "{missing}");
    }

    /// An empty Parquet file of another tool.
    fn foreign(columns: &[(&str, DataType)], with_meta: bool) -> Vec<u8> {
        let fields: Fields = columns.iter().map(|(n, t)| Field::new(*n, t.clone(), false)).collect();
        let mut out = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut out, Arc::new(Schema::new(fields)), None).expect("valid");
        if with_meta {
            let json = TraceMeta::default().to_json().expect("finite");
            writer.append_key_value_metadata(KeyValue::new(META_KEY.into(), json));
        }
        writer.close().expect("memory");
        out
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
