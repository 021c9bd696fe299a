// SPDX-License-Identifier: MIT OR Apache-2.0
use serde::Deserialize;

use super::greedy::ordered;
use super::options::{Checked, tolerance_problem};
use super::shed::Groups;
use super::{Effort, Outcome, Strategy};
use crate::database::Database;
use crate::error::BalanceError;
use crate::quality::{ideal_step_s, step_times_s};
use crate::random::Key;
use crate::topology::Topology;

/// Distributed balancing by gossip, in the manner of Grapevine (Menon and Kalé, "A distributed dynamic load balancer for
/// iterative applications", SC13) and vt's TemperedLB: PEs below the average tell random others, who pass it on; PEs above it give
/// objects to PEs that they have heard of. A PE knows its own objects, the average, and the PEs that gossip told it of.
///
/// The exchange is simulated from the seed, so the decisions are the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gossip {
    /// Seed of the random numbers.
    pub seed: u64,
    /// PEs to which a PE sends the loads that it knows, in each round.
    pub fanout: u32,
    /// Rounds of gossip before objects move.
    pub rounds: u32,
    /// Times that gossip and moves are repeated; the best placement is kept.
    pub iterations: u32,
    /// The most PEs that one PE remembers.
    pub known: u32,
    /// Step time at which a PE gives nothing away, over the average.
    pub tolerance: f64,
}

impl Default for Gossip {
    fn default() -> Self {
        Self { seed: 1, fanout: 3, rounds: 5, iterations: 10, known: 64, tolerance: 1.01 }
    }
}

impl Checked for Gossip {
    fn problem(&self) -> Option<String> {
        let bounds =
            [("fanout", self.fanout, 64), ("rounds", self.rounds, 64), ("iterations", self.iterations, 256)];
        let bounds = bounds.into_iter().chain([("known", self.known, 65_536)]);
        let outside = |(name, value, most): (&str, u32, u32)| {
            (value == 0 || value > most)
                .then(|| format!("{name} is {value}; it must be a number from 1 to {most}"))
        };
        bounds.filter_map(outside).next().or_else(|| tolerance_problem(self.tolerance))
    }
}

/// A PE that another has heard of, and its step time then.
#[derive(Clone, Copy, PartialEq)]
struct Heard {
    pe: u32,
    time_s: f64,
}

/// The loads that each PE has heard of in one iteration.
struct Knowledge {
    of: Vec<Vec<Heard>>,
    most: usize,
    messages: u64,
}

impl Gossip {
    /// Gossip begins at the PEs below the average. Rounds are synchronous: a message carries the loads that its sender
    /// knew when the round began.
    fn spread(&self, times_s: &[f64], level_s: f64, key: Key) -> Knowledge {
        let pes = times_s.len() as u32;
        let most = self.known as usize;
        let mut known = Knowledge { of: vec![Vec::new(); times_s.len()], most, messages: 0 };
        let mut speakers: Vec<u32> = (0..pes).filter(|&pe| times_s[pe as usize] < level_s).collect();
        speakers
            .iter()
            .for_each(|&pe| known.of[pe as usize].push(Heard { pe, time_s: times_s[pe as usize] }));
        for round in 0..self.rounds {
            let key = key.part(round.into());
            let sent: Vec<(u32, Vec<Heard>)> =
                speakers.iter().map(|&pe| (pe, known.of[pe as usize].clone())).collect();
            let mut reached = vec![false; times_s.len()];
            for (pe, news) in sent {
                for i in 0..self.fanout {
                    let to = key.below(u64::from(pe) * 64 + u64::from(i), pes);
                    if to != pe {
                        known.merge(to, &news, key.part(u64::from(pe)));
                        reached[to as usize] = true;
                    }
                }
            }
            speakers = (0..pes).filter(|&pe| reached[pe as usize]).collect();
        }
        known
    }

    /// Moves objects away from PEs above the limit. Each PE decides by the loads that it knows.
    fn give(&self, state: &mut State, known: &mut Knowledge, level_s: f64, key: Key) {
        let limit_s = level_s * self.tolerance;
        let overloaded: Vec<u32> =
            (0..state.times_s.len() as u32).filter(|&pe| state.times_s[pe as usize] > limit_s).collect();
        let mut groups = Groups::of(state.database, &state.placement, &overloaded);
        let loads = state.database.loads_s();
        for &pe in &overloaded {
            let objects = groups.get_mut(pe);
            objects.sort_unstable_by_key(|&n| (!ordered(loads[n as usize]), n));
            let heard = &mut known.of[pe as usize];
            heard.retain(|h| h.pe != pe);
            state.give_from(pe, objects, heard, level_s, limit_s, key.part(pe.into()));
        }
    }
}

