// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model without faults, and with each of them.

use super::super::{check, finds};
use super::*;

const SMALL: Delivery = Delivery {
    homes: [0, 1],
    migrations: 4,
    messages: [1, 1],
    absent: [false; OBJECTS],
    asks: [0; OBJECTS],
    priorities: false,
    deaths: 0,
    checkpoints: 0,
    fault: None,
};

/// Pairs are retired; each migration makes 10 times as many states.
const RETIRING: Delivery = Delivery { migrations: 2, messages: [3, 0], asks: [2, 0], ..SMALL };

#[test]
fn four_migrations_of_two_objects_on_three_pes() {
    check("two messages one way, one back", Delivery { messages: [2, 1], ..SMALL }, true);
    check("three messages one way", Delivery { messages: [3, 0], ..SMALL }, true);
}

#[test]
fn four_migrations_with_priorities_one_home_and_late_elements() {
    check("priorities", Delivery { messages: [2, 0], priorities: true, ..SMALL }, true);
    check("one home", Delivery { messages: [2, 0], homes: [0, 0], ..SMALL }, true);
    check("the sender's home last", Delivery { messages: [1, 1], homes: [2, 0], ..SMALL }, false);
    check(
        "the receiver is inserted late",
        Delivery { messages: [2, 0], absent: [false, true], ..SMALL },
        true,
    );
    check("both are inserted late", Delivery { absent: [true, true], ..SMALL }, false);
}

#[test]
fn pairs_are_retired_while_their_objects_migrate_and_talk_again() {
    check("three messages, two questions", RETIRING, true);
    let back = Delivery { messages: [2, 1], asks: [1, 1], ..RETIRING };
    check("one message back, both are asked", back, false);
}

#[test]
fn pairs_are_retired_with_priorities_and_late_elements() {
    check("the receiver is inserted late", Delivery { absent: [false, true], ..RETIRING }, false);
    check("priorities", Delivery { priorities: true, ..RETIRING }, false);
}

/// A PE dies; all go back to a checkpoint in the middle or to the beginning.
const DYING: Delivery =
    Delivery { migrations: 2, messages: [2, 0], asks: [0, 0], deaths: 1, checkpoints: 1, ..SMALL };

#[test]
fn messages_are_delivered_once_and_in_order_although_pes_die() {
    check("two migrations", DYING, true);
    check("one message each way", Delivery { messages: [1, 1], ..DYING }, false);
    check("the receiver is inserted late", Delivery { absent: [false, true], ..DYING }, false);
    check("a pair is retired", Delivery { asks: [1, 0], ..DYING }, true);
    check("three migrations", Delivery { migrations: 3, ..DYING }, true);
    let once = Delivery { migrations: 1, messages: [3, 0], ..DYING };
    check("three messages, two questions", Delivery { asks: [2, 0], ..once }, false);
    check("two deaths", Delivery { asks: [1, 0], deaths: 2, checkpoints: 2, ..once }, false);
}

#[test]
#[ignore = "tens of millions of states: run it in a release build"]
fn pairs_are_retired_while_their_objects_migrate_three_times() {
    check("three messages, two questions", Delivery { migrations: 3, ..RETIRING }, true);
}

#[test]
#[ignore = "tens of millions of states: run it in a release build"]
fn four_migrations_with_two_messages_each_way() {
    check("two messages each way", Delivery { messages: [2, 2], ..SMALL }, true);
    check("two messages each way, one home", Delivery { messages: [2, 2], homes: [0, 0], ..SMALL }, true);
}

#[test]
#[ignore = "tens of millions of states: run it in a release build"]
fn four_migrations_with_three_messages_and_one_back() {
    check("three messages one way, one back", Delivery { messages: [3, 1], ..SMALL }, true);
    check("three messages with priorities", Delivery { messages: [3, 0], priorities: true, ..SMALL }, true);
}

#[test]
fn a_faulty_protocol_is_found() {
    for (fault, property) in [
        (Fault::DueStay, "complete at the end"),
        (Fault::DueLost, "complete at the end"),
        (Fault::NoPointer, "complete at the end"),
        (Fault::OlderPlaces, "complete at the end"),
        (Fault::NoEpochs, "complete at the end"),
        (Fault::KeptStay, "complete at the end"),
        (Fault::NoEpochInMessages, "no circles"),
        (Fault::NoOrder, "once and in order"),
        (Fault::NumbersStay, "complete at the end"),
    ] {
        let model = Delivery { messages: [2, 0], fault: Some(fault), ..SMALL };
        finds(&format!("{fault:?}"), model, property);
    }
    for (fault, property) in [
        (Fault::ForgottenUnasked, "complete at the end"),
        (Fault::ForgottenEarly, "complete at the end"),
        (Fault::NotResumed, "complete at the end"),
        (Fault::ForgottenAnyway, "complete at the end"),
        (Fault::ResumedWithoutDue, "complete at the end"),
    ] {
        finds(&format!("{fault:?}"), Delivery { fault: Some(fault), ..RETIRING }, property);
    }
    for (fault, property) in [
        (Fault::EarlierGeneration, "complete at the end"),
        (Fault::OthersStay, "complete at the end"),
        (Fault::PlacesLost, "complete at the end"),
        (Fault::NumbersLost, "complete at the end"),
        (Fault::DeliveredAgain, "complete at the end"),
    ] {
        finds(&format!("{fault:?}"), Delivery { fault: Some(fault), ..DYING }, property);
    }
}
