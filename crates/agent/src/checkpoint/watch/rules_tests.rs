//! Each rule with signs and times of its own.

use super::*;

fn limits() -> Limits {
    Limits { settle_ms: 2_000, stream_after_ms: 15_000, patience_ms: 600_000, never_after_ms: 40_000, complete: None }
}

fn rules() -> Rules {
    Rules::new(limits(), 0, BTreeMap::new(), BTreeSet::new())
}

fn stamp() -> Stamp {
    Stamp { size: 1, mtime_ns: 1, ctime_ns: 1, inode: 1 }
}

impl Rules {
    fn see(&mut self, now: u64, sign: Sign) -> &mut Self {
        self.on_sign(sign, Some(10), now);
        self
    }

    fn is_due(&mut self, now: u64) -> bool {
        self.due(now).is_ok()
    }
}

fn written(path: &str) -> Sign {
    Sign::Written(path.into())
}

fn closed(path: &str) -> Sign {
    Sign::Closed(path.into())
}

fn moved(path: &str) -> Sign {
    Sign::MovedIn(path.into(), Some(format!("{path}.tmp").into()))
}

/// Writes beside and renames.
fn save(rules: &mut Rules, now: u64, path: &str) {
    let beside = format!("{path}.tmp");
    rules.see(now, written(&beside)).see(now, closed(&beside)).see(now, moved(path));
}

#[test]
fn the_first_save_waits_until_nothing_changes_and_the_next_is_due_at_once() {
    let mut rules = rules();
    save(&mut rules, 30, "a");
    assert!(!rules.is_due(30) && !rules.is_due(2_029));
    assert!(rules.is_due(2_030));
    rules.on_taken([("a".into(), stamp())].into(), 2_030);
    save(&mut rules, 9_000, "a");
    assert!(rules.is_due(9_000));
    let habits = rules.habits(9_000);
    assert_eq!((habits.renames, habits.in_place_rewrites), (2, 0));
}

#[test]
fn a_program_that_saves_more_often_than_it_settles_is_due_from_its_second_save() {
    let mut rules = rules();
    for n in 0..5 {
        save(&mut rules, n * 1_000, "a");
        assert_eq!(rules.is_due(n * 1_000), n > 0, "save {n}");
    }
}

#[test]
fn half_a_save_is_never_due() {
    let mut rules = rules();
    for n in 0..9 {
        save(&mut rules, n * 1_000, "weights");
        assert!(!rules.is_due(n * 1_000 + 299));
        save(&mut rules, n * 1_000 + 300, "optimizer");
        assert_eq!(rules.is_due(n * 1_000 + 300), n > 0, "save {n}");
        if n > 0 {
            let files = ["weights", "optimizer"].map(|path| (path.into(), stamp()));
            rules.on_taken(files.into(), n * 1_000 + 300);
        }
    }
}

#[test]
fn a_whole_save_is_not_due_while_another_file_is_written() {
    let mut rules = rules();
    (0..5).for_each(|n| save(&mut rules, n * 1_000, "model"));
    assert!(rules.is_due(4_000));
    rules.see(4_900, written("scores"));
    save(&mut rules, 5_000, "model");
    assert!(!rules.is_due(5_000));
    rules.see(5_100, closed("scores"));
    assert!(!rules.is_due(5_100) && rules.is_due(7_100));
}

#[test]
fn a_new_folder_renamed_into_place_is_due_at_once_and_one_with_something_beside_it_is_not() {
    let mut rules = rules();
    rules.see(0, Sign::FolderMovedIn("step-1".into())).see(0, Sign::Carried("step-1/model".into(), None));
    assert!(rules.is_due(0));
    rules.on_taken([("step-1/model".into(), stamp())].into(), 0);
    // The same name again may hold files of both.
    rules.see(10, Sign::FolderMovedIn("step-1".into())).see(10, Sign::Carried("step-1/new".into(), None));
    assert!(!rules.is_due(10) && rules.is_due(2_010));
    rules.on_taken(BTreeMap::new(), 2_010);
    rules.see(5_000, written("latest")).see(5_000, closed("latest"));
    rules.see(5_001, Sign::FolderMovedIn("step-2".into())).see(5_001, Sign::Carried("step-2/model".into(), None));
    assert!(!rules.is_due(5_001) && rules.is_due(7_001));
}

