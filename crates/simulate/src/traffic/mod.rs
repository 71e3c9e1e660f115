//! Traffic on graph fabrics: from a scenario to a result.
//!
//! - [`driver`]: connects a [`driver::Demand`], which says what may leave, to any network model.
//! - [`lists`], [`rounds`], `pipelines`: the demands: lists of messages with a window or a barrier,
//!   messages with times, steps of a collective, segments that follow each other down trees.
//! - `run`: chooses network model and demand, and sums up. Shift phases with a barrier have a closed form in
//!   `flows`: `phases`.
//!
//! One plane is simulated: `size` is divided evenly over the planes, which are alike.
//!
//! ```
//! let text = r#"{ "schema_version": 1, "fabric": { "topology": "torus", "shape": [4, 4] },
//!                 "traffic": { "pattern": "all_to_all", "size": "1 MiB" }, "network_model": "flows" }"#;
//! let scenario = allrail_simulate::TrafficScenario::from_json(text).unwrap();
//! let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
//! let result = allrail_simulate::traffic::simulate(&scenario, go_on).unwrap();
//! assert_eq!((result.phases, result.phases_simulated), (Some(15), Some(15)));
//! ```

mod draw;
pub mod driver;
mod grid;
mod group;
pub mod lists;
mod phases;
mod pipelines;
pub mod result;
pub mod rounds;
mod run;
mod summary;

pub use grid::AllReduce;
pub use result::TrafficResult;
pub(crate) use run::check_size;
pub use run::simulate;

use crate::scenario::tag;
