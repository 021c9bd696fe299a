//! The MPI benchmark programs of the seeds and their launcher.
