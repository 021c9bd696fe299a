// SPDX-License-Identifier: MIT OR Apache-2.0
//! The torus; ranks are threads here.

use std::sync::Arc;

use colony_comm::torus::TorusComm;
use colony_comm::{Comm, Op};
use colony_torus::{Dims, Error, Torus, Window};

/// Runs `program` on as many ranks and returns the results in the order of ranks.
fn run<T: Send>(ranks: usize, program: impl Fn(&TorusComm) -> T + Sync) -> Vec<T> {
    let dir = tempfile::tempdir().expect("a folder");
    let dims = Dims::of(ranks).expect("a torus");
    let window = Arc::new(Window::create(&dir.path().join("window"), dims).expect("a window"));
    let attach = |rank| Torus::attach(Arc::clone(&window), rank).expect("a free rank");
    let all: Vec<Torus> = (0..ranks).map(attach).collect();
    std::thread::scope(|scope| {
        let program = &program;
        let start = |torus: Torus| scope.spawn(move || program(&TorusComm::world(&torus)));
        let threads: Vec<_> = all.into_iter().map(start).collect();
        threads.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

#[test]
fn the_torus_keeps_the_contract() {
    for ranks in [2, 3, 5, 8] {
        run(ranks, |comm| super::contract::check(comm));
    }
}

#[test]
fn a_message_of_another_length_is_an_error() {
    let results = run(2, |comm| match comm.rank() {
        0 => comm.send(1, &[1, 2, 3]),
        _ => comm.recv(0, &mut [0; 4]),
    });
    assert!(matches!(results[..], [Ok(()), Err(Error::Mismatch { rank: 0 })]), "{results:?}");
    let results = run(2, |comm| match comm.rank() {
        0 => comm.send(1, &[1, 2, 3]),
        _ => comm.recv(0, &mut [0; 2]),
    });
    assert!(matches!(results[..], [Ok(()), Err(Error::Truncated { .. })]), "{results:?}");
}

#[test]
fn an_abort_ends_the_wait_of_every_rank() {
    let results = run(3, |comm| match comm.rank() {
        2 => {
            comm.abort();
            None
        }
        _ => Some(comm.barrier()),
    });
    let is_aborted = |r: &_| matches!(r, Some(Err(Error::Aborted { by: Some(2) } | Error::Left { rank: 2 })));
    assert!(results[..2].iter().all(is_aborted), "{results:?}");
}

#[test]
#[should_panic(expected = "no panic")]
fn buffers_of_a_reduction_have_one_length() {
    run(1, |comm| comm.allreduce(&[1.0], &mut [0.0; 2], Op::Sum));
}

#[test]
#[should_panic(expected = "no panic")]
fn buffers_of_an_exchange_have_equal_parts() {
    run(1, |comm| comm.alltoall(&[1], &mut [0; 2]));
}
