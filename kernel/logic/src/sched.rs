// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads of a process on its CPUs: which run, which are ready and which wait.
//!
//! One queue serves all CPUs of the process, first come first served. A CPU without a thread takes the first one that may
//! run there, so no CPU idles beside a thread that is ready for it. A thread that becomes ready goes straight to the CPU
//! where it ran last if that CPU idles, else to another idle CPU, and only then to the queue.

use colony_fship::layout::CHANNELS;
use heapless::Vec;

/// Threads of a node at most; two processes have half of them each.
pub const THREADS: usize = 256;
/// CPUs of a node at most.
pub const CPUS: usize = CHANNELS;

/// What a thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is no thread of this number.
    #[default]
    Free,
    /// It waits for something.
    Waiting,
    /// It waits for a CPU.
    Ready,
    /// It has this CPU.
    Running(u8),
}

/// The place of a thread that has become ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// This CPU, which idles, is to take it.
    On(usize),
    /// The queue: every CPU that it may run on has a thread.
    Queued,
}

#[derive(Clone, Copy)]
struct Entry {
    state: State,
    /// CPU where it ran last.
    cpu: u8,
    /// CPUs where it may run.
    mask: u8,
}

/// See the module.
pub struct Scheduler {
    threads: [Entry; THREADS],
    running: [Option<usize>; CPUS],
    /// Threads that idle CPUs are to take.
    given: [Option<usize>; CPUS],
    /// Threads that are ready, in their order.
    queue: Vec<u16, THREADS>,
    /// CPUs of the process.
    cpus: u8,
    /// Threads that there may be.
    limit: usize,
    /// One more than the highest number in use since the start.
    high: usize,
}

impl Scheduler {
    /// Of no process: all zero.
    pub const NEW: Self = Self {
        threads: [Entry { state: State::Free, cpu: 0, mask: 0 }; THREADS],
        running: [None; CPUS],
        given: [None; CPUS],
        queue: Vec::new(),
        cpus: 0,
        limit: 0,
        high: 0,
    };

    /// A new process has these CPUs, and one thread at most `limit`: number 0, which waits.
    pub fn restart(&mut self, cpus: u8, limit: usize) {
        self.threads[..self.high].fill(Self::NEW.threads[0]);
        (self.running, self.given) = ([None; CPUS], [None; CPUS]);
        self.queue.clear();
        (self.cpus, self.limit, self.high) = (cpus, limit.min(THREADS), 1);
        self.threads[0] = Entry { state: State::Waiting, cpu: cpus.trailing_zeros() as u8, mask: cpus };
    }

    /// Numbers of all threads, and of some that have ended.
    pub fn numbers(&self) -> core::ops::Range<usize> {
        0..self.high
    }

    /// Threads that there are.
    pub fn alive(&self) -> usize {
        self.numbers().filter(|&t| self.state(t) != State::Free).count()
    }

    /// What a thread does.
    pub fn state(&self, thread: usize) -> State {
        self.threads.get(thread).map_or(State::Free, |t| t.state)
    }

    /// CPUs where a thread may run.
    pub fn mask(&self, thread: usize) -> u8 {
        self.threads[thread].mask
    }

    /// The thread that has a CPU.
    pub fn running(&self, cpu: usize) -> Option<usize> {
        self.running[cpu]
    }

    /// The number that a new thread gets.
    pub fn free(&self) -> Option<usize> {
        (1..self.limit).find(|&n| self.threads[n].state == State::Free)
    }

    /// A new thread, which waits; it may run where `parent` may. `None` if there are as many as there may be. Number 0 is
    /// the first thread's for good: it is the number of the process.
    pub fn create(&mut self, parent: usize) -> Option<usize> {
        let number = self.free()?;
        let Entry { cpu, mask, .. } = self.threads[parent];
        self.threads[number] = Entry { state: State::Waiting, cpu, mask };
        self.high = self.high.max(number + 1);
        Some(number)
    }

    fn idles(&self, cpu: usize) -> bool {
        self.running[cpu].is_none() && self.given[cpu].is_none()
    }

    /// An idle CPU for a thread, other than `but`.
    fn idle_for(&self, thread: usize, but: Option<usize>) -> Option<usize> {
        let Entry { cpu, mask, .. } = self.threads[thread];
        let may = |cpu: &usize| mask >> cpu & 1 != 0 && self.idles(*cpu) && Some(*cpu) != but;
        core::iter::once(usize::from(cpu)).chain(0..CPUS).find(may)
    }

    fn place(&mut self, thread: usize, but: Option<usize>) -> Placed {
        self.threads[thread].state = State::Ready;
        if let Some(cpu) = self.idle_for(thread, but) {
            self.given[cpu] = Some(thread);
            return Placed::On(cpu);
        }
        // there is room for each thread
        let _ = self.queue.push(thread as u16);
        Placed::Queued
    }

