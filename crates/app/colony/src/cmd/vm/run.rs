// SPDX-License-Identifier: MIT OR Apache-2.0
//! `colony vm run`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::ValueEnum;
use colony_view::progress::Progress;
use colony_vm::fleet::{self, NodeEvent};
use colony_vm::machine::Event;
use colony_vm::report::{NodeReport, Report, SCHEMA};
use colony_vm::{Accel, Image, Kernel, Link, Outcome, Recipe, Vm};

use crate::exit::WrongUse;
use crate::words::{Ns, ns};

/// Run a program in a virtual machine
///
/// The program is one of the image, else one of this host, which is put into the image with its libraries. Its output is
/// passed on as it comes, and its exit code is the command's. With several nodes the program runs on each, with
/// its number in COLONY_NODE and the number of all in COLONY_NODES; they reach each other as n0, n1 …
#[derive(clap::Args)]
#[command(after_help = "Examples:
  colony vm run -- uname -a
  colony vm run --icount -- ./my-benchmark          time counted in instructions
  colony vm run --nodes 2 -- sh -c 'ping -c 1 n0'
  colony vm run --image node --cpus 2 --append nohz_full=1 -- colony measure
  colony vm run --kernel 6.18 --collect /tmp/out=out -- sh -c 'dmesg > /tmp/out'")]
pub(super) struct Args {
    /// The kernel: a release, the beginning of one (7.3), or a file [default: one that is the same for all]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "KERNEL")]
    kernel: String,
    /// CPUs of each machine
    #[arg(long, default_value_t = 1, value_name = "N")]
    cpus: u32,
    /// Memory of each machine, MiB [default: 512, or what the image needs]
    #[arg(long, value_name = "MIB")]
    memory: Option<u32>,
    /// Count instructions instead of time: each takes 2^SHIFT ns [SHIFT: 1]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "1", value_name = "SHIFT")]
    icount: Option<u8>,
    /// Accelerator that executes the guest's instructions
    #[arg(long, value_enum, default_value_t)]
    accel: AccelWord,
    /// More for the kernel's command line
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "WORDS",
        allow_hyphen_values = true
    )]
    append: String,
    /// Image of the machine: `shell`, `node`, `compute-linux`, `io-node`, or a TOML file
    #[arg(long, default_value = "shell", value_name = "RECIPE")]
    image: String,
    /// A program of this host to add, with its libraries
    #[arg(long, value_name = "PROGRAM")]
    with: Vec<PathBuf>,
    /// Number of machines, on one network
    #[arg(long, default_value_t = 1, value_name = "N")]
    nodes: u32,
    /// Time a frame takes between nodes, beyond what the emulation takes
    #[arg(long, value_parser = ns, value_name = "TIME", requires = "nodes")]
    latency: Option<Ns>,
    /// Share of frames between nodes that is lost, 0 to 1
    #[arg(long, value_name = "SHARE", requires = "nodes")]
    loss: Option<f64>,
    /// Bring a file of the guest here when the program has ended; several nodes append .n0, .n1 …
    #[arg(long, value_name = "GUEST[=FILE]")]
    collect: Vec<String>,
    /// The longest it may take, start included
    #[arg(long, value_parser = ns, default_value = "300s", value_name = "TIME")]
    timeout: Ns,
    /// Print a report as JSON instead of the program's output
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum AccelWord {
    /// Emulation: works everywhere
    #[default]
    Tcg,
    /// The same on one thread of the host: several CPUs take turns, and Linux's code patching is safe
    TcgSingle,
    /// The host's processor, by /dev/kvm
    Kvm,
}

