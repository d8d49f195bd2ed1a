//! Facts about several workloads on one lease: each is obeyed, saved and ended by itself.

use crate::facts::{DEAF, FOR_EVER, gone, wait_for_file};
use crate::stage::{LIMIT, Stage};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{LeaseEnd, LeaseId, Span, StintId, WorkerEnd, WorkloadId};
use windfall_exec::{LeaseState, StopOrder};

/// Two workloads whose stints have the same numbers.
const BOTH: [u64; 2] = [1, 2];

fn stint(workload: u64, epoch: u64) -> StintId {
    StintId::of_job(WorkloadId(workload), epoch)
}

/// The order of a workload that has a folder and checkpoints of its own. `$JOB` is its number.
fn order(stage: &impl Stage, workload: u64, epoch: u64, line: &str) -> StartOrder {
    let folder = job_folder(stage, workload);
    std::fs::create_dir_all(&folder).unwrap();
    let mut order = stage.order(epoch, &format!("JOB={workload}; {line}"));
    order.stint = stint(workload, epoch);
    order.output = folder.join(format!("output-{epoch}")).display().to_string();
    order.checkpoint_key = format!("job-{workload}");
    order
}

fn job_folder(stage: &impl Stage, workload: u64) -> PathBuf {
    stage.folder().join(format!("job-{workload}"))
}

fn start(stage: &impl Stage, lease: LeaseId, workload: u64, epoch: u64, line: &str) {
    stage.wait_for(stage.link().start(lease, &order(stage, workload, epoch, line))).unwrap();
}

/// Waits until every worker shows something, and there are so many.
#[track_caller]
fn until_all(
    stage: &impl Stage,
    what: &str,
    lease: LeaseId,
    count: usize,
    seen: impl Fn(&WorkerView) -> bool,
) -> Vec<WorkerView> {
    let all = |workers: &[WorkerView]| workers.len() == count && workers.iter().all(&seen);
    let mut workers = stage.until(what, lease, |observed| all(&observed.workers)).workers;
    workers.sort_by_key(|worker| worker.stint);
    workers
}

#[track_caller]
fn until(
    stage: &impl Stage,
    what: &str,
    lease: LeaseId,
    workload: u64,
    seen: impl Fn(&WorkerView) -> bool,
) -> WorkerView {
    stage.until_worker(what, lease, |worker| worker.stint.workload == WorkloadId(workload) && seen(worker))
}

/// Waits until the process of a worker is found: one that becomes another program has no environment for a moment.
#[track_caller]
fn until_running(stage: &impl Stage, lease: LeaseId, worker: &WorkerView) {
    let until = Instant::now() + LIMIT;
    while !stage.running(lease).contains(&(worker.pid.unwrap() as i32)) {
        assert!(Instant::now() < until, "never found: {worker:?} in {:?}", stage.running(lease));
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn stop(stage: &impl Stage, lease: LeaseId, stint: StintId) {
    stage.wait_for(stage.link().stop(lease, stint, 0, StopOrder::within(Span::hours(1)))).unwrap();
}

/// A process that wrote its number to a file.
#[track_caller]
fn pid_in(stage: &impl Stage, name: &str) -> i32 {
    wait_for_file(stage, name);
    std::fs::read_to_string(stage.folder().join(name)).unwrap().trim().parse().unwrap()
}

/// A shell line that runs for ever as a process of its own and says which.
fn says_its_number(name: &str) -> String {
    format!("echo $$ > {name}.new; mv {name}.new {name}; {FOR_EVER}")
}

fn read(stage: &impl Stage, name: &str) -> String {
    std::fs::read_to_string(stage.folder().join(name)).unwrap()
}

pub fn two_workloads_run_at_once_and_are_both_seen(stage: &mut impl Stage) {
    let id = stage.up(1);
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, FOR_EVER));
    let before = until_all(stage, "run", id, 2, |worker| worker.pid.is_some());
    assert_eq!(before.iter().map(|worker| worker.stint).collect::<Vec<_>>(), BOTH.map(|workload| stint(workload, 1)));
    assert!(before.iter().all(|worker| worker.end.is_none()), "{before:?}");
    before.iter().for_each(|worker| until_running(stage, id, worker));
    stage.reopen();
    let after = until_all(stage, "are seen again", id, 2, |worker| worker.pid.is_some());
    let pids = |workers: &[WorkerView]| workers.iter().map(|worker| worker.pid).collect::<Vec<_>>();
    assert_eq!(pids(&before), pids(&after), "the same workers");
}

