// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of a node: tasks that fork and choose affinities, and owners that change them and end in any order.

use std::cell::RefCell;
use std::collections::BTreeMap;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use proptest::prelude::*;

use super::former::{Former, FormerTask};
use super::node::Node;
use super::record::{Narrowing, OwnerId, Record, Released};
use super::*;

/// A task of the model.
#[derive(Clone, Debug)]
struct Task {
    parent: i32,
    /// The affinity that it was given last. A partition narrows it.
    affinity: CpuSet,
    /// The affinity that the task would have if no owner had ever changed one.
    without_colony: CpuSet,
}

/// A node whose tasks are numbers from 1 on, each as old as its number.
#[derive(Debug, Default)]
struct Model {
    tasks: RefCell<BTreeMap<i32, Task>>,
    /// The CPUs that a cpuset partition has taken.
    taken: RefCell<CpuSet>,
    /// Forks of task 2 that happen while a ledger looks through the tasks, once a look.
    forks: RefCell<usize>,
}

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
        let tasks = RefCell::new(affinities.iter().enumerate().map(task).collect());
        Self { tasks, ..Self::default() }
    }

    fn fork(&self, parent: i32) -> i32 {
        let mut tasks = self.tasks.borrow_mut();
        let child = tasks.keys().next_back().expect("never empty") + 1;
        let task = Task { parent, ..tasks[&parent].clone() };
        tasks.insert(child, task);
        child
    }

    fn choose(&self, tid: i32, cpus: CpuSet) {
        let mut tasks = self.tasks.borrow_mut();
        let task = tasks.get_mut(&tid).expect("alive");
        (task.affinity, task.without_colony) = (cpus.clone(), cpus);
    }

    fn is_parent(&self, tid: i32) -> bool {
        self.tasks.borrow().values().any(|task| task.parent == tid)
    }

    fn affinities(&self) -> Vec<CpuSet> {
        self.tasks.borrow().values().map(|task| task.affinity.clone()).collect()
    }
}

impl Node for Model {
    fn tasks(&self) -> Vec<TaskId> {
        let found = self.tasks.borrow().keys().map(|&tid| id(tid)).collect();
        let forks = *self.forks.borrow();
        if forks > 0 {
            self.fork(2);
            self.forks.replace(forks - 1);
        }
        found
    }

    fn affinity(&self, task: TaskId) -> Option<CpuSet> {
        let tasks = self.tasks.borrow();
        let of_task = &tasks.get(&task.tid).filter(|_| id(task.tid) == task)?.affinity;
        let left = of_task.without(&self.taken.borrow());
        Some(if left.is_empty() { set(ALL).without(&self.taken.borrow()) } else { left })
    }

    fn set_affinity(&self, task: TaskId, cpus: &CpuSet) -> Result<(), String> {
        if let Some(found) = self.tasks.borrow_mut().get_mut(&task.tid).filter(|_| id(task.tid) == task) {
            found.affinity = cpus.clone();
        }
        Ok(())
    }

    fn origin(&self, task: TaskId) -> Option<TaskId> {
        self.tasks.borrow().get(&task.tid).map(|task| id(task.parent)).filter(|parent| parent.tid > 0)
    }
}

/// The CPUs of the model.
const ALL: &str = "0-5";

/// The owner whose journal is there for a test of transactions.
const TRANSACTION: u64 = 2;

fn owner(serial: u64) -> OwnerId {
    match serial {
        TRANSACTION => OwnerId::Transaction { journal: "journal".into() },
        _ => OwnerId::Process { process: id(1), serial },
    }
}

fn bind(record: &mut Record, node: &Model, owner: &OwnerId, tid: i32, cpus: &str) {
    record.add(node, owner, id(tid), Some(set(cpus)));
    assert_eq!(record.apply(node, owner, &[id(tid)]), []);
}

/// What an earlier version has changed: tasks with their own affinity and the given one.
fn former(tasks: &[(i32, &str, Option<&str>)]) -> Former {
    let task = |&(tid, own, given): &(i32, &str, Option<&str>)| FormerTask {
        task: id(tid),
        own: set(own),
        given: given.map(set),
    };
    Former { tasks: tasks.iter().map(task).collect(), ..Former::default() }
}

