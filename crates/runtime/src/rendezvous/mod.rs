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
mod door;
mod greeting;
mod handshake;
mod meeting;
mod stream;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;

use socket2::Socket;

use self::addresses::{listen, listen_locally, read_table};
use self::meeting::Meeting;
use crate::port::link::Link;
use crate::{RuntimeError, Settings, interface};

/// Where a node listens, before it is connected.
pub(crate) struct Listening {
    /// Those for TCP and those for ranks on this host, each with its place in `addresses`.
    listeners: Vec<(Socket, usize)>,
    addresses: Vec<SocketAddr>,
}

/// The connections of a rank.
pub(crate) struct Connected {
    pub(crate) control: BTreeMap<u32, Box<dyn Link>>,
    /// By dimension.
    pub(crate) data: Vec<BTreeMap<u32, Box<dyn Link>>>,
    /// What strangers did meanwhile.
    pub(crate) notes: Vec<String>,
}

/// The other ranks that differ from `rank` on dimension `d` only.
pub(crate) fn line(sizes: &[u32], rank: u32, d: usize) -> Vec<u32> {
    let stride: u32 = sizes[..d].iter().product();
    let first = rank - rank / stride % sizes[d] * stride;
    (0..sizes[d]).map(|i| first + i * stride).filter(|other| *other != rank).collect()
}

impl Listening {
    pub(crate) fn new(settings: &Settings) -> Result<Self, RuntimeError> {
        let secret = settings.secret()?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for (d, dimension) in settings.dimensions.iter().enumerate() {
            let field = format!("dimensions[{d}].interface");
            let ip = interface::address(&field, &dimension.interface)?;
            if secret.is_none() && !ip.is_loopback() {
                let why = "without a secret only loopback addresses are used: anyone on the network \
                           could take part in the job";
                let hint = "give `secret`, or use 127.0.0.1";
                return Err(RuntimeError::setting(field, &dimension.interface, why, hint));
            }
            let listener = listen(ip, dimension.port).map_err(|error| {
                let field = format!("dimensions[{d}].port");
                let (why, hint) = match error.kind() {
                    ErrorKind::AddrInUse => {
                        ("another process listens there", "leave it out for any free one")
                    }
                    ErrorKind::AddrNotAvailable => {
                        ("this machine does not have that address", "an interface of this machine")
                    }
                    ErrorKind::PermissionDenied => {
                        ("this user may not listen there", "leave it out for any free one")
                    }
                    _ => return RuntimeError::system("listening", &error),
                };
                let at = SocketAddr::new(ip, dimension.port);
                RuntimeError::setting(field, at, why, hint)
            })?;
            let address = listener.local_addr();
            let address = address.map_err(|error| RuntimeError::system("listening", &error))?;
            addresses.extend(address.as_socket());
            if settings.shared_memory
                && let Some(at) = address.as_socket()
                && let Ok(local) = listen_locally(&secret, at)
            {
                listeners.push((local, d));
            }
            listeners.push((listener, d));
        }
        Ok(Self { listeners, addresses })
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

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
