// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job class: registered processes and all that descends from them.

mod job_task;
mod members;

use std::sync::{Mutex, MutexGuard, PoisonError};

use colony_node::class::Class;
use colony_node::privilege::may_be_real_time;
use colony_node::task::{self, TaskId};

use crate::SchedError;
use crate::undo::JobGroup;
use members::{Members, priority_of};

pub use job_task::JobTask;

/// The tasks of the parallel job: registered processes, their threads, and all that descends from them.
///
/// A process once seen stays a member until it ends, also when its parent ends first. What is forked and
/// loses its parent between two scans is found below a [subreaper](Job::adopt_orphans_of), and where an agent that is root
/// has the kernel keep the job's processes in a group.
#[derive(Debug, Default)]
pub struct Job {
    inner: Mutex<Members>,
}

impl Job {
    /// A job without members.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes process `pid`, and all that descends from it, part of the job.
    ///
    /// # Errors
    /// [`SchedError::NoProcess`] where it is gone, [`SchedError::Config`] for the system's own processes.
    pub fn add(&self, pid: i32) -> Result<(), SchedError> {
        // PF_KTHREAD is not shown, but all kernel threads descend from number 2, and everything else from 1
        let parent = task::stat(pid).map_or(0, |s| s.parent);
        if pid == 1 || pid == 2 || parent == 2 {
            return Err(SchedError::Config {
                what: format!("process {pid} is the system's own and cannot be a job"),
                advice: "write the number of the program to favor",
            });
        }
        let process = TaskId::of(pid).map_err(|_| SchedError::NoProcess(pid))?;
        if task::process_of(pid) != Some(pid) || !process.is_running_process()? {
            return Err(SchedError::NoProcess(pid));
        }
        self.lock().insert(pid, process.start_ticks);
        Ok(())
    }

