//! The facts, each about one promise in `engine.rs`.

use crate::stage::{LIMIT, Stage, lease, stint};
use std::time::{Duration, Instant};
use windfall_core::{LeaseEnd, LeaseId, OfferId, Refusal, Span, Want, WorkerEnd, WorkloadId};
use windfall_exec::StopOrder;
use windfall_exec::{EngineError, LeaseState};

/// Goes on until the stage's folder is gone, so that a failed test leaves nothing for long.
pub const FOR_EVER: &str = "while [ -d . ] && [ -n \"$(ls -d \"$PWD\" 2>/dev/null)\" ]; do sleep 0.1; done";
/// The same, deaf to polite signals.
pub const DEAF: &str = "trap '' TERM; while [ -n \"$(ls -d \"$PWD\" 2>/dev/null)\" ]; do sleep 0.1; done";

pub fn gone(state: &LeaseState) -> bool {
    matches!(state, LeaseState::Gone { .. })
}

fn invalid<T>(answer: Result<T, EngineError>) -> bool {
    matches!(answer, Err(EngineError::Refused(Refusal::Invalid)))
}

/// What the engine says that it still holds, checked against what it says of each.
fn owned(stage: &mut impl Stage) -> Vec<LeaseId> {
    let mut owned = stage.wait_for(stage.engine().list_owned()).unwrap();
    for one in &owned {
        let (since, until) = match stage.see(one.lease).map(|observed| observed.state) {
            Some(LeaseState::Up { since, .. }) => (Some(since), None),
            Some(LeaseState::Gone { since, at, .. }) => (since, Some(at)),
            _ => (None, None),
        };
        assert_eq!((one.since, one.until), (since, until));
        assert!(since.is_none() || one.offer == stage.want().alternatives[0].offer);
    }
    owned.retain(|one| one.until.is_none());
    owned.into_iter().map(|one| one.lease).collect()
}

/// Asked for again, a lease that is gone is not made a second time.
fn stays_gone(stage: &mut impl Stage, id: LeaseId) -> bool {
    gone(&stage.acquire(id.group.seq).unwrap()) && stage.running(id).is_empty()
}

pub fn an_engine_says_what_it_can_do_and_what_it_sells(stage: &mut impl Stage) {
    let first = stage.engine().describe();
    assert!(!first.name.is_empty() && !first.markets.is_empty() && !first.places.is_empty());
    let offers = stage.wait_for(stage.engine().offers()).unwrap();
    assert!(offers.iter().any(|offer| offer.id == stage.want().alternatives[0].offer));
    assert!(offers.iter().all(|offer| offer.engine == first.name && first.markets.contains(&offer.market)));
    assert!(offers.iter().all(|offer| offer.id.engine() == first.name), "an offer names its engine");
    assert_eq!(stage.engine().describe(), first);
    let pools = stage.wait_for(stage.engine().pools()).unwrap();
    assert!(pools.iter().all(|pool| pool.engine == first.name));
    assert!(offers.iter().all(|offer| pools.iter().any(|pool| pool.id == offer.pool)), "every offer is of a pool");
}

pub fn acquired_twice_there_is_one_lease(stage: &mut impl Stage) {
    let (id, want) = (lease(1), stage.want());
    let both = async { tokio::join!(stage.engine().acquire(id.group, &want), stage.engine().acquire(id.group, &want)) };
    let (first, second) = stage.wait_for(both);
    assert_eq!(first.unwrap(), second.unwrap());
    let machine = stage.running(id).len();
    let third = stage.acquire(1).unwrap();
    assert_eq!(Some(third), stage.see(id).map(|observed| observed.state));
    assert_eq!(stage.running(id).len(), machine, "the same machine, not another");
    assert_eq!(owned(stage), [id]);
}

