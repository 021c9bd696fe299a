// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of `colony bench checkpoint`.

use super::params::Params;
use super::simulate::Network;
use super::size::parse;

/// The options of a benchmark of checkpoints, for command lines.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct CheckpointOptions {
    /// Processes
    #[arg(short = 'n', long = "processes", default_value_t = 2, value_name = "N")]
    processes: u32,
    /// PEs of each process, as threads
    #[arg(long, default_value_t = 1, value_name = "N")]
    threads: u32,
    /// State of each PE, such as 80kB or 2MiB; several sizes make several rows
    #[arg(
        long,
        value_name = "BYTES,…",
        value_delimiter = ',',
        default_value = "80kB,300kB,1200kB,5MB,20MB",
        value_parser = parse
    )]
    bytes: Vec<u64>,
    /// State of all PEs together, such as 147MB, instead of --bytes
    #[arg(long, value_name = "BYTES", value_parser = parse, conflicts_with = "bytes")]
    total: Option<u64>,
    /// Objects of each PE, which share its state
    #[arg(long, default_value_t = 8, value_name = "N")]
    objects: u32,
    /// Objects of each PE that change between two checkpoints: only these are sent to the buddy [default: all]
    #[arg(long, value_name = "N")]
    changed: Option<u32>,
    /// Checkpoints of each size, of which the shortest times count [default: a gigabyte of images, 10 to 300]
    #[arg(long, value_name = "N")]
    repeat: Option<u32>,
    /// Bytes a second of a link
    #[arg(long, default_value = "175MB", value_name = "BYTES", value_parser = parse, help_heading = "Simulated network")]
    link: u64,
    /// Time from a node to its neighbour, µs
    #[arg(long, default_value_t = 0.764, value_name = "US", help_heading = "Simulated network")]
    latency: f64,
    /// Time of each further hop, µs
    #[arg(long, default_value_t = 0.313, value_name = "US", help_heading = "Simulated network")]
    hop: f64,
    /// CPU time of a message at each end, µs
    #[arg(long, default_value_t = 1.5, value_name = "US", help_heading = "Simulated network")]
    message: f64,
}

impl CheckpointOptions {
    /// The benchmark that is asked for. It is checked when it is run.
    #[must_use]
    pub fn params(&self) -> Params {
        let pes = (u64::from(self.processes) * u64::from(self.threads)).max(1);
        Params {
            bytes: self.total.map_or_else(|| self.bytes.clone(), |total| vec![total.div_ceil(pes)]),
            processes: self.processes,
            threads: self.threads,
            objects: self.objects,
            changed: self.changed,
            repeat: self.repeat,
            network: Network {
                message_s: self.message / 1e6,
                latency_s: self.latency / 1e6,
                hop_s: self.hop / 1e6,
                link_bytes_per_s: self.link as f64,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::published::TABLE_1;
    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        options: CheckpointOptions,
    }

    fn params(words: &[&str]) -> Params {
        Cli::try_parse_from([&["x"], words].concat()).expect("words of ours").options.params()
    }

    #[test]
    fn the_defaults_are_the_sizes_of_the_published_table_and_the_network_of_its_machine() {
        let params = params(&[]);
        assert!(params.bytes.iter().eq(TABLE_1.iter().map(|(bytes, _)| bytes)));
        let (ours, bgl) = (params.network, Network::default());
        assert!((ours.message_s - bgl.message_s).abs() < 1e-12 && (ours.hop_s - bgl.hop_s).abs() < 1e-12);
        assert!((ours.latency_s - bgl.latency_s).abs() < 1e-12);
        assert_eq!(ours.link_bytes_per_s, bgl.link_bytes_per_s);
        assert!(params.check().is_ok());
    }

    #[test]
    fn a_total_is_shared_by_all_pes() {
        assert_eq!(params(&["--total", "147MB"]).bytes, [73_500_000]);
        assert_eq!(params(&["--total", "147MB", "-n", "3", "--threads", "2"]).bytes, [24_500_000]);
        assert_eq!(params(&["--total", "3", "-n", "2"]).bytes, [2]);
        assert_eq!(params(&["--bytes", "1kB,2KiB"]).bytes, [1000, 2048]);
        assert!(Cli::try_parse_from(["x", "--total", "1MB", "--bytes", "1kB"]).is_err());
    }

    #[test]
    fn all_objects_change_unless_their_number_is_given() {
        assert_eq!((params(&[]).changed, params(&[]).setup(100).changed), (None, 8));
        let params = params(&["--objects", "10", "--changed", "1"]);
        assert_eq!((params.changed, params.setup(100).changed), (Some(1), 1));
    }
}
