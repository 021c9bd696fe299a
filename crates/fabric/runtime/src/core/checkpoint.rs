// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkpoints, from PE 0's request to the commit.
//!
//! 1. All objects wait at the end of a round of load balancing, and a checkpoint is due. PE 0 waits for quiescence: then no
//!    message is under way, and the images of all PEs are the state of the program.
//! 2. Each PE makes its image and sends it to its buddy, part by part. The buddy tells PE 0 once it has all of it.
//! 3. PE 0 commits the checkpoint. Each PE drops the images of the one before, and the objects resume. If there is a second
//!    level, each PE writes its image there while the program runs on.
//!
//! If an image cannot be made or kept, PE 0 abandons the checkpoint: the one before stays valid, and the objects resume.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::Core;
use crate::checkpoint::disk::{Author, DiskError, Folder};
use crate::checkpoint::draft::{Draft, History};
use crate::checkpoint::fields::{NoMemory, Packed};
use crate::checkpoint::options::{CheckpointOptions, Period};
use crate::checkpoint::pieces::{Assembly, Sending};
use crate::checkpoint::store::{Image, Name, Store};
use crate::job::ranks::RESIZED;
use crate::parcel::{Saved, System};
use crate::quiescence::{Verdict, Wave};
use crate::report::report_line;
use crate::track::draw;

/// One checkpoint, for reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointReport {
    /// Its number, from 0.
    pub number: u64,
    /// The round of load balancing that it ended.
    pub round: u64,
    /// Bytes of the images of all PEs, once.
    pub bytes: u64,
    /// Bytes of them that were sent to buddies: all but [`Tracked`](crate::Tracked) fields that have not changed.
    pub sent: u64,
    /// Seconds from the end of the round to quiescence.
    pub quiet_s: f64,
    /// Seconds from quiescence to the commit.
    pub copy_s: f64,
}

/// A checkpoint under way, at PE 0.
struct Underway {
    number: u64,
    round: u64,
    began: Instant,
    quiet: Duration,
    /// Copies that are there.
    copies: u32,
    bytes: u64,
    sent: u64,
    /// All PEs can write their images to the second level.
    to_disk: bool,
}

/// The state of checkpoints on one PE.
pub(crate) struct Checkpoints {
    period: Option<Period>,
    pub(super) store: Store,
    /// The PE that keeps this PE's second copy, if copies are kept in memory.
    pub(super) buddy: Option<u32>,
    /// The second level.
    disk: Option<Folder>,
    /// Complete checkpoints that are kept there.
    kept: u32,
    /// Writes an image into the second level.
    writer: Option<JoinHandle<Result<(), DiskError>>>,
    /// At PE 0: a number that differs between runs and generations, for files.
    run: u64,
    /// At PE 0: the number of the next checkpoint, and when the last one was.
    next: u64,
    last: (Instant, u64),
    /// At PE 0: the round that ends with a checkpoint once the program is quiescent, and since when.
    awaits: Option<(u64, Instant)>,
    underway: Option<Underway>,
    /// The number and the round of the checkpoint whose image is to be made.
    due: Option<(u64, u64)>,
    /// From the order to make the image to the commit.
    is_saving: bool,
    /// At PE 0: the log of a PE is long.
    is_needed: bool,
    /// Messages are logged from the next checkpoint on.
    pub(super) logs: bool,
    /// At PE 0: all processes end with the next checkpoint on disk.
    leaves: bool,
    /// The last complete checkpoint of this PE, whose unchanged fields the next image need not copy.
    history: History,
    pub(super) sending: Option<Sending>,
    pub(super) receiving: FxHashMap<Name, Assembly>,
    /// Bytes of the last piece of this PE's last image.
    rest: usize,
    has_warned: bool,
    has_warned_of_log: bool,
    pub(crate) reports: Vec<CheckpointReport>,
}

impl Checkpoints {
    /// Of a PE whose second copies are on PE `buddy`.
    pub(crate) fn new(options: Option<&CheckpointOptions>, store: Store, buddy: Option<u32>) -> Self {
        Self {
            period: options.map(|options| options.period),
            store,
            buddy,
            disk: options.and_then(|options| options.disk.clone()).map(Folder),
            kept: options.map_or(1, |options| options.keep),
            writer: None,
            run: draw(),
            next: 0,
            last: (Instant::now(), 0),
            awaits: None,
            underway: None,
            due: None,
            is_saving: false,
            is_needed: false,
            leaves: false,
            logs: options.is_some_and(|options| options.log.is_some()),
            history: History::default(),
            sending: None,
            receiving: FxHashMap::default(),
            rest: 0,
            has_warned: false,
            has_warned_of_log: false,
            reports: Vec::new(),
        }
    }

    /// Goes on after a recovery from checkpoint `number`, which ended `round`.
    pub(crate) fn restore(&mut self, number: u64, round: u64) {
        self.next = number + 1;
        self.last = (Instant::now(), round + 1);
    }

