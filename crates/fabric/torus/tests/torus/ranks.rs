// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations of several ranks; here they are threads.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use colony_torus::{Dims, Direction, Error, Op, Torus, Window};
use proptest::prelude::*;

fn window(ranks: usize) -> Arc<Window> {
    let dir = tempfile::tempdir().expect("a folder");
    // the mapping outlives the file's name
    Arc::new(Window::create(&dir.path().join("w"), Dims::of(ranks).expect("a torus")).expect("made"))
}

/// Runs `act` at each rank, and returns the results in the order of ranks.
fn run<T: Send>(ranks: usize, act: impl Fn(Torus) -> T + Sync) -> Vec<T> {
    let _cpus = crate::CPUS.read().unwrap_or_else(PoisonError::into_inner);
    let window = window(ranks);
    // all are there before one of them acts: where one has failed, nobody can attach any more
    let all: Vec<Torus> =
        (0..ranks).map(|rank| Torus::attach(Arc::clone(&window), rank).expect("free")).collect();
    std::thread::scope(|scope| {
        let act = &act;
        let threads: Vec<_> = all.into_iter().map(|torus| scope.spawn(move || act(torus))).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

/// A value of its own for each rank and place.
fn value(rank: usize, i: usize, seed: u64) -> i64 {
    (seed ^ (rank as u64 * 1_000_003 + i as u64)).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64
}

fn bytes(from: usize, to: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| (from * 31 + to * 7 + i * 13) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn all_ranks_have_the_reduction_of_all(ranks in 2usize..=17, length in 1usize..700, seed: u64) {
        let of = |rank: usize| (0..length).map(|i| value(rank, i, seed)).collect::<Vec<i64>>();
        let expected = |op: fn(i64, i64) -> i64| {
            (1..ranks).fold(of(0), |all, rank| all.iter().zip(of(rank)).map(|(&a, b)| op(a, b)).collect())
        };
        let all = run(ranks, |torus| {
            let world = torus.world();
            let (mut sum, mut max, mut own) = (of(torus.rank()), of(torus.rank()), of(torus.rank()));
            world.allreduce(&mut sum, Op::Sum).expect("all take part");
            world.allreduce(&mut max, Op::Max).expect("all take part");
            world.allreduce_with(&mut own, |a: i64, b| a ^ b).expect("all take part");
            let mut at_last = of(torus.rank());
            world.reduce(ranks - 1, &mut at_last, Op::Min).expect("all take part");
            (sum, max, own, at_last)
        });
        for (rank, (sum, max, own, at_last)) in all.into_iter().enumerate() {
            prop_assert_eq!(sum, expected(i64::wrapping_add));
            prop_assert_eq!(max, expected(i64::max));
            prop_assert_eq!(own, expected(|a, b| a ^ b));
            let root = rank == ranks - 1;
            prop_assert_eq!(at_last, if root { expected(i64::min) } else { of(rank) });
        }
    }

    #[test]
    fn sums_of_doubles_are_the_same_bit_for_bit_everywhere_and_always(ranks in 2usize..=17, seed: u64) {
        let act = |torus: Torus| {
            let mut x = [value(torus.rank(), 0, seed) as f64 / 3.0, 1.0];
            torus.world().allreduce(&mut x, Op::Sum).expect("all take part");
            x.map(f64::to_bits)
        };
        let all = run(ranks, act);
        prop_assert!(all.iter().all(|x| *x == all[0]));
        prop_assert_eq!(&run(ranks, act), &all);
        prop_assert_eq!(f64::from_bits(all[0][1]), ranks as f64);
    }

    #[test]
    fn a_broadcast_reaches_all_from_any_root(ranks in 2usize..=17, root in 0usize..17, length in 0usize..5000) {
        let root = root % ranks;
        let all = run(ranks, |torus| {
            let mut data = if torus.rank() == root { bytes(root, 99, length) } else { vec![0; length] };
            torus.world().broadcast(root, &mut data).expect("all take part");
            data
        });
        prop_assert!(all.iter().all(|data| *data == bytes(root, 99, length)));
    }

    #[test]
    fn alltoall_gives_each_its_part_of_all(ranks in 2usize..=17, each in 0usize..2000) {
        let all = run(ranks, |torus| {
            let me = torus.rank();
            let send: Vec<u8> = (0..ranks).flat_map(|to| bytes(me, to, each)).collect();
            let mut recv = vec![0; send.len()];
            torus.world().alltoall(&send, &mut recv).expect("all take part");
            recv
        });
        for (me, recv) in all.into_iter().enumerate() {
            let expected: Vec<u8> = (0..ranks).flat_map(|from| bytes(from, me, each)).collect();
            prop_assert_eq!(recv, expected);
        }
    }

    #[test]
    fn nobody_leaves_a_barrier_before_all_are_in(ranks in 2usize..=17) {
        use std::sync::atomic::{AtomicUsize, Ordering};
        const TURNS: usize = 20;
        let inside: Vec<AtomicUsize> = (0..TURNS).map(|_| AtomicUsize::new(0)).collect();
        run(ranks, |torus| {
            for turn in &inside {
                turn.fetch_add(1, Ordering::Relaxed);
                torus.world().barrier().expect("all take part");
                assert_eq!(turn.load(Ordering::Relaxed), ranks);
            }
        });
    }

    #[test]
    fn messages_of_any_length_arrive_in_order(
        lengths in prop::collection::vec(prop_oneof![0usize..600, 15_000usize..40_000], 1..12),
    ) {
        let got = run(2, |torus| {
            if torus.rank() == 0 {
                for (n, &length) in lengths.iter().enumerate() {
                    torus.send(1, &bytes(n, 1, length)).expect("rank 1 receives");
                }
                return Vec::new();
            }
            lengths.iter().map(|_| torus.recv_vec(0, 40_000).expect("rank 0 sends")).collect()
        });
        let expected: Vec<_> = lengths.iter().enumerate().map(|(n, &l)| bytes(n, 1, l)).collect();
        prop_assert_eq!(&got[1], &expected);
    }
}

#[test]
fn neighbors_exchange_more_than_the_links_hold() {
    const LONG: usize = 300_000;
    let right = run(12, |torus| {
        Direction::ALL.iter().all(|&way| {
            let (to, from) = (torus.neighbor(way), torus.neighbor(Direction { up: !way.up, ..way }));
            let mut got = vec![0; LONG];
            let length = torus.exchange(to, &bytes(torus.rank(), to, LONG), from, &mut got);
            length.expect("all take part") == LONG && got == bytes(from, torus.rank(), LONG)
        })
    });
    assert_eq!(right, [true; 12]);
}

#[test]
fn the_first_ranks_work_together_while_the_others_wait() {
    let sums = run(9, |torus| {
        let mut sums = Vec::new();
        for size in [2, 4, 8, 9] {
            if torus.rank() < size {
                let group = torus.first(size).expect("a power of two, or all");
                let mut one = [1i64];
                group.allreduce(&mut one, Op::Sum).expect("its ranks take part");
                sums.push(one[0]);
            }
            torus.world().barrier().expect("all take part");
        }
        assert!(matches!(torus.first(3), Err(Error::Group { size: 3, ranks: 9 })));
        assert!(matches!(torus.first(16), Err(Error::Group { .. })));
        sums
    });
    assert_eq!(sums[0], [2, 4, 8, 9]);
    assert_eq!(sums[8], [9]);
}

#[test]
fn wrong_use_harms_nobody() {
    let window = window(2);
    let torus = Torus::attach(Arc::clone(&window), 0).expect("free");
    assert!(matches!(Torus::attach(Arc::clone(&window), 0), Err(Error::Taken { rank: 0 })));
    assert!(matches!(Torus::attach(window, 2), Err(Error::Rank { rank: 2, ranks: 2 })));
    assert!(matches!(torus.send(2, &[]), Err(Error::Rank { .. })));
    assert!(matches!(torus.world().alltoall(&[0; 3], &mut [0; 3]), Err(Error::Length { found: 3, .. })));
    torus.send(0, b"a message that is too long").expect("to itself");
    let mut room = [0; 9];
    assert!(matches!(torus.recv(0, &mut room), Err(Error::Truncated { from: 0, length: 26, room: 9 })));
    assert_eq!(&room, b"a message");
    torus.send(0, b"next").expect("it goes on");
    assert_eq!(torus.recv_vec(0, 10).expect("sent"), b"next");
}

#[test]
fn when_a_rank_leaves_all_others_end_with_an_error() {
    let errors = run(5, |torus| {
        torus.world().barrier().expect("all are here");
        (torus.rank() != 3).then(|| torus.world().barrier().expect_err("rank 3 is gone"))
    });
    assert!(errors[3].is_none());
    for error in errors.into_iter().flatten() {
        assert!(matches!(error, Error::Left { .. } | Error::Aborted { by: Some(_) }), "{error}");
    }
}

#[test]
fn a_message_sent_before_leaving_is_received() {
    let got = run(2, |torus| {
        if torus.rank() == 0 {
            torus.send(1, b"goodbye").expect("room");
            return Vec::new();
        }
        std::thread::sleep(Duration::from_millis(30));
        torus.recv_vec(0, 100).expect("it was sent")
    });
    assert_eq!(got[1], b"goodbye");
}

#[test]
fn different_collectives_at_once_are_an_error_at_every_rank() {
    let errors = run(4, |torus| {
        let world = torus.world();
        match torus.rank() {
            2 => world.broadcast(0, &mut [0; 8]),
            _ => world.barrier(),
        }
        .expect_err("they differ")
    });
    let mismatches = errors.iter().filter(|e| matches!(e, Error::Mismatch { .. })).count();
    assert!(mismatches >= 1, "{errors:?}");
}

#[test]
fn a_silent_rank_is_given_up_after_the_timeout() {
    let window = window(2);
    let _silent = Torus::attach(Arc::clone(&window), 1).expect("free");
    let torus = Torus::attach(window, 0).expect("free").with_timeout(Duration::from_millis(50));
    assert!(matches!(torus.recv(1, &mut [0; 8]), Err(Error::Timeout { rank: 1, .. })));
    assert!(matches!(torus.world().barrier(), Err(Error::Aborted { by: Some(0) })), "and all are told");
}

#[test]
fn who_waits_in_a_barrier_gives_way_to_more_messages_than_an_inbox_holds() {
    const EACH: usize = 60;
    let right = run(17, |torus| {
        let me = torus.rank();
        if me != 0 {
            (0..EACH)
                .for_each(|n| torus.send(0, &bytes(me, n, 200)).expect("rank 0 waits, and so makes room"));
        }
        torus.world().barrier().expect("all take part");
        // the last that came is asked for first
        let mut from = if me == 0 { (1..17).rev() } else { (0..0).rev() };
        from.all(|rank| {
            (0..EACH).all(|n| torus.recv_vec(rank, 200).expect("it was sent") == bytes(rank, n, 200))
        })
    });
    assert_eq!(right, [true; 17]);
}

#[test]
fn packets_that_nobody_asks_for_stop_at_their_sender() {
    let window = window(3);
    let credits = window.layout().credits();
    let [a, b, c] = [0, 1, 2].map(|rank| Torus::attach(Arc::clone(&window), rank).expect("free"));
    let send = |n: usize| a.try_send(1, &[n as u8], false).expect("all are here");
    assert_eq!((0..1000).filter(|&n| send(n)).count(), credits);
    // what the others say still arrives, though the inbox was emptied for it again and again
    for n in 0..1000u16 {
        c.send(1, &n.to_le_bytes()).expect("room");
        assert_eq!(b.recv_vec(2, 2).expect("sent"), n.to_le_bytes());
        assert!(!send(0), "nobody has asked");
    }
    let mut packet = Vec::new();
    for n in 0..credits / 2 {
        assert_eq!(b.arrived().expect("all are here"), Some(0));
        packet.clear();
        assert_eq!(b.try_recv(0, &mut packet).expect("all are here"), Some(false));
        assert_eq!(packet, [n as u8]);
    }
    assert_eq!((0..1000).filter(|&n| send(n)).count(), credits / 2, "as many as were asked for");
    assert_eq!(a.arrived().expect("all are here"), None, "credits are no packets of messages");
}

#[test]
fn messages_of_any_rank_are_found_without_asking_each() {
    const ALL: usize = 9;
    let sums = run(ALL, |torus| {
        let me = torus.rank();
        (0..ALL).for_each(|to| torus.send(to, &[me as u8; 3]).expect("all take part"));
        let (mut from, mut packet) = (vec![0; ALL], Vec::new());
        while from.iter().sum::<usize>() < ALL {
            let Some(rank) = torus.arrived().expect("all take part") else {
                std::thread::yield_now();
                continue;
            };
            packet.clear();
            assert_eq!(torus.try_recv(rank, &mut packet).expect("it is here"), Some(false));
            assert_eq!(packet, [rank as u8; 3]);
            from[rank] += 1;
        }
        // who is done before the others has left, and that is no failure of theirs
        from
    });
    assert!(sums.iter().all(|from| *from == [1; ALL]), "{sums:?}");
}
