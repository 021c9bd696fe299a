// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

fn of_text(goal: &str) -> Result<Schedule, String> {
    read_text(goal.as_bytes(), "x.goal").map_err(|e| e.to_string())
}

fn as_text(s: &Schedule) -> Vec<u8> {
    let mut out = Vec::new();
    write_text(s, &mut out).expect("memory");
    out
}

fn as_binary(s: &Schedule) -> Vec<u8> {
    let mut out = Vec::new();
    write_binary(s, &mut out).expect("memory");
    out
}

/// Any schedule: messages with their receives, work, and requirements that point back.
fn schedule() -> impl Strategy<Value = Schedule> {
    let size = prop_oneof![0u64..4, any::<u64>()];
    let shape = (size, 0u32..3, any::<bool>(), prop_oneof![4 => Just(0u8), 1 => any::<u8>()], 0u8..3);
    let operations = prop::collection::vec((0u32..4, 0u32..5, shape), 0..40);
    let requirements = prop::collection::vec((0u32..4, any::<u32>(), any::<u32>(), any::<bool>()), 0..40);
    (operations, requirements, 1u32..6).prop_map(|(operations, requirements, ranks)| {
        let mut of_rank = vec![Vec::new(); ranks as usize];
        for (rank, peer, (size, tag, any, cpu, nic)) in operations {
            let (rank, to) = (rank % ranks, peer % ranks);
            if peer == 4 {
                of_rank[rank as usize].push(Operation {
                    kind: Kind::Calc,
                    size,
                    peer: 0,
                    tag: 0,
                    cpu,
                    nic: 0,
                });
                continue;
            }
            let message = Operation { kind: Kind::Send, size, peer: to, tag, cpu, nic };
            of_rank[rank as usize].push(message);
            let (peer, tag) = if any && tag == 2 { (ANY, ANY) } else { (rank, tag) };
            of_rank[to as usize].push(Operation { kind: Kind::Recv, peer, tag, ..message });
        }
        let mut b = Builder::new(ranks);
        for (rank, operations) in (0u32..).zip(of_rank) {
            let n = operations.len() as u32;
            for o in operations {
                b.add(o).expect("an operation");
            }
            for &(_, a, b_, start_only) in requirements.iter().filter(|r| r.0 == rank && n > 1) {
                let on = a % (n - 1);
                b.require(on + 1 + b_ % (n - 1 - on), on, start_only).expect("a requirement");
            }
            b.next_rank().expect("a rank");
        }
        b.finish().expect("a schedule")
    })
}

