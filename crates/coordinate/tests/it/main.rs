//! The tests of `allrail-coordinate`, one module a subject, linked once.

mod common;
mod laws;
mod response_cache;
mod wire;
