// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of comparisons on a machine in memory.

use colony_node::task::TaskId;

use crate::fake::{Fake, FakeTask};
use crate::{Action, OnFailure, Step, TuneError, Verdict, apply, verify};

const A: &str = "/proc/sys/a";
const MASK: &str = "/proc/mask";
const REFUSES: &str = "/proc/refuses";
const TASK: TaskId = TaskId { tid: 77, start_ticks: 100 };

fn machine() -> Fake {
    let machine = Fake::new(&[(A, "1\n"), (MASK, "0000000f\n"), (REFUSES, "1\n")]);
    machine.tasks.borrow_mut().insert(TASK.tid, FakeTask::new(TASK.start_ticks, "0-3"));
    machine
}

fn write(file: &str, value: &str) -> Step {
    Step::new("rule", Action::Write { file: file.into(), value: value.into() })
}

fn bind() -> Step {
    let cpus = "0".parse().expect("a list");
    Step::new("rule", Action::Affinity { task: TASK, name: "rtkit".into(), cpus })
}

fn command() -> Step {
    let words = |verb: &str| vec![verb.to_owned(), "w".to_owned()];
    Step::new("rule", Action::Command { apply: words("add"), undo: Some(words("del")) })
}

/// The verdicts on the only transaction, and whether all changes are as applied.
fn verdicts(node: &Fake) -> (Vec<Verdict>, bool) {
    let all = verify(node, Some("t")).expect("readable");
    let [one] = &all[..] else { panic!("{all:?}") };
    (one.checks.iter().map(|c| c.verdict.clone()).collect(), one.as_applied)
}

#[test]
fn changes_are_compared_with_what_was_applied_and_commands_are_never_called_the_same() {
    let node = machine();
    apply(&node, "t", vec![write(A, "0"), write(MASK, "3"), bind(), command()], OnFailure::Undo)
        .expect("applied");
    let same = [Verdict::Same, Verdict::Same, Verdict::Same, Verdict::NotRead];
    assert_eq!(verdicts(&node), (same.to_vec(), true));
    let checks = &verify(&node, None).expect("readable")[0].checks;
    assert_eq!(
        (checks[1].applied.as_deref(), checks[1].now.as_deref()),
        (Some("00000003"), Some("00000003"))
    );
    assert_eq!((&checks[3].applied, &checks[3].now), (&None, &None), "a command is not read");
    assert_eq!(checks[2].task, Some(TASK));

    node.files.borrow_mut().insert(A.into(), "7\n".into());
    node.tasks.borrow_mut().get_mut(&TASK.tid).expect("alive").cpus = "2".into();
    let (now, as_applied) = verdicts(&node);
    assert_eq!((&now[0], &now[2], as_applied), (&Verdict::Different, &Verdict::Different, false));
    assert_eq!(verify(&node, None).expect("readable")[0].checks[0].now.as_deref(), Some("7"));
}

#[test]
fn an_ended_task_is_done_also_if_its_number_is_used_again_and_a_file_that_is_gone_is_not() {
    let node = machine();
    apply(&node, "t", vec![write(A, "0"), bind()], OnFailure::Undo).expect("applied");
    node.tasks.borrow_mut().insert(TASK.tid, FakeTask::new(TASK.start_ticks + 1, "1"));
    assert_eq!(verdicts(&node), (vec![Verdict::Same, Verdict::Ended], true));
    node.files.borrow_mut().remove(A);
    assert_eq!(verdicts(&node), (vec![Verdict::Gone, Verdict::Ended], false));
}

#[test]
fn a_change_that_was_left_out_is_not_compared_and_an_interrupted_transaction_is_not_as_applied() {
    let node = machine();
    apply(&node, "t", vec![write(REFUSES, "0"), write(A, "0")], OnFailure::KeepGoing).expect("applied");
    let (now, as_applied) = verdicts(&node);
    assert!(matches!(now[0], Verdict::NotMade { .. }) && now[1] == Verdict::Same && as_applied, "{now:?}");

    let node = machine();
    node.left.set(Some(6));
    apply(&node, "t", vec![write(A, "0"), write(MASK, "3")], OnFailure::Undo).expect_err("crashed");
    node.revive();
    assert_eq!(verdicts(&node), (vec![Verdict::Interrupted, Verdict::Interrupted], false));
}

#[test]
fn a_later_transaction_that_changes_the_same_setting_is_no_difference() {
    let node = machine();
    apply(&node, "t", vec![write(A, "0")], OnFailure::Undo).expect("applied");
    apply(&node, "u", vec![write(A, "5")], OnFailure::Undo).expect("applied");
    assert_eq!(verdicts(&node), (vec![Verdict::Superseded { by: "u".into() }], true));
    node.files.borrow_mut().insert(A.into(), "7\n".into());
    let all = verify(&node, None).expect("readable");
    assert_eq!(all.iter().map(|t| t.as_applied).collect::<Vec<_>>(), [true, false]);
    assert!(matches!(verify(&node, Some("v")), Err(TuneError::Unknown { .. })));
}
