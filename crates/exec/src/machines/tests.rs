//! What a machine gives of itself: no agent runs, only who has which accelerator.

use super::*;
use crate::engine::LeaseState;
use crate::net::receive;
use crate::nodes::OnNode;
use crate::nodes::puppets::{LEASE, Puppets};
use windfall_core::want::Alternative;
use windfall_core::{Installation, LeaseEnd, Time, WorkloadId};

fn machine(root: &std::path::Path) -> Arc<Machines> {
    let accelerator = |number: u32| Accelerator {
        model: "H200".to_owned(),
        device: format!("GPU-{number}"),
        ..Accelerator::default()
    };
    let accelerators = (0..4).map(accelerator).collect();
    let inventory = Inventory { name: "lab".to_owned(), accelerators, cpus: 2, memory_bytes: 1 << 30 };
    let clock = Arc::new(WorldClock::real(Time(1_000_000)));
    let here = Some(Here { inventory, rate: NanoUsd(4_000_000_000), is_found: false });
    let hub = Hub::open(&root.join("machines"), std::time::Duration::from_secs(60), false).expect("opened");
    let leases = root.join("leases");
    Machines::open("machines", leases, here, hub, clock, PathBuf::from("/bin/true"), None).expect("opened")
}

fn group(seq: u64) -> DecisionId {
    DecisionId { installation: Installation(7), seq }
}

fn ask(machine: &Machines, seq: u64, what: &str, units: u32) -> Result<(), EngineError> {
    let want = Want::of(WorkloadId(seq), OfferId::new(&format!("machines/H200x4-2cpu-4usd/{what}/owned")), units);
    machine.leases.give(group(seq), |held, known| machine.chosen(&want, held, known))
}

fn devices(machine: &Machines, seq: u64, slot: u32) -> Vec<String> {
    let held = machine.leases.held();
    held[&LeaseId { group: group(seq), slot }].marks.devices.clone().expect("known")
}

async fn capacity(machine: &Arc<Machines>, what: &str) -> u32 {
    let offers = machine.offers().await.expect("offers");
    offers.iter().find(|offer| offer.instance_type == what).and_then(|offer| offer.capacity).expect("offered")
}

#[tokio::test]
async fn no_two_leases_have_one_accelerator() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    ask(&machine, 1, "H200x1", 1).expect("free");
    ask(&machine, 2, "H200x2", 1).expect("free");
    assert_eq!(
        (devices(&machine, 1, 0), devices(&machine, 2, 0)),
        (vec!["GPU-0".to_owned()], vec!["GPU-1".to_owned(), "GPU-2".to_owned()])
    );
    let refused = ask(&machine, 3, "H200x2", 1);
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::NoCapacity))), "{refused:?}");
    assert_eq!((capacity(&machine, "H200x1").await, capacity(&machine, "H200x2").await), (2, 1));
    let given_back = LeaseId { group: group(2), slot: 0 };
    machine.leases.mark(given_back, |marks| marks.gone = Some((Time(1_000_001), LeaseEnd::Released)));
    ask(&machine, 3, "H200x3", 1).expect("free again");
    assert_eq!(devices(&machine, 3, 0), ["GPU-1", "GPU-2", "GPU-3"]);
    ask(&machine, 3, "H200x3", 1).expect("the same again");
    assert_eq!(capacity(&machine, "H200x3").await, 1);
    let prices: Vec<i64> = machine.offers().await.expect("offers").iter().map(|offer| offer.price_per_hour.0).collect();
    assert_eq!(prices, [1, 2, 3, 4, 0].map(|dollars| dollars * 1_000_000_000), "by accelerators, as the ledger has it");
}

#[tokio::test]
async fn a_gang_gets_what_it_wants_or_nothing_and_a_processor_is_for_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = machine(folder.path());
    assert!(ask(&machine, 1, "H200x2", 3).is_err());
    ask(&machine, 2, "H200x2", 2).expect("all four");
    assert_eq!(devices(&machine, 2, 1), ["GPU-2", "GPU-3"]);
    ask(&machine, 3, "cpu", 1).expect("two processors");
    ask(&machine, 4, "cpu", 1).expect("two processors");
    assert!(ask(&machine, 5, "cpu", 1).is_err());
    assert_eq!(devices(&machine, 3, 0), Vec::<String>::new(), "it sees no accelerator");
    assert!(matches!(ask(&machine, 6, "H100x1", 1), Err(EngineError::Refused(Refusal::Invalid))));
}

