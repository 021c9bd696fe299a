// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony top` on a pseudo-terminal, with keys.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use portable_pty::{CommandBuilder, PtySize, native_pty_system};

const ROWS: NonZero<u16> = NonZero::new(30).expect("not 0");
const COLUMNS: NonZero<u16> = NonZero::new(100).expect("not 0");

/// A command on a terminal.
struct Screen {
    parser: vt100::Parser,
    output: mpsc::Receiver<Vec<u8>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn portable_pty::Child + Send + Sync>,
}

impl Screen {
    fn start(args: &[&str]) -> Self {
        let size = PtySize { rows: ROWS.get(), cols: COLUMNS.get(), pixel_width: 0, pixel_height: 0 };
        let pty = native_pty_system().openpty(size).expect("a pseudo-terminal");
        let mut command = CommandBuilder::new(assert_cmd::cargo::cargo_bin!("colony"));
        command.args(args);
        command.env("TERM", "xterm-256color");
        let child = pty.slave.spawn_command(command).expect("starts");
        let mut reader = pty.master.try_clone_reader().expect("readable");
        let (send, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n) = reader.read(&mut buffer) {
                if n == 0 || send.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keys = pty.master.take_writer().expect("writable");
        // the terminal lives as long as the command
        std::mem::forget(pty.master);
        Self { parser: vt100::Parser::new(ROWS, COLUMNS, 0), output, keys, child }
    }

    /// Waits until the screen fulfils `wanted`; a minute is for machines under load.
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(100)) {
                self.parser.process(&bytes);
            }
            let text = self.parser.screen().contents();
            if wanted(&text) {
                return text;
            }
        }
        panic!("{what} was not seen on\n{}", self.parser.screen().contents());
    }

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).expect("the command reads keys");
        self.keys.flush().expect("the command reads keys");
    }
}

#[test]
fn it_shows_noise_pauses_and_quits_with_the_terminal_restored() {
    let mut screen = Screen::start(&["top", "--every", "100ms", "--cpus", &crate::common::last_cpu()]);
    let text = screen.until("a detour", |t| t.contains("by source") && t.contains(" %") && t.contains("µs"));
    assert!(text.contains("no windows in force"), "{text}");
    assert!(screen.parser.screen().alternate_screen());
    screen.press("p");
    screen.until("PAUSED", |t| t.contains("PAUSED"));
    screen.press("p");
    screen.until("going on", |t| !t.contains("PAUSED"));
    screen.press("q");
    let status = screen.child.wait().expect("ends");
    assert!(status.success(), "{status:?}");
    screen.until("the old screen", |t| !t.contains("by source"));
    assert!(!screen.parser.screen().alternate_screen());
}

#[test]
fn it_ends_by_itself_after_its_time() {
    let mut screen = Screen::start(&[
        "top",
        "--every",
        "100ms",
        "--duration",
        "500ms",
        "--cpus",
        &crate::common::last_cpu(),
    ]);
    assert!(screen.child.wait().expect("ends").success());
}
