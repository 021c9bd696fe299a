// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wrong calls get an error code and a text; programs that fail end with one message in the words of C.

use std::ffi::c_int;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use colony_runtime_c::*;

use crate::probe::{act, at, class, create_array, last_error, message, note, note_status, run, this};

/// Runs an action in the element [1, 0] of an array.
fn in_element(cx: *mut ColonyContext, action: crate::probe::Action) -> c_int {
    let array = create_array(cx, &[2, 1]);
    act(cx, at(array, &[1, 0]), action)
}

#[test]
fn a_callback_that_fails_ends_the_job_with_one_message() {
    for place in [(1, 1), (1, 2), (2, 1)] {
        let code = run(place, |cx| in_element(cx, |_| 7));
        assert_eq!(code.error(), "the entry method act of Probe [1, 0] returned 7");
        let text = run(place, |cx| {
            // SAFETY: a text.
            in_element(cx, |cx| unsafe { colony_fail(cx, c"no pressure left".as_ptr()) })
        });
        assert_eq!(text.error(), "the entry method act of Probe [1, 0]: no pressure left");
        let last = run(place, |cx| in_element(cx, |cx| colony_migrate_to(cx, 77)));
        let pes = place.0 * place.1;
        assert_eq!(
            last.error(),
            format!(
                "the entry method act of Probe [1, 0] returned -1 (last error: PE 77 does not exist: the job has {pes}, from 0)"
            )
        );
        let start = run(place, |_| -4);
        assert_eq!(start.error(), "`start` returned -4");
    }
}

#[test]
fn an_object_that_cannot_be_created_packed_or_unpacked_ends_the_job() {
    for place in [(1, 1), (1, 2), (2, 1)] {
        let create = run(place, |cx| {
            let fails = message(|_| 1);
            let mut element = ColonyElement::default();
            // SAFETY: 16 bytes, and a place for the element.
            let status = unsafe { colony_create_one(cx, 0, fails.as_ptr().cast(), 16, &raw mut element) };
            note_status("create", status);
            0
        });
        assert_eq!(create.error(), "`create` of Probe 0 returned NULL");
        assert_eq!(create.notes, ["create: -5 an object could not be created: the job has failed"]);
    }
    // inside a process objects are not packed
    for (length, text) in [(1, "`pack` of an object of Plain returned 9"), (2, "")] {
        let text =
            if text.is_empty() { "`unpack` of an object of Plain returned NULL for 8 bytes" } else { text };
        static LENGTH: AtomicUsize = AtomicUsize::new(0);
        LENGTH.store(length, Ordering::Relaxed);
        let ran = run((2, 1), |cx| {
            let mut element = ColonyElement::default();
            // SAFETY: two bytes, and a place for the element.
            unsafe {
                colony_create_one(cx, 1, null(), 0, &raw mut element);
                colony_send(cx, element, 1, c"x".as_ptr().cast(), LENGTH.load(Ordering::Relaxed))
            }
        });
        assert_eq!(ran.error(), text);
    }
}

