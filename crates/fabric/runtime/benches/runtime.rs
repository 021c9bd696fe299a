// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runtime's targets in one process: time of an entry call, memory of an object. `-- 10000000` sets the number of
//! objects.

use std::time::Instant;

use colony_runtime::transport::Single;
use colony_runtime::{Context, Entry, Object, Options, Program, Quiet, run_on};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Pair {
    left: u64,
    calls: u64,
    #[serde(skip)]
    began: Option<Instant>,
}

#[derive(Serialize, Deserialize)]
struct Ping(u64);

impl Object for Pair {
    type Index = i64;
    type Init = u64;

    fn new(calls: u64, _: &mut Context<'_, Self>) -> Self {
        Self { left: calls, calls, began: None }
    }
}

impl Entry<Ping> for Pair {
    fn call(&mut self, Ping(value): Ping, cx: &mut Context<'_, Self>) {
        let began = *self.began.get_or_insert_with(Instant::now);
        if self.left == 0 {
            let ns = began.elapsed().as_secs_f64() * 1e9 / (2.0 * self.calls as f64);
            println!("entry call, object to object of one PE      {ns:9.1} ns    target 100 ns");
            return cx.exit(0);
        }
        self.left -= 1;
        cx.send(cx.array().at(1 - cx.index()), Ping(value + 1));
    }
}

#[derive(Serialize, Deserialize)]
struct Small(u64);

impl Object for Small {
    type Index = [i32; 3];
    type Init = ();

    fn new((): (), cx: &mut Context<'_, Self>) -> Self {
        Self(cx.index()[0] as u64)
    }
}

#[derive(Serialize, Deserialize)]
struct End;

impl Object for End {
    type Index = i64;
    type Init = (u64, u64);

    fn new((before, objects): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        let bytes = (resident() - before) as f64 / objects as f64;
        println!("memory of an object of 8 bytes, of {objects:9} {bytes:9.0} B     target 1000 B");
        cx.when_quiet(cx.this());
        Self
    }
}

impl Entry<Quiet> for End {
    fn call(&mut self, _: Quiet, cx: &mut Context<'_, Self>) {
        cx.exit(0);
    }
}

/// Resident bytes of this process.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|w| w.parse::<u64>().ok()).unwrap_or(0) * 4096
}

type Begin = Box<dyn FnOnce(&mut Context<'_, colony_runtime::Main>) + Send>;

fn main() {
    let objects: u32 = std::env::args().skip(1).find_map(|w| w.parse().ok()).unwrap_or(1_000_000);
    let program = || {
        Program::new()
            .class::<Pair>(|c| c.entry::<Ping>())
            .class::<Small>(|c| c)
            .class::<End>(|c| c.entry::<Quiet>())
    };
    let run = |begin: Begin| {
        if let Err(error) = run_on(program(), &Options::default(), Box::new(Single), begin) {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    run(Box::new(|cx| {
        let pair = cx.create_array::<Pair>(&[2], 2_000_000);
        cx.send(pair.at(0), Ping(0));
    }));
    run(Box::new(move |cx| {
        let before = resident();
        cx.create_array::<Small>(&[objects, 1, 1], ());
        cx.create_one::<End>((before, u64::from(objects)));
    }));
}
