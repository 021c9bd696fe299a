// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of whole transactions on a machine in memory.

use colony_node::task::TaskId;
use nix::libc::{EIO, EPERM};
use proptest::prelude::*;

use crate::fake::{Fake, FakeTask};
use crate::{
    Action, OnFailure, Phase, Progress, Standing, Step, TuneError, apply, list, recover, revert, standing,
};

const A: &str = "/proc/sys/a";
const B: &str = "/sys/b";
const MASK: &str = "/proc/irq/mask";
const REFUSES: &str = "/proc/refuses";
const ROUNDS: &str = "/proc/rounds";
const CHOICE: &str = "/sys/choice";
const IRQ: &str = "/proc/irq/4/smp_affinity_list";
const QUOTA: &str = "/sys/fs/cgroup/a/cpu.max";
const TASK: TaskId = TaskId { tid: 77, start_ticks: 100 };

fn machine() -> Fake {
    let machine = Fake::new(&[
        (A, "1\n"),
        (B, "x\n"),
        (MASK, "0000000f\n"),
        (REFUSES, "1\n"),
        (ROUNDS, "70\n"),
        (CHOICE, "[on] off\n"),
        (IRQ, "0-3\n"),
        (QUOTA, "50000 100000\n"),
    ]);
    machine.tasks.borrow_mut().insert(TASK.tid, FakeTask::new(TASK.start_ticks, "0-3"));
    machine
}

fn write(file: &str, value: &str) -> Step {
    Step::new("rule", Action::Write { file: file.into(), value: value.into() })
}

fn command(word: &str) -> Step {
    let words = |verb: &str| vec![verb.to_owned(), word.to_owned()];
    Step::new("rule", Action::Command { apply: words("add"), undo: Some(words("del")) })
}

/// A step that moves the task.
fn bind(cpus: &str) -> Step {
    let cpus = cpus.parse().expect("a list");
    Step::new("rule", Action::Affinity { task: TASK, name: "rtkit".into(), cpus })
}

#[test]
fn settings_and_commands_are_made_in_order_and_undone() {
    let node = machine();
    let before = node.files.borrow().clone();
    let steps = vec![write(A, "0"), command("w"), write(MASK, "3"), write(CHOICE, "off"), write(B, "x")];
    let applied = apply(&node, "t", steps, OnFailure::Undo).expect("applied");
    assert_eq!((applied.transaction.steps.len(), applied.unneeded.len()), (4, 1));
    assert_eq!((node.value(A).trim(), node.value(MASK).trim()), ("0", "00000003"));
    assert_eq!(*node.words.borrow(), ["w"]);
    let now = list(&node).expect("one");
    assert_eq!(now[0].phase, Phase::Applied);
    assert_eq!(standing(&node, &now[0].steps[0]), Standing::InEffect);
    let reverted = revert(&node, "t", false).expect("reverted");
    assert_eq!(reverted.undone, [CHOICE, MASK, "add w", A]);
    // a choice is written without its brackets
    assert_eq!(node.value(CHOICE).trim(), "on");
    node.files.borrow_mut().insert(CHOICE.into(), "[on] off\n".into());
    assert_eq!(*node.files.borrow(), before);
    assert!(node.words.borrow().is_empty() && list(&node).expect("none").is_empty());
}

#[test]
fn a_step_that_fails_undoes_those_before_it() {
    for (file, value, text) in
        [(REFUSES, "0", "invalid input"), (ROUNDS, "55", "took the value 50"), ("/proc/no", "1", "not found")]
    {
        let node = machine();
        let before = node.files.borrow().clone();
        let steps = vec![write(A, "0"), command("w"), write(file, value), write(B, "y")];
        let error = apply(&node, "t", steps, OnFailure::Undo).expect_err("refused").to_string();
        assert!(error.contains(file) && error.contains(text) && error.contains("are undone"), "{error}");
        assert_eq!(*node.files.borrow(), before);
        assert!(node.words.borrow().is_empty() && list(&node).expect("none").is_empty());
    }
}

#[test]
fn a_step_that_fails_can_be_left_out() {
    let node = machine();
    let steps = vec![write(REFUSES, "0"), write(ROUNDS, "55"), write("/proc/no", "1"), write(A, "0")];
    let applied = apply(&node, "t", steps, OnFailure::KeepGoing).expect("applied");
    let failed = |s: &&Step| matches!(s.progress, Progress::Failed { .. });
    assert_eq!(applied.transaction.steps.iter().filter(failed).count(), 3);
    assert_eq!((node.value(A).trim(), node.value(ROUNDS).trim()), ("0", "70"));
    revert(&node, "t", false).expect("reverted");
    assert_eq!(node.value(A).trim(), "1");
}

