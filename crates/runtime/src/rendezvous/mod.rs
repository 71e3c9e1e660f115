//! How the ranks of a job find each other: each listens on the interfaces that it was told, all get the
//! table of addresses from whoever starts them, and the higher rank dials the lower.
//!
//! Between every two ranks there is a control connection, to the first address of the lower one (that is not
//! loopback, where there is such a one); between every two that differ on one dimension only there is a data
//! connection on it; where both are on one host it is a local socket and memory of both, unless
//! `shared_memory` is off. (Where others carry the data there are none.) Once all are there nobody listens any
//! more. Until then whoever connects has to prove with its first words that it is of this job ([`greeting`]). No
//! more than [`MAX_STRANGERS`](door::MAX_STRANGERS) that have not are kept, of which newcomers take the place
//! ([`door`]), and all of them together cost one note.

mod addresses;
mod connected;
mod door;
mod greeting;
mod handshake;
mod lines;
mod listening;
mod meeting;
mod refused;
mod stream;

pub(crate) use self::connected::{Connected, line};
pub(crate) use self::listening::Listening;

use self::addresses::read_table;
use self::meeting::Meeting;
use crate::error::RuntimeError;
use crate::settings::Settings;

impl Listening {
    /// Finds all others; `goes_on` is asked every 100 ms.
    pub(crate) fn connect(
        self,
        settings: &Settings,
        table: &[Vec<String>],
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Connected, RuntimeError> {
        let table = read_table(settings, table)?;
        Meeting::new(self, settings, &table)?.hold(goes_on)
    }
}

#[cfg(test)]
mod strangers;
#[cfg(test)]
mod tests;