    /// The image of this PE in a checkpoint.
    pub(crate) fn image(&self, number: u64, pe: u32) -> Option<Image> {
        self.store.get((number, pe))
    }

    /// Goes on after a death, with this buddy: a new process does not know what an image would refer to.
    pub(crate) fn go_on_with(&mut self, buddy: Option<u32>) {
        (self.buddy, self.history) = (buddy, History::default());
    }

    pub(crate) fn set_period(&mut self, period: Option<Period>) {
        self.period = period;
    }

    /// At PE 0: a round ends. Returns `true` if a checkpoint has to be made before its objects resume.
    pub(crate) fn is_due(&self, round: u64) -> bool {
        (self.buddy.is_some() || self.disk.is_some())
            && match self.period {
                _ if self.leaves => true,
                None => false,
                Some(_) if self.is_needed => true,
                Some(Period::Rounds(rounds)) => round + 1 >= self.last.1 + rounds,
                Some(Period::Time(time)) => self.last.0.elapsed() >= time,
            }
    }

    /// At PE 0: makes a checkpoint at the end of a round, once the program is quiescent.
    pub(crate) fn await_quiet(&mut self, round: u64) {
        self.awaits = Some((round, Instant::now()));
    }

    /// At PE 0: the next round ends with a checkpoint, because the log of a PE is long.
    pub(crate) fn make_soon(&mut self) {
        self.is_needed = true;
    }

    /// At PE 0: all processes end with the next checkpoint on disk, if there is a second level.
    pub(crate) fn leave_soon(&mut self) {
        self.leaves = self.disk.is_some();
    }

    /// At PE 0: messages are logged from the next checkpoint on, or not.
    pub(crate) fn log_messages(&mut self, on: bool) {
        self.logs = on;
    }

    /// Returns `true` if this PE makes its image, or waits for the commit.
    pub(crate) fn is_saving(&self) -> bool {
        self.is_saving
    }

    /// At PE 0: a checkpoint is made once the program is quiescent.
    pub(crate) fn awaits_quiet(&self) -> bool {
        self.awaits.is_some()
    }

    /// At PE 0: a checkpoint is about to be made, or under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.awaits.is_some() || self.underway.is_some()
    }

    /// Returns `true` if there is a second level, and this PE's last image is on it.
    pub(super) fn can_write(&self) -> bool {
        self.disk.is_some() && self.writer.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Begins to write the image of a PE to the second level.
    fn write(&mut self, name: Name, author: Author) {
        let (Some(folder), Some(image)) = (self.disk.clone(), self.store.get(name)) else { return };
        self.finish();
        let (kept, pes) = (self.kept, author.pes);
        let write = move || {
            folder.write(name, author, &image)?;
            folder.clean(name.0, pes, kept);
            Ok(())
        };
        match std::thread::Builder::new().name("checkpoint".to_owned()).spawn(write) {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => self.warn(&format!("a checkpoint is not on disk: no thread can write it: {error}")),
        }
    }

    /// Waits until the image that is being written is on disk.
    pub(crate) fn finish(&mut self) {
        if let Some(Ok(Err(error))) = self.writer.take().map(JoinHandle::join) {
            self.warn(&format!("a checkpoint is not on disk: {error}"));
        }
    }

    /// The image is made once the messages to other PEs are on their way, so that all PEs make theirs at once.
    pub(crate) fn capture_soon(&mut self, number: u64, round: u64, logs: bool) {
        self.due = Some((number, round));
        (self.is_saving, self.logs) = (true, logs);
    }

    /// Prints that a log is dropped, the first time.
    pub(super) fn warn_of_log(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_warned_of_log, true) {
            report_line!("warning: {why}");
        }
    }

    /// The number and the round of the checkpoint whose image is to be made now.
    pub(super) fn take_due(&mut self) -> Option<(u64, u64)> {
        self.due.take()
    }

    /// Begins the image of a PE.
    pub(super) fn draft(&mut self, name: Name) -> Result<Draft, NoMemory> {
        self.history.draft(name, &self.store, self.rest)
    }

    /// Ends it: its pieces, and the checkpoint that they refer to.
    pub(super) fn finish_draft(&mut self, draft: Draft) -> (Vec<Packed>, Option<u64>) {
        let (pieces, base) = draft.finish(&mut self.history);
        self.rest = pieces.last().map_or(0, |rest| rest.bytes().len());
        (pieces, base)
    }

    /// Prints why a checkpoint is not made, the first time.
    fn warn(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_warned, true) {
            report_line!("warning: {why}");
        }
    }
}

/// Why a program without messages under way cannot be captured.
fn obstacle(wave: &Wave) -> Option<String> {
    let Wave { open, unsaved, kept, insertions, .. } = *wave;
    if open {
        Some("timers of send_after are set; let none be set when all objects are in at_sync".to_owned())
    } else if unsaved > 0 {
        Some(format!("{unsaved} futures wait; let none wait when all objects are in at_sync"))
    } else if kept > 0 {
        Some(format!("{kept} messages are for elements that do not exist"))
    } else if insertions > 0 {
        Some(format!("{insertions} inserted elements wait for the removal of others"))
    } else {
        None
    }
}

