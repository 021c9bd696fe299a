// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony job`.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use colony_control_api::Client;
use colony_control_api::api::{Job, JobRequest, JobState, ProgramOfRanks};
use colony_model::Shape;
use colony_view::control;

use crate::cmd::cnk::program::{ModeWord, environment, find, passing_signals};
use crate::cmd::control::{Target, partition};
use crate::cmd::input::{Input, pass_on};
use crate::cmd::parts::parts;
use crate::exit::wrong;
use crate::words::{Ns, ns};

/// Jobs of a machine: run a static program on all nodes of a partition
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Run(RunArgs),
    Submit(SubmitArgs),
    List(ListArgs),
    Show(ShowArgs),
    Output(OutputArgs),
    Cancel(CancelArgs),
}

/// Run a job, print its output as it comes, and wait for its end
///
/// The exit code is that of the first process that failed, or 255 if the machine has failed and not the job. Interrupts go to the program; the second one kills it. If this command
/// is killed, the job goes on. Standard input goes to rank 0, as far as its program reads it; a terminal is read with `--input -`
/// only.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony job run -- busybox uname -a
  colony job run --partition R00-M0 --mode coprocessor -- ./allreduce --iterations 1000
  colony job run --label --timeout 60s -- ./program
  zcat data.gz | colony job run --processes 1 -- ./program
  colony job run --output 'out.%r.txt' -- -n 1 ./master : -n 7 ./worker")]
struct RunArgs {
    #[command(flatten)]
    program: ProgramArgs,
}

/// Add a job to the queue of its partition, and print its number
#[derive(clap::Args)]
struct SubmitArgs {
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    program: ProgramArgs,
}