#[test]
fn wrong_arguments_are_refused_with_a_text() {
    let ran = run((1, 1), |cx| {
        let array = create_array(cx, &[2, 3]);
        let (mut out, mut one) = (ColonyArray::default(), ColonyElement::default());
        let mut forged = array;
        let few = [2u32, 3];
        // SAFETY: every pointer is null or valid.
        unsafe {
            let element = at(array, &[1, 2]);
            note_status("entry", colony_send(cx, element, 2, null(), 0));
            note_status("message", colony_send(cx, element, 0, null(), 8));
            note_status("dimensions", colony_send(cx, at(array, &[1, 2, 3]), 0, null(), 0));
            note_status("range", colony_send(cx, at(array, &[1 << 31, 0]), 0, null(), 0));
            forged.type_ = 9;
            note_status("class", colony_send(cx, at(forged, &[0]), 0, null(), 0));
            forged.dimensions = 7;
            note_status("array", colony_broadcast(cx, forged, 0, null(), 0));
            note_status("zero array", colony_broadcast(cx, ColonyArray::default(), 0, null(), 0));
            note_status("context", colony_send(null_mut(), element, 0, null(), 0));
            let create = |class, dimensions, extents, map, place| {
                colony_create_array(cx, class, dimensions, extents, map, null(), 0, place)
            };
            note_status("no class", create(2, 2, few.as_ptr(), 0, &raw mut out));
            note_status("negative class", create(-1, 2, few.as_ptr(), 0, &raw mut out));
            note_status("7 dimensions", create(0, 7, few.as_ptr(), 0, &raw mut out));
            note_status("0 dimensions", create(0, 0, few.as_ptr(), 0, &raw mut out));
            note_status("extents", create(0, 2, null(), 0, &raw mut out));
            note_status("empty", create(0, 2, [0, 3].as_ptr(), 0, &raw mut out));
            note_status("too many", create(0, 2, [1 << 31, 1 << 31].as_ptr(), 0, &raw mut out));
            note_status("six", create(0, 6, [1, 1, 1, 1, 1, (1 << 20) + 1].as_ptr(), 0, &raw mut out));
            note_status("map", create(0, 2, few.as_ptr(), 3, &raw mut out));
            note_status("place", create(0, 2, few.as_ptr(), 0, null_mut()));
            note_status("init", colony_create_one(cx, 0, null(), 3, &raw mut one));
            note_status("indices", colony_multicast(cx, array, null(), 1, 0, null(), 0));
            note_status(
                "quiet",
                colony_when_quiet(cx, ColonyElement { array: ColonyArray { type_: 1, ..array }, ..element }),
            );
            note_status("this", colony_this(cx, &raw mut one));
            note_status("at_sync", colony_at_sync(cx));
            note_status("code", colony_exit(cx, 256));
            note_status("buffer", colony_send_buffer(cx, element, 0, null_mut()));
            note_status("write", colony_buffer_write(null_mut(), null(), 0));
            note_status("run", colony_run(null(), null(), 0, null_mut(), None));
            assert!(colony_load(cx) < 0.0 && colony_pe(null()) < 0);
        }
        colony_exit(cx, 0)
    });
    assert_eq!(ran.outcomes, [Ok(0)]);
    let expected = [
        ("entry: -2", "Probe has no entry method 2: it has 2, from 0"),
        ("message: -1", "the message is NULL, and its length is 8"),
        ("dimensions: -3", "coordinates beyond the 2 dimensions"),
        ("range: -3", "the coordinate 2147483648 of an element of Probe is out of range"),
        ("class: -2", "class 9 does not exist: the program has 2 classes"),
        ("array: -2", "is none that the runtime has made"),
        ("zero array: -2", "is none that the runtime has made"),
        ("context: -1", "the context is NULL"),
        ("no class: -2", "class 2 does not exist"),
        ("negative class: -2", "class -1 does not exist"),
        ("7 dimensions: -3", "7 dimensions are not possible"),
        ("0 dimensions: -3", "0 dimensions are not possible"),
        ("extents: -1", "the extents are NULL"),
        ("empty: -3", "[0, 3]"),
        ("too many: -3", "is not possible"),
        ("six: -3", "at most 1048575"),
        ("map: -1", "the colony_map 3 does not exist"),
        ("place: -1", "the place for the array is NULL"),
        ("init: -1", "`init` is NULL, and its length is 3"),
        ("indices: -1", "the indices are NULL, and their number is 1"),
        ("quiet: -1", "Plain has no callback `quiet`"),
        ("this: -4", "`start` is no object"),
        ("at_sync: -4", "`start` is no object"),
        ("code: -1", "the exit code 256 is not from 0 to 255"),
        ("buffer: -1", "the buffer is NULL"),
        ("write: -1", "the buffer is NULL"),
        ("run: 2", "the program is NULL"),
    ];
    assert_eq!(ran.notes.len(), expected.len(), "{:?}", ran.notes);
    for (note, (code, text)) in ran.notes.iter().zip(expected) {
        assert!(note.starts_with(code) && note.contains(text), "{note} has not {code} … {text}");
    }
}

/// A context that a callback has kept.
static KEPT: AtomicUsize = AtomicUsize::new(0);

fn use_kept(what: &str) {
    let context = std::ptr::without_provenance_mut(KEPT.load(Ordering::Relaxed));
    note_status(what, colony_exit(context, 0));
}

