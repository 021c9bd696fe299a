// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `colony bench lb`.

use colony_balance::strategy::Strategies;

use super::params::{NONE, Params, Program};

/// The options of a comparison, for command lines.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct LbOptions {
    /// Processes
    #[arg(short = 'n', long = "processes", default_value_t = 2, value_name = "N")]
    processes: u32,
    /// PEs of each process, as threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: u32,
    /// Programs to run
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',', default_value = "lb-test,stencil")]
    program: Vec<Program>,
    /// Strategies of load balancing, with options; none: without, all: every one
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        default_value = "none,greedy,greedy-refine,refine,hybrid"
    )]
    strategy: Vec<String>,
    /// Objects along each side of the mesh
    #[arg(long, default_value_t = 8, value_name = "N")]
    mesh: u32,
    /// State of an object, such as 512KiB
    #[arg(long, default_value = "512KiB", value_name = "BYTES", value_parser = bytes)]
    bytes: u64,
    /// Arithmetic operations of the lightest object of lb-test in an iteration
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    work: u64,
    /// Iterations of a run
    #[arg(long, default_value_t = 60, value_name = "N")]
    iterations: u32,
    /// Iterations from one load balancing to the next
    #[arg(long, default_value_t = 4, value_name = "N")]
    period: u32,
    /// Runs of each strategy, in turn; the shortest times of all count
    #[arg(long, default_value_t = 2, value_name = "N")]
    repeat: u32,
    /// Seed of the objects' loads and values, and of strategies that draw random numbers
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// A number of bytes as people write it.
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err("write a number of bytes such as 4096, 512KiB, 2MiB or 1GiB".into()),
    };
    let number: u64 =
        number.parse().map_err(|_| "write a number of bytes such as 4096 or 512KiB".to_owned())?;
    number.checked_mul(1 << shift).ok_or_else(|| "too large".into())
}

impl LbOptions {
    /// The comparison that is asked for. It is checked when it is run.
    #[must_use]
    pub fn params(&self) -> Params {
        let all = || std::iter::once(NONE).chain(Strategies::names()).map(str::to_owned).collect();
        let names = |name: &String| if name == "all" { all() } else { vec![name.clone()] };
        Params {
            programs: self.program.clone(),
            strategies: self.strategy.iter().flat_map(names).collect(),
            processes: self.processes,
            threads: self.threads,
            mesh: self.mesh,
            bytes: self.bytes,
            work: self.work,
            iterations: self.iterations,
            period: self.period,
            repeat: self.repeat,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: LbOptions,
    }

    fn params(words: &[&str]) -> Params {
        Cli::try_parse_from([&["x"], words].concat()).expect("words of ours").options.params()
    }

    #[test]
    fn bytes_are_numbers_with_binary_units() {
        for (text, value) in
            [("4096", 4096), ("512KiB", 512 << 10), ("2MiB", 2 << 20), ("1GiB", 1 << 30), ("7B", 7)]
        {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for text in ["", "KiB", "512kb", "-1", "1.5MiB", "99999999999999999999", "99999999999GiB", "1 KiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_default_is_the_reports_mesh_with_every_deterministic_strategy() {
        let params = params(&[]);
        assert_eq!((params.objects(), params.bytes, params.pes()), (64, 512 << 10, 2));
        assert_eq!(params.programs, [Program::LbTest, Program::Stencil]);
        assert_eq!(params.strategies, ["none", "greedy", "greedy-refine", "refine", "hybrid"]);
        assert!(params.check().is_ok());
    }

    #[test]
    fn strategies_can_be_lists_repeated_or_all() {
        assert_eq!(
            params(&["--strategy", "none,refine:tolerance=1.1", "--strategy", "greedy"]).strategies,
            ["none", "refine:tolerance=1.1", "greedy"]
        );
        let all = params(&["--strategy", "all", "--program", "stencil"]);
        assert_eq!(all.strategies[0], NONE);
        assert!(all.strategies[1..].iter().eq(Strategies::names()));
        assert_eq!(all.runs(), 2 * all.strategies.len());
        assert!(all.check().is_ok());
    }
}
