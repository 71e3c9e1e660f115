//! The tests of `allrail-runtime` that need whole nodes, linked once.

mod cluster;
mod exchange;
