// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of a node: tasks that fork and choose affinities, and owners that change them and end in any order.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::node::Node;
use super::record::{OwnerId, Record};
use super::*;

/// A task of the model.
#[derive(Clone, Debug)]
struct Task {
    parent: i32,
    affinity: CpuSet,
    /// The affinity that the task would have if no owner had ever changed one.
    without_colony: CpuSet,
}

/// A node whose tasks are numbers from 1 on, each as old as its number.
#[derive(Debug, Default)]
struct Model(RefCell<BTreeMap<i32, Task>>);

fn id(tid: i32) -> TaskId {
    TaskId { tid, start_ticks: tid.unsigned_abs().into() }
}

fn set(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

impl Model {
    fn with(affinities: &[&str]) -> Self {
        let task = |(i, cpus): (usize, &&str)| {
            let parent = i32::from(i > 0);
            (
                i32::try_from(i).expect("few") + 1,
                Task { parent, affinity: set(cpus), without_colony: set(cpus) },
            )
        };
        Self(RefCell::new(affinities.iter().enumerate().map(task).collect()))
    }

    fn fork(&self, parent: i32) -> i32 {
        let mut tasks = self.0.borrow_mut();
        let child = tasks.keys().next_back().expect("never empty") + 1;
        let task = Task { parent, ..tasks[&parent].clone() };
        tasks.insert(child, task);
        child
    }

    fn choose(&self, tid: i32, cpus: CpuSet) {
        let mut tasks = self.0.borrow_mut();
        let task = tasks.get_mut(&tid).expect("alive");
        (task.affinity, task.without_colony) = (cpus.clone(), cpus);
    }

    fn is_parent(&self, tid: i32) -> bool {
        self.0.borrow().values().any(|task| task.parent == tid)
    }

    fn affinities(&self) -> Vec<CpuSet> {
        self.0.borrow().values().map(|task| task.affinity.clone()).collect()
    }
}

impl Node for Model {
    fn tasks(&self) -> Vec<TaskId> {
        self.0.borrow().keys().map(|&tid| id(tid)).collect()
    }

    fn affinity(&self, task: TaskId) -> Option<CpuSet> {
        self.0.borrow().get(&task.tid).filter(|_| id(task.tid) == task).map(|task| task.affinity.clone())
    }

    fn set_affinity(&self, task: TaskId, cpus: &CpuSet) -> Result<(), String> {
        if let Some(found) = self.0.borrow_mut().get_mut(&task.tid).filter(|_| id(task.tid) == task) {
            found.affinity = cpus.clone();
        }
        Ok(())
    }

    fn origin(&self, task: TaskId) -> Option<TaskId> {
        self.0.borrow().get(&task.tid).map(|task| id(task.parent)).filter(|parent| parent.tid > 0)
    }
}

fn owner(serial: u64) -> OwnerId {
    OwnerId { process: id(1), serial }
}

fn bind(record: &mut Record, node: &Model, owner: OwnerId, tid: i32, cpus: &str) {
    record.add(node, owner, id(tid), Some(set(cpus)));
    assert_eq!(record.apply(node, owner, &[id(tid)]), []);
}

#[test]
fn an_owner_that_ends_first_does_not_leave_its_affinity_to_the_other() {
    for first in [1, 2] {
        let (node, mut record) = (Model::with(&["0-1"]), Record::default());
        bind(&mut record, &node, owner(1), 1, "1");
        bind(&mut record, &node, owner(2), 1, "0");
        record.release(&node, owner(first), None);
        assert_eq!(node.affinities(), [set(if first == 1 { "0" } else { "1" })], "the other one's");
        record.release(&node, owner(3 - first), None);
        assert_eq!(node.affinities(), [set("0-1")]);
        assert_eq!(record, Record::default());
    }
}

#[test]
fn a_task_that_chooses_keeps_its_choice_and_what_it_starts_later_has_it_too() {
    let (node, mut record) = (Model::with(&["0-3"]), Record::default());
    bind(&mut record, &node, owner(1), 1, "1");
    node.choose(1, set("2"));
    let child = node.fork(1);
    bind(&mut record, &node, owner(2), child, "0");
    record.release(&node, owner(1), None);
    record.release(&node, owner(2), None);
    assert_eq!(node.affinities(), [set("2"), set("2")]);
}

#[test]
fn an_orphan_of_a_task_that_ended_is_found_among_the_members() {
    let (node, mut record) = (Model::with(&["0-3", "0-3"]), Record::default());
    bind(&mut record, &node, owner(1), 2, "1");
    let orphan = node.fork(2);
    record.owner(owner(1)).members = vec![id(orphan)];
    node.0.borrow_mut().remove(&2);
    node.0.borrow_mut().get_mut(&orphan).expect("alive").parent = 1;
    record.prune(|task| node.affinity(task).is_some());
    assert!(record.tasks.is_empty(), "the task has ended");
    record.release(&node, owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("0-3")]);
}

