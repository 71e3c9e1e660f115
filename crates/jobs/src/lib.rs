//! Many jobs on one fabric of boards: which boards each gets, and what it keeps of its bandwidth.
//!
//! - [`placement`]: mixes and queues of jobs, moves that make room; which boards one job may have is the
//!   topology's ([`allrail_fabric::placement`]).
//! - [`running`]: jobs that run at the same time.

pub mod placement;
pub mod running;
