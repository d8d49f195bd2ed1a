//! Which acts are played, in which order, and which of them are not worth playing after what was seen.

use super::act::{Cue, Cut, Ended, Played, Stint, play};
use super::compare::{Compared, mask};
use super::final_state::{Comparison, volatile};
use super::options::Options;
use super::report::Screen;
use super::saves::changed_files;
use super::seen::{Scene, Seen};
use super::stage::Stage;
use super::traces::{Baseline, last_line, restarts};
use regex::Regex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use windfall_server::client::{Code, Failure};

/// A program that ends sooner cannot be interrupted halfway.
const TOO_SHORT: f64 = 0.5;

/// What is played, and where.
pub struct Script<'o> {
    pub root: PathBuf,
    pub options: Options<'o>,
    pub screen: Screen<'o>,
}

impl Script<'_> {
    /// Plays every act that tells something.
    pub async fn play(&self) -> Result<Seen, Failure> {
        let env = windfall_server::client::environment();
        let stage = Stage::open(&self.root, &self.options.spec, &env, true).await?;
        if self.options.keep {
            stage.keep();
        }
        for note in &stage.notes {
            (self.options.say)(&format!("note: {note}"));
        }
        let pattern = self.options.spec.run.progress.as_deref().and_then(|pattern| Regex::new(pattern).ok());
        self.screen
            .begin("undisturbed", &format!("at most {} ", super::seen::seconds(self.options.limit.as_secs_f64())));
        let base = play(&stage, &[], self.options.limit, |_| false).await?;
        let baseline = Baseline::of(&base);
        let outside = base.last().map_or(Vec::new(), |stint| {
            let since = stint.started_at - Duration::from_millis(300);
            changed_files(Path::new(&self.options.spec.run.folder), &stint.folder, &stint.saves_dir, since)
        });
        let (base_state, base_folder) =
            stage.keep_state(base.last().map(|last| (last.saves_dir.as_path(), last.folder.as_path())));
        self.sweep(&stage, &base);
        let mut seen = Seen {
            base,
            baseline,
            scenes: Vec::new(),
            kept_folder: None,
            outside,
            saves_when_asked: false,
            deterministic: None,
            volatile: BTreeSet::new(),
            last_line_varies: false,
            only_alone: Vec::new(),
            base_state,
            base_folder,
            notice: self.options.notice,
            limit: self.options.limit,
            checkpoint: self
                .options
                .spec
                .checkpoint
                .path
                .clone()
                .unwrap_or_else(|| "$WINDFALL_CHECKPOINT_DIR".to_owned()),
            settle: Duration::from_millis(self.options.spec.checkpoint.settle_ms),
        };
        let playable = seen.base.succeeded() || seen.base.ended == Ended::Late;
        let started = seen.base.last().is_some_and(|stint| stint.started.is_some());
        if !playable || !started || (seen.baseline.finished && seen.baseline.ran < TOO_SHORT) {
            return Ok(seen);
        }
        self.interruptions(&stage, &mut seen, pattern.as_ref()).await?;
        if !resumes(&seen) && !seen.outside.is_empty() {
            let home = self.root.join("same");
            let kept = Stage::open(&home, &self.options.spec, &env, false).await?;
            if self.options.keep {
                kept.keep();
            }
            let cue = cue(&seen.baseline, 0.6, 0.6, 0);
            seen.kept_folder =
                Some(self.scene(&kept, &seen, "in the same folder", &[(cue, Cut::Without)], pattern.as_ref()).await?);
        }
        self.compare(&stage, &mut seen).await?;
        Ok(seen)
    }

    async fn interruptions(&self, stage: &Stage, seen: &mut Seen, pattern: Option<&Regex>) -> Result<(), Failure> {
        let periodic = seen.baseline.saves_on_the_way();
        let durable = usize::from(periodic);
        let at = |from, to, durable| cue(&seen.baseline, from, to, durable);
        // Between two saves: then what is saved after the notice was saved because of it.
        let between = seen.baseline.every.map(|every| (secs(every * 0.3), secs(every * 0.6)));
        let notice = Cue { between, ..at(0.45, 0.75, durable) };
        let without = at(0.55, 0.8, durable);
        let mid_save = at(0.3, 0.8, durable);
        let twice = at(0.35, 0.7, durable);
        let damaged = at(0.5, 0.85, 2);
        let torn = at(0.5, 0.85, 1);
        let soon = seen.baseline.startup + (seen.baseline.ran * 0.1).min(2.0);
        let soon = Cue { at_least: secs(soon), durable: 0, between: None, at_most: secs(soon) };

        let with_notice = [(notice, Cut::Notice(self.options.notice))];
        let scene = self.scene(stage, seen, "with notice", &with_notice, pattern).await?;
        let scene = self.made_sure(scene, false, stage, seen, &with_notice, pattern).await?;
        let on_notice = scene.saved_on_notice(&seen.baseline);
        seen.scenes.push(scene);
        let broken = |seen: &Seen| {
            let hung = seen.baseline.finished && seen.scenes.iter().any(Scene::hung);
            hung || seen.scenes.iter().any(went_wrong)
        };
        if broken(seen) || (!periodic && self.saves_when_asked(stage, seen, pattern).await?) {
            return Ok(());
        }
        if !(periodic || on_notice) {
            return Ok(());
        }
        let mut acts = vec![("without notice", vec![(without, Cut::Without)])];
        if periodic {
            acts.push(("during a save", vec![(mid_save, Cut::MidSave)]));
            acts.push(("twice in a row", vec![(twice, Cut::Without), (soon, Cut::Without)]));
            let played = std::iter::once(&seen.base).chain(seen.scenes.iter().map(|scene| &scene.played));
            let durable = played.flat_map(|played| &played.stints).map(|stint| stint.durable.len()).max();
            if durable >= Some(2) {
                acts.push(("damaged checkpoint", vec![(damaged, Cut::Damaged)]));
            }
            let in_place = |stint: &Stint| !stint.watch.in_place().is_empty();
            if durable >= Some(1) && seen.base.stints.iter().any(in_place) {
                acts.push(("torn file", vec![(torn, Cut::Torn)]));
            }
        }
        let at_once = self.at_once(stage, seen);
        for wave in acts.chunks(at_once) {
            let scenes = wave.iter().map(|(name, script)| self.scene(stage, seen, name, script, pattern));
            let scenes =
                futures::future::join_all(scenes).await.into_iter().collect::<Result<Vec<Scene>, Failure>>()?;
            for (scene, (name, script)) in scenes.into_iter().zip(wave) {
                // Beside others it may have missed a port or memory: alone, it has no such excuse.
                let wrong = |scene: &Scene| {
                    went_wrong(scene) || (seen.baseline.finished && (scene.hung() || scene.failed_uninterrupted()))
                };
                let beside_others = wave.len() > 1 && wrong(&scene);
                let doubtful = scene.is_doubtful();
                let scene = self.made_sure(scene, beside_others, stage, seen, script, pattern).await?;
                if beside_others && !doubtful && !wrong(&scene) {
                    seen.only_alone.push(name);
                }
                seen.scenes.push(scene);
            }
            if broken(seen) {
                break;
            }
        }
        Ok(())
    }

    /// Plays an act once more, and alone, that went wrong beside others, or of which only the clock says that it did: a
    /// machine may be busy for a moment. One that misses its moment then says nothing, and the first one counts.
    async fn made_sure(
        &self,
        first: Scene,
        beside_others: bool,
        stage: &Stage,
        seen: &Seen,
        script: &[(Cue, Cut)],
        pattern: Option<&Regex>,
    ) -> Result<Scene, Failure> {
        if !beside_others && !first.is_doubtful() {
            return Ok(first);
        }
        let second = self.scene(stage, seen, first.name, script, pattern).await?;
        Ok(if second.played.cuts > 0 { second } else { first })
    }

    /// A program that saves when `windfall.should_save()` says so was not asked on this quiet stage: asks it.
    async fn saves_when_asked(&self, stage: &Stage, seen: &mut Seen, pattern: Option<&Regex>) -> Result<bool, Failure> {
        let asked = cue(&seen.baseline, 0.2, 0.9, 1);
        // A step, and then the time after which a save that was never seen before counts as whole.
        let patience = secs((seen.baseline.ran * 0.3).max(2.0)) + seen.settle * 2;
        let asked = Cue { at_most: asked.at_most.min(asked.at_least + patience), ..asked };
        let scene = self.scene(stage, seen, "asked to save", &[(asked, Cut::Asked)], pattern).await?;
        seen.saves_when_asked = scene.played.hit && scene.restarts.iter().any(|restart| restart.restored);
        if seen.saves_when_asked {
            seen.scenes.push(scene);
        }
        Ok(seen.saves_when_asked)
    }

    fn at_once(&self, stage: &Stage, seen: &Seen) -> usize {
        if stage.has_one_place() {
            return 1;
        }
        let stint = seen.base.last();
        let cores = stint.map_or(1.0, |stint| stint.used.0.seconds / stint.age(stint.used.1).as_secs_f64().max(0.1));
        let memory = stint.map_or(0, |stint| stint.used.0.memory);
        self.options.at_once.unwrap_or_else(|| super::cores::at_once(cores, memory))
    }

    async fn scene(
        &self,
        stage: &Stage,
        seen: &Seen,
        name: &'static str,
        script: &[(Cue, Cut)],
        pattern: Option<&Regex>,
    ) -> Result<Scene, Failure> {
        let baseline = &seen.baseline;
        self.screen.begin(name, &format!("about {} ", super::seen::seconds(baseline.ran * 1.6)));
        let patient = secs(baseline.ran * 3.0 + 20.0) + self.options.notice;
        let limit = if baseline.finished {
            patient.min(self.options.limit.max(secs(baseline.ran * 2.0 + 20.0)))
        } else {
            self.options.limit
        };
        let finished = baseline.finished;
        // One that was asked to save and did not has answered.
        let silent = |stint: &Stint| matches!(stint.cut, Some((Cut::Asked, _))) && stint.watch.saves.is_empty();
        let enough = |stints: &[Stint]| (!finished && has_gone_on(stints)) || stints.iter().any(silent);
        let mut played = play(stage, script, limit, enough).await?;
        if missed(&played, script) {
            self.sweep(stage, &played);
            self.screen.begin(name, "once more and earlier, because it missed its moment ");
            let earlier: Vec<(Cue, Cut)> = script.iter().map(|(cue, cut)| (sooner(*cue, baseline), *cut)).collect();
            played = play(stage, &earlier, limit, enough).await?;
        }
        self.screen.end(&played);
        let comparison = if played.cuts > 0 { seen.comparison(&played) } else { None };
        let compared = run(comparison).await?;
        self.sweep(stage, &played);
        let restarts = restarts(&played, baseline, pattern);
        Ok(Scene { name, restarts, played, compared })
    }

    fn sweep(&self, stage: &Stage, played: &Played) {
        if !self.options.keep {
            stage.sweep(&played.key);
        }
    }

    /// Runs the program undisturbed once more when a final state differs: what differs then too says nothing.
    async fn compare(&self, stage: &Stage, seen: &mut Seen) -> Result<(), Failure> {
        let equal: Vec<bool> = seen.scenes.iter().filter_map(|scene| scene.equal(&seen.volatile)).collect();
        if equal.contains(&false) {
            self.screen.begin("undisturbed again", &format!("about {} ", super::seen::seconds(seen.baseline.ran)));
            let again = play(stage, &[], self.options.limit.max(secs(seen.baseline.ran * 3.0)), |_| false).await?;
            seen.volatile = volatile(&run(seen.comparison(&again)).await?.unwrap_or_default());
            let lines = [&seen.base, &again].map(|played| last_line(&played.last()?.log));
            seen.last_line_varies = lines[0].as_deref().map(mask) != lines[1].as_deref().map(mask);
            seen.deterministic = Some(seen.volatile.is_empty());
        } else if equal.contains(&true) {
            seen.deterministic = Some(true);
        }
        Ok(())
    }
}

