//! The Job of a group: made once, let go, deleted.

use super::api::ApiError;
use super::cluster::{jobs_path, secrets_path};
use super::kinds::Kind;
use super::objects::Job;
use super::pilot::{self, Asked, job_name, node_name};
use super::{Kubernetes, away, held};
use crate::engine::EngineError;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use windfall_core::{DecisionId, LeaseId, Refusal, Want};

/// How long it may take until a Job that was deleted is gone, with its pods.
const GONE_WITHIN: Duration = Duration::from_secs(120);
/// The first pause before it is looked whether a Job is gone, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];

impl Kubernetes {
    /// The Job of a group, if the cluster has it.
    pub(super) async fn job(&self, group: DecisionId) -> Result<Option<Job>, ApiError> {
        let (api, namespace) = self.cluster.api()?;
        self.cluster.noting(api.find(&format!("{}/{}", jobs_path(&namespace), job_name(group))).await)
    }

    /// Makes the Job of a group, or goes on with one that was made and not let go; none where all of the group is gone already.
    pub(super) async fn submit(
        &self,
        group: DecisionId,
        want: &Want,
        kinds: &[Kind],
    ) -> Result<Option<Job>, EngineError> {
        let marks = self.marks_in(group);
        let Some(first) = marks.values().find(|marks| marks.gone.is_none()) else { return Ok(None) };
        let Some((kind, count)) = self.of_offer(kinds, &first.offer) else {
            // Its nodes went meanwhile.
            return Err(EngineError::Refused(Refusal::NoCapacity));
        };
        let template = self.template().map_err(|why| {
            self.say(&why);
            EngineError::Refused(Refusal::Invalid)
        })?;
        let asked = Asked { kind, count, units: first.units, needs: first.limits, on: &want.on };
        let job = pilot::job(&self.cluster.settings, &template, group, &first.owner, &asked);
        let tokens = marks.keys().map(|lease| self.hub.pilot_token(&node_name(*lease)).map(|token| token.to_string()));
        let tokens: Result<Vec<String>, String> = tokens.collect();
        let tokens = tokens.map_err(|why| EngineError::Unreachable { why })?;
        match self.make(group, &job, &tokens).await {
            Ok(job) => {
                *held(&self.no_right_since) = None;
                Ok(Some(job))
            }
            Err(error) => match self.refused(&error) {
                Some(refusal) => {
                    self.say(&format!("a Job could not be made: {error}"));
                    Err(EngineError::Refused(refusal))
                }
                None => Err(away(error)),
            },
        }
    }

    async fn make(&self, group: DecisionId, job: &Value, tokens: &[String]) -> Result<Job, ApiError> {
        let (api, namespace) = self.cluster.api()?;
        let (jobs, name) = (jobs_path(&namespace), job_name(group));
        let path = format!("{jobs}/{name}");
        let made: Job = match api.create(&jobs, job).await {
            Err(ApiError::Conflict { .. }) => api.get(&path).await?,
            made => self.cluster.noting(made)?,
        };
        if !made.spec.suspend || made.metadata.deletion_timestamp.is_some() {
            return Ok(made);
        }
        let secret = pilot::secret(group, &made.metadata.uid, tokens);
        let written = api.apply(&format!("{}/{name}", secrets_path(&namespace)), &secret).await;
        let let_go = match written {
            Ok(()) => api.merge(&path, &json!({ "spec": { "suspend": false } })).await,
            Err(error) => Err(error),
        };
        if let Err(error) = let_go {
            if self.refused(&error).is_some() {
                // Nobody will ask for it again. One that stays all the same is an orphan that holds nothing.
                let _ = api.delete(&path).await;
            }
            return Err(error);
        }
        Ok(made)
    }

    /// Deletes a Job, and returns when it and its pods are gone.
    pub(super) async fn delete(&self, group: DecisionId) -> Result<(), EngineError> {
        let (began, mut wait) = (Instant::now(), PAUSES[0]);
        while self.job(group).await.map_err(away)?.is_some() {
            self.ask_to_delete(group).await.map_err(away)?;
            if began.elapsed() > GONE_WITHIN {
                return Err(EngineError::Unreachable { why: format!("Job {} is not gone yet", job_name(group)) });
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(PAUSES[1]);
        }
        Ok(())
    }

    pub(super) async fn ask_to_delete(&self, group: DecisionId) -> Result<(), ApiError> {
        let (api, namespace) = self.cluster.api()?;
        self.cluster.noting(api.delete(&format!("{}/{}", jobs_path(&namespace), job_name(group))).await)
    }

    /// Evicts the pod of a lease, as whoever drains its node would.
    pub(super) async fn evict(&self, lease: LeaseId, seconds: i64) -> Result<(), EngineError> {
        let jobs = self.cluster.jobs(&[lease.group]).await.map_err(away)?;
        let name = job_name(lease.group);
        let job = jobs.iter().find(|seen| seen.job.metadata.name == name);
        let pod = job.and_then(|seen| seen.pod(lease.slot)).ok_or(EngineError::NoLease(lease))?;
        let (api, _) = self.cluster.api().map_err(away)?;
        let (pod, namespace) = (&pod.metadata.name, &pod.metadata.namespace);
        let eviction = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": pod, "namespace": namespace },
            "deleteOptions": { "gracePeriodSeconds": seconds.max(1) },
        });
        let path = format!("{}/{pod}/eviction", super::cluster::pods_path(namespace));
        match api.create::<Value>(&path, &eviction).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.refusal().map_or_else(|| away(error), EngineError::Refused)),
        }
    }

    /// What pods are made from, where the configuration names a file.
    pub(super) fn template(&self) -> Result<Value, String> {
        let Some(path) = &self.cluster.settings.template else { return Ok(Value::Null) };
        let wrong = |why: String| format!("the pod template {} cannot be used: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut whole: Value = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let is_template = whole["template"].is_object();
        let template = if is_template { whole["template"].take() } else { whole };
        match template["spec"].is_object() {
            true => Ok(template),
            false => Err(wrong("it has no spec".to_owned())),
        }
    }
}
