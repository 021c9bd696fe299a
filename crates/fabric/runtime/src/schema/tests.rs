// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize};

use super::*;
use crate::{Bulk, Tracked};

#[derive(Serialize, Deserialize)]
struct Inner {
    key: u32,
    names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
enum State {
    Idle,
    Runs { inner: Inner },
    Ended(Option<bool>, u8),
}

#[derive(Serialize, Deserialize)]
struct Outer {
    state: State,
    places: BTreeMap<u16, [f32; 2]>,
    matrix: Tracked<Bulk<f64>>,
    least: NonZeroU32,
}

fn lines<T: DeserializeOwned>() -> (Vec<String>, bool) {
    let schema = Schema::of::<T>();
    let is_whole = schema.is_whole();
    (schema.into_fields().into_iter().map(|(path, kind)| format!("{path}: {kind}")).collect(), is_whole)
}

#[test]
fn a_schema_has_the_kind_of_each_value_also_of_nested_types_and_all_variants() {
    let (lines, is_whole) = lines::<Outer>();
    assert!(is_whole);
    assert_eq!(
        lines,
        [
            ": struct of state, places, matrix, least",
            "least: u32",
            "matrix: tracked",
            "matrix[tracked]: bytes of f64",
            "places: map",
            "places[key]: u16",
            "places[value]: tuple of 2",
            "places[value].0: f32",
            "places[value].1: f32",
            "state: one of Idle, Runs, Ended",
            "state.Ended: tuple of 2",
            "state.Ended.0: option",
            "state.Ended.0[some]: bool",
            "state.Ended.1: u8",
            "state.Idle: nothing",
            "state.Runs: struct of inner",
            "state.Runs.inner: struct of key, names",
            "state.Runs.inner.key: u32",
            "state.Runs.inner.names: sequence",
            "state.Runs.inner.names[element]: text",
        ]
    );
}

#[derive(Serialize, Deserialize)]
struct List {
    value: u8,
    next: Option<Box<List>>,
}

#[derive(Serialize, Deserialize)]
enum Tree {
    Node(Box<Tree>, Vec<Tree>),
    Leaf(u8),
}

#[derive(Serialize, Deserialize)]
enum Endless {
    Only(Box<Endless>),
}

#[test]
fn a_type_that_contains_itself_is_seen_if_it_ends() {
    let (list, is_whole) = lines::<List>();
    assert!(is_whole && list.contains(&"next[some].next: option".to_owned()), "{list:?}");
    let (tree, is_whole) = lines::<Tree>();
    assert!(is_whole && tree.contains(&"Node.0.Leaf: u8".to_owned()), "{tree:?}");
    assert!(tree.contains(&"Leaf: u8".to_owned()), "{tree:?}");
    assert!(!lines::<Endless>().1);
}

/// Takes samples for something that no object packs.
struct Strict<const PANICS: bool>;

impl<'de, const PANICS: bool> Deserialize<'de> for Strict<PANICS> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<u64>::deserialize(deserializer)?;
        if PANICS {
            assert_eq!(numbers.len(), 2, "as the test wants");
        }
        if numbers.len() == 2 { Ok(Self) } else { Err(serde::de::Error::custom("two numbers")) }
    }
}

#[test]
fn a_type_that_refuses_samples_is_not_claimed_to_be_seen() {
    for (lines, is_whole) in [lines::<Strict<false>>(), lines::<Strict<true>>()] {
        assert_eq!((lines, is_whole), (vec![": sequence".to_owned(), "[element]: u64".to_owned()], false));
    }
}

fn class(schema: Schema, version: u32) -> ClassSchema {
    ClassSchema {
        number: 0,
        name: "Cell".to_owned(),
        namesakes: 0,
        version,
        index: "i64".to_owned(),
        entries: vec!["Go".to_owned(), "Tell".to_owned()],
        is_whole: schema.is_whole(),
        fields: schema.into_fields(),
    }
}

fn difference(then: &ClassSchema, now: &ClassSchema) -> Option<String> {
    match then.check(now, false) {
        Ok(()) => None,
        Err(Difference::Class { class, difference }) => Some(format!("{class}: {difference}")),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_class_differs_by_its_version_its_indices_its_entry_methods_or_its_state() {
    let then = class(Schema::of::<Inner>(), 1);
    let of = |change: fn(&mut ClassSchema)| {
        let mut now = then.clone();
        change(&mut now);
        difference(&then, &now)
    };
    assert_eq!(of(|_| {}), None);
    assert_eq!(of(|now| now.entries.push("More".to_owned())), None, "further entry methods change no number");
    let differs = |change, text: &str| assert_eq!(of(change), Some(format!("Cell: {text}")));
    differs(|now| now.version = 2, "its version was 1, and is 2");
    differs(|now| now.index = "[i32; 2]".to_owned(), "the type of its indices was i64, and is [i32; 2]");
    differs(|now| now.entries.swap(0, 1), "its entry method 0 was Go, and is Tell");
    differs(|now| now.entries.truncate(1), "its entry method 1 was Tell, and is none");
    differs(|now| now.fields[1].1 = "u64".to_owned(), "`key` of its state was u32, and is u64");
    differs(
        |now| now.fields[0].1 = "struct of names, key".to_owned(),
        "its state was struct of key, names, and is struct of names, key",
    );
}

#[test]
fn a_layout_that_is_not_seen_in_full_is_for_the_same_build_or_the_same_version() {
    let unseen = class(Schema::of::<Strict<false>>(), 0);
    assert!(difference(&unseen, &unseen).is_some_and(|text| text.contains("not seen in full")));
    assert_eq!(unseen.check(&unseen, true), Ok(()));
    let versioned = class(Schema::of::<Strict<false>>(), 3);
    assert_eq!(difference(&versioned, &versioned), None);
    assert!(difference(&versioned, &class(Schema::of::<Vec<u8>>(), 3)).is_some());
}

#[test]
fn classes_are_found_by_their_names_and_those_of_one_name_by_their_order() {
    let one = |number, namesakes, name: &str| ClassSchema {
        number,
        namesakes,
        name: name.to_owned(),
        ..class(Schema::of::<Inner>(), 0)
    };
    let described = |build: &str, classes| Description { build: build.to_owned(), runtime: 7, classes };
    let then = described("then", vec![one(0, 0, "Cell"), one(1, 1, "Cell"), one(2, 0, "Edge")]);
    let now =
        described("now", vec![one(0, 0, "Edge"), one(1, 0, "More"), one(2, 0, "Cell"), one(3, 1, "Cell")]);
    assert_eq!(then.match_classes(&now), Ok(ClassNumbers::from([(0, 2), (1, 3), (2, 0)])));
    let less = described("now", vec![one(0, 0, "Cell"), one(1, 1, "Cell")]);
    let error = then.match_classes(&less).expect_err("Edge is missing").to_string();
    assert!(
        error.starts_with("the class Edge of the checkpoint") && error.contains("does not have it"),
        "{error}"
    );
}

#[test]
fn long_layouts_are_described_within_a_bound_and_still_compared() {
    let long = |kind: &str| {
        let all = (0..3 * MOST_FIELDS).fold(Schema::unknown(), |all, at| all.with(format!("{at:05}"), "u8"));
        class(all.with("99999", kind), 1)
    };
    let (one, other) = (long("u8"), long("u16"));
    assert_eq!(one.fields.len(), MOST_FIELDS + 1);
    assert_eq!(difference(&one, &one), None);
    assert!(difference(&one, &other).is_some_and(|text| text.contains("`[the rest]`")));
}