    /// A thread that waits is ready from now on; `None` if it does not wait.
    pub fn ready(&mut self, thread: usize) -> Option<Placed> {
        (self.state(thread) == State::Waiting).then(|| self.place(thread, None))
    }

    /// The next thread of a CPU that has none.
    pub fn take(&mut self, cpu: usize) -> Option<usize> {
        let thread = self.given[cpu].take().or_else(|| self.unqueue(|all, t| all[t].mask >> cpu & 1 != 0))?;
        self.running[cpu] = Some(thread);
        let entry = &mut self.threads[thread];
        (entry.state, entry.cpu) = (State::Running(cpu as u8), cpu as u8);
        Some(thread)
    }

    /// Takes the first thread that is so out of the queue.
    fn unqueue(&mut self, so: impl Fn(&[Entry], usize) -> bool) -> Option<usize> {
        let at = self.queue.iter().position(|&t| so(&self.threads, t.into()))?;
        Some(self.queue.remove(at).into())
    }

    fn release(&mut self, cpu: usize, state: State) -> Option<usize> {
        let thread = self.running[cpu].take()?;
        self.threads[thread].state = state;
        Some(thread)
    }

    /// The thread of a CPU waits from now on.
    pub fn wait(&mut self, cpu: usize) -> Option<usize> {
        self.release(cpu, State::Waiting)
    }

    /// The thread of a CPU lets others run first.
    pub fn give_way(&mut self, cpu: usize) -> Option<Placed> {
        let thread = self.release(cpu, State::Ready)?;
        Some(self.place(thread, Some(cpu)))
    }

    /// The thread of a CPU ends.
    pub fn end(&mut self, cpu: usize) -> Option<usize> {
        self.release(cpu, State::Free)
    }

    /// Returns `true` if a thread in the queue may run on a CPU.
    pub fn crowded(&self, cpu: usize) -> bool {
        self.queue.iter().any(|&t| self.threads[usize::from(t)].mask >> cpu & 1 != 0)
    }