impl Core {
    /// At PE 0: all PEs have answered whether they are idle.
    pub(crate) fn begin_checkpoint(&mut self, verdict: Verdict) {
        let wave = self.quiescence.last_wave();
        let only_timers = wave.open && wave.idle && wave.sent == wave.received;
        let is_stuck = verdict == Verdict::Active && only_timers;
        if verdict != Verdict::Quiet && !is_stuck {
            return;
        }
        let Some((round, since)) = self.checkpoints.awaits.take() else { return };
        let number = self.checkpoints.next;
        if let Some(why) = obstacle(&wave) {
            self.checkpoints.warn(&format!("a checkpoint is left out: {why}"));
            self.post_to_all(|| System::Abandon { number, round });
            return self.evacuate_deferred();
        }
        self.checkpoints.next += 1;
        self.checkpoints.underway = Some(Underway {
            number,
            round,
            began: Instant::now(),
            quiet: since.elapsed(),
            copies: 0,
            bytes: 0,
            sent: 0,
            to_disk: true,
        });
        let logs = self.checkpoints.logs;
        self.post_to_all(|| System::Capture { number, round, logs });
    }

    /// At PE 0: a copy of an image is there. With the last one, the checkpoint is complete.
    pub(crate) fn take_saved(&mut self, number: u64, saved: Saved) {
        let copies = if self.checkpoints.buddy.is_some() { 2 } else { 1 };
        let wanted = copies * self.pes();
        let Some(underway) = self.checkpoints.underway.as_mut().filter(|one| one.number == number) else {
            return;
        };
        underway.copies += 1;
        if let Saved::Own { bytes, sent, can_write } = saved {
            underway.bytes += bytes;
            underway.sent += sent;
            underway.to_disk &= can_write;
        }
        if underway.copies < wanted {
            return;
        }
        let Some(Underway { round, began, quiet, bytes, sent, to_disk, .. }) =
            self.checkpoints.underway.take()
        else {
            return;
        };
        self.checkpoints.last = (Instant::now(), round + 1);
        let (quiet_s, copy_s) = (quiet.as_secs_f64(), began.elapsed().as_secs_f64());
        self.checkpoints.reports.push(CheckpointReport { number, round, bytes, sent, quiet_s, copy_s });
        let to_disk = to_disk.then_some(self.checkpoints.run);
        let leaves = self.checkpoints.leaves && to_disk.is_some();
        // the others first: what this PE sends once it has committed is of the next epoch
        self.post_to_others(|| System::Commit { number, round, to_disk, leaves });
        self.commit(number, round, (to_disk, leaves));
        self.evacuate_deferred();
    }

    /// At PE 0: an image cannot be made or kept. Copies that are under way are dropped where they arrive.
    pub(crate) fn abandon_checkpoint(&mut self, number: u64, why: &str) {
        let Some(underway) = self.checkpoints.underway.take_if(|one| one.number == number) else { return };
        let round = underway.round;
        self.checkpoints.last = (Instant::now(), round + 1);
        self.checkpoints.warn(&format!("a checkpoint is left out: {why}"));
        self.post_to_all(|| System::Abandon { number, round });
        self.evacuate_deferred();
    }

    /// A checkpoint is complete: the objects resume, while its image is written to the second level. If the processes are to
    /// leave, they do so once it is there.
    pub(crate) fn commit(&mut self, number: u64, round: u64, (to_disk, leaves): (Option<u64>, bool)) {
        self.checkpoints.store.keep_only(number);
        self.checkpoints.history.commit(number);
        if let Some(run) = to_disk {
            let (pe, pes) = (self.pe(), self.pes());
            let description = self.describe_image();
            self.checkpoints.write((number, pe), Author { pes, run, description });
        }
        if leaves {
            self.checkpoints.finish();
            self.exit = Some(RESIZED);
            self.has_left = true;
            return;
        }
        (self.checkpoints.is_saving, self.checkpoints.is_needed) = (false, false);
        if self.port.log.is_some() {
            return self.begin_epoch(number + 1, round);
        }
        self.resume_all(round);
    }

    /// A checkpoint is abandoned: the objects resume.
    pub(crate) fn take_abandon(&mut self, number: u64, round: u64) {
        self.checkpoints.sending = None;
        self.checkpoints.receiving.clear();
        self.checkpoints.store.drop_one(number);
        self.checkpoints.history.abandon();
        if std::mem::take(&mut self.checkpoints.is_saving)
            && let Some(log) = &mut self.port.log
        {
            // a PE that runs again makes no image, so it would not answer parts of images as before
            log.stop();
        }
        self.resume_all(round);
    }
}