proptest! {
    #[test]
    fn a_written_schedule_reads_back(s in schedule()) {
        prop_assert_eq!(&read_text(as_text(&s).as_slice(), "t").expect("text"), &s);
        prop_assert_eq!(&read_binary(as_binary(&s).as_slice(), "b").expect("binary"), &s);
    }

    #[test]
    fn damaged_files_are_errors_or_schedules(
        s in schedule(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for mut bytes in [as_text(&s), as_binary(&s)] {
            let short = bytes[..cut.index(bytes.len())].to_vec();
            hits.iter().for_each(|(i, b)| { let i = i.index(bytes.len()); bytes[i] = *b; });
            for bytes in [short, bytes] {
                fuzz_read(&bytes);
            }
        }
    }

    #[test]
    fn a_damaged_binary_file_is_the_same_schedule_in_pieces_or_none(
        s in schedule(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        piece in 1u64..200,
    ) {
        let dir = tempfile_dir();
        let path = dir.join("x.bin");
        let mut bytes = as_binary(&s);
        hits.iter().for_each(|(i, b)| { let i = i.index(bytes.len()); bytes[i] = *b; });
        std::fs::write(&path, &bytes).expect("written");
        let found = parallel::binary(&path, 2, piece);
        std::fs::remove_dir_all(dir).expect("removed");
        if found.is_some() {
            prop_assert_eq!(found, read_binary(bytes.as_slice(), "b").ok());
        }
    }
}

proptest! {
    #[test]
    fn a_file_read_in_parts_is_the_same_schedule(s in schedule(), parts in 2u64..6) {
        let dir = tempfile_dir();
        let path = dir.join("x.goal");
        std::fs::write(&path, as_text(&s)).expect("written");
        let text = parallel::text(&path, parts);
        prop_assert_eq!(text.as_ref(), Some(&s));
        std::fs::write(&path, as_binary(&s)).expect("written");
        for piece in [1, 100, 1 << 20] {
            let binary = parallel::binary(&path, parts - 1, piece);
            prop_assert_eq!(binary.as_ref(), Some(&s));
        }
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

/// Turns the lists of a binary file with one rank around: the list of the last operation comes first.
fn reversed_lists(bytes: &[u8]) -> Vec<u8> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four")) as usize;
    let begin = 14 + 16;
    let (n, operations) = (u32_at(begin), begin + 8 + 4 * u32_at(begin + 4));
    let list = operations + 39 * n;
    let mut reversed = bytes[..list].to_vec();
    for i in (0..n).rev() {
        for field in [31, 23].map(|field| operations + 39 * i + field) {
            let (count, first) = (u32_at(field), u32_at(field + 4));
            let at = ((reversed.len() - list) / 4) as u32;
            reversed[field + 4..field + 8].copy_from_slice(&at.to_le_bytes());
            reversed.extend_from_slice(&bytes[list + 4 * first..list + 4 * (first + count)]);
        }
    }
    reversed
}

#[test]
fn a_binary_file_in_another_order_is_the_same_schedule() {
    let dir = tempfile_dir();
    let path = dir.join("x.bin");
    // requirements backwards and forwards, by start and by end, of several
    let goal = "num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\nc: calc 1\nd: calc 1\nb requires a\nc requires a\n\
                c irequires b\nc requires b\na requires d\n}\n";
    let s = of_text(goal).expect("a schedule");
    for bytes in [as_binary(&s), reversed_lists(&as_binary(&s))] {
        std::fs::write(&path, &bytes).expect("written");
        assert_eq!(read_binary(bytes.as_slice(), "b").ok().as_ref(), Some(&s));
        assert_eq!(parallel::binary(&path, 1, 1).as_ref(), Some(&s));
    }
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn a_schedule_without_ranks_has_nothing_to_link() {
    assert_eq!(Builder::new(0).finish().map(|s| (s.ranks(), s.operations())), Ok((0, 0)));
}

/// A folder of its own.
fn tempfile_dir() -> std::path::PathBuf {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("colony-goal-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

#[test]
fn a_file_that_cannot_be_split_is_read_from_its_beginning() {
    let dir = tempfile_dir();
    let path = dir.join("x.goal");
    let read = |goal: &str| {
        std::fs::write(&path, goal).expect("written");
        (2..9).map(|parts| parallel::text(&path, parts)).collect::<Vec<_>>()
    };
    // a rank inside a comment, and one that is missing
    let comment = "num_ranks 2\nrank 0 {\ncalc 1\n}\n/*\nrank 1 {\ncalc 7\n}\n*/\nrank 1 {\ncalc 2\n}\n";
    let expected = of_text(comment).expect("a schedule");
    assert!(read(comment).into_iter().flatten().all(|s| s == expected));
    assert!(read("num_ranks 3\nrank 0 {\ncalc 1\n}\nrank 2 {\ncalc 1\n}\n").iter().all(Option::is_none));
    assert!(
        read("num_ranks 2\nrank 0 {\ncalc 1\n}\nrank 1 {\nsend 8b to 0\n}\n").iter().all(Option::is_none)
    );
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn labels_of_any_form_are_distinct() {
    let far = "num_ranks 1\nrank 0 {\nl99999999: calc 1\nl01: calc 2\nl1: calc 3\nl2: calc 4\nl2 requires l99999999\nl1 requires l01\n}\n";
    let s = of_text(far).expect("a schedule");
    let required: Vec<_> = s.requirements(0).map(|r| (r.operation, r.on)).collect();
    assert_eq!(required, [(3, 0), (2, 1)]);
}

#[test]
fn a_label_used_twice_names_its_first_operation_as_in_loggopsim() {
    for label in ["l500", "l1", "x"] {
        let twice = format!(
            "num_ranks 1\nrank 0 {{\n{label}: calc 1\n{}{label}: calc 2\nlast: calc 3\nlast requires {label}\n}}\n",
            "calc 0\n".repeat(600)
        );
        let s = of_text(&twice).expect("a schedule");
        let required: Vec<_> = s.requirements(0).map(|r| (r.operation, r.on)).collect();
        assert_eq!(required, [(602, 0)], "{label}");
    }
}

#[test]
fn a_tag_of_any_length_is_taken_modulo_two_to_the_32() {
    for (written, tag) in [
        ("4294967294", u32::MAX - 1),
        ("5010003100", 715_035_804),
        ("18446744073709551619", 3),
        ("100000000000000000000000000000007", 7),
    ] {
        let s = of_text(&format!(
            "num_ranks 2\nrank 0 {{\nsend 8b to 1 tag {written}\n}}\nrank 1 {{\nrecv 8b from 0 tag {tag}\n}}\n"
        ));
        let s = s.expect("a schedule");
        assert_eq!(s.of_rank(0).next().map(|o| o.tag), Some(tag), "{written}");
    }
}

#[test]
fn a_schedule_as_people_write_it() {
    let s = of_text(
        "// a comment\nnum_ranks 2 /* two\nof them */\nrank 0 {\n  l1: send 8b to 1 tag 3 cpu 1 nic 2 // there\n\tcalc 100 cpu 1\r\n\
         s2: calc 5\n s2 requires l1\n  s2 irequires l1\n}\n\nrank 1 { recv 8 b from -1 tag -1 }\n",
    )
    .expect("a schedule");
    let all: Vec<Operation> = (0..2).flat_map(|r| s.of_rank(r).collect::<Vec<_>>()).collect();
    let calc = |size, cpu| Operation { kind: Kind::Calc, size, peer: 0, tag: 0, cpu, nic: 0 };
    assert_eq!(
        all,
        [
            Operation { kind: Kind::Send, size: 8, peer: 1, tag: 3, cpu: 1, nic: 2 },
            calc(100, 1),
            calc(5, 0),
            Operation { kind: Kind::Recv, size: 8, peer: ANY, tag: ANY, cpu: 0, nic: 0 },
        ]
    );
    let required: Vec<_> = s.requirements(0).map(|r| (r.operation, r.on, r.start_only)).collect();
    assert_eq!(required, [(2, 0, false), (2, 0, true)]);
}

#[test]
fn an_error_in_a_text_names_its_line() {
    let two = |a: &str, b: &str| format!("num_ranks 2\nrank 0 {{\n{a}\n}}\nrank 1 {{\n{b}\n}}\n");
    let cases = [
        ("", "x.goal:0: the file has no schedule"),
        ("rank 0 {\n}\n", "x.goal:1: expected `num_ranks …`, found `rank`"),
        ("num_ranks 0\n", "x.goal:1: a schedule needs at least one rank"),
        ("num_ranks 99999999999999999999999\n", "x.goal:1: `99999999999999999999999` is too large"),
        ("num_ranks 2\nrank 1 {\n}\n", "x.goal:2: found rank 1, expected rank 0"),
        ("num_ranks 2\nrank 0 {\n}\n", "x.goal:3: the file ends after rank 1 of 2"),
        ("num_ranks 1\nrank 0 {\ncalc 5\n", "x.goal:3: the file ends inside a rank"),
        ("num_ranks 1\n/* rank 0", "x.goal:2: the file ends in a comment"),
        (&two("send 8b to 7", ""), "x.goal:3: there is no rank 7"),
        (&two("send 8b to -1", ""), "x.goal:3: a send needs a rank"),
        (&two("send 8b from 1", ""), "x.goal:3: expected `b to` and a rank, found `from`"),
        (&two("calc -5", ""), "x.goal:3: expected a time in nanoseconds, found `-5`"),
        (&two("calc 18446744073709551616", ""), "x.goal:3: `18446744073709551616` is too large for a time"),
        (&two("calc 5 cpu 256", ""), "x.goal:3: `256` is too large for a CPU: at most 255"),
        (&two("calc 5 nic 0", ""), "x.goal:3: expected the end of the line, found `nic`"),
        (&two("send 8b to 1 tag -2", ""), "x.goal:3: expected a tag, found `-2`"),
        (&two("a: calc 5\na requires b", ""), "x.goal:4: no operation of this rank so far has the label `b`"),
        (&two("a: calc 5\na requires a", ""), "x.goal:4: it waits for itself"),
        (
            &two("a: calc 5\nb: calc 6\na requires b\nb irequires a", ""),
            "x.goal:3: it waits for itself, in a circle",
        ),
        (&two("a: jump 5", ""), "x.goal:3: expected `send`, `recv` or `calc`, found `jump`"),
        (
            &two("calc 1\nsend 8b to 1 tag 4", ""),
            "x.goal:4: 1 messages go from rank 0 to rank 1 with tag 4, and 0",
        ),
        (
            &two("send 8b to 1", "calc 3\nrecv 8b from 0\nrecv 8b from 0"),
            "x.goal:7: 1 messages go from rank 0 to rank 1 with tag 0, and 2 are received",
        ),
        (
            &two("send 16b to 1", "calc 3\nrecv 8b from 0"),
            "x.goal:7: a message from rank 0 to rank 1 with tag 0 has 16 bytes, and this receive only 8",
        ),
        (
            &two("send 8b to 1\nsend 9b to 1", "recv 9b from 0\nrecv 7b from 0"),
            "x.goal:8: a message from rank 0 to rank 1 with tag 0 has 8 bytes, and this receive only 7",
        ),
        (&"x".repeat(1 << 17), "x.goal:1: the line is longer than 65536 bytes"),
    ];
    for (goal, expected) in cases {
        let found = of_text(goal).expect_err(goal);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
}

#[test]
fn an_error_in_a_binary_names_its_byte() {
    let s = of_text("num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 8b from 0\ncalc 1\n}\n")
        .expect("one");
    let good = as_binary(&s);
    assert_eq!(read_binary(good.as_slice(), "b").expect("one"), s);
    let error = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        read_binary(bytes.as_slice(), "x.bin").expect_err("damaged").to_string()
    };
    // 46 bytes of head and table; rank 0: 8 bytes, 4 of the free operation, then the send
    let operation = 46 + 12;
    assert!(error(0, 1).starts_with("x.bin, byte 0: this is no binary GOAL"));
    assert!(error(operation + 4, 9).starts_with("x.bin, byte 62: an operation of kind 9"));
    assert!(error(operation + 5, 200).starts_with("x.bin, byte 58: there is no rank 200"));
    assert!(error(operation + 17, 5).starts_with("x.bin, byte 58: 1 messages go from rank 0 to rank 1"));
    assert!(error(operation + 23, 5).contains("its list of 5 operations"));
    assert!(error(14, 0).contains("a rank's part from 0"));
    for cut in 0..good.len() {
        let found = read_binary(&good[..cut], "x.bin").expect_err("cut").to_string();
        assert!(found.contains("the file ends here") || cut < 9, "{cut}: {found}");
    }
}

#[test]
fn a_small_file_asks_for_no_large_schedule() {
    // every operation claims the same list of operations that require it
    let s =
        of_text("num_ranks 1\nrank 0 {\na: calc 1\nb: calc 1\nc: calc 1\nb requires a\nc requires a\n}\n")
            .expect("one");
    let mut bytes = as_binary(&s);
    let operations = 14 + 16 + 8 + 4;
    bytes[operations + 39 + 23] = 2;
    bytes[operations + 39 + 27] = 0;
    assert!(read_binary(bytes.as_slice(), "x").expect_err("shared").to_string().contains("is not its own"));
    let mut many = MAGIC_BYTES.to_vec();
    many.extend([0xff, 0xff, 0xff, 0x0f, 0, 0]);
    assert!(read_binary(many.as_slice(), "x").expect_err("short").to_string().contains("the file ends here"));
}

const MAGIC_BYTES: [u8; 8] = 4223u64.to_le_bytes();
