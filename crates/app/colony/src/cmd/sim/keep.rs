// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results that survive the end of their run: every point is kept the moment it is done.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context;
use colony_sim::sweep::{Finished, Results};

use super::parquet;
use crate::exit::wrong;

/// A form of results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Json,
    Parquet,
}

/// Keeps the points of a run: a line each in a file beside the results, until all are there.
pub(super) struct Keeper {
    out: PathBuf,
    form: Form,
    journal: PathBuf,
    lines: Mutex<File>,
}

impl Keeper {
    /// Results at `out`, and the points that are there from earlier runs of the same scenario.
    pub(super) fn open(out: &Path, results: &Results, resume: bool) -> anyhow::Result<(Self, Vec<Finished>)> {
        let form = match out.extension().and_then(|e| e.to_str()) {
            Some("json") => Form::Json,
            Some("parquet") => Form::Parquet,
            _ => return Err(wrong(format!("--out {}: name it .json or .parquet", out.display()))),
        };
        crate::cmd::can_write(out)?;
        let mut name = OsString::from(out.as_os_str());
        name.push(".partial");
        let journal = PathBuf::from(name);
        let kept = match resume {
            true => earlier(out, form, &journal, results)?,
            false if journal.exists() => {
                let journal = journal.display();
                return Err(wrong(format!(
                    "{journal} has points of a run that did not end: --resume goes on with them, or remove it"
                )));
            }
            false => Vec::new(),
        };
        let lines =
            begin(&journal, results, &kept).with_context(|| format!("writing {}", journal.display()))?;
        Ok((Self { out: out.to_owned(), form, journal, lines: Mutex::new(lines) }, kept))
    }

    /// Keeps one point more.
    pub(super) fn add(&self, finished: &Finished) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(finished)?;
        line.push(b'\n');
        let mut file = self.lines.lock().map_err(|_| anyhow::anyhow!("a thread that kept results failed"))?;
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        written.with_context(|| format!("writing {}", self.journal.display()))
    }

    /// Writes all of it, whole, and removes the lines.
    pub(super) fn finish(self, results: &Results) -> anyhow::Result<()> {
        match self.form {
            Form::Json => crate::cmd::keep(&self.out, results)?,
            Form::Parquet => parquet::write(&self.out, results)?,
        }
        std::fs::remove_file(&self.journal).with_context(|| format!("removing {}", self.journal.display()))
    }
}

/// A new file of lines: the scenario first, then the points there are.
fn begin(journal: &Path, results: &Results, kept: &[Finished]) -> anyhow::Result<File> {
    colony_node::file::write_atomically::<std::io::Error>(journal, |w| {
        serde_json::to_writer(&mut *w, results)?;
        w.write_all(b"\n")?;
        for finished in kept {
            serde_json::to_writer(&mut *w, finished)?;
            w.write_all(b"\n")?;
        }
        Ok(())
    })?;
    Ok(OpenOptions::new().append(true).open(journal)?)
}

/// Points of earlier runs, from finished results and from those of a run that was ended.
fn earlier(out: &Path, form: Form, journal: &Path, results: &Results) -> anyhow::Result<Vec<Finished>> {
    let mut kept = Vec::new();
    let finished = match form {
        _ if !out.exists() => None,
        Form::Json => Some(read_json(out)?),
        Form::Parquet => Some(parquet::read(out)?),
    };
    let ended = if journal.exists() { read_lines(journal)? } else { None };
    for (path, found) in [(out, finished), (journal, ended)] {
        let Some(found) = found else { continue };
        if !results.shares_points_with(&found) {
            return Err(wrong(format!(
                "{} is from another scenario, trace or version: nothing of it can be resumed; name another --out",
                path.display()
            )));
        }
        kept.extend(found.points);
    }
    Ok(kept)
}

fn read_json(path: &Path) -> anyhow::Result<Results> {
    let what = || format!("{} holds no results of colony sim to resume", path.display());
    let file = File::open(path).with_context(what)?;
    serde_json::from_reader(BufReader::new(file)).with_context(what)
}

/// The lines of a run that was ended; `None` where not even the first is whole. The last may be torn.
fn read_lines(path: &Path) -> anyhow::Result<Option<Results>> {
    let reading = || format!("reading {}", path.display());
    let mut lines = BufReader::new(File::open(path).with_context(reading)?).lines();
    let Some(first) = lines.next() else { return Ok(None) };
    let Ok(mut results) = serde_json::from_str::<Results>(&first.with_context(reading)?) else {
        return Ok(None);
    };
    for line in lines {
        match line.ok().and_then(|l| serde_json::from_str::<Finished>(&l).ok()) {
            Some(finished) => results.points.push(finished),
            None => break,
        }
    }
    Ok(Some(results))
}
