// SPDX-License-Identifier: MIT OR Apache-2.0
//! The daemon's life, from mount to unmount.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use colony_node::privilege::Privileges;
use colony_sched::backend::BackendChoice;
use colony_sched::ext::support;
use colony_time::clock::Clock;
use colony_time::text;
use fuser::{Session, SessionACL};
use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::clock::EVERY;
use crate::config::Checked;
use crate::event::Event;
use crate::guard::Guard;
use crate::health::{self, HealthFile};
use crate::metrics::{self, ListenError, Listening};
use crate::mount::{MountError, Place};
use crate::notify::notify;
use crate::privileges;
use crate::scheduler::make_room;
use crate::service::Service;
use crate::tree::Tree;

/// Interval at which the daemon checks for the end of the job, while there is one.
const LOOK_FOR_END: Duration = Duration::from_millis(500);

/// The error with which the daemon did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The privileges are missing.
    #[error(
        "colonyd needs root, or CAP_SYS_ADMIN (to mount its files) and CAP_SYS_NICE (to schedule jobs); \
         missing here: {0}"
    )]
    Privileges(&'static str),
    /// The tree could not appear.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The metrics cannot be served at the configured place.
    #[error(transparent)]
    Metrics(#[from] ListenError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Privileges could not be given up.
    #[error("cannot give up privileges: {0}")]
    Drop(String),
    /// Another program unmounted the tree.
    #[error(
        "somebody unmounted the files of colonyd, so it ends; tasks of the job are in their own class again"
    )]
    Unmounted,
    /// The guard ended, so nobody would clean up after a crash.
    #[error("the guard of the mount is gone, so colonyd ends; start it again")]
    GuardGone,
}

/// Runs the daemon until a signal (`SIGTERM`, `SIGINT`, `SIGHUP`) ends it; tasks are back in their own class and
/// the tree is gone when this returns. Call it from a process that has no other threads.
///
/// # Errors
/// [`DaemonError`] where it cannot start, or ended for another reason than a signal.
pub fn serve(config: &Checked) -> Result<(), DaemonError> {
    check_privileges()?;
    let system = |what| move |source: io::Error| DaemonError::System { what, source };
    // blocked before any thread starts, so that only the one that waits for them gets them
    let signals = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]);
    signals.thread_block().map_err(|e| system("blocking signals")(e.into()))?;
    let place = Place::take(&config.mount)?;
    let (guard, asked) = match guarded(config, &place) {
        Ok(both) => both,
        Err(e) => {
            place.give_up();
            return Err(e);
        }
    };
    // what goes with this function's end is the file: nobody finds a socket where nobody answers
    let (listener, _socket) = asked.map(|a| (a.listener, a.file)).unzip();
    let (events, told) = mpsc::channel();
    let teller = guard.teller().map_err(system("speaking to the guard"))?;
    let service = Arc::new(Service::new(config, events.clone(), Some(teller)));
    let session = place.mount().map_err(DaemonError::from).and_then(|device| {
        let mut session = fuser::Config::default();
        session.acl = SessionACL::All;
        Session::from_fd(Tree::new(Arc::clone(&service)), device, SessionACL::All, session)
            .map_err(system("greeting the kernel's FUSE"))
    });
    let ended = session.and_then(|session| {
        // unmounting is the guard's; scheduling takes less
        privileges::allow_locked_memory();
        let in_kernel = config.backend != BackendChoice::Agent && support::exists();
        privileges::keep_only(&privileges::to_schedule(in_kernel))
            .map_err(|e| DaemonError::Drop(e.to_string()))?;
        if let Err(e) = make_room(&config.cpus) {
            tracing::warn!("the files may answer late while a job runs: {e}");
        }
        listen(session, signals, &guard, &events).map_err(system("starting threads"))?;
        mind_the_clock(&service).map_err(system("minding the clock"))?;
        if let Some(listener) = listener {
            let service = Arc::clone(&service);
            metrics::answer(listener, move || service.metrics())
                .map_err(system("starting to answer monitors"))?;
        }
        // ends, and removes its file, when nothing else is to be served
        let _watching = health::start(&config.health, HealthFile::beside(&config.mount))
            .map_err(system("watching the health of the node"))?;
        service.rejoin();
        announce(config, &place);
        wait(&service, &told)
    });
    service.scheduler().close();
    let _ = notify("STOPPING=1");
    // the guard removes the directory only when nobody holds it
    drop(place);
    let unmounted = match ended {
        Err(DaemonError::GuardGone) => Ok(()),
        _ => guard.unmount().map_err(system("unmounting")),
    };
    ended.and(unmounted)
}

