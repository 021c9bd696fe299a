// SPDX-License-Identifier: MIT OR Apache-2.0
//! GOAL as text.

use std::io::{BufRead, Read, Write};

use super::build::Builder;
use super::schedule::{ANY, Kind, Operation, Schedule};
use super::words::{Labels, Plain, Words};
use super::{BuildError, GoalError};
use crate::Layout;

/// Longest line: no statement comes near, and a file without line ends fills no memory.
pub(super) const LONGEST_LINE: u64 = 1 << 16;

/// Reads a schedule from text; errors name it `name`. It needs no more memory than the schedule and a
/// line number an operation.
///
/// # Errors
/// [`GoalError::Text`] with the line, [`GoalError::Io`].
pub fn read_text(mut from: impl BufRead, name: &str) -> Result<Schedule, GoalError> {
    let mut parser = Parser::default();
    match parser.lines(&mut from) {
        Ok(()) => parser.finish().map_err(|e| e.of(name)),
        Err(Stop::Bad(bad)) => Err(bad.of(name)),
        Err(Stop::Io(error)) => Err(GoalError::Io { file: name.into(), error }),
    }
}

/// The number of ranks, if the file begins well.
pub(super) fn head(mut from: impl BufRead) -> Option<u32> {
    let mut parser = Parser::default();
    let mut line = Vec::new();
    // a comment of reasonable length may come first
    for _ in 0..1000 {
        line.clear();
        (&mut from).take(LONGEST_LINE).read_until(b'\n', &mut line).ok()?;
        parser.line(&line).ok()?;
        if parser.ranks > 0 {
            return Some(parser.ranks);
        }
    }
    None
}

/// Reads a part of a file, from the beginning of a rank to the end of one, if nothing is wrong with it; `whole`
/// says that it has the file's beginning.
pub(super) fn part(mut from: impl BufRead, whole: bool, ranks: u32) -> Option<Builder> {
    let mut parser = Parser { part: true, ..Parser::default() };
    if !whole {
        let first = from.fill_buf().ok()?;
        let first = &first[..first.len().min(64)];
        let digits = first.strip_prefix(b"rank ")?;
        let digits = &digits[..digits.iter().take_while(|c| c.is_ascii_digit()).count()];
        let base: u32 = std::str::from_utf8(digits).ok()?.parse().ok().filter(|&n| n < ranks)?;
        parser.ranks = ranks;
        parser.builder = Some(Builder::part(ranks, base));
    }
    parser.lines(&mut from).ok()?;
    if parser.in_comment || parser.in_rank { None } else { parser.builder }
}

/// The reasons to stop reading early.
enum Stop {
    Bad(Bad),
    Io(std::io::Error),
}

/// The fault of a line.
struct Bad {
    line: u64,
    fault: String,
}

impl Bad {
    fn of(self, name: &str) -> GoalError {
        GoalError::Text { file: name.into(), line: self.line, fault: self.fault }
    }
}

#[derive(Default)]
struct Parser {
    line: u64,
    in_comment: bool,
    ranks: u32,
    builder: Option<Builder>,
    /// True if this is a part of a file; the lines of its operations are not needed.
    part: bool,
    /// The place in `lines` at which the operations of each rank begin.
    first: Vec<usize>,
    /// Line of each operation.
    lines: Vec<u32>,
    in_rank: bool,
    labels: Labels,
}

fn shown(word: Option<&[u8]>) -> String {
    match word {
        None => "the end of the line".into(),
        Some(w) => format!("`{}`", String::from_utf8_lossy(&w[..w.len().min(60)]).escape_debug()),
    }
}