#[test]
fn affinities_of_an_earlier_version_are_restored_in_any_order_with_those_of_this_one() {
    for former_first in [true, false] {
        // three tasks that the earlier version moved from 0-1 to 1, and one that it kept; their child has 1, too
        let (node, mut record) = (Model::with(&["1", "1", "1", "3"]), Record::default());
        let child = node.fork(2);
        let known =
            former(&[(1, "0-1", Some("1")), (2, "0-1", Some("1")), (3, "0-1", Some("1")), (4, "3", None)]);
        bind(&mut record, &node, &owner(1), 2, "0");
        bind(&mut record, &node, &owner(1), child, "0");
        node.choose(3, set("4"));
        let undo = |record: &mut Record| {
            record.adopt(&node, &owner(3), &known);
            record.release(&node, &owner(3), None);
        };
        if former_first {
            undo(&mut record);
            assert_eq!(node.affinities(), ["0-1", "0", "4", "3", "0"].map(set));
            record.release(&node, &owner(1), None);
        } else {
            record.release(&node, &owner(1), None);
            undo(&mut record);
        }
        assert_eq!(node.affinities(), ["0-1", "0-1", "4", "3", "0-1"].map(set));
        assert_eq!(record, Record::default());
    }
}

#[test]
fn affinities_that_a_kernel_gave_for_an_earlier_version_are_taken_back() {
    let (node, mut record) = (Model::with(&["0-3", "0-3", "1-3"]), Record::default());
    let kept = former(&[(1, "0-3", None), (2, "0-1", None), (3, "1-2", None)]);
    let known = Former { resets: vec![set("0-3")], ..kept };
    record.adopt(&node, &owner(3), &known);
    record.release(&node, &owner(3), None);
    assert_eq!(node.affinities(), ["0-3", "0-1", "1-3"].map(set));
}

#[test]
fn an_owner_that_ends_first_does_not_leave_its_affinity_to_the_other() {
    for first in [1, 2] {
        let (node, mut record) = (Model::with(&["0-1"]), Record::default());
        bind(&mut record, &node, &owner(1), 1, "1");
        bind(&mut record, &node, &owner(2), 1, "0");
        record.release(&node, &owner(first), None);
        assert_eq!(node.affinities(), [set(if first == 1 { "0" } else { "1" })], "the other one's");
        record.release(&node, &owner(3 - first), None);
        assert_eq!(node.affinities(), [set("0-1")]);
        assert_eq!(record, Record::default());
    }
}

#[test]
fn a_task_that_chooses_keeps_its_choice_and_what_it_starts_later_has_it_too() {
    let (node, mut record) = (Model::with(&["0-3"]), Record::default());
    bind(&mut record, &node, &owner(1), 1, "1");
    node.choose(1, set("2"));
    let child = node.fork(1);
    bind(&mut record, &node, &owner(2), child, "0");
    record.release(&node, &owner(1), None);
    record.release(&node, &owner(2), None);
    assert_eq!(node.affinities(), [set("2"), set("2")]);
}

#[test]
fn an_orphan_of_a_task_that_ended_is_found_among_the_members() {
    let (node, mut record) = (Model::with(&["0-3", "0-3"]), Record::default());
    bind(&mut record, &node, &owner(1), 2, "1");
    let orphan = node.fork(2);
    record.owner(&owner(1)).members = vec![id(orphan)];
    node.tasks.borrow_mut().remove(&2);
    node.tasks.borrow_mut().get_mut(&orphan).expect("alive").parent = 1;
    record.prune(|task| node.affinity(task).is_some());
    assert!(record.tasks.is_empty(), "the task has ended");
    record.release(&node, &owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("0-3")]);
}

#[test]
fn a_task_with_the_number_of_one_that_ended_is_another_one() {
    let (node, mut record) = (Model::with(&["0-3", "1"]), Record::default());
    let ended = TaskId { start_ticks: 1000, ..id(2) };
    record.add(&node, &owner(1), ended, Some(set("1")));
    assert!(record.tasks.is_empty());
    record.release(&node, &owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("1")]);
}

