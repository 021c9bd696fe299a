// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns of a Parquet file that hold a trace: where they are, of which types, and their rows.
//!
//! Data tools write numbers of the width and the sign that they calculate with, and columns whose values may be missing. So any type of
//! whole number is read, and a value out of range is an error. Instants and lengths may be timestamps and durations of any unit, too.

use std::collections::{BTreeMap, HashMap};

use parquet::basic::{ConvertedType, Encoding, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;

use super::arrow::Unit;
use super::pages::Group;
use crate::Source;
use crate::trace::{Detour, Problem, TraceBuilder};

/// Rows that are decoded or encoded at a time.
pub(super) const BATCH: usize = 64 * 1024;

pub(super) fn damaged(e: ParquetError) -> Problem {
    Problem::Damaged(e.to_string())
}

/// A column of whole numbers.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    name: &'static str,
    at: usize,
    is_wide: bool,
    is_signed: bool,
    /// The unit of a time.
    unit: Unit,
}

/// The places of a trace's columns in a file.
#[derive(Debug)]
pub(super) struct Layout {
    node: Option<Numbers>,
    cpu: Option<Numbers>,
    start_ns: Numbers,
    duration_ns: Numbers,
    source: Option<usize>,
}

impl Layout {
    /// The places in a file with the columns `found`, of which `durations` are durations.
    ///
    /// # Errors
    /// [`Problem::NotATrace`]: a column is missing or of another type.
    pub(super) fn of<'a>(
        found: impl Iterator<Item = &'a ColumnDescriptor> + Clone,
        durations: &BTreeMap<String, Unit>,
    ) -> Result<Self, Problem> {
        let column =
            |name: &str| found.clone().enumerate().find(|(_, column)| column.path().parts() == [name]);
        let numbers = |name: &'static str, times: Times| match column(name) {
            None => Ok(None),
            Some((at, column)) => match whole_number(column, times, durations.get(name).copied()) {
                Some((is_signed, unit)) => {
                    let is_wide = column.physical_type() == Physical::INT64;
                    Ok(Some(Numbers { name, at, is_wide, is_signed, unit }))
                }
                None => Err(other_type(name, column, durations, times.expected())),
            },
        };
        let required = |name, times| {
            numbers(name, times)?.ok_or_else(|| Problem::NotATrace(format!("it has no column `{name}`")))
        };
        let source = match column("source") {
            None => None,
            Some((at, column)) if is_text(column) => Some(at),
            Some((_, column)) => {
                return Err(other_type("source", column, durations, "text; write it as strings"));
            }
        };
        Ok(Self {
            node: numbers("node", Times::None)?,
            cpu: numbers("cpu", Times::None)?,
            start_ns: required("start_ns", Times::Instants)?,
            duration_ns: required("duration_ns", Times::Lengths)?,
            source,
        })
    }

    /// Notes on times that are not in nanoseconds.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let coarse = [self.start_ns, self.duration_ns].into_iter().filter(|n| n.unit != Unit::Nanos);
        coarse.map(|n| {
            format!("the column `{0}` counts in {1}: its times are known to 1 {1}", n.name, n.unit.name())
        })
    }

    /// True if the file says on which CPU each detour was.
    pub(super) fn has_cpus(&self) -> bool {
        self.cpu.is_some()
    }

    /// Adds the rows of a row group to `trace`.
    ///
    /// # Errors
    /// [`Problem`]: the rows are damaged, or a value is missing or out of range.
    pub(super) fn push<R: ChunkReader + 'static>(
        &self,
        trace: &mut TraceBuilder,
        group: &Group<'_, R>,
    ) -> Result<(), Problem> {
        let mut node = self.node.map(|n| NumberColumn::<u32>::new(group, n)).transpose()?;
        let mut cpu = self.cpu.map(|n| NumberColumn::<u64>::new(group, n)).transpose()?;
        let mut start_ns = NumberColumn::<i64>::new(group, self.start_ns)?;
        let mut duration_ns = NumberColumn::<u64>::new(group, self.duration_ns)?;
        let mut names =
            self.source.map(|at| Column::<ByteArrayType>::new(group, at, "source")).transpose()?;
        let unexplained = if names.is_none() { trace.source(&Source::Unexplained)? } else { 0 };
        let mut known = HashMap::new();
        let mut left = group.metadata.num_rows();
        loop {
            let rows = start_ns.next(trace.len())?;
            let others = [
                duration_ns.next(trace.len())?,
                node.as_mut().map_or(Ok(rows), |c| c.next(trace.len()))?,
                cpu.as_mut().map_or(Ok(rows), |c| c.next(trace.len()))?,
                names.as_mut().map_or(Ok(rows), Column::next)?,
            ];
            if others.iter().any(|other| *other != rows) {
                return Err(Problem::Damaged("its columns have different numbers of rows".to_owned()));
            }
            left -= rows as i64;
            if rows == 0 {
                // columns that are all short would lose rows without a word
                return match left {
                    0 => Ok(()),
                    _ => Err(Problem::Damaged(
                        "a row group has another number of rows than it says".to_owned(),
                    )),
                };
            }
            // detours of one source follow each other, and the names of a dictionary are at one address
            let mut last: Option<(&[u8], u16)> = None;
            for row in 0..rows {
                let source = match &names {
                    None => unexplained,
                    Some(names) => {
                        let name = names.values[row].data();
                        let source = match last.filter(|(last, _)| std::ptr::eq(*last, name)) {
                            Some((_, source)) => source,
                            None => source_of(name, &mut known, trace)?,
                        };
                        last = Some((name, source));
                        source
                    }
                };
                let cpu = cpu.as_ref().map_or(0, |c| c.values[row]);
                trace.push(Detour {
                    node: node.as_ref().map_or(0, |c| c.values[row]),
                    cpu: u16::try_from(cpu).map_err(|_| Problem::Cpu(cpu))?,
                    start_ns: start_ns.values[row],
                    duration_ns: duration_ns.values[row],
                    source,
                })?;
            }
        }
    }
}