impl Parser {
    fn lines(&mut self, from: &mut impl BufRead) -> Result<(), Stop> {
        let mut line = Vec::new();
        loop {
            let there = match from.fill_buf() {
                Ok(there) => there,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Stop::Io(error)),
            };
            if let Some(last) = there.iter().rposition(|&c| c == b'\n') {
                self.whole_lines(&there[..=last]).map_err(Stop::Bad)?;
                from.consume(last + 1);
                continue;
            }
            // a line that is not there to its end
            line.clear();
            match (&mut *from).take(LONGEST_LINE).read_until(b'\n', &mut line) {
                Err(error) => return Err(Stop::Io(error)),
                Ok(0) => return Ok(()),
                Ok(_) => self.next_line(&line).map_err(Stop::Bad)?,
            }
        }
    }

    /// Lines with their ends.
    fn whole_lines(&mut self, mut text: &[u8]) -> Result<(), Bad> {
        while !text.is_empty() {
            let length = match self.plain(text) {
                Some(length) => {
                    self.line += 1;
                    length
                }
                None => {
                    let length = text.iter().position(|&c| c == b'\n').map_or(text.len(), |n| n + 1);
                    self.next_line(&text[..length])?;
                    length
                }
            };
            text = &text[length..];
        }
        Ok(())
    }

    fn next_line(&mut self, line: &[u8]) -> Result<(), Bad> {
        self.line += 1;
        if line.len() as u64 >= LONGEST_LINE {
            return Err(self.bad(format!("the line is longer than {LONGEST_LINE} bytes")));
        }
        self.line(line)
    }

    fn bad(&self, fault: impl Into<String>) -> Bad {
        Bad { line: self.line, fault: fault.into() }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), Bad> {
        let mut text = std::borrow::Cow::Borrowed(line);
        if self.in_comment || line.contains(&b'/') {
            text = self.without_comments(line).into();
        }
        let mut words = Words { rest: &text };
        while words.peek().is_some() {
            self.statement(&mut words)?;
            // only braces may share a line with others
            if words.peek().is_some() && !matches!(words.peek(), Some(b"}")) && !text.contains(&b'{') {
                let found = shown(words.peek());
                return Err(self.bad(format!("expected the end of the line, found {found}")));
            }
        }
        Ok(())
    }

    /// Takes a statement in the form in which generators write nearly all of them. Any other, and one that is wrong,
    /// is left as it is. Returns its length with the line's end.
    fn plain(&mut self, text: &[u8]) -> Option<usize> {
        if !self.in_rank || self.in_comment || !self.labels.others.is_empty() {
            return None;
        }
        let builder = self.builder.as_mut()?;
        let mut rest = Plain(text);
        let label = rest.label()?;
        if rest.eat(b" requires ") {
            let on = rest.label()?;
            rest.end()?;
            let (operation, on) = (self.labels.numbered(label)?, self.labels.numbered(on)?);
            builder.require(operation, on, false).ok()?;
            return Some(text.len() - rest.0.len());
        }
        if !rest.eat(b": ")
            || label > Labels::most(builder.next_operation())
            || self.labels.numbered(label).is_some()
        {
            return None;
        }
        let mut o = Operation { kind: Kind::Calc, size: 0, peer: 0, tag: 0, cpu: 0, nic: 0 };
        if rest.eat(b"calc ") {
            o.size = rest.number()?;
        } else {
            let towards: &[u8] = if rest.eat(b"send ") {
                o.kind = Kind::Send;
                b"b to "
            } else if rest.eat(b"recv ") {
                o.kind = Kind::Recv;
                b"b from "
            } else {
                return None;
            };
            o.size = rest.number()?;
            o.peer = rest.eat(towards).then(|| rest.number())?? as u32;
            o.tag = rest.eat(b" tag ").then(|| rest.number())?? as u32;
        }
        rest.end()?;
        let number = builder.add(o).ok()?;
        self.labels.insert_numbered(label, number);
        if !self.part {
            self.lines.push(u32::try_from(self.line + 1).unwrap_or(u32::MAX));
        }
        Some(text.len() - rest.0.len())
    }

    fn without_comments(&mut self, line: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(line.len());
        let mut i = 0;
        while i < line.len() {
            let two = line.get(i..i + 2);
            if self.in_comment {
                self.in_comment = two != Some(b"*/");
                i += if self.in_comment { 1 } else { 2 };
            } else if two == Some(b"//") {
                break;
            } else if two == Some(b"/*") {
                self.in_comment = true;
                text.push(b' ');
                i += 2;
            } else {
                text.push(line[i]);
                i += 1;
            }
        }
        text
    }

    fn statement(&mut self, words: &mut Words<'_>) -> Result<(), Bad> {
        if !self.in_rank {
            return self.outside(words);
        }
        if words.eat("}") {
            return self.end_rank();
        }
        let Some(word) = words.next() else { return Ok(()) };
        if matches!(word, b"send" | b"recv" | b"calc") {
            return self.operation(word, words).map(|_| ());
        }
        if !word.first().is_some_and(u8::is_ascii_alphabetic) {
            let found = shown(Some(word));
            return Err(self.bad(format!("expected a label, `send`, `recv`, `calc` or `}}`, found {found}")));
        }
        match words.next() {
            Some(b":") => {
                let kind = words.next();
                let number = match kind {
                    Some(kind @ (b"send" | b"recv" | b"calc")) => self.operation(kind, words)?,
                    other => {
                        let found = shown(other);
                        return Err(self.bad(format!("expected `send`, `recv` or `calc`, found {found}")));
                    }
                };
                self.labels.insert(word, number);
                Ok(())
            }
            Some(how @ (b"requires" | b"irequires")) => {
                let (operation, on) = (self.label(Some(word))?, self.label(words.next())?);
                let start_only = how == b"irequires";
                let line = self.line;
                match &mut self.builder {
                    Some(b) => b
                        .require(operation, on, start_only)
                        .map_err(|e| Bad { line, fault: e.fault.to_string() }),
                    None => Ok(()),
                }
            }
            other => {
                let found = shown(other);
                Err(self.bad(format!(
                    "expected `:`, `requires` or `irequires` after {}, found {found}",
                    shown(Some(word))
                )))
            }
        }
    }

    fn outside(&mut self, words: &mut Words<'_>) -> Result<(), Bad> {
        match words.next() {
            Some(b"num_ranks") if self.builder.is_none() => {
                let ranks = self.number(words, "a number of ranks", Layout::MAX_RANKS)?;
                if ranks == 0 {
                    return Err(self.bad("a schedule needs at least one rank"));
                }
                self.ranks = ranks as u32;
                self.builder = Some(Builder::new(self.ranks));
                Ok(())
            }
            Some(b"rank") if self.builder.is_some() => {
                let rank = self.number(words, "a rank", u64::from(self.ranks) - 1)?;
                let next = self.builder.as_ref().map_or(0, Builder::rank);
                if rank != u64::from(next) {
                    return Err(
                        self.bad(format!("found rank {rank}, expected rank {next}: ranks come in order"))
                    );
                }
                if !words.eat("{") {
                    let found = shown(words.peek());
                    return Err(self.bad(format!("expected `{{` after the rank, found {found}")));
                }
                if !self.part {
                    self.first.push(self.lines.len());
                }
                self.in_rank = true;
                Ok(())
            }
            Some(b"num_ranks") => Err(self.bad("the number of ranks is given twice")),
            other => {
                let expected = if self.builder.is_none() { "num_ranks" } else { "rank" };
                Err(self.bad(format!("expected `{expected} …`, found {}", shown(other))))
            }
        }
    }

    fn number(&self, words: &mut Words<'_>, expected: &str, most: u64) -> Result<u64, Bad> {
        let word = words.next();
        let digits = word.and_then(|w| std::str::from_utf8(w).ok());
        match digits.filter(|d| d.starts_with(|c: char| c.is_ascii_digit())).map(str::parse::<u64>) {
            Some(Ok(n)) if n <= most => Ok(n),
            Some(_) => Err(self.bad(format!("{} is too large for {expected}: at most {most}", shown(word)))),
            None => Err(self.bad(format!("expected {expected}, found {}", shown(word)))),
        }
    }

    /// A rank, or -1 for any.
    fn peer(&self, words: &mut Words<'_>) -> Result<u32, Bad> {
        if words.eat("-1") { Ok(ANY) } else { Ok(self.number(words, "a rank", u64::from(ANY) - 1)? as u32) }
    }

    /// A tag, or -1 for any. A tag of any length is taken modulo 2^32, as in LogGOPSim: the NCCL generator of ATLAHS
    /// writes tags of ten and more digits.
    fn tag(&self, words: &mut Words<'_>) -> Result<u32, Bad> {
        if words.eat("-1") {
            return Ok(ANY);
        }
        match words.next() {
            Some(digits @ [b'0'..=b'9', ..]) => Ok(digits
                .iter()
                .fold(0, |tag: u32, d| tag.wrapping_mul(10).wrapping_add(u32::from(d - b'0')))),
            other => Err(self.bad(format!("expected a tag, found {}", shown(other)))),
        }
    }

    fn operation(&mut self, kind: &[u8], words: &mut Words<'_>) -> Result<u32, Bad> {
        let kind = match kind {
            b"send" => Kind::Send,
            b"recv" => Kind::Recv,
            _ => Kind::Calc,
        };
        let expected = if kind == Kind::Calc { "a time in nanoseconds" } else { "a number of bytes" };
        let size = self.number(words, expected, u64::MAX)?;
        let mut o = Operation { kind, size, peer: 0, tag: 0, cpu: 0, nic: 0 };
        if kind != Kind::Calc {
            let towards = if kind == Kind::Send { "to" } else { "from" };
            if !words.eat("b") || !words.eat(towards) {
                let found = shown(words.peek());
                return Err(self.bad(format!("expected `b {towards}` and a rank, found {found}")));
            }
            o.peer = self.peer(words)?;
        }
        loop {
            if kind != Kind::Calc && words.eat("tag") {
                o.tag = self.tag(words)?;
            } else if words.eat("cpu") {
                o.cpu = self.number(words, "a CPU", u64::from(u8::MAX))? as u8;
            } else if kind != Kind::Calc && words.eat("nic") {
                o.nic = self.number(words, "a network interface", u64::from(u8::MAX))? as u8;
            } else {
                break;
            }
        }
        if !self.part {
            self.lines.push(u32::try_from(self.line).unwrap_or(u32::MAX));
        }
        let line = self.line;
        match &mut self.builder {
            Some(b) => b.add(o).map_err(|e| Bad { line, fault: e.fault.to_string() }),
            None => Err(self.bad("expected `num_ranks …` first")),
        }
    }

    fn label(&self, label: Option<&[u8]>) -> Result<u32, Bad> {
        match label.and_then(|l| self.labels.get(l)) {
            Some(number) => Ok(number),
            None => Err(self.bad(format!("no operation of this rank so far has the label {}", shown(label)))),
        }
    }

    fn end_rank(&mut self) -> Result<(), Bad> {
        self.in_rank = false;
        self.labels.clear();
        let ended = self.builder.as_mut().map_or(Ok(()), Builder::next_rank);
        ended.map_err(|e| self.at(&e))
    }

    fn at(&self, e: &BuildError) -> Bad {
        let first = self.first.get(e.rank as usize).copied().unwrap_or(0);
        let line = self.lines.get(first + e.operation as usize).map_or(self.line, |&l| u64::from(l));
        Bad { line, fault: e.fault.to_string() }
    }

    fn finish(mut self) -> Result<Schedule, Bad> {
        if self.in_comment {
            return Err(self.bad("the file ends in a comment; close it with `*/`"));
        }
        if self.in_rank {
            return Err(self.bad("the file ends inside a rank; close it with `}`"));
        }
        match self.builder.take() {
            None => Err(self.bad("the file has no schedule: expected `num_ranks …`")),
            Some(b) if b.rank() < self.ranks => {
                let (has, ranks) = (b.rank(), self.ranks);
                Err(self.bad(format!("the file ends after rank {has} of {ranks}, counted from 1")))
            }
            Some(b) => b.finish().map_err(|e| self.at(&e)),
        }
    }
}

