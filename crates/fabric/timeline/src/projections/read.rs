// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the files of a run: the `.sts` file, then the logs of its PEs, one after the other.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::lines::unpacked;
use super::log::{self, Missing, UNKNOWN_PE};
use super::sts::Sts;
use super::write::log_path;
use crate::error::{Problem, TimelineError};
use crate::record::{Event, MessageId, Record};
use crate::timeline::{Meta, Timeline, Track};

/// Returns `true` if `path` names a run of Projections: an `.sts` file, or a folder.
#[must_use]
pub fn is_run(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "sts") || path.is_dir()
}

/// Reads the run of an `.sts` file, or of the only one in a folder. Its logs lie beside it, plain or packed with gzip.
///
/// Instants are after the begin of the program, not TAI. [`Meta::notes`] counts what the time line does not have.
///
/// # Errors
/// [`TimelineError::File`] with the file and, of a wrong record, the line.
pub fn read(path: &Path) -> Result<Timeline, TimelineError> {
    let path = sts_path(path)?;
    let mut sts = opened(&path, Sts::read)?;
    let (mut tracks, mut missing) = (Vec::new(), Missing::default());
    for pe in 0..sts.pes {
        let log = existing_log(&path, pe, sts.pes)?;
        let (track, of_log) = opened(&log, |input| log::read(input, &mut sts, pe))?;
        tracks.push(track);
        missing.add(of_log);
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    put_together(sts, &stem, tracks, missing).map_err(|problem| wrong(&path, problem))
}

/// Reads the bytes of an `.sts` file and of the logs of its PEs.
///
/// # Errors
/// [`Problem`] of the content.
pub fn parse(sts: &[u8], logs: &[&[u8]]) -> Result<Timeline, Problem> {
    let mut sts = Sts::read(sts)?;
    if logs.len() != sts.pes as usize {
        return Err(Problem::Content(format!("{} PEs have {} logs", sts.pes, logs.len())));
    }
    let (mut tracks, mut missing) = (Vec::new(), Missing::default());
    for (log, pe) in logs.iter().zip(0..) {
        let (track, of_log) = log::read(unpacked(*log)?, &mut sts, pe)?;
        tracks.push(track);
        missing.add(of_log);
    }
    put_together(sts, "run", tracks, missing)
}

fn wrong(path: &Path, problem: Problem) -> TimelineError {
    TimelineError::File { doing: "reading", path: path.into(), problem }
}

fn opened<T>(
    path: &Path,
    read: impl FnOnce(Box<dyn std::io::BufRead>) -> Result<T, Problem>,
) -> Result<T, TimelineError> {
    let file = File::open(path).and_then(unpacked).map_err(|e| wrong(path, e.into()))?;
    read(file).map_err(|problem| wrong(path, problem))
}

/// The `.sts` file that `path` is, or that the folder `path` has.
fn sts_path(path: &Path) -> Result<PathBuf, TimelineError> {
    if !path.is_dir() {
        return Ok(path.into());
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| wrong(path, e.into()))? {
        let name = entry.map_err(|e| wrong(path, e.into()))?.file_name();
        let text = name.to_string_lossy();
        // NAME.sum.sts goes with summary files, which have no time lines
        if text.ends_with(".sts") && !text.ends_with(".sum.sts") {
            found.push(path.join(&name));
        }
    }
    found.sort();
    let content = |text: String| Err(wrong(path, Problem::Content(text)));
    match (found.pop(), found.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => content("the folder has no .sts file of Projections; give the files of a run".into()),
        (Some(_), others) => content(format!("the folder has {} .sts files; give one of them", others + 1)),
    }
}

/// The log of a PE, or its packed form.
fn existing_log(sts: &Path, pe: u32, pes: u32) -> Result<PathBuf, TimelineError> {
    let plain = log_path(sts, pe);
    let packed = sts.with_extension(format!("{pe}.log.gz"));
    if plain.exists() {
        return Ok(plain);
    }
    if packed.exists() {
        return Ok(packed);
    }
    let text = format!(
        "the log of PE {pe} is missing, packed (.log.gz) and unpacked; copy the logs of all {pes} PEs beside the .sts file"
    );
    Err(wrong(&plain, Problem::Content(text)))
}

fn put_together(sts: Sts, stem: &str, mut tracks: Vec<Track>, missing: Missing) -> Result<Timeline, Problem> {
    let lost = find_receivers(&mut tracks);
    let meta = Meta {
        program: sts.program(stem),
        pes: sts.pes,
        command: sts.command.clone(),
        notes: notes(&missing, lost),
        ..Meta::default()
    };
    let processes = sts.processes();
    Timeline::new(meta, processes, sts.names, tracks).map_err(|e| Problem::Content(e.to_string()))
}

/// Puts the PE that executed a message in the place of the one it was sent to, which the logs do not have. Takes the sendings
/// away whose execution no log has: returns their number.
fn find_receivers(tracks: &mut [Track]) -> u64 {
    let mut executed: HashMap<MessageId, u32> = HashMap::new();
    for track in tracks.iter() {
        for t in track.events() {
            if let Event::Executed { message, .. } = t.event {
                executed.entry(message).or_insert(track.pe);
            }
        }
    }
    let mut lost = 0;
    for track in tracks {
        track.records.retain_mut(|record| {
            let Some(mut timed) = record.timed() else { return true };
            let Event::Sent { message, to, .. } = &mut timed.event else { return true };
            if *to != UNKNOWN_PE {
                return true;
            }
            let Some(&pe) = executed.get(message) else {
                lost += 1;
                return false;
            };
            *to = pe;
            *record = Record::from(timed);
            true
        });
    }
    lost
}

/// What the logs hold and the time line does not.
fn notes(missing: &Missing, lost: u64) -> Vec<String> {
    let Missing { kinds, unpaired, untraced_ns, unfinished } = missing;
    let not_shown: u64 = kinds.values().sum();
    let kinds: Vec<String> = kinds.keys().map(u8::to_string).collect();
    [
        (not_shown, format!("{not_shown} records of kinds that are not shown: {}", kinds.join(", "))),
        (
            lost,
            format!("{lost} messages that were sent are not shown: no log has their execution, or the PE they went to"),
        ),
        (*unpaired, format!("{unpaired} records are not shown: begins without an end, or ends without a begin")),
        (
            *untraced_ns,
            format!("tracing was switched off for {} µs of all PEs together; this time counts as overhead", untraced_ns / 1000),
        ),
        (
            *unfinished,
            format!("{unfinished} logs have no END_COMPUTATION: these PEs were traced no further, or their logs are cut off"),
        ),
    ]
    .into_iter()
    .filter_map(|(count, note)| (count > 0).then_some(note))
    .collect()
}
