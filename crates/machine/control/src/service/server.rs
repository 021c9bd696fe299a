// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process of a partition service: its socket, its threads, its end.

use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::nodes::Nodes;
use super::protocol::{Answer, Ask, Lines, Setup};
use super::{boot, jobs};
use crate::api::Severity;

/// Period at which a connection that listens looks whether the service ends.
const LISTEN: Duration = Duration::from_millis(500);

/// The reason why a service does not start.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    #[error("the one argument is a file that describes the partition; colony-control starts this program")]
    Usage,
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the description of the partition: {0}")]
    Setup(#[from] serde_json::Error),
    #[error("the control daemon ended before it had stored this service")]
    Abandoned,
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServiceError {
    let what = what.into();
    move |source| ServiceError::Io { what, source }
}

/// Serves until the daemon or a signal ends it. Then no node is left. `warnings` are reported as events.
pub(super) fn run(warnings: Vec<String>, argument: Option<OsString>) -> Result<(), ServiceError> {
    let path = argument.ok_or(ServiceError::Usage)?;
    let text = std::fs::read_to_string(&path).map_err(system(path.display().to_string()))?;
    let setup: Setup = serde_json::from_str(&text)?;
    // a byte says that the daemon has stored the number of this process, so that it is found again
    let mut go = [0];
    io::stdin().read_exact(&mut go).map_err(|_| ServiceError::Abandoned)?;
    // all that is made here is its owner's only
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    // a service before this one has ended: its socket is of no use
    let _ = std::fs::remove_file(&setup.socket);
    let listener = UnixListener::bind(&setup.socket).map_err(system(setup.socket.display().to_string()))?;
    let nodes = Nodes::new(setup.shape.nodes());
    for warning in warnings {
        let text = format!("the process of the partition is not confined: {warning}");
        nodes.ras((Severity::Warning, "confinement"), None, None, text);
    }
    end_by_signal(&nodes)?;
    let accepts = nodes.clone();
    std::thread::spawn(move || accept(&listener, &accepts));
    boot::keep(&setup, &nodes);
    while !nodes.wait_over(LISTEN) {}
    // the emulators end, and a worker with the job that it runs
    drop(nodes.partition().take());
    let _ = std::fs::remove_file(&setup.socket);
    Ok(())
}

fn end_by_signal(nodes: &Arc<Nodes>) -> Result<(), ServiceError> {
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP]);
    let mut signals = signals.map_err(system("handling signals"))?;
    let nodes = nodes.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            nodes.change(|state| state.is_over = true);
        }
    });
    Ok(())
}

fn accept(listener: &UnixListener, nodes: &Arc<Nodes>) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                let nodes = nodes.clone();
                // a daemon that hangs up connects again
                std::thread::spawn(move || drop(serve(stream, &nodes)));
            }
            // too many descriptors: some are closed in time
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn serve(stream: UnixStream, nodes: &Arc<Nodes>) -> io::Result<()> {
    let mut lines = Lines::new(stream);
    while let Some(ask) = lines.next()? {
        if let Ask::Listen { after } = ask {
            jobs::forget(nodes, after);
            nodes.change(|state| state.journal.listened(after));
            return tell(&lines, nodes, after);
        }
        let answer = match ask {
            Ask::Input { job, from, length, is_last } => {
                let part = lines.bytes(length)?;
                jobs::input(nodes, job, from, &part, is_last).map_or_else(Answer::Refused, Answer::Input)
            }
            ask => answer(ask, nodes),
        };
        lines.say(&answer)?;
    }
    Ok(())
}

/// Tells all news after this number, until the daemon hangs up or the service ends.
fn tell(lines: &Lines, nodes: &Nodes, mut after: u64) -> io::Result<()> {
    loop {
        if let Some(news) = nodes.next_after(after, LISTEN) {
            lines.say(&news)?;
            after = news.number;
        } else if nodes.state().is_over {
            return Ok(());
        }
    }
}

fn answer(ask: Ask, nodes: &Arc<Nodes>) -> Answer {
    let done = match ask {
        Ask::Status => return Answer::Status(nodes.status()),
        Ask::Launch { job, spec, stdout, stderr, block, sends_stdin, mark } => {
            jobs::launch(nodes, jobs::Launch { job, spec: *spec, stdout, stderr, block, sends_stdin, mark })
        }
        Ask::Mend { node } => {
            nodes.change(|state| state.mended.insert(node));
            Ok(())
        }
        Ask::Signal { job, signal } => jobs::signal(nodes, job, signal),
        Ask::Stored { news } => {
            jobs::forget(nodes, news);
            Ok(())
        }
        Ask::Shutdown => {
            nodes.change(|state| state.is_over = true);
            Ok(())
        }
        // these two have answers of their own
        Ask::Listen { .. } | Ask::Input { .. } => Ok(()),
    };
    done.map_or_else(Answer::Refused, |()| Answer::Done)
}
