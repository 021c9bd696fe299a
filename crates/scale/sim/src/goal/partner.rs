// SPDX-License-Identifier: MIT OR Apache-2.0
//! The partner of each send and receive: packed, one number an operation.

/// The link by which a send and its receive find each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link(pub(super) u32);

/// A link, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Partner {
    /// It computes.
    None,
    /// The only one there can be: number of the operation on the other rank. Both are of one size, CPU
    /// number and interface number.
    Operation(u32),
    /// First come, first served among the messages from one rank to another under one tag.
    Channel(u32),
    /// The receiver has receives from any rank or with any tag: decided when the message comes.
    Any,
}

impl Link {
    pub(super) const CHANNEL: u32 = 1 << 31;
    /// A channel with messages of several sizes.
    pub(super) const MIXED: u32 = 1 << 30;
    pub(super) const NONE: Self = Self(u32::MAX);
    pub(super) const ANY: Self = Self(u32::MAX - 1);

    pub(crate) const fn partner(self) -> Partner {
        match self {
            Self::NONE => Partner::None,
            Self::ANY => Partner::Any,
            Self(n) if n & Self::CHANNEL != 0 => Partner::Channel(n & !(Self::CHANNEL | Self::MIXED)),
            Self(n) => Partner::Operation(n),
        }
    }

    /// True if a message may meet a receive of another size.
    pub(crate) const fn is_mixed(self) -> bool {
        self.0 >= Self::CHANNEL | Self::MIXED
    }
}
