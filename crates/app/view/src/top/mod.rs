// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony top`: the node's noise while it happens.
//!
//! `state` adds up what the measurement shows, `draw` puts it on the screen, and this loop listens to
//! the keyboard. The terminal is put back however the loop ends.

mod draw;
mod state;

use std::io;
use std::time::{Duration, Instant};

use colony_client::StatsReport;
use colony_measure::Live;
use colony_time::Windows;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

pub use state::State;

/// Settings of `colony top`.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Time between two frames.
    pub every: Duration,
    /// End by itself after this long; `None`: when asked to.
    pub duration: Option<Duration>,
}

/// Shows `live` until `q`, Escape, Ctrl-C or the end of the time. `windows` says which windows are in
/// force, if any.
///
/// # Errors
/// The terminal's.
pub fn run(
    live: &mut Live,
    options: Options,
    mut windows: impl FnMut() -> Option<InForce>,
) -> io::Result<()> {
    // restored by `ratatui::restore` here, and by its hook on a panic
    let mut terminal = ratatui::try_init()?;
    let mut state = State::new(live.not_attributed());
    let start = Instant::now();
    let mut next = start + options.every;
    let result = loop {
        if let Err(e) = terminal.draw(|f| draw::draw(f, &state)) {
            break Err(e);
        }
        let over = options.duration.is_some_and(|d| start.elapsed() >= d);
        match wait_for_key(next) {
            Err(e) => break Err(e),
            Ok(Some(Key::Quit)) => break Ok(()),
            Ok(Some(Key::Pause)) => state.paused = !state.paused,
            Ok(Some(Key::Reset)) => state.reset(),
            Ok(None) if over || !live.is_running() => break Ok(()),
            Ok(None) => {
                next = Instant::now() + options.every;
                let now = windows();
                let frame = live.next_frame(now.as_ref().map(|w| &w.windows));
                state.add(&frame, now);
            }
        }
    };
    ratatui::restore();
    result
}

/// Windows that somebody keeps on this node.
#[derive(Clone, Debug)]
pub struct InForce {
    /// The windows, on this node's clock.
    pub windows: Windows,
    /// State of the coordination with other nodes, in a word or two.
    pub coordinated: String,
    /// Backend that enforces the windows, and its counters.
    pub stats: StatsReport,
}

enum Key {
    Quit,
    Pause,
    Reset,
}

/// The next key that means something, or `None` at `until`.
fn wait_for_key(until: Instant) -> io::Result<Option<Key>> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if !event::poll(left)? {
            return Ok(None);
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind == KeyEventKind::Release {
            continue;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Ok(Some(Key::Quit)),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Ok(Some(Key::Quit));
            }
            KeyCode::Char('p' | ' ') => return Ok(Some(Key::Pause)),
            KeyCode::Char('r') => return Ok(Some(Key::Reset)),
            _ => {}
        }
    }
}