    /// As [`add`](Self::add), while tasks of the job are switched: `pid` and what descends from it are in their own
    /// class still, also where that is one a switched task passes on.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub(crate) fn add_in_own_class(&self, pid: i32) -> Result<(), SchedError> {
        self.refresh();
        let before = std::mem::replace(&mut self.lock().switching, false);
        let added = self.add(pid);
        self.lock().switching = before;
        added
    }

    /// Minds from here on that tasks are switched; those known are in their own class.
    pub(crate) fn mind_switching(&self) {
        self.lock().switching = true;
    }

    /// Counts every new child of `pid` as the job's: `pid` is a child subreaper, and a process of the job
    /// that loses its parent becomes its child. Children it has now are not meant.
    pub fn adopt_orphans_of(&self, pid: i32) {
        let children = task::children(pid);
        let mut members = self.lock();
        members.subreaper = Some(pid);
        let strangers =
            children.into_iter().filter(|c| !members.processes.contains_key(c)).collect::<Vec<_>>();
        members.strangers.extend(strangers);
    }

    /// Children of the [subreaper](Self::adopt_orphans_of) that are, or were, the job's.
    pub(crate) fn orphans(&self) -> Vec<i32> {
        let members = self.lock();
        let children = members.subreaper.map(task::children).unwrap_or_default();
        children.into_iter().filter(|c| !members.strangers.contains(c)).collect()
    }

    /// Has the kernel keep the job's processes, and what they fork, in this group.
    pub(crate) fn gather(&self, group: JobGroup) {
        self.lock().group = Some(group);
    }

    /// The name of the job's group.
    pub(crate) fn group(&self) -> Option<String> {
        self.lock().group.as_ref().map(|group| group.name().to_owned())
    }

    /// Lets the processes go from the job's group.
    pub(crate) fn scatter(&self) {
        if let Some(group) = self.lock().group.take() {
            group.dissolve();
        }
    }

    /// Keeps process `pid` out of the job, even if its parent is a member.
    pub fn exclude(&self, pid: i32) {
        self.lock().strangers.insert(pid);
    }

    /// Starts a process that is never part of the job, although it may be a child of the [subreaper](Self::adopt_orphans_of): nobody looks
    /// for tasks meanwhile.
    pub(crate) fn start_stranger<T, E>(
        &self,
        start: impl FnOnce() -> Result<T, E>,
        pid: impl FnOnce(&T) -> i32,
    ) -> Result<T, E> {
        let mut members = self.lock();
        let started = start()?;
        members.strangers.insert(pid(&started));
        Ok(started)
    }

    /// Looks at `/proc` for tasks that joined or left.
    pub fn refresh(&self) {
        self.lock().refresh();
    }

    /// The tasks known since the last [`refresh`](Self::refresh).
    #[must_use]
    pub fn tasks(&self) -> Vec<JobTask> {
        self.lock().tasks.values().copied().collect()
    }

    /// The processes known since the last [`refresh`](Self::refresh), ascending.
    #[must_use]
    pub fn processes(&self) -> Vec<i32> {
        self.lock().processes.keys().copied().collect()
    }

    /// As [`processes`](Self::processes), with their starts.
    #[must_use]
    pub fn process_ids(&self) -> Vec<TaskId> {
        self.lock().processes.iter().map(|(&tid, &start_ticks)| TaskId { tid, start_ticks }).collect()
    }

    /// Returns `true` if no process of the job was alive at the last [`refresh`](Self::refresh).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().processes.is_empty()
    }

    /// Reads every task's own class anew, and minds from here on that tasks are switched. A real-time class that a task
    /// could not give itself is not its own.
    pub(crate) fn begin_switching(&self) {
        let mut members = self.lock();
        members.switching = false;
        members.strict = true;
        members.tasks.clear();
        members.first_own = None;
        members.refresh();
        members.switching = true;
    }

    /// Learns of a task from somebody who has scanned.
    pub(crate) fn know(&self, task: JobTask) {
        let mut members = self.lock();
        if let Ok(stat) = task::stat(task.pid) {
            members.processes.insert(task.pid, stat.start_ticks);
        }
        members.first_own.get_or_insert((task.own, task.own_reset));
        members.tasks.insert(task.tid, task);
    }

    /// Forgets a task that has ended, unless its number is another task's by now.
    pub(crate) fn forget(&self, task: TaskId) {
        let mut members = self.lock();
        if members.tasks.get(&task.tid).is_some_and(|known| known.id() == task) {
            members.tasks.remove(&task.tid);
        }
    }

    /// Notes that a task has chosen another class of its own. A real-time class counts only for a task that may give
    /// itself one: a task that was favored may pass between real-time priorities without any right. The task as it is
    /// known now, if that changed.
    pub(crate) fn note_choice(&self, task: TaskId, chosen: Class) -> Option<JobTask> {
        let mut members = self.lock();
        let known = members.tasks.get_mut(&task.tid).filter(|known| known.id() == task)?;
        if chosen == known.own || (chosen.is_real_time() && !may_be_real_time(task.tid, priority_of(chosen)))
        {
            return None;
        }
        known.own = chosen;
        Some(*known)
    }

    /// Puts every task into its own class: those known, and those that descend from them.
    pub(crate) fn restore(&self) {
        self.lock().switching = true;
        // A task that was forked from one not yet put back is found by the next look; what is forked from
        // those put back needs nothing. So few rounds suffice; the bound is for a job that forks wildly.
        for _ in 0..20 {
            self.tasks().iter().for_each(JobTask::restore);
            if !self.lock().refresh() {
                break;
            }
        }
        self.lock().switching = false;
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::process::{Child, Command, Stdio};

    use colony_node::class;

    use super::*;

    fn shell(script: &str) -> Child {
        Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh")
    }

    fn first_line(child: &mut Child) -> i32 {
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("readable");
        line.trim().parse().expect("a process number")
    }

    fn end(pid: i32) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL)
            .expect("ours");
    }

    #[test]
    fn descendants_are_found_and_stay_when_their_parent_ends() {
        let mut parent = shell("sleep 60 & echo $!; read wait");
        let child = first_line(&mut parent);
        let job = Job::new();
        job.add(parent.id().cast_signed()).expect("alive");
        let tids = |job: &Job| job.tasks().iter().map(|t| t.tid).collect::<BTreeSet<_>>();
        assert_eq!(tids(&job), [parent.id().cast_signed(), child].into());
        parent.kill().and_then(|()| parent.wait()).expect("ours");
        job.refresh();
        assert_eq!(tids(&job), [child].into(), "an orphan is still the job's");
        end(child);
        while !task::stat(child).is_ok_and(|s| s.state == b'Z') && task::stat(child).is_ok() {
            std::thread::yield_now();
        }
        job.refresh();
        assert!(job.is_empty() && job.tasks().is_empty());
    }

    #[test]
    fn the_children_of_a_stranger_with_the_number_of_an_ended_member_do_not_join() {
        let mut stranger = shell("sleep 60 & echo $!; read wait");
        let child = first_line(&mut stranger);
        let pid = stranger.id().cast_signed();
        let start_ticks = TaskId::of(pid).expect("alive").start_ticks;
        let job = Job::new();
        // the member was started before, and has ended since
        job.lock().processes.insert(pid, start_ticks - 1);
        job.refresh();
        assert!(job.is_empty() && job.tasks().is_empty(), "{:?}", job.tasks());
        // the job's own child may be given such a number
        job.lock().processes.insert(child, 1);
        job.adopt_orphans_of(pid);
        job.lock().strangers.clear();
        job.refresh();
        assert_eq!(job.processes(), [child]);
        end(child);
        stranger.kill().and_then(|()| stranger.wait()).expect("ours");
    }

    #[test]
    fn threads_join_and_strangers_do_not() {
        let job = Job::new();
        let me = std::process::id().cast_signed();
        let mut stranger = shell("sleep 60");
        job.exclude(stranger.id().cast_signed());
        job.add(me).expect("alive");
        let tasks = job.tasks();
        let this_thread = nix::unistd::gettid().as_raw();
        assert!(tasks.iter().any(|t| t.tid == this_thread && t.pid == me), "{tasks:?}");
        assert!(!job.processes().contains(&stranger.id().cast_signed()));
        stranger.kill().and_then(|()| stranger.wait()).expect("ours");
    }

    #[test]
    fn a_child_held_by_the_agent_has_the_class_of_its_parent_for_its_own() {
        let mut parent = shell("read go; sleep 60 & echo $!; read wait");
        let (job, pid) = (Job::new(), parent.id().cast_signed());
        class::set(pid, Class::Batch(4)).expect("lower is allowed");
        job.add(pid).expect("alive");
        job.begin_switching();
        class::set(pid, Class::Idle).expect("lower is allowed");
        parent.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
        let child = first_line(&mut parent);
        assert_eq!(class::get(child).expect("alive"), Class::Idle, "inherited");
        job.refresh();
        let own: Vec<Class> = job.tasks().iter().map(|t| t.own).collect();
        assert_eq!(own, [Class::Batch(4), Class::Batch(4)]);
        end(child);
        parent.kill().and_then(|()| parent.wait()).expect("ours");
    }

    #[test]
    fn children_of_a_demoted_task_are_restored_and_ordinary_tasks_stay_ordinary() {
        let mut parent = shell("sleep 60 & echo $!; read go; sleep 60 & echo $!; read wait");
        let (job, pid) = (Job::new(), parent.id().cast_signed());
        let ordinary = first_line(&mut parent);
        class::set(pid, Class::Batch(0)).expect("lower is allowed");
        job.mind_switching();
        job.add_in_own_class(pid).expect("alive");
        class::set(pid, Class::Other(0)).expect("as ordinary as before");
        parent.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
        let made = first_line(&mut parent);
        job.restore();
        let classes = [pid, ordinary, made].map(|t| class::get(t).expect("alive"));
        assert_eq!(classes, [Class::Batch(0), Class::Other(0), Class::Batch(0)]);
        end(ordinary);
        end(made);
        parent.kill().and_then(|()| parent.wait()).expect("ours");
    }

    #[test]
    fn an_orphan_held_by_the_agent_has_the_class_of_the_job_for_its_own() {
        let mut parent = shell("read go; (sleep 60 & echo $!; read wait)");
        let (job, pid) = (Job::new(), parent.id().cast_signed());
        job.add(pid).expect("alive");
        job.begin_switching();
        class::set(pid, Class::Idle).expect("lower is allowed");
        parent.stdin.as_mut().expect("piped").write_all(b"go\n").expect("it reads");
        let grandchild = first_line(&mut parent);
        let between = task::stat(grandchild).expect("alive").parent;
        job.refresh();
        for tid in [grandchild, between] {
            job.forget(TaskId::of(tid).expect("alive"));
        }
        job.refresh();
        let own = |tid| job.tasks().iter().find(|t| t.tid == tid).map(|t| t.own);
        assert_eq!(own(grandchild), Some(Class::Other(0)), "parent and child found in one look");
        end(grandchild);
        parent.kill().and_then(|()| parent.wait()).expect("ours");
    }

    #[test]
    fn a_process_that_is_gone_cannot_join() {
        assert!(matches!(Job::new().add(i32::MAX), Err(SchedError::NoProcess(_))));
        let mut ended = shell("true");
        while !task::stat(ended.id().cast_signed()).is_ok_and(|s| s.state == b'Z') {
            std::thread::yield_now();
        }
        assert!(Job::new().add(ended.id().cast_signed()).is_err(), "a zombie is no process");
        ended.wait().expect("ours");
    }

    #[test]
    fn the_system_itself_cannot_be_a_job() {
        for pid in [1, 2] {
            assert!(Job::new().add(pid).is_err_and(|e| e.is_wrong_use()));
        }
    }
}