pub fn what_is_not_sold_is_refused(stage: &mut impl Stage) {
    let unknown = Want::of(WorkloadId(1), OfferId::new("nowhere"), 1);
    assert!(invalid(stage.wait_for(stage.engine().acquire(lease(1).group, &unknown))));
    let mut cheap = stage.want();
    cheap.alternatives[0].max_price = Some(windfall_core::NanoUsd(1));
    let answer = stage.wait_for(stage.engine().acquire(lease(2).group, &cheap));
    assert!(matches!(answer, Err(EngineError::Refused(Refusal::NoCapacity))), "{answer:?}");
    assert!(owned(stage).is_empty());
}

pub fn released_before_it_was_acquired_it_never_will_be(stage: &mut impl Stage) {
    let id = lease(1);
    let state = stage.release(id).unwrap();
    assert!(matches!(state, LeaseState::Gone { since: None, end: LeaseEnd::Released, .. }), "{state:?}");
    assert!(stays_gone(stage, id));
    stage.reopen();
    assert!(stays_gone(stage, id), "a new engine knows it too");
    assert!(stage.running(id).is_empty());
}

pub fn release_returns_only_when_nothing_runs(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, &format!("setsid sh -c '{FOR_EVER}' & (setsid sh -c '{FOR_EVER}' &) ; {DEAF}"));
    stage.until_worker("runs", id, |worker| worker.pid.is_some());
    let state = stage.release(id).unwrap();
    assert_eq!(stage.running(id), [0; 0], "at the moment of the answer");
    assert!(matches!(state, LeaseState::Gone { since: Some(since), at, end: LeaseEnd::Released } if since <= at));
    assert_eq!(stage.release(id).unwrap(), state, "asked again, it answers the same");
    assert!(owned(stage).is_empty());
    assert!(stays_gone(stage, id));
}

pub fn a_release_that_races_an_acquire_leaves_nothing(stage: &mut impl Stage) {
    for seq in 1..=8 {
        let (id, want) = (lease(seq), stage.want());
        let late = async {
            tokio::time::sleep(Duration::from_millis(seq * 4)).await;
            stage.engine().release(id.group, &[0]).await
        };
        let (_, released) = stage.wait_for(async { tokio::join!(stage.engine().acquire(id.group, &want), late) });
        assert!(gone(&released.unwrap()[0].state));
        assert_eq!(stage.running(id), [0; 0]);
        assert!(gone(&stage.see(id).unwrap().state));
    }
}

pub fn an_unknown_lease_is_missing_in_the_answer(stage: &mut impl Stage) {
    let id = stage.up(1);
    let seen = stage.wait_for(stage.engine().observe(&[lease(99).group, id.group])).unwrap();
    assert_eq!(seen.iter().flat_map(|seen| &seen.leases).map(|seen| seen.lease).collect::<Vec<_>>(), [id]);
    let order = stage.order(1, "true");
    assert!(matches!(stage.wait_for(stage.link().start(lease(99), &order)), Err(EngineError::NoLease(_))));
}

pub fn a_new_engine_on_the_same_ground_adopts_what_runs(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, FOR_EVER);
    let before = stage.until_worker("runs", id, |worker| worker.pid.is_some());
    let state = stage.see(id).unwrap().state;
    stage.reopen();
    assert_eq!(owned(stage), [id]);
    let after = stage.until_worker("is seen again", id, |worker| worker.pid.is_some());
    assert_eq!((after.pid, after.stint), (before.pid, before.stint), "the same worker");
    assert_eq!(stage.see(id).unwrap().state, state, "up since the same moment");
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::ZERO))).unwrap();
    stage.until_worker("obeys the new engine", id, |worker| worker.end == Some(WorkerEnd::Stopped));
}

pub fn an_acquire_that_was_cut_off_is_taken_up_again(stage: &mut impl Stage) {
    for (seq, ms) in [(1_u64, 1), (2, 5), (3, 20), (4, 60)] {
        let (id, want) = (lease(seq), stage.want());
        let cut = async {
            let acquire = stage.engine().acquire(id.group, &want);
            tokio::time::timeout(Duration::from_millis(ms), acquire).await.is_ok()
        };
        stage.wait_for(cut);
        stage.reopen();
        let state = stage.acquire(seq).unwrap();
        assert!(matches!(state, LeaseState::Up { .. }), "{state:?}");
        stage.start(id, seq, "exit 0");
        stage.until_worker("works", id, |worker| worker.end == Some(WorkerEnd::Exited { code: 0 }));
        stage.release(id).unwrap();
        assert_eq!(stage.running(id), [0; 0]);
    }
}

