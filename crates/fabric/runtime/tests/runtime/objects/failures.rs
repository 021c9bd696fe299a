// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that fail: one clear error, and every rank ends.

use std::time::Duration;

use colony_runtime::transport::{Transport, TransportError};
use colony_runtime::{Context, Entry, Main, Object, Options, Program, RunError, run_and_report};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{PLACES, run_with};

#[derive(Serialize, Deserialize)]
struct Bad;
#[derive(Serialize, Deserialize)]
enum Fault {
    Panic,
    Migrate(u32),
}

impl Object for Bad {
    type Index = [i32; 1];
    type Init = ();
    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

impl Entry<Fault> for Bad {
    fn call(&mut self, fault: Fault, cx: &mut Context<'_, Self>) {
        match fault {
            Fault::Panic => panic!("a fault on purpose"),
            Fault::Migrate(pe) => cx.migrate_to(pe),
        }
    }
}

/// Unpacks less than it packs.
#[derive(Serialize)]
struct Forgets(u64, u64);

impl<'de> Deserialize<'de> for Forgets {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(|a| Self(a, 0))
    }
}

impl Object for Forgets {
    type Index = i64;
    type Init = ();
    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self(1, 2)
    }
}

#[derive(Serialize, Deserialize)]
struct Go;

impl Entry<Go> for Forgets {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        cx.migrate_to(cx.pes() - 1);
    }
}

/// Cannot be packed.
#[derive(Deserialize)]
struct Sealed;

impl Serialize for Sealed {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("sealed"))
    }
}

/// Has a state that cannot be packed once it has got a [`Go`].
#[derive(Serialize, Deserialize)]
struct Holder(Option<Sealed>);

impl Object for Holder {
    type Index = i64;
    type Init = Option<Sealed>;
    fn new(sealed: Option<Sealed>, _: &mut Context<'_, Self>) -> Self {
        Self(sealed)
    }
}

impl Entry<Go> for Holder {
    fn call(&mut self, _: Go, cx: &mut Context<'_, Self>) {
        self.0 = Some(Sealed);
        cx.migrate_to(cx.pes() - 1);
    }
}

