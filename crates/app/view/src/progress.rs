// SPDX-License-Identifier: MIT OR Apache-2.0
//! Progress bars on standard error, where that is a terminal.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar over a known time.
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar that says `what` and fills over `total`; none for less than two seconds.
    #[must_use]
    pub fn over(what: &str, total: Duration) -> Self {
        if total < Duration::from_secs(2) {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(total.as_millis() as u64);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// A bar over so many steps, shown from the start.
    #[must_use]
    pub fn steps(what: &str, steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {elapsed:>4}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// A bar over so many steps of work; none for work of less than two seconds.
    #[must_use]
    pub fn steps_of_work(what: &str, steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{msg}{prefix} {wide_bar} {pos}/{len} {elapsed:>4}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(what.to_owned());
        let later = bar.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(2));
            if !later.is_finished() {
                later.set_draw_target(ProgressDrawTarget::stderr());
                later.enable_steady_tick(Duration::from_millis(500));
            }
        });
        Self(bar)
    }

    /// A sign of life for work of unknown length, after two seconds.
    #[must_use]
    pub fn busy(what: &str) -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// One step more.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// So many steps more.
    pub fn steps_more(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Shows `lines` above a bar of work, in place of those shown before.
    pub fn show(&self, lines: &str) {
        self.0.set_message(format!("{}\n", lines.trim_end()));
    }

    /// Fills the bar to `elapsed`.
    pub fn at(&self, elapsed: Duration) {
        self.0.set_position(elapsed.as_millis() as u64);
    }

    /// The bar with a thread that fills it as time goes by.
    #[must_use]
    pub fn ticking(self) -> Ticking {
        let bar = self.0.clone();
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Acquire) {
                bar.set_position(start.elapsed().as_millis() as u64);
                std::thread::park_timeout(Duration::from_millis(200));
            }
        });
        Ticking { over, thread: Some(thread), _bar: self }
    }
}

/// A bar that fills by itself until it is dropped.
pub struct Ticking {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _bar: Progress,
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // it cannot fail: it only draws
            let _ = thread.join();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
