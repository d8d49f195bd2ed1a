//! One line of a log: who wrote it, and what it says. NCCL's words are those of its versions 2.10 to 2.28.

/// Who wrote a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Writer<'l> {
    pub host: &'l str,
    pub process: &'l str,
    pub thread: &'l str,
}

/// What a line says, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said<'l> {
    Version(&'l str),
    /// The network that was chosen.
    Network(&'l str),
    /// Adapters of a network.
    Adapters {
        network: &'l str,
        adapters: &'l str,
    },
    /// A network has no adapter here.
    NoAdapter(&'l str),
    /// A variable of the environment.
    Variable {
        name: &'l str,
        value: &'l str,
    },
    /// A communicator begins or is ready.
    Rank {
        communicator: Option<&'l str>,
        rank: u64,
        ranks: u64,
        ready: bool,
    },
    Nodes {
        ranks: u64,
        nodes: u64,
    },
    Ring {
        channels: u64,
        order: Vec<u64>,
    },
    Trees,
    Channels {
        collectives: u64,
        nvls: u64,
    },
    Connection {
        from: u64,
        to: u64,
        transport: &'l str,
    },
    /// GPUs are joined by NVLink.
    NvLink,
    Warning(&'l str),
    Other,
}

/// Takes a line apart; none where it is not NCCL's.
pub fn line(text: &str) -> Option<(Writer<'_>, Said<'_>)> {
    let (before, said, warns) = match text.split_once(" NCCL INFO ") {
        Some((before, said)) => (before, said, false),
        None => text.split_once(" NCCL WARN ").map(|(before, said)| (before, said, true))?,
    };
    let writer = writer(before)?;
    let said = said.trim();
    Some((writer, if warns { Said::Warning(said) } else { understood(said) }))
}

/// `node7:1488:1543 [0]`, whatever stands before it: launchers put ranks and times there.
fn writer(before: &str) -> Option<Writer<'_>> {
    before.split_whitespace().rev().find_map(|word| {
        let mut parts = word.rsplitn(3, ':');
        let (thread, process, host) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        (number(thread) && number(process) && !host.is_empty()).then_some(Writer { host, process, thread })
    })
}

fn understood(said: &str) -> Said<'_> {
    if let Some(version) = said.strip_prefix("NCCL version ") {
        return Said::Version(version);
    }
    if let Some(network) = said.strip_prefix("Using network ") {
        return Said::Network(network);
    }
    if let Some(rest) = said.strip_prefix("NET/")
        && let Some((network, rest)) = rest.split_once(" : ")
    {
        return match rest.strip_prefix("Using ") {
            Some(adapters) => Said::Adapters { network, adapters },
            None if rest.starts_with("No device") => Said::NoAdapter(network),
            None => Said::Other,
        };
    }
    if let Some((name, value)) = said.split_once(" set by environment to ")
        && name.starts_with("NCCL_")
    {
        return Said::Variable { name, value: value.trim_end_matches('.') };
    }
    if let Some(rest) = said.strip_prefix("Channel ") {
        return channel(rest).unwrap_or(Said::Other);
    }
    if said.starts_with("Trees [") {
        return Said::Trees;
    }
    if let Some((collectives, _)) = said.split_once(" coll channels,") {
        let nvls = said.split(", ").find_map(|part| part.strip_suffix(" nvls channels"));
        let number = |word: &str| word.trim().parse().ok();
        return match number(collectives) {
            Some(collectives) => Said::Channels { collectives, nvls: nvls.and_then(number).unwrap_or(0) },
            None => Said::Other,
        };
    }
    if said.starts_with("Pattern ") && said.contains("type NVL") || said.starts_with("+ NVL[") {
        return Said::NvLink;
    }
    communicator(said).unwrap_or(Said::Other)
}

/// `00/02 :    0   1` is a ring; `00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0` is a connection.
fn channel(rest: &str) -> Option<Said<'_>> {
    let (place, rest) = rest.split_once(" : ")?;
    if let Some((ends, transport)) = rest.split_once(" via ") {
        let (from, to) = ends.split_once(" -> ")?;
        let rank = |end: &str| end.trim().split_once('[').and_then(|(rank, _)| rank.trim().parse().ok());
        return Some(Said::Connection { from: rank(from)?, to: rank(to)?, transport: transport.trim() });
    }
    let channels = place.split_once('/').and_then(|(_, all)| all.trim().parse().ok())?;
    let order: Option<Vec<u64>> = rest.split_whitespace().map(|rank| rank.parse().ok()).collect();
    Some(Said::Ring { channels, order: order? })
}

