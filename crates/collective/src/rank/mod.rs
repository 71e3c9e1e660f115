//! What one rank does in a plan: exact ranges of elements, made for that rank alone.
//!
//! A [`RankPlan`] is a [`CollectivePlan`](crate::CollectivePlan) seen from one rank and cut for one
//! [`Buffer`]: for every chunk and stage the [`Message`]s that the rank sends and awaits, step by step,
//! which elements each carries, how it is combined, and what it waits for. No other rank's part is made
//! for it, and both sides of a message find the same name and length for it.
//!
//! # Where things lie
//!
//! Each rank has the whole buffer, in place. Ranks are those of the plan's fabric (coordinate on
//! dimension 0 fastest); a collective over some of its dimensions joins the ranks that differ only on
//! those, and a rank's *place* among them counts in the same way, whatever the order in which the plan
//! lists the dimensions. [`shard`] divides the buffer of `n` elements over `N` of them.
//!
//! | operation | starts with | ends with |
//! |---|---|---|
//! | all-reduce | its buffer | the sum of all buffers |
//! | reduce-scatter | its buffer | in its shard the sum; the rest is scratch |
//! | all-gather | its shard, in its place | all shards |
//! | all-to-all | shard `i` for place `i` | shard `i` from place `i`; `n` must be a multiple of `N` |
//! | broadcast | its root (place 0 if none is named): its buffer | that buffer |
//!
//! An all-reduce's or a broadcast's chunks are ranges of the buffer. The others' shards must end whole
//! with their ranks, whatever dimensions a chunk visits first: there a chunk is the same range *of
//! every shard*, and a message one range per shard that it carries. Cuts between chunks, and between
//! the blocks of an algorithm, are at whole granules from where that chunk or shard begins; shards are
//! cut at elements. Each stage divides anew what the rank holds at that time into the blocks of its
//! algorithm, so blocks differ by one granule however many dimensions there are, and all that a rank
//! holds of a chunk of an all-reduce (scattered and gathered) is one range. A message without elements
//! is not sent and not awaited.
//!
//! # What may happen when
//!
//! A send leaves and a receive is combined as soon as all that it [`waits_for`](Chunk::waits_for) is
//! done: the messages earlier in the chunk that touch its elements (see [`Message::place`]). Bytes are
//! read when they leave. Then frames may come in any order, and every element sees the same
//! operations in the same order: sums of floats are the same to the bit in every run, and on all ranks.
//! An executor counts: set each message's count to `waits_for(place).len()`, and when one is done take
//! one from each that it [`frees`](Chunk::frees). A receive that came and still has a count is laid
//! aside (a stash).
//!
//! How much lies aside is bounded, per chunk, by [`Chunk::most_aside`]. With `s` the bytes that a rank
//! holds of the chunk when a stage of `P` ranks begins:
//!
//! | stage | at most |
//! |---|---|
//! | ring, reduce-scatter, alone or first | 0 |
//! | halving-doubling, reduce-scatter, likewise | `s/2` |
//! | direct, reduce-scatter, likewise | `s(P − 2)/P` |
//! | any reduce-scatter after another stage | what it receives: `s(P − 1)/P` |
//! | all-gather | 0: what comes was made of what this rank sent from there |
//! | broadcast | 0, or `s` where the sender of one dimension receives on the next (halving-doubling) |
//! | all-to-all | what it receives |
//! | all-reduce as one stage | as its reduce-scatter; trees `s/2`; after another such stage what it receives |
//!
//! so that in an all-reduce over any number of scattered dimensions less than one chunk lies aside.
//! That is per chunk in flight: who limits those limits the stash.
//!
//! # Use
//!
//! ```
//! use allrail_collective::plan::{ChunkPlan, SCHEMA_VERSION};
//! use allrail_collective::rank::{Action, Buffer, Combine, RankPlan};
//! use allrail_collective::{CollectivePlan, Operation, Stage};
//! # use allrail_core::{Bandwidth, Bytes, DimensionId, Time};
//! # use allrail_fabric::{Dimension, Fabric, Kind};
//! # let stage = |operation| Stage { operation, dimension: DimensionId(0) };
//! # let dimension = Dimension::new(Kind::Ring, 3, 2, Bandwidth::from_bytes_per_second(1 << 30).expect("some"), Time::ZERO);
//! # let plan = CollectivePlan {
//! #     schema_version: SCHEMA_VERSION, policy: "baseline".into(), operation: Operation::AllReduce,
//! #     fabric: Fabric { memory_bandwidth: None, window: None, name: "three".into(), dimensions: vec![dimension] },
//! #     size: Bytes::new(4000), sizes: None, dimensions: vec![DimensionId(0)],
//! #     algorithms: vec!["direct".into()], programs: Default::default(), endpoint_delay: Time::ZERO,
//! #     chunks: vec![ChunkPlan {
//! #         bytes: Bytes::new(4000),
//! #         stages: vec![stage(Operation::ReduceScatter), stage(Operation::AllGather)],
//! #     }],
//! #     dimension_order: vec![Vec::new()], order_made_in: "dims".into(), key: String::new(),
//! # };
//! // `plan`: an all-reduce of 4,000 bytes over three ranks, one chunk, scattered and gathered.
//! let part = RankPlan::new(&plan, 1, Buffer::new(1000, 4)?)?;
//! let chunk = &part.chunks[0];
//! let scatter = chunk.step(0, 0).expect("one step");
//! let sent: Vec<_> = scatter.sends.iter().map(|send| (send.peer, chunk.ranges(send).collect())).collect();
//! assert_eq!(sent, [(2, vec![672..1000]), (0, vec![0..336])]);
//! let adds = Action::Receive(Combine::Reduce);
//! assert!(scatter.receives.iter().all(|receive| receive.action == adds));
//!
//! // What comes from rank 2 is added after what comes from rank 0.
//! let [first, second] = scatter.receives else { panic!("two receives") };
//! assert_eq!((first.peer, second.peer), (0, 2));
//! assert_eq!(chunk.waits_for(second.place), [first.place]);
//! // Then the sum is sent to both.
//! let gather = chunk.step(1, 0).expect("one step");
//! assert!(gather.sends.iter().all(|send| chunk.waits_for(send.place) == [second.place]));
//! # Ok::<(), allrail_collective::CollectiveError>(())
//! ```
//!
//! Where many sizes are exchanged, [`RankPlanner`] keeps what does not depend on the size, and
//! [`Plans`] finds the plan for a size and keeps the parts used last.
//!
//! # Against a composition
//!
//! [`hierarchical::compose`](crate::hierarchical::compose) makes all ranks' messages in equal blocks.
//! Where the sizes divide, a rank's part has the same messages: stages, steps, peers, lengths, ways of
//! combining; over one dimension the same blocks, too. Over several, a composition names blocks by a
//! digit for every dimension, while here each stage divides what is held: other elements travel in the
//! same messages.
//!
//! Ignored: shards of sizes that the caller chooses.

mod buffer;
mod cells;
mod line;
mod message;
mod planner;
mod plans;
mod shape;

pub use crate::program::Combine;
pub(crate) use buffer::cut;
pub use buffer::{Buffer, GRANULE, shard};
pub use message::{Action, Chunk, Message, Stage, Step};
pub use planner::{RankPlan, RankPlanner};
pub use plans::Plans;
