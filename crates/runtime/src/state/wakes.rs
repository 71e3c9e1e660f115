//! Whom a change of the state has made work for.

/// Who has something to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wakes {
    /// A bit for each port.
    pub(crate) ports: u64,
    pub(crate) control: bool,
    pub(crate) waiters: bool,
}

impl Wakes {
    /// A port has something to do.
    pub(super) fn port(&mut self, port: u32) {
        self.ports |= 1 << port;
    }
}
