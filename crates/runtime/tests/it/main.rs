//! The tests of `allrail-runtime` that need whole nodes, linked once.

mod calls;
mod cluster;
mod exchange;
mod faults;
mod laws;
mod leaks;
mod records;
