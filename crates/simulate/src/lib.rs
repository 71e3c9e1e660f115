//! The simulation driver: scenario in, result out.
//!
//! - [`scenario`]: the resolved scenario, as the Python package hands it over.
//! - [`driver`]: connects the deciders (dimension queues) to a world, with an event queue for
//!   timers and virtual time.
//! - [`lowering`]: what a stage is in each world: one transfer in `dims`, its algorithm's messages
//!   in `links`.
//! - [`prove`]: the plan's messages, proved right.
//! - [`result`]: what comes out.
//! - [`traffic`]: all of that for traffic on graph fabrics.

pub mod driver;
pub mod error;
pub mod lowering;
pub mod prove;
pub mod result;
pub mod run;
pub mod scenario;
pub mod traffic;

pub use error::SimulateError;
pub use result::SimulationResult;
pub use run::{plan, plan_key, simulate};
pub use scenario::{PlanFile, Scenario};