pub fn the_end_of_one_leaves_the_other_running_with_all_that_is_below_it(stage: &mut impl Stage) {
    let id = stage.up(1);
    // Each leaves a child, a daemon in a session of its own, and one that has no mark in its environment.
    let line = |job: u64, end: &str| {
        let [child, daemon, bare] = ["child", "daemon", "bare"].map(|name| says_its_number(&format!("{name}-{job}")));
        format!(
            "sh -c '{child}' & (setsid sh -c '{daemon}' &); (env -i PWD=\"$PWD\" setsid sh -c '{bare}' &); \
             while [ ! -e bare-{job} ] || [ ! -e daemon-{job} ] || [ ! -e child-{job} ]; do sleep 0.02; done; {end}"
        )
    };
    start(stage, id, 2, 1, &line(2, FOR_EVER));
    let kept = ["child-2", "daemon-2", "bare-2"].map(|name| pid_in(stage, name));
    start(stage, id, 1, 1, &line(1, "while [ ! -e end ]; do sleep 0.02; done; exit 0"));
    let ended = ["child-1", "daemon-1", "bare-1"].map(|name| pid_in(stage, name));
    let main = until(stage, "runs", id, 2, |worker| worker.pid.is_some()).pid.unwrap() as i32;
    std::fs::write(stage.folder().join("end"), "").unwrap();
    let first = until(stage, "has ended", id, 1, |worker| worker.settled);
    assert_eq!(first.end, Some(WorkerEnd::Exited { code: 0 }));
    let running = stage.running(id);
    assert!(kept.iter().chain([&main]).all(|pid| running.contains(pid)), "{kept:?} {main} in {running:?}");
    assert!(!running.contains(&ended[0]) && !running.contains(&ended[1]), "{ended:?} not in {running:?}");
    // What has no mark is known by its control group alone; where there are none it ends with the last.
    assert_eq!(running.contains(&ended[2]), !stage.is_grouped(id), "{} in {running:?}", ended[2]);
    assert!(first.evidence.left_behind >= 2, "{first:?}");
    let second = until(stage, "goes on", id, 2, |worker| worker.end.is_none());
    assert_eq!(second.evidence.left_behind, 0);
    stage.wait_for(stage.link().stop(id, stint(2, 1), 0, StopOrder::within(Span::ZERO))).unwrap();
    until(stage, "is over", id, 2, |worker| worker.settled);
    let left: Vec<i32> =
        stage.running(id).into_iter().filter(|pid| kept.contains(pid) || ended.contains(pid)).collect();
    assert_eq!(left, [0; 0], "nothing is left of either");
}

pub fn each_is_told_how_it_ended_though_all_end_at_once(stage: &mut impl Stage) {
    let id = stage.up(1);
    let all: Vec<u64> = (1..=6).collect();
    for workload in &all {
        start(stage, id, *workload, 1, "echo > ready-$JOB; while [ ! -e go ]; do sleep 0.01; done; exit $((JOB + 10))");
    }
    all.iter().for_each(|workload| wait_for_file(stage, &format!("ready-{workload}")));
    std::fs::write(stage.folder().join("go"), "").unwrap();
    let ended = until_all(stage, "have ended", id, all.len(), |worker| worker.settled);
    let codes: Vec<_> = ended.into_iter().map(|worker| worker.end).collect();
    let own: Vec<_> = all.iter().map(|workload| Some(WorkerEnd::Exited { code: *workload as i32 + 10 })).collect();
    assert_eq!(codes, own);
}

