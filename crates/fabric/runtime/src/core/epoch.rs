// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of a PE: parcels that arrive, determinants of its run, and the begin of an epoch with each checkpoint.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Core;
use crate::logging::determinants::Determinant;
use crate::logging::log::Arrival;
use crate::message::{Malformed, unpack};
use crate::parcel::{DETERMINANTS, EPOCH, Encoded, Parcel, REPEATED, System};

impl Core {
    /// Takes what is for the log. Returns `true` if the parcel is for this PE, now.
    pub(super) fn log_arrival(&mut self, from: u32, parcel: Encoded<'_>) -> Result<bool, Malformed> {
        let Some(log) = &mut self.port.log else { return Ok(true) };
        match parcel.kind {
            DETERMINANTS => {
                let (first, determinants) = unpack(parcel.bytes)?;
                log.take(from, first, determinants)?;
            }
            EPOCH => {
                let epoch = parcel.bytes.try_into().map(u64::from_le_bytes);
                let epoch = epoch.map_err(|_| Malformed::new("the mark of an epoch", "is no number"))?;
                log.take_mark(from, epoch)?;
            }
            REPEATED => log.take_repeated(from),
            _ => return Ok(log.arrive(from, parcel) == Arrival::Now),
        }
        Ok(false)
    }

    /// Notes an event for a run that repeats this one.
    pub(super) fn note(&mut self, event: impl FnOnce(u64) -> Determinant) {
        if let Some(log) = &mut self.port.log {
            log.note(event);
        }
    }

    /// Notes that this PE is about to look for quiescence.
    pub(crate) fn note_probe(&mut self) {
        self.note(|pass| Determinant::Probe { pass });
    }

    /// Makes a decision that depends on times or measurements, and logs it: a PE that runs again makes the same one.
    pub(crate) fn determined<T: Serialize + DeserializeOwned>(
        &mut self,
        decide: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if self.port.log.is_none() {
            return decide(self);
        }
        match self.port.log.as_mut().map(|log| log.next_value()) {
            Some(Ok(Some(bytes))) => match unpack(&bytes) {
                Ok(value) => return value,
                Err(error) => self.fail_program(error),
            },
            Some(Err(diverged)) => self.diverge(&diverged),
            Some(Ok(None)) | None => {}
        }
        let value = decide(self);
        let bytes = self.packed(&value);
        self.note(|pass| Determinant::Value { pass, bytes });
        value
    }

    /// A checkpoint is complete. What the PE does from here on is repeated from its image if its process dies, so its tables
    /// become what they are in a PE that has just been restored.
    pub(super) fn begin_epoch(&mut self, epoch: u64, round: u64) {
        let logs = self.checkpoints.logs;
        let Some(later) = self.port.log.as_mut().map(|log| log.begin(epoch, logs)) else { return };
        self.number = 0;
        self.quiescence.restart();
        self.restore_round(round);
        for array in self.arrays.values_mut() {
            array.here = Default::default();
            array.reductions = array.reductions.without_elements();
        }
        for element in std::mem::take(&mut self.slots).into_elements() {
            self.settle(*element);
        }
        self.resume_all(round);
        for (from, parcels) in later {
            if let Err(error) = self.take_parcels(from, &parcels) {
                self.fail_program(error);
            }
        }
    }

    /// Ends a pass of the scheduler, in which entry methods have run or not. Returns `true` if something was logged in it.
    #[inline]
    pub(crate) fn end_pass(&mut self, has_run: bool) -> bool {
        let Some(log) = &mut self.port.log else { return false };
        let happened = log.end_pass(has_run);
        let needs_checkpoint = log.needs_checkpoint();
        if let Some(bytes) = log.drop_if_too_long() {
            let pe = self.pe();
            self.checkpoints.warn_of_log(&format!(
                "the log of PE {pe} had {bytes} bytes and is dropped: until the next checkpoint, all ranks go back if one dies"
            ));
        }
        if needs_checkpoint {
            self.post(0, Parcel::System(System::CheckpointSoon));
        }
        happened
    }
}
