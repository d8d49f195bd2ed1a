//! What is asked of a cluster: however many ask at once, it is asked once, and nobody gets an answer about Jobs that is older than the
//! question.

use super::access;
use super::api::{Api, ApiError};
use super::bounds::{self, Bound};
use super::kinds::{self, Kind};
use super::labels::{self, Announced};
use super::objects::{Job, Node, Pod, Quota, holds};
use super::pilot::{self, GROUP, INDEX, INSTALLATION, group_of};
use super::settings::KubernetesSettings;
use crate::shared::Shared;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windfall_core::{DecisionId, Time};

/// Looks at Jobs begin no closer to each other: whoever asks in between shares the next one.
const APART: Duration = Duration::from_millis(250);
/// What was seen of nodes and of everybody's pods is good enough for so long.
const NEWS: Duration = Duration::from_secs(5);
/// In a large cluster a look takes long: at most one part in so many of the time goes to it.
const PART_OF_TIME: u32 = 20;

/// A Job of ours and its pods.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenJob {
    pub job: Job,
    pub pods: Vec<Pod>,
}

impl SeenJob {
    /// The pod of a slot: the youngest, where there was another before.
    pub fn pod(&self, slot: u32) -> Option<&Pod> {
        let slot = slot.to_string();
        let of_slot = self.pods.iter().filter(|pod| pod.metadata.annotations.get(INDEX) == Some(&slot));
        of_slot.max_by_key(|pod| pod.metadata.creation_timestamp)
    }

    /// Whether nothing will come of it any more.
    pub fn is_over(&self) -> bool {
        let conditions = &self.job.status.conditions;
        let is_over = ["Complete", "Failed"].into_iter().any(|kind| holds(conditions, kind).is_some());
        is_over || self.job.metadata.deletion_timestamp.is_some()
    }
}

/// What a cluster has.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// When it was begun.
    pub at: Time,
    pub kinds: Vec<Kind>,
    /// What quotas leave of the namespace; empty where they may not be read.
    pub bounds: Vec<Bound>,
    /// Nodes that are about to be taken away.
    pub announced: BTreeMap<String, Announced>,
}

type Found = Result<Arc<Vec<SeenJob>>, ApiError>;

pub(super) struct Cluster {
    pub settings: KubernetesSettings,
    api: Mutex<Option<(Arc<Api>, String)>>,
    survey: tokio::sync::Mutex<Option<(Instant, Duration, Arc<Survey>)>>,
    /// The last survey, for whoever cannot wait.
    last: Mutex<Arc<Survey>>,
    jobs: Shared<Found>,
}

impl Survey {
    /// Whether it has a node of this name.
    pub fn has_node(&self, name: &str) -> bool {
        self.kinds.iter().any(|kind| kind.nodes.iter().any(|room| room.name == name))
    }
}

impl Cluster {
    pub fn new(settings: KubernetesSettings) -> Cluster {
        let (api, survey, last) = (Mutex::default(), tokio::sync::Mutex::default(), Mutex::default());
        Cluster { settings, api, survey, last, jobs: Shared::new(APART) }
    }

    /// Whom to ask, and the namespace of our Jobs. A kubeconfig that is not there may come.
    pub fn api(&self) -> Result<(Arc<Api>, String), ApiError> {
        let mut known = self.api.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.as_ref() {
            return Ok(known.clone());
        }
        let KubernetesSettings { kubeconfig, context, namespace, .. } = &self.settings;
        let access = access::find(kubeconfig.as_deref(), context.as_deref()).map_err(ApiError::NoAccess)?;
        let namespace = namespace.clone().unwrap_or_else(|| access.namespace.clone());
        let api = Arc::new(Api::open(access).map_err(ApiError::NoAccess)?);
        Ok(known.insert((api, namespace)).clone())
    }

    /// Credentials that do not hold any more are looked up anew.
    pub fn noting<T>(&self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        if let Err(ApiError::Unauthenticated { .. }) = &answer {
            *self.api.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        answer
    }

    /// What the cluster has, as it was within the last seconds. `ours` are the groups that are ours.
    pub async fn survey(
        &self,
        now: Time,
        ours: impl FnOnce() -> BTreeSet<DecisionId>,
    ) -> Result<Arc<Survey>, ApiError> {
        let mut known = self.survey.lock().await;
        if let Some((at, took, survey)) = known.as_ref()
            && at.elapsed() < NEWS.max(*took * PART_OF_TIME)
        {
            return Ok(Arc::clone(survey));
        }
        let began = Instant::now();
        let survey = Arc::new(self.noting(self.look_around(now, ours()).await)?);
        *known = Some((Instant::now(), began.elapsed(), Arc::clone(&survey)));
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&survey);
        Ok(survey)
    }

