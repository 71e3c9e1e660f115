//! When an NPU may send its next packet, and what a full queue does. One file a policy, one line in
//! [`ALL`].

mod credits;
mod ndp;
mod pull;

use super::policy::Listed;

/// What a transport asks of NPUs and switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A message's first packets leave unasked; every further one waits for a pull of its receiver.
    pub pulls: bool,
    /// An output with too much to send leaves packets their headers only.
    pub cuts: bool,
}

/// Asked once, when a network model is made.
pub trait Transport: Sync {
    /// The tag in scenario files.
    fn tag(&self) -> &'static str;

    /// One line for the docs.
    fn about(&self) -> &'static str;

    /// What holds with it.
    fn rules(&self) -> Rules;
}

/// Every policy.
pub static ALL: &[&dyn Transport] = &[&credits::Credits, &pull::Pull, &ndp::Ndp];

impl Listed for dyn Transport {
    const KEY: &'static str = "transport";

    fn all() -> &'static [&'static Self] {
        ALL
    }

    fn tag(&self) -> &'static str {
        Transport::tag(self)
    }

    fn about(&self) -> &'static str {
        Transport::about(self)
    }
}