#[test]
fn a_task_with_the_number_of_one_that_ended_is_another_one() {
    let (node, mut record) = (Model::with(&["0-3", "1"]), Record::default());
    let ended = TaskId { start_ticks: 1000, ..id(2) };
    record.add(&node, owner(1), ended, Some(set("1")));
    assert!(record.tasks.is_empty());
    record.release(&node, owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("1")]);
}

#[test]
fn what_the_kernel_forgets_is_given_back() {
    let (node, mut record) = (Model::with(&["0-3", "0,2"]), Record::default());
    record.owner(owner(1)).resets = vec![set("0-3")];
    record.add(&node, owner(1), id(2), None);
    node.set_affinity(id(2), &set("0-3")).expect("alive");
    record.release(&node, owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("0,2")]);
}

#[test]
fn only_the_named_tasks_are_released() {
    let (node, mut record) = (Model::with(&["0-3", "0-3", "0-3"]), Record::default());
    for tid in [2, 3] {
        bind(&mut record, &node, owner(1), tid, "1");
    }
    record.release(&node, owner(1), Some(&[id(2)]));
    assert_eq!(node.affinities(), [set("0-3"), set("0-3"), set("1")]);
    record.release(&node, owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("0-3"), set("0-3")]);
}

/// A step of the model: the fields choose tasks, owners and affinities by their remainders.
#[derive(Clone, Debug)]
enum Step {
    Fork(usize),
    Choose(usize, usize),
    Bind(u64, usize, usize),
    Keep(u64, usize),
    Release(u64),
    SaveAndLoad,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<usize>().prop_map(Step::Fork),
        (any::<usize>(), any::<usize>()).prop_map(|(task, cpus)| Step::Choose(task, cpus)),
        (0..3_u64, any::<usize>(), any::<usize>()).prop_map(|(o, task, cpus)| Step::Bind(o, task, cpus)),
        (0..3_u64, any::<usize>()).prop_map(|(o, task)| Step::Keep(o, task)),
        (0..3_u64).prop_map(Step::Release),
        Just(Step::SaveAndLoad),
    ];
    prop::collection::vec(step, 0..40)
}

/// Affinities that tasks choose, and that owners give. No choice is also given: nobody could tell the two apart.
const CHOSEN: [&str; 3] = ["0-3", "0-2", "2-3"];
const GIVEN: [&str; 3] = ["0", "1", "0-1"];

proptest! {
    #[test]
    fn when_all_owners_have_ended_every_task_is_as_without_them(steps in steps(), last in Just([0, 1, 2]).prop_shuffle()) {
        let (node, mut record) = (Model::with(&["0-3", "0-2", "2-3"]), Record::default());
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("ledger");
        let task = |n: usize| i32::try_from(n % node.0.borrow().len()).expect("few") + 1;
        for step in steps {
            match step {
                Step::Fork(of) => drop(node.fork(task(of))),
                // of a parent, a choice is ambiguous: see the record
                Step::Choose(who, _) if node.is_parent(task(who)) => {}
                Step::Choose(who, cpus) => node.choose(task(who), set(CHOSEN[cpus % 3])),
                Step::Bind(by, who, cpus) => bind(&mut record, &node, owner(by), task(who), GIVEN[cpus % 3]),
                Step::Keep(by, who) => record.add(&node, owner(by), id(task(who)), None),
                Step::Release(by) => drop(record.release(&node, owner(by), None)),
                Step::SaveAndLoad => {
                    file::save(&path, &record).expect("writable");
                    prop_assert_eq!(&file::load(&path).expect("own text"), &record);
                }
            }
        }
        for by in last {
            record.release(&node, owner(by), None);
        }
        prop_assert_eq!(&record, &Record::default());
        for task in node.0.borrow().values() {
            prop_assert_eq!(&task.affinity, &task.without_colony);
        }
    }
}
