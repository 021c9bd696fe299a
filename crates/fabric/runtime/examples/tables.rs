// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of the runtime's tables, in one process: `tables [pairs OBJECTS ROUNDS | tasks TASKS]`.
//!
//! `pairs`: in each round, every object sends a message to every other one, one sender after the other. `tasks`: an object inserts
//! elements that send it a message and call `remove`, 16 at a time. Prints the bytes that are allocated at the end beyond those at the
//! beginning, and the time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::Instant;

use colony_runtime::{Array, Context, Entry, Object, Options, Program, Quiet};
use serde::{Deserialize, Serialize};

/// Counts the bytes that are allocated.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all calls are passed on to the system's allocator unchanged; the counter has no part in them.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size().cast_signed(), Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What is measured, and what was there when it began.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Measured {
    name: [char; 4],
    count: u64,
    /// Messages of the runtime's users.
    steps: u64,
    allocated: i64,
    #[serde(skip)]
    began: Option<Instant>,
}

impl Measured {
    fn begin(name: &str, count: u64, steps: u64) -> Self {
        let mut letters = name.chars();
        let name = std::array::from_fn(|_| letters.next().unwrap_or(' '));
        let allocated = ALLOCATED.load(Ordering::Relaxed) as i64;
        Self { name, count, steps, allocated, began: Some(Instant::now()) }
    }

    fn print(&self) {
        let bytes = ALLOCATED.load(Ordering::Relaxed) as i64 - self.allocated;
        let name: String = self.name.iter().collect();
        let ns = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64() * 1e9);
        let [each, each_ns] = [bytes as f64 / self.count as f64, ns / self.steps as f64];
        println!("{} of {name}: {each:.0} bytes each", self.count);
        eprintln!("{each_ns:.0} ns for each of {} messages or tasks", self.steps);
    }
}

/// One of the objects of `pairs`.
#[derive(Serialize, Deserialize)]
struct Peer {
    objects: i64,
    rounds: u32,
    measured: Measured,
}

/// The receiver's turn to send has come, for the last time if 0 rounds are left.
#[derive(Serialize, Deserialize)]
struct Turn(u32);
#[derive(Serialize, Deserialize)]
struct Word;

impl Object for Peer {
    type Index = i64;
    type Init = (i64, u32, Measured);

    fn new((objects, rounds, measured): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        if cx.index() == 0 {
            cx.send(cx.this(), Turn(rounds));
        }
        let began = Some(Instant::now());
        Self { objects, rounds, measured: Measured { began, ..measured } }
    }
}

impl Entry<Turn> for Peer {
    fn call(&mut self, Turn(left): Turn, cx: &mut Context<'_, Self>) {
        if left == 0 {
            return cx.when_quiet(cx.this());
        }
        let this = cx.index();
        for to in (0..self.objects).filter(|&to| to != this) {
            cx.send(cx.array().at(to), Word);
        }
        let next = (cx.index() + 1) % self.objects;
        cx.send(cx.array().at(next), Turn(left - u32::from(next == 0)));
    }
}

impl Entry<Word> for Peer {
    fn call(&mut self, _: Word, _: &mut Context<'_, Self>) {}
}

impl Entry<Quiet> for Peer {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        self.measured.print();
        cx.exit(0);
    }
}

/// Inserts the elements of `tasks`.
#[derive(Serialize, Deserialize)]
struct Parent {
    tasks: Array<Task>,
    next: i64,
    ended: i64,
    last: i64,
    measured: Measured,
}

#[derive(Serialize, Deserialize)]
struct Ended;

impl Parent {
    fn insert(&mut self, cx: &mut Context<'_, Self>) {
        if self.next < self.last {
            let parent = cx.this();
            cx.insert(self.tasks.at(self.next), ());
            cx.send(self.tasks.at(self.next), Work(parent));
            self.next += 1;
        }
    }
}

impl Object for Parent {
    type Index = i64;
    type Init = (Array<Task>, i64, Measured);

    fn new((tasks, last, measured): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let measured = Measured { began: Some(Instant::now()), ..measured };
        let mut parent = Self { tasks, next: 0, ended: 0, last, measured };
        (0..16).for_each(|_| parent.insert(cx));
        parent
    }
}

impl Entry<Ended> for Parent {
    fn call(&mut self, _: Ended, cx: &mut Context<'_, Self>) {
        self.ended += 1;
        if self.ended == self.last {
            return cx.when_quiet(cx.this());
        }
        self.insert(cx);
    }
}

impl Entry<Quiet> for Parent {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        self.measured.print();
        cx.exit(0);
    }
}

#[derive(Serialize, Deserialize)]
struct Task;

#[derive(Serialize, Deserialize)]
struct Work(colony_runtime::Element<Parent>);

impl Object for Task {
    type Index = i64;
    type Init = ();

    fn new((): (), _: &mut Context<'_, Self>) -> Self {
        Self
    }
}

impl Entry<Work> for Task {
    fn call(&mut self, Work(parent): Work, cx: &mut Context<'_, Self>) {
        cx.send(parent, Ended);
        cx.remove();
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| match words.get(at).map(|word| (word, word.parse::<u32>())) {
        None => Ok(default),
        Some((_, Ok(number))) if number > 1 => Ok(number),
        Some((word, _)) => Err(format!("`{word}` is not a number from 2 on")),
    };
    let (mode, numbers) = (words.first().map(String::as_str), (number(1, 1000), number(2, 2)));
    let (Some("pairs" | "tasks"), (Ok(count), Ok(rounds))) = (mode, numbers) else {
        eprintln!("error: usage: tables pairs OBJECTS ROUNDS | tasks TASKS, with numbers from 2 on");
        return ExitCode::from(2);
    };
    let is_tasks = mode == Some("tasks");
    let program = Program::new()
        .class::<Peer>(|c| c.entry::<Turn>().entry::<Word>().entry::<Quiet>())
        .class::<Parent>(|c| c.entry::<Ended>().entry::<Quiet>())
        .class::<Task>(|c| c.entry::<Work>());
    colony_runtime::main(program, &Options::default(), move |cx| {
        if is_tasks {
            let tasks = cx.create_sparse::<Task>(());
            let measured = Measured::begin("task", count.into(), count.into());
            cx.create_one::<Parent>((tasks, count.into(), measured));
        } else {
            let pairs = u64::from(count) * u64::from(count - 1);
            let measured = Measured::begin("pair", pairs, pairs * u64::from(rounds));
            cx.create_array::<Peer>(&[count], (count.into(), rounds, measured));
        }
    })
}
