//! What came out of a step.
//!
//! - [`summary`]: from a run to a [`result`]. [`path`]: the critical path, in words.
//! - `account`: where the time of compute engines went. [`links`]: how busy each link was.
//! - [`assumption`]: what-ifs, and which world can assume what.
//! - [`export`]: the step as another format's.

mod account;
pub mod assumption;
pub mod export;
pub mod links;
pub mod path;
pub mod result;
pub mod summary;