#[test]
fn the_file_that_is_written_last_makes_all_of_them_whole() {
    let limits = Limits { complete: Some(Pattern::new("*.done")), ..limits() };
    let mut rules = Rules::new(limits, 0, BTreeMap::new(), BTreeSet::new());
    rules.see(0, written("weights")).see(100, closed("weights")).see(100, written("log"));
    rules.see(200, written("1.done"));
    assert!(!rules.is_due(400));
    rules.see(400, closed("1.done"));
    assert!(!rules.is_due(699), "the close may be the kernel's");
    assert!(rules.is_due(700));
    assert!(rules.busy_streams(700).contains(Path::new("log")), "what is open is no part of it");
}

#[test]
fn a_mark_by_the_program_makes_all_of_them_whole_until_the_next_change() {
    let mut rules = rules();
    rules.see(0, written("a")).see(0, closed("a")).see(1, Sign::Whole);
    assert!(rules.is_due(1));
    rules.see(2, written("a")).see(2, closed("a"));
    assert!(!rules.is_due(3));
}

#[test]
fn a_file_closed_by_the_death_of_its_writer_never_settles() {
    let mut rules = rules();
    rules.see(0, written("a"));
    rules.on_death(1_000);
    rules.see(1_010, closed("a"));
    assert!(!rules.is_due(60_000) && !rules.is_last_due(60_000));
}

#[test]
fn what_was_at_rest_or_replaced_when_a_process_died_counts() {
    let mut at_rest = rules();
    at_rest.see(0, written("a")).see(100, closed("a"));
    at_rest.on_death(2_100);
    assert!(at_rest.is_last_due(2_200));
    let mut replaced = Rules::new(limits(), 0, [("a".into(), stamp()), ("b".into(), stamp())].into(), BTreeSet::new());
    save(&mut replaced, 0, "a");
    replaced.on_death(10);
    assert!(!replaced.is_last_due(20), "half of what was there");
    save(&mut replaced, 30, "b");
    assert!(replaced.is_last_due(40));
}

#[test]
fn a_process_that_died_long_before_a_clean_end_spoils_only_its_own_files() {
    let mut rules = rules();
    rules.see(0, written("log"));
    rules.on_death(1_000);
    rules.see(1_010, closed("log"));
    rules.see(9_000, written("model"));
    rules.on_clean_end();
    assert!(!rules.is_last_due(9_010), "the log is torn");
    rules.see(9_005, Sign::Gone("log".into()));
    assert!(rules.is_last_due(9_010));
}

#[test]
fn at_the_end_of_a_program_what_it_wrote_is_due_and_what_it_did_not_is_not() {
    let mut rules = Rules::new(limits(), 0, [("a".into(), stamp())].into(), BTreeSet::new());
    assert!(!rules.is_last_due(0));
    rules.see(0, Sign::Gone("a".into()));
    assert!(!rules.is_last_due(0), "a deletion is no save");
    rules.see(0, written("a"));
    assert!(rules.is_last_due(0));
}

#[test]
fn a_program_that_never_settles_is_found_and_a_log_is_not() {
    let mut rules = rules();
    for now in (0..39_000).step_by(500) {
        rules.on_sign(written("state"), Some(0), now);
        rules.on_sign(written("state"), Some(10), now + 1);
        rules.on_sign(closed("state"), Some(10), now + 2);
        assert!(rules.due(now + 3).is_err());
        assert!(!rules.habits(now).never_settles);
    }
    assert!(rules.habits(40_000).never_settles);
    let mut log = Rules::new(limits(), 0, BTreeMap::new(), BTreeSet::new());
    for now in (0..90_000).step_by(500) {
        log.on_sign(written("log"), Some(now), now);
        assert!(log.due(now).is_err() && !log.habits(now).never_settles);
    }
}

