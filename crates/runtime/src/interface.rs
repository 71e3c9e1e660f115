//! The address of a network interface, which is all that a node listens on.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::RuntimeError;

/// The address that an interface is told by: the address itself, or the interface's name.
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
    let mine = all.iter().filter(|(name, address)| name == interface && usable(address));
    // IPv4 where there is one.
    mine.map(|(_, address)| *address).min().ok_or_else(|| {
        let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        let why = "this machine has no such interface with an address";
        let hint = format!("one of {}, or an address", names.join(", "));
        RuntimeError::setting(field, interface, why, hint)
    })
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
        let error = address("dimensions[1].interface", "eth99").expect_err("no such interface");
        assert!(error.to_string().starts_with("`dimensions[1].interface` is `eth99`"));
        assert!(error.hint().is_some_and(|hint| hint.contains("lo")));
    }
}
