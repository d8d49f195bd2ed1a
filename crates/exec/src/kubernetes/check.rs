//! Whether a cluster can be used as the configuration says: credentials, rights, the namespace, quotas, nodes, and what the cluster
//! says of a Job as ours are. Nothing is made: the cluster is only asked whether it would.

use super::Kubernetes;
use super::api::{Api, ApiError};
use super::cluster::{Survey, jobs_path};
use super::objects::{Review, Version};
use super::pilot::{self, Asked};
use super::rights::{RIGHTS, Right};
use crate::finding::{Finding, FindingState};
use serde_json::{Value, json};
use windfall_core::english::counted;
use windfall_core::pool::{Health, Shape};
use windfall_core::{DecisionId, Installation};

impl Kubernetes {
    pub(super) async fn findings(&self) -> Vec<Finding> {
        let name = self.name.as_str();
        let missing = |error: &ApiError| Finding::missing(name, error.to_string(), error.hint());
        let (api, namespace) = match self.cluster.api() {
            Ok(known) => known,
            Err(error) => return vec![missing(&error)],
        };
        let version: Version = match self.cluster.noting(api.get("/version").await) {
            Ok(version) => version,
            Err(error) => return vec![missing(&error)],
        };
        let mut found =
            vec![Finding::ok(name, format!("Kubernetes {} answers at {}", version.git_version, api.server()))];
        let rights = self.rights(&api, &namespace).await;
        let may_try = !rights.iter().any(|finding| finding.state == FindingState::Missing);
        found.extend(rights);
        found.extend(self.namespace(&api, &namespace).await);
        found.extend(self.quotas_used_up().await);
        found.extend(self.priority(&api).await);
        match self.survey().await {
            Ok(survey) => {
                found.extend(self.nodes_there(&survey));
                if may_try {
                    found.extend(self.trial(&api, &namespace, &survey).await);
                }
            }
            Err(error) => found.push(Finding::missing(name, error.to_string(), "see the rights above")),
        }
        let troubles = super::held(&self.troubles);
        let lately = troubles.iter().filter(|(at, _)| at.elapsed() < super::TOLD_FOR);
        found.extend(lately.map(|(_, text)| {
            let mend = "`kubectl get events` in that namespace says more";
            Finding::warning(name, format!("lately: {text}"), mend)
        }));
        found
    }