#[test]
fn a_file_renamed_while_open_waits_for_its_close() {
    let mut rules = rules();
    rules.see(10, written("a.tmp")).see(20, Sign::MovedIn("a".into(), Some("a.tmp".into())));
    assert!(!rules.is_due(5_000));
    rules.see(5_000, closed("a"));
    assert!(rules.is_due(7_000));
}

#[test]
fn a_file_written_in_place_is_due_when_it_has_settled() {
    let mut rules = rules();
    rules.see(0, written("a")).see(100, closed("a"));
    assert!(!rules.is_due(2_099));
    assert!(rules.is_due(2_100));
}

#[test]
fn an_open_file_is_waited_for_however_long_it_pauses_within_the_limit() {
    let mut rules = rules();
    rules.see(0, written("a"));
    assert!(!rules.is_due(14_000));
    assert!(rules.habits(14_000).mid_write_now);
}

#[test]
fn another_file_mid_write_holds_up_a_renamed_one() {
    let mut rules = rules();
    rules.see(0, Sign::MovedIn("shard-0".into(), None)).see(0, written("shard-1.tmp"));
    assert!(!rules.is_due(3_000));
    rules.see(3_200, closed("shard-1.tmp")).see(3_200, moved("shard-1"));
    assert!(rules.is_due(5_200));
}

#[test]
fn an_endless_log_holds_nothing_up_and_calls_for_nothing() {
    let mut rules = rules();
    for now in (0..=16_000).step_by(500) {
        rules.see(now, written("log"));
    }
    assert!(!rules.is_due(16_001));
    rules.see(16_100, Sign::MovedIn("model".into(), None));
    for now in (16_500..=18_000).step_by(500) {
        rules.see(now, written("log"));
    }
    assert!(rules.is_due(18_100));
    assert!(rules.busy_streams(18_100).contains(Path::new("log")));
    rules.on_taken([("model".into(), stamp())].into(), 18_100);
    rules.see(18_200, closed("log"));
    assert!(!rules.is_due(30_000));
}

#[test]
fn a_large_file_that_grows_fast_is_no_stream() {
    let mut rules = rules();
    for second in 0..60 {
        rules.on_sign(written("big"), Some(second * (100 << 20)), second * 1_000);
    }
    rules.see(55_000, Sign::MovedIn("small".into(), None));
    assert!(!rules.is_due(60_000));
    rules.on_sign(closed("big"), Some(60 * (100 << 20)), 61_000);
    assert!(rules.is_due(63_000));
}

#[test]
fn writing_over_a_taken_name_is_counted_as_a_rewrite() {
    let mut rules = Rules::new(limits(), 0, [("a".into(), stamp())].into(), BTreeSet::new());
    rules.see(0, written("a")).see(300, closed("a"));
    let habits = rules.habits(300);
    assert_eq!((habits.in_place_rewrites, habits.longest_save_ms, habits.renames), (1, 300, 0));
}

#[test]
fn a_given_up_snapshot_is_taken_again_when_quiet() {
    let mut rules = rules();
    rules.owe();
    rules.see(0, written("a"));
    assert!(!rules.is_due(10));
    rules.see(20, closed("a"));
    assert!(rules.is_due(2_020));
    rules.on_taken(BTreeMap::new(), 2_020);
    assert!(!rules.is_due(9_000));
}

#[test]
fn a_deletion_alone_calls_for_nothing() {
    let mut rules = Rules::new(limits(), 0, [("a".into(), stamp())].into(), BTreeSet::new());
    rules.see(0, Sign::Gone("a".into()));
    assert!(!rules.is_due(60_000));
}