pub fn a_machine_that_died_is_observed_as_gone(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, &format!("setsid sh -c '{FOR_EVER}' & {FOR_EVER}"));
    stage.until_worker("runs", id, |worker| worker.pid.is_some());
    stage.break_machine(id);
    let seen = stage.until("is gone", id, |observed| gone(&observed.state));
    assert!(matches!(seen.state, LeaseState::Gone { since: Some(_), end: LeaseEnd::Lost, .. }), "{seen:?}");
    assert_eq!(stage.running(id), [0; 0], "gone means that nothing runs");
    assert_eq!(seen.workers.into_iter().find_map(|worker| worker.end), None, "it did not end by itself");
    // The offer is as good as before: the lease is gone, not refused.
    assert!(gone(&stage.acquire(1).unwrap()));
}

pub fn a_machine_that_died_unseen_is_observed_as_gone(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, "exit 3");
    // Where something of it is still to be sent, another agent goes on.
    stage.until_worker("has ended", id, |worker| worker.end.is_some() && worker.settled);
    stage.break_machine(id);
    stage.reopen();
    let seen = stage.until("is gone", id, |observed| gone(&observed.state));
    assert_eq!(
        seen.workers.into_iter().find_map(|worker| worker.end),
        Some(WorkerEnd::Exited { code: 3 }),
        "its last words are kept"
    );
}

pub fn started_twice_there_is_one_worker(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!("echo one >> starts; {FOR_EVER}");
    stage.start(id, 1, &line);
    stage.start(id, 1, &line);
    let first = stage.until_worker("runs", id, |worker| worker.pid.is_some());
    stage.start(id, 1, &line);
    wait_for_file(stage, "starts");
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::ZERO))).unwrap();
    let last = stage.until_worker("has ended", id, |worker| worker.settled);
    assert_eq!(first.pid, last.pid);
    stage.start(id, 1, &line);
    stage.start(id, 2, "exit 0");
    stage.until_worker("the next", id, |worker| worker.stint == stint(2) && worker.end.is_some());
    assert_eq!(std::fs::read_to_string(stage.folder().join("starts")).unwrap(), "one\n");
}

pub fn stopped_before_it_started_it_never_starts(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::seconds(60)))).unwrap();
    let view = stage.until_worker("is over", id, |worker| worker.end.is_some());
    assert_eq!((view.stint, view.end, view.pid), (stint(1), Some(WorkerEnd::Stopped), None));
    stage.start(id, 1, "echo one >> starts");
    stage.start(id, 2, "exit 0");
    stage.until_worker("the next runs", id, |worker| worker.stint == stint(2) && worker.end.is_some());
    assert!(!stage.folder().join("starts").exists(), "the stopped one never ran");
}

pub fn an_old_epoch_is_refused(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 5, "exit 0");
    stage.until_worker("has ended", id, |worker| worker.settled);
    stage.start(id, 4, "echo old >> starts");
    stage.start(id, 6, "echo new >> starts");
    stage.until_worker("the newer runs", id, |worker| worker.stint == stint(6) && worker.end.is_some());
    assert_eq!(std::fs::read_to_string(stage.folder().join("starts")).unwrap(), "new\n");
}

