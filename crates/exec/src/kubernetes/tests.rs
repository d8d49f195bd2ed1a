//! The engine without a cluster: what it does with what one says, and with pilots that have joined.

use super::*;
use crate::engine::LeaseState;
use crate::nodes::OnNode;
use crate::nodes::puppets::{LEASE, Puppets};
use serde_json::{Value, from_value, json};
use windfall_core::GroupPhase;

/// An engine, and the nodes that may join it.
async fn engine(folder: &std::path::Path) -> (Puppets, Arc<Kubernetes>) {
    let puppets = Puppets::start(folder).await;
    let settings = serde_json::from_str(r#"{"server":"h:1","image":"box","kubeconfig":"/nowhere"}"#).expect("settings");
    let (root, hub) = (folder.join("leases"), Arc::clone(&puppets.hub));
    let clock = Arc::new(WorldClock::real(Time(0)));
    let kubernetes = Kubernetes::open("kubernetes", root, settings, hub, clock, PathBuf::from("/bin/true"));
    (puppets, kubernetes.expect("opened"))
}

/// A gang of so many that was asked for this long ago.
fn given(kubernetes: &Kubernetes, units: u32, ago: Span) {
    let sold_at = Some(kubernetes.leases.clock.now() - ago);
    let marks =
        |slot: u32| Marks { host: Some(node_name(LeaseId { slot, ..LEASE })), units, sold_at, ..Marks::default() };
    kubernetes.leases.give(LEASE.group, |_, _| Ok((0..units).map(marks).collect())).expect("given");
}

fn moment(at: Time) -> String {
    jiff::Timestamp::from_millisecond(at.0).expect("a moment").to_string()
}

/// The Job of the gang, with a condition that holds where one is named.
fn job(created: Time, condition: &str, pods: Vec<Value>) -> SeenJob {
    let conditions = if condition.is_empty() { json!([]) } else { json!([{ "type": condition, "status": "True" }]) };
    let metadata = json!({ "name": job_name(LEASE.group), "creationTimestamp": moment(created) });
    let job = from_value(json!({ "metadata": metadata, "status": { "conditions": conditions } })).expect("a Job");
    SeenJob { job, pods: pods.into_iter().map(|pod| from_value(pod).expect("a pod")).collect() }
}

/// A pod of a slot; on a node since then.
fn pod(slot: u32, since: Option<Time>, status: Value) -> Value {
    let annotations = json!({ pilot::INDEX: slot.to_string() });
    let mut status = status;
    status["conditions"] = match since {
        Some(at) => json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": moment(at) }]),
        None => json!([{ "type": "PodScheduled", "status": "False", "message": "no room" }]),
    };
    json!({
        "metadata": { "name": format!("pod-{slot}"), "annotations": annotations },
        "spec": { "nodeName": if since.is_some() { "gpu-1" } else { "" } },
        "status": status,
    })
}

fn states(seen: &SeenGroup) -> Vec<bool> {
    seen.leases.iter().map(|seen| matches!(seen.state, LeaseState::Gone { .. })).collect()
}

#[tokio::test]
async fn a_group_waits_until_its_last_pod_has_a_node_and_is_on_its_way_from_then() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, kubernetes) = engine(folder.path()).await;
    let now = Time(kubernetes.leases.clock.now().0 / 1_000 * 1_000);
    let (created, placed) = (now - Span::hours(3), now - Span::seconds(9));
    given(&kubernetes, 2, Span::hours(3));
    let pending = json!({ "phase": "Pending" });
    let phase = |pods: Vec<Value>| kubernetes.seen(LEASE.group, Some(&job(created, "", pods))).expect("known").phase;
    let queued = GroupPhase::Queued { since: created, eta: None };
    assert_eq!(phase(Vec::new()), queued);
    assert_eq!(phase(vec![pod(0, Some(placed), pending.clone()), pod(1, None, pending.clone())]), queued);
    let both = vec![pod(0, Some(placed - Span::seconds(5)), pending.clone()), pod(1, Some(placed), pending)];
    assert_eq!(phase(both), GroupPhase::Granted { at: placed, units: 2 });
}