#[test]
fn a_value_that_somebody_changed_since_is_left_alone_unless_forced() {
    for force in [false, true] {
        let node = machine();
        apply(&node, "t", vec![write(A, "0"), write(B, "y")], OnFailure::Undo).expect("applied");
        node.files.borrow_mut().insert(A.into(), "7\n".into());
        let step = &list(&node).expect("one")[0].steps[0];
        assert_eq!(standing(&node, step), Standing::Changed { value: "7".into() });
        let reverted = revert(&node, "t", force).expect("reverted");
        assert_eq!(reverted.changed_since.len(), usize::from(!force));
        assert_eq!((node.value(A).trim(), node.value(B).trim()), (if force { "1" } else { "7" }, "x"));
    }
}

#[test]
fn an_interrupt_that_the_kernel_has_moved_since_is_restored() {
    let node = machine();
    apply(&node, "t", vec![write(IRQ, "3")], OnFailure::Undo).expect("applied");
    // its CPU went offline
    node.files.borrow_mut().insert(IRQ.into(), "0\n".into());
    let reverted = revert(&node, "t", false).expect("reverted");
    assert!(reverted.changed_since.is_empty() && node.value(IRQ).trim() == "0-3", "{reverted:?}");
}

#[test]
fn an_interrupted_value_is_restored_although_the_kernel_has_rounded_it() {
    let node = machine();
    node.left.set(Some(5));
    node.late.set(true);
    apply(&node, "t", vec![write(ROUNDS, "55")], OnFailure::Undo).expect_err("crashed");
    node.revive();
    assert_eq!(node.value(ROUNDS).trim(), "50");
    assert_eq!(recover(&node).expect("recovered")[0].reverted.undone, [ROUNDS]);
    assert_eq!(node.value(ROUNDS).trim(), "70");
}

#[test]
fn a_command_that_cannot_be_undone_stays_in_the_journal_until_forced() {
    let node = machine();
    apply(&node, "t", vec![write(A, "0"), command("w")], OnFailure::Undo).expect("applied");
    node.words.borrow_mut().clear();
    for _ in 0..2 {
        let error = revert(&node, "t", false).expect_err("no word").to_string();
        assert!(error.contains("1 step of the transaction t") && error.contains("del w"), "{error}");
        assert_eq!(node.value(A).trim(), "1");
        // what is still to be undone is no crash
        assert_eq!(list(&node).expect("one")[0].steps.len(), 1);
    }
    let reverted = revert(&node, "t", true).expect("forced");
    assert_eq!(reverted.uncertain.len(), 1);
    assert!(list(&node).expect("none").is_empty());
}

#[test]
fn a_file_that_is_gone_keeps_nothing_from_being_restored() {
    let node = machine();
    apply(&node, "t", vec![write(A, "0"), write(B, "y")], OnFailure::Undo).expect("applied");
    node.files.borrow_mut().remove(B);
    assert_eq!(revert(&node, "t", false).expect("reverted").gone, [B]);
    assert_eq!(node.value(A).trim(), "1");
}

#[test]
fn names_that_cannot_be_files_and_files_that_are_no_settings_are_refused() {
    let node = machine();
    for name in ["", "a/b", "..", &"x".repeat(41), "a b"] {
        assert!(
            apply(&node, name, vec![write(A, "0")], OnFailure::Undo).expect_err("no name").is_wrong_use()
        );
    }
    for file in ["/etc/passwd", "proc/sys/a", "/proc/../etc/passwd", "/sys"] {
        let error = apply(&node, "t", vec![write(A, "0"), write(file, "0")], OnFailure::KeepGoing)
            .expect_err("no setting");
        assert!(matches!(error, TuneError::NotASetting(_)));
    }
    assert!(revert(&node, "t", false).expect_err("none").to_string().contains("none is applied"));
    assert_eq!(node.value(A).trim(), "1");
    apply(&node, "t", vec![write(A, "0")], OnFailure::Undo).expect("applied");
    assert!(matches!(apply(&node, "t", vec![], OnFailure::Undo), Err(TuneError::Exists(_))));
}