impl Knowledge {
    /// Adds news to the loads that a PE knows. If there is no room, a random entry is replaced.
    fn merge(&mut self, pe: u32, news: &[Heard], key: Key) {
        self.messages += 1;
        let known = &mut self.of[pe as usize];
        for (i, heard) in (0u64..).zip(news) {
            if known.iter().any(|k| k.pe == heard.pe) {
                continue;
            }
            if known.len() < self.most {
                known.push(*heard);
            } else if key.below(i, 2) == 0 {
                let place = key.below(i + (1 << 32), self.most as u32);
                known[place as usize] = *heard;
            }
        }
    }
}

struct State<'a> {
    database: &'a Database,
    placement: Vec<u32>,
    times_s: Vec<f64>,
    messages: u64,
}

/// PEs that an object is offered to before it stays.
const PROPOSALS: usize = 4;

impl State<'_> {
    /// One PE gives objects, the heaviest that fit first, to PEs that it has heard of: at random, with the probability of
    /// their room. A PE that has no room any more refuses, and says how full it is.
    fn give_from(
        &mut self,
        pe: u32,
        objects: &[u32],
        heard: &mut [Heard],
        level_s: f64,
        limit_s: f64,
        key: Key,
    ) {
        let pes = self.database.pes();
        let mut draws = 0u64;
        for &number in objects {
            let load = self.database.loads_s()[number as usize];
            if self.times_s[pe as usize] <= limit_s || load <= 0.0 {
                break;
            }
            let excess_s = self.times_s[pe as usize] - level_s;
            if load / pes[pe as usize].speed > excess_s * 1.5 {
                continue;
            }
            for _ in 0..PROPOSALS {
                let room = |h: &Heard| {
                    let room_s = limit_s - h.time_s;
                    if load / pes[h.pe as usize].speed <= room_s { room_s } else { 0.0 }
                };
                let all: f64 = heard.iter().map(room).sum();
                if all <= 0.0 {
                    break;
                }
                let mut drawn = key.uniform(draws) * all;
                draws += 1;
                let chosen = heard.iter_mut().find(|h| {
                    drawn -= room(h);
                    drawn <= 0.0 && room(h) > 0.0
                });
                let Some(target) = chosen else { break };
                self.messages += 2;
                let (there, there_s) = (target.pe as usize, load / pes[target.pe as usize].speed);
                let accepted = self.times_s[there] + there_s <= limit_s;
                if accepted {
                    self.times_s[there] += there_s;
                    self.times_s[pe as usize] -= load / pes[pe as usize].speed;
                    self.placement[number as usize] = target.pe;
                }
                // the reply says how full the other is
                target.time_s = self.times_s[there];
                if accepted {
                    break;
                }
            }
        }
    }
}

impl Strategy for Gossip {
    fn name(&self) -> &'static str {
        "gossip"
    }

    fn assign(&self, database: &Database, _: &Topology) -> Result<Outcome, BalanceError> {
        let placement = database.placement().to_vec();
        let mut state =
            State { database, times_s: step_times_s(database, &placement), placement, messages: 0 };
        let slowest = |state: &State| state.times_s.iter().copied().fold(0.0, f64::max);
        let level_s = ideal_step_s(database);
        let mut best = (slowest(&state), state.placement.clone());
        for iteration in 0..self.iterations {
            if best.0 <= level_s * self.tolerance {
                break;
            }
            let key = Key::new(self.seed).part(iteration.into());
            let mut known = self.spread(&state.times_s, level_s, key);
            state.messages += known.messages;
            self.give(&mut state, &mut known, level_s, key.part(u64::MAX));
            // sums that are changed again and again lose their last digits
            state.times_s = step_times_s(database, &state.placement);
            let reached = slowest(&state);
            if reached < best.0 {
                best = (reached, state.placement.clone());
            }
        }
        let mut counts = vec![0u64; database.pes().len()];
        database.placement().iter().for_each(|&pe| counts[pe as usize] += 1);
        let most = counts.into_iter().max().unwrap_or(0);
        let database_bytes_one_pe =
            Database::bytes_for(1, most, 0) + u64::from(self.known) * size_of::<Heard>() as u64;
        Ok(Outcome { placement: best.1, effort: Effort { database_bytes_one_pe, messages: state.messages } })
    }
}
