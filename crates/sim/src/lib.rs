//! Noise at scale: what the noise of a node costs a bulk-synchronous program on many nodes.
