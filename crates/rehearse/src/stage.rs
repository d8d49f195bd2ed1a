//! The stage of a rehearsal: a temporary state directory with a real server on it, and the user's job made
//! fit for it. Nothing of the user's own is written: folders are copied, the store and absolute checkpoint
//! paths have twins below the temporary directory.

use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windfall_core::spec::{Late, WorkSpec, WorkUnit};
use windfall_core::worker::WorkerView;
use windfall_core::{JobSpec, Span};
use windfall_server::api_types::{JobAnswer, Submission};
use windfall_server::client::Client;
use windfall_server::client::{Code, Failure};

/// Time between SIGTERM and SIGKILL when the rehearsal itself ends a job.
const GRACE: Span = Span::seconds(2);
/// A job that was ended by force is gone within this.
const GONE: Duration = Duration::from_secs(30);

/// A server of the rehearsal's own.
pub struct Stage {
    pub home: PathBuf,
    client: Client,
    spec: JobSpec,
    env: BTreeMap<String, String>,
    fresh: bool,
    /// What the user should know about how the job was made fit.
    pub notes: Vec<String>,
}

impl Stage {
    /// Starts a server on `home`. With `fresh` every stint runs in a new copy of the job's folder, as on a new
    /// machine; without, all of them run in one copy, as on a machine that is kept.
    pub async fn open(
        home: &Path,
        job: &JobSpec,
        env: &BTreeMap<String, String>,
        fresh: bool,
    ) -> Result<Stage, Failure> {
        let pid = std::process::id().to_string();
        let mut args = ["--market", "steady", "--speed", "1", "--bound-to", &pid].map(str::to_owned).to_vec();
        if fresh {
            args.push("--fresh-folder".to_owned());
        }
        let (mut spec, mut env) = (fit(job, home), env.clone());
        let mut notes = Vec::new();
        twin(&mut spec, &mut env, home, &mut notes);
        if !fresh {
            keep_one_copy(&mut spec, home)?;
        }
        let client = Client::new(home, args);
        client.ensure().await?;
        Ok(Stage { home: home.to_owned(), client, spec, env, fresh, notes })
    }

    /// Has the stage outlive the rehearsal, for a look.
    pub fn keep(&self) {
        let _ = std::fs::write(self.home.join("keep"), "");
    }

    /// Submits the job once more; returns its number and its key.
    pub async fn submit(&self) -> Result<(u64, String), Failure> {
        let twin = self.home.join("twin");
        if twin.exists() {
            let _ = std::fs::remove_dir_all(&twin);
        }
        let submission = Submission {
            key: windfall_server::client::key(),
            spec: self.spec.clone(),
            deadline_in: None,
            env: self.env.clone(),
            wait: true,
            with_files: true,
            own_files: false,
            continues: None,
        };
        let accepted = self.client.submit(&submission).await?;
        Ok((accepted.id, submission.key))
    }

    pub async fn job(&self, id: u64) -> Result<JobAnswer, Failure> {
        self.client.get(&format!("/v1/jobs/{id}")).await
    }

    /// Rank 0 of every stint, oldest first; of two views of one stint the later counts.
    pub async fn stints(&self, id: u64) -> Result<BTreeMap<u64, WorkerView>, Failure> {
        let views: Vec<WorkerView> = self.client.get(&format!("/v1/jobs/{id}/stints")).await?;
        Ok(views.into_iter().filter(|view| view.rank == 0).map(|view| (view.stint.epoch, view)).collect())
    }

    /// Takes the job's lease away, with a notice of this length or without one.
    pub async fn interrupt(&self, id: u64, notice: Option<Duration>) -> Result<(), Failure> {
        interrupt(&self.client, id, notice).await
    }

    /// Ends a job by force and waits until nothing of it is left.
    pub async fn end(&self, id: u64) -> Result<JobAnswer, Failure> {
        end(&self.client, id).await
    }

