// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a table: one row a point, and the whole document in the metadata.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use colony_sim::sweep::{Finished, Results};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;

/// The document's key in the metadata.
const KEY: &str = "colony.sim";

/// Writes the results to `path`.
pub(super) fn write(path: &Path, results: &Results) -> anyhow::Result<()> {
    let document = KeyValue::new(KEY.to_owned(), serde_json::to_string(results)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_key_value_metadata(Some(vec![document]))
        .build();
    let columns = columns(results);
    colony_node::file::write_atomically::<std::io::Error>(path, |out| {
        write_table(out, &columns, properties).map_err(std::io::Error::other)
    })
    .with_context(|| format!("writing {}", path.display()))
}

fn write_table(
    out: impl Write + Send,
    columns: &[Column],
    properties: WriterProperties,
) -> Result<(), ParquetError> {
    let fields = columns.iter().map(|c| c.schema().map(Arc::new)).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("results").with_fields(fields).build()?;
    let mut writer = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for column in columns {
        if let Some(mut writer) = group.next_column()? {
            column.write(&mut writer)?;
            writer.close()?;
        }
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

/// A column of the table.
struct Column {
    name: String,
    values: Values,
}

/// The values of a column, one a point.
enum Values {
    U32(Vec<u32>),
    U64(Vec<u64>),
    F64(Vec<f64>),
    Text(Vec<String>),
    /// Numbers that points may lack.
    SomeF64(Vec<Option<f64>>),
    /// Texts that points may lack.
    SomeText(Vec<Option<String>>),
}

impl Column {
    fn schema(&self) -> Result<Type, ParquetError> {
        let (physical, logical) = match &self.values {
            Values::U32(_) => (Physical::INT32, Some(LogicalType::integer(32, false))),
            Values::U64(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
            Values::F64(_) | Values::SomeF64(_) => (Physical::DOUBLE, None),
            Values::Text(_) | Values::SomeText(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let repetition = match &self.values {
            Values::SomeF64(_) | Values::SomeText(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        let builder = Type::primitive_type_builder(&self.name, physical).with_repetition(repetition);
        builder.with_logical_type(logical).build()
    }

    fn write(&self, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let bytes = |text: &String| ByteArray::from(text.as_str());
        match &self.values {
            // the bits of an unsigned number are stored
            Values::U32(values) => {
                write_all::<Int32Type>(to, values.iter().map(|v| v.cast_signed()).collect())
            }
            Values::U64(values) => {
                write_all::<Int64Type>(to, values.iter().map(|v| v.cast_signed()).collect())
            }
            Values::F64(values) => write_all::<DoubleType>(to, values.clone()),
            Values::Text(values) => write_all::<ByteArrayType>(to, values.iter().map(bytes).collect()),
            Values::SomeF64(values) => write_some::<DoubleType>(to, values.clone()),
            Values::SomeText(values) => {
                write_some::<ByteArrayType>(to, values.iter().map(|v| v.as_ref().map(bytes)).collect())
            }
        }
    }
}

fn write_all<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: Vec<T::T>,
) -> Result<(), ParquetError> {
    to.typed::<T>().write_batch(&values, None, None).map(drop)
}

fn write_some<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: Vec<Option<T::T>>,
) -> Result<(), ParquetError> {
    let levels: Vec<i16> = values.iter().map(|value| value.is_some().into()).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    to.typed::<T>().write_batch(&values, Some(&levels), None).map(drop)
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

fn columns(results: &Results) -> Vec<Column> {
    let points = &results.points;
    let u32s = |f: fn(&Finished) -> u32| Values::U32(points.iter().map(f).collect());
    let u64s = |f: fn(&Finished) -> u64| Values::U64(points.iter().map(f).collect());
    let f64s = |f: fn(&Finished) -> f64| Values::F64(points.iter().map(f).collect());
    let texts = |f: &dyn Fn(&Finished) -> String| Values::Text(points.iter().map(f).collect());
    let mut all: Vec<Column> = [
        ("machine", texts(&|_| results.scenario.machine.name().into())),
        ("program", texts(&|_| results.scenario.program.name.clone())),
        ("nodes", u32s(|p| p.outcome.nodes)),
        ("ranks", u32s(|p| p.outcome.ranks)),
        ("scheduler", texts(&|p| p.point.scheduler.name().into())),
        ("iterations", u64s(|p| p.outcome.iterations)),
        ("repetitions", u64s(|p| p.outcome.totals_ns.len() as u64)),
        ("quiet_ns", f64s(|p| p.outcome.quiet_ns)),
        ("mean_ns", f64s(|p| p.outcome.mean_ns)),
        ("ci95_ns", Values::SomeF64(points.iter().map(|p| p.outcome.ci95_ns).collect())),
        ("p50_ns", u64s(|p| p.outcome.p50_ns)),
        ("p99_ns", u64s(|p| p.outcome.p99_ns)),
        ("p99_9_ns", u64s(|p| p.outcome.p99_9_ns)),
        ("min_ns", u64s(|p| p.outcome.min_ns)),
        ("max_ns", u64s(|p| p.outcome.max_ns)),
        ("slowdown", f64s(|p| p.outcome.slowdown)),
    ]
    .into_iter()
    .map(|(name, values)| Column { name: name.to_owned(), values })
    .collect();
    let swept: BTreeSet<&String> = points.iter().flat_map(|p| p.point.set.keys()).collect();
    all.extend(swept.into_iter().map(|path| Column { name: path.clone(), values: values_of(points, path) }));
    all
}

/// The values of a swept parameter: numbers, where all are.
fn values_of(points: &[Finished], path: &str) -> Values {
    let values = || points.iter().map(|p| p.point.set.get(path));
    let number = |v: &toml::Value| v.as_float().or_else(|| v.as_integer().map(|i| i as f64));
    if values().flatten().all(|v| number(v).is_some()) {
        return Values::SomeF64(values().map(|v| v.and_then(number)).collect());
    }
    let text = |v: &toml::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    Values::SomeText(values().map(|v| v.map(text)).collect())
}
