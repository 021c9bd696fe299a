// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single rules of the log, and inputs that no PE sends: they are errors, and nothing panics or runs for ever.

use proptest::prelude::*;

use super::determinants::Determinant;
use super::exchange::{LogNote, Notes};
use super::history::{Diverged, History, Received, Step};
use super::log::{Arrival, Log};
use crate::message::unpack;
use crate::parcel::{DETERMINANTS, EPOCH, Encoded, MESSAGE, REPEATED};

const LIMIT: u64 = 1000;

fn parcels(count: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    (0..count).for_each(|number| Encoded { kind: MESSAGE, bytes: &[number] }.append_to(&mut bytes));
    bytes
}

fn log() -> Log {
    let mut log = Log::new(3, LIMIT);
    log.restore(1, true);
    log
}

/// PE 0, which runs again with these determinants, and has been sent three parcels by each other PE.
fn repeating(determinants: Vec<Determinant>) -> Log {
    let history = |determinants| History { determinants, parcels: parcels(3), ..History::default() };
    let mut log = log();
    log.begin_repeat(vec![History::default(), history(determinants), history(vec![])]);
    log
}

fn taken(pass: u64, from: u32, count: u64) -> Determinant {
    Determinant::Parcels { pass, from, count }
}

/// Takes all steps of a pass.
fn steps(log: &mut Log) -> Result<Vec<(u32, Vec<u8>)>, Diverged> {
    let mut steps = Vec::new();
    while let Some(step) = log.next_step()? {
        if let Step::Parcel(from, parcel) = step {
            steps.push((from, parcel));
        }
    }
    Ok(steps)
}

#[test]
fn parcels_are_taken_in_the_passes_and_the_order_of_the_run_before() {
    let one = |at: usize| parcels(3)[at * 8..][..8].to_vec();
    let mut log = repeating(vec![taken(0, 2, 1), taken(0, 1, 2), taken(1, 2, 1)]);
    assert_eq!(steps(&mut log), Ok(vec![(2, one(0)), (1, one(0)), (1, one(1))]));
    assert!(log.end_pass(false) && log.is_behind());
    assert_eq!(steps(&mut log), Ok(vec![(2, one(1))]));
    assert!(log.end_pass(false) && !log.is_behind());
    let left = log.end_repeat().expect("no divergence");
    assert_eq!(left.parcels, [(1, one(2)), (2, one(2))]);
}

#[test]
fn events_that_cannot_be_repeated_are_a_divergence() {
    for (wrong, why) in [
        (taken(0, 1, 0), "took no parcel of PE 1"),
        (taken(0, 1, 4), "a parcel of PE 1 is missing"),
        (taken(0, 1, u64::MAX), "a parcel of PE 1 is missing"),
        (taken(0, 0, 1), "a parcel of PE 0 is missing"),
        (taken(0, 3, 1), "a parcel of PE 3 is missing"),
        (taken(0, u32::MAX, 1), "a parcel of PE 4294967295 is missing"),
    ] {
        let diverged = steps(&mut repeating(vec![wrong])).expect_err("wrong");
        assert!(diverged.to_string().contains(why), "{diverged}");
    }
    // the event of pass 0 is not reached, and the PE runs on
    let mut log = repeating(vec![Determinant::Timer { pass: 0, number: 1 }]);
    log.end_pass(true);
    assert!(steps(&mut log).is_err());
}

#[test]
fn decisions_after_the_last_one_that_is_known_are_new() {
    let mut log = repeating(vec![Determinant::Value { pass: 0, bytes: vec![1] }]);
    let mut decide = |new: u8| match log.next_value().expect("a decision") {
        Some(known) => known,
        None => {
            log.note(|pass| Determinant::Value { pass, bytes: vec![new] });
            vec![new]
        }
    };
    assert_eq!([decide(7), decide(8), decide(9)], [[1], [8], [9]]);
    assert!(!log.is_behind(), "new decisions are not repeated");
    assert_eq!(log.own.len(), 3);
}

#[test]
fn a_mark_is_sent_again_only_to_a_pe_that_has_nothing_of_the_epoch() {
    let mut log = log();
    for (parcels, determinants, is_sent) in [(0, 0, true), (1, 0, false), (0, 1, false)] {
        log.keep(1, &super::tests::parcels(1));
        log.note(|pass| Determinant::Probe { pass });
        let has = Received { parcels, determinants, ..Received::default() };
        log.resume(1, has, false).expect("it was sent that");
        assert_eq!(log.mark(1), is_sent.then_some(1));
        assert_eq!(log.give(1).map(|(first, _)| first), Some(determinants));
    }
    let has = Received { parcels: 4, ..Received::default() };
    assert!(log.resume(1, has, false).is_err(), "it was sent three");
    // on the other side
    let mut log = self::log();
    assert!(log.take_mark(1, 1).is_ok() && log.take_mark(1, 0).is_err());
    log.take(1, 0, vec![Determinant::Probe { pass: 0 }]).expect("the first");
    assert!(log.take_mark(1, 1).is_err() && log.take_mark(1, 2).is_ok());
}

