//! The network interface by which the ranks of a gang reach this machine. Gloo takes the one that the machine's own name stands
//! for, which on many machines is the loopback; and the ranks never meet.

use std::net::Ipv4Addr;
use windfall_core::worker::StartOrder;

/// The kernel's table of routes, as text.
const ROUTES: &str = "/proc/net/route";

/// The interface of the address by which this machine reached the server, for a rank with others on other machines.
pub(super) fn interface_of_gang(order: &StartOrder) -> Option<String> {
    let own: Ipv4Addr = order.master.0.parse().ok()?;
    if order.world_size < 2 || own.is_loopback() {
        return None;
    }
    interface_of(own, &std::fs::read_to_string(ROUTES).ok()?)
}

/// The interface with the narrowest network that an address is in. Numbers in the table are in the order of the network, read
/// as this machine's own.
fn interface_of(address: Ipv4Addr, routes: &str) -> Option<String> {
    let address = u32::from_ne_bytes(address.octets());
    let networks = routes.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (network, mask) = (number(1)?, number(7)?);
        (address & mask == network).then(|| (mask.count_ones(), words[0].to_owned()))
    });
    networks.reduce(|best, other| if other.0 > best.0 { other } else { best }).map(|(_, interface)| interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As on a little-endian machine, which all that this runs on are.
    const TABLE: &str = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0101A8C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        ib0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0\n";

    #[test]
    fn an_address_has_the_interface_of_the_narrowest_network_that_it_is_in() {
        let interface = |text: &str| interface_of(text.parse().expect("an address"), TABLE);
        assert_eq!(interface("192.168.1.7").as_deref(), Some("eth0"));
        assert_eq!(interface("10.3.2.1").as_deref(), Some("ib0"));
        assert_eq!(interface("172.16.0.4").as_deref(), Some("eth0"), "by the way to everywhere else");
        assert_eq!(interface_of(Ipv4Addr::new(10, 3, 2, 1), "nonsense\nib0 x"), None);
    }
}