#[tokio::test]
async fn what_was_given_is_found_by_the_next_server() {
    let folder = tempfile::tempdir().expect("a folder");
    ask(&machine(folder.path()), 1, "H200x4", 1).expect("all four");
    let machine = machine(folder.path());
    assert!(ask(&machine, 2, "H200x1", 1).is_err());
    ask(&machine, 1, "H200x4", 1).expect("it is this group's");
}

/// How many slots each machine gets, by name.
fn spread_over(rooms: &[(&str, u32)], there: &[&str], most: u32, least: u32) -> Option<BTreeMap<String, usize>> {
    let host = |name: &str| (name != "here").then(|| name.to_owned());
    let computer = |name: &str| Computer {
        name: name.to_owned(),
        host: host(name),
        inventory: Inventory { name: name.to_owned(), accelerators: Vec::new(), cpus: 1, memory_bytes: 1 },
        rate: NanoUsd(0),
        health: Health::Ready,
        domains: BTreeMap::new(),
        symptoms: Vec::new(),
        drained_for: None,
    };
    let computers: Vec<(Computer, u32)> = rooms.iter().map(|(name, room)| (computer(name), *room)).collect();
    let rooms: Vec<(&Computer, u32)> = computers.iter().map(|(computer, room)| (computer, *room)).collect();
    let there = there.iter().map(|name| host(name)).collect();
    let mut counts = BTreeMap::new();
    for computer in spread(&rooms, &there, most, least)? {
        *counts.entry(computer.name.clone()).or_default() += 1;
    }
    Some(counts)
}

#[test]
fn a_gang_is_on_one_machine_where_that_goes_and_else_on_as_few_as_can_be() {
    let counts = |slots: &[(&str, usize)]| Some(slots.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect());
    let rooms = [("a", 8), ("b", 4), ("c", 2), ("here", 3)];
    assert_eq!(spread_over(&rooms, &[], 4, 4), counts(&[("b", 4)]), "what is whole stays whole");
    assert_eq!(spread_over(&rooms, &[], 3, 3), counts(&[("here", 3)]));
    assert_eq!(spread_over(&rooms, &[], 11, 11), counts(&[("a", 8), ("b", 3)]));
    assert_eq!(spread_over(&rooms, &[], 15, 15), None, "the server's own computer is none of several");
    assert_eq!(spread_over(&rooms, &[], 20, 10), counts(&[("a", 8), ("b", 4), ("c", 2)]), "as many as there are");
    assert_eq!(spread_over(&rooms, &["c"], 2, 2), counts(&[("c", 2)]), "beside the others of its gang");
    assert_eq!(spread_over(&rooms, &["c"], 5, 5), counts(&[("a", 3), ("c", 2)]));
    assert_eq!(spread_over(&rooms, &["here"], 4, 4), None);
}

/// The server may end between the first and the second agent of a gang; by then the log knows that the gang was given.
#[tokio::test]
async fn what_was_given_and_never_started_is_started_once_it_is_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = machine(folder.path());
    ask(&first, 1, "H200x1", 2).expect("free");
    let [one, two] = [0, 1].map(|slot| LeaseId { group: group(1), slot });
    first.leases.mark(one, |marks| marks.up_at = Some(Time(1_000_000)));
    drop(first);
    let machine = machine(folder.path());
    assert_eq!(machine.leases.state_of(two), Some(LeaseState::Pending));
    for _ in 0..500 {
        machine.observe(&[group(1)]).await.expect("seen");
        // Its agent is no agent here, and is missed soon after it was up.
        let state = machine.leases.state_of(two);
        if matches!(state, Some(LeaseState::Up { .. } | LeaseState::Gone { since: Some(_), .. })) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("it waits for ever");
}

/// The engine of a server that has nodes, and a computer of its own called `lab`.
fn beside(hub: &Arc<Hub>, root: &std::path::Path) -> Arc<Machines> {
    let own = Inventory { name: "lab".to_owned(), accelerators: Vec::new(), cpus: 1, memory_bytes: 1 << 30 };
    let clock = Arc::new(WorldClock::real(Time(1_000_000)));
    let here = Some(Here { inventory: own, rate: NanoUsd(0), is_found: false });
    Machines::open("machines", root.join("leases"), here, Arc::clone(hub), clock, PathBuf::from("/bin/true"), None)
        .expect("opened")
}

