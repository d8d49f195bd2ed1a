//! What of a namespace may be used at most, as its quotas say. It is asked for now and then, beside everything else.

use super::Kubernetes;
use super::api::ApiError;
use super::bounds::{Bound, of_quota};
use super::cluster::quotas_path;
use super::objects::Quota;
use crate::limit::Limit;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// For so long what was seen is good enough.
const NEWS: Duration = Duration::from_secs(300);

/// What was seen last, and when it was asked for.
pub(super) type SeenQuotas = (Option<Instant>, Vec<Limit>);

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
        let quotas: Vec<Quota> = api.list(&quotas_path(&namespace), &[]).await?;
        Ok(quotas.iter().flat_map(of_quota).collect())
    }
}