    /// Lets a thread run on these CPUs only; `None` if none of them is the process's. A thread that is ready gets a new
    /// place. The caller moves a thread that runs elsewhere.
    pub fn set_mask(&mut self, thread: usize, mask: u64) -> Option<Option<Placed>> {
        let mask = mask as u8 & self.cpus;
        if mask == 0 {
            return None;
        }
        self.threads[thread].mask = mask;
        if self.state(thread) != State::Ready {
            return Some(None);
        }
        match self.given.iter_mut().find(|given| **given == Some(thread)) {
            Some(given) => *given = None,
            None => drop(self.unqueue(|_, t| t == thread)),
        }
        Some(Some(self.place(thread, None)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::vec::Vec;

    use super::*;

    fn process(cpus: u8) -> Scheduler {
        let mut all = Scheduler::NEW;
        all.restart(cpus, THREADS);
        all
    }

    /// Each thread is in one place, and no CPU idles beside a thread that may run there.
    fn check(all: &Scheduler) {
        let queue: Vec<usize> = all.queue.iter().map(|&t| t.into()).collect();
        for thread in 0..THREADS {
            let running = (0..CPUS).filter(|&c| all.running(c) == Some(thread)).collect::<Vec<_>>();
            let given = all.given.iter().filter(|&&g| g == Some(thread)).count();
            let queued = queue.iter().filter(|&&t| t == thread).count();
            let places = match all.state(thread) {
                State::Free | State::Waiting => (0, 0),
                State::Ready => (0, 1),
                State::Running(cpu) => {
                    assert_eq!(running, [usize::from(cpu)]);
                    (1, 0)
                }
            };
            assert_eq!((running.len(), given + queued), places, "thread {thread}");
        }
        for cpu in (0..CPUS).filter(|c| all.cpus >> c & 1 != 0) {
            assert!(!(all.idles(cpu) && all.crowded(cpu)), "CPU {cpu} idles");
        }
        assert_eq!(all.alive(), (0..THREADS).filter(|&t| all.state(t) != State::Free).count());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Create(usize),
        Ready(usize),
        Wait(usize),
        GiveWay(usize),
        End(usize),
        Take(usize),
        Mask(usize, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (cpu, thread) = (0..CPUS, 0..12usize);
        prop_oneof![
            2 => thread.clone().prop_map(Step::Create),
            4 => thread.clone().prop_map(Step::Ready),
            2 => cpu.clone().prop_map(Step::Wait),
            2 => cpu.clone().prop_map(Step::GiveWay),
            1 => cpu.clone().prop_map(Step::End),
            4 => cpu.prop_map(Step::Take),
            1 => (thread, 0..16u64).prop_map(|(t, m)| Step::Mask(t, m)),
        ]
    }

    proptest! {
        #[test]
        fn no_thread_is_lost_or_runs_twice(cpus in 1..16u8, steps in prop::collection::vec(step(), 1..300)) {
            let mut all = process(cpus);
            all.limit = 12;
            for step in steps {
                // a CPU that loses its thread looks for another at once, as the kernel does
                let freed = match step {
                    Step::Create(parent) => {
                        if all.state(parent) != State::Free {
                            all.create(parent);
                        }
                        None
                    }
                    Step::Ready(thread) => {
                        let waited = all.state(thread) == State::Waiting;
                        prop_assert_eq!(all.ready(thread).is_some(), waited);
                        None
                    }
                    Step::Wait(cpu) => all.wait(cpu).map(|_| cpu),
                    Step::GiveWay(cpu) => all.give_way(cpu).map(|_| cpu),
                    Step::End(cpu) => all.end(cpu).map(|_| cpu),
                    Step::Take(cpu) => (all.running(cpu).is_none() && cpus >> cpu & 1 != 0).then_some(cpu),
                    Step::Mask(thread, mask) => {
                        if all.state(thread) != State::Free {
                            prop_assert_eq!(all.set_mask(thread, mask).is_some(), mask as u8 & cpus != 0);
                        }
                        // the CPU that was to take it looks for another one
                        (0..CPUS).find(|&c| cpus >> c & 1 != 0 && all.idles(c) && all.crowded(c))
                    }
                };
                if let Some(cpu) = freed {
                    let given = all.given[cpu].is_some();
                    let taken = all.take(cpu);
                    if let Some(thread) = taken {
                        prop_assert!(given || all.mask(thread) >> cpu & 1 != 0, "not where it may run");
                    }
                }
                check(&all);
            }
        }

        /// Threads that never wait have their turns one after another.
        #[test]
        fn threads_that_spin_take_turns(cpus in 1..16u8, threads in 1..20usize) {
            let mut all = process(cpus);
            let mut turns = vec![0; threads];
            for _ in 1..threads {
                all.create(0);
            }
            (0..threads).for_each(|t| assert!(all.ready(t).is_some()));
            let mine: Vec<usize> = (0..CPUS).filter(|c| cpus >> c & 1 != 0).collect();
            for _ in 0..threads * 10 {
                for &cpu in &mine {
                    if all.running(cpu).is_some() && all.crowded(cpu) {
                        all.give_way(cpu);
                    }
                    if all.running(cpu).is_none() {
                        all.take(cpu);
                    }
                    if let Some(thread) = all.running(cpu) {
                        turns[thread] += 1;
                    }
                }
                check(&all);
            }
            let (least, most) = (turns.iter().min().copied(), turns.iter().max().copied());
            prop_assert!(most <= least.map(|l| l + 10), "{turns:?}");
        }
    }

    #[test]
    fn a_thread_goes_to_its_own_cpu_and_else_to_an_idle_one() {
        let mut all = process(0b11);
        assert_eq!((all.ready(0), all.take(0)), (Some(Placed::On(0)), Some(0)));
        let second = all.create(0).expect("room");
        assert_eq!(all.ready(second), Some(Placed::On(1)));
        assert_eq!(all.take(1), Some(second));
        let third = all.create(0).expect("room");
        assert_eq!((all.ready(third), all.ready(third)), (Some(Placed::Queued), None));
        assert!(all.crowded(0) && all.crowded(1));
        all.wait(1);
        assert_eq!(all.take(1), Some(third));
        all.wait(1);
        assert_eq!((all.take(1), all.ready(third)), (None, Some(Placed::On(1))), "where it ran");
    }

    #[test]
    fn a_bound_thread_waits_for_its_cpu() {
        let mut all = process(0b11);
        all.ready(0);
        all.take(0);
        let bound = all.create(0).expect("room");
        assert_eq!(all.set_mask(bound, 1), Some(None));
        assert_eq!(all.ready(bound), Some(Placed::Queued));
        assert!(all.crowded(0) && !all.crowded(1));
        assert_eq!(all.take(1), None);
        assert_eq!(all.set_mask(bound, 2), Some(Some(Placed::On(1))));
        assert_eq!(all.set_mask(bound, 4), None, "no CPU of the process");
    }

    #[test]
    fn there_are_as_many_threads_as_there_may_be() {
        let mut all = process(1);
        assert_eq!((1..THREADS).filter_map(|_| all.create(0)).count(), THREADS - 1);
        assert_eq!((all.create(0), all.alive()), (None, THREADS));
        all.ready(7);
        all.take(0);
        assert_eq!(all.end(0), Some(7));
        assert_eq!(all.create(0), Some(7), "a number is used again");
        all.restart(1, 2);
        assert_eq!((all.create(0), all.create(0)), (Some(1), None));
    }
}
