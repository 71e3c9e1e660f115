//! A parameter server among the ranks: all push to the owner, which sums, and pull from it.
//!
//! The whole buffer has one owner, rank 0 of the program. In step 0 all others send theirs to it, in step
//! 1 it sends the sum to them. Owners take turns ([`Algorithm::turns`]): chunk `c` of a collective belongs
//! to rank `c mod P`; a runtime counts on from partition to partition of a tensor, from one that its name
//! gives; so several under way load all links alike. (With one block a rank in one collective it is
//! `direct`.)
//!
//! | operation | steps | bytes sent by the busiest rank | fill |
//! |---|---|---|---|
//! | all-reduce | 2 | s·(P − 1), by the owner | s |
//!
//! What limits it is the owner's link: it is busy for `s·(P − 1)` inwards, then as long outwards.
//!
//! Source: Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014;
//! ps-lite's servers on the workers' machines.
//!
//! Ignored: that one collective's push may overlap another's pull at the same owner, where stages of a
//! dimension are timed one after the other; that `P − 1` messages arrive at once.
//!
//! ```
//! use allrail_collective::{Operation, algorithm::named};
//! let server = named("parameter_server")?;
//! let program = server.program(Operation::AllReduce, 4);
//! assert_eq!((program.blocks_sent(0), program.blocks_sent(3)), (12, 4));
//! assert_eq!(server.turns(8), 8);
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```

use allrail_fabric::Kind;

use super::{Algorithm, Cost, LinkTime, OnLinks};
use crate::program::{Blocks, Combine};
use crate::{Operation, Program};

/// The tag in scenario files.
pub const TAG: &str = "parameter_server";

/// See the [module](self).
pub struct ParameterServer;

impl Algorithm for ParameterServer {
    fn tag(&self) -> &'static str {
        TAG
    }

    fn about(&self) -> &'static str {
        "all push to one owner and pull from it; owners take turns (Li et al. 2014)"
    }

    fn operations(&self) -> &'static [Operation] {
        &[Operation::AllReduce]
    }

    fn cost(&self, _operation: Operation, ranks: u32) -> Cost {
        Cost { sent: (u64::from(ranks) - 1, 1), steps: 2, latencies: 2, fill: (1, 1) }
    }

    fn on_links(&self, kind: Kind, _operation: Operation, ranks: u32) -> OnLinks {
        // Also where each peer has a link of its own, with its share of the bandwidth.
        let all = (u64::from(ranks) - 1, 1);
        let fits = matches!(kind, Kind::Switch | Kind::FullyConnected);
        OnLinks { time: fits.then_some(LinkTime { busy: all, fill: all }), ..OnLinks::default() }
    }

    fn turns(&self, ranks: u32) -> u32 {
        ranks
    }

    fn program(&self, _operation: Operation, ranks: u32) -> Program {
        let mut program = Program::empty(ranks, ranks, 2);
        let whole = || Blocks::range(0..ranks);
        for worker in 1..ranks {
            program.message(0, (worker, whole()), (0, whole()), Combine::Reduce);
            program.message(1, (0, whole()), (worker, whole()), Combine::Replace);
        }
        program
    }
}
