//! Answers to people's questions. What the brain knows is answered at once, also while the database is away; what only
//! the store knows is read beside the keeper, which waits for no store.

use crate::api_types::{
    Accepted, Bill, DatabaseAway, EngineView, ExplainAnswer, Hello, InterruptRequest, JobAnswer, Problem, Submission,
};
use crate::cycle::{Refused, Ticket, continued_already, path_in_use};
use crate::engines::Engines;
use crate::folders::JobNotes;
use crate::home::Home;
use crate::keeper::{Ask, Keeper, LedgerState, Reply, Waiting, refusal};
use crate::{bill, history, logs, problem};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use windfall_core::brain::Job;
use windfall_core::english::with_causes;
use windfall_core::record::Subject;
use windfall_core::view::{JobView, State};
use windfall_core::worker::WorkerView;
use windfall_core::{Event, JobSpec, LeaseId, Offer, Span, Workload, WorkloadId};
use windfall_exec::Recording;
use windfall_store::{LedgerQuery, Store};

/// The policy of jobs that buy nothing which can be taken away.
const ON_DEMAND: &str = "on-demand";

/// What is remembered of jobs beside the brain.
#[derive(Clone)]
pub(crate) struct Archive {
    pub store: Arc<dyn Store>,
    pub home: Arc<Home>,
    pub engines: Engines,
}

impl Archive {
    /// A job that the brain does not know any more.
    pub async fn find(&self, id: WorkloadId) -> Result<JobView, Problem> {
        let row = self.store.job(id.0).await.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
        let row = row.ok_or_else(|| problem(404, "no-such-job", &format!("no job has the number {id}")))?;
        windfall_core::codec::decode(row.version, &row.summary)
            .map_err(|error| problem(500, "unreadable-job", &error.to_string()))
    }

    fn bill(&self, job: &JobView) -> Bill {
        let kept = JobNotes::read(&self.home.job(&job.key)).ok();
        bill::bill(job, kept.as_ref(), self.engines.recordings().map(|(_, recording)| recording))
    }

    fn ended_job(&self, job: JobView) -> JobAnswer {
        let failed = job.state == State::Failed;
        JobAnswer {
            bill: Some(self.bill(&job)),
            pids: Vec::new(),
            last_words: if failed { logs::last_words(&self.home.job(&job.key)) } else { Vec::new() },
            trouble: None,
            evidence: None,
            job,
        }
    }

    /// Workers of ended stints as they were last seen.
    fn ended_workers(&self, job: &JobView) -> Vec<WorkerView> {
        let ended = std::fs::read_to_string(self.home.job(&job.key).join("stints.jsonl")).unwrap_or_default();
        let views = ended.lines().filter_map(|line| serde_json::from_str::<WorkerView>(line).ok());
        // One may have been written down several times: the last look counts.
        let last: BTreeMap<(u64, u32), WorkerView> = views.map(|view| ((view.stint.epoch, view.rank), view)).collect();
        last.into_values().collect()
    }
}