#[test]
fn a_context_is_refused_after_its_callback_on_other_threads_and_in_nested_callbacks() {
    let ran = run((1, 1), |cx| {
        KEPT.store(cx.addr(), Ordering::Relaxed);
        std::thread::spawn(|| use_kept("thread")).join().expect("no panic");
        let nested = message(|_| {
            use_kept("nested");
            0
        });
        let mut element = ColonyElement::default();
        // SAFETY: 16 bytes, and a place for the element.
        let status = unsafe { colony_create_one(cx, 0, nested.as_ptr().cast(), 16, &raw mut element) };
        assert_eq!((status, colony_pe(cx)), (0, 0), "the outer context is valid again");
        act(cx, element, |cx| {
            use_kept("later");
            colony_exit(cx, 0)
        })
    });
    use_kept("after the run");
    assert_eq!(ran.outcomes, [Ok(0)]);
    for (note, what) in ran.notes.iter().zip(["thread", "nested", "later"]) {
        assert!(note.starts_with(&format!("{what}: -4 the context is not valid here")), "{note}");
    }
    assert_eq!(ran.notes.len(), 3);
    assert!(last_error().contains("the context is not valid here"));
}

#[test]
fn members_of_groups_do_not_migrate_and_messages_for_other_classes_are_found() {
    let ran = run((1, 2), |cx| {
        let mut group = ColonyArray::default();
        // SAFETY: a place for the group.
        assert_eq!(unsafe { colony_create_group(cx, 0, null(), 0, &raw mut group) }, 0);
        act(cx, at(group, &[1]), |cx| {
            note_status("migrate", colony_migrate_to(cx, 0));
            note_status("at_sync", colony_at_sync(cx));
            note_status("remove", colony_remove(cx));
            let mut me = this(cx);
            me.array.type_ = 1;
            act(cx, me, |_| 0)
        })
    });
    assert_eq!(
        ran.error(),
        "Probe 1: got a message for an object of class Plain: its sender has a wrong array"
    );
    assert!(ran.notes.iter().all(|n| n.contains(": -1 an element of a group")), "{:?}", ran.notes);
    assert_eq!(ran.notes.len(), 3);
}

#[test]
fn a_program_that_runs_keeps_others_out_of_its_process() {
    let ran = run((1, 1), |cx| {
        extern "C" fn never(_: c_int, _: *mut *mut std::ffi::c_char, _: *mut ColonyContext) -> c_int {
            note("a second program ran");
            0
        }
        let program = colony_program_new();
        // SAFETY: a program of this test.
        let code = unsafe {
            let code = colony_run(program, null(), 0, null_mut(), Some(never));
            colony_program_free(program);
            code
        };
        note_status("run", code);
        colony_exit(cx, 0)
    });
    assert_eq!(ran.outcomes, [Ok(0)]);
    assert_eq!(ran.notes, ["run: 2 a program runs in this process already: wait for its end"]);
}

#[test]
fn classes_that_lack_something_are_refused() {
    let program = colony_program_new();
    let refuse = |class: ColonyClass, text: &str| {
        // SAFETY: a program of this test, and a class with valid or null pointers.
        let number = unsafe { colony_program_class(program, &raw const class) };
        assert!(number == -1 && last_error().contains(text), "{number}: {}", last_error());
    };
    let good = class(c"Good");
    refuse(ColonyClass { size: 8, ..good }, "sizeof(colony_class)");
    refuse(ColonyClass { name: null(), ..good }, "the name of the class is NULL");
    refuse(ColonyClass { name: c"".as_ptr(), ..good }, "is empty");
    refuse(ColonyClass { name: c"\xff".as_ptr(), ..good }, "not UTF-8");
    refuse(ColonyClass { entries: null(), ..good }, "names of the 2 entry methods of Good are NULL");
    refuse(ColonyClass { entry_count: 65_536, ..good }, "65535 are possible");
    refuse(ColonyClass { create: None, ..good }, "no callback `create`");
    refuse(ColonyClass { destroy: None, ..good }, "no callback `destroy`");
    refuse(ColonyClass { pack: None, ..good }, "no callback `pack`");
    refuse(ColonyClass { unpack: None, ..good }, "no callback `unpack`");
    refuse(ColonyClass { entry: None, ..good }, "no callback `entry`");
    // SAFETY: a program of this test, freed at the end.
    unsafe {
        assert_eq!(colony_program_class(program, &raw const good), 0);
        refuse(good, "has a class Good already");
        assert_eq!(colony_program_class(null_mut(), &raw const good), -1);
        assert_eq!(colony_program_class(program, null()), -1);
        colony_program_free(program);
        colony_program_free(null_mut());
        assert!(colony_buffer_new(usize::MAX).is_null());
        colony_buffer_free(null_mut());
    }
}
