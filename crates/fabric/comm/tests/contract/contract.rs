// SPDX-License-Identifier: MIT OR Apache-2.0
//! The contract, as a program that every rank runs.

use std::fmt::Debug;

use colony_comm::{Combine, Comm, Number, Op};

/// Runs every operation of `comm` and checks its result.
pub(crate) fn check<C: Comm>(comm: &C) {
    collectives(comm);
    messages(comm);
    for size in (0..).map(|power| 1 << power).take_while(|&size| size <= comm.size()) {
        let first = comm.first_ranks(size).expect("a power of two");
        assert_eq!(first.is_some(), comm.rank() < size);
        if let Some(first) = first {
            assert_eq!((first.rank(), first.size()), (comm.rank(), size));
            collectives(&first);
        }
        comm.wait_for_all().expect("every rank arrives");
    }
    let all = comm.first_ranks(comm.size()).expect("all ranks").expect("this one too");
    assert_eq!(all.size(), comm.size());
    collectives(&all);
}

fn collectives<C: Comm>(comm: &C) {
    comm.barrier().expect("every rank arrives");
    reductions(comm, |rank| f64::from(rank) - 2.5, |a, b| a + b);
    reductions(comm, |rank| i64::from(rank) - 2, i64::wrapping_add);
    reductions(comm, |rank| u64::MAX - u64::from(rank), u64::wrapping_add);
    user_operation(comm);
    alltoall(comm);
    broadcast(comm);
}

/// Vectors of many lengths, also longer than any packet.
const LENGTHS: [usize; 4] = [0, 1, 7, 5000];

fn reductions<C: Comm, T: Number + PartialOrd + Debug + Default>(
    comm: &C,
    value: impl Fn(u32) -> T,
    sum: impl Fn(T, T) -> T,
) {
    let fold = |op: &dyn Fn(T, T) -> T| (1..comm.size()).map(&value).fold(value(0), op);
    let expected = [
        (Op::Sum, fold(&sum)),
        (Op::Max, fold(&|a, b| if b > a { b } else { a })),
        (Op::Min, fold(&|a, b| if b < a { b } else { a })),
    ];
    for length in LENGTHS {
        let from = vec![value(comm.rank()); length];
        for (op, expected) in expected {
            let mut into = vec![T::default(); length];
            comm.allreduce(&from, &mut into, op).expect("every rank reduces");
            assert!(into.iter().all(|v| *v == expected), "{op:?} of {length}: {into:?}, not {expected:?}");
        }
    }
}

/// The product, which is exact here: powers of two.
struct Product;

impl Combine for Product {
    fn combine(a: f64, b: f64) -> f64 {
        a * b
    }
}

fn user_operation<C: Comm>(comm: &C) {
    let op = comm.create_op::<Product>();
    for length in LENGTHS {
        let mut into = vec![0.0; length];
        comm.allreduce_with(&vec![2.0; length], &mut into, &op).expect("every rank reduces");
        assert_eq!(into, vec![2f64.powi(comm.size() as i32); length]);
    }
}

fn alltoall<C: Comm>(comm: &C) {
    for length in LENGTHS {
        let part = |from: u32, to: u32| (0..length).map(move |i| (from * 31 + to * 7 + i as u32) as u8);
        let ranks = 0..comm.size();
        let from: Vec<u8> = ranks.clone().flat_map(|to| part(comm.rank(), to)).collect();
        let mut into = vec![0; from.len()];
        comm.alltoall(&from, &mut into).expect("every rank exchanges");
        assert_eq!(into, ranks.flat_map(|from| part(from, comm.rank())).collect::<Vec<u8>>());
    }
}

fn broadcast<C: Comm>(comm: &C) {
    for root in 0..comm.size() {
        for length in LENGTHS {
            let expected: Vec<u8> = (0..length).map(|i| (i as u32 + 13 * root) as u8).collect();
            let mut bytes = if comm.rank() == root { expected.clone() } else { vec![0; length] };
            comm.broadcast(root, &mut bytes).expect("every rank takes part");
            assert_eq!(bytes, expected);
        }
    }
}

/// A token around all ranks, then messages of many lengths to rank 0, which keep their order.
fn messages<C: Comm>(comm: &C) {
    let (rank, size) = (comm.rank(), comm.size());
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut token = [0; 3];
    if rank == 0 {
        comm.send(next, &[7, 0, 9]).expect("sent");
    }
    comm.recv(before, &mut token).expect("received");
    assert_eq!(token, [7, before as u8, 9]);
    if rank > 0 {
        comm.send(next, &[7, rank as u8, 9]).expect("sent");
    }
    let message =
        |from: u32, length: usize| -> Vec<u8> { (0..length).map(|i| i as u8 ^ from as u8).collect() };
    if rank > 0 {
        for length in LENGTHS {
            comm.send(0, &message(rank, length)).expect("sent");
        }
    } else {
        for from in 1..size {
            for length in LENGTHS {
                assert_eq!(comm.recv_vec(from).expect("received"), message(from, length));
            }
        }
    }
    comm.barrier().expect("every rank arrives");
}
