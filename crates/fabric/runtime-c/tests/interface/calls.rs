// SPDX-License-Identifier: MIT OR Apache-2.0
//! Effects of the functions, on one PE, several PEs and several processes.

use std::ffi::{c_int, c_void};
use std::ptr::null;

use colony_runtime_c::*;

use crate::probe::{act, at, create_array, message, note, run, this};

/// Ranks and PEs of each.
const PLACES: [(u32, u32); 4] = [(1, 1), (1, 3), (3, 1), (2, 2)];

fn hop(cx: *mut ColonyContext) -> c_int {
    let me = this(cx);
    let (pe, pes) = (colony_pe(cx), colony_pes(cx));
    if me.index.at[1] == 1 {
        return colony_exit(cx, 0);
    }
    let next = at(me.array, &[(me.index.at[0] + 1) % 5, i64::from(me.index.at[0] == 4)]);
    note(format_args!("{:?}", &me.index.at[..2]));
    act(cx, next, hop) | colony_migrate_to(cx, ((pe + 1) % pes).cast_unsigned())
}

#[test]
fn objects_migrate_by_pack_and_unpack() {
    for place in PLACES {
        let ran = run(place, |cx| {
            let array = create_array(cx, &[5, 2]);
            act(cx, at(array, &[0, 0]), hop)
        });
        assert!(ran.outcomes.iter().all(|o| *o == Ok(0)), "{:?}", ran.outcomes);
        let hops: Vec<_> = ran.notes.iter().filter(|n| *n != "arrived").collect();
        assert_eq!(hops, ["[0, 0]", "[1, 0]", "[2, 0]", "[3, 0]", "[4, 0]"], "{place:?}");
        assert_eq!(ran.unpacked > 0, place.0 > 1, "{place:?}: {} unpacked", ran.unpacked);
    }
}

fn contribute(cx: *mut ColonyContext, type_: u32, op: u32, values: *const c_void, count: usize) -> c_int {
    let mut first = this(cx);
    first.index = ColonyIndex::default();
    let target = ColonyTarget { kind: 0, unused: 0, element: first };
    // SAFETY: as many values as the count says.
    unsafe { colony_contribute(cx, type_, op, values, count, target) }
}

/// An array of 2 × 1 × 3 elements, each of which runs an action.
macro_rules! reduction {
    ($place:expr, $action:expr) => {
        run($place, |cx| {
            let array = create_array(cx, &[2, 1, 3]);
            let message = message($action);
            // SAFETY: 16 bytes.
            unsafe { colony_broadcast(cx, array, 0, message.as_ptr().cast(), 16) }
        })
    };
}

#[test]
fn reductions_give_sums_extrema_and_all_values_in_order() {
    for place in PLACES {
        let sum = reduction!(place, |cx| {
            let [x, _, z, ..] = this(cx).index.at;
            let values = [x + 10 * z, 1];
            contribute(cx, 1, 0, values.as_ptr().cast(), 2)
        });
        assert_eq!(sum.notes, ["0: 63 6"], "{place:?}");
        let largest = reduction!(place, |cx| {
            let values = [0.5 + this(cx).index.at[2] as f64];
            contribute(cx, 0, 2, values.as_ptr().cast(), 1)
        });
        assert_eq!(largest.notes, ["0: 2.5"], "{place:?}");
        let all = reduction!(place, |cx| {
            let [x, _, z, ..] = this(cx).index.at;
            let values = [x as f64, z as f64];
            contribute(cx, 0, 3, values.as_ptr().cast(), z as usize)
        });
        let indices = "[[0, 0, 0], [0, 0, 1], [0, 0, 2], [1, 0, 0], [1, 0, 1], [1, 0, 2]]";
        assert_eq!(all.notes, [format!("0: 0 0 2 1 1 2 of {indices} at [0, 0, 1, 3, 3, 4, 6]")], "{place:?}");
        let barrier = reduction!(place, |cx| contribute(cx, 1, 1, null(), 0));
        assert_eq!(barrier.notes, ["0: "], "{place:?}");
    }
}

