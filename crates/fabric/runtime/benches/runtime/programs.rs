// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programs that are measured.

use std::process::ExitCode;
use std::time::Instant;

use colony_runtime::transport::Single;
use colony_runtime::{Context, Entry, Object, Options, Program, Quiet, run_on};
use serde::{Deserialize, Serialize};

/// Two objects that send each other a message; the first one keeps the time.
#[derive(Serialize, Deserialize)]
struct Pair {
    series: u32,
    rounds: u32,
    left: u32,
    #[serde(skip)]
    began: Option<Instant>,
}

#[derive(Serialize, Deserialize)]
struct Ping;

impl Object for Pair {
    type Index = i64;
    type Init = (u32, u32);

    fn new((series, rounds): Self::Init, _: &mut Context<'_, Self>) -> Self {
        Self { series, rounds, left: rounds, began: None }
    }
}

impl Entry<Ping> for Pair {
    fn call(&mut self, _: Ping, cx: &mut Context<'_, Self>) {
        if cx.index() == 0 {
            let began = *self.began.get_or_insert_with(Instant::now);
            if self.left == 0 {
                println!("{:.1}", began.elapsed().as_secs_f64() * 1e9 / f64::from(self.rounds));
                self.series -= 1;
                if self.series == 0 {
                    return cx.exit(0);
                }
                self.left = self.rounds;
                self.began = Some(Instant::now());
            }
            self.left -= 1;
        }
        cx.send(cx.array().at(1 - cx.index()), Ping);
    }
}

/// Prints the nanoseconds of a round trip for each of some series, between PEs if there are two.
pub(crate) fn round_trips(threads: u32, series: u32, rounds: u32) -> ExitCode {
    let program = Program::new().class::<Pair>(|c| c.entry::<Ping>());
    colony_runtime::main(program, &Options { threads, ..Options::default() }, move |cx| {
        let pair = cx.create_array::<Pair>(&[2], (series, rounds));
        cx.send(pair.at(0), Ping);
    })
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
        println!("{:.1}", (resident() - before) as f64 / objects as f64);
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

/// Prints the bytes that the process takes for each of as many objects of 8 bytes.
pub(crate) fn memory(objects: u32) -> ExitCode {
    let program = Program::new().class::<Small>(|c| c).class::<End>(|c| c.entry::<Quiet>());
    let ran = run_on(program, &Options::default(), Box::new(Single), move |cx| {
        let before = resident();
        cx.create_array::<Small>(&[objects, 1, 1], ());
        cx.create_one::<End>((before, u64::from(objects)));
    });
    match ran {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
