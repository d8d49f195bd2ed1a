//! Where the bytes of a store lie, as far as that can be known before a job runs: moving them costs money.

use std::time::Duration;

use super::place::{Kind, Place, Remote};

/// A planner waits for the answer, and can do without.
const WITHIN: Duration = Duration::from_secs(3);

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// A folder: where the job runs, as far as anybody can say.
    Folder,
    /// In this region, as the store itself says.
    Said {
        /// The cloud.
        cloud: &'static str,
        /// Its region.
        region: String,
    },
    /// In this region, as a setting of the user says.
    Set {
        /// The cloud.
        cloud: &'static str,
        /// Its region.
        region: String,
    },
    /// Somewhere in this cloud.
    Within {
        /// The cloud.
        cloud: &'static str,
    },
    /// Behind an address of its own, in no cloud that is known.
    Elsewhere,
}

/// Where the store of that address is; none if it is no address.
pub async fn located(address: &str, env: impl IntoIterator<Item = (String, String)>) -> Option<Located> {
    let remote = match Place::read(address, env).ok()? {
        Place::Directory(_) => return Some(Located::Folder),
        Place::Remote(remote) => remote,
    };
    let cloud = match remote.kind {
        Kind::S3 => "aws",
        Kind::Gcs => "gcp",
        Kind::Azure => "azure",
    };
    if remote.kind == Kind::S3
        && let Some(region) = tokio::time::timeout(WITHIN, region_of_bucket(&remote)).await.ok().flatten()
    {
        return Some(Located::Said { cloud, region });
    }
    Some(match (remote.endpoint.is_empty(), remote.region.is_empty()) {
        (false, _) => Located::Elsewhere,
        (true, false) => Located::Set { cloud, region: remote.region },
        (true, true) => Located::Within { cloud },
    })
}

/// S3 names a bucket's region to anybody who asks, also where it refuses the rest.
async fn region_of_bucket(remote: &Remote) -> Option<String> {
    let url = match remote.endpoint.is_empty() {
        true => format!("https://{}.s3.amazonaws.com", remote.bucket),
        false => format!("{}/{}", remote.endpoint.trim_end_matches('/'), remote.bucket),
    };
    // Fails only when one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().ok()?;
    let answer = client.head(url).send().await.ok()?;
    let region = answer.headers().get("x-amz-bucket-region")?.to_str().ok()?;
    (!region.is_empty()).then(|| region.to_owned())
}
