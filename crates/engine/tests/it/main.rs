//! The tests of `allrail-engine`, one module a subject, linked once.

mod engine;
mod executor;
mod frames;
mod loopback;
mod switches;
