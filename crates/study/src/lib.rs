//! Experiments end to end, and the report they write.
