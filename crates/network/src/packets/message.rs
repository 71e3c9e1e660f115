//! A message that is not there whole.

/// A message, from its submission until nothing of it is left: one cache line.
#[repr(align(64))]
pub(super) struct Message {
    pub(super) tag: u64,
    pub(super) sent_tag: u64,
    /// Bytes that are in no packet yet.
    pub(super) left: u64,
    pub(super) source: u32,
    pub(super) destination: u32,
    /// After it, in its NPU's line or among the unused ones.
    pub(super) next: u32,
    /// How many messages had this place before.
    pub(super) generation: u32,
    /// Packets made so far.
    pub(super) made: u32,
    /// Packets that have not arrived.
    pub(super) inside: u32,
    /// Packets whose last byte has not left the NPU.
    pub(super) unsent: u32,
    /// One more than the highest place of a packet that has arrived.
    pub(super) highest: u32,
    pub(super) wants_sent: bool,
    /// Delivered, or withdrawn.
    pub(super) over: bool,
    pub(super) withdrawn: bool,
    pub(super) reordered: bool,
    /// Whether it stands in its NPU's line.
    pub(super) in_line: bool,
}

const _: () = assert!(size_of::<Message>() == 64);

impl Message {
    /// Whether a packet is still to be made; an empty message has one.
    pub(super) const fn unfinished(&self) -> bool {
        self.left > 0 || self.made == 0
    }
}
