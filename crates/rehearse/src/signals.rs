//! What a program made of a notice: it went on as if nothing had been said, it stopped too slowly, or its workers
//! died of a signal that was meant for the program.

use super::act::{Cut, Stint};
use super::saves::Save;
use super::seen::{Finding, LAST_WORDS, Scene, Seen, Severity, seconds};
use std::time::{Duration, Instant};

/// The shortest of the notices that clouds give (GCP and Azure), in seconds.
const SHORTEST_NOTICE: f64 = 30.0;

/// The act with a notice, its interrupted stint, and when it was told.
fn told(seen: &Seen) -> Option<(&Scene, &Stint, Instant)> {
    seen.scenes.iter().find_map(|scene| {
        let stint = scene.cut()?;
        let (Cut::Notice(_), at) = stint.cut? else { return None };
        Some((scene, stint, at))
    })
}

/// Whether it worked on after it had been told: it printed, or saved more than once. None when it never prints.
fn worked_on(stint: &Stint, at: Instant) -> Option<bool> {
    let (told, length) = (stint.age(at), |since: Duration| {
        let samples = stint.output.iter().take_while(|(age, _)| *age <= since);
        samples.last().map_or(0, |(_, length)| *length)
    });
    let whole = stint.output.last().map_or(0, |(_, length)| *length);
    let before = length(told) > length(told.saturating_sub(Duration::from_secs(3)));
    let saves = stint.watch.saves.iter().filter(|save| save.began > at).count();
    (before || saves > 1).then(|| whole > length(told + LAST_WORDS) || saves > 1)
}

/// It heard the signal and had not come to its end when the notice was over.
fn was_slow(scene: &Scene, stint: &Stint, at: Instant) -> bool {
    let idle = stint.hears_notices() && worked_on(stint, at) != Some(true);
    stint.outlasted_notice() && (idle || was_saving(scene))
}

/// Workers that were gone at once while the program waited for them.
fn lost_workers(stint: &Stint, at: Instant) -> Option<usize> {
    let gone = stint.told.as_ref()?.workers_gone.filter(|gone| *gone > 0)?;
    (stint.outlasted_notice() && worked_on(stint, at) != Some(true)).then_some(gone)
}

pub fn workers_die(seen: &Seen) -> Option<Finding> {
    let (_, stint, at) = told(seen)?;
    let gone = lost_workers(stint, at)?;
    Some(Finding {
        code: "workers-die-of-sigterm",
        seen: format!(
            "{gone} of its processes died of SIGTERM at once, and the program waited for them until it was killed"
        ),
        why: "a notice is a SIGTERM to every process of the program: workers without a handler end before the save \
              that needs them",
        fix: "let workers ignore SIGTERM (Python: signal.signal(signal.SIGTERM, signal.SIG_IGN) as their initializer \
              or worker_init_fn; windfall.listen() does so for forked ones), and let the program itself end them"
            .to_owned(),
        severity: Severity::Warning,
    })
}

pub fn ignores(seen: &Seen) -> Option<Finding> {
    let (scene, stint, at) = told(seen)?;
    if !scene.ignored_notice(&seen.baseline) || was_slow(scene, stint, at) || lost_workers(stint, at).is_some() {
        return None;
    }
    let text = match stint.view.evidence.stop_took_ms {
        Some(took) => format!("it went on for {} after SIGTERM, to its end", seconds(took as f64 / 1_000.0)),
        None => format!(
            "it still ran {} after SIGTERM and had to be killed (pid {})",
            seconds(seen.notice.as_secs_f64()),
            stint.view.pid.unwrap_or_default()
        ),
    };
    Some(Finding {
        code: "ignores-sigterm",
        seen: text,
        why: "the notice of 30 s to 120 s before capacity goes is the last chance to save, and it is not used",
        fix: "handle SIGTERM: finish the step, save, exit; in a shell script start the program with `exec`".to_owned(),
        severity: Severity::Warning,
    })
}

/// It was in the middle of a long save when its notice was over.
fn was_saving(scene: &Scene) -> bool {
    let Some((stint, (_, at))) = scene.cut().and_then(|stint| Some((stint, stint.cut?))) else { return false };
    let long = |save: &Save| (save.ended - save.began).as_secs_f64() > 1.0;
    let last = stint.watch.saves.last();
    let late = |save: &&Save| save.ended > at && stint.ended.is_some_and(|end| (end - save.ended).as_secs_f64() < 1.0);
    stint.outlasted_notice() && last.filter(late).is_some_and(long)
}

pub fn slow(seen: &Seen) -> Option<Finding> {
    let (scene, stint, at) = told(seen)?;
    let found = |code, text: String| Finding {
        code,
        seen: text,
        why: "clouds give a notice of 30 s (GCP, Azure) or 120 s (AWS): a save that is not done by then is lost",
        fix: "save less or faster on SIGTERM: a local disk, fewer copies, sharded or compressed state; and save often \
              enough that the last periodic checkpoint will do"
            .to_owned(),
        severity: Severity::Warning,
    };
    let notice = seconds(seen.notice.as_secs_f64());
    if was_saving(scene) {
        let text = format!("it was still saving when its notice of {notice} was over (see --notice)");
        return Some(found("slow-save", text));
    }
    if was_slow(scene, stint, at) && lost_workers(stint, at).is_none() {
        let text =
            format!("it heard SIGTERM and stopped working, but had not ended when its notice of {notice} was over");
        return Some(found("slow-stop", text));
    }
    let took = seen.stop_seconds()?;
    (took > SHORTEST_NOTICE).then(|| found("slow-save", format!("from SIGTERM to its end it took {}", seconds(took))))
}
