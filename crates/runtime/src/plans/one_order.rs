//! How ranks agree on one order of launches, where others carry the data and pair launches by their order.

use allrail_coordinate::agreed::AgreedPolicy;
use allrail_coordinate::{self as coordinate, CoordinationPolicy};
use allrail_core::Bytes;
use allrail_engine::Ordering;
use allrail_engine::engine::{self, Coordination};
use allrail_schedule::Order;

use crate::coordination;
use crate::error::RuntimeError;

/// After how many steps in the same order that order is frozen, where nothing is said of coordination.
const FREEZE: u32 = 5;

/// An engine whose launches are paired by their order: ranks agree on it as they are told to, or on each event,
/// until it is frozen.
///
/// # Errors
/// A coordination that cannot be.
pub(super) fn in_one_order(
    engine: engine::Settings,
    said: Option<&coordination::Coordination>,
) -> Result<engine::Settings, RuntimeError> {
    let (coordination, freeze) = match said {
        Some(said) => (said.resolved().map_err(|error| RuntimeError::schedule(&error))?, None),
        None => {
            let policy = &AgreedPolicy;
            let tensor = engine.tensor.policy().map_err(|error| RuntimeError::schedule(&error))?;
            let defaults = policy.defaults();
            // What sends tensors whole packs them itself, if at all.
            let cuts = tensor.partition(&engine.tensor).is_some();
            let threshold = if cuts { defaults.threshold } else { Bytes::default() };
            let settings = coordinate::Settings { threshold, ..defaults };
            (Coordination { policy, settings }, Some(FREEZE))
        }
    };
    Ok(engine::Settings {
        order: Order::STRICT,
        ordering: Ordering::Common,
        coordination: Some(coordination),
        freeze,
        ..engine
    })
}
