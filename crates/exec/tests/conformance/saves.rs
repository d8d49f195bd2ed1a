//! Facts about what a worker saves: what becomes durable, what does not, and what is said meanwhile.

use crate::facts::wait_for_file;
use crate::stage::{Stage, stint};
use windfall_core::{Span, TroubleKind, WorkerEnd};
use windfall_exec::StopOrder;

pub fn an_end_is_told_before_the_last_save_and_a_save_that_is_given_up_is_kept(stage: &mut impl Stage) {
    let id = stage.up(1);
    let store = stage.folder().join("store");
    // The store goes away while the program runs.
    let line = format!("rm -rf '{0}'; echo > '{0}'; echo result > $WINDFALL_CHECKPOINT_DIR/model", store.display());
    stage.start(id, 1, &line);
    let ended = stage.until_worker("has ended", id, |worker| worker.end.is_some());
    assert_eq!((&ended.end, ended.settled), (&Some(WorkerEnd::Exited { code: 0 }), false), "{ended:?}");
    let troubled = stage.until_worker("says why", id, |worker| worker.trouble.is_some());
    assert_eq!(troubled.trouble.unwrap().kind, TroubleKind::StoreAway);
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::ZERO))).unwrap();
    let over = stage.until_worker("has given up", id, |worker| worker.settled);
    let trouble = over.trouble.unwrap();
    let kept = stage.kept(1, stage.folder()).join("unsaved-1");
    assert!(
        trouble.kind == TroubleKind::NotSaved && trouble.text.ends_with(&kept.display().to_string()),
        "{trouble:?}"
    );
    assert_eq!(std::fs::read_to_string(kept.join("model")).unwrap(), "result\n");
    assert_eq!((over.end, over.durable), (Some(WorkerEnd::Exited { code: 0 }), None));
}

pub fn a_release_during_the_last_save_keeps_the_files(stage: &mut impl Stage) {
    let id = stage.up(1);
    let store = stage.folder().join("store");
    let line = format!("rm -rf '{0}'; echo > '{0}'; echo result > $WINDFALL_CHECKPOINT_DIR/model", store.display());
    stage.start(id, 1, &line);
    stage.until_worker("has ended", id, |worker| worker.end.is_some() && worker.trouble.is_some());
    stage.release(id).unwrap();
    let over = stage.until_worker("has given up", id, |worker| worker.settled);
    assert!(over.trouble.unwrap().text.contains("unsaved-1"));
    assert_eq!(std::fs::read_to_string(stage.kept(1, stage.folder()).join("unsaved-1/model")).unwrap(), "result\n");
}

pub fn a_last_save_succeeds_soon_after_the_store_is_back(stage: &mut impl Stage) {
    let id = stage.up(1);
    let (store, away) = (stage.folder().join("store"), stage.folder().join("away"));
    let line = format!("mv '{}' '{}'; echo result > $WINDFALL_CHECKPOINT_DIR/model", store.display(), away.display());
    stage.start(id, 1, &line);
    stage.until_worker("says why", id, |worker| worker.end.is_some() && worker.trouble.is_some());
    assert!(!store.exists(), "a store that is away is not made anew");
    std::fs::rename(&away, &store).unwrap();
    let over = stage.until_worker("is durable", id, |worker| worker.settled);
    assert_eq!((over.trouble, over.durable.map(|id| id.epoch)), (None, Some(1)));
}

pub fn what_a_stopped_program_saved_last_has_longer_than_its_grace(stage: &mut impl Stage) {
    let id = stage.up(1);
    let (store, away) = (stage.folder().join("store"), stage.folder().join("away"));
    let save =
        format!("mv '{}' '{}'; echo last > $WINDFALL_CHECKPOINT_DIR/model; exit 0", store.display(), away.display());
    let line =
        format!("trap \"{save}\" TERM; cd {}; touch ready; while true; do sleep 0.02; done", stage.folder().display());
    stage.start(id, 1, &line);
    wait_for_file(stage, "ready");
    let grace = std::time::Duration::from_secs(2);
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span(grace.as_millis() as i64)))).unwrap();
    stage.until_worker("says why", id, |worker| worker.end.is_some() && worker.trouble.is_some());
    std::thread::sleep(grace);
    std::fs::rename(&away, &store).unwrap();
    let over = stage.until_worker("is durable", id, |worker| worker.settled);
    let told = (over.end, over.trouble, over.durable.map(|id| id.epoch));
    assert_eq!(told, (Some(WorkerEnd::Stopped), None, Some(1)));
}

