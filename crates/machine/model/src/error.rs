// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of the model: every one is a request that other words would cure.

/// The reason why a machine, partition or personality cannot be as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Text that is no shape, or a shape beyond the limits.
    #[error(
        "{found:?} is not a shape: write three sides such as 8x8x8, at least 1 each, at most 262144 nodes together"
    )]
    Shape {
        /// The text or the sides.
        found: String,
    },
    /// A machine that is neither whole midplanes nor a block of one.
    #[error(
        "a machine of {shape} cannot be built: use multiples of 8 for all sides (whole midplanes), \
         or sides of 2, 4 or 8 (a part of one midplane)"
    )]
    Machine {
        /// The shape.
        shape: String,
    },
    /// A block that is neither whole midplanes nor a block of one.
    #[error(
        "a partition of {shape} cannot be built: use multiples of 8 for all sides (whole midplanes), \
         or sides of 2, 4 or 8 (a part of one midplane)"
    )]
    Block {
        /// The shape.
        shape: String,
    },
    /// A block whose first node is not on the grid of its shape.
    #[error("a partition of {shape} cannot start at node {origin}: {axis} must be a multiple of {step}")]
    Alignment {
        /// The shape.
        shape: String,
        /// Coordinates of the first node.
        origin: String,
        /// `x`, `y` or `z`.
        axis: char,
        /// Distance of possible first coordinates.
        step: u32,
    },
    /// A block that reaches beyond the machine.
    #[error("a partition of {shape} at node {origin} reaches beyond the machine of {machine}")]
    Outside {
        /// The shape.
        shape: String,
        /// Coordinates of the first node.
        origin: String,
        /// The shape of the machine.
        machine: String,
    },
    /// Text that is no bit of a node's memory.
    #[error(
        "{found:?} is not a bit of memory: write RANK:BIT with rank 0 to 3 and bit 0 to 143, such as 1:17"
    )]
    FailedBit {
        /// The text.
        found: String,
    },
    /// A rank whose spare bit replaces another bit.
    #[error(
        "bit {bit} of rank {rank} cannot be steered: the spare bit of the rank replaces bit {other}; \
         take the node out of service"
    )]
    SpareUsed {
        /// The rank.
        rank: u8,
        /// The bit that failed now.
        bit: u8,
        /// The bit that failed before.
        other: u8,
    },
    /// A pset size that Colony does not have.
    #[error("a pset of {found} compute nodes is not supported: use 8, 16, 32, 64 or 128")]
    PsetSize {
        /// The size asked for.
        found: u32,
    },
    /// A pset that is larger than its partition.
    #[error(
        "psets of {pset} compute nodes do not fit into a partition of {shape}, which has {nodes}: use a smaller pset"
    )]
    PsetTooLarge {
        /// Compute nodes of a pset.
        pset: u32,
        /// The shape of the partition.
        shape: String,
        /// Its compute nodes.
        nodes: u32,
    },
    /// A name that cannot be a partition's.
    #[error(
        "{found:?} cannot name a partition: use 1 to 31 ASCII letters, digits, '-' and '_', \
         beginning with a letter or a digit"
    )]
    Name {
        /// The name.
        found: String,
    },
    /// Two partitions of one name.
    #[error("a partition {name:?} exists already: choose another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Two partitions that have nodes in common.
    #[error("partition {name:?} overlaps partition {other:?}: both contain {location}")]
    Overlap {
        /// The new partition.
        name: String,
        /// The partition that exists.
        other: String,
        /// The first node that both contain.
        location: String,
    },
    /// Text that is no location, or a part that does not exist in any machine.
    #[error(
        "{found:?} is not a location: write R00, R00-M0, R00-M0-N04, R00-M0-N04-J12, R00-M0-N04-I01 or SN"
    )]
    Location {
        /// The text.
        found: String,
    },
    /// A location that this machine does not have.
    #[error("the machine of {machine} has no {location}")]
    NoSuchLocation {
        /// The location.
        location: String,
        /// The shape of the machine.
        machine: String,
    },
    /// A number of nodes that no machine has.
    #[error("{found} compute nodes cannot be allocated: ask for 1 to {most}, the nodes of the machine")]
    Nodes {
        /// The number asked for.
        found: u32,
        /// The nodes of the machine.
        most: u32,
    },
    /// A network of I/O nodes with too few addresses.
    #[error("the network {network} has {addresses} addresses for {needed} I/O nodes: use a shorter prefix")]
    Network {
        /// Address and prefix.
        network: String,
        /// Addresses that I/O nodes may have.
        addresses: u64,
        /// I/O nodes of the machine.
        needed: u32,
    },
    /// An export path that does not fit into a personality.
    #[error(
        "the export {found:?} does not fit into a personality: use an absolute path of at most 63 bytes without NUL"
    )]
    Export {
        /// The path.
        found: String,
    },
    /// A parameter of the transport that makes no time.
    #[error("the transport's {parameter} of {found} is impossible: use a finite number {bound}")]
    Transport {
        /// The parameter.
        parameter: &'static str,
        /// The value.
        found: String,
        /// What it must be.
        bound: &'static str,
    },
}
