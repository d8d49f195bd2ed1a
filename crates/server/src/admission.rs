//! What is looked at of a submission before the loop sees it: whether it can be taken at all, what cannot be promised, what
//! is expected of it. All of this is done beside the loop; what must be exact (keys and paths that two submissions share) the
//! loop looks at once more. Its environment becomes durable in the very commit that makes the job durable.

use crate::api_types::{OutputsAt, Problem, Submission};
use crate::cycle::{continued_already, path_in_use};
use crate::dispatch::{SECRETS, offered};
use crate::notes::{JobNotes, LastingNotes};
use crate::reader::Reader;
use crate::refusals::refusal;
use crate::save_paths::SavePaths;
use crate::submitters::FoundFiles;
use crate::{bill, problem, submitters};
use std::collections::BTreeSet;
use std::path::Path;
use windfall_core::spec::SecretFrom;
use windfall_core::{Brain, JobSpec, Offer, Span};
use windfall_exec::Recording;
use windfall_store::Notes;

/// The policy of jobs that buy nothing which can be taken away.
const ON_DEMAND: &str = "on-demand";

/// The most bytes of a job and of its terminal's environment, and of the names of the files that it begins with, as they are
/// sent to a node: together they are shorter than the longest message, so that an order never is too long.
const MOST_OF_JOB: usize = 512 << 10;
const MOST_OF_FILES: usize = 3 << 20;

/// A submission that the loop can take.
pub struct Prepared {
    pub key: String,
    pub spec: JobSpec,
    /// Time from when it is taken to the deadline.
    pub deadline_in: Option<Span>,
    /// What the user should know.
    pub remarks: Vec<String>,
    /// What is kept of it beside the log.
    pub notes: Notes,
}

/// The refusal of a job whose secret this server's operator does not offer.
fn not_offered(spec: &JobSpec) -> Option<Problem> {
    let secrets = &spec.run.luggage().secrets;
    let mut wanted = secrets.iter().filter(|(_, from)| **from == SecretFrom::Server).map(|(name, _)| name);
    if submitters::is_guest(&spec.owner) {
        let name = wanted.next()?;
        let mut refusal = problem(403, "not-allowed", &format!("secrets: {name} is for jobs of the server's operator"));
        refusal.hint = Some("take it from a file or from the terminal: `terminal`, `file:PATH`".to_owned());
        return Some(refusal);
    }
    let missing = wanted.find(|name| offered(name).is_none())?;
    let mut refusal = problem(422, "secret-not-offered", &format!("secrets: {missing} is not offered by this server"));
    refusal.hint = Some(format!("its operator offers it by {SECRETS}{missing} in the environment of `windfall up`"));
    Some(refusal)
}

/// The refusal of a job that could not be told to the machines that it would run on.
fn too_large(submission: &Submission, said: usize, found: &FoundFiles) -> Option<Problem> {
    let length = |text: serde_json::Result<Vec<u8>>| text.map_or(usize::MAX, |text| text.len());
    let refused = |code: &str, hint: &str, text: String| {
        Some(Problem { hint: Some(hint.to_owned()), ..problem(422, code, &text) })
    };
    // What was said in few words is not written down to be measured: what it leaves out is short.
    let job =
        if said < MOST_OF_JOB / 2 { said } else { length(serde_json::to_vec(&(&submission.spec, &submission.env))) };
    if job > MOST_OF_JOB {
        let text =
            format!("the command, settings and environment of a job have at most {MOST_OF_JOB} bytes, not {job}");
        return refused("job-too-large", "put what is long into a file, and name that", text);
    }
    let names = length(serde_json::to_vec(&found.paths));
    if names > MOST_OF_FILES {
        let path = submission.spec.checkpoint.path.as_deref().unwrap_or_default();
        let text = format!("checkpoint.path holds too many files to begin with: {path}");
        return refused(
            "too-many-files",
            "name a folder of the job's own: an empty one, or one that is not there yet",
            text,
        );
    }
    None
}

impl Reader {
    /// Whether the loop has to be asked before a submission is prepared: nothing can be written, or no job lives and
    /// recordings begin anew.
    pub fn must_knock(&self) -> bool {
        self.standing.borrow().away.is_some() || self.durable.read(|brain| brain.jobs().next().is_none())
    }