pub fn a_store_that_is_away_is_waited_for_and_never_taken_for_an_empty_one(stage: &mut impl Stage) {
    let id = stage.up(1);
    let (store, away) = (stage.folder().join("store"), stage.folder().join("away"));
    stage.start(id, 1, "echo one > $WINDFALL_CHECKPOINT_DIR/model");
    stage.until_worker("is durable", id, |worker| worker.settled && worker.durable.is_some());
    // Gone, and then as empty as a directory on which nothing is mounted.
    for (epoch, mounted) in [(2, false), (3, true)] {
        std::fs::rename(&store, &away).unwrap();
        if mounted {
            std::fs::create_dir(&store).unwrap();
        }
        stage.start(id, epoch, "cat $WINDFALL_CHECKPOINT_DIR/model >> seen");
        let waiting =
            stage.until_worker("waits", id, |worker| worker.stint == stint(epoch) && worker.trouble.is_some());
        let trouble = waiting.trouble.unwrap();
        assert!(
            trouble.kind == TroubleKind::StoreAway && waiting.pid.is_none() && waiting.end.is_none(),
            "{trouble:?}"
        );
        if mounted {
            std::fs::remove_dir_all(&store).unwrap();
            std::fs::rename(&away, &store).unwrap();
            let over = stage.until_worker("ran", id, |worker| worker.stint == stint(epoch) && worker.settled);
            assert_eq!((over.end, over.trouble), (Some(WorkerEnd::Exited { code: 0 }), None));
        } else {
            stage.wait_for(stage.link().stop(id, stint(epoch), 0, StopOrder::within(Span::ZERO))).unwrap();
            let over = stage.until_worker("is over", id, |worker| worker.end.is_some());
            assert_eq!((over.end, over.settled), (Some(WorkerEnd::StoreAway { why: trouble.text }), true));
            std::fs::rename(&away, &store).unwrap();
        }
    }
    assert_eq!(std::fs::read_to_string(stage.folder().join("seen")).unwrap(), "one\n");
}

pub fn a_stint_that_saves_nothing_has_no_checkpoint(stage: &mut impl Stage) {
    let id = stage.up(1);
    stage.start(id, 1, "echo one > $WINDFALL_CHECKPOINT_DIR/model");
    let first = stage.until_worker("is durable", id, |worker| worker.settled);
    assert!(first.durable.is_some() && first.durable_ran_ms.is_some(), "{first:?}");
    stage.start(id, 2, "exit 1");
    let second = stage.until_worker("is over", id, |worker| worker.stint == stint(2) && worker.settled);
    assert_eq!((second.restored, second.durable, second.durable_work), (first.durable, None, None));
}

pub fn work_is_what_was_said_when_the_files_were_written(stage: &mut impl Stage) {
    let id = stage.up(1);
    let line = "say() { echo $1 10 > $WINDFALL_PROGRESS.new; mv $WINDFALL_PROGRESS.new $WINDFALL_PROGRESS; }; \
                echo x > $WINDFALL_CHECKPOINT_DIR/early; sleep 0.5; say 5; sleep 0.5; \
                echo x > $WINDFALL_CHECKPOINT_DIR/model; sleep 0.02; say 9; sleep 0.5; echo 1 > said; while [ -e said ]; do sleep 0.02; done";
    stage.start(id, 1, line);
    let first = stage.until_worker("is durable", id, |worker| worker.durable.is_some());
    assert_eq!(first.durable_work, None, "nothing was said by then: {first:?}");
    wait_for_file(stage, "said");
    let seen = stage.until_worker("is durable", id, |w| w.durable > first.durable && w.done == Some(9));
    assert_eq!(seen.durable_work, Some(5), "{seen:?}");
    assert!(seen.durable_ran_ms >= Some(1_000) && first.durable_ran_ms < seen.durable_ran_ms, "{seen:?}");
    std::fs::remove_file(stage.folder().join("said")).unwrap();
    let over = stage.until_worker("is over", id, |worker| worker.settled);
    assert_eq!((over.durable, over.durable_work), (seen.durable, Some(5)), "nothing was written since");
}

