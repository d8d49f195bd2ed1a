//! What the first agents and servers of each protocol said, word for word. Whoever understands the protocol today understands it
//! still: a server and its machines are upgraded one after the other, and work goes on meanwhile.

use super::protocol::{
    Beat, Heard, Hello, InStore, NotKept, NotWelcome, Purpose, StorePart, ToNode, ToServer, Welcome,
};
use serde::de::DeserializeOwned;
use windfall_core::worker::AgentRequest;
use windfall_core::{WorkerEnd, WorkloadId};

fn read<T: DeserializeOwned>(text: &str) -> T {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("it is not understood any more: {error}: {text}"))
}

const LEASE: &str = r#"{"installation":7,"seq":12,"slot":1}"#;

#[test]
fn what_agents_of_protocol_1_said_is_understood() {
    let hello: Hello = read(
        r#"{"protocol":1,"build":"0.1.0","instance":"a","purpose":{"serve":{"joins":{"token":"t","name":null},
            "inventory":{"name":"gpu-1","accelerators":[{"model":"H200","device":"GPU-1"}],"cpus":8,"memory_bytes":1024}}}}"#,
    );
    let Purpose::Serve { joins: Some(joins), inventory, labels, .. } = hello.purpose else { panic!("{hello:?}") };
    assert_eq!((joins.token.as_str(), inventory.accelerators.len(), labels.len()), ("t", 1, 0));
    let store: Hello = read(r#"{"protocol":1,"build":"0.1.0","instance":"a","purpose":{"store":{"workload":3}}}"#);
    let checkpoints = InStore { workload: WorkloadId(3), part: StorePart::Checkpoints };
    assert_eq!(store.purpose, Purpose::Store(checkpoints));

    let view = r#"{"version":4,"pid":99,"workers":[{"stint":{"workload":3,"member":0,"epoch":2},"rank":0,"pid":100,
        "restored":null,"restored_work":null,"done":5,"total":10,"durable":null,"durable_work":null,"durable_ran_ms":null,
        "end":{"exited":{"code":0}},"settled":true,"evidence":{"stop_took_ms":null,"ignored_sigterm":false,"left_behind":0,
        "left_names":[],"renamed_saves":1,"in_place_saves":0,"saves":1,"longest_save_ms":3,"first_save_ms":9,"saving_now":false,
        "restore_ms":5,"upload_ms":6,"first_progress_ms":100,"skipped":[]},"trouble":null}]}"#;
    let beat: ToServer = read(&format!(
        r#"{{"beat":{{"number":2,"leases":[{{"lease":{LEASE},"is_alive":true,"last":null}},
            {{"lease":{LEASE},"is_alive":false,"last":{view}}}]}}}}"#
    ));
    let ToServer::Beat(Beat { number: 2, leases, health: None }) = beat else { panic!("{beat:?}") };
    let ended = leases[1].last.as_ref().expect("a last view");
    assert_eq!(ended.workers[0].end, Some(WorkerEnd::Exited { code: 0 }));
    let output: ToServer = read(r#"{"output":{"stint":{"workload":3,"member":0,"epoch":2},"rank":1,"offset":4096}}"#);
    assert!(matches!(output, ToServer::Output { rank: 1, offset: 4096, .. }), "{output:?}");
    assert!(matches!(read(&format!(r#"{{"said":{view}}}"#)), Heard::Said(_)));
    assert_eq!(read::<Heard>(r#"{"nobody":null}"#), Heard::Nobody(None));
}

#[test]
fn what_servers_of_protocol_1_said_is_understood() {
    let welcome: Welcome = read(r#"{"welcome":{"name":"gpu-1","dead_man_ms":14400000}}"#);
    let said = Welcome::Welcome { name: "gpu-1".to_owned(), dead_man_ms: 14_400_000, now_unix_ms: None };
    assert_eq!(welcome, said);
    let refused: Welcome = read(r#"{"refused":{"protocol":{"ours":1,"theirs":2}}}"#);
    let Welcome::Refused(refused) = refused else { panic!("{refused:?}") };
    assert!(refused.may_pass() && refused.hint().contains("upgrade the server first"), "{refused}");
    for (text, meant) in [
        (r#""token""#, NotWelcome::Token),
        (r#""unknown""#, NotWelcome::Unknown),
        (r#""twice""#, NotWelcome::Twice),
        (r#"{"not-its-job":{"job":3}}"#, NotWelcome::NotItsJob { job: 3 }),
    ] {
        assert_eq!(read::<NotWelcome>(text), meant);
    }
    // To an output: a length, or what an agent that looks for a length takes for none.
    let not_kept = r#"{"not-kept":"no space left"}"#;
    assert_eq!(read::<NotKept>(not_kept), NotKept { not_kept: "no space left".to_owned() });
    assert!(serde_json::from_str::<u64>(not_kept).is_err() && serde_json::from_str::<NotKept>("4096").is_err());
    let launch: ToNode = read(&format!(r#"{{"launch":{{"lease":{LEASE},"devices":["0","1"]}}}}"#));
    let ToNode::Launch { devices, owner, limits, .. } = launch else { panic!("{launch:?}") };
    assert!(devices.len() == 2 && owner.is_empty() && limits.is_unsaid());
    let end: ToNode = read(&format!(r#"{{"end":{{"lease":{LEASE},"gently":true}}}}"#));
    assert!(matches!(end, ToNode::End { gently: true, .. }));
    assert!(matches!(read(&format!(r#"{{"forget":{{"leases":[{LEASE}]}}}}"#)), ToNode::Forget { .. }));
    let start: ToNode = read(&format!(
        r#"{{"ask":{{"lease":{LEASE},"request":{{"start":{{"stint":{{"workload":3,"member":0,"epoch":2}},"rank":0,
            "world_size":1,"master":["127.0.0.1",0],"command":["true"],"folder":"/work","fresh_folder":false,
            "env":{{"A":"b"}},"devices":[0],"share":null,"output":"/jobs/3/output","progress":null,
            "checkpoint_dir":null,"checkpoint_store":"file:///store","checkpoint_key":"key","keep":3,"settle_ms":2000,
            "complete":null,"resume":"newest","last_upload_ms":600000,"foreign":[]}}}}}}}}"#
    ));
    let ToNode::Ask { request: AgentRequest::Start(order), .. } = start else { panic!("{start:?}") };
    assert_eq!((order.rank, order.command.len(), order.keep), (0, 1, 3));
    for request in [
        r#"{"stop":{"stint":{"workload":3,"member":0,"epoch":2},"rank":0,"grace_ms":30000}}"#,
        r#"{"save":{"stint":{"workload":3,"member":0,"epoch":2},"request":1}}"#,
        r#"{"notice":{"in_ms":120000}}"#,
        r#"{"watch":{"above":4}}"#,
        r#""quit""#,
    ] {
        read::<AgentRequest>(request);
    }
}