#[test]
fn a_gather_of_two_types_is_refused() {
    let ran = reduction!((1, 1), |cx| {
        let is_first = this(cx).index.at == [0; 6];
        contribute(cx, u32::from(is_first), 3, [0u64].as_ptr().cast(), 1)
    });
    assert!(
        ran.error().starts_with("Probe [0, 0, 0]: got a gather of values of two types"),
        "{}",
        ran.error()
    );
}

#[test]
fn sparse_elements_groups_single_objects_timers_and_quiescence_work() {
    for place in PLACES {
        let ran = run(place, |cx| {
            let (mut sparse, mut group, mut one) =
                (ColonyArray::default(), ColonyArray::default(), ColonyElement::default());
            let note_index = message(|cx| {
                note(format_args!("at {}", this(cx).index.at[0]));
                0
            });
            let far = at(ColonyArray::default(), &[i64::MIN]).index;
            let near = at(ColonyArray::default(), &[7]).index;
            // SAFETY: valid places, as many indices and bytes as the numbers say.
            let statuses = unsafe {
                [
                    colony_create_sparse(cx, 0, 1, &raw mut sparse),
                    colony_insert(cx, ColonyElement { array: sparse, index: far }, null(), 0),
                    colony_insert(cx, ColonyElement { array: sparse, index: near }, null(), 0),
                    colony_create_group(cx, 1, null(), 0, &raw mut group),
                    colony_create_one(cx, 0, null(), 0, &raw mut one),
                    colony_multicast(cx, sparse, [far, near].as_ptr(), 2, 0, note_index.as_ptr().cast(), 16),
                    colony_multicast(cx, sparse, null(), 0, 0, null(), 0),
                    colony_broadcast(
                        cx,
                        group,
                        0,
                        message(|_| {
                            note("branch");
                            0
                        })
                        .as_ptr()
                        .cast(),
                        16,
                    ),
                    colony_send_after(cx, 2_000_000, one, 0, note_index.as_ptr().cast(), 16),
                    colony_send_with_priority(cx, one, 0, note_index.as_ptr().cast(), 16, -3),
                    colony_when_quiet(cx, one),
                ]
            };
            assert_eq!(statuses, [0; 11]);
            0
        });
        let code = if place == (0, 0) { 0 } else { 3 };
        assert!(ran.outcomes.iter().all(|o| *o == Ok(code)), "{:?}", ran.outcomes);
        let mut notes = ran.notes;
        assert_eq!(notes.pop().expect("notes"), "quiet");
        notes.sort();
        let pes = (place.0 * place.1) as usize;
        let mut expected =
            vec!["at -9223372036854775808".to_owned(), "at 0".into(), "at 0".into(), "at 7".into()];
        expected.extend(vec!["branch".to_owned(); pes]);
        assert_eq!(notes, expected, "{place:?}");
    }
}

#[test]
fn a_buffer_is_written_in_place_and_sent_as_it_is() {
    let ran = run((2, 1), |cx| {
        let array = create_array(cx, &[4]);
        let buffer = colony_buffer_new(100);
        let action = message(|cx| colony_exit(cx, 0));
        // SAFETY: a buffer of this test, which the last call takes.
        unsafe {
            assert_eq!(colony_buffer_write(buffer, action.as_ptr().cast(), 8), 0);
            let rest = colony_buffer_extend(buffer, 8);
            assert!(!rest.is_null() && *rest.cast::<u64>() == 0);
            assert_eq!((colony_buffer_length(buffer), colony_buffer_data(buffer).addr() % 16), (16, 0));
            colony_send_buffer(cx, at(array, &[3]), 0, buffer)
        }
    });
    assert!(ran.outcomes.iter().all(|o| *o == Ok(0)), "{:?}", ran.outcomes);
}