#[test]
fn a_pe_that_drops_its_log_tells_those_that_depend_on_it() {
    let (mut long, mut other) = (log(), log());
    long.note(|pass| Determinant::Probe { pass });
    long.keep(1, &[0; LIMIT as usize + 1]);
    assert_eq!(long.drop_if_too_long(), Some(LIMIT + 1));
    long.note(|pass| Determinant::Probe { pass });
    let (first, given) = long.give(1).map(|(first, given)| (first, given.to_vec())).expect("two");
    assert_eq!(given, [Determinant::Probe { pass: 0 }, Determinant::Dropped]);
    other.take(0, first, given).expect("the first");
    assert_eq!((long.survivor().is_ready, other.survivor().dropped), (false, vec![0]));
    assert_eq!((long.stop(), long.own.len()), (0, 2), "it is dropped once");
    other.take_mark(0, 2).expect("the next epoch");
    assert!(other.survivor().dropped.is_empty());
    // the run before has come further with this log
    let mut again = repeating(vec![taken(0, 1, 1)]);
    again.keep(1, &[0; LIMIT as usize + 1]);
    assert_eq!((again.drop_if_too_long(), again.is_behind()), (None, true));
}

/// Gives bytes to a log as if they were a parcel. `Core::log_arrival`
fn arrive(log: &mut Log, from: u32, kind: u8, bytes: &[u8]) {
    match kind {
        DETERMINANTS => {
            if let Ok((first, determinants)) = unpack(bytes) {
                let _ = log.take(from, first, determinants);
            }
        }
        EPOCH => {
            if let Ok(epoch) = bytes.try_into().map(u64::from_le_bytes) {
                let _ = log.take_mark(from, epoch);
            }
        }
        REPEATED => log.take_repeated(from),
        _ => {
            let arrival = log.arrive(from, Encoded { kind, bytes });
            assert!(from < 3 || arrival == Arrival::Now);
        }
    }
}

/// Determinants as they may be, and some that cannot.
fn determinant() -> impl Strategy<Value = Determinant> {
    let count = prop_oneof![0u64..5, any::<u64>()];
    prop_oneof![
        (0u64..4, 0u32..5, count).prop_map(|(pass, from, count)| Determinant::Parcels { pass, from, count }),
        (0u64..4, any::<u32>(), any::<bool>()).prop_map(|(pass, pe, away)| Determinant::Deferred {
            pass,
            pe,
            away
        }),
        (0u64..4, any::<u64>()).prop_map(|(pass, number)| Determinant::Timer { pass, number }),
        (0u64..4, any::<bool>()).prop_map(|(pass, away)| Determinant::Signal { pass, away }),
        (0u64..4).prop_map(|pass| Determinant::Probe { pass }),
        (0..4u64, prop::collection::vec(any::<u8>(), 0..4))
            .prop_map(|(pass, bytes)| Determinant::Value { pass, bytes }),
        Just(Determinant::Dropped),
    ]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        (any::<u64>(), prop::collection::vec(determinant(), 0..4))
            .prop_map(|given| postcard::to_allocvec(&given).expect("packed")),
        (0u64..3).prop_map(|epoch| epoch.to_le_bytes().to_vec()),
    ]
}

proptest! {
    #[test]
    fn no_parcels_of_the_log_panic(all in prop::collection::vec((0u32..5, 0u8..9, bytes()), 0..20)) {
        let mut log = log();
        for (from, kind, bytes) in all {
            arrive(&mut log, from, kind, &bytes);
        }
        for pe in 0..5 {
            let (_, held) = (log.received(pe), log.history(pe));
            prop_assert!(held.is_ok());
        }
        let _ = log.survivor();
        log.begin(2, true);
    }

    #[test]
    fn no_bytes_of_a_note_panic(
        all in prop::collection::vec((0u32..5, prop::collection::vec(any::<u8>(), 0..40)), 0..8),
    ) {
        let mut notes = Notes::new(3);
        for (from, bytes) in all {
            if let Ok(note) = postcard::from_bytes::<LogNote>(&bytes) {
                notes.take(from, note);
            }
        }
        let mut log = log();
        log.begin_repeat(notes.histories);
        let _ = steps(&mut log);
        let _ = log.end_repeat();
    }

    #[test]
    fn no_history_panics_or_is_repeated_for_ever(
        determinants in prop::collection::vec(determinant(), 0..8),
        parcels in prop::collection::vec((any::<u8>(), 0usize..30), 0..5),
        received in (0u64..3, any::<u32>(), any::<u64>()),
    ) {
        let histories = parcels.iter().map(|(count, length)| {
            let mut parcels = self::parcels(*count % 4);
            parcels.truncate(*length);
            let (parcels, determinants) = (parcels, determinants.clone());
            let received = Received { parcels: received.0, checksum: received.1, determinants: received.2 };
            History { determinants, parcels, received, held: vec![] }
        });
        let mut log = log();
        log.begin_repeat(histories.collect());
        for _ in 0..8 {
            // a program that always has something to run, and decides nothing
            if steps(&mut log).is_err() {
                return Ok(());
            }
            let _ = (log.next_timer(), log.next_signal(), log.next_probe());
            log.end_pass(true);
        }
        let _ = log.next_value();
        if let Ok(left) = log.end_repeat() {
            for (to, received) in (0..).zip(left.received) {
                let _ = log.resume(to, received, false);
            }
        }
    }
}
