// SPDX-License-Identifier: MIT OR Apache-2.0
//! A token goes round a ring of objects, one on each PE: `ring [ROUNDS]`. Prints the time of one hop. With `--fail PE`,
//! the object on that PE panics on the way; with `--leave PE`, its process ends there with the exit code of `--code CODE`; with
//! `--spin PE`, the object on that PE computes for ever; with `--stay`, the program does not end by itself.

use std::process::ExitCode;
use std::time::Instant;

use colony_runtime::{Context, Entry, Object, Options, Program};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Node {
    rounds: u32,
    fail: Option<u32>,
    leave: Option<u32>,
    code: u32,
    stay: bool,
    #[serde(skip)]
    began: Option<Instant>,
}

#[derive(Serialize, Deserialize)]
struct Token(u32);

impl Object for Node {
    type Index = i64;
    type Init = (u32, [Option<u32>; 3], u32, bool);

    fn new((rounds, [fail, leave, spin], code, stay): Self::Init, cx: &mut Context<'_, Self>) -> Self {
        while spin == Some(cx.pe()) {
            std::hint::spin_loop();
        }
        Self { rounds, fail, leave, code, stay, began: None }
    }
}

impl Entry<Token> for Node {
    fn call(&mut self, Token(round): Token, cx: &mut Context<'_, Self>) {
        if self.fail == Some(cx.pe()) && round > 0 {
            panic!("PE {} fails, as asked", cx.pe());
        }
        if self.leave == Some(cx.pe()) && round > 0 {
            std::process::exit(self.code.cast_signed());
        }
        let mut next = round;
        if cx.index() == 0 {
            let began = *self.began.get_or_insert_with(Instant::now);
            next += 1;
            if next > self.rounds && !self.stay {
                let hops = f64::from(self.rounds) * f64::from(cx.pes());
                println!("{} rounds over {} PEs", self.rounds, cx.pes());
                eprintln!("{:.3} us a hop", began.elapsed().as_secs_f64() * 1e6 / hops);
                return cx.exit(0);
            }
        }
        let to = (cx.index() + 1) % i64::from(cx.pes());
        cx.send(cx.array().at(to), Token(next));
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number =
        |option: &str| words.iter().position(|w| w == option).and_then(|at| words.get(at + 1)?.parse().ok());
    let pes = [number("--fail"), number("--leave"), number("--spin")];
    let code = number("--code").unwrap_or(0);
    let stay = words.iter().any(|w| w == "--stay");
    let rounds = words.first().and_then(|w| w.parse().ok()).unwrap_or(1000);
    let threads = std::env::var("THREADS").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let program = Program::new().class::<Node>(|c| c.entry::<Token>());
    colony_runtime::main(program, &Options { threads, ..Options::default() }, move |cx| {
        let ring = cx.create_group::<Node>((rounds, pes, code, stay));
        cx.send(ring.at(0), Token(0));
    })
}