/// The times that a column may hold instead of whole numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    None,
    /// Timestamps, and durations since an instant.
    Instants,
    /// Durations.
    Lengths,
}

impl Times {
    /// The types of such a column, and how to write one, for an error.
    const fn expected(self) -> &'static str {
        match self {
            Self::None => "a whole number; write it as int64",
            Self::Instants => {
                "a whole number of nanoseconds or a timestamp; write it as int64, in pandas with `.astype(\"int64\")`"
            }
            Self::Lengths => {
                "a whole number of nanoseconds or a duration; write it as int64, in pandas with `.astype(\"int64\")`"
            }
        }
    }
}

/// Whether a column of whole numbers has a sign, and the unit if it may hold times; `None` for another type.
fn whole_number(column: &ColumnDescriptor, times: Times, duration: Option<Unit>) -> Option<(bool, Unit)> {
    if !matches!(column.physical_type(), Physical::INT32 | Physical::INT64) || column.max_rep_level() > 0 {
        return None;
    }
    if duration.is_some() {
        return duration.filter(|_| times != Times::None).map(|unit| (true, unit));
    }
    let is_signed = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(int)), _) => int.is_signed,
        (Some(LogicalType::Timestamp(time)), _) if times == Times::Instants => {
            return Some((true, unit_of(time.unit)));
        }
        (Some(_), _) => return None,
        (
            None,
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64,
        ) => false,
        (
            None,
            ConvertedType::NONE
            | ConvertedType::INT_8
            | ConvertedType::INT_16
            | ConvertedType::INT_32
            | ConvertedType::INT_64,
        ) => true,
        (None, _) => return None,
    };
    Some((is_signed, Unit::Nanos))
}

fn unit_of(unit: TimeUnit) -> Unit {
    match unit {
        TimeUnit::MILLIS => Unit::Millis,
        TimeUnit::MICROS => Unit::Micros,
        TimeUnit::NANOS => Unit::Nanos,
    }
}

/// The error about a column of another type than `expected`.
fn other_type(
    name: &str,
    column: &ColumnDescriptor,
    durations: &BTreeMap<String, Unit>,
    expected: &str,
) -> Problem {
    let kind = match (durations.get(name), column.logical_type_ref(), column.converted_type()) {
        (Some(unit), ..) => format!("a duration in {}", unit.name()),
        (_, Some(LogicalType::Timestamp(time)), _) => format!("a timestamp in {}", unit_of(time.unit).name()),
        (_, Some(LogicalType::Time(time)), _) => format!("a time of day in {}", unit_of(time.unit).name()),
        (_, Some(LogicalType::Decimal(decimal)), _) => {
            format!("decimal({},{})", decimal.precision, decimal.scale)
        }
        (_, Some(kind), _) => format!("{kind:?}"),
        (_, None, ConvertedType::NONE) => column.physical_type().to_string(),
        (_, None, kind) => format!("{} ({kind})", column.physical_type()),
    };
    let list = if column.max_rep_level() > 0 { "a list of " } else { "" };
    Problem::NotATrace(format!("its column `{name}` is {list}{kind} and must be {expected}"))
}

fn is_text(column: &ColumnDescriptor) -> bool {
    let is_string = match column.logical_type_ref() {
        None => matches!(column.converted_type(), ConvertedType::NONE | ConvertedType::UTF8),
        Some(kind) => matches!(kind, LogicalType::String | LogicalType::Enum),
    };
    column.physical_type() == Physical::BYTE_ARRAY && is_string && column.max_rep_level() == 0
}

/// A column of a row group, read a batch at a time.
struct Column<T: DataType> {
    name: &'static str,
    reader: ColumnReaderImpl<T>,
    /// There are levels if the file says that values may be missing.
    levels: Option<Vec<i16>>,
    values: Vec<T::T>,
}