    /// Whether we may do all that we do.
    async fn rights(&self, api: &Api, namespace: &str) -> Vec<Finding> {
        let mut found = Vec::new();
        for right in &RIGHTS {
            let mut about = json!({ "verb": right.verb, "group": right.group, "resource": right.resource });
            if let Some((resource, part)) = right.resource.split_once('/') {
                about["resource"] = json!(resource);
                about["subresource"] = json!(part);
            }
            if !right.everywhere {
                about["namespace"] = json!(namespace);
            }
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": { "resourceAttributes": about },
            });
            let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
            match api.create::<Review>(path, &review).await {
                Ok(review) if review.status.allowed => {}
                Ok(_) => found.push(self.lacks(right, namespace)),
                Err(error) => {
                    found.push(Finding::warning(&self.name, format!("rights are not known: {error}"), error.hint()));
                    return found;
                }
            }
        }
        if found.is_empty() {
            let all = counted(RIGHTS.len() as u64, "right");
            found.push(Finding::ok(&self.name, format!("it has all of {all} that it needs in namespace {namespace}")));
        }
        found
    }

    fn lacks(&self, right: &Right, namespace: &str) -> Finding {
        let place = if right.everywhere { "in the cluster".to_owned() } else { format!("in namespace {namespace}") };
        let says = format!("it may not {} {place}", right.words());
        match right.without {
            None => Finding::missing(&self.name, says, right.mend(namespace)),
            Some(without) => Finding::warning(&self.name, format!("{says}: {without}"), right.mend(namespace)),
        }
    }

    /// Whoever may not look has no right to, and needs none.
    async fn namespace(&self, api: &Api, namespace: &str) -> Option<Finding> {
        match api.get::<Value>(&format!("/api/v1/namespaces/{namespace}")).await {
            Err(ApiError::NotFound { .. }) => {
                let mend = format!("kubectl create namespace {namespace}  # or say another below [kubernetes]");
                Some(Finding::missing(&self.name, format!("there is no namespace {namespace}"), mend))
            }
            Ok(_) => Some(Finding::ok(&self.name, format!("namespace {namespace} is there"))),
            Err(_) => None,
        }
    }

    async fn quotas_used_up(&self) -> Vec<Finding> {
        let bounds = self.bounds().await.unwrap_or_default();
        let used_up = bounds.iter().filter(|bound| bound.is_used_up());
        let finding = |bound: &super::bounds::Bound| {
            let says = format!("quota {}: {} of {} of {} are used", bound.quota, bound.used, bound.hard, bound.what);
            Finding::warning(&self.name, says, "nothing more can begin until something of it is given back")
        };
        used_up.map(finding).collect()
    }

    async fn priority(&self, api: &Api) -> Option<Finding> {
        let class = self.cluster.settings.priority_class.as_ref()?;
        match api.get::<Value>(&format!("/apis/scheduling.k8s.io/v1/priorityclasses/{class}")).await {
            Err(ApiError::NotFound { .. }) => {
                let says = format!("there is no PriorityClass {class}");
                Some(Finding::missing(&self.name, says, "`kubectl get priorityclasses` lists what there is"))
            }
            _ => None,
        }
    }

    fn nodes_there(&self, survey: &Survey) -> Vec<Finding> {
        let rooms = || survey.kinds.iter().flat_map(|kind| kind.nodes.iter().map(move |room| (kind, room)));
        let ready = rooms().filter(|(_, room)| room.health == Health::Ready).count() as u64;
        let all: u32 = rooms().map(|(_, room)| room.capacity.accelerators).sum();
        let free: u32 = rooms().filter(|(kind, _)| kind.accelerators > 0).map(|(_, room)| room.left(1)).sum();
        let says = format!("{} ready; {} of {} free", counted(ready, "node"), free, counted(all.into(), "accelerator"));
        let mut found = vec![match ready {
            0 => Finding::warning(&self.name, says, "`kubectl get nodes` says why, or none has been made yet"),
            _ => Finding::ok(&self.name, says),
        }];
        if survey.kinds.iter().any(|kind| kind.accelerators > 0 && kind.accelerator == "GPU") {
            let says = "some nodes do not say what their accelerators are: jobs must ask for GPU";
            let mend = "install NVIDIA's GPU feature discovery, or label them nvidia.com/gpu.product";
            found.push(Finding::warning(&self.name, says, mend));
        }
        found
    }

    /// What the cluster says of a Job as ours are, without making it.
    async fn trial(&self, api: &Api, namespace: &str, survey: &Survey) -> Option<Finding> {
        let template = match self.template() {
            Ok(template) => template,
            Err(why) => return Some(Finding::missing(&self.name, why, "it is a Pod's or a PodTemplate's YAML")),
        };
        let kind = survey.kinds.iter().max_by_key(|kind| kind.accelerators)?;
        let group = DecisionId { installation: Installation(0), seq: 0 };
        let asked = Asked { kind, count: kind.accelerators, units: 1, needs: Shape::default(), on: &[] };
        let job = pilot::job(&self.cluster.settings, &template, group, "", &asked);
        let path = format!("{}?dryRun=All", jobs_path(namespace));
        Some(match api.create::<Value>(&path, &job).await {
            Ok(_) => Finding::ok(
                &self.name,
                format!("a Job of ours would be accepted, with image {}", self.cluster.settings.image),
            ),
            Err(ApiError::Away { .. } | ApiError::Busy { .. }) => return None,
            Err(error) => {
                Finding::missing(&self.name, format!("a Job of ours would be refused: {error}"), error.hint())
            }
        })
    }
}
