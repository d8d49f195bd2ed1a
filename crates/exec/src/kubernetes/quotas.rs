//! What of a namespace may be used at most, as its quotas say. It is asked for now and then, beside everything else.

use super::Kubernetes;
use super::api::ApiError;
use super::objects::{Quota, thousandths};
use crate::limit::Limit;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// For so long what was seen is good enough.
const NEWS: Duration = Duration::from_secs(300);

/// What was seen last, and when it was asked for.
pub(super) type SeenQuotas = (Option<Instant>, Vec<Limit>);

/// One bound of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub quota: String,
    pub what: String,
    pub hard: String,
    pub used: String,
}

impl Bound {
    /// Whether nothing is left of it.
    pub fn is_used_up(&self) -> bool {
        let (used, hard) = (thousandths(&self.used), thousandths(&self.hard));
        used.zip(hard).is_some_and(|(used, hard)| used >= hard)
    }
}

impl Kubernetes {
    /// What was seen last. Looks again beside this where that is old.
    pub(super) fn seen_limits(self: &Arc<Self>) -> Vec<Limit> {
        let mut seen = self.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.is_none_or(|at| at.elapsed() > NEWS) {
            seen.0 = Some(Instant::now());
            let kubernetes = Arc::clone(self);
            tokio::spawn(async move {
                // Whoever may not read them is told so by the check.
                let bounds = kubernetes.bounds().await.unwrap_or_default();
                let limit = |bound: &Bound| Limit::new(&format!("quota {}", bound.quota), &bound.what, &bound.hard);
                let limits = bounds.iter().map(limit).collect();
                kubernetes.quotas.lock().unwrap_or_else(PoisonError::into_inner).1 = limits;
            });
        }
        seen.1.clone()
    }

    /// Every bound of the namespace.
    pub(super) async fn bounds(&self) -> Result<Vec<Bound>, ApiError> {
        let (api, namespace) = self.cluster.api()?;
        let quotas: Vec<Quota> = api.list(&format!("/api/v1/namespaces/{namespace}/resourcequotas"), &[]).await?;
        Ok(quotas.iter().flat_map(of_quota).collect())
    }
}

fn of_quota(quota: &Quota) -> Vec<Bound> {
    let bound = |(what, hard): (&String, &String)| Bound {
        quota: quota.metadata.name.clone(),
        what: what.clone(),
        hard: hard.clone(),
        used: quota.status.used.get(what).cloned().unwrap_or_else(|| "0".to_owned()),
    };
    quota.status.hard.iter().map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_quota_bounds_what_it_names() {
        let status = json!({ "hard": { "pods": "10", "requests.nvidia.com/gpu": "8" }, "used": { "requests.nvidia.com/gpu": "8" } });
        let quota: Quota = from_value(json!({ "metadata": { "name": "team" }, "status": status })).expect("a quota");
        let bounds = of_quota(&quota);
        let shown: Vec<(&str, &str, bool)> =
            bounds.iter().map(|bound| (bound.what.as_str(), bound.used.as_str(), bound.is_used_up())).collect();
        assert_eq!(shown, [("pods", "0", false), ("requests.nvidia.com/gpu", "8", true)]);
    }
}