#[tokio::test]
async fn a_gang_of_which_some_have_no_node_for_long_is_given_up_and_says_why() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, kubernetes) = engine(folder.path()).await;
    given(&kubernetes, 2, Span::minutes(5));
    let now = kubernetes.leases.clock.now();
    let look = |since: Time| {
        let pods =
            vec![pod(0, Some(since), json!({ "phase": "Running" })), pod(1, None, json!({ "phase": "Pending" }))];
        states(&kubernetes.seen(LEASE.group, Some(&job(since, "", pods))).expect("known"))
    };
    assert_eq!(look(now - Span::seconds(5)), [false, false]);
    assert!(held(&kubernetes.troubles).is_empty());
    assert_eq!(look(now - Span::minutes(5)), [true, true], "what it holds is for others");
    let told = held(&kubernetes.troubles).front().map(|(_, text)| text.clone()).unwrap_or_default();
    assert!(told.contains("1 of 2 pods have no node: no room"), "{told}");
}

#[tokio::test]
async fn a_gang_of_which_some_pods_were_never_made_is_given_up_sooner() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, kubernetes) = engine(folder.path()).await;
    given(&kubernetes, 2, Span::minutes(5));
    let now = kubernetes.leases.clock.now();
    let look = |since: Time, second: Option<Value>| {
        let first = pod(0, Some(since), json!({ "phase": "Running" }));
        let pods = [first].into_iter().chain(second).collect();
        states(&kubernetes.seen(LEASE.group, Some(&job(since, "", pods))).expect("known"))
    };
    let waits = || Some(pod(1, None, json!({ "phase": "Pending" })));
    assert_eq!(look(now - Span::seconds(40), waits()), [false, false], "a node may still come");
    assert_eq!(look(now - Span::seconds(5), None), [false, false]);
    assert_eq!(look(now - Span::seconds(40), None), [true, true], "no pod will");
    let told = held(&kubernetes.troubles).front().map(|(_, text)| text.clone()).unwrap_or_default();
    assert!(told.contains("the cluster makes no more pods"), "{told}");
}

/// Its machine may still be there, and its pods are deleted a while later.
#[tokio::test]
async fn a_node_that_is_not_there_any_more_is_a_notice() {
    let folder = tempfile::tempdir().expect("a folder");
    let (puppets, kubernetes) = engine(folder.path()).await;
    given(&kubernetes, 1, Span::seconds(5));
    let now = kubernetes.leases.clock.now();
    kubernetes.leases.mark(LEASE, |marks| {
        marks.up_at = Some(now);
        marks.node = Some(windfall_core::NodeId("kubernetes/gpu-1".into()));
    });
    let runs = OnNode { lease: LEASE, is_alive: true, last: None };
    let _stream = puppets.comes(&node_name(LEASE), "gpu-1", vec![runs]).await;
    let ends_at = |surveyed_at: Time| {
        kubernetes.cluster.has_seen(Survey { at: surveyed_at, ..Survey::default() });
        let running = pod(0, Some(now), json!({ "phase": "Running" }));
        kubernetes.seen(LEASE.group, Some(&job(now, "", vec![running])));
        match kubernetes.leases.state_of(LEASE) {
            Some(LeaseState::Up { ends_at, .. }) => ends_at,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ends_at(now - Span::seconds(1)), None, "the node may have come since");
    let ends = ends_at(now + Span(1)).expect("a notice");
    assert!(ends - now >= Span::seconds(30) && ends - now < Span::seconds(60), "{ends:?}");
}

#[tokio::test]
async fn an_image_that_cannot_be_had_is_a_boot_that_failed_and_nothing_is_asked_for_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, kubernetes) = engine(folder.path()).await;
    given(&kubernetes, 1, Span::seconds(5));
    let now = kubernetes.leases.clock.now();
    let look = || {
        let waiting = json!([{ "name": "windfall", "state": { "waiting": { "reason": "ImagePullBackOff", "message": "no such image" } } }]);
        let pods = vec![pod(0, Some(now), json!({ "phase": "Pending", "containerStatuses": waiting }))];
        states(&kubernetes.seen(LEASE.group, Some(&job(now, "", pods))).expect("known"))
    };
    assert_eq!(look(), [false], "it may be there a moment later");
    let before = Instant::now().checked_sub(Duration::from_secs(120)).expect("this computer has run for longer");
    kubernetes.broken().insert(LEASE.group, (before, String::new()));
    assert_eq!((look(), kubernetes.pauses_for().is_some()), (vec![true], true));
    let told = held(&kubernetes.troubles).front().map(|(_, text)| text.clone()).unwrap_or_default();
    assert!(told.contains("ImagePullBackOff (windfall): no such image"), "{told}");
    let want = Want::of(windfall_core::WorkloadId(1), OfferId::new("kubernetes/x"), 1);
    let other = DecisionId { seq: 99, ..LEASE.group };
    let refused = kubernetes.acquire(other, &want).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::Retry { .. }))), "{refused:?}");
}