    /// Prepares a submission that was said in so many bytes, or refuses it. Nothing is written.
    pub async fn prepare(&self, submission: Submission, said: usize) -> Result<Prepared, Problem> {
        let spec = &submission.spec;
        let found = match spec.continues.as_ref().filter(|_| submission.own_files) {
            // Of what the job before it left only that is foreign which was foreign to that one.
            Some(from) => {
                let paths = self.archive.lasting_notes(from.job, &from.key).await?.foreign;
                FoundFiles { paths, first_file: None }
            }
            None => match spec.checkpoint.path.clone() {
                None => FoundFiles::default(),
                Some(path) if submitters::is_guest(&spec.owner) => submitters::files_of(&spec.owner, &path).await?,
                Some(path) => {
                    let looked = tokio::task::spawn_blocking(move || FoundFiles::of(Path::new(&path))).await;
                    looked.map_err(|error| problem(500, "not-prepared", &error.to_string()))?
                }
            },
        };
        if let Some(refused) = too_large(&submission, said, &found) {
            return Err(refused);
        }
        if let Some(refused) = not_offered(spec).or_else(|| self.doubts(&submission, &found)) {
            return Err(refused);
        }
        // What a recording shows is at hand; what brains know may be of before it began anew.
        let recordings = self.recordings();
        let mut offers: Vec<Offer> = recordings.iter().flat_map(|recording| recording.offers()).collect();
        let (on_demand, others) = self.durable.read(|brain| {
            let shown: BTreeSet<&str> = offers.iter().map(|offer| offer.engine.as_str()).collect();
            let others = brain.offers().filter(|offer| !shown.contains(offer.engine.as_str()));
            (brain.usual_policy(spec) == ON_DEMAND, others.cloned().collect::<Vec<Offer>>())
        });
        offers.extend(others);
        let mut remarks = bill::promises(spec, submission.deadline_in, &offers);
        remarks.extend(from_nothing(spec));
        let terms = bill::Terms { deadline_in: submission.deadline_in, on_demand };
        let forecast = bill::forecast(spec, terms, &offers, &recordings);
        let outputs = (!spec.run.luggage().outputs.is_empty()).then(|| self.outputs_of(&submission));
        let notes = JobNotes { env: submission.env, rest: LastingNotes { foreign: found.paths, forecast, outputs } };
        let notes = notes.to_store(&self.archive.seal, &submission.key);
        let Submission { key, spec, deadline_in, .. } = submission;
        Ok(Prepared { key, spec, deadline_in, remarks, notes })
    }

    /// Where what a job leaves will be.
    fn outputs_of(&self, submission: &Submission) -> OutputsAt {
        let spec = &submission.spec;
        let store = match spec.checkpoint.store.as_str() {
            "" => self.archive.home.checkpoints().to_string_lossy().into_owned(),
            named => named.to_owned(),
        };
        OutputsAt { store, key: submission.key.clone(), paths: spec.run.luggage().outputs.clone() }
    }

    fn recordings(&self) -> Vec<&dyn Recording> {
        self.archive.engines.recordings().map(|(_, recording)| recording).collect()
    }

    /// Why a submission cannot be taken as things stand, if so.
    fn doubts(&self, submission: &Submission, found: &FoundFiles) -> Option<Problem> {
        let spec = &submission.spec;
        if let Err(why) = spec.check() {
            return Some(problem(422, "unacceptable-job", &why.to_string()));
        }
        let own = || spec.checkpoint.path.as_deref().and_then(|path| self.state_directory(path));
        let of_others = |brain: &Brain, paths: &SavePaths| {
            let in_use = spec.checkpoint.path.as_ref().and_then(|path| path_in_use(brain, paths, path));
            let continued = || spec.continues.as_ref().and_then(|from| continued_already(brain, paths, from));
            let refused = in_use.or_else(continued).map(|refused| refusal(&refused));
            refused.or_else(|| (!submission.wait).then(|| self.hopeless(brain, spec, submission.deadline_in)).flatten())
        };
        let asked = submission.with_files || submission.own_files;
        let strange = || spec.checkpoint.path.as_ref().filter(|_| !asked).and_then(|path| strangers(path, found));
        own().or_else(|| self.durable.read_paths(of_others)).or_else(strange)
    }

    /// A checkpoint folder in which a restart would clear this server's own files.
    fn state_directory(&self, path: &str) -> Option<Problem> {
        let (path, own) = (Path::new(path), self.archive.home.path.as_path());
        let overlaps = path.starts_with(own) || own.starts_with(path);
        overlaps.then(|| {
            let text = format!("checkpoint.path is in the state directory, or around it: {}", path.display());
            let mut refusal = problem(422, "checkpoint-path-is-state", &text);
            refusal.hint = Some("name a folder of the job's own, or leave `checkpoint.path` out".to_owned());
            refusal
        })
    }

