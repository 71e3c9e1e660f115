//! The address of a network interface, which is all that a node listens on: given itself, by the interface's
//! name, or by the network (`10.0.0.0/8`) that it is in, which may be alike for all hosts.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::RuntimeError;

/// Whether an interface is told by a loopback address.
pub(crate) fn is_loopback(interface: &str) -> bool {
    interface.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The address that an interface is told by: the address itself, the interface's name, or its network.
pub(crate) fn address(field: &str, interface: &str) -> Result<IpAddr, RuntimeError> {
    if let Ok(address) = interface.parse::<IpAddr>() {
        if address.is_unspecified() {
            let why = "it means every interface of the machine, and whoever reaches any of them";
            let hint = "name one interface, such as `eth0`, or its address";
            return Err(RuntimeError::setting(field, interface, why, hint));
        }
        return Ok(address);
    }
    let all = all()?;
    let usable = |address: &IpAddr| match address {
        IpAddr::V4(_) => true,
        // Addresses of a link need the link's number beside.
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 != 0xfe80,
    };
    let network = match interface.split_once('/') {
        Some((first, bits)) => Some(Network::read(field, interface, first, bits)?),
        None => None,
    };
    let is_meant = |name: &String, address: &IpAddr| match network {
        Some(network) => network.contains(address),
        None => name == interface,
    };
    let mine = all.iter().filter(|(name, address)| is_meant(name, address) && usable(address));
    // IPv4 where there is one.
    mine.map(|(_, address)| *address).min().ok_or_else(|| {
        let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        if network.is_some() {
            let addresses: Vec<String> = all.iter().map(|(_, one)| one.to_string()).collect();
            let why = "this machine has no address in that network";
            let hint = format!("its addresses are {}", addresses.join(", "));
            return RuntimeError::setting(field, interface, why, hint);
        }
        let why = "this machine has no such interface with an address";
        let hint = format!("one of {}, or an address", names.join(", "));
        RuntimeError::setting(field, interface, why, hint)
    })
}

/// Addresses whose first bits are alike.
#[derive(Clone, Copy)]
struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    fn read(field: &str, text: &str, first: &str, bits: &str) -> Result<Self, RuntimeError> {
        let most = |first: IpAddr| if first.is_ipv4() { 32 } else { 128 };
        let read = first.parse().ok().zip(bits.parse().ok());
        match read.filter(|(first, bits)| (1..=most(*first)).contains(bits)) {
            Some((first, bits)) => Ok(Self { first, bits }),
            None => {
                let why = "it is not a network: an address, `/`, and how many bits of it count";
                Err(RuntimeError::setting(field, text, why, "such as `10.0.0.0/8`"))
            }
        }
    }

    fn contains(self, address: &IpAddr) -> bool {
        match (self.first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                (first.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}

/// Every interface of this machine that is up, with each of its addresses.
fn all() -> Result<Vec<(String, IpAddr)>, RuntimeError> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` may be written; it is read only if the call has succeeded.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        let why = std::io::Error::last_os_error();
        return Err(RuntimeError::system("the list of network interfaces", &why));
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which lives until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: null, or an address whose family says of which type it is, as long as the list.
        let Some(family) = (unsafe { entry.ifa_addr.as_ref() }).map(|a| i32::from(a.sa_family))
        else {
            continue;
        };
        let address = match family {
            libc::AF_INET => {
                // SAFETY: an address of this family is a `sockaddr_in`.
                let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in>() };
                IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: an address of this family is a `sockaddr_in6`.
                let address = unsafe { &*entry.ifa_addr.cast::<libc::sockaddr_in6>() };
                IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        // SAFETY: every entry has a name that ends with a zero, as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) };
        found.push((name.to_string_lossy().into_owned(), address));
    }
    // SAFETY: the list that was made above, once; nothing refers into it any more.
    unsafe { libc::freeifaddrs(first) };
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_an_address_or_a_name_and_never_all() {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(address("interface", "127.0.0.1"), Ok(loopback));
        assert_eq!(address("interface", "lo"), Ok(loopback));
        assert_eq!(address("interface", "::1"), Ok(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        for all in ["0.0.0.0", "::"] {
            assert!(address("interface", all).is_err());
        }
        for network in ["127.0.0.0/8", "127.0.0.1/32"] {
            assert_eq!(address("interface", network), Ok(loopback), "{network}");
        }
        for none in ["0.0.0.0/0", "127.0.0.0/33", "203.0.113.0/24", "127.0.0.0/", "lo/8"] {
            let error = address("interface", none).expect_err(none);
            assert!(error.hint().is_some_and(|hint| hint.contains('.')), "{none}");
        }
        let error = address("dimensions[1].interface", "eth99").expect_err("no such interface");
        assert!(error.to_string().starts_with("`dimensions[1].interface` is `eth99`"));
        assert!(error.hint().is_some_and(|hint| hint.contains("lo")));
    }
}
