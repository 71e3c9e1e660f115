//! Listening at an address, dialling one, and the table of them.
//!
//! Beside each TCP port a rank listens at a local name (an abstract Unix address, which is seen in its network
//! namespace only): who can be reached there is on this host. The name is made of the secret, so that nobody
//! else can take it before the rank does.

use std::net::{IpAddr, SocketAddr};

use allrail_core::{counted, either};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::auth::Secret;
use crate::{RuntimeError, Settings};

/// How many connections wait at most until this rank looks; what the system allows may be less.
const BACKLOG: i32 = 1 << 16;

pub(super) fn listen(ip: IpAddr, port: u16) -> std::io::Result<Socket> {
    let address = SocketAddr::new(ip, port);
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A job that was just restarted may have its port again.
    socket.set_reuse_address(port != 0)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn local(secret: &Secret, address: SocketAddr) -> std::io::Result<(Socket, SockAddr)> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    let name = secret.prove("allrail local name", [address.to_string().as_bytes(), b"", b""]);
    let name = name.iter().fold("\0allrail ".to_owned(), |all, byte| format!("{all}{byte:02x}"));
    Ok((socket, SockAddr::unix(name)?))
}

/// Listens for ranks on this host.
pub(super) fn listen_locally(secret: &Secret, address: SocketAddr) -> std::io::Result<Socket> {
    let (socket, name) = local(secret, address)?;
    socket.bind(&name)?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

/// Connects with a rank on this host, of this user; an error where it is elsewhere, `WouldBlock` where too
/// many wait there.
pub(super) fn dial_locally(secret: &Secret, address: SocketAddr) -> std::io::Result<Socket> {
    let (socket, name) = local(secret, address)?;
    socket.connect(&name)?;
    is_mine(&socket)?;
    Ok(socket)
}

/// Memory is shared with processes of the same user only; the number of that process.
pub(super) fn is_mine(socket: &Socket) -> std::io::Result<i32> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    if peer.uid == rustix::process::geteuid() {
        return Ok(peer.pid.as_raw_nonzero().get());
    }
    Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it is another user's process"))
}

/// Reads the table, whose rows are ranks.
pub(super) fn read_table(
    settings: &Settings,
    table: &[Vec<String>],
) -> Result<Vec<Vec<SocketAddr>>, RuntimeError> {
    let none = settings.secret()?.is_none();
    let refuse = |field: String, value: String, why: &str| {
        let hint = "the lists that `addresses` gives on each rank, in the order of ranks";
        Err(RuntimeError::setting(field, value, why, hint))
    };
    if table.len() != settings.ranks as usize {
        let why = format!(
            "there {are} {}",
            counted(settings.ranks, "rank"),
            are = either(&settings.ranks, "is", "are")
        );
        return refuse("addresses".to_owned(), table.len().to_string(), &why);
    }
    let mut all = Vec::new();
    for (rank, of_rank) in table.iter().enumerate() {
        let field = format!("addresses[{rank}]");
        if of_rank.len() != settings.dimensions.len() {
            let why = format!(
                "there {are} {}",
                counted(settings.dimensions.len(), "dimension"),
                are = either(&settings.dimensions.len(), "is", "are")
            );
            return refuse(field, of_rank.len().to_string(), &why);
        }
        let mut list = Vec::new();
        for text in of_rank {
            match text.parse::<SocketAddr>() {
                Ok(address) if none && !address.ip().is_loopback() => {
                    return refuse(field, text.clone(), "without a secret only loopback is used");
                }
                Ok(address) => list.push(address),
                Err(_) => return refuse(field, text.clone(), "it is no address with a port"),
            }
        }
        all.push(list);
    }
    Ok(all)
}

/// The first of a rank's addresses that other hosts reach, where there is one: a dimension within a host may
/// be on loopback.
pub(super) fn reachable(addresses: &[SocketAddr]) -> usize {
    addresses.iter().position(|one| !one.ip().is_loopback()).unwrap_or(0)
}

/// Begins a connection that leaves by the interface with this address.
pub(super) fn dial(from: IpAddr, to: SocketAddr) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if from.is_ipv4() == to.is_ipv4() {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.set_nonblocking(true)?;
    match socket.connect(&to.into()) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => Err(error),
        Ok(()) | Err(_) => Ok(socket),
    }
}