    /// Why nothing that is sold could ever serve a job, if so.
    fn hopeless(&self, brain: &Brain, spec: &JobSpec, deadline_in: Option<Span>) -> Option<Problem> {
        let hint = "change the job file, or add --wait to wait until it can be had";
        let refuse = |code: &str, text: String| {
            let mut refusal = problem(409, code, &text);
            refusal.hint = Some(hint.to_owned());
            Some(refusal)
        };
        let shows = |engine: &String| {
            brain.silent_since(engine).is_none() && brain.offers().any(|offer| offer.engine == *engine)
        };
        // What an engine that was not seen yet sells, nobody knows.
        if self.archive.engines.names().iter().all(shows) {
            if !brain.can_serve(spec) {
                return refuse("nothing-fits", brain.nothing_fits(spec).text);
            }
            if let Some(why) = brain.too_wide(spec) {
                return refuse("gang-too-large", why);
            }
        }
        // With a deadline on-demand capacity is taken in time; without one, a job waits for spot at its price.
        let waits = deadline_in.is_none() && brain.usual_policy(spec) != ON_DEMAND;
        let recordings: Vec<&dyn Recording> =
            self.archive.engines.recordings().map(|(_, recording)| recording).collect();
        // Where an engine has no recording, nobody knows what it may sell one day.
        if recordings.len() < self.archive.engines.all().count() {
            return None;
        }
        let most = recordings.iter().filter_map(|recording| recording.most()).max();
        if let Some(most) = most.filter(|most| waits && *most < spec.least()) {
            let text = format!("{} spot instances at once were never on sale here: the most is {most}", spec.least());
            return refuse("gang-too-large", text);
        }
        let least = recordings.iter().filter_map(|recording| recording.cheapest()).min();
        match (spec.max_price.filter(|_| waits), least) {
            (Some(max), Some(least)) if max < least => refuse(
                "max-price-too-low",
                format!("max_price {max} an hour is below every spot price on record here: the lowest is {least}"),
            ),
            _ => None,
        }
    }
}

/// A job that goes on from one of which nothing is saved, as far as anybody knows.
fn from_nothing(spec: &JobSpec) -> Option<String> {
    let from = spec.continues.as_ref().filter(|from| from.durable.0 == 0)?;
    Some(format!("job {} is not known to have saved anything: this one may begin from the beginning", from.job))
}

/// A program may take files that another one left for its own progress: whose they are, the user knows.
fn strangers(path: &str, found: &FoundFiles) -> Option<Problem> {
    let (first, others) = found.first_file.as_ref()?;
    let more = match others {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let text = format!("{path} holds files that this job did not write: {first}{more}");
    let hint = "begin with them: --with-files; begin anew: move them away; go on from the job that wrote them: windfall \
                resume JOB";
    Some(Problem { hint: Some(hint.to_owned()), ..problem(409, "files-in-checkpoint-path", &text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_could_not_be_told_to_a_machine_is_refused() {
        let submission = |command: &str, setting: &str, variable: &str| {
            let mut spec = JobSpec::named("job", vec![command.to_owned()]);
            spec.run.env.insert("A".to_owned(), setting.to_owned());
            let env = [("B".to_owned(), variable.to_owned())].into();
            let (key, deadline_in, continues) = (String::new(), None, None);
            Submission { key, spec, deadline_in, env, wait: false, with_files: false, own_files: false, continues }
        };
        let files = |count: usize| FoundFiles { paths: vec!["x".repeat(60); count], first_file: None };
        let refused = |submission: &Submission, found: &FoundFiles| {
            let said = serde_json::to_vec(submission).expect("text").len();
            too_large(submission, said, found).map(|refused| (refused.status, refused.code))
        };
        assert_eq!(refused(&submission("run", "", &"x".repeat(400 << 10)), &files(40_000)), None);
        let long = "x".repeat(MOST_OF_JOB);
        for large in [submission(&long, "", ""), submission("run", &long, ""), submission("run", "", &long)] {
            assert_eq!(refused(&large, &files(0)), Some((422, "job-too-large".to_owned())));
        }
        // What is short here and long on its way counts as it is on its way.
        let quoted = submission("run", "", &"\u{1}".repeat(MOST_OF_JOB / 5));
        assert_eq!(refused(&quoted, &files(0)), Some((422, "job-too-large".to_owned())));
        assert_eq!(refused(&submission("run", "", ""), &files(60_000)), Some((422, "too-many-files".to_owned())));
    }
}