#[test]
fn an_interrupt_that_cannot_be_moved_is_taken_back_and_left_out_with_its_reason() {
    let text = "does not let this interrupt be moved";
    for answer in [EIO, EPERM] {
        let node = machine();
        node.answers.borrow_mut().insert(IRQ.into(), answer);
        let steps = vec![write(A, "0"), write(IRQ, "0").or_left_out(), write(B, "y")];
        let applied = apply(&node, "t", steps, OnFailure::Undo).expect("the others are made");
        let [refused] = &applied.refused[..] else { panic!("{applied:?}") };
        assert!(
            matches!(&refused.progress, Progress::Failed { reason } if reason.contains(text)),
            "{refused:?}"
        );
        assert_eq!((node.value(A).trim(), node.value(IRQ).trim(), node.value(B).trim()), ("0", "0-3", "y"));
        // what was not made is in no journal, and nothing of it is reverted
        assert_eq!(list(&node).expect("one")[0].steps.len(), 2);
        revert(&node, "t", false).expect("reverted");
        assert_eq!(*node.files.borrow(), *machine().files.borrow());
    }
}

#[test]
fn an_optional_value_that_the_kernel_changes_is_taken_back_and_left_out() {
    let node = machine();
    // the kernel prints a period behind the quota
    let steps = vec![write(QUOTA, "max").or_left_out(), write(ROUNDS, "55").or_left_out(), write(A, "0")];
    let applied = apply(&node, "t", steps, OnFailure::Undo).expect("the others are made");
    assert_eq!(applied.refused.len(), 2);
    assert_eq!((node.value(QUOTA).trim(), node.value(ROUNDS).trim()), ("50000 100000", "70"));
    assert_eq!(node.value(A).trim(), "0");
    revert(&node, "t", false).expect("reverted");
    // with the period, the value is read back as it was written
    let applied =
        apply(&node, "t", vec![write(QUOTA, "max 100000").or_left_out()], OnFailure::Undo).expect("applied");
    assert!(applied.refused.is_empty() && node.value(QUOTA).trim() == "max 100000");
    revert(&node, "t", false).expect("reverted");
    assert_eq!(node.value(QUOTA).trim(), "50000 100000");
}

#[test]
fn a_transaction_of_refused_steps_only_leaves_no_journal() {
    let node = machine();
    let steps = vec![write(REFUSES, "0").or_left_out(), write("/proc/no", "1").or_left_out()];
    let applied = apply(&node, "t", steps, OnFailure::Undo).expect("nothing is made");
    assert_eq!((applied.refused.len(), applied.transaction.steps.len()), (2, 0));
    assert!(list(&node).expect("none").is_empty());
}

#[test]
fn an_optional_step_whose_old_value_is_not_taken_again_fails_the_transaction() {
    let node = machine();
    // tens are taken only, and the old value is none
    node.files.borrow_mut().insert(ROUNDS.into(), "75\n".into());
    let error = apply(&node, "t", vec![write(A, "0"), write(ROUNDS, "55").or_left_out()], OnFailure::Undo)
        .expect_err("the node is not as before")
        .to_string();
    assert!(error.contains("could not be undone") && error.contains(ROUNDS), "{error}");
    assert_eq!(node.value(A).trim(), "1");
    assert_eq!(list(&node).expect("one")[0].steps.len(), 1, "a revert tries again");
}

#[test]
fn a_task_is_moved_and_moved_back_and_one_that_has_ended_is_done() {
    let node = machine();
    apply(&node, "t", vec![bind("0")], OnFailure::Undo).expect("applied");
    assert_eq!(node.cpus(TASK.tid), "0");
    assert_eq!(standing(&node, &list(&node).expect("one")[0].steps[0]), Standing::InEffect);
    assert_eq!(revert(&node, "t", false).expect("reverted").undone.len(), 1);
    assert_eq!(node.cpus(TASK.tid), "0-3");

    // another program has chosen other CPUs since
    apply(&node, "t", vec![bind("0")], OnFailure::Undo).expect("applied");
    node.tasks.borrow_mut().get_mut(&TASK.tid).expect("alive").cpus = "2".into();
    assert_eq!(revert(&node, "t", false).expect("reverted").changed_since.len(), 1);
    assert_eq!(node.cpus(TASK.tid), "2");

    // the number is another task's by now
    apply(&node, "t", vec![bind("0")], OnFailure::Undo).expect("applied");
    node.tasks.borrow_mut().insert(TASK.tid, FakeTask::new(TASK.start_ticks + 1, "1"));
    assert_eq!(standing(&node, &list(&node).expect("one")[0].steps[0]), Standing::Gone);
    let reverted = revert(&node, "t", false).expect("an ended task is done");
    assert_eq!((reverted.gone.len(), reverted.undone.len()), (1, 0));
    assert_eq!(node.cpus(TASK.tid), "1", "another task is left alone");
    assert!(list(&node).expect("none").is_empty());
}