impl Entry<Sealed> for Holder {
    fn call(&mut self, _: Sealed, _: &mut Context<'_, Self>) {}
}

fn program() -> Program {
    Program::new()
        .class::<Bad>(|c| c.entry::<Fault>())
        .class::<Forgets>(|c| c.entry::<Go>())
        .class::<Holder>(|c| c.entry::<Go>().entry::<Sealed>())
}

/// The one error of a run, on whatever rank it happened; the other ranks end too.
fn error(place: (u32, u32), main: fn(&mut Context<'_, Main>)) -> String {
    let outcomes = run_with(place, &Options::default(), program, main);
    let mut programs = Vec::new();
    for outcome in outcomes {
        match outcome {
            Err(RunError::Program(text)) => programs.push(text),
            Err(_) => {}
            Ok(outcome) => panic!("{place:?} ended with {outcome:?}"),
        }
    }
    assert_eq!(programs.len(), 1, "one rank reports: {programs:?}");
    programs.remove(0)
}

#[test]
fn a_panic_names_the_entry_method_and_the_object_and_ends_all_ranks() {
    for place in PLACES {
        let text = error(place, |cx| {
            let array = cx.create_array::<Bad>(&[12], ());
            cx.send(array.at([11]), Fault::Panic);
        });
        assert_eq!(text, "the entry method Fault of Bad [11] panicked: a fault on purpose");
    }
}

#[test]
fn an_object_that_unpacks_less_than_it_packed_is_an_error() {
    for place in [(2, 1), (3, 1)] {
        let text = error(place, |cx| {
            let array = cx.create_array::<Forgets>(&[1], ());
            cx.send(array.at(0), Go);
        });
        assert!(text.contains("Forgets 0 migrated") && text.contains("differ"), "{text}");
    }
}

#[test]
fn what_cannot_be_packed_is_one_error_and_nothing_is_sent_in_its_place() {
    for place in [(2, 1), (3, 1), (2, 2)] {
        let of_init = error(place, |cx| {
            cx.create_array::<Holder>(&[12], Some(Sealed));
        });
        let of_message = error(place, |cx| {
            let array = cx.create_array::<Holder>(&[12], None);
            cx.send(array.at(11), Sealed);
            cx.send(array.at(11), Go);
        });
        let of_broadcast = error(place, |cx| {
            let array = cx.create_array::<Holder>(&[12], None);
            cx.broadcast(array, Sealed);
        });
        let of_state = error(place, |cx| {
            let array = cx.create_array::<Holder>(&[12], None);
            cx.send(array.at(0), Go);
        });
        for text in [of_init, of_message, of_broadcast, of_state] {
            assert!(text.contains("cannot be packed"), "{place:?}: {text}");
        }
    }
}

#[test]
fn a_program_that_hangs_says_what_waits() {
    for place in [(1, 1), (2, 2)] {
        let text = error(place, |cx| {
            let array = cx.create_array::<Bad>(&[2], ());
            cx.send(array.at([7]), Fault::Panic);
        });
        assert!(
            text.contains("hangs") && text.contains("1 messages are for elements that do not exist"),
            "{text}"
        );
    }
}

#[test]
fn wrong_pes_extents_and_classes_are_errors() {
    let text = error((2, 1), |cx| {
        let array = cx.create_array::<Bad>(&[2], ());
        cx.send(array.at([0]), Fault::Migrate(9));
    });
    assert!(text.contains("to migrate to PE 9 of 2"), "{text}");
    let text = error((1, 1), |cx| {
        cx.create_array::<Bad>(&[2, 2], ());
    });
    assert!(text.contains("1 dimensions, and 2 extents"), "{text}");
    let text = error((1, 1), |cx| {
        let array = cx.create_array::<Bad>(&[1], ());
        cx.insert(array.at([0]), ());
    });
    assert!(text.contains("is inserted, but exists"), "{text}");
}

/// A network whose other rank has died, and which a rank cannot join again for this reason.
struct CutOff(Option<TransportError>);

impl Transport for CutOff {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        2
    }

    fn name(&self) -> &'static str {
        "cut off"
    }

    fn send(&mut self, _: u32, frame: &mut Vec<u8>) -> Result<(), TransportError> {
        frame.clear();
        Ok(())
    }

    fn poll(&mut self, _: &mut dyn FnMut(u32, &[u8])) -> Result<bool, TransportError> {
        Err(TransportError::Died("rank 1 has ended".to_owned()))
    }

    fn wait(&mut self, _: Duration) -> Result<(), TransportError> {
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        Ok(())
    }

    fn can_rejoin(&self) -> bool {
        true
    }

    fn rejoin(&mut self) -> Result<(), TransportError> {
        Err(self.0.take().unwrap_or_else(|| TransportError::Lost("again".to_owned())))
    }

    fn abort(&mut self, _: i32) {}
}

#[test]
fn a_rank_that_cannot_join_again_says_why_unless_another_has() {
    let run = |error| {
        let mut reported = None;
        let transport = Box::new(CutOff(Some(error)));
        let end = run_and_report(
            Program::new(),
            &Options::default(),
            transport,
            |_| {},
            |text| {
                reported = Some(text.to_owned());
            },
        );
        (end.expect_err("it cannot go on"), reported)
    };
    let text = "joining the job at its launcher: the launcher at tcp:10.0.0.1:9: Invalid argument".to_owned();
    let refused = run(TransportError::Environment(text.clone()));
    assert_eq!(refused, (RunError::Program(text.clone()), Some(text)));
    let lost = run(TransportError::Lost("the launcher has ended".to_owned()));
    assert_eq!(lost, (RunError::Lost("the launcher has ended".to_owned()), None));
}
