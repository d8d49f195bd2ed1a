//! Each bad habit in a function of its own: what shows it, why it matters, what to do about it.

use super::act::{Cut, Ended};
use super::final_state;
use super::saves::is_lock;
use super::seen::{Finding, Scene, Seen, Severity, seconds};
use super::signals;
use super::traces::{ENOUGH_SAVES, output};
use std::path::PathBuf;
use windfall_core::english::counted;

/// A program that needs longer than this before it works is dear to interrupt.
const SLOW_START: f64 = 120.0;

const ATOMIC: &str = "write to a temporary file in the same directory, flush and fsync it, then rename it over the \
                      old one (Python: os.replace)";
const NEW_FOLDER: &str = "write all files of a checkpoint into a new folder beside the others (step-1200.tmp), fsync \
                          them, then rename the folder (step-1200), and resume from the newest folder without .tmp: \
                          one file after the other can be of two different saves";

/// Every finding, the weightiest first.
pub fn all(seen: &Seen) -> Vec<Finding> {
    if let Some(failed) = baseline_failed(seen) {
        return vec![failed];
    }
    let mut found: Vec<Finding> = [
        saving(seen),
        fails_on_resume(seen),
        restarts_from_zero(seen),
        in_place(seen),
        final_state::differs(seen),
        leaves_children(seen),
        signals::workers_die(seen),
        signals::ignores(seen),
        signals::slow(seen),
        last_save_lost(seen),
        slow_restart(seen),
        final_state::not_deterministic(seen),
        only_alone(seen),
    ]
    .into_iter()
    .flatten()
    .chain(final_state::notes(seen))
    .collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

/// Two runs of it on one machine are in each other's way.
fn only_alone(seen: &Seen) -> Option<Finding> {
    (!seen.only_alone.is_empty()).then(|| Finding {
        code: "only-alone",
        seen: format!("{}: it went wrong beside another run on the same machine, and well alone", seen.only_alone.join(", ")),
        why: "two of its runs share something, such as a port, a file with a fixed name, or memory that is too small for \
              both: on a shared machine it will fail",
        fix: "take a free port (0), write only below its own folder, and rehearse with --at-once 1 to be sure".to_owned(),
        severity: Severity::Info,
    })
}

/// It saved when it was told to stop, and that save was not what it went on from.
fn last_save_lost(seen: &Seen) -> Option<Finding> {
    let told = |scene: &&Scene| {
        let Some((stint, restart)) = scene.cut().zip(scene.restarts.first()) else { return false };
        let Some((Cut::Notice(_), at)) = stint.cut else { return false };
        let saved = stint.saved_after(at);
        let lost = restart.by == "progress" && restart.lost.is_some_and(|lost| lost > 1.0);
        // A program that loads nothing loses everything, whatever was saved.
        let resumed = restart.restored && restart.began_from_zero() == Some(false);
        saved && lost && resumed && !scene.ignored_notice(&seen.baseline)
    };
    let scene = seen.scenes.iter().find(told)?;
    let lost = scene.restarts.first().and_then(|restart| restart.lost).unwrap_or_default();
    Some(Finding {
        code: "last-save-lost",
        seen: format!(
            "{}: it saved after SIGTERM and ended in time, and {} of work was lost",
            scene.name,
            seconds(lost)
        ),
        why: "a process of it died of the signal (the shell that started it, perhaps), and then a file that was written \
              under its final name cannot be told from a torn one: the checkpoint before it is used",
        fix: format!("{ATOMIC}; or start the program with `exec` in `run:`, so that no shell is above it"),
        severity: Severity::Warning,
    })
}

fn baseline_failed(seen: &Seen) -> Option<Finding> {
    let Ended::Job(_, code, why) = &seen.base.ended else { return None };
    if seen.base.succeeded() {
        return None;
    }
    let code = code.map_or(String::new(), |code| format!(" with code {code}"));
    let last = seen.base.last().map(|stint| last_lines(&output(&stint.log))).unwrap_or_default();
    Some(Finding {
        code: "baseline-failed",
        seen: format!("undisturbed, it failed{code} after {}: {why}{last}", seconds(seen.baseline.ran)),
        why: "a program that fails by itself cannot be judged by what interruptions do to it",
        fix: "make it run to its end from a copy of its folder with an empty checkpoint directory; files it needs \
              must be in the folder or named by full path"
            .to_owned(),
        severity: Severity::Unsafe,
    })
}

/// Whether it saves at all, when, and where: one finding at most.
fn saving(seen: &Seen) -> Option<Finding> {
    if let Some(outside) = state_outside(seen) {
        return Some(outside);
    }
    if seen.saves_when_asked {
        return Some(Finding {
            code: "saves-when-asked",
            seen: "it saved when Windfall asked it to, and resumed from that".to_owned(),
            why: "how often it is asked depends on what a save costs and on how long the machine is likely to last; \
                  elsewhere than under Windfall nobody asks",
            fix: "nothing needs to be done".to_owned(),
            severity: Severity::Info,
        });
    }
    if seen.baseline.saves_on_the_way() || seen.scenes.is_empty() {
        return None;
    }
    let on_notice = seen.scenes.iter().find(|scene| scene.saved_on_notice(&seen.baseline));
    let every = "save every few minutes as well, for capacity that goes without a word";
    if on_notice.is_some() {
        let without = seen.scene("without notice").and_then(|scene| scene.restarts.first()?.lost);
        let lost = without.map(|lost| format!("; without a notice {} of work was lost", seconds(lost)));
        return Some(Finding {
            code: "saves-only-on-notice",
            seen: format!("it saved when it was told to stop, and never before{}", lost.unwrap_or_default()),
            why: "a notice is a courtesy: machines also fail, and capacity also goes, without one; then all is lost",
            fix: every.to_owned(),
            severity: Severity::Unsafe,
        });
    }
    let ran = seconds(seen.baseline.ran);
    if seen.baseline.saves.is_empty() {
        let dir = &seen.checkpoint;
        let longer = if seen.baseline.finished { "" } else { " (its first part: it is longer than the limit)" };
        return Some(Finding {
            code: "never-checkpoints",
            seen: format!("in {ran}{longer} and after SIGTERM nothing was saved in its checkpoint directory ({dir})"),
            why: "every interruption costs all the work done so far; a long job may never end",
            fix: format!(
                "save to $WINDFALL_CHECKPOINT_DIR (or to `checkpoint.path` of the job file) every few minutes and on \
                 SIGTERM, and begin from what is there; {ATOMIC}"
            ),
            severity: Severity::Unsafe,
        });
    }
    Some(Finding {
        code: "saves-only-at-end",
        seen: format!(
            "its first save came {} after its start, at the end of a run of {ran}; after SIGTERM it saved nothing",
            seconds(seen.baseline.saves[0])
        ),
        why: "every interruption before the end costs all the work done so far",
        fix: format!("save every few minutes and on SIGTERM, not only when it is done; {ATOMIC}"),
        severity: Severity::Unsafe,
    })
}

fn state_outside(seen: &Seen) -> Option<Finding> {
    let names = |files: &[PathBuf]| {
        let names: Vec<String> = files.iter().take(5).map(|path| path.display().to_string()).collect();
        if files.len() > 5 { format!("{} and {} more", names.join(", "), files.len() - 5) } else { names.join(", ") }
    };
    let found = |text: String| Finding {
        code: "state-outside-checkpoint",
        seen: text,
        why: "only the checkpoint directory goes along to the next machine; the folder is as it was submitted",
        fix: "save in $WINDFALL_CHECKPOINT_DIR, or name the directory it saves in as `checkpoint.path` in the job file"
            .to_owned(),
        severity: Severity::Unsafe,
    };
    let resumed = |scene: &Scene| scene.restarts.iter().any(|restart| restart.kept.is_some_and(|kept| kept > 0.35));
    if let Some(kept) = seen.kept_folder.as_ref().filter(|kept| resumed(kept)) {
        let share = kept.restarts.iter().filter_map(|restart| restart.kept).fold(0.0, f64::max);
        return Some(found(format!(
            "in the same folder it went on with {:.0} % of its work, in a fresh copy of it with nothing; it writes {}",
            share * 100.0,
            names(&seen.outside)
        )));
    }
    // All the work takes as many saves on a busy machine as on a quick one.
    let saved_less = |scene: &Scene| {
        let most = scene.played.stints.iter().map(|stint| stint.watch.saves.len()).max().unwrap_or(0);
        seen.baseline.saves.len() < ENOUGH_SAVES || most * 2 < seen.baseline.saves.len()
    };
    // Something that no act was given: it was there from an act before.
    let elsewhere = seen.scenes.iter().find(|scene| {
        scene.restarts.iter().any(|restart| !restart.restored && restart.kept.is_some_and(|kept| kept > 0.6))
            || (scene.played.cuts == 0
                && scene.played.succeeded()
                && seen.baseline.finished
                && seen.baseline.ran > 1.0
                && saved_less(scene)
                && scene.played.stints.iter().all(|stint| stint.ran().as_secs_f64() < seen.baseline.ran * 0.5))
    });
    elsewhere.map(|scene| {
        let text = "with an empty checkpoint directory and a fresh folder it went on from what an earlier run had done";
        found(format!("{text} (act `{}`)", scene.name))
    })
}

fn fails_on_resume(seen: &Seen) -> Option<Finding> {
    let why = "after an interruption the job runs again and again without getting further, or starts from zero";
    for scene in &seen.scenes {
        let stints = &scene.played.stints;
        // On a checkpoint that was torn or damaged on purpose it may fail once: the one before is tried.
        let forgiven = usize::from(stints.iter().any(|stint| matches!(stint.cut, Some((Cut::Torn, _)))));
        let failed = |stint: &&super::act::Stint| stint.failed().is_some() && stint.found > 0;
        let Some(stint) = stints.iter().skip(1).filter(failed).nth(forgiven) else { continue };
        let locks: Vec<String> =
            stint.left.keys().filter(|path| is_lock(path)).map(|path| path.display().to_string()).collect();
        let lock = match locks.is_empty() {
            true => String::new(),
            false => {
                format!("; the lock of the interrupted run was restored with its checkpoint: {}", locks.join(", "))
            }
        };
        let torn = scene.played.stints.iter().any(|stint| matches!(stint.cut, Some((Cut::MidSave | Cut::Torn, _))));
        let many = stints.iter().map(|stint| stint.watch.files()).max() > Some(1);
        let fix = match locks.is_empty() {
            // It was killed in the middle of a save, and what it left is what it cannot read.
            true if torn && many => NEW_FOLDER,
            true if torn => ATOMIC,
            true => "run it by hand with the checkpoint directory of an interrupted run, and make it go on from there",
            false => "keep locks out of the checkpoint directory, or take them with flock, which ends with its holder",
        };
        return Some(Finding {
            code: "fails-on-resume",
            seen: format!(
                "{}: started on {} it failed with code {} after {}{lock}{}",
                scene.name,
                counted(stint.found as u64, "restored file"),
                stint.failed().unwrap_or_default(),
                seconds(stint.ran().as_secs_f64()),
                last_lines(&output(&stint.log))
            ),
            why,
            fix: fix.to_owned(),
            severity: Severity::Unsafe,
        });
    }
    let hung = seen.scenes.iter().find(|scene| seen.baseline.finished && scene.hung() && scene.played.cuts > 0)?;
    let last = hung.played.last()?;
    Some(Finding {
        code: "fails-on-resume",
        seen: format!(
            "{}: {} after its restart it had not ended, where an undisturbed run takes {}{}",
            hung.name,
            seconds(last.ran().as_secs_f64()),
            seconds(seen.baseline.ran),
            last_lines(&output(&last.log))
        ),
        why,
        fix: "find out what it waits for: a lock or a port of the interrupted run, or a peer that is gone".to_owned(),
        severity: Severity::Unsafe,
    })
}

fn restarts_from_zero(seen: &Seen) -> Option<Finding> {
    if state_outside(seen).is_some() {
        return None;
    }
    let zero = |scene: &&Scene| {
        let torn = scene.played.stints.iter().any(|stint| matches!(stint.cut, Some((Cut::Torn, _))));
        !torn && scene.restarts.iter().any(|restart| restart.failed.is_none() && restart.passed_over_checkpoint())
    };
    let scene = seen.scenes.iter().find(zero)?;
    let restart = scene.restarts.iter().find(|restart| restart.began_from_zero() == Some(true))?;
    let kept = restart.kept.unwrap_or(0.0) * 100.0;
    Some(Finding {
        code: "restarts-from-zero",
        seen: format!(
            "{}: a checkpoint with {:.0} % of the work was restored, and it went on with {kept:.0} % (by its {}); {} \
             of work was done again",
            scene.name,
            restart.expected * 100.0,
            restart.by,
            seconds(restart.lost.unwrap_or(0.0))
        ),
        why: "it saves, but does not begin from what it saved: every interruption costs all the work done so far",
        fix: "when it starts, look into $WINDFALL_CHECKPOINT_DIR and load the newest checkpoint; $WINDFALL_RESUME is \
              set when there is one"
            .to_owned(),
        severity: Severity::Unsafe,
    })
}

fn in_place(seen: &Seen) -> Option<Finding> {
    let stints = || {
        let acts = std::iter::once(&seen.base).chain(seen.scenes.iter().map(|scene| &scene.played));
        acts.flat_map(|played| played.stints.iter())
    };
    let names: std::collections::BTreeSet<&PathBuf> = stints().flat_map(|stint| stint.watch.in_place()).collect();
    let cut = |stint: &&super::act::Stint| stint.cut.is_some_and(|(cut, _)| !matches!(cut, Cut::Notice(_)));
    // Saved more than once, long enough ago, and still nothing of it was safe. Where files are put in the place of others,
    // that is for a machine too busy to copy them in time.
    let unsettled = stints().filter(cut).find(|stint| {
        stint.durable.is_empty() && stint.watch.saves.len() >= 3 && !stint.watch.puts_in_place_of_others()
    });
    if names.is_empty() && unsettled.is_none() {
        return None;
    }
    if names.is_empty()
        && let Some(log) = unsettled.and_then(|stint| stint.watch.appended.keys().next())
    {
        return Some(log_in_checkpoint(log));
    }
    let mut text = match names.is_empty() {
        true => "its checkpoints are written under their final names, one soon after the other".to_owned(),
        false => {
            let names: Vec<String> = names.iter().take(5).map(|path| path.display().to_string()).collect();
            format!("it writes over its checkpoint in place: {}", names.join(", "))
        }
    };
    if let Some(torn) = stints().find_map(|stint| stint.watch.torn.as_ref()) {
        text.push_str(&format!("; in the middle of a save there was {torn}"));
    }
    if let Some(stint) = unsettled {
        text.push_str(&format!(
            "; taken away after {} saves, none of them was durable, because no save was left alone for {}",
            stint.watch.saves.len(),
            seconds(seen.settle.as_secs_f64())
        ));
    }
    if let Some(scene) = seen.scene("torn file").filter(|scene| scene.played.hit) {
        let failed = scene.played.stints.iter().skip(1).find_map(|stint| stint.failed());
        let zero = scene.restarts.first().is_some_and(|restart| restart.kept.is_some_and(|kept| kept < 0.1));
        text.push_str(&match (failed, zero) {
            (Some(code), _) => format!("; started on a half-written file it failed with code {code}"),
            (None, true) => "; started on a half-written file it began from zero".to_owned(),
            (None, false) => "; started on a half-written file it went on".to_owned(),
        });
    }
    Some(Finding {
        code: "in-place-checkpoint",
        seen: text,
        why: "killed in the middle of a save, it has destroyed the old checkpoint and not finished the new one",
        fix: if names.len() > 1 { NEW_FOLDER } else { ATOMIC }.to_owned(),
        severity: Severity::Unsafe,
    })
}

/// Nothing is wrong with its checkpoints, but a log beside them looks like a save that never ends.
fn log_in_checkpoint(log: &std::path::Path) -> Finding {
    Finding {
        code: "log-in-checkpoint",
        seen: format!("{} in its checkpoint directory is written to all the time", log.display()),
        why: "until a file has been written to for 15 s without a pause it may be part of a save, and the checkpoints \
              beside it wait for its end; a program that is interrupted before that has nothing to resume from",
        fix: "write logs outside the checkpoint directory, or close them between two saves".to_owned(),
        severity: Severity::Warning,
    }
}

fn leaves_children(seen: &Seen) -> Option<Finding> {
    let acts = std::iter::once(("undisturbed", &seen.base));
    let mut acts = acts.chain(seen.scenes.iter().map(|scene| (scene.name, &scene.played)));
    let (name, stint) = acts.find_map(|(name, played)| {
        let left =
            |stint: &&super::act::Stint| stint.view.evidence.left_behind > 0 && !stint.view.evidence.ignored_sigterm;
        Some((name, played.stints.iter().find(left)?))
    })?;
    let evidence = &stint.view.evidence;
    Some(Finding {
        code: "leaves-children",
        seen: format!(
            "{name}: a second after the program had ended, {} process(es) of it still ran: {}",
            evidence.left_behind,
            evidence.left_names.join(", ")
        ),
        why: "what stays behind holds accelerator memory and may write into the checkpoint of the next stint; Windfall \
              ends it by force, in the middle of whatever it does",
        fix:
            "end and wait for child processes before the program ends, on SIGTERM too; do not start them in a session \
              of their own (setsid, daemon)"
                .to_owned(),
        severity: Severity::Unsafe,
    })
}

fn slow_restart(seen: &Seen) -> Option<Finding> {
    let slowest = seen.scenes.iter().flat_map(|scene| &scene.restarts).map(|r| r.startup).fold(0.0, f64::max);
    (slowest > SLOW_START).then(|| Finding {
        code: "slow-restart",
        seen: format!("it took {} from its start until it made progress", seconds(slowest)),
        why: "this time is paid for after every interruption and brings nothing",
        fix: "cache what it downloads and compiles, and say `checkpoint: { restart: … }` in the job file".to_owned(),
        severity: Severity::Info,
    })
}

/// The end of an output, for a message.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().map(str::trim_end).filter(|line| !line.is_empty()).take(3).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    if lines.is_empty() { String::new() } else { format!("; it printed: {}", lines.join(" / ")) }
}