/// Compares away from the acts that are being played.
async fn run(comparison: Option<Comparison>) -> Result<Option<Vec<Compared>>, Failure> {
    let Some(comparison) = comparison else { return Ok(None) };
    let compared = tokio::task::spawn_blocking(move || comparison.run()).await;
    compared.map(Some).map_err(|error| Failure::new(Code::Bug, format!("two final states cannot be compared: {error}")))
}

/// An interruption between two parts of the undisturbed run, later where so many checkpoints take longer.
fn cue(baseline: &Baseline, from: f64, to: f64, durable: usize) -> Cue {
    let work = (baseline.ran - baseline.startup).max(0.0);
    // Of a program that is longer than the limit, a third of that is enough.
    let (from, to) = if baseline.finished { (from, to) } else { (from * 0.6, to * 0.6) };
    let at = |part: f64| secs(baseline.startup + work * part);
    Cue { at_least: at(from), durable, between: None, at_most: at(to) }
}

/// The program ended before its interruption came, or nothing was there to be hit.
fn missed(played: &Played, script: &[(Cue, Cut)]) -> bool {
    let asks = script.iter().any(|(_, cut)| matches!(cut, Cut::MidSave | Cut::Damaged | Cut::Torn));
    let asked = script.iter().any(|(_, cut)| *cut == Cut::Asked);
    !asked && (played.cuts == 0 || (asks && !played.hit))
}