/// A step of random transactions.
fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (prop::sample::select(vec![A, B, MASK]), "[1-9a-f]{1,3}").prop_map(|(f, v)| write(f, &v)),
        (prop::sample::select(vec![REFUSES, ROUNDS]), "[1-9]{2}")
            .prop_map(|(f, v)| write(f, &v).or_left_out()),
        "[0-3]".prop_map(|cpu| bind(&cpu)),
        prop::sample::select(vec!["u", "v"]).prop_map(command),
    ]
}

/// Commands of one word in two transactions are not told apart; tests use each word once.
fn distinct(all: &mut [Vec<Step>]) {
    let mut serial = 0;
    for step in all.iter_mut().flatten() {
        if matches!(step.action, Action::Command { .. }) {
            serial += 1;
            *step = command(&format!("w{serial}"));
        }
    }
}

proptest! {
    #[test]
    fn reverts_in_any_order_give_the_first_values_back(
        mut all in prop::collection::vec(prop::collection::vec(any_step(), 1..5), 1..5),
        order in prop::collection::vec(any::<prop::sample::Index>(), 5),
    ) {
        distinct(&mut all);
        let node = machine();
        let before = (node.files.borrow().clone(), node.tasks.borrow().clone());
        let mut names = Vec::new();
        for (serial, steps) in all.into_iter().enumerate() {
            let name = format!("t{serial}");
            if !apply(&node, &name, steps, OnFailure::Undo).expect("applied").transaction.steps.is_empty() {
                names.push(name);
            }
        }
        for index in order.iter().cycle() {
            if names.is_empty() {
                break;
            }
            let reverted = revert(&node, &names.remove(index.index(names.len())), false).expect("reverted");
            prop_assert!(reverted.changed_since.is_empty(), "{reverted:?}");
        }
        prop_assert_eq!((node.files.borrow().clone(), node.tasks.borrow().clone()), before);
        prop_assert!(node.words.borrow().is_empty() && list(&node).expect("none").is_empty());
    }

    #[test]
    fn a_crash_at_any_operation_leaves_all_or_nothing(
        mut all in prop::collection::vec(prop::collection::vec(any_step(), 1..4), 2),
        first in any::<bool>(),
        late in any::<bool>(),
        at in 1u32..60,
    ) {
        distinct(&mut all);
        let node = machine();
        let before = (node.files.borrow().clone(), node.tasks.borrow().clone());
        node.late.set(late);
        node.left.set(Some(at));
        let mut names = ["t0", "t1"];
        for (name, steps) in names.iter().zip(all) {
            let _ = apply(&node, name, steps, OnFailure::Undo);
        }
        if first {
            names.reverse();
        }
        let _ = revert(&node, names[0], false);
        // processes start again; recovery itself crashes once more
        node.revive();
        node.left.set(Some(at % 7 + 1));
        let _ = recover(&node);
        node.revive();
        recover(&node).expect("recovered");
        for t in list(&node).expect("readable") {
            prop_assert_eq!(t.phase, Phase::Applied);
            let reverted = revert(&node, &t.name, false).expect("reverted");
            prop_assert!(reverted.changed_since.is_empty(), "{reverted:?}");
        }
        prop_assert_eq!((node.files.borrow().clone(), node.tasks.borrow().clone()), before);
        prop_assert!(node.words.borrow().is_empty());
    }

    #[test]
    fn no_journal_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        use crate::Node as _;
        let node = machine();
        node.save("t", &bytes).expect("saved");
        for result in [list(&node).map(drop), recover(&node).map(drop)] {
            prop_assert!(matches!(result, Err(TuneError::Damaged { .. })), "{result:?}");
        }
        prop_assert_eq!(node.load("t").expect("it stays"), Some(bytes));
    }
}