pub fn a_stop_of_one_does_not_reach_the_other(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!("trap 'echo > heard-'$JOB'; exit 0' TERM; echo > ready-$JOB; {FOR_EVER}");
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, &line));
    BOTH.iter().for_each(|workload| wait_for_file(stage, &format!("ready-{workload}")));
    // One that never started here is over, and nobody else is.
    stop(stage, id, stint(3, 1));
    let never = until(stage, "is over", id, 3, |worker| worker.settled);
    assert_eq!((never.stint, never.end, never.pid), (stint(3, 1), Some(WorkerEnd::Stopped), None));
    start(stage, id, 3, 1, "echo > ran-$JOB");
    start(stage, id, 3, 2, "exit 0");
    until(stage, "the next runs", id, 3, |worker| worker.stint == stint(3, 2) && worker.settled);
    assert!(!stage.folder().join("ran-3").exists(), "the stopped one never ran");
    stop(stage, id, stint(1, 1));
    let first = until(stage, "has ended", id, 1, |worker| worker.settled);
    assert_eq!((first.end, first.evidence.ignored_sigterm), (Some(WorkerEnd::Stopped), false));
    let second = until(stage, "is there", id, 2, |_| true);
    assert!(second.end.is_none(), "{second:?}");
    until_running(stage, id, &second);
    assert!(!stage.folder().join("heard-2").exists());
    // The first may run again beside it.
    start(stage, id, 1, 2, &line.replace("ready", "again"));
    wait_for_file(stage, "again-1");
    stop(stage, id, stint(2, 1));
    until(stage, "has ended", id, 2, |worker| worker.settled);
    assert!(until(stage, "is there", id, 1, |worker| worker.stint == stint(1, 2)).end.is_none());
}

pub fn each_sees_only_its_devices(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = "echo \"${CUDA_VISIBLE_DEVICES-all of them}\" > devices-$JOB";
    for (workload, devices) in [(1, Some(vec![0, 2])), (2, Some(Vec::new())), (3, None)] {
        let mut order = order(stage, workload, 1, line);
        order.devices = devices;
        if workload < 3 {
            order.env.insert("CUDA_VISIBLE_DEVICES".to_owned(), "7".to_owned());
        }
        stage.wait_for(stage.link().start(id, &order)).unwrap();
    }
    until_all(stage, "have ended", id, 3, |worker| worker.settled);
    let seen = [1, 2, 3].map(|workload| read(stage, &format!("devices-{workload}")));
    assert_eq!(seen, ["0,2\n", "\n", &format!("{}\n", stage.all_devices())]);
}

pub fn a_request_to_save_reaches_the_one_that_it_names(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!("echo $WINDFALL_SAVE_REQUEST > request-$JOB; {FOR_EVER}");
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, &line));
    BOTH.iter().for_each(|workload| wait_for_file(stage, &format!("request-{workload}")));
    until_all(stage, "run", id, 2, |worker| worker.pid.is_some());
    stage.wait_for(stage.link().save(id, stint(1, 1), 0, 9)).unwrap();
    let [first, second] = BOTH.map(|workload| {
        let path = read(stage, &format!("request-{workload}"));
        std::fs::read_to_string(path.trim()).ok()
    });
    assert_eq!((first.as_deref(), second), (Some("9"), None));
}

pub fn what_two_workloads_save_never_meets(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!(
        "cat $WINDFALL_CHECKPOINT_DIR/* >> seen-$JOB; echo $JOB >> $WINDFALL_CHECKPOINT_DIR/model-$JOB; \
         echo $JOB 9 > $WINDFALL_PROGRESS; {FOR_EVER}"
    );
    for epoch in [1, 2] {
        BOTH.iter().for_each(|workload| start(stage, id, *workload, epoch, &line));
        let is_now = |worker: &WorkerView| worker.stint.epoch == epoch;
        let said = |worker: &WorkerView| is_now(worker) && worker.done == Some(worker.stint.workload.0);
        until_all(stage, "have saved", id, 2, |worker| said(worker) && worker.durable.is_some());
        BOTH.iter().for_each(|workload| stop(stage, id, stint(*workload, epoch)));
        until_all(stage, "have ended", id, 2, |worker| is_now(worker) && worker.settled);
    }
    assert_eq!(BOTH.map(|workload| read(stage, &format!("seen-{workload}"))), ["1\n", "2\n"]);
}

pub fn a_notice_reaches_both_and_both_save(stage: &mut impl Stage) {
    let id = stage.up(1);
    let save = "echo last > $WINDFALL_CHECKPOINT_DIR/model";
    let line = format!("trap '{save}; exit 0' TERM; echo > ready-$JOB; {FOR_EVER}");
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, &line));
    BOTH.iter().for_each(|workload| wait_for_file(stage, &format!("ready-{workload}")));
    stage.take(id, Some(Span::minutes(10)));
    let both = until_all(stage, "have saved", id, 2, |worker| worker.settled);
    for worker in both {
        assert_eq!(
            (&worker.end, worker.durable.map(|saved| saved.epoch)),
            (&Some(WorkerEnd::Stopped), Some(1)),
            "{worker:?}"
        );
    }
    // One that is started after the notice hears of it too.
    start(stage, id, 3, 1, FOR_EVER);
    until(stage, "is stopped", id, 3, |worker| worker.end == Some(WorkerEnd::Stopped));
    stage.until("is gone", id, |observed| gone(&observed.state));
    assert_eq!(stage.running(id), [0; 0]);
}

