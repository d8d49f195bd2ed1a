//! Where the bytes of a store lie, as far as that can be known before a job runs: moving them costs money.

use std::time::Duration;

use super::address::{StoreAddress, StoreKind};

/// A planner waits for the answer, and can do without.
const WITHIN: Duration = Duration::from_secs(3);

/// Where a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// A folder: where the job runs, as far as anybody can say.
    Folder,
    /// In this region, as the store itself says.
    Said { cloud: &'static str, region: String },
    /// In this region, as a setting of the user says.
    Set { cloud: &'static str, region: String },
    /// Somewhere in this cloud.
    Within { cloud: &'static str },
    /// Behind an address of its own, in no cloud that is known.
    Elsewhere,
}

/// Where the store of that address is; none if it is no address.
pub async fn located(address: &str, env: impl IntoIterator<Item = (String, String)>) -> Option<Located> {
    let remote = match StoreAddress::read(address, env).ok()? {
        StoreAddress::Directory(_) | StoreAddress::Relay(_) => return Some(Located::Folder),
        StoreAddress::Remote(remote) => remote,
    };
    let cloud = match remote.kind {
        StoreKind::S3 => "aws",
        StoreKind::Gcs => "gcp",
        StoreKind::Azure => "azure",
    };
    // Other makers of stores name regions too, which are not those of AWS.
    let of_aws = remote.endpoint.is_empty() || remote.endpoint.trim_end_matches('/').ends_with(".amazonaws.com");
    if remote.kind == StoreKind::S3 && of_aws {
        let url = format!("https://{}.s3.amazonaws.com", remote.bucket);
        if let Some(region) = tokio::time::timeout(WITHIN, region_of_bucket(url)).await.ok().flatten() {
            return Some(Located::Said { cloud, region });
        }
    }
    Some(match (remote.endpoint.is_empty() || of_aws, remote.region.is_empty()) {
        (false, _) => Located::Elsewhere,
        (true, false) => Located::Set { cloud, region: remote.region },
        (true, true) => Located::Within { cloud },
    })
}

/// S3 names a bucket's region to anybody who asks, also where it refuses the rest.
async fn region_of_bucket(url: String) -> Option<String> {
    // Fails only when one is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().ok()?;
    let answer = client.head(url).send().await.ok()?;
    let region = answer.headers().get("x-amz-bucket-region")?.to_str().ok()?;
    (!region.is_empty()).then(|| region.to_owned())
}

#[cfg(test)]
mod tests {
    use super::region_of_bucket;
    use std::io::{Read, Write};

    /// Asks a server that gives one answer.
    fn answered(answer: &'static str) -> Option<String> {
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", server.local_addr().expect("an address"));
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a question");
            let _ = stream.read(&mut [0; 4_096]);
            stream.write_all(answer.as_bytes()).expect("answered");
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let region = runtime.block_on(region_of_bucket(url));
        serving.join().expect("served");
        region
    }

    #[test]
    fn a_bucket_names_its_region_also_to_strangers() {
        let refused = "HTTP/1.1 403 Forbidden\r\nx-amz-bucket-region: eu-west-1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        assert_eq!(answered(refused).as_deref(), Some("eu-west-1"));
        assert_eq!(answered("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"), None);
    }
}