pub fn a_program_killed_in_the_middle_of_a_write_leaves_its_last_whole_save(stage: &mut impl Stage) {
    let id = stage.up(1);
    // The shell exits with 143 for the process below it that died of our SIGTERM; its own file is half written.
    let writer = "import os, time; d = os.environ['WINDFALL_CHECKPOINT_DIR']; f = open(d + '/model', 'r+'); f.write('torn'); \
                  f.flush(); open('writing', 'w').close(); time.sleep(1000)";
    let line = format!(
        "cd {}; if [ ! -e $WINDFALL_CHECKPOINT_DIR/model ]; then echo whole! > $WINDFALL_CHECKPOINT_DIR/model; sleep 1; fi; \
         cat $WINDFALL_CHECKPOINT_DIR/model >> seen; trap 'true' TERM; python3 -c \"{writer}\"; exit $?",
        stage.folder().display()
    );
    stage.start(id, 1, &line);
    wait_for_file(stage, "writing");
    stage.until_worker("is durable", id, |worker| worker.durable.is_some());
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::minutes(10)))).unwrap();
    stage.until_worker("is over", id, |worker| worker.settled);
    stage.start(id, 2, "cat $WINDFALL_CHECKPOINT_DIR/model >> seen");
    stage.until_worker("resumed", id, |worker| worker.stint == stint(2) && worker.settled);
    assert_eq!(std::fs::read_to_string(stage.folder().join("seen")).unwrap(), "whole!\nwhole!\n");
}

pub fn a_program_that_never_settles_is_told_so(stage: &mut impl Stage) {
    let id = stage.up(1);
    // In place and more often than the settling time of a quarter of a second.
    let line =
        "while [ -e $WINDFALL_CHECKPOINT_DIR ]; do echo $((n += 1)) > $WINDFALL_CHECKPOINT_DIR/model; sleep 0.03; done";
    stage.start(id, 1, line);
    let restless = stage.until_worker("is told", id, |worker| worker.trouble.is_some());
    assert_eq!(restless.trouble.map(|trouble| trouble.kind), Some(TroubleKind::NeverSettles));
    stage.wait_for(stage.link().stop(id, stint(1), 0, StopOrder::within(Span::ZERO))).unwrap();
    let over = stage.until_worker("is over", id, |worker| worker.settled);
    // On a busy machine the program itself may pause for a quarter of a second, and then what lies there is a checkpoint.
    assert_eq!(over.durable, restless.durable, "what a killed program was writing is torn");
}

pub fn a_mark_makes_a_save_whole_at_once(stage: &mut impl Stage) {
    let id = stage.up(1);
    // Without the mark this would never settle.
    let line = "while [ -e $WINDFALL_CHECKPOINT_DIR ]; do echo 1 > $WINDFALL_CHECKPOINT_DIR/a; sleep 0.02; \
                echo 2 > $WINDFALL_CHECKPOINT_DIR/b; echo > $WINDFALL_SAVED.new; mv $WINDFALL_SAVED.new $WINDFALL_SAVED; \
                sleep 0.07; date > $WINDFALL_CHECKPOINT_DIR/a; sleep 0.02; done";
    stage.start(id, 1, line);
    stage.until_worker("is durable", id, |worker| worker.durable.is_some());
}