pub fn a_stop_asks_first_and_kills_after_the_grace(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, &format!("trap 'echo heard > heard; exit 0' TERM; echo ready > ready; {FOR_EVER}"));
    wait_for_file(stage, "ready");
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::hours(1)))).unwrap();
    let view = stage.until_worker("has ended", id, |worker| worker.settled);
    assert_eq!((view.end, view.evidence.ignored_sigterm), (Some(WorkerEnd::Stopped), false));
    assert!(stage.folder().join("heard").exists());
    stage.start(id, 2, &format!("echo deaf > deaf; {DEAF}"));
    wait_for_file(stage, "deaf");
    stage.wait_for(stage.link().stop(id, stint(2), 0, StopOrder::within(Span::seconds(30)))).unwrap();
    let view = stage.until_worker("is over", id, |worker| worker.stint == stint(2) && worker.end.is_some());
    assert_eq!((view.end, view.evidence.ignored_sigterm), (Some(WorkerEnd::Stopped), true));
}

pub fn a_notice_is_heard_and_kept(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, &format!("trap 'echo heard > heard' TERM; echo ready > ready; {FOR_EVER}; {FOR_EVER}"));
    wait_for_file(stage, "ready");
    stage.take(id, Some(Span::minutes(2)));
    let seen =
        stage.until("is announced", id, |observed| matches!(observed.state, LeaseState::Up { ends_at: Some(_), .. }));
    let LeaseState::Up { ends_at: Some(ends_at), since, .. } = seen.state else { unreachable!() };
    wait_for_file(stage, "heard");
    let seen = stage.until("is gone", id, |observed| gone(&observed.state));
    assert_eq!(seen.state, LeaseState::Gone { since: Some(since), at: ends_at, end: LeaseEnd::Taken });
    assert_eq!(stage.running(id), [0; 0]);
}

pub fn what_is_taken_away_takes_everything_with_it(stage: &mut impl Stage) {
    let id = stage.up(1);
    // One of them has neither our session nor our environment.
    stage.start(id, 1, &format!("(env -i PWD=\"$PWD\" setsid sh -c 'echo > ready; {DEAF}' &); {DEAF}"));
    wait_for_file(stage, "ready");
    let before = stage.running(id);
    stage.take(id, None);
    let seen = stage.until("is gone", id, |observed| gone(&observed.state));
    assert!(matches!(seen.state, LeaseState::Gone { end: LeaseEnd::Taken, .. }));
    assert_eq!(seen.workers.into_iter().find_map(|worker| worker.end), None, "what was taken did not end by itself");
    assert!(before.len() >= 4 && stage.running(id).is_empty(), "{before:?}");
}

pub fn a_daemon_that_nobody_alive_knows_of_ends_with_its_lease(stage: &mut impl Stage) {
    let id = stage.up(1);
    if !stage.is_grouped(id) {
        println!("skipped: a_daemon_that_nobody_alive_knows_of_ends_with_its_lease (needs control groups)");
        return;
    }
    let daemon = "echo $$ > daemon; while [ -n \"$(ls -d \"$PWD\" 2>/dev/null)\" ]; do sleep 0.1; done";
    stage.start(id, 1, &format!("(env -i PWD=\"$PWD\" setsid sh -c '{daemon}' &); {FOR_EVER}"));
    wait_for_file(stage, "daemon");
    stage.kill_keepers(id);
    let seen = stage.until("is gone", id, |observed| gone(&observed.state));
    assert!(matches!(seen.state, LeaseState::Gone { end: LeaseEnd::Lost, .. }), "{seen:?}");
    assert_eq!(stage.running(id), [0; 0], "gone means that nothing runs");
}

pub fn only_what_is_gone_can_be_forgotten(stage: &mut impl Stage) {
    let (id, other) = (stage.up(1), stage.up(2));
    stage.release(other).unwrap();
    stage.wait_for(stage.engine().forget(&[id, other, lease(99)])).unwrap();
    assert!(stage.see(other).is_none());
    assert!(matches!(stage.see(id).unwrap().state, LeaseState::Up { .. }));
    stage.reopen();
    assert!(stage.see(other).is_none(), "a new engine does not remember it either");
    assert_eq!(owned(stage), [id]);
}

#[track_caller]
pub fn wait_for_file(stage: &impl Stage, name: &str) {
    let until = Instant::now() + LIMIT;
    while !stage.folder().join(name).exists() {
        assert!(Instant::now() < until, "never written: {name}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
