//! Where a rank listens for the others.

use std::io::ErrorKind;
use std::net::SocketAddr;

use socket2::Socket;

use super::addresses::{listen, listen_locally};
use crate::error::RuntimeError;
use crate::interface;
use crate::settings::Settings;

/// Where a node listens, before it is connected.
pub(crate) struct Listening {
    /// Those for TCP and those for ranks on this host, each with its place in `addresses`.
    pub(super) listeners: Vec<(Socket, usize)>,
    pub(super) addresses: Vec<SocketAddr>,
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
}