/// Starts the guard, and opens the place where monitors ask while the daemon has its privileges.
fn guarded(config: &Checked, place: &Place) -> Result<(Guard, Option<Listening>), DaemonError> {
    let asked = config.metrics.as_ref().map(Listening::open).transpose()?;
    let started = Guard::start(place).and_then(|guard| {
        asked.iter().filter_map(|a| a.file.as_ref()).try_for_each(|file| guard.socket(file.file()))?;
        Ok(guard)
    });
    let guard =
        started.map_err(|source| DaemonError::System { what: "starting the guard of the mount", source })?;
    Ok((guard, asked))
}

fn check_privileges() -> Result<(), DaemonError> {
    match Privileges::here() {
        Privileges { mount: false, .. } => Err(DaemonError::Privileges("CAP_SYS_ADMIN")),
        Privileges { real_time: false, .. } => Err(DaemonError::Privileges("CAP_SYS_NICE")),
        _ => Ok(()),
    }
}

/// Starts the threads that wait: for the kernel's questions, for signals, for the guard's end.
fn listen(session: Session<Tree>, signals: SigSet, guard: &Guard, events: &Sender<Event>) -> io::Result<()> {
    let spawn = |name: &str, wait: Box<dyn FnOnce() -> Event + Send>| {
        let events = events.clone();
        let work = move || drop(events.send(wait()));
        std::thread::Builder::new().name(name.into()).spawn(work).map(drop)
    };
    let gone = guard.watch()?;
    spawn(
        "colonyd-guard",
        Box::new(move || {
            gone();
            Event::GuardGone
        }),
    )?;
    spawn(
        "colonyd-signal",
        Box::new(move || Event::Signal(signals.wait().map_or("a signal", Signal::as_str))),
    )?;
    spawn(
        "colonyd-files",
        Box::new(move || {
            if let Err(e) = session.run() {
                tracing::error!("the files cannot be served any more: {e}");
            }
            Event::Unmounted
        }),
    )
}

/// Starts the thread that judges the clock every second, and immediately when the clock is set.
fn mind_the_clock(service: &Arc<Service>) -> io::Result<()> {
    let timer = TimerFd::new(ClockId::CLOCK_REALTIME, TimerFlags::TFD_CLOEXEC)?;
    let service = Arc::clone(service);
    let mind = move || {
        let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
        loop {
            let at = Duration::from_nanos(Clock::Realtime.now_ns().max(0).unsigned_abs()) + EVERY;
            let armed = timer.set(Expiration::OneShot(TimeSpec::from_duration(at)), flags);
            // cancelled: the clock was set, which is what this is for
            if armed.is_err() || timer.wait().is_err_and(|e| e != Errno::ECANCELED) {
                std::thread::sleep(EVERY);
            }
            service.ask_and_judge_clock();
        }
    };
    std::thread::Builder::new().name("colonyd-clock".into()).spawn(mind).map(drop)
}

fn announce(config: &Checked, place: &Place) {
    let windows = config.setting.windows();
    let path = place.path().display();
    tracing::info!(
        "files at {path}; period {}, duty cycle {}, CPU {} for jobs",
        text::Ns(windows.period_ns()),
        config.setting.duty(),
        config.cpus,
    );
    if colony_time::clock::tai_offset_s() == 0 {
        tracing::warn!(
            "nobody told the kernel the offset of TAI (an NTP or PTP daemon does): windows are counted in UTC, \
             and agree only with nodes that do the same"
        );
    }
    if let Err(e) = notify(&format!("READY=1\nSTATUS=files at {path}")) {
        tracing::warn!("cannot tell the service manager: {e}");
    }
}

/// Waits for the end; while a job runs, looks whether it has ended.
fn wait(service: &Service, told: &Receiver<Event>) -> Result<(), DaemonError> {
    let mut active = false;
    loop {
        let event = if active {
            told.recv_timeout(LOOK_FOR_END)
        } else {
            told.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match event {
            Ok(Event::Joined) => active = true,
            Err(RecvTimeoutError::Timeout) => active = service.scheduler().retire(),
            Ok(Event::Signal(name)) => {
                tracing::info!("{name}: colonyd ends");
                return Ok(());
            }
            Ok(Event::Unmounted) | Err(RecvTimeoutError::Disconnected) => return Err(DaemonError::Unmounted),
            Ok(Event::GuardGone) => return Err(DaemonError::GuardGone),
        }
    }
}