impl<T: DataType> Column<T> {
    fn new<R: ChunkReader + 'static>(
        group: &Group<'_, R>,
        at: usize,
        name: &'static str,
    ) -> Result<Self, Problem> {
        let descriptor = group.metadata.schema_descr().column(at);
        let is_optional = descriptor.max_def_level() > 0;
        if group.metadata.column(at).encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY) {
            return Err(Problem::NotATrace(format!(
                "its column `{name}` is text in the encoding DELTA_BYTE_ARRAY, which this version does not read; write it with a dictionary"
            )));
        }
        let least_bytes = if T::get_physical_type() == Physical::INT64 { 8 } else { 4 };
        let Some(pages) = group.pages(at, least_bytes).map_err(damaged)? else {
            let packing = format!("{:?}", group.metadata.column(at).compression());
            let packing = packing.split('(').next().unwrap_or_default().to_owned();
            return Err(Problem::Compression { column: name, packing });
        };
        let reader = ColumnReaderImpl::<T>::new(descriptor, Box::new(pages));
        Ok(Self { name, reader, levels: is_optional.then(Vec::new), values: Vec::new() })
    }

    /// Reads the next rows. Returns their number.
    fn next(&mut self) -> Result<usize, Problem> {
        self.values.clear();
        if let Some(levels) = &mut self.levels {
            levels.clear();
        }
        let levels = self.levels.as_mut();
        let (rows, values, _) =
            self.reader.read_records(BATCH, levels, None, &mut self.values).map_err(damaged)?;
        match rows.saturating_sub(values) {
            0 if self.values.len() == rows => Ok(rows),
            0 => Err(Problem::Damaged(format!("its column `{}` has another number of values", self.name))),
            n => Err(Problem::NotATrace(format!("{n} rows have no `{}`", self.name))),
        }
    }
}

/// A column of whole numbers of a row group, as numbers of one type.
struct NumberColumn<T> {
    column: Width,
    is_signed: bool,
    unit: Unit,
    values: Vec<T>,
}

enum Width {
    Narrow(Column<Int32Type>),
    Wide(Column<Int64Type>),
}

impl<T: Default + TryFrom<i64> + TryFrom<u64> + TryFrom<i128>> NumberColumn<T> {
    fn new<R: ChunkReader + 'static>(
        group: &Group<'_, R>,
        Numbers { name, at, is_wide, is_signed, unit }: Numbers,
    ) -> Result<Self, Problem> {
        let column = match is_wide {
            false => Width::Narrow(Column::new(group, at, name)?),
            true => Width::Wide(Column::new(group, at, name)?),
        };
        Ok(Self { column, is_signed, unit, values: Vec::new() })
    }

    /// Reads the next rows, of which `before` rows are before. Returns their number.
    fn next(&mut self, before: usize) -> Result<usize, Problem> {
        let (is_signed, out) = (self.is_signed, &mut self.values);
        let ns = i128::from(self.unit.ns());
        match &mut self.column {
            Width::Narrow(column) => {
                column.next()?;
                let (name, values) = (column.name, column.values.iter());
                match is_signed {
                    true => convert(name, before, values.map(|v| i64::from(*v)), out),
                    false => convert(name, before, values.map(|v| u64::from(v.cast_unsigned())), out),
                }
            }
            Width::Wide(column) => {
                column.next()?;
                let (name, values) = (column.name, column.values.iter());
                match is_signed {
                    true if ns > 1 => convert(name, before, values.map(|v| i128::from(*v) * ns), out),
                    true => convert(name, before, values.copied(), out),
                    false => convert(name, before, values.map(|v| v.cast_unsigned()), out),
                }
            }
        }
    }
}

/// Fills `out` with `values`, of which `before` rows are before. Returns their number.
fn convert<V: Copy + std::fmt::Display, T: Default + TryFrom<V>>(
    name: &str,
    before: usize,
    values: impl Iterator<Item = V> + Clone,
    out: &mut Vec<T>,
) -> Result<usize, Problem> {
    let mut all_fit = true;
    out.clear();
    out.extend(values.clone().map(|v| {
        T::try_from(v).unwrap_or_else(|_| {
            all_fit = false;
            T::default()
        })
    }));
    let first_wrong = || values.enumerate().find(|(_, v)| T::try_from(*v).is_err());
    match (!all_fit).then(first_wrong).flatten() {
        None => Ok(out.len()),
        Some((row, v)) => Err(Problem::NotATrace(format!("the `{name}` of row {} is {v}", before + row + 1))),
    }
}

/// The source of a name, whose number is in `known` if an earlier row has it.
fn source_of(
    name: &[u8],
    known: &mut HashMap<Box<[u8]>, u16>,
    trace: &mut TraceBuilder,
) -> Result<u16, Problem> {
    if let Some(index) = known.get(name) {
        return Ok(*index);
    }
    let text = std::str::from_utf8(name).map_err(|e| Problem::Damaged(e.to_string()))?;
    let index = trace.source(&text.into())?;
    known.insert(name.into(), index);
    Ok(index)
}
