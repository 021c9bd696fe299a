// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ciod`: the control and I/O daemon.

use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use colony_ciod::client::Client;
use colony_ciod::serve::{Ask, Service};
use colony_ciod::{Ciod, Config, IoNode, JobSpec};

/// The control and I/O daemon of an I/O node: starts jobs on compute nodes and does their system calls
#[derive(Parser)]
#[command(version)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve compute nodes, and a control system that connects to a socket
    Serve {
        /// Socket to which the control system connects
        #[arg(long)]
        socket: PathBuf,
        /// Number of compute nodes
        #[arg(long)]
        nodes: u32,
        /// Folder of the nodes' sockets, node-0 and so on: QEMU's -chardev socket,id=c,path=FOLDER/node-0
        #[arg(long)]
        folder: PathBuf,
        /// Memory of each node's processes, MiB: a power of two
        #[arg(long, default_value_t = 64)]
        memory: u64,
        /// Never sleep: the quickest replies, for a CPU on either side
        #[arg(long)]
        polled: bool,
    },
    /// Start a job by a daemon that serves, with these streams, and wait for it
    Launch {
        /// Socket on which the daemon listens
        #[arg(long)]
        socket: PathBuf,
        /// Numbers of the nodes
        #[arg(long, value_delimiter = ',', default_value = "0")]
        nodes: Vec<u32>,
        /// The job, in TOML
        job: PathBuf,
    },
    /// Say whether a job can run, without nodes
    Check {
        /// Number of nodes
        #[arg(long, default_value_t = 1)]
        nodes: u32,
        /// Memory of each node's processes, MiB
        #[arg(long, default_value_t = 64)]
        memory: u64,
        /// The job, in TOML
        job: PathBuf,
    },
    /// Serve the compute nodes behind this machine's network cards, as the owner of their partition orders
    IoNode {
        /// Nodes and cards, in JSON
        description: PathBuf,
    },
    /// The process that a daemon starts for each job
    #[command(hide = true)]
    Worker,
    /// The process that a daemon starts for each node that it reaches over a network
    #[command(hide = true)]
    Proxy,
    /// The process that a daemon starts for each job on a Linux I/O node
    #[command(hide = true)]
    Relay,
}

type Outcome = Result<ExitCode, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Worker => return colony_ciod::worker_main(),
        Command::Proxy => return colony_ciod::proxy_main(),
        Command::Relay => return colony_ciod::relay_main(),
        Command::Serve { socket, nodes, folder, memory, polled } => {
            serve(&socket, nodes, folder, memory, polled)
        }
        Command::Launch { socket, nodes, job } => launch(&socket, nodes, &job),
        Command::IoNode { description } => io_node(&description),
        Command::Check { nodes, memory, job } => check(nodes, memory, &job),
    };
    done.unwrap_or_else(|e| {
        eprintln!("error: {e}");
        ExitCode::FAILURE
    })
}

fn serve(socket: &std::path::Path, nodes: u32, folder: PathBuf, memory: u64, polled: bool) -> Outcome {
    colony_node::descriptor::raise_limit();
    let config = Config::new(std::env::current_exe()?);
    let config = if polled { config.polled() } else { config };
    let window = memory.checked_mul(1 << 20).ok_or("so much memory has no node")?;
    let service = Service::new(Ciod::new(config)?, nodes, window, folder)?;
    service.run(socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn io_node(description: &std::path::Path) -> Outcome {
    colony_node::descriptor::raise_limit();
    IoNode::read(description)?.run(Config::new(std::env::current_exe()?))?;
    Ok(ExitCode::SUCCESS)
}

fn read(job: &std::path::Path) -> Result<JobSpec, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(job).map_err(|e| format!("{}: {e}", job.display()))?;
    JobSpec::from_toml(&text).map_err(|e| format!("{}: {e}", job.display()).into())
}

fn launch(socket: &std::path::Path, nodes: Vec<u32>, job: &std::path::Path) -> Outcome {
    let spec = Box::new(read(job)?);
    let mut client = Client::connect(socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let answer =
        client.ask(&Ask::Launch { spec, nodes }, &[stdin.as_fd(), stdout.as_fd(), stderr.as_fd()])?;
    let job = answer["job"].as_u64().ok_or("the daemon says no number")?;
    let answer = client.ask(&Ask::Wait { job }, &[])?;
    eprint!("{}", answer["text"].as_str().unwrap_or_default());
    let code = answer["code"].as_u64().and_then(|c| u8::try_from(c).ok()).unwrap_or(1);
    Ok(ExitCode::from(code))
}

fn check(nodes: u32, memory: u64, job: &std::path::Path) -> Outcome {
    let spec = read(job)?;
    let window = memory.checked_mul(1 << 20).ok_or("so much memory has no node")?;
    print!("{}", colony_ciod::check(&spec, nodes, window)?);
    Ok(ExitCode::SUCCESS)
}
