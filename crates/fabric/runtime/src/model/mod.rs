// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of the runtime's protocols, checked in every interleaving (with `stateright`).
//!
//! The models drive the state machines of the runtime itself; only the parcels between them and the scheduler around
//! them are modelled. PEs are connected by channels: parcels of one PE to another arrive in order, parcels of different
//! pairs of PEs in any order. Each model also has faulty variants. The checker has to find a counterexample for each:
//! a model that finds nothing in a faulty protocol would prove nothing about the correct one.
//!
//! | model | drives | rules of |
//! |---|---|---|
//! | [`delivery`] | `Locations`, `Incoming`, `Outgoing` | `core/send.rs`, `core/run.rs`, `core/migrate.rs`, `core/retire.rs`, `core/image.rs` |
//! | [`broadcasts`] | `Broadcasts` | `core/broadcast.rs`, `core/migrate.rs` |
//! | [`reductions`] | `Reductions` | `core/broadcast.rs`, `core/migrate.rs` |
//! | [`quiescence`] | `Quiescence` | `core/quiet.rs`, `scheduler.rs` |
//! | [`checkpoints`] | `recovery::plan` | `core/checkpoint.rs`, `checkpoint/recovery.rs` |
//! | [`logging`] | `Log`, `Notes`, `go_on` | `core/epoch.rs`, `core/repeat.rs`, `port.rs`, `checkpoint/recovery.rs` |
//! | [`sync`] | `Local`, `Detector`, `Turn` | `core/balance.rs`, `core/migrate.rs` |

mod broadcasts;
mod checkpoints;
mod delivery;
mod logging;
mod quiescence;
mod reductions;
mod sync;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;

use stateright::{Checker, HasDiscoveries, Model};

/// PEs of every model.
const PES: usize = 3;

/// The parcels between PEs: in order from one PE to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Channels<P>([[VecDeque<P>; PES]; PES]);

impl<P> Default for Channels<P> {
    fn default() -> Self {
        Self(Default::default())
    }
}

impl<P> Channels<P> {
    fn send(&mut self, from: usize, to: usize, parcel: P) {
        self.0[from][to].push_back(parcel);
    }

    fn receive(&mut self, from: usize, to: usize) -> Option<P> {
        self.0[from][to].pop_front()
    }

    /// The parcels from one PE to another.
    fn between(&self, from: usize, to: usize) -> &VecDeque<P> {
        &self.0[from][to]
    }

    /// All parcels under way.
    fn parcels(&self) -> impl Iterator<Item = &P> {
        self.0.iter().flatten().flatten()
    }

    /// PEs to which a parcel of this one can arrive next.
    fn filled(&self, from: usize) -> impl Iterator<Item = usize> {
        (0..PES).filter(move |&to| !self.0[from][to].is_empty())
    }
}

/// Checks all states of a model. With `is_covered`, the states that make the check worth something have to occur.
fn check<M>(name: &str, model: M, is_covered: bool)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().threads(2).spawn_dfs().join();
    println!("{name}: {} states, at most {} steps", checker.unique_state_count(), checker.max_depth());
    if is_covered {
        return checker.assert_properties();
    }
    for property in checker.model().properties() {
        if property.expectation == stateright::Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
}

/// Looks for a fault of a model: the checker finds that `property` does not hold.
fn finds<M>(name: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let found = checker.discoveries();
    println!("{name}: found after {} states: {:?}", checker.unique_state_count(), found.keys());
    let path = found.get(property).unwrap_or_else(|| panic!("{name}: no counterexample to {property}"));
    println!("{:?}", path.clone().into_actions());
}