#[tokio::test]
async fn a_machine_that_somebody_would_rather_not_have_is_taken_after_all_others_of_whatever_kind() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut puppets = Puppets::start(folder.path()).await;
    let mut streams = Vec::new();
    for (name, model) in [("fast", "H200"), ("slow", "A100")] {
        puppets.accelerators = vec![Stated { model: model.to_owned(), count: 1 }];
        streams.push(puppets.comes(name, name, Vec::new()).await);
    }
    let machines = beside(&puppets.hub, folder.path());
    let offers: Vec<OfferId> = machines.offers().await.expect("offers").into_iter().map(|offer| offer.id).collect();
    let of =
        |model: &str| offers.iter().find(|id| id.0.contains(&format!("{model}x1/owned"))).expect("offered").clone();
    let node = |name: &str| NodeId(format!("machines/{name}").into());
    let alternatives = [of("H200"), of("A100")].map(|offer| Alternative { offer, max_price: None });
    let want = |seq: u64, rather_not_on: &[&str]| Want {
        alternatives: alternatives.to_vec(),
        rather_not_on: rather_not_on.iter().map(|name| node(name)).collect(),
        ..Want::of(WorkloadId(seq), of("H200"), 1)
    };
    for (seq, rather_not_on, gets) in
        [(1, vec![], "fast"), (2, vec!["fast"], "slow"), (3, vec!["fast", "slow"], "fast")]
    {
        let want = want(seq, &rather_not_on);
        let chosen = machines.chosen(&want, &BTreeMap::new(), &BTreeMap::new()).expect("there is room");
        assert_eq!(chosen[0].node, Some(node(gets)), "rather not on {rather_not_on:?}");
    }
}

#[tokio::test]
async fn a_lease_that_its_node_does_not_begin_is_given_up_after_a_while() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut puppets = Puppets::start(folder.path()).await;
    puppets.accelerators = vec![Stated { model: "H200".to_owned(), count: 2 }];
    let stream = puppets.comes("one", "one", Vec::new()).await;
    let machines = beside(&puppets.hub, folder.path());
    let offers = machines.offers().await.expect("offers");
    let offer = offers.iter().find(|offer| offer.instance_type == "H200x1").expect("offered").id.clone();
    let want = Want::of(WorkloadId(1), offer, 1);
    machines.leases.give(group(9), |held, known| machines.chosen(&want, held, known)).expect("there is room");
    drop(stream);
    puppets.until_gone("one").await;
    let waits = LeaseId { group: group(9), slot: 0 };
    assert!(machines.leases.launch_all(group(9)).await.is_err(), "its node is away");
    assert_eq!(machines.leases.state_of(waits), Some(LeaseState::Pending), "it may be back at once");
    machines.leases.mark(waits, |marks| marks.sold_at = Some(Time(1_000_000 - 60_000)));
    assert!(machines.leases.launch_all(group(9)).await.is_err());
    let state = machines.leases.state_of(waits);
    assert!(matches!(state, Some(LeaseState::Gone { since: None, end: LeaseEnd::Lost, .. })), "{state:?}");
}

#[tokio::test]
async fn a_release_that_a_node_did_not_answer_says_nothing_of_what_it_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let puppets = Puppets::start(folder.path()).await;
    let shown = vec![OnNode { lease: LEASE, is_alive: true, last: None }];
    let mut stream = puppets.comes("one", "one", shown).await;
    let machines = beside(&puppets.hub, folder.path());
    // Nobody here has written it down, but its node shows it.
    let released = {
        let machines = Arc::clone(&machines);
        tokio::spawn(async move { machines.release(LEASE.group, &[0]).await })
    };
    let asked = receive(&mut stream, 1 << 20).await.expect("it is asked").head;
    assert!(asked.to_string().contains("end"), "{asked}");
    drop(stream);
    let released = released.await.expect("no panic");
    assert!(released.is_err() && machines.leases.state_of(LEASE).is_none(), "{released:?}");
}

#[tokio::test]
async fn no_node_is_called_as_the_server_s_own_computer() {
    let folder = tempfile::tempdir().expect("a folder");
    let puppets = Puppets::start(folder.path()).await;
    let machines = beside(&puppets.hub, folder.path());
    assert!(puppets.hub.new_token("lab", NanoUsd(0)).is_err_and(|why| why.contains("own computer")));
    drop(machines);
    // One that came first keeps its name.
    let folder = tempfile::tempdir().expect("a folder");
    let puppets = Puppets::start(folder.path()).await;
    let _stream = puppets.comes("lab", "lab", Vec::new()).await;
    let machines = beside(&puppets.hub, folder.path());
    let ids: BTreeSet<String> =
        machines.nodes().await.expect("nodes").iter().map(|node| node.id.0.to_string()).collect();
    assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["machines/lab", "machines/lab-server"]);
}