/// `ncclCommInitRankConfig comm 0x2a rank 0 nranks 2 cudaDev 0 … commId 0x42 - Init START`, and
/// `comm 0x2a rank 0 nRanks 2 nNodes 2 localRanks 1 …`.
fn communicator(said: &str) -> Option<Said<'_>> {
    let words: Vec<&str> = said.split_whitespace().collect();
    let after = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied();
    let number = |name: &str| after(name).and_then(|word| word.parse::<u64>().ok());
    after("comm")?;
    if let (Some(ranks), Some(nodes)) = (number("nRanks"), number("nNodes")) {
        return Some(Said::Nodes { ranks, nodes });
    }
    let ready = said.ends_with("Init COMPLETE");
    if !ready && !said.ends_with("Init START") {
        return None;
    }
    let (rank, ranks) = (number("rank")?, number("nranks")?);
    Some(Said::Rank { communicator: after("commId"), rank, ranks, ready })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Said<'_> {
        line(text).expect("it is NCCL's").1
    }

    #[test]
    fn lines_of_several_versions_are_understood() {
        let connection = |from, to, transport| Said::Connection { from, to, transport };
        assert_eq!(
            said("node7:20:31 [3] NCCL INFO Channel 02/0 : 3[3] -> 7[7] [send] via NET/IB/1/GDRDMA"),
            connection(3, 7, "NET/IB/1/GDRDMA")
        );
        assert_eq!(
            said("node7:20:31 [3] NCCL INFO Channel 04 : 3[b000] -> 0[6000] via P2P/direct pointer"),
            connection(3, 0, "P2P/direct pointer")
        );
        assert_eq!(
            said("[rank0]: node7:20:31 [0] NCCL INFO Channel 01/02 :    0   1"),
            Said::Ring { channels: 2, order: vec![0, 1] }
        );
        assert_eq!(
            said("node7:20:31 [0] NCCL INFO comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0"),
            Said::Nodes { ranks: 16, nodes: 2 }
        );
        assert_eq!(
            said("node7:20:31 [0] NCCL INFO comm 0x1 rank 5 nranks 8 cudaDev 5 busId 7000 - Init COMPLETE"),
            Said::Rank { communicator: None, rank: 5, ranks: 8, ready: true }
        );
        assert_eq!(
            said("node7:20:31 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1."),
            Said::Variable { name: "NCCL_P2P_DISABLE", value: "1" }
        );
        assert_eq!(said("node7:20:31 [0] NCCL INFO NET/IB : No device found."), Said::NoAdapter("IB"));
        assert_eq!(said("a:1:2 [0] NCCL WARN Call to connect failed"), Said::Warning("Call to connect failed"));
    }

    #[test]
    fn what_is_not_nccl_s_is_nobody_s() {
        for text in ["", "step 1", "NCCL INFO ", " NCCL INFO x", "12:34:56 INFO NCCL", "a:b:c [0] NCCL INFO x"] {
            assert_eq!(line(text), None, "{text:?}");
        }
        for text in
            ["a:1:2 [0] NCCL INFO Channel ", "a:1:2 [0] NCCL INFO Channel 0/ : ->[ via ", "a:1:2 [0] NCCL INFO comm"]
        {
            assert_eq!(said(text), Said::Other, "{text:?}");
        }
    }
}
