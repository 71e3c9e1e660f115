//! How many messages of a rank are under way, where everyone sends to everyone (`direct`).
//!
//! Without a window, all messages of a step leave at once, and those of the next when the last has
//! come and is reduced. With one of `w`, a rank starts with `w` messages, and each that has come and
//! is reduced lets it send one more. The second half of an all-reduce waits until the whole first half
//! has come; then it sends one for each that is reduced.
//!
//! Who drives a [`Pace`] sends as many messages as it says, in the order of the program: at the start
//! ([`Pace::begin`]), and whenever what has come is reduced ([`Pace::reduced`]). It says of each message
//! that comes [`Pace::arrived`].
//!
//! ```
//! use allrail_collective::Pace;
//! let mut pace = Pace::new(2, 3, 3);
//! assert_eq!(pace.begin(), 2);
//! pace.arrived();
//! assert_eq!(pace.reduced(), 1, "the third and last");
//! pace.arrived();
//! pace.arrived();
//! assert_eq!((pace.reduced(), pace.reduced()), (0, 0));
//! assert!(pace.is_over());
//! ```

/// See the [module](self).
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Messages of the first step, and of all.
    half: u32,
    messages: u32,
    /// How many may be under way.
    most: u32,
    sent: u32,
    received: u32,
    /// How many could leave.
    free: u32,
}

impl Pace {
    /// A rank that sends and receives as many `messages`, `half` of them in its first step, under this
    /// window.
    #[must_use]
    pub fn new(window: u32, half: u32, messages: u32) -> Self {
        Self { half, messages, most: window.min(half), sent: 0, received: 0, free: 0 }
    }

    /// How many leave at the start.
    pub fn begin(&mut self) -> u32 {
        self.sent = self.most;
        self.most
    }

    /// One more has come.
    pub fn arrived(&mut self) {
        self.received += 1;
    }

    /// One more that has come is reduced; how many leave now.
    pub fn reduced(&mut self) -> u32 {
        self.free += 1;
        let leave = if self.sent < self.half {
            1
        } else if self.received < self.half {
            0
        } else {
            self.free.min(self.messages - self.sent)
        };
        self.free -= leave;
        self.sent += leave;
        leave
    }

    /// How many have left.
    #[must_use]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether all have left, and what has come is reduced.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.sent == self.messages && self.free == self.most
    }
}