#[test]
fn what_the_kernel_forgets_is_given_back() {
    let (node, mut record) = (Model::with(&["0-3", "0,2"]), Record::default());
    record.owner(&owner(1)).resets = vec![set("0-3")];
    record.add(&node, &owner(1), id(2), None);
    node.set_affinity(id(2), &set("0-3")).expect("alive");
    record.release(&node, &owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("0,2")]);
}

#[test]
fn only_the_named_tasks_are_released() {
    let (node, mut record) = (Model::with(&["0-3", "0-3", "0-3"]), Record::default());
    for tid in [2, 3] {
        bind(&mut record, &node, &owner(1), tid, "1");
    }
    record.release(&node, &owner(1), Some(&[id(2)]));
    assert_eq!(node.affinities(), [set("0-3"), set("0-3"), set("1")]);
    record.release(&node, &owner(1), None);
    assert_eq!(node.affinities(), [set("0-3"), set("0-3"), set("0-3")]);
}

#[test]
fn a_task_that_was_bound_to_the_spare_cpus_stays_bound_and_a_wide_child_of_it_stays_wide() {
    for masks in [KernelMasks::AsChosen, KernelMasks::Reset(vec![set("0"), set("0-5")])] {
        let (node, mut record) = (Model::with(&["0-5", "0"]), Record::default());
        let wide = node.fork(2);
        node.choose(wide, set("0-5"));
        for task in node.tasks() {
            record.add(&node, &owner(1), task, None);
        }
        if let KernelMasks::Reset(resets) = masks {
            record.owner(&owner(1)).resets = resets;
        }
        for tid in [1, wide] {
            bind(&mut record, &node, &owner(1), tid, "0");
        }
        record.release(&node, &owner(1), None);
        assert_eq!(node.affinities(), [set("0-5"), set("0"), set("0-5")]);
    }
}

#[test]
fn a_choice_of_all_cpus_during_a_reservation_is_kept() {
    let (node, mut record) = (Model::with(&["0-5", "1"]), Record::default());
    for task in node.tasks() {
        record.add(&node, &owner(1), task, None);
    }
    bind(&mut record, &node, &owner(1), 2, "0");
    node.choose(2, set("0-5"));
    // found by the next look at the tasks, or not
    for is_found in [false, true] {
        if is_found {
            bind(&mut record, &node, &owner(1), 2, "0");
        }
        let mut copy = record.clone();
        copy.release(&node, &owner(1), None);
        assert_eq!(node.affinities(), [set("0-5"), set("0-5")], "{is_found}");
    }
}

#[test]
fn what_is_started_while_the_changes_are_undone_is_undone_too() {
    let (node, mut record) = (Model::with(&["0-5", "0-5"]), Record::default());
    bind(&mut record, &node, &owner(1), 2, "0");
    node.forks.replace(3);
    record.release(&node, &owner(1), None);
    assert!(node.affinities().iter().all(|cpus| *cpus == set("0-5")), "{:?}", node.affinities());
    assert!(node.affinities().len() > 2);
}

#[test]
fn a_transaction_and_a_reservation_may_begin_and_end_in_any_order() {
    for (first, revert_first) in [(1, false), (1, true), (TRANSACTION, false), (TRANSACTION, true)] {
        let (node, mut record) = (Model::with(&["0-5", "0-5"]), Record::default());
        let second = 1 + TRANSACTION - first;
        let given = |by| if by == TRANSACTION { "0" } else { "1" };
        bind(&mut record, &node, &owner(first), 2, given(first));
        bind(&mut record, &node, &owner(second), 2, given(second));
        let child = node.fork(2);
        let transaction_is_top = second == TRANSACTION;
        if !revert_first {
            record.release(&node, &owner(1), None);
        }
        let released = record.release_task(&node, &owner(TRANSACTION), id(2), false);
        let is_handed_on = revert_first && !transaction_is_top;
        let expected = if is_handed_on { Released::HandedOn } else { Released::Restored };
        assert_eq!(released, Ok(expected), "{first} {revert_first}");
        record.release(&node, &owner(1), None);
        assert_eq!(node.affinities(), [set("0-5"), set("0-5"), set("0-5")], "{child} {first} {revert_first}");
        assert_eq!(record, Record::default());
    }
}