pub fn release_ends_both_and_leaves_no_process(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!("setsid sh -c '{FOR_EVER}' & (setsid sh -c '{FOR_EVER}' &); echo > ready-$JOB; {DEAF}");
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, &line));
    BOTH.iter().for_each(|workload| wait_for_file(stage, &format!("ready-{workload}")));
    until_all(stage, "run", id, 2, |worker| worker.pid.is_some());
    stage.release(id).unwrap();
    assert_eq!(stage.running(id), [0; 0], "at the moment of the answer");
}

pub fn a_release_during_two_last_saves_keeps_the_files_of_both(stage: &mut impl Stage) {
    let id = stage.up(1);
    for workload in BOTH {
        // A store of its own, which goes away while the program runs.
        let store = stage.folder().join(format!("store-{workload}"));
        std::fs::create_dir(&store).unwrap();
        let line = format!("rm -rf '{0}'; echo > '{0}'; echo $JOB > $WINDFALL_CHECKPOINT_DIR/model", store.display());
        let mut order = order(stage, workload, 1, &line);
        order.checkpoint_store = store.display().to_string();
        stage.wait_for(stage.link().start(id, &order)).unwrap();
    }
    until_all(stage, "have ended", id, 2, |worker| worker.end.is_some() && worker.trouble.is_some());
    stage.release(id).unwrap();
    until_all(stage, "have given up", id, 2, |worker| worker.settled);
    let folder = |workload| stage.kept(workload, &job_folder(stage, workload));
    let kept = |workload| std::fs::read_to_string(folder(workload).join("unsaved-1/model")).unwrap();
    assert_eq!(BOTH.map(kept), ["1\n", "2\n"]);
}

pub fn a_second_start_of_one_changes_nothing_while_the_other_runs(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!("echo one >> starts-$JOB; {FOR_EVER}");
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, &line));
    let before = until_all(stage, "run", id, 2, |worker| worker.pid.is_some());
    BOTH.iter().for_each(|workload| wait_for_file(stage, &format!("starts-{workload}")));
    start(stage, id, 1, 1, &line);
    // A newer stint is refused as well while the last one runs.
    start(stage, id, 1, 2, &line);
    start(stage, id, 3, 1, "exit 0");
    until(stage, "has ended", id, 3, |worker| worker.settled);
    let after = until_all(stage, "are there", id, 3, |_| true);
    let same = |(before, after): (&WorkerView, &WorkerView)| (before.stint, before.pid) == (after.stint, after.pid);
    assert!(before.iter().zip(&after).all(same), "{before:?} {after:?}");
    assert_eq!(BOTH.map(|workload| read(stage, &format!("starts-{workload}"))), ["one\n", "one\n"]);
}

pub fn an_agent_that_is_killed_ends_both_and_both_are_told(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = format!("echo $JOB > $WINDFALL_CHECKPOINT_DIR/model; setsid sh -c '{FOR_EVER}' & {FOR_EVER}");
    BOTH.iter().for_each(|workload| start(stage, id, *workload, 1, &line));
    start(stage, id, 3, 1, "exit 5");
    let third = until(stage, "has ended", id, 3, |worker| worker.settled);
    let before = until_all(stage, "have saved", id, 3, |worker| worker.durable.is_some() || worker.end.is_some());
    stage.break_machine(id);
    // Nobody heard what they said before: only what was written down is left.
    stage.reopen();
    let seen = stage.until("is gone", id, |observed| gone(&observed.state));
    assert!(matches!(seen.state, LeaseState::Gone { end: LeaseEnd::Lost, .. }), "{seen:?}");
    assert_eq!(stage.running(id), [0; 0], "gone means that nothing runs");
    let after = until_all(stage, "are told", id, 3, |_| true);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.stint, before.durable), (after.stint, after.durable), "{before:?} {after:?}");
    }
    assert!(after[..2].iter().all(|worker| worker.end.is_none()), "they did not end by themselves: {after:?}");
    assert_eq!(
        (&after[2].end, &third.end),
        (&Some(WorkerEnd::Exited { code: 5 }), &Some(WorkerEnd::Exited { code: 5 }))
    );
}
