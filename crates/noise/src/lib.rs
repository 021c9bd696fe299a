//! Noise: measure detours, attribute them, keep, convert and compare traces, inject noise.
