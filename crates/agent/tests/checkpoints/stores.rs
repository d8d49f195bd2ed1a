//! The stores that facts are tested on, and raw access to what lies there.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use crate::relaying::RelayServer;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use tempfile::TempDir;
use windfall_agent::checkpoint::{Begun, Checkpoints, Choose, Options, Ref, Saved, Snapshot};

pub const JOB: &str = "job-1";
const BUCKET: &str = "windfall-test";
const AZURE_ACCOUNT: &str = "devstoreaccount1";
/// The key that every Azurite has; published by Microsoft.
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Directory,
    /// A directory on the server's machine.
    Relay,
    S3,
    Gcs,
    Azure,
}

/// A store of one test: its own prefix.
pub struct Store {
    pub kind: Kind,
    pub address: String,
    pub env: Vec<(String, String)>,
    _server: Option<RelayServer>,
    dir: TempDir,
}

/// Runs a fact on a store, or says why not.
pub fn run<F: Future<Output = ()>>(kind: Kind, fact: impl FnOnce(Store) -> F) {
    let Some(store) = Store::open(kind) else { return };
    runtime().block_on(fact(store));
}

/// One thread, as the agent may have.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

pub fn s3_env(endpoint: &str) -> Vec<(String, String)> {
    let pairs = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "TESTACCESSKEY"),
        ("AWS_SECRET_ACCESS_KEY", "TESTSECRETKEY"),
        ("AWS_REGION", "us-east-1"),
    ];
    pairs.map(|(key, value)| (key.into(), value.into())).into()
}

pub fn endpoint(kind: Kind) -> Option<String> {
    let (name, variable) = match kind {
        Kind::Directory | Kind::Relay => return Some(String::new()),
        Kind::S3 => ("s3", "WINDFALL_TEST_S3"),
        Kind::Gcs => ("gcs", "WINDFALL_TEST_GCS"),
        Kind::Azure => ("azure", "WINDFALL_TEST_AZURE"),
    };
    let found = std::env::var(variable).ok().filter(|value| !value.is_empty());
    if found.is_none() {
        println!("skipped: {name} ({variable} is not set)");
    }
    found
}

impl Store {
    pub fn open(kind: Kind) -> Option<Self> {
        let endpoint = endpoint(kind)?;
        let dir = tempfile::tempdir().unwrap();
        let word = dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_owned();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let server = (kind == Kind::Relay).then(|| RelayServer::start(dir.path()));
        let (address, env) = match kind {
            Kind::Directory => (dir.path().to_str().unwrap().to_owned(), vec![]),
            Kind::Relay => (server.as_ref().unwrap().address.clone(), vec![]),
            Kind::S3 => {
                make_s3_bucket(&endpoint);
                (format!("s3://{BUCKET}/{word}"), s3_env(&endpoint))
            }
            Kind::Gcs => {
                make_gcs_bucket(&endpoint);
                (format!("gs://{BUCKET}/{word}"), vec![pair("STORAGE_EMULATOR_HOST", &endpoint)])
            }
            Kind::Azure => {
                make_azure_container(&endpoint);
                let env = vec![
                    pair("AZURE_STORAGE_ACCOUNT_NAME", AZURE_ACCOUNT),
                    pair("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY),
                    pair("AZURE_STORAGE_ENDPOINT", &format!("{endpoint}/{AZURE_ACCOUNT}")),
                ];
                (format!("az://{BUCKET}/{word}"), env)
            }
        };
        Some(Self { kind, address, env, _server: server, dir })
    }

    /// The job's checkpoints as a new machine sees them.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::open(&self.address, JOB, Options::with_env(self.env.clone())).unwrap()
    }

    /// The directory on this machine, where the store is one.
    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    fn raw(&self) -> (Box<dyn ObjectStore>, String) {
        if matches!(self.kind, Kind::Directory | Kind::Relay) {
            let store = object_store::local::LocalFileSystem::new_with_prefix(self.dir.path()).unwrap();
            return (Box::new(store), JOB.into());
        }
        let url = url::Url::parse(&self.address).unwrap();
        let mut settings: Vec<(String, String)> =
            self.env.iter().map(|(k, v)| (k.to_ascii_lowercase(), v.clone())).collect();
        if self.kind == Kind::Gcs {
            settings = vec![
                ("google_base_url".into(), self.env[0].1.clone()),
                ("google_bearer_token".into(), "emulator".into()),
            ];
        }
        settings.push(("allow_http".into(), "true".into()));
        let (store, path) = object_store::parse_url_opts(&url, settings).unwrap();
        (store, format!("{path}/{JOB}"))
    }

