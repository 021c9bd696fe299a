// SPDX-License-Identifier: MIT OR Apache-2.0
//! The columns of a Parquet file that hold a trace: where they are, of which types, and their rows.
//!
//! Data tools write numbers of the width and the sign that they calculate with, and columns whose values may be missing. So any type of
//! whole number is read, and a value out of range is an error.

use std::collections::HashMap;

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::ColumnDescriptor;

use super::pages::BoundedPages;
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
    /// The places in a file with the columns `found`.
    ///
    /// # Errors
    /// [`Problem::NotATrace`]: a column is missing or of another type.
    pub(super) fn of<'a>(found: impl Iterator<Item = &'a ColumnDescriptor> + Clone) -> Result<Self, Problem> {
        let column =
            |name: &str| found.clone().enumerate().find(|(_, column)| column.path().parts() == [name]);
        let other_type = |name: &str, column: &ColumnDescriptor, expected: &str| {
            let kind = match column.logical_type_ref() {
                Some(kind) => format!("{kind:?}"),
                None => column.physical_type().to_string(),
            };
            Problem::NotATrace(format!("its column `{name}` is {kind} and must be {expected}"))
        };
        let numbers = |name: &'static str| match column(name) {
            None => Ok(None),
            Some((at, column)) => match whole_number(column) {
                Some((is_wide, is_signed)) => Ok(Some(Numbers { name, at, is_wide, is_signed })),
                None => Err(other_type(name, column, "a whole number (of nanoseconds, if it is a time)")),
            },
        };
        let required =
            |name| numbers(name)?.ok_or_else(|| Problem::NotATrace(format!("it has no column `{name}`")));
        let source = match column("source") {
            None => None,
            Some((at, column)) if is_text(column) => Some(at),
            Some((_, column)) => return Err(other_type("source", column, "text")),
        };
        Ok(Self {
            node: numbers("node")?,
            cpu: numbers("cpu")?,
            start_ns: required("start_ns")?,
            duration_ns: required("duration_ns")?,
            source,
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
    pub(super) fn push(&self, trace: &mut TraceBuilder, group: &dyn RowGroupReader) -> Result<(), Problem> {
        let mut node = self.node.map(|n| NumberColumn::<u32>::new(group, n)).transpose()?;
        let mut cpu = self.cpu.map(|n| NumberColumn::<u64>::new(group, n)).transpose()?;
        let mut start_ns = NumberColumn::<i64>::new(group, self.start_ns)?;
        let mut duration_ns = NumberColumn::<u64>::new(group, self.duration_ns)?;
        let mut names =
            self.source.map(|at| Column::<ByteArrayType>::new(group, at, "source")).transpose()?;
        let unexplained = if names.is_none() { trace.source(&Source::Unexplained)? } else { 0 };
        let mut known = HashMap::new();
        let mut left = group.metadata().num_rows();
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

/// Whether a column of whole numbers has 64 bits, and a sign; `None` for another type. Instants and lengths in nanoseconds are numbers.
fn whole_number(column: &ColumnDescriptor) -> Option<(bool, bool)> {
    let is_wide = match column.physical_type() {
        Physical::INT32 => false,
        Physical::INT64 => true,
        _ => return None,
    };
    let is_signed = match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(int)), _) => int.is_signed,
        (Some(LogicalType::Timestamp(time)), _) => {
            return (time.unit == TimeUnit::NANOS).then_some((is_wide, true));
        }
        (Some(_), _) => return None,
        (
            None,
            ConvertedType::UINT_8 | ConvertedType::UINT_16 | ConvertedType::UINT_32 | ConvertedType::UINT_64,
        ) => false,
        (None, ConvertedType::NONE) => true,
        (
            None,
            ConvertedType::INT_8 | ConvertedType::INT_16 | ConvertedType::INT_32 | ConvertedType::INT_64,
        ) => true,
        (None, _) => return None,
    };
    (column.max_rep_level() == 0).then_some((is_wide, is_signed))
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
    fn new(group: &dyn RowGroupReader, at: usize, name: &'static str) -> Result<Self, Problem> {
        let is_optional = group.metadata().schema_descr().column(at).max_def_level() > 0;
        let descriptor = group.metadata().schema_descr().column(at);
        let least_bytes = if T::get_physical_type() == Physical::INT64 { 8 } else { 4 };
        let pages = BoundedPages::new(group.get_column_page_reader(at).map_err(damaged)?, least_bytes);
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
    values: Vec<T>,
}

enum Width {
    Narrow(Column<Int32Type>),
    Wide(Column<Int64Type>),
}

impl<T: Default + TryFrom<i64> + TryFrom<u64>> NumberColumn<T> {
    fn new(
        group: &dyn RowGroupReader,
        Numbers { name, at, is_wide, is_signed }: Numbers,
    ) -> Result<Self, Problem> {
        let column = match is_wide {
            false => Width::Narrow(Column::new(group, at, name)?),
            true => Width::Wide(Column::new(group, at, name)?),
        };
        Ok(Self { column, is_signed, values: Vec::new() })
    }

    /// Reads the next rows, of which `before` rows are before. Returns their number.
    fn next(&mut self, before: usize) -> Result<usize, Problem> {
        let (is_signed, out) = (self.is_signed, &mut self.values);
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
