//! Compute time of a pass: the roofline, or what was measured.

use allrail_core::Time;

/// A time times a factor, rounded to a picosecond.
#[must_use]
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub fn scaled(time: Time, factor: f64) -> Time {
    Time::from_ps((time.as_ps() as f64 * factor).round() as u64)
}
