//! A TCP connection. What is urgent waits for all that was given to the kernel before, so that is bounded twice:
//!
//! | what waits | bound | by |
//! |---|---|---|
//! | in the socket, not sent | `send_ahead` | `TCP_NOTSENT_LOWAT` |
//! | all, sent and not acknowledged too | [`most_held`] | the socket's buffer |
//!
//! The second is for queues of the network: no congestion control that is usual keeps them short. At 1 Gb/s it
//! left 6 ms of bytes there (BBR), or as much as the switch takes (Reno, CUBIC).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};

use allrail_core::{Bytes, Time};
use rustix::event::epoll::EventFlags;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};
use socket2::{Socket, Type};

use super::Link;
use crate::Settings;
use crate::settings::DimensionSettings;

/// How long a thread that is woken may take until it sends again: the line shall not run dry meanwhile.
const WAKING: Time = Time::from_us(200);

/// See the module.
pub(crate) struct Tcp {
    socket: Socket,
    /// Less was there than was asked for, or less was taken than was given: the next edge tells of more.
    dry: bool,
    full: bool,
    /// No edge comes any more.
    hung_up: bool,
}

/// What a connection holds at most: `send_ahead`, or what the line carries until a thread is awake, and what
/// lies on the way there and back. So one connection alone keeps the line busy.
fn most_held(ahead: Bytes, dimension: &DimensionSettings) -> usize {
    let rate = u128::from(dimension.bandwidth.bytes_per_second()) * u128::from(dimension.links);
    let carried = |time: Time| rate * u128::from(time.as_ps()) / 1_000_000_000_000;
    let ahead = u128::from(ahead.count()).max(carried(WAKING));
    usize::try_from(ahead + 2 * carried(dimension.latency)).unwrap_or(usize::MAX)
}

/// Bounds what a socket holds, where the kernel grants as much. It grants no more than `wmem_max`, and does
/// not go back to a buffer that grows: less than the line needs would slow it down.
fn hold_at_most(socket: &Socket, bytes: usize) -> io::Result<()> {
    // The kernel doubles it, for what it keeps beside the bytes.
    let half = bytes / 2;
    let trial = Socket::new(socket.local_addr()?.domain(), Type::STREAM, None)?;
    trial.set_send_buffer_size(half)?;
    if trial.send_buffer_size()? / 2 >= half {
        socket.set_send_buffer_size(half)?;
    }
    Ok(())
}

/// What a socket is told before it carries frames, of a dimension or of control.
pub(super) fn set_ahead(
    socket: &Socket,
    settings: &Settings,
    dimension: Option<u32>,
) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if let Some(dimension) = dimension.and_then(|one| settings.dimensions.get(one as usize)) {
        hold_at_most(socket, most_held(settings.send_ahead, dimension))?;
    }
    let ahead = u32::try_from(settings.send_ahead.count()).unwrap_or(u32::MAX);
    socket.set_tcp_notsent_lowat(ahead)
}

impl Tcp {
    /// Over a socket that does not block, for frames of a dimension or for control.
    pub(crate) fn new(
        socket: Socket,
        settings: &Settings,
        dimension: Option<u32>,
    ) -> io::Result<Self> {
        set_ahead(&socket, settings, dimension)?;
        Ok(Self { socket, dry: false, full: false, hung_up: false })
    }
}

impl Link for Tcp {
    fn socket(&self) -> &Socket {
        &self.socket
    }

    fn woken(&mut self, seen: EventFlags) {
        let over = seen.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
        self.hung_up |= over;
        self.dry &= !over && !seen.contains(EventFlags::IN);
        self.full &= !over && !seen.contains(EventFlags::OUT);
    }

    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.dry {
            return Err(ErrorKind::WouldBlock.into());
        }
        let bytes = match &mut *into {
            [one] => (&self.socket).read(one)?,
            several => (&self.socket).read_vectored(several)?,
        };
        let asked: usize = into.iter().map(|one| one.len()).sum();
        self.dry = bytes < asked && !self.hung_up;
        Ok(bytes)
    }

    /// TCP's own checksum has 16 bits, and is often computed before the last copy.
    fn protects(&self) -> bool {
        false
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.full {
            return Err(ErrorKind::WouldBlock.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut nothing = SendAncillaryBuffer::default();
        let sent = sendmsg(&self.socket, pieces, &mut nothing, flags)?;
        let given: usize = pieces.iter().map(|one| one.len()).sum();
        self.full = sent < given;
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn settings(bandwidth: &str, latency: &str) -> Settings {
        let dimension =
            format!(r#"{{"size": 2, "bandwidth": "{bandwidth}", "latency": "{latency}"}}"#);
        let all = format!(r#"{{"rank": 0, "ranks": 2, "dimensions": [{dimension}]}}"#);
        Settings::from_json(&all).expect("they can be")
    }

    #[test]
    fn a_connection_holds_what_its_line_needs_and_no_more() {
        let most = |bandwidth, latency| {
            let settings = settings(bandwidth, latency);
            most_held(settings.send_ahead, &settings.dimensions[0])
        };
        assert_eq!(most("1 Gb/s", "20 us"), (64 << 10) + 5_000);
        assert_eq!(most("1 Gb/s", "5 ms"), (64 << 10) + 1_250_000);
        // 200 us of its rate are more than what may wait anyway.
        assert_eq!(most("10 Gb/s", "20 us"), 250_000 + 50_000);
    }

    #[test]
    fn what_fell_short_waits_for_the_next_edge() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it listens");
        let mut there = TcpStream::connect(address).expect("it listens");
        let here = Socket::from(listener.accept().expect("it was dialled").0);
        let mut link = Tcp::new(here, &settings("1 Gb/s", "20 us"), Some(0)).expect("a link");
        // This socket blocks: only what the link knows by itself says `WouldBlock`.
        let read = |link: &mut Tcp| {
            let (mut one, mut other) = ([0; 4], [0; 4]);
            let mut into = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
            link.read(&mut into).map_err(|error| error.kind())
        };
        there.write_all(&[1; 5]).expect("it takes them");
        assert_eq!(read(&mut link), Ok(5));
        there.write_all(&[1; 3]).expect("it takes them");
        assert_eq!(read(&mut link), Err(ErrorKind::WouldBlock));
        link.woken(EventFlags::OUT);
        assert_eq!(read(&mut link), Err(ErrorKind::WouldBlock), "nothing has come by this edge");
        link.woken(EventFlags::IN);
        assert_eq!(read(&mut link), Ok(3));
        drop(there);
        link.woken(EventFlags::RDHUP);
        assert_eq!(
            (read(&mut link), read(&mut link)),
            (Ok(0), Ok(0)),
            "no edge comes after the end"
        );
    }

    #[test]
    fn a_socket_is_bounded_where_the_kernel_grants_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let dial = || {
            let address = listener.local_addr().expect("it listens");
            Socket::from(TcpStream::connect(address).expect("it listens"))
        };
        let held = |socket: &Socket| socket.send_buffer_size().expect("it has one");
        let (socket, lan) = (dial(), settings("1 Gb/s", "20 us"));
        let before = held(&socket);
        set_ahead(&socket, &lan, None).expect("it is told");
        assert_eq!(held(&socket), before, "of control nothing is bounded");
        set_ahead(&socket, &lan, Some(0)).expect("it is told");
        assert_eq!(held(&socket), (64 << 10) + 5_000);
        let (socket, far) = (dial(), settings("400 Gb/s", "100 ms"));
        set_ahead(&socket, &far, Some(0)).expect("it is told");
        assert_eq!(held(&socket), before, "what is needed is not granted");
    }
}
