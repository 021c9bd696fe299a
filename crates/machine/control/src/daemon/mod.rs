// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control daemon: one process for one machine, which decides and stores. What it has started goes on without it.

mod access;
mod allocation;
mod control;
mod counts;
mod deadline;
mod door;
mod drains;
mod extract;
mod input;
mod keeper;
mod local;
mod network;
mod operate;
mod outputs;
mod owner;
mod page;
mod partitions;
mod peer;
mod queue;
mod requests;
mod requeue;
mod rights;
mod routes;
mod serving;
mod status;
mod streams;
mod tokens;
mod unresponsive;
mod watch;

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use clap::Parser;
use colony_node::confinement::{Capability, confine};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::ControlError;
use crate::api::Severity;
use colony_control_api::folder::{LOCK, SOCKET, UP, check_length};
use control::Control;
use counts::Counts;
use network::Entrance;
use tokens::Tokens;

/// The control daemon of a machine of compute nodes
///
/// `colony machine up` starts it. It keeps its state in a folder and serves HTTP on the socket `api` there. Nodes and jobs go
/// on if it ends; started again, it finds them.
#[derive(Parser)]
#[command(
    name = "colony-control",
    version,
    after_help = "Example:
  colony-control --folder /var/lib/colony/machine"
)]
struct Args {
    /// Folder of the machine's database, its sockets and the output of its jobs
    #[arg(long, value_name = "FOLDER")]
    folder: PathBuf,
    /// End at once if the machine has been switched off
    #[arg(long)]
    if_up: bool,
}

/// Time for answers that are under way when the daemon ends.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Longest wait for the end of a daemon before this one.
const ENDING: Duration = Duration::from_secs(2);

/// The state that all connections share.
struct Shared {
    control: Arc<Control>,
    entrance: Entrance,
    tokens: Arc<Tokens>,
    /// Requests whose bodies are being read, by user.
    bodies: Arc<Counts<u32>>,
    /// Told when the machine has been switched off.
    over: Notify,
}

impl Shared {
    /// The machine is off: nobody comes in from the network any more.
    async fn close(&self) -> Result<(), ControlError> {
        self.entrance.close().await?;
        self.tokens.revoke_all()
    }
}

/// The capabilities of `colony-control`, if root runs it: those of the processes that it starts, and one of its own.
const CAPABILITIES: [Capability; 7] = [
    // of colony-partition
    Capability::CAP_CHOWN,
    Capability::CAP_KILL,
    Capability::CAP_SETGID,
    Capability::CAP_SETUID,
    Capability::CAP_SETPCAP,
    // of colony-partition; the daemon reads kept output, which is its user's
    Capability::CAP_DAC_READ_SEARCH,
    // the operator may choose port 443
    Capability::CAP_NET_BIND_SERVICE,
];

/// The `main` of the program `colony-control`.
#[must_use]
pub fn daemon_main() -> ExitCode {
    let args = Args::parse();
    // before there are other threads
    let warnings = confine(&CAPABILITIES);
    match run(args, warnings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("colony-control: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args, warnings: Vec<String>) -> Result<(), ControlError> {
    // what is made here is its owner's only; the socket is opened to others below
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    std::fs::create_dir_all(&args.folder).map_err(ControlError::io(args.folder.display().to_string()))?;
    let folder = std::path::absolute(&args.folder).map_err(ControlError::io("the folder"))?;
    check_length(&folder).map_err(|e| ControlError::Wrong(e.to_string()))?;
    let _lock = take(&folder)?;
    // the daemon that served the folder until now may have switched the machine off
    if args.if_up && !folder.join(UP).exists() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(ControlError::io("starting the daemon"))?;
    runtime.block_on(serve(folder, args.if_up, warnings))
}

/// Keeps other daemons from the folder, as long as this process lives. One that is about to end is waited for.
fn take(folder: &Path) -> Result<Flock<File>, ControlError> {
    let path = folder.join(LOCK);
    let file = File::options().write(true).create(true).truncate(false).open(&path);
    let mut file = file.map_err(ControlError::io(path.display().to_string()))?;
    let began = Instant::now();
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err(_) if began.elapsed() > ENDING => {
                return Err(ControlError::Served { folder: folder.display().to_string() });
            }
            Err((file, _)) => file,
        };
        std::thread::sleep(Duration::from_millis(5));
    }
}

async fn serve(folder: PathBuf, if_up: bool, warnings: Vec<String>) -> Result<(), ControlError> {
    let opened = folder.clone();
    let control = tokio::task::spawn_blocking(move || {
        let control = Control::open(opened)?;
        for warning in warnings {
            let text = format!("the control daemon is not confined: {warning}");
            control.report(Severity::Warning, "", "confinement", text, None);
        }
        control.adopt()?;
        control.forget_ended()?;
        control.count_outputs_beside()?;
        Ok::<_, ControlError>(control)
    })
    .await;
    let control = control.map_err(|e| ControlError::Fault(e.to_string()))??;
    // the allocation that the machine was a part of may have ended meanwhile
    if if_up && !folder.join(UP).exists() {
        return Ok(());
    }
    let path = folder.join(SOCKET);
    // a daemon before this one was killed: the lock says that it has ended
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(ControlError::io(path.display().to_string()))?;
    if geteuid().is_root() {
        open_to_all(&folder, &path)?;
    }
    let system = |e| ControlError::io("handling signals")(e);
    let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
    let shared = Arc::new(Shared {
        control,
        entrance: Entrance::new(folder.clone()),
        tokens: Arc::new(Tokens::open(folder.join("tokens"))),
        bodies: Arc::default(),
        over: Notify::new(),
    });
    if !folder.join(UP).exists() {
        // a daemon before this one was killed as it switched the machine off
        shared.close().await?;
    }
    if let Err(error) = shared.entrance.open_again(on_network(&shared)).await {
        let text = format!("the web page and the network have no port: {error}");
        shared.control.report(Severity::Error, "", "network", text, None);
    }
    tokio::spawn(watch::watch(shared.control.clone()));
    tokio::spawn(allocation::keep_end(shared.clone()));
    let routes = at_socket(&shared);
    let over = shared.clone();
    let end = async move {
        tokio::select! {
            () = over.over.notified() => true,
            _ = terminate.recv() => false,
            _ = interrupt.recv() => false,
        }
    };
    // connections that go on, of listeners to events, end with the process
    tokio::select! {
        () = local::serve(listener, routes) => {}
        is_off = end => {
            tokio::time::sleep(LAST_WORDS).await;
            if is_off {
                shared.close().await?;
            }
        }
    }
    let _ = std::fs::remove_file(&path);
    Ok(())
}

/// The routes at the local socket, where the kernel names the user.
fn at_socket(shared: &Arc<Shared>) -> Router {
    let interface = routes::all().merge(access::routes()).with_state(shared.clone());
    page::routes().merge(interface).layer(from_fn(door::local))
}

/// The routes on the network, where a token names the user.
fn on_network(shared: &Arc<Shared>) -> Router {
    let interface = routes::all().layer(from_fn_with_state(shared.clone(), door::token));
    page::routes().merge(interface.with_state(shared.clone())).layer(from_fn(door::network))
}

/// Lets all users of the host connect. What a user may do is decided by the user id that the kernel tells.
fn open_to_all(folder: &Path, socket: &Path) -> Result<(), ControlError> {
    let set = |path: &Path, mode| {
        let set = std::fs::set_permissions(path, Permissions::from_mode(mode));
        set.map_err(ControlError::io(path.display().to_string()))
    };
    // the database and the outputs inside are root's only
    set(folder, 0o711)?;
    set(socket, 0o666)
}
