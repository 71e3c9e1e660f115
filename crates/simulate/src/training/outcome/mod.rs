//! What came out of a step.
//!
//! - [`summary`]: from a run to a [`result`]; `window`: the iterations that count; `timeline`: what happened when.
//! - `last_step`: the critical path of the last iteration; [`path`]: a path as a table and in words.
//! - `account`: where the time of compute engines went. [`links`]: how busy each link was.
//! - [`assumption`]: what-ifs, and which network model can assume what.
//! - [`export`]: the step as another format's.

mod account;
pub(super) mod assumption;
pub(super) mod export;
mod last_step;
pub(super) mod links;
pub(super) mod path;
pub(super) mod result;
pub(super) mod summary;
mod timeline;
mod window;