pub(super) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.accel != AccelWord::Tcg && args.icount.is_some() {
        return Err(WrongUse(
            "--icount counts instructions with its own emulation: leave out --accel or --icount".into(),
        )
        .into());
    }
    let collected = args.collect.iter().map(|c| collected(c)).collect::<Result<Vec<_>, _>>()?;
    for file in collected.iter().flat_map(|(_, file)| (0..args.nodes).map(|n| for_node(file, n, args.nodes)))
    {
        crate::cmd::can_write(&file)?;
    }
    let kernel = Kernel::find_telling(&args.kernel, &mut super::notice)?;
    let (image, command) = image(&args)?;
    let vm = machine(&args, &collected, &kernel, &image);
    let outcomes = start(&args, &vm, &command)?;
    let mut nodes = Vec::new();
    for (node, outcome) in (0..).zip(&outcomes) {
        nodes.push(NodeReport::new(node, outcome, keep(&collected, outcome, node, args.nodes)?));
    }
    if args.json {
        let report = Report {
            schema: SCHEMA,
            command,
            image: args.image,
            kernel: kernel.release().into(),
            cpus: args.cpus,
            append: args.append,
            icount: args.icount,
            nodes,
        };
        crate::cmd::print(true, &report, |_| String::new())?;
    }
    let failed = outcomes.iter().map(|o| o.exit.shell_code()).find(|&code| code != 0);
    Ok(ExitCode::from(failed.unwrap_or(0).clamp(0, 255) as u8))
}

/// The image with all programs asked for, and the command as the guest knows it.
fn image(args: &Args) -> anyhow::Result<(Image, Vec<String>)> {
    let mut image = Recipe::find(&args.image)?.image()?;
    for program in &args.with {
        image.program(program)?;
    }
    let mut command = args.command.clone();
    if let Some(program) = command.first_mut() {
        let path = Path::new(program.as_str());
        let of_host = if program.contains('/') { path.is_file() } else { !image.has_program(program) };
        if of_host {
            image.program(path)?;
        }
        if of_host && program.contains('/') {
            let path = std::path::absolute(path)?;
            *program = path.to_str().context("the program's path is no text")?.into();
        }
    }
    Ok((image, command))
}

fn machine(args: &Args, collected: &[(PathBuf, PathBuf)], kernel: &Kernel, image: &Image) -> Vm {
    let timeout = Duration::from_nanos(args.timeout.0);
    let mut vm = Vm::new(kernel, image).cpus(args.cpus).append(&args.append).notice(super::notice);
    vm = vm.timeout(timeout).silence(timeout);
    if let Some(memory) = args.memory {
        vm = vm.memory_mib(memory);
    }
    if let Some(shift) = args.icount {
        vm = vm.icount(shift);
    }
    match args.accel {
        AccelWord::Tcg => {}
        AccelWord::TcgSingle => vm = vm.accel(Accel::SingleThread),
        AccelWord::Kvm => vm = vm.accel(Accel::Kvm),
    }
    collected.iter().fold(vm, |vm, (guest, _)| vm.collect(guest))
}

fn start(args: &Args, vm: &Vm, command: &[String]) -> anyhow::Result<Vec<Outcome>> {
    let mut progress = Some(Progress::busy("starting"));
    let mut pass_on = |node: u32, event: NodeEvent, lines: &mut Lines| {
        // the first word of a machine ends the sign of life
        progress.take();
        if !args.json {
            lines.take(node, event);
        }
    };
    if args.nodes == 1 && args.latency.is_none() && args.loss.is_none() {
        let mut lines = Lines::default();
        let listen = |event: Event<'_>| pass_on(0, event.into(), &mut lines);
        return Ok(vec![vm.run_with(command, listen)?]);
    }
    let link = Link {
        latency: Duration::from_nanos(args.latency.map_or(0, |l| l.0)),
        loss: args.loss.unwrap_or(0.0),
        ..Link::default()
    };
    let mut lines = Lines { prefixed: true, ..Lines::default() };
    let outcomes = fleet::run(vm, args.nodes, link, command, |node, event| pass_on(node, event, &mut lines))?;
    lines.end();
    Ok(outcomes)
}

