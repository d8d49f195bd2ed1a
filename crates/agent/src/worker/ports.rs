//! The port on which the ranks of a gang meet. Between the moment in which it is chosen and the moment in which the program
//! listens on it nothing may take it: no other gang's rank 0 on this machine, and no connection to somewhere else.

use std::io::{Error, ErrorKind};
use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Below what Linux gives to connections that say no port, and below Kubernetes' node ports.
const PORTS: Range<u16> = 20_000..30_000;
/// What Linux gives to connections that say no port.
const GIVEN: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A port that no other worker on this network has while this is kept.
#[derive(Debug)]
pub(super) struct Port {
    pub number: u16,
    /// A name that is one per network, whoever takes it and in whatever process: with its owner it is free again. The port
    /// itself cannot be held, because the program is to listen on it. None where such names cannot be had.
    _name: Option<UnixDatagram>,
}

impl Port {
    /// Takes the first port from a place that is drawn, so that two workers hardly ever try the same. Where somebody has taken all
    /// of them, it is one that is free at this moment.
    pub fn claim() -> std::io::Result<Port> {
        let given = std::fs::read_to_string(GIVEN).unwrap_or_default();
        let range = beside(&given);
        let drawn = u64::from_str_radix(crate::checkpoint::token().get(..8).unwrap_or("0"), 16).unwrap_or(0);
        let first = range.start + u16::try_from(drawn % u64::from(range.end - range.start)).unwrap_or(0);
        let mut all = (first..range.end).chain(range.start..first);
        match all.find_map(|number| Port::take(number).transpose()) {
            Some(Ok(port)) => Ok(port),
            _ => Port::any(),
        }
    }

    /// A port that nobody has at this moment.
    fn any() -> std::io::Result<Port> {
        let listens = TcpListener::bind(("0.0.0.0", 0))?;
        Ok(Port { number: listens.local_addr()?.port(), _name: None })
    }

    /// This port, unless somebody has it.
    fn take(number: u16) -> std::io::Result<Option<Port>> {
        let in_use = |error: Error| if error.kind() == ErrorKind::AddrInUse { Ok(None) } else { Err(error) };
        let name = SocketAddr::from_abstract_name(format!("windfall-port-{number}"))?;
        let name = match UnixDatagram::bind_addr(&name) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Ok(None),
            // Where a site forbids such names, ports are not held.
            name => name.ok(),
        };
        match TcpListener::bind(("0.0.0.0", number)) {
            Ok(_) => Ok(Some(Port { number, _name: name })),
            // A site may keep ports for others.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(None),
            Err(error) => in_use(error),
        }
    }
}

/// The ports that are no connection's own, by what Linux says of those; all of ours where there would be none.
fn beside(given: &str) -> Range<u16> {
    let mut bounds = given.split_whitespace().filter_map(|bound| bound.parse::<u16>().ok());
    let (Some(first), Some(last)) = (bounds.next(), bounds.next()) else { return PORTS };
    let (below, above) = (PORTS.start..PORTS.end.min(first), PORTS.start.max(last.saturating_add(1))..PORTS.end);
    [below, above].into_iter().max_by_key(ExactSizeIterator::len).filter(|range| !range.is_empty()).unwrap_or(PORTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_port_is_one_workers_until_it_is_done_with_it() {
        let ports: Vec<Port> = (0..200).map(|_| Port::claim().expect("a port")).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers.len(), ports.len(), "two have one");
        let number = ports[0].number;
        assert!(Port::take(number).expect("asked").is_none(), "it is taken");
        let listens = TcpListener::bind(("0.0.0.0", number)).expect("the program may listen on it");
        drop(ports);
        assert!(Port::take(number).expect("asked").is_none(), "somebody listens there");
        drop(listens);
        assert_eq!(Port::take(number).expect("asked").map(|port| port.number), Some(number));
        assert!(Port::any().expect("a port").number > 0, "also where all of ours are taken");
    }

    #[test]
    fn no_port_is_one_that_a_connection_may_be_given() {
        assert_eq!(beside("32768\t60999\n"), 20_000..30_000);
        assert_eq!(beside("25000 60999"), 20_000..25_000);
        assert_eq!(beside("1024 22000"), 22_001..30_000);
        assert_eq!(beside("10000 65535"), 20_000..30_000, "then any of them");
        assert_eq!(beside(""), 20_000..30_000);
    }
}