impl Keeper {
    /// Takes what a client asks: answers it, or hands it to the loop.
    pub(crate) fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Submit(submission, reply) => self.admit(*submission, reply),
            Ask::Tell(event, reply) => self.tell(event, reply),
            Ask::Shutdown(reply) => {
                self.ending = true;
                let _ = reply.send(Ok(()));
            }
            Ask::Hello(reply) => {
                let _ = reply.send(Ok(self.hello()));
            }
            Ask::Live(reply) => {
                let (brain, now) = (self.cycle.brain(), self.clock.now());
                let _ = reply.send(Ok(brain.jobs().filter_map(|job| brain.view(job.id, now)).collect()));
            }
            Ask::LedgerState(reply) => {
                let _ = reply.send(Ok(self.books()));
            }
            Ask::SaverIn(key, reply) => {
                let saver = self.cycle.brain().jobs().find(|job| job.spec.checkpoint_key() == key);
                let _ = reply.send(Ok(saver.map(|job| job.id)));
            }
            Ask::SaverAt(path, reply) => {
                let saver = match path_in_use(self.cycle.brain(), &path) {
                    Some(Refused::PathInUse { by, .. }) => Some(by),
                    _ => None,
                };
                let _ = reply.send(Ok(saver));
            }
            Ask::Job(id, reply) => self.job(id, reply),
            Ask::Stints(id, reply) => self.stints(id, reply),
            Ask::Explain(id, reply) => self.explain(id, reply),
            Ask::Interrupt(request, reply) => self.interrupt(request, reply),
        }
    }

    fn ticket(&mut self, waiting: Waiting) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.insert(ticket, waiting);
        ticket
    }

    /// Why a request cannot be taken now, if so.
    fn away(&self, event: &Event) -> Option<Problem> {
        let why = self.cycle.away()?.why().to_owned();
        let unknown = self.cycle.may_have_taken(event);
        Some(refusal(&if unknown { Refused::Unknown { why } } else { Refused::Away { why } }))
    }

    /// Turns a submission into a request, or refuses it with nothing changed.
    fn admit(&mut self, submission: Submission, reply: Reply<Accepted>) {
        let brain = self.cycle.brain();
        if let Some(known) = brain.submitted_as(&submission.key) {
            let _ = reply.send(Ok(Accepted { id: known.0, notes: Vec::new() }));
            return;
        }
        let mut spec = submission.spec;
        let (key, workload) = (submission.key, Box::new(Workload::Job(spec.clone())));
        let away = self.away(&Event::Submitted { workload, key: key.clone(), id: None });
        let unacceptable = || spec.check().err().map(|why| problem(422, "unacceptable-job", &why.to_string()));
        let own = || spec.checkpoint.path.as_deref().and_then(|path| self.state_directory(path));
        let in_use = || spec.checkpoint.path.as_ref().and_then(|path| path_in_use(brain, path)).map(|r| refusal(&r));
        let hopeless = || (!submission.wait).then(|| self.hopeless(&spec, submission.deadline_in)).flatten();
        let continued = || spec.continues.as_ref().and_then(|from| continued_already(brain, from)).map(|r| refusal(&r));
        // Of what the job before it left only that is foreign which was foreign to that one.
        let foreign = match spec.continues.as_ref().filter(|_| submission.own_files) {
            Some(from) => JobNotes::read(&self.home.job(&from.key)).map(|kept| kept.foreign).unwrap_or_default(),
            None => JobNotes::foreign(&spec),
        };
        let asked = submission.with_files || submission.own_files;
        let strange = || spec.checkpoint.path.as_ref().filter(|_| !asked).and_then(|path| strangers(path, &foreign));
        let doubts = away.or_else(unacceptable).or_else(own).or_else(in_use).or_else(continued).or_else(hopeless);
        if let Some(refused) = doubts.or_else(strange) {
            let _ = reply.send(Err(refused));
            return;
        }
        let others = brain.jobs().next().is_some() || !self.waiting.is_empty();
        if !others {
            self.begin_anew();
        }
        let (brain, now) = (self.cycle.brain(), self.clock.now());
        spec.deadline = submission.deadline_in.map(|span| now + span);
        spec.run.environment = key.clone();
        let on_demand = brain.usual_policy(&spec) == ON_DEMAND;
        // What a recording shows is at hand; what brains know may be of before it began anew.
        let recordings: Vec<&dyn Recording> = self.engines.recordings().map(|(_, recording)| recording).collect();
        let mut offers: Vec<Offer> = recordings.iter().flat_map(|recording| recording.offers()).collect();
        let known: BTreeSet<String> = offers.iter().map(|offer| offer.engine.clone()).collect();
        offers.extend(brain.offers().filter(|offer| !known.contains(&offer.engine)).cloned());
        let notes = bill::promises(&spec, submission.deadline_in, &offers);
        let terms = bill::Terms { deadline_in: submission.deadline_in, on_demand };
        let kept =
            JobNotes { env: submission.env, foreign, forecast: bill::forecast(&spec, terms, &offers, &recordings) };
        if let Err(error) = kept.write(&self.home.job(&key)) {
            let text = format!("the job's folder cannot be written: {error}");
            let _ = reply.send(Err(problem(507, "state-not-writable", &text)));
            return;
        }
        let ticket = self.ticket(Waiting::Submitter { key: key.clone(), notes, reply });
        let event = Event::Submitted { workload: Box::new(Workload::Job(spec)), key, id: None };
        self.cycle.ask(self.moment(), ticket, event);
    }

    /// No job lives: recordings begin anew, so that every first run sees the same market.
    fn begin_anew(&mut self) {
        self.engines.recordings().for_each(|(_, recording)| recording.begin_anew());
        let begun: Vec<String> = self.engines.recordings().map(|(name, _)| name.to_owned()).collect();
        let now = self.moment();
        begun.iter().for_each(|engine| self.cycle.began_anew(now, engine));
    }

    /// A checkpoint folder in which a restart would clear this server's own files.
    fn state_directory(&self, path: &str) -> Option<Problem> {
        let (path, own) = (Path::new(path), self.home.path.as_path());
        let overlaps = path.starts_with(own) || own.starts_with(path);
        overlaps.then(|| {
            let text = format!("checkpoint.path is in the state directory, or around it: {}", path.display());
            let mut refusal = problem(422, "checkpoint-path-is-state", &text);
            refusal.hint = Some("name a folder of the job's own, or leave `checkpoint.path` out".to_owned());
            refusal
        })
    }

    /// Why nothing that is sold could ever serve a job, if so.
    fn hopeless(&self, spec: &JobSpec, deadline_in: Option<Span>) -> Option<Problem> {
        let brain = self.cycle.brain();
        let hint = "change the job file, or add --wait to wait until it is sold";
        let refuse = |code: &str, text: String| {
            let mut refusal = problem(409, code, &text);
            refusal.hint = Some(hint.to_owned());
            Some(refusal)
        };
        let shows = |engine: &String| {
            brain.silent_since(engine).is_none() && brain.offers().any(|offer| offer.engine == *engine)
        };
        // What an engine that was not seen yet sells, nobody knows.
        if self.engines.names().iter().all(shows) && !brain.can_serve(spec) {
            return refuse("nothing-fits", brain.nothing_fits(spec).text);
        }
        // With a deadline on-demand capacity is taken in time; without one, a job waits for spot at its price.
        let waits = deadline_in.is_none() && brain.usual_policy(spec) != ON_DEMAND;
        let recordings: Vec<&dyn Recording> = self.engines.recordings().map(|(_, recording)| recording).collect();
        // Where an engine has no recording, nobody knows what it may sell one day.
        if recordings.len() < self.engines.all().count() {
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

    /// Hands over what a person wants of a live job, or says why that cannot be.
    fn tell(&mut self, event: Event, reply: Reply<()>) {
        let Subject::Workload(id) = event.subject() else { return };
        let brain = self.cycle.brain();
        let cancels = matches!(event, Event::CancelRequested { .. });
        let open = |job: &&Job| job.ended.is_none() || (cancels && job.stint.is_some());
        let Some(job) = brain.job(id).filter(open) else {
            let known = brain.view(id, self.clock.now());
            let archive = self.archive();
            tokio::spawn(async move {
                let found = match known {
                    Some(view) => Ok(view),
                    None => archive.find(id).await,
                };
                let _ = reply.send(Err(match found {
                    Ok(view) => problem(409, "job-is-over", &format!("job {id} is over: {}", view.state.word())),
                    Err(problem) => problem,
                }));
            });
            return;
        };
        let spent = brain.spent(job, self.clock.now());
        let too_small = matches!(event, Event::BudgetSet { budget: Some(budget), .. } if budget <= spent);
        if too_small {
            let _ = reply.send(Err(problem(409, "budget-is-spent", &format!("job {id} has cost {spent} already"))));
            return;
        }
        let ticket = self.ticket(Waiting::Teller(reply));
        self.cycle.ask(self.moment(), ticket, event);
    }

    fn hello(&self) -> Hello {
        let brain = self.cycle.brain();
        let away = self.cycle.away().map(|away| {
            let ago = self.began.elapsed().saturating_sub(away.since());
            let since = SystemTime::now().checked_sub(ago).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            DatabaseAway {
                since_unix_ms: since.map_or(0, |since| since.as_millis() as u64),
                for_ms: ago.as_millis() as u64,
                why: away.why().to_owned(),
            }
        });
        Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            installation: brain.installation().to_string(),
            speed: self.clock.speed(),
            engines: self.engine_views(),
            now: self.clock.now(),
            live_jobs: brain.jobs().filter(|job| job.ended.is_none()).count(),
            leases: brain.leases().count(),
            database_away: away,
        }
    }

    /// Where the ledger stands: the durable rows, and what leases that still run have cost since.
    fn books(&self) -> Option<LedgerState> {
        let now = self.clock.now();
        Some(LedgerState {
            last_row: self.cycle.last_ledger_row()?,
            open: self.cycle.brain().open_ledger(now),
            now,
            replays: self.engines.recordings().map(|(_, recording)| recording.name().to_owned()).next(),
        })
    }

    fn interrupt(&self, request: InterruptRequest, reply: Reply<()>) {
        let (brain, id) = (self.cycle.brain(), WorkloadId(request.job));
        // Its own, or another's on which it runs.
        let stint = brain.job(id).and_then(|job| job.stint.as_ref()).into_iter().flat_map(|stint| stint.leases());
        let mut leases = brain.leases_of(id).chain(stint.filter_map(|lease| brain.lease(lease)));
        let Some(lease) = leases.find(|lease| !lease.is_releasing()) else {
            let _ = reply.send(Err(problem(409, "no-lease", "the job holds no lease now")));
            return;
        };
        let (engines, engine, lease) = (self.engines.clone(), lease.offer.engine().to_owned(), lease.id);
        tokio::spawn(async move {
            let interrupted = engines.interrupt(&engine, lease, request.how).await;
            let _ = reply.send(interrupted.map_err(|error| problem(503, "engine-refused", &error.to_string())));
        });
    }

    fn engine_views(&self) -> Vec<EngineView> {
        let view = |name: String| {
            let recording = self.engines.recordings().find(|(engine, _)| **engine == name).map(|(_, known)| known);
            EngineView {
                zones: recording.map(Recording::zones).unwrap_or_default(),
                replays: recording.map(|recording| recording.name().to_owned()),
                silent_since: self.cycle.brain().silent_since(&name),
                name,
            }
        };
        self.engines.names().into_iter().map(view).collect()
    }

    fn workers_of(&self, id: WorkloadId) -> Vec<WorkerView> {
        let brain = self.cycle.brain();
        let shared = brain.job(id).and_then(|job| job.stint.as_ref()).into_iter().flat_map(|stint| stint.leases());
        let shared = shared.filter(|lease| brain.lease(*lease).is_some());
        let leases: BTreeSet<LeaseId> = brain.leases_of(id).map(|lease| lease.id).chain(shared).collect();
        let workers = self.link.workers(&leases.into_iter().collect::<Vec<_>>());
        // Others may run on the same lease.
        workers.into_iter().map(|seen| seen.worker).filter(|worker| worker.stint.workload == id).collect()
    }

    fn job(&self, id: WorkloadId, reply: Reply<JobAnswer>) {
        let archive = self.archive();
        let Some(job) = self.cycle.brain().view(id, self.clock.now()) else {
            tokio::spawn(async move {
                let _ = reply.send(archive.find(id).await.map(|job| archive.ended_job(job)));
            });
            return;
        };
        let workers = self.workers_of(id);
        // Not over for good before its leases are gone: then the bill would still change.
        let settled = job.state == State::Paused && self.cycle.brain().leases_of(id).next().is_none();
        let away = self.cycle.away().map(|away| format!("the database is away: {}", away.why()));
        let trouble = workers.iter().find_map(|worker| worker.trouble.as_ref()).or(job.trouble.as_ref());
        let trouble = trouble.map(|trouble| trouble.text.clone());
        let _ = reply.send(Ok(JobAnswer {
            bill: settled.then(|| archive.bill(&job)),
            pids: workers.iter().filter(|worker| worker.end.is_none()).filter_map(|worker| worker.pid).collect(),
            last_words: Vec::new(),
            trouble: away.or(trouble),
            evidence: workers.into_iter().next().map(|worker| worker.evidence),
            job,
        }));
    }

    /// Workers of ended stints as they were last seen, then those of the present one.
    fn stints(&self, id: WorkloadId, reply: Reply<Vec<WorkerView>>) {
        let known = self.cycle.brain().view(id, self.clock.now());
        let (archive, present) = (self.archive(), self.workers_of(id));
        tokio::spawn(async move {
            let job = match known {
                Some(view) => Ok(view),
                None => archive.find(id).await,
            };
            let _ = reply.send(job.map(|job| archive.ended_workers(&job).into_iter().chain(present).collect()));
        });
    }

    fn explain(&self, id: WorkloadId, reply: Reply<ExplainAnswer>) {
        let now = self.clock.now();
        let (known, present) = (self.cycle.brain().view(id, now), self.cycle.brain().explain(id, now));
        let archive = self.archive();
        tokio::spawn(async move {
            let answer = async {
                let job = match known {
                    Some(view) => view,
                    None => archive.find(id).await?,
                };
                let rows = archive.store.rows_of(id.0, 0, 100_000).await;
                let rows = rows.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
                let of_job = LedgerQuery { workload: Some(id.0), ..LedgerQuery::default() };
                let ledger = archive.store.ledger(&of_job).await;
                let ledger = ledger.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
                Ok(ExplainAnswer {
                    lines: history::lines(&rows, &ledger, job.submitted_at),
                    policy: present.as_ref().map(|present| present.policy.clone()),
                    next_wakeup: present.as_ref().and_then(|present| present.next_wakeup),
                    present: present.map(|present| present.reason),
                    job,
                })
            };
            let _ = reply.send(answer.await);
        });
    }
}

/// A program may take files that another one left for its own progress: whose they are, the user knows.
fn strangers(path: &str, foreign: &[String]) -> Option<Problem> {
    // A folder with nothing in it is nobody's progress.
    let mut files = foreign.iter().filter(|name| !Path::new(path).join(name).is_dir());
    let first = files.next()?;
    let more = match files.count() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let text = format!("{path} holds files that this job did not write: {first}{more}");
    let hint = "begin with them: --with-files; begin anew: move them away; go on from the job that wrote them: windfall \
                resume JOB";
    Some(Problem { hint: Some(hint.to_owned()), ..problem(409, "files-in-checkpoint-path", &text) })
}