/// Deleted by force, the API server shows a pod no more, and its processes may run on.
#[tokio::test]
async fn a_pod_that_is_not_shown_any_more_is_no_dead_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let (puppets, kubernetes) = engine(folder.path()).await;
    given(&kubernetes, 1, Span::seconds(5));
    let now = kubernetes.leases.clock.now();
    kubernetes.leases.mark(LEASE, |marks| marks.up_at = Some(now));
    let name = node_name(LEASE);
    let runs = OnNode { lease: LEASE, is_alive: true, last: None };
    let stream = puppets.comes(&name, "gpu-1", vec![runs]).await;
    let look = || kubernetes.seen(LEASE.group, Some(&job(now, "Failed", Vec::new())));
    let state = || kubernetes.leases.state_of(LEASE);
    look();
    assert!(matches!(state(), Some(LeaseState::Up { ends_at: Some(_), .. })), "it is told to save: {:?}", state());
    drop(stream);
    puppets.until_gone(&name).await;
    look();
    assert!(matches!(state(), Some(LeaseState::Up { .. })), "it may come back: {:?}", state());
    let before = Instant::now().checked_sub(seen::COMES_BACK * 2).expect("this computer has run for longer");
    kubernetes.unheard().insert(LEASE, before);
    look();
    assert!(matches!(state(), Some(LeaseState::Gone { .. })), "nobody reaches it: {:?}", state());
}

#[tokio::test]
async fn an_eviction_is_a_notice_that_ends_when_its_pod_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let (puppets, kubernetes) = engine(folder.path()).await;
    given(&kubernetes, 1, Span::seconds(5));
    let now = Time(kubernetes.leases.clock.now().0 / 1_000 * 1_000);
    kubernetes.leases.mark(LEASE, |marks| marks.up_at = Some(now));
    let runs = OnNode { lease: LEASE, is_alive: true, last: None };
    let _stream = puppets.comes(&node_name(LEASE), "gpu-1", vec![runs]).await;
    let ends = now + Span::seconds(60);
    let mut evicted = pod(0, Some(now), json!({ "phase": "Running" }));
    evicted["metadata"]["deletionTimestamp"] = json!(moment(ends));
    kubernetes.seen(LEASE.group, Some(&job(now, "", vec![evicted.clone()])));
    let state = kubernetes.leases.state_of(LEASE);
    assert!(matches!(state, Some(LeaseState::Up { ends_at: Some(at), .. }) if at == ends), "{state:?}");
    evicted["status"]["phase"] = json!("Failed");
    evicted["status"]["conditions"] =
        json!([{ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" }]);
    kubernetes.seen(LEASE.group, Some(&job(now, "Failed", vec![evicted])));
    let state = kubernetes.leases.state_of(LEASE);
    assert!(matches!(state, Some(LeaseState::Gone { end: LeaseEnd::Taken, .. })), "{state:?}");
}

/// An API server that has just begun says so of everything.
#[tokio::test]
async fn what_is_not_allowed_for_a_moment_is_no_refusal() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, kubernetes) = engine(folder.path()).await;
    let forbidden = ApiError::Forbidden { said: "RBAC: role not found".to_owned() };
    assert_eq!(kubernetes.refused(&forbidden), None);
    assert_eq!(kubernetes.refused(&ApiError::Quota { said: String::new() }), Some(Refusal::Quota));
    let before = Instant::now().checked_sub(KNOWS_RIGHTS_AFTER * 2).expect("this computer has run for longer");
    *held(&kubernetes.no_right_since) = Some(before);
    assert_eq!(kubernetes.refused(&forbidden), Some(Refusal::Auth));
}

#[tokio::test]
async fn without_a_cluster_it_says_what_is_missing_and_keeps_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, kubernetes) = engine(folder.path()).await;
    let error = kubernetes.offers().await.expect_err("there is no kubeconfig");
    assert!(error.to_string().contains("/nowhere cannot be read"), "{error}");
    let found = kubernetes.check().await;
    assert!(found.len() == 1 && found[0].mend.is_some(), "{found:?}");
}