#[test]
fn a_task_that_chose_keeps_its_choice_when_a_transaction_is_reverted_unless_that_is_to_go_too() {
    for chosen_too in [false, true] {
        let (node, mut record) = (Model::with(&["0-5"]), Record::default());
        bind(&mut record, &node, &owner(TRANSACTION), 1, "0");
        node.choose(1, set("3"));
        let released = record.release_task(&node, &owner(TRANSACTION), id(1), chosen_too);
        let (expected, now) =
            if chosen_too { (Released::Restored, "0-5") } else { (Released::Chosen(set("3")), "3") };
        assert_eq!((released, node.affinities()), (Ok(expected), vec![set(now)]));
        assert_eq!(record, Record::default());
        let again = record.release_task(&node, &owner(TRANSACTION), id(1), chosen_too);
        assert_eq!(again, Ok(Released::Nothing));
    }
}

#[test]
fn a_transaction_gives_back_what_children_have_of_a_task_that_ended() {
    let (node, mut record) = (Model::with(&["0-5", "0-5", "0-5"]), Record::default());
    bind(&mut record, &node, &owner(TRANSACTION), 2, "0");
    bind(&mut record, &node, &owner(TRANSACTION), 3, "0");
    assert_eq!(record.release_task(&node, &owner(TRANSACTION), id(2), false), Ok(Released::Restored));
    node.tasks.borrow_mut().remove(&3);
    assert_eq!(record.release_task(&node, &owner(TRANSACTION), id(3), false), Ok(Released::Ended));
    assert_eq!(record, Record::default());
}

#[test]
fn a_ledger_of_a_newer_version_is_left_alone_and_one_with_wrong_bytes_is_set_aside() {
    let folder = tempfile::tempdir().expect("temp dir");
    let path = folder.path().join(FILE);
    let boot = state::boot().expect("linux");
    let newer = format!(r#"{{"schema":"colony.ledger/3","boot":"{boot}","what":"unheard-of"}}"#);
    fs::write(&path, &newer).expect("writable");
    let error = load_or_set_aside(&path).expect_err("newer").to_string();
    assert!(error.contains("colony.ledger/3") && error.contains("newer version"), "{error}");
    assert_eq!(fs::read_to_string(&path).expect("there"), newer);
    // of this version, it would be read as a whole
    fs::write(&path, newer.replace("ledger/3", "ledger/2")).expect("writable");
    assert_eq!(load_or_set_aside(&path).expect("set aside"), Record::default());
    assert!(!path.exists() && folder.path().join(DAMAGED).exists());
}

#[test]
fn a_ledger_that_cannot_be_read_for_want_of_file_descriptors_is_left_alone() {
    const FOLDER: &str = "COLONY_TEST_LEDGER_FOLDER";
    let Some(folder) = std::env::var_os(FOLDER) else {
        let folder = tempfile::tempdir().expect("temp dir");
        let mut record = Record::default();
        record.owner(&owner(1));
        file::save(&folder.path().join(FILE), &record).expect("writable");
        // the limit is a process's own
        let name = "tests::a_ledger_that_cannot_be_read_for_want_of_file_descriptors_is_left_alone";
        let mut again = std::process::Command::new(std::env::current_exe().expect("linux"));
        let again = again.args(["--exact", name]).env(FOLDER, folder.path()).output().expect("it runs");
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stdout));
        return;
    };
    let path = PathBuf::from(folder).join(FILE);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("linux");
    setrlimit(Resource::RLIMIT_NOFILE, 64.min(hard), hard).expect("a lower limit");
    let full: Vec<fs::File> = std::iter::from_fn(|| fs::File::open("/dev/null").ok()).collect();
    let error = load_or_set_aside(&path).expect_err("no descriptor is left");
    drop(full);
    assert_eq!(error.kind(), io::Error::from_raw_os_error(nix::libc::EMFILE).kind(), "{error}");
    assert_eq!(load_or_set_aside(&path).expect("readable").owners.len(), 1);
}

