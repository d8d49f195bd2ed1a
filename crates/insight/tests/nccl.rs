//! Logs of NCCL. Those in `tests/nccl` are real: two ranks on one H200 that took each other for different machines
//! (`NCCL_HOSTID`), and one rank alone, with NCCL 2.28. Others are lines in its format, as one machine cannot show them.

use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use windfall_insight::nccl::{NcclError, NcclReport, report, screen};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nccl").join(name)
}

fn of(bytes: &[u8]) -> Result<NcclReport, NcclError> {
    let mut file = tempfile::NamedTempFile::new().expect("it is there");
    file.write_all(bytes).expect("it is there");
    report(&[file.path().to_owned()], &Default::default())
}

/// A job of ranks on hosts, two to a host, whose connections are said to be these.
fn job(connections: &[(u64, u64, &str)], more: &[&str]) -> NcclReport {
    let mut lines = Vec::new();
    for rank in 0..4u64 {
        let host = format!("node{}:{}:{} [{}]", rank / 2, 100 + rank, 100 + rank, rank % 2);
        lines.push(format!(
            "{host} NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 4 cudaDev 0 busId 60 commId 0xab - Init START"
        ));
        lines.push(format!("{host} NCCL INFO comm 0x1 rank {rank} nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0"));
        for (from, to, transport) in connections.iter().filter(|(from, ..)| *from == rank) {
            lines.push(format!("{host} NCCL INFO Channel 00/0 : {from}[0] -> {to}[0] via {transport}"));
        }
        lines.extend(more.iter().map(|said| format!("{host} NCCL INFO {said}")));
        lines.push(format!(
            "{host} NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks 4 cudaDev 0 busId 60 commId 0xab - Init COMPLETE"
        ));
    }
    of(lines.join("\n").as_bytes()).expect("it is there")
}

#[test]
fn ranks_of_one_machine_that_talk_over_sockets_are_found() {
    let report = report(&[recorded("sockets_0.log"), recorded("sockets_1.log")], &Default::default());
    let report = report.expect("it is there");
    assert_eq!(report.verdict, "sockets within a node", "{}", report.because);
    assert!(report.because.contains("1 pair of ranks"), "{}", report.because);
    assert!(report.fixes[0].contains("NCCL_HOSTID=node"), "{:?}", report.fixes);
    assert_eq!((report.ranks, report.nodes), (Some(2), Some(2)));
    assert_eq!(report.version.as_deref(), Some("2.28.9+cuda13.0"));
    assert_eq!(report.network.as_deref(), Some("Socket"));
    assert_eq!(report.interfaces, ["[0]lo:127.0.0.1<0>"]);
    let link = &report.links[0];
    assert_eq!((link.transport.as_str(), link.within_node, link.connections), ("NET/Socket", Some(true), 8));
    let communicator = &report.communicators[0];
    assert_eq!((communicator.channels, communicator.nvls_channels, communicator.ready), (Some(2), Some(0), 2));
    assert_eq!((communicator.ring.as_slice(), communicator.trees), (&[0, 1][..], true));
    assert_eq!(report.notes, [] as [&str; 0]);
    let screen = screen(&report, 80);
    assert!(screen.contains("NET/Socket                 ranks of a node"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
}

/// With one rank's log nobody says where the other is, so it counts as another node's.
#[test]
fn one_log_of_two_says_what_is_missing() {
    let report = report(&[recorded("sockets_0.log")], &Default::default()).expect("it is there");
    assert_eq!(report.verdict, "sockets between nodes");
    assert!(report.because.contains("found no RDMA adapter"), "{}", report.because);
    assert!(report.notes[0].contains("1 of 2 ranks"), "{:?}", report.notes);
}

#[test]
fn one_rank_has_nobody_to_talk_to() {
    let report = report(&[recorded("one.log")], &Default::default()).expect("it is there");
    assert_eq!((report.verdict.as_str(), report.communicators[0].channels), ("one rank", Some(64)));
}

#[test]
fn every_slow_transport_is_named_and_the_worst_first() {
    let (p2p, rdma) = ("P2P/CUMEM/read", "NET/IB/0/GDRDMA");
    let inside = [(0, 1, p2p), (1, 0, p2p), (2, 3, p2p), (3, 2, p2p)];
    let with = |more: &[(u64, u64, &'static str)]| job(&[&inside, more].concat(), &[]);
    assert_eq!(with(&[(1, 2, rdma), (3, 0, rdma)]).verdict, "fast transports");
    assert_eq!(with(&[(1, 2, "NET/AWS Libfabric/0/GDRDMA")]).verdict, "fast transports");
    assert_eq!(with(&[(1, 2, "NET/IB/0")]).verdict, "RDMA without GPUDirect");
    assert_eq!(with(&[(1, 2, "NET/Socket/0")]).verdict, "sockets between nodes");
    assert_eq!(with(&[(0, 1, "SHM/direct/direct"), (1, 2, rdma)]).verdict, "no peer access within a node");
    let worst = with(&[(0, 1, "SHM/direct/direct"), (1, 2, "NET/IB/0"), (2, 3, "NET/Socket/1")]);
    assert_eq!(worst.verdict, "sockets within a node");
    assert_eq!(worst.fixes.len(), 3, "{:?}", worst.fixes);
}

#[test]
fn variables_that_cause_it_are_named() {
    let report = job(&[(1, 2, "NET/Socket/0")], &["NCCL_IB_DISABLE set by environment to 1."]);
    assert!(report.fixes[0].contains("NCCL_IB_DISABLE=1 is set"), "{:?}", report.fixes);
}

#[test]
fn what_is_no_log_is_refused_and_a_cut_one_is_read() {
    for bytes in [&b""[..], b"GIF89a", b"step 1\nstep 2\n", &[0xff; 3_000]] {
        assert!(matches!(of(bytes), Err(NcclError::NoLines { .. })), "{bytes:?}");
    }
    assert!(matches!(report(&["/nonexistent".into()], &Default::default()), Err(NcclError::Read { .. })));
    let whole = std::fs::read(recorded("sockets_0.log")).expect("it is there");
    let cut = of(&whole[..whole.len() / 2]).expect("it is there");
    assert_eq!(cut.verdict, "connections unknown");
    assert!(cut.notes.iter().any(|note| note.contains("never ready")), "{:?}", cut.notes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn no_damage_to_a_log_makes_it_panic(at in 0usize..8_000, with in any::<u8>(), cut in 0usize..8_000) {
        let mut bytes = std::fs::read(recorded("sockets_0.log")).expect("it is there");
        let length = bytes.len();
        bytes[at % length] = with;
        bytes.truncate(length - cut % length);
        if let Ok(report) = of(&bytes) {
            prop_assert!(!screen(&report, 80).is_empty());
        }
    }

    #[test]
    fn no_lines_make_it_panic(words in prop::collection::vec("[a-zA-Z0-9\\[\\]/:> -]{0,20}", 0..12)) {
        let lines: Vec<String> = words.iter().flat_map(|said| [
            format!("a:1:2 [0] NCCL INFO {said}"),
            format!("a:1:2 [0] NCCL INFO Channel {said}"),
            format!("a:1:2 [0] NCCL INFO comm {said} Init COMPLETE"),
        ]).collect();
        let _ = of(lines.join("\n").as_bytes());
    }
}