/// Writes `schedule` as text that LogGOPSim's `txt2bin` reads; the operations' labels are `l1`, `l2` …
///
/// # Errors
/// The errors of `to`.
pub fn write_text(schedule: &Schedule, mut to: impl Write) -> std::io::Result<()> {
    let or_any = |n: u32| if n == ANY { "-1".to_owned() } else { n.to_string() };
    writeln!(to, "num_ranks {}", schedule.ranks())?;
    for rank in 0..schedule.ranks() {
        writeln!(to, "\nrank {rank} {{")?;
        for (number, o) in schedule.of_rank(rank).enumerate() {
            let label = number + 1;
            let (tag, peer) = (or_any(o.tag), or_any(o.peer));
            match o.kind {
                Kind::Calc => write!(to, "l{label}: calc {}", o.size)?,
                Kind::Send => write!(to, "l{label}: send {}b to {peer} tag {tag}", o.size)?,
                Kind::Recv => write!(to, "l{label}: recv {}b from {peer} tag {tag}", o.size)?,
            }
            if o.cpu > 0 {
                write!(to, " cpu {}", o.cpu)?;
            }
            if o.nic > 0 {
                write!(to, " nic {}", o.nic)?;
            }
            writeln!(to)?;
        }
        for r in schedule.requirements(rank) {
            let how = if r.start_only { "irequires" } else { "requires" };
            writeln!(to, "l{} {how} l{}", r.operation + 1, r.on + 1)?;
        }
        writeln!(to, "}}")?;
    }
    Ok(())
}
