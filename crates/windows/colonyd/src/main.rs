// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node daemon.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use colony_sched::log;
use colony_time::{DutyCycle, text};
use colonyd::config::{Config, ConfigError};
use colonyd::{guard_main, serve};

const EXAMPLES: &str = "\
Examples:
  colonyd                                   files at /run/colony, period 100ms, duty cycle 95%
  colonyd --period 50ms --duty 90% --cpus 2-15
  colonyd --config colonyd.toml --check     say whether the configuration works here, and end

While it runs:
  echo 100ms > /run/colony/period           set the windows (root, admin_users, admin_groups)
  echo 95% > /run/colony/duty_cycle         or 95ms, or Blue Gene/L cycles such as 0xf4000000
  echo 1 > /run/colony/job                  this shell and what it starts are the job
  cat /run/colony/stats /run/colony/clock   what the windows do
  cat /run/colony/last_error                why a write was refused

Exit codes: 0 ended by a signal, 1 failed, 2 wrong use. COLONY_LOG=debug logs more.";

/// The node daemon of coordinated scheduling: owns the windows, shows them as files
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// Configuration file [default: /etc/colony/colonyd.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the files appear [default: /run/colony]
    #[arg(long, value_name = "DIRECTORY")]
    mount: Option<PathBuf>,
    /// Period at the start, such as 100ms [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = |s: &str| text::parse_ns(s))]
    period: Option<u64>,
    /// Duty cycle at the start, such as 95% or 95ms [default: 95%]
    #[arg(long, value_name = "SHARE", value_parser = |s: &str| text::parse_duty(s))]
    duty: Option<DutyCycle>,
    /// CPUs jobs have in favored windows, such as 1-3, or all [default: all but the lowest]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Check the configuration on this node, say what it comes to, and end
    #[arg(long)]
    check: bool,
    /// Undo what a colonyd or an agent has left behind on this node when every process of it was killed, and end
    #[arg(long, exclusive = true)]
    restore: bool,
}

impl Arguments {
    fn config(self) -> Result<Config, ConfigError> {
        let file = Config::load(self.config.as_deref())?;
        Ok(Config {
            mount: self.mount.unwrap_or(file.mount),
            period_ns: self.period.unwrap_or(file.period_ns),
            duty_cycle: self.duty.unwrap_or(file.duty_cycle),
            cpus: self.cpus.or(file.cpus),
            ..file
        })
    }
}

fn main() -> ExitCode {
    colony_sched::main_if_asked();
    if let Some(code) = guard_main() {
        return code;
    }
    let arguments = Arguments::parse();
    log::start();
    if arguments.restore {
        return colony_sched::restore();
    }
    let check = arguments.check;
    let checked = match arguments.config().and_then(|c| c.check().map(|checked| (c, checked))) {
        Ok((config, checked)) if check => {
            let windows = checked.setting.windows();
            let said = writeln!(
                std::io::stdout(),
                "the configuration works here: files at {}, favored {} and regular {} of every {}, CPU {} for jobs",
                config.mount.display(),
                text::Ns(windows.favored_ns()),
                text::Ns(windows.regular_ns()),
                text::Ns(windows.period_ns()),
                checked.cpus,
            );
            return match said {
                Ok(()) => ExitCode::SUCCESS,
                Err(e) => {
                    log::say(format_args!(
                        "colonyd: the configuration works here, but printing that failed: {e}"
                    ));
                    ExitCode::FAILURE
                }
            };
        }
        Ok((_, checked)) => checked,
        Err(e) => {
            log::say(format_args!("colonyd: {e}"));
            return ExitCode::from(2);
        }
    };
    match serve(&checked) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            tracing::error!("{e}");
            ExitCode::FAILURE
        }
    }
}
