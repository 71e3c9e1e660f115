//! The tests of `allrail-runtime` that need whole nodes, linked once.

mod calls;
mod cluster;
mod exchange;
mod faults;
mod garbled;
mod laws;
mod leaks;
mod limits;
mod records;
mod stalls;