#[derive(clap::Args)]
struct ProgramArgs {
    /// The partition [default: the only one]
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// One process a node with all memory, or two with half of it each
    #[arg(long, value_enum, default_value_t)]
    mode: ModeWord,
    /// Number of processes [default: as many as the nodes hold]
    #[arg(long, value_name = "N")]
    processes: Option<u32>,
    /// Number of nodes [default: as many as the processes need, or all of the partition]
    #[arg(long, value_name = "N", conflicts_with = "shape")]
    nodes: Option<u32>,
    /// Extent of the nodes, in any orientation, instead of their number
    #[arg(long, value_name = "XxYxZ")]
    shape: Option<Shape>,
    /// User whose rights the job has (needs root) [default: the caller]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Folder that the processes start in [default: the current one]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
    /// Set a variable of the environment, or pass one on; no others but PATH and HOME are passed
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Put the number of the process before each line of output
    #[arg(long)]
    label: bool,
    /// File that is the standard input of rank 0, on the machine's host; `-`: that of `job run` [default: that of `job run`,
    /// unless it is a terminal]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Copy a file or folder into the Linux I/O nodes, at its own path
    #[arg(long, value_name = "PATH")]
    io_file: Vec<PathBuf>,
    /// File for standard output, one a rank if the name contains %r (the rank); %j is the number of the job
    #[arg(long, value_name = "FILE")]
    output: Option<String>,
    /// File for standard error, as for --output
    #[arg(long, value_name = "FILE")]
    error: Option<String>,
    /// Run the job again if the machine fails it after its ranks have begun. Standard input is not passed on
    #[arg(long)]
    requeue: bool,
    /// End the job after this long
    #[arg(long, value_parser = ns, value_name = "TIME")]
    timeout: Option<Ns>,
    /// The program and its arguments, looked for in PATH; or several: -n 2 A x : -n 6 B y
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

/// List jobs, the newest first
#[derive(clap::Args)]
struct ListArgs {
    /// Number of jobs
    #[arg(long, default_value_t = 20, value_name = "N")]
    limit: u32,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Show a job
#[derive(clap::Args)]
struct ShowArgs {
    /// Number of the job
    id: u64,
    /// Print JSON for programs
    #[arg(long)]
    json: bool,
}

/// Print the output of a job, until it has ended
#[derive(clap::Args)]
struct OutputArgs {
    /// Number of the job
    id: u64,
}

/// End a job
#[derive(clap::Args)]
struct CancelArgs {
    /// Number of the job
    id: u64,
    /// Signal that its processes get
    #[arg(long, default_value_t = 15, value_name = "NUMBER")]
    signal: i32,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.target.client()?;
    match args.what {
        What::Run(RunArgs { program }) => {
            let input = Input::new(program.input.as_deref(), !program.requeue)?;
            let job = client.submit(&request(&client, &program, &input)?)?;
            if input == Input::Own {
                let (sender, id) = (client.again()?, job.id);
                // it ends with this process: a job that has ended reads nothing
                std::thread::spawn(move || pass_on(&sender, id));
            }
            return wait(&client, &job);
        }
        What::Submit(SubmitArgs { json, program }) => {
            let input = Input::new(program.input.as_deref(), false)?;
            let job = client.submit(&request(&client, &program, &input)?)?;
            crate::cmd::print(json, &job, |job| format!("{}\n", job.id))?;
        }
        What::List(ListArgs { limit, json }) => {
            crate::cmd::print(json, &client.jobs(limit)?, |jobs| control::jobs(jobs))?;
        }
        What::Show(ShowArgs { id, json }) => crate::cmd::print(json, &client.job(id)?, control::job)?,
        What::Output(OutputArgs { id }) => client.follow(id, io::stdout(), io::stderr())?,
        What::Cancel(CancelArgs { id, signal }) => client.signal(id, signal)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A program on the machine's host: looked for in PATH if this is that host.
fn file(client: &Client, program: &str) -> anyhow::Result<PathBuf> {
    if client.socket().is_some() {
        return Ok(find(program, false)?);
    }
    if program.starts_with('/') {
        return Ok(program.into());
    }
    Err(wrong(format!("`{program}` is a program of the machine's host: give its absolute path there")))
}

/// The folder in which the processes start.
fn folder(client: &Client, args: &ProgramArgs) -> anyhow::Result<PathBuf> {
    match &args.dir {
        Some(folder) if client.socket().is_some() => {
            std::path::absolute(folder).context("the folder of the job")
        }
        Some(folder) if folder.is_absolute() => Ok(folder.clone()),
        Some(_) => Err(wrong("--dir is a folder of the machine's host: give its absolute path there")),
        None if client.socket().is_some() => std::env::current_dir().context("the current folder"),
        None => Ok("/".into()),
    }
}

/// The variables of the job. `PATH` and `HOME` of this host mean nothing on another one.
fn variables(client: &Client, words: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let mut all = environment(words)?;
    if client.socket().is_none() {
        let is_named = |name: &String| words.iter().any(|word| word.split('=').next() == Some(name));
        all.retain(|name, _| !matches!(name.as_str(), "PATH" | "HOME") || is_named(name));
    }
    Ok(all)
}

fn request(client: &Client, args: &ProgramArgs, input: &Input) -> anyhow::Result<JobRequest> {
    let parts = parts(&args.command)?;
    let (first, others) = parts.split_first().context("no program")?;
    let mut processes = first.processes;
    let mut programs = Vec::new();
    for part in others {
        let (before, own) = (processes.unwrap_or(0), part.processes.unwrap_or(0));
        let all = before.checked_add(own).ok_or_else(|| wrong("too many processes"))?;
        let (executable, arguments) = (file(client, &part.program)?, part.arguments.clone());
        programs.push(ProgramOfRanks { first: before, last: all - 1, executable, arguments });
        processes = Some(all);
    }
    if processes.is_some() && args.processes.is_some() {
        return Err(wrong("the programs have their numbers of processes: leave --processes out"));
    }
    Ok(JobRequest {
        partition: partition(client, args.partition.as_deref())?,
        executable: file(client, &first.program)?,
        // one name cannot be that of several programs
        name: others.is_empty().then(|| first.program.clone()),
        arguments: first.arguments.clone(),
        programs,
        environment: variables(client, &args.env)?,
        directory: folder(client, args)?,
        mode: args.mode.into(),
        processes: args.processes.or(processes),
        nodes: args.nodes,
        shape: args.shape,
        labels: args.label,
        stdin: input.file(),
        sends_stdin: *input == Input::Own,
        copies: args.io_file.clone(),
        stdout: args.output.clone(),
        stderr: args.error.clone(),
        go_on: false,
        timeout_s: args.timeout.map(|t| Duration::from_nanos(t.0).as_secs_f64()),
        requeue: args.requeue,
        user: args.user.clone(),
        token: Some(unique()?),
    })
}

/// A text that nobody has used before.
fn unique() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("a number for the job")?;
    Ok(text.trim().to_owned())
}

/// Prints the output of a job until its end.
fn wait(client: &Client, job: &Job) -> anyhow::Result<ExitCode> {
    let (id, other) = (job.id, client.again()?);
    if let Some(why) = client.job(id)?.waits {
        note!("job {id}: {why}");
    }
    // a job that has ended meanwhile needs no signal
    let pass = move |signal| drop(other.signal(id, signal));
    passing_signals(pass, || client.follow(id, io::stdout(), io::stderr()))??;
    let ended = client.job(id)?;
    if let Some(error) = &ended.error {
        note!("error: {error}");
    }
    let code = match ended.state {
        // MACHINE_FAILED, too, which no program ends with
        JobState::Ended => ended.code.unwrap_or(1),
        _ => 1,
    };
    Ok(ExitCode::from(u8::try_from(code.clamp(0, 255)).unwrap_or(1)))
}