    /// Ends every job of a stage, and its server.
    pub async fn close(home: &Path) {
        let client = Client::new(home, Vec::new());
        if !matches!(client.hello().await, Ok(Some(_))) {
            return;
        }
        if let Ok(jobs) = client.get::<Vec<windfall_core::view::JobView>>("/v1/jobs").await {
            for job in jobs {
                let _ = end(&client, job.id.0).await;
            }
        }
        let _ = client.post::<_, ()>("/v1/shutdown", &()).await;
        let until = Instant::now() + GONE;
        while Instant::now() < until && matches!(client.hello().await, Ok(Some(_))) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What the program printed in a stint.
    pub fn log(&self, key: &str, epoch: u64) -> PathBuf {
        self.home.join("jobs").join(key).join(format!("stint-{epoch:05}-0.log"))
    }

    /// The folder that a stint ran in.
    pub fn folder(&self, key: &str, epoch: u64) -> PathBuf {
        match self.fresh {
            true => self.home.join("jobs").join(key).join(format!("folder-{epoch}")),
            false => PathBuf::from(&self.spec.run.folder),
        }
    }

    /// The directory that a stint saved in.
    pub fn saves(&self, key: &str, epoch: u64) -> PathBuf {
        match &self.spec.checkpoint.path {
            None => self.home.join("jobs").join(key).join(format!("saves-{epoch}")),
            Some(path) => match Path::new(path).strip_prefix(&self.spec.run.folder) {
                Ok(inside) => self.folder(key, epoch).join(inside),
                Err(_) => PathBuf::from(path),
            },
        }
    }

    /// The job's part of the checkpoint store.
    pub fn store(&self, key: &str) -> PathBuf {
        Path::new(&self.spec.checkpoint.store).join(key)
    }

    /// The job names the directory that it saves in, which a server gives to one job at a time.
    pub fn has_one_place(&self) -> bool {
        !self.fresh || self.spec.checkpoint.path.is_some()
    }

    /// Moves what an act left, its saves and its folder, to where no other act writes, and says where that is.
    pub fn keep_state(&self, left: Option<(&Path, &Path)>) -> (PathBuf, PathBuf) {
        let (state, folder) = (self.home.join("undisturbed"), self.home.join("undisturbed-folder"));
        if let Some((saves, folder_left)) = left {
            let _ = std::fs::rename(saves, &state);
            if self.fresh {
                let _ = std::fs::rename(folder_left, &folder);
            }
        }
        (state, folder)
    }

    /// Removes the copies and checkpoints of an act once they have been looked at.
    pub fn sweep(&self, key: &str) {
        let _ = std::fs::remove_dir_all(self.store(key));
        for entry in std::fs::read_dir(self.home.join("jobs").join(key)).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }
}

async fn interrupt(client: &Client, id: u64, notice: Option<Duration>) -> Result<(), Failure> {
    let how = match notice {
        Some(notice) => json!({ "with-notice": notice.as_millis() as u64 }),
        None => json!("without"),
    };
    client.post("/v1/interrupt", &json!({ "job": id, "how": how })).await
}

async fn end(client: &Client, id: u64) -> Result<JobAnswer, Failure> {
    let until = Instant::now() + GONE;
    // A job that ended by itself meanwhile refuses both.
    let _ = client.post::<_, ()>(&format!("/v1/jobs/{id}/cancel"), &()).await;
    let _ = interrupt(client, id, None).await;
    loop {
        let answer: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
        if answer.bill.is_some() || Instant::now() > until {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Promises about time and money say nothing about the program, and any offer will do.
fn fit(job: &JobSpec, home: &Path) -> JobSpec {
    let mut spec = job.clone();
    spec.resources.clear();
    spec.work = WorkSpec { unit: WorkUnit::Steps, ..WorkSpec::default() };
    (spec.deadline, spec.late, spec.max_price, spec.budget) = (None, Late::default(), None, None);
    (spec.fallback, spec.retries) = (None, 0);
    spec.policy = Some("greedy".to_owned());
    spec.run.grace = GRACE;
    spec.checkpoint.store = home.join("store").to_string_lossy().into_owned();
    spec.checkpoint.keep = spec.checkpoint.keep.max(3);
    spec
}

/// A checkpoint path that is not below the job's folder, or that the command names in full, is replaced by a
/// twin wherever the job says it; a program that has it built in is found by its saving nothing there.
fn twin(spec: &mut JobSpec, env: &mut BTreeMap<String, String>, home: &Path, notes: &mut Vec<String>) {
    let Some(path) = spec.checkpoint.path.clone() else { return };
    let named = |text: &String| text.contains(&path);
    let is_named = spec.run.command.iter().any(named) || spec.run.env.values().any(named) || env.values().any(named);
    if Path::new(&path).starts_with(&spec.run.folder) && !is_named {
        return;
    }
    let twin = home.join("twin").to_string_lossy().into_owned();
    let replace = |text: &mut String| *text = text.replace(&path, &twin);
    spec.run.command.iter_mut().for_each(replace);
    spec.run.env.values_mut().for_each(replace);
    env.values_mut().for_each(replace);
    if !is_named {
        notes.push(format!(
            "checkpoint.path is outside the job's folder: {path}; the rehearsal gives the program another one in \
             $WINDFALL_CHECKPOINT_DIR, and a program that does not read that writes to the real one"
        ));
    }
    spec.checkpoint.path = Some(twin);
}

fn keep_one_copy(spec: &mut JobSpec, home: &Path) -> Result<(), Failure> {
    let (from, to) = (PathBuf::from(&spec.run.folder), home.join("folder"));
    let saves = spec.checkpoint.path.as_ref().map(PathBuf::from).unwrap_or_default();
    windfall_agent::copy_fresh(&from, &to, &saves)
        .map_err(|error| Failure::new(Code::Unreachable, format!("the folder cannot be copied: {error}")))?;
    if let Ok(inside) = saves.strip_prefix(&from) {
        spec.checkpoint.path = Some(to.join(inside).to_string_lossy().into_owned());
    }
    spec.run.folder = to.to_string_lossy().into_owned();
    Ok(())
}