    /// What was seen last.
    pub fn last_survey(&self) -> Arc<Survey> {
        Arc::clone(&self.last.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As if this had been seen.
    #[cfg(test)]
    pub fn has_seen(&self, survey: Survey) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(survey);
    }

    async fn look_around(&self, at: Time, ours: BTreeSet<DecisionId>) -> Result<Survey, ApiError> {
        let (api, namespace) = self.api()?;
        let nodes: Vec<Node> = api.list("/api/v1/nodes", &[]).await?;
        let live = [("fieldSelector", "status.phase!=Succeeded,status.phase!=Failed")];
        let pods: Vec<Pod> = match api.list("/api/v1/pods", &live).await {
            // What others have is taken for free, and the check says so.
            Err(ApiError::Forbidden { .. }) => api.list(&pods_path(&namespace), &live).await?,
            listed => listed?,
        };
        let group = |pod: &Pod| pod.metadata.labels.get(GROUP).and_then(|name| group_of(&format!("windfall-{name}")));
        let is_ours = |pod: &Pod| group(pod).is_some_and(|group| ours.contains(&group));
        let announced = nodes.iter().filter_map(|node| Some((node.metadata.name.clone(), labels::announced(node)?)));
        let announced = announced.collect();
        // Whoever may not read them is told so by the check, and refused by them.
        let quotas: Vec<Quota> = api.list(&quotas_path(&namespace), &[]).await.unwrap_or_default();
        let class = self.settings.priority_class.as_deref();
        let bounds =
            quotas.iter().filter(|quota| bounds::counts_for(quota, class)).flat_map(bounds::of_quota).collect();
        Ok(Survey { at, kinds: kinds::kinds(&nodes, &pods, &self.settings, is_ours), bounds, announced })
    }

    /// The Jobs of these groups, perhaps among others of the same installation.
    pub async fn jobs(&self, groups: &[DecisionId]) -> Found {
        let names: Vec<String> = groups.iter().map(|group| pilot::job_name(*group)).collect();
        let look = |names: Vec<String>| async move {
            let groups = names.iter().filter_map(|name| group_of(name));
            let of: BTreeSet<String> = groups.map(|group| pilot::installation(group.installation)).collect();
            let of: Vec<String> = of.into_iter().collect();
            let selector = format!("{INSTALLATION} in ({})", of.join(","));
            self.noting(self.look_at_jobs(&selector).await).map(Arc::new)
        };
        self.jobs.ask(&names, look).await
    }

    /// Every Job of ours and of other installations.
    pub async fn all_jobs(&self) -> Result<Vec<Job>, ApiError> {
        let (api, namespace) = self.api()?;
        self.noting(api.list(&jobs_path(&namespace), &[("labelSelector", INSTALLATION)]).await)
    }

    async fn look_at_jobs(&self, selector: &str) -> Result<Vec<SeenJob>, ApiError> {
        let (api, namespace) = self.api()?;
        let ours = [("labelSelector", selector)];
        let jobs: Vec<Job> = api.list(&jobs_path(&namespace), &ours).await?;
        // After the Jobs: of one that is there, no pod is missed.
        let pods: Vec<Pod> = api.list(&pods_path(&namespace), &ours).await?;
        let mut of_jobs: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
        for pod in pods {
            let name = pod.metadata.labels.get(GROUP).map(|group| format!("windfall-{group}"));
            of_jobs.entry(name.unwrap_or_default()).or_default().push(pod);
        }
        let seen = |job: Job| SeenJob { pods: of_jobs.remove(&job.metadata.name).unwrap_or_default(), job };
        Ok(jobs.into_iter().map(seen).collect())
    }
}

pub(super) fn jobs_path(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

pub(super) fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

pub(super) fn quotas_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/resourcequotas")
}

pub(super) fn secrets_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}