/// A step of the model: the fields choose tasks, owners and affinities by their remainders.
#[derive(Clone, Debug)]
enum Step {
    Fork(usize),
    Choose(usize, usize),
    Bind(u64, usize, usize),
    Keep(u64, usize),
    Release(u64),
    /// What a transaction does when it is reverted.
    ReleaseTask(u64, usize),
    MakePartition,
    RemovePartition,
    SaveAndLoad,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        any::<usize>().prop_map(Step::Fork),
        (any::<usize>(), any::<usize>()).prop_map(|(task, cpus)| Step::Choose(task, cpus)),
        (0..3_u64, any::<usize>(), any::<usize>()).prop_map(|(o, task, cpus)| Step::Bind(o, task, cpus)),
        (0..3_u64, any::<usize>()).prop_map(|(o, task)| Step::Keep(o, task)),
        (0..3_u64).prop_map(Step::Release),
        (0..3_u64, any::<usize>()).prop_map(|(o, task)| Step::ReleaseTask(o, task)),
        Just(Step::MakePartition),
        Just(Step::RemovePartition),
        Just(Step::SaveAndLoad),
    ];
    prop::collection::vec(step, 0..40)
}

/// Affinities that tasks choose, and that owners give. No choice is also given, with a partition or without: nobody could tell the
/// two apart.
const CHOSEN: [&str; 3] = ["0-5", "0-2", "2-3"];
const GIVEN: [&str; 3] = ["0", "1", "4-5"];
const PARTITION: &str = "5";
/// The owner of the partition.
const RESERVATION: u64 = 7;

fn make_partition(node: &Model, record: &mut Record) {
    for task in node.tasks() {
        record.add(node, &owner(RESERVATION), task, None);
    }
    let taken = set(PARTITION);
    let rest = set(ALL).without(&taken);
    record.owner(&owner(RESERVATION)).narrows = Some(Narrowing { taken: taken.clone(), rest });
    node.taken.replace(taken);
}

fn remove_partition(node: &Model, record: &mut Record) {
    node.taken.take();
    record.release(node, &owner(RESERVATION), None);
}

proptest! {
    #[test]
    fn when_all_owners_have_ended_every_task_is_as_without_them(steps in steps(), last in Just([0, 1, 2, 3]).prop_shuffle()) {
        let (node, mut record) = (Model::with(&CHOSEN), Record::default());
        let folder = tempfile::tempdir().expect("temp dir");
        let path = folder.path().join("ledger");
        let task = |n: usize| i32::try_from(n % node.tasks.borrow().len()).expect("few") + 1;
        for step in steps {
            match step {
                Step::Fork(of) => drop(node.fork(task(of))),
                // of a parent, a choice is ambiguous: see the record
                Step::Choose(who, _) if node.is_parent(task(who)) => {}
                Step::Choose(who, cpus) => node.choose(task(who), set(CHOSEN[cpus % 3])),
                Step::Bind(by, who, cpus) => bind(&mut record, &node, &owner(by), task(who), GIVEN[cpus % 3]),
                Step::Keep(by, who) => record.add(&node, &owner(by), id(task(who)), None),
                Step::Release(by) => drop(record.release(&node, &owner(by), None)),
                Step::ReleaseTask(by, who) => {
                    prop_assert!(record.release_task(&node, &owner(by), id(task(who)), false).is_ok());
                }
                Step::MakePartition if node.taken.borrow().is_empty() => make_partition(&node, &mut record),
                Step::MakePartition => {}
                Step::RemovePartition => remove_partition(&node, &mut record),
                Step::SaveAndLoad => {
                    file::save(&path, &record).expect("writable");
                    prop_assert_eq!(&file::load(&path).expect("own text"), &record);
                }
            }
        }
        for by in last {
            match by {
                3 => remove_partition(&node, &mut record),
                _ => drop(record.release(&node, &owner(by), None)),
            }
        }
        prop_assert_eq!(&record, &Record::default());
        for task in node.tasks.borrow().values() {
            prop_assert_eq!(&task.affinity, &task.without_colony);
        }
    }
}
