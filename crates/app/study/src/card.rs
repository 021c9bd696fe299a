// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node's report card: its noise and where it is from, what each source costs at scale, what to change in which order,
//! and how many cores to spare.

use colony_project::changes::AtScale;
use colony_project::choose::Answer;
use serde::{Deserialize, Serialize};

use crate::advice::{Advice, Costed, Step};

/// The report card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Card {
    /// The doctor's examination, with costs on 16,384 nodes and the changes in sequence.
    pub doctor: Advice,
    /// `true` if the kernel's events told the sources; otherwise all noise is `unexplained`.
    pub attributed: bool,
    /// Sources that the study itself started: they are in no figure of this card.
    pub own: Vec<SourceShare>,
    /// Sources that were costed one by one, the dearest first.
    pub sources: Vec<SourceShare>,
    /// Their costs on several node counts.
    pub scaling: Vec<AtScale>,
    /// Spare cores and windows compared; `None` if that could not be simulated.
    pub choice: Option<Answer>,
    /// `true` if the time ended before every figure was simulated.
    pub stopped: bool,
    /// Commands that make the card again.
    pub commands: Vec<String>,
}

/// A source, and its share of the time of the CPUs that it was measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceShare {
    /// Its name.
    pub source: String,
    /// Its share, 0 to 1.
    pub share: f64,
}

impl Card {
    /// The findings to change, in order, each with what is left after it.
    pub fn steps(&self) -> impl Iterator<Item = (&Costed, &Step)> {
        self.doctor.sequence.iter().filter_map(|s| Some((self.doctor.finding(&s.finding)?, s)))
    }

    /// The source that steals most; `None` if it is not known.
    #[must_use]
    pub fn worst(&self) -> Option<SourceShare> {
        let (source, share) = self.doctor.noise.as_ref()?.worst.clone()?;
        self.attributed.then_some(SourceShare { source, share })
    }
}
