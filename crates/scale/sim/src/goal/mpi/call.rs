// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of a trace of liballprof. An array of counts is two arguments: its address and its numbers.

/// A call as it stands in a line.
pub(super) struct Call<'a> {
    pub(super) name: &'a str,
    /// `None` for `MPI_Init`, which has no clock yet.
    pub(super) start_ns: Option<u64>,
    arguments: Vec<&'a str>,
    pub(super) end_ns: u64,
}

impl<'a> Call<'a> {
    pub(super) fn parse(line: &'a str) -> Option<Self> {
        let mut fields: Vec<&str> = line.split(':').collect();
        let (end, name) = (fields.pop()?, *fields.first()?);
        let start = *fields.get(1)?;
        let start_ns = if start == "-" { None } else { Some(nanoseconds(start)?) };
        Some(Self { name, start_ns, arguments: fields.split_off(2), end_ns: nanoseconds(end)? })
    }

    /// Argument `at`, from 0; empty if the line has fewer.
    pub(super) fn argument(&self, at: usize) -> &'a str {
        self.arguments.get(at).copied().unwrap_or_default()
    }

    /// An address that the program passed.
    pub(super) fn address(&self, at: usize) -> Result<u64, String> {
        self.number(at).map(i64::cast_unsigned)
    }

    /// Bytes for each rank: the counts `1,2,3` of argument `counts`, of the type that is argument `of_type`.
    pub(super) fn bytes_of_ranks(
        &self,
        counts: usize,
        of_type: usize,
        ranks: u32,
    ) -> Result<Vec<u64>, String> {
        let size = self.argument(of_type).split(',').nth(1).and_then(|size| size.parse::<u64>().ok());
        let bytes = |count: &str| count.parse::<u64>().ok()?.checked_mul(size?);
        let all: Option<Vec<u64>> = self.argument(counts).split(',').map(bytes).collect();
        all.filter(|all| all.len() == ranks as usize).ok_or_else(|| {
            format!(
                "arguments {} and {} of {} must be a count for each of the {ranks} ranks and a type `name,size,extent`",
                counts + 1,
                of_type + 1,
                self.name
            )
        })
    }

    pub(super) fn number(&self, at: usize) -> Result<i64, String> {
        let text = self.argument(at);
        text.parse()
            .map_err(|_| format!("argument {} of {} must be a number and is `{text}`", at + 1, self.name))
    }

    /// Bytes of the data whose count and type begin at argument `at`; a type is `name,size,extent`.
    pub(super) fn bytes(&self, at: usize) -> Result<u64, String> {
        let kind = self.argument(at + 1);
        let size = kind.split(',').nth(1).and_then(|size| size.parse::<u64>().ok());
        let count = u64::try_from(self.number(at)?).ok();
        count.zip(size).and_then(|(count, size)| count.checked_mul(size)).ok_or_else(|| {
            format!(
                "arguments {} and {} of {} must be a count and a type `name,size,extent`",
                at + 1,
                at + 2,
                self.name
            )
        })
    }
}

/// `1200` or `1200.25` microseconds.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, part) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let part: String = part.chars().chain("000".chars()).take(3).collect();
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part.parse().ok()?)
}