/// The same interruption in the first part of the work, and while there are saves to come.
fn sooner(cue: Cue, baseline: &Baseline) -> Cue {
    let startup = secs(baseline.startup);
    let half = |at: Duration| startup + at.saturating_sub(startup) / 2;
    let amid = baseline.saves.first().zip(baseline.saves.last()).map(|(first, last)| secs((first + last) / 2.0));
    Cue {
        at_least: startup + cue.at_least.saturating_sub(startup) / 4,
        at_most: half(cue.at_most).min(amid.unwrap_or(Duration::MAX)),
        between: None,
        ..cue
    }
}

/// Whether a program that is longer than the limit has shown after its last restart from where it goes on.
fn has_gone_on(stints: &[Stint]) -> bool {
    let [.., before, last] = stints else { return false };
    if before.cut.is_none() || last.cut.is_some() || last.started.is_none() || last.ended.is_some() {
        return false;
    }
    match (before.view.done, last.view.done) {
        (Some(before), Some(done)) if last.ran() > Duration::from_secs(1) => done > before,
        (Some(_), _) => false,
        _ => last.ran() > before.ran() + Duration::from_secs(1),
    }
}

/// It failed on resume, or began from zero.
fn went_wrong(scene: &Scene) -> bool {
    scene.restarts.iter().any(|restart| restart.failed.is_some() || restart.passed_over_checkpoint())
}

/// Whether any act went on from a checkpoint.
fn resumes(seen: &Seen) -> bool {
    let mut restarts = seen.scenes.iter().flat_map(|scene| &scene.restarts);
    restarts.any(|restart| restart.restored && restart.began_from_zero() != Some(true))
}

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}
