//! `credits`: an NPU sends as fast as its cables do; only the credits of links hold packets back.
//!
//! What lossless fabrics do without congestion control. It is the default: nothing is lost, asked for or
//! sent twice.

use super::{Rules, Transport};

pub(super) struct Credits;

impl Transport for Credits {
    fn tag(&self) -> &'static str {
        "credits"
    }

    fn about(&self) -> &'static str {
        "NPUs send as fast as they can; only the credits of links hold packets back"
    }

    fn rules(&self) -> Rules {
        Rules { pulls: false, cuts: false }
    }
}
