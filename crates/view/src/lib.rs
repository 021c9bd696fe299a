//! What a person sees on a terminal: tables, progress, the live view.
