//! The network models that run on a graph of switches and cables: how each is built there.
//!
//! - `model`: the trait of such a model, and what it is given.
//! - [`flows`], [`packets`]: one file each.
//! - `packet_size`: how large packets are where nobody says.

pub(crate) mod flows;
mod model;
mod packet_size;
pub(crate) mod packets;

pub(crate) use model::{Built, GraphModel, OnGraph};