/// Passes output on: of one machine as it comes, of several line by line with the machine's name before it.
#[derive(Default)]
struct Lines {
    prefixed: bool,
    /// Lines that have begun, by machine and whether they are of standard error.
    begun: BTreeMap<(u32, bool), Vec<u8>>,
}

impl Lines {
    fn take(&mut self, node: u32, event: NodeEvent) {
        let (error, bytes) = match event {
            NodeEvent::Started(_) => return,
            NodeEvent::Stdout(bytes) => (false, bytes),
            NodeEvent::Stderr(bytes) => (true, bytes),
        };
        if !self.prefixed {
            return write(error, &bytes);
        }
        let begun = self.begun.entry((node, error)).or_default();
        begun.extend(bytes);
        let Some(end) = begun.iter().rposition(|&b| b == b'\n') else { return };
        let whole: Vec<u8> = begun.drain(..=end).collect();
        for line in whole.split_inclusive(|&b| b == b'\n') {
            write(error, &prefixed(node, line));
        }
    }

    /// Passes on what ended without a line's end.
    fn end(&mut self) {
        for ((node, error), mut line) in std::mem::take(&mut self.begun) {
            if !line.is_empty() {
                line.push(b'\n');
                write(error, &prefixed(node, &line));
            }
        }
    }
}

fn prefixed(node: u32, line: &[u8]) -> Vec<u8> {
    let mut out = format!("[{}] ", fleet::name(node)).into_bytes();
    out.extend_from_slice(line);
    out
}

fn write(error: bool, bytes: &[u8]) {
    // a reader that has had enough does not end the machines
    let _ = if error {
        io::stderr().write_all(bytes)
    } else {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush())
    };
}

/// `GUEST` or `GUEST=FILE`; the file is the guest's by its own name unless told.
fn collected(text: &str) -> Result<(PathBuf, PathBuf), WrongUse> {
    let (guest, file) = text.split_once('=').unwrap_or((text, ""));
    let file =
        if file.is_empty() { Path::new(guest).file_name().map(PathBuf::from) } else { Some(file.into()) };
    match file {
        Some(file) if guest.starts_with('/') => Ok((guest.into(), file)),
        _ => Err(WrongUse(format!(
            "`{text}` names no file to collect; write /path/in/guest or /path/in/guest=file"
        ))),
    }
}

fn for_node(file: &Path, node: u32, nodes: u32) -> PathBuf {
    if nodes == 1 { file.into() } else { PathBuf::from(format!("{}.{}", file.display(), fleet::name(node))) }
}

/// Writes the collected files of a machine and says where they are.
fn keep(
    collected: &[(PathBuf, PathBuf)],
    outcome: &Outcome,
    node: u32,
    nodes: u32,
) -> anyhow::Result<BTreeMap<PathBuf, PathBuf>> {
    let mut kept = BTreeMap::new();
    for (guest, file) in collected {
        match outcome.files.get(guest) {
            Some(Ok(data)) => {
                let file = for_node(file, node, nodes);
                colony_node::file::write_atomically::<io::Error>(&file, |w| w.write_all(data))
                    .with_context(|| format!("writing {}", file.display()))?;
                kept.insert(guest.clone(), file);
            }
            Some(Err(reason)) => {
                super::notice(&format!(
                    "{} of {} cannot be had: {reason}",
                    guest.display(),
                    fleet::name(node)
                ));
            }
            None => {}
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collected_file_has_its_name_or_another() {
        let c = |text: &str| collected(text).map(|(g, f)| (g.display().to_string(), f.display().to_string()));
        assert_eq!(c("/tmp/a").expect("one"), ("/tmp/a".into(), "a".into()));
        assert_eq!(c("/tmp/a=b/c").expect("one"), ("/tmp/a".into(), "b/c".into()));
        assert!(c("a").is_err() && c("/=").is_err() && c("").is_err());
        assert_eq!(for_node(Path::new("x"), 1, 2), Path::new("x.n1"));
        assert_eq!(for_node(Path::new("x"), 0, 1), Path::new("x"));
    }
}
