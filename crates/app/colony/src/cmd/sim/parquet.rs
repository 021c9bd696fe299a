// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a table: one row a point, and the whole document in the metadata.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use colony_sim::sweep::{Finished, Results};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// The document's key in the metadata.
const KEY: &str = "colony.sim";

/// Writes the results to `path`.
pub(super) fn write(path: &Path, results: &Results) -> anyhow::Result<()> {
    let document = KeyValue::new(KEY.to_owned(), serde_json::to_string(results)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(vec![document]))
        .build();
    let table = RecordBatch::try_from_iter_with_nullable(columns(results))?;
    colony_node::file::write_atomically::<std::io::Error>(path, |w| {
        let other = std::io::Error::other::<parquet::errors::ParquetError>;
        let mut writer = ArrowWriter::try_new(w, table.schema(), Some(properties)).map_err(other)?;
        writer.write(&table).map_err(other)?;
        writer.close().map_err(other)?;
        Ok(())
    })
    .with_context(|| format!("writing {}", path.display()))
}

/// Reads the results that [`write()`] wrote.
pub(super) fn read(path: &Path) -> anyhow::Result<Results> {
    let what = || format!("{} holds no results of colony sim to resume", path.display());
    let file = File::open(path).with_context(what)?;
    let reader = SerializedFileReader::new(file).with_context(what)?;
    let pairs = reader.metadata().file_metadata().key_value_metadata();
    let document = pairs.into_iter().flatten().find(|p| p.key == KEY).and_then(|p| p.value.as_deref());
    serde_json::from_str(document.with_context(what)?).with_context(what)
}

/// Name, values, whether some may be missing.
fn columns(results: &Results) -> Vec<(String, ArrayRef, bool)> {
    let points = &results.points;
    let u32s = |f: fn(&Finished) -> u32| Arc::new(points.iter().map(f).collect::<UInt32Array>()) as ArrayRef;
    let u64s = |f: fn(&Finished) -> u64| Arc::new(points.iter().map(f).collect::<UInt64Array>()) as ArrayRef;
    let f64s = |f: fn(&Finished) -> f64| Arc::new(points.iter().map(f).collect::<Float64Array>()) as ArrayRef;
    let texts = |f: &dyn Fn(&Finished) -> String| {
        Arc::new(StringArray::from_iter_values(points.iter().map(f))) as ArrayRef
    };
    let ci95: Float64Array = points.iter().map(|p| p.outcome.ci95_ns).collect();
    let mut all = vec![
        ("machine", texts(&|_| results.scenario.machine.name().into()), false),
        ("program", texts(&|_| results.scenario.program.name.clone()), false),
        ("nodes", u32s(|p| p.outcome.nodes), false),
        ("ranks", u32s(|p| p.outcome.ranks), false),
        ("scheduler", texts(&|p| p.point.scheduler.name().into()), false),
        ("iterations", u64s(|p| p.outcome.iterations), false),
        ("repetitions", u64s(|p| p.outcome.totals_ns.len() as u64), false),
        ("quiet_ns", f64s(|p| p.outcome.quiet_ns), false),
        ("mean_ns", f64s(|p| p.outcome.mean_ns), false),
        ("ci95_ns", Arc::new(ci95), true),
        ("p50_ns", u64s(|p| p.outcome.p50_ns), false),
        ("p99_ns", u64s(|p| p.outcome.p99_ns), false),
        ("p99_9_ns", u64s(|p| p.outcome.p99_9_ns), false),
        ("min_ns", u64s(|p| p.outcome.min_ns), false),
        ("max_ns", u64s(|p| p.outcome.max_ns), false),
        ("slowdown", f64s(|p| p.outcome.slowdown), false),
    ]
    .into_iter()
    .map(|(name, values, missing)| (name.to_owned(), values, missing))
    .collect::<Vec<_>>();
    let swept: BTreeSet<&String> = points.iter().flat_map(|p| p.point.set.keys()).collect();
    all.extend(swept.into_iter().map(|path| (path.clone(), values_of(points, path), true)));
    all
}

/// The values of a swept parameter: numbers, where all are.
fn values_of(points: &[Finished], path: &str) -> ArrayRef {
    let values = || points.iter().map(|p| p.point.set.get(path));
    let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
    if values().flatten().all(|v| number(v).is_some()) {
        return Arc::new(values().map(|v| v.and_then(number)).collect::<Float64Array>());
    }
    let text = |v: &toml::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    Arc::new(values().map(|v| v.map(text)).collect::<StringArray>())
}
