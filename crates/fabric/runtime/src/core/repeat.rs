// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PE that runs again what it ran before its process died, and PEs that go on after another has died.

use super::{Core, Failure};
use crate::logging::history::{Diverged, Left, Received, Step};
use crate::logging::log::Survivor;
use crate::message::Malformed;
use crate::parcel::{Encoded, REPEATED};
use crate::report::report_line;

impl Core {
    /// Returns `true` if this PE runs again.
    pub(crate) fn is_repeating(&self) -> bool {
        self.port.log.as_ref().is_some_and(|log| log.is_repeating())
    }

    /// Returns `true` if this PE runs again, and has not done all that it or others know of.
    pub(crate) fn is_behind(&self) -> bool {
        self.port.log.as_ref().is_some_and(|log| log.is_behind())
    }

    /// This PE as a survivor.
    pub(crate) fn survivor(&self) -> Option<Survivor> {
        let survivor = self.port.log.as_ref()?.survivor();
        let is_ready = survivor.is_ready
            && self.exit.is_none()
            && self.failure.is_none()
            && !self.checkpoints.is_saving();
        Some(Survivor { is_ready, ..survivor })
    }

    /// Takes what arrived in the pass under way when the PE ran first.
    pub(crate) fn repeat_arrivals(&mut self) {
        loop {
            let Some(step) = self.port.log.as_mut().map(|log| log.next_step()) else { return };
            match step {
                Ok(Some(Step::Parcel(from, parcel))) => {
                    if let Err(error) = self.take_parcels(from, &parcel) {
                        self.fail_program(error);
                    }
                }
                Ok(Some(Step::Deferred(pe, away))) => self.evacuate_soon(pe, away),
                Ok(None) => break,
                Err(diverged) => return self.diverge(&diverged),
            }
        }
        while let Some(number) = self.port.log.as_mut().and_then(|log| log.next_timer()) {
            match self.take_timer(number) {
                Some(timer) => self.fire(timer),
                None => return self.diverge(&Diverged("a timer is not set".to_owned())),
            }
        }
    }

    /// Obeys the signal that the PE obeyed in the pass under way.
    pub(crate) fn repeat_signal(&mut self) {
        if let Some(away) = self.port.log.as_mut().and_then(|log| log.next_signal()) {
            self.pass_on_signal(away);
        }
    }

    /// Ends the pass under way.
    pub(crate) fn repeat_end_of_pass(&mut self, has_run: bool) {
        if self.port.log.as_mut().is_some_and(|log| log.next_probe()) {
            self.probe();
        }
        if !self.end_pass(has_run) && self.is_behind() {
            self.diverge(&Diverged("it has nothing to do".to_owned()));
        }
    }

    /// Ends the repetition, once no event is known any more: what others have not received is sent, and what this PE has not
    /// taken is taken.
    pub(crate) fn end_repeat(&mut self) {
        let Some(ended) = self.port.log.as_mut().map(|log| log.end_repeat()) else { return };
        let Left { parcels, received } = match ended {
            Ok(ended) => ended,
            Err(diverged) => return self.diverge(&diverged),
        };
        self.counts.repeated = self.counts.executed;
        let mut sent = Ok(());
        for (to, received) in (0..).zip(received) {
            if to != self.pe() {
                sent = sent.and_then(|()| self.send_again(to, received, false));
                Encoded { kind: REPEATED, bytes: &[] }.append_to(self.port.frame(to));
            }
        }
        let taken = parcels.into_iter().try_for_each(|(from, parcels)| self.take_parcels(from, &parcels));
        if let Err(error) = sent.and(taken) {
            self.fail_program(error);
        }
    }

    /// Goes on after the death of another process, which runs again if `repeats`. `received` is what each PE has of this one.
    pub(crate) fn go_on_with(&mut self, received: &[Received], repeats: Option<u32>) {
        self.has_lost = false;
        self.port.clear_frames();
        for (to, &received) in (0..).zip(received) {
            if to != self.pe()
                && let Err(error) = self.send_again(to, received, repeats == Some(to))
            {
                self.fail_program(error);
            }
        }
    }

    /// Sends what a PE has not received.
    fn send_again(&mut self, to: u32, received: Received, repeats: bool) -> Result<(), Malformed> {
        let Some(log) = &mut self.port.log else { return Ok(()) };
        let bytes = log.resume(to, received, repeats)?;
        if !bytes.is_empty() {
            self.port.mark_epoch(to);
            self.port.frame(to).extend_from_slice(&bytes);
        }
        Ok(())
    }

    /// The program depends on what is not logged: this process ends, and all ranks go back to the checkpoint.
    pub(super) fn diverge(&mut self, why: &Diverged) {
        report_line!(
            "warning: PE {} {why}; all ranks go back to the checkpoint. A program whose messages depend on time or random \
             numbers needs checkpoints without log",
            self.pe()
        );
        self.fail(Failure::Again);
    }
}