fn sized(size: u64) -> Stamp {
    Stamp { size, ..stamp() }
}

/// Appends to a file and closes it.
fn append(rules: &mut Rules, now: u64, path: &str, size: u64) {
    rules.on_sign(written(path), Some(size), now);
    rules.on_sign(closed(path), Some(size), now + 1);
}

/// Takes what is there, if that is due, with these sizes.
fn take(rules: &mut Rules, now: u64, sizes: &[(&str, u64)]) {
    assert!(rules.is_due(now), "at {now}");
    rules.on_taken(sizes.iter().map(|(path, size)| ((*path).into(), sized(*size))).collect(), now);
}

#[test]
fn a_log_beside_what_is_replaced_dates_nothing() {
    let mut rules = rules();
    let (mut now, mut log) = (0, 5);
    for n in 0..6 {
        save(&mut rules, now, "model");
        append(&mut rules, now + 10, "log", log);
        take(&mut rules, now + 2_100, &[("log", log), ("model", 10)]);
        // It is saved again as it grows, and counts as a log once the model was replaced twice.
        append(&mut rules, now + 10_000, "log", log + 2);
        assert_eq!(rules.logs().contains(Path::new("log")), n >= 2, "save {n}");
        take(&mut rules, now + 12_100, &[("log", log + 2), ("model", 10)]);
        (now, log) = (now + 60_000, log + 4);
    }
    // One that is written anew is none any more, and neither is one that goes on long after the last save.
    append(&mut rules, now, "log", 3);
    assert!(rules.logs().is_empty());
    take(&mut rules, now + 2_100, &[("log", 3), ("model", 10)]);
    append(&mut rules, now + 700_000, "results", 3);
    take(&mut rules, now + 702_100, &[("log", 3), ("model", 10), ("results", 3)]);
    append(&mut rules, now + 1_400_000, "results", 9);
    assert!(rules.logs().is_empty());
}

#[test]
fn where_nothing_is_replaced_what_grows_is_the_save() {
    let mut rules = rules();
    save(&mut rules, 0, "settings");
    for n in 1..9 {
        append(&mut rules, n * 10_000, "results", 5 * n);
        assert!(rules.logs().is_empty(), "part {n}");
        take(&mut rules, n * 10_000 + 2_100, &[("settings", 10), ("results", 5 * n)]);
    }
    // Several files of one kind, each written once, are not one that is replaced.
    for n in 1..5_u64 {
        let now = 100_000 + n * 10_000;
        append(&mut rules, now, &format!("fold-{n}"), 5);
        append(&mut rules, now, "results", 100 + n);
        assert!(rules.logs().is_empty(), "fold {n}");
        assert!(rules.is_due(now + 2_100));
        let folds = (1..=n).map(|n| (format!("fold-{n}").into(), sized(5)));
        let others = [("settings".into(), sized(10)), ("results".into(), sized(100 + n))];
        rules.on_taken(folds.chain(others).collect(), now + 2_100);
    }
}

#[test]
fn a_stream_that_only_grows_is_saved_as_far_as_it_is_once_it_is_surely_a_log() {
    let log = Path::new("log");
    let mut first = rules();
    for now in (0..=61_000).step_by(500) {
        first.on_sign(written("log"), Some(now), now);
        let _ = first.due(now);
        assert_eq!(first.is_log_like(log, now), now >= 60_000, "at {now}");
    }
    // The next stint knows it: it holds nothing up from the start, unless it is written anew.
    let mut next = Rules::new(limits(), 0, [("log".into(), sized(50))].into(), [log.to_owned()].into());
    next.on_sign(written("log"), Some(51), 10);
    save(&mut next, 100, "model");
    assert!(next.is_due(2_200) && next.is_log_like(log, 2_200) && next.busy_streams(2_200).contains(log));
    next.on_sign(written("log"), Some(3), 2_300);
    assert!(!next.is_stream(log) && !next.is_log_like(log, 2_300));
}
