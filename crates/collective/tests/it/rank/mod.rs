//! One rank's part of a plan: with frames in any order, against compositions, against plain versions.

mod cases;
mod composed;
mod delivery;
mod runner;
mod sizes;
mod waits;