    /// The names below a folder of the job, with the time of their last change.
    pub async fn raw_list(&self, folder: &str) -> Vec<(String, i64)> {
        let (store, base) = self.raw();
        let under = object_store::path::Path::from(format!("{base}/{folder}"));
        let found: Vec<_> = store.list(Some(&under)).try_collect().await.unwrap();
        found
            .iter()
            .map(|object| (object.location.filename().unwrap().to_owned(), object.last_modified.timestamp_millis()))
            .collect()
    }

    pub async fn raw_get(&self, key: &str) -> Vec<u8> {
        let (store, base) = self.raw();
        store.get(&format!("{base}/{key}").into()).await.unwrap().bytes().await.unwrap().to_vec()
    }

    pub async fn raw_put(&self, key: &str, body: Vec<u8>) {
        let (store, base) = self.raw();
        store.put(&format!("{base}/{key}").into(), body.into()).await.unwrap();
    }

    pub async fn raw_delete(&self, key: &str) {
        let (store, base) = self.raw();
        store.delete(&format!("{base}/{key}").into()).await.unwrap();
    }

    pub async fn manifest(&self, epoch: u64, seq: u64) -> serde_json_value::Value {
        serde_json_value::parse(&self.raw_get(&manifest_key(epoch, seq)).await)
    }
}

/// Manifests as JSON, to damage and to forge.
pub mod serde_json_value {
    pub use serde_json::Value;

    pub fn parse(body: &[u8]) -> Value {
        serde_json::from_slice(body).unwrap()
    }
}

pub fn manifest_key(epoch: u64, seq: u64) -> String {
    format!("manifests/{epoch:020}-{seq:020}.json")
}

/// A stint in one line each.
pub async fn begin(checkpoints: &Checkpoints, epoch: u64, dir: &Path, choose: Choose) -> Begun {
    checkpoints.begin(epoch, dir, choose, &BTreeSet::new()).await.unwrap()
}

pub async fn save(checkpoints: &Checkpoints, epoch: u64, seq: u64, dir: &Path) -> Saved {
    checkpoints.save(epoch, seq, &Snapshot::of(dir).unwrap(), Some(seq * 100)).await.unwrap()
}

/// What a new machine would resume from, as stint `epoch`.
pub async fn resume(store: &Store, epoch: u64, choose: Choose) -> (Begun, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let begun = begin(&store.checkpoints(), epoch, dir.path(), choose).await;
    (begun, dir)
}

pub fn write(dir: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    // Another inode each time, as an atomic save makes: no stamp is ever the same by accident.
    let draft = path.with_extension("draft");
    std::fs::write(&draft, content).unwrap();
    std::fs::rename(draft, path).unwrap();
}

pub fn read(dir: &Path, name: &str) -> String {
    String::from_utf8(std::fs::read(dir.join(name)).unwrap()).unwrap()
}

pub const fn at(epoch: u64, seq: u64) -> Ref {
    Ref::new(epoch, seq)
}

fn make_s3_bucket(endpoint: &str) {
    // With virtual-hosted style the endpoint is the bucket, so an object at its root is a bucket of the server.
    let builder = object_store::aws::AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(true)
        .with_allow_http(true)
        .with_access_key_id("TESTACCESSKEY")
        .with_secret_access_key("TESTSECRETKEY")
        .with_region("us-east-1")
        .with_bucket_name("none");
    let store: Arc<dyn ObjectStore> = Arc::new(builder.build().unwrap());
    let _ = runtime().block_on(async { store.put(&BUCKET.into(), Vec::new().into()).await });
}

fn make_gcs_bucket(endpoint: &str) {
    let body = format!(r#"{{"name":"{BUCKET}"}}"#);
    let head = format!(
        "POST /storage/v1/b?project=test HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: {}",
        body.len()
    );
    request(endpoint, &head, &body);
}

fn make_azure_container(endpoint: &str) {
    use base64::Engine;
    let date = "Mon, 01 Jan 2024 00:00:00 GMT";
    let to_sign = format!(
        "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:2021-08-06\n/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}\nrestype:container"
    );
    let base64 = base64::engine::general_purpose::STANDARD;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &base64.decode(AZURE_KEY).unwrap());
    let signature = base64.encode(ring::hmac::sign(&key, to_sign.as_bytes()));
    let head = format!(
        "PUT /{AZURE_ACCOUNT}/{BUCKET}?restype=container HTTP/1.1\r\nx-ms-date: {date}\r\nx-ms-version: 2021-08-06\r\nContent-Length: 0\r\nAuthorization: SharedKey {AZURE_ACCOUNT}:{signature}"
    );
    request(endpoint, &head, "");
}

/// A request whose answer is 2xx, or says that the thing exists.
fn request(endpoint: &str, head: &str, body: &str) {
    let host = endpoint.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "{head}\r\nHost: {host}\r\nConnection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(status.starts_with('2') || status == "409", "{answer}");
}
