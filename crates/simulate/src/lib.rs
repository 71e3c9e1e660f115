//! The simulation driver: scenario in, result out.
//!
//! - [`scenario`]: what is simulated, on what, and how; `read`: from its JSON, as the Python package hands it over.
//! - `outcome`: [`simulate`](simulate()) takes a scenario of any kind. [`collectives`], [`training`] and [`traffic`] are
//!   the kinds.
//! - [`coordination`]: all coordinators of a job in virtual time.
//! - `executors`: the executors of all ranks, over a network model.
//! - [`driver`]: issues collectives at their times, and runs the network model until all are over.
//! - [`lowering`]: what a stage is in each network model: one transfer in `dims`, its algorithm's messages
//!   elsewhere.
//! - `agreed_starts`: when collectives start that ranks have to agree on.
//! - `judge`: a collective alone in the network model that will carry it. `order_in_network_model`: a planned order, fixed
//!   by such runs. `finalists`: the best of several plans, found by them.
//! - `on_graph`: the network models that run on a graph, one file each. `network_model_settings`: a network of messages with
//!   its settings.
//! - [`training`]: all of that for training steps.
//! - `cut_bound`: the lower bound of collectives on a network that is no product of dimensions.
//! - `plan_file`: plans in a file, checked against a scenario.
//! - [`prove`]: the plan's messages, proved right.
//! - [`result`]: what comes out.
//! - [`traffic`]: all of that for traffic on graph fabrics.

mod agreed_starts;
pub mod collectives;
mod columns;
pub mod coordination;
mod cut_bound;
pub mod driver;
pub mod error;
mod executors;
mod finalists;
mod judge;
pub mod keys;
pub mod lowering;
mod network_model_settings;
mod on_graph;
mod order_in_network_model;
mod outcome;
mod plan_file;
pub mod prove;
mod read;
pub mod result;
mod runs;
pub mod scenario;
mod summary;
pub mod traffic;
pub mod training;

pub use collectives::{plan, plan_key, plan_watched};
pub use error::SimulateError;
pub use outcome::{Options, Outcome, simulate};
pub use plan_file::PlanFile;
pub use result::SimulationResult;
pub use scenario::{CollectiveScenario, Job, Scenario, TrafficScenario, TrainingScenario};
