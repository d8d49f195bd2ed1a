//! S3, GCS and Azure as the store, through `object_store`. Memory is bounded by one budget that all parts
//! in flight share, whichever file or direction they belong to.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::address::{Patience, Remote};
use super::depot::{Depot, Fetched, Source, count};
use super::error::{CheckpointError, Culprit, Result, blocking};

/// Below this a file is one request.
const PART: u64 = 8 << 20;
/// S3 takes 10,000 parts; above 72 GB the parts grow instead.
const PARTS: u64 = 9_000;
/// All parts in memory together; what one request needs beyond its body is small.
const BUDGET: u64 = 48 << 20;
const RANGES_AHEAD: usize = 4;

#[derive(Debug)]
pub(crate) struct RemoteDepot {
    store: Arc<dyn ObjectStore>,
    remote: Remote,
    base: String,
    budget: Arc<Semaphore>,
}

impl RemoteDepot {
    pub fn connect(remote: Remote, base: String, patience: Patience) -> Result<Self> {
        let store = remote.connect(patience)?;
        let kib = usize::try_from(BUDGET >> 10).unwrap_or(usize::MAX);
        Ok(Self { store, remote, base, budget: Arc::new(Semaphore::new(kib)) })
    }

    fn key(&self, key: &str) -> Key {
        Key::from(format!("{}/{key}", self.base))
    }

    fn failed(&self, what: &str, error: Error) -> CheckpointError {
        explain(&self.remote, what, error)
    }

    async fn memory(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let kib = u32::try_from((bytes.min(BUDGET) >> 10).max(1)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.budget).acquire_many_owned(kib).await;
        permit.map_err(|e| CheckpointError::Task(e.to_string()))
    }

    async fn send_parts(&self, key: &Key, mut source: Source, part: u64, sent: &Arc<AtomicU64>) -> Result<String> {
        let mut upload = self.store.put_multipart(key).await.map_err(|e| self.failed("cannot begin an upload", e))?;
        let mut parts: JoinSet<Result<(), Error>> = JoinSet::new();
        let outcome = async {
            while source.left() > 0 {
                let permit = self.memory(part.min(source.left())).await?;
                let (back, body) = read_part(source, part).await?;
                source = back;
                let put = upload.put_part(body.clone().into());
                let sent = Arc::clone(sent);
                parts.spawn(async move {
                    put.await?;
                    count(&sent, body.len());
                    drop(permit);
                    Ok(())
                });
                while let Some(done) = parts.try_join_next() {
                    done?.map_err(|e| self.failed("cannot upload", e))?;
                }
            }
            let hash = blocking(move || source.finish()).await?;
            while let Some(done) = parts.join_next().await {
                done?.map_err(|e| self.failed("cannot upload", e))?;
            }
            upload.complete().await.map_err(|e| self.failed("cannot finish an upload", e))?;
            Ok(hash)
        }
        .await;
        if outcome.is_err() {
            parts.shutdown().await;
            // Parts of an unfinished upload are paid for until someone deletes them.
            let _ = upload.abort().await;
        }
        outcome
    }

    /// In a task of its own, so that it goes on while another part is written to disk. The permit goes with
    /// the body until that is written; the semaphore is first come, first served, so a file's first part
    /// never waits behind its own later ones.
    async fn range(&self, key: Key, from: u64, to: u64) -> Result<(Result<Bytes, Error>, OwnedSemaphorePermit)> {
        let permit = self.memory(to - from).await?;
        let store = Arc::clone(&self.store);
        let body = tokio::spawn(async move { store.get_range(&key, from..to).await }).await?;
        Ok((body, permit))
    }
}

async fn read_part(mut source: Source, part: u64) -> Result<(Source, Bytes)> {
    blocking(move || {
        let mut body = vec![0; usize::try_from(part.min(source.left())).unwrap_or(usize::MAX)];
        source.read(&mut body)?;
        Ok((source, body.into()))
    })
    .await
}

#[async_trait]
impl Depot for RemoteDepot {
    async fn create(&self, key: &str, body: Bytes) -> Result<bool> {
        let target = self.key(key);
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&target, body.clone().into(), options).await {
            Ok(_) => Ok(true),
            // A request that was retried may have met what its first try wrote. The body names its writer.
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                Ok(self.get(key).await?.is_some_and(|there| there == body))
            }
            Err(e) => Err(self.failed("cannot write", e)),
        }
    }

    async fn put(&self, key: &str, body: Bytes) -> Result<()> {
        let _permit = self.memory(body.len() as u64).await?;
        self.store.put(&self.key(key), body.into()).await.map_err(|e| self.failed("cannot write", e))?;
        Ok(())
    }

    async fn send(&self, key: &str, source: Source, sent: &Arc<AtomicU64>) -> Result<String> {
        let part = PART.max(source.size().div_ceil(PARTS).next_multiple_of(1 << 20));
        let key = self.key(key);
        if source.size() > part {
            return self.send_parts(&key, source, part, sent).await;
        }
        let _permit = self.memory(source.size()).await?;
        let (source, body) = read_part(source, part).await?;
        let hash = blocking(move || source.finish()).await?;
        let length = body.len();
        self.store.put(&key, PutPayload::from(body)).await.map_err(|e| self.failed("cannot upload", e))?;
        count(sent, length);
        Ok(hash)
    }

    /// A store answers only when what it took is durable.
    async fn flush(&self, _prefix: &str) -> Result<()> {
        Ok(())
    }

    async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        let got = async { self.store.get(&self.key(key)).await?.bytes().await }.await;
        match got {
            Ok(body) => Ok(Some(body)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("cannot read", e)),
        }
    }

    async fn fetch(&self, key: &str, offset: u64, size: u64, mut into: File) -> Result<Fetched> {
        let key = self.key(key);
        let end = offset + size;
        let starts = (0..size.div_ceil(PART)).map(|n| offset + n * PART);
        let mut bodies = stream::iter(starts)
            .map(|from| {
                let key = key.clone();
                self.range(key, from, (from + PART).min(end))
            })
            .buffered(RANGES_AHEAD);
        let mut hasher = blake3::Hasher::new();
        let mut left = size;
        while let Some(body) = bodies.next().await {
            let (body, permit) = body?;
            let body = match body {
                Ok(body) => body,
                Err(Error::NotFound { .. }) => return Ok(Fetched::Missing),
                // A range beyond the end of a shortened blob is refused in as many ways as there are stores.
                Err(e) => match self.store.head(&key).await {
                    Ok(meta) if meta.size < end => return Ok(Fetched::Short),
                    _ => return Err(self.failed("cannot read", e)),
                },
            };
            left = left.saturating_sub(body.len() as u64);
            (into, hasher) = blocking(move || {
                hasher.update(&body);
                into.write_all(&body).map_err(CheckpointError::not_restored)?;
                Ok((into, hasher))
            })
            .await?;
            drop(permit);
        }
        Ok(if left > 0 { Fetched::Short } else { Fetched::Whole(hasher.finalize().to_hex().to_string()) })
    }

    async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        let under = self.key(prefix);
        let listed: Result<Vec<_>, Error> = self.store.list(Some(&under)).try_collect().await;
        match listed {
            Ok(objects) => {
                Ok(objects.iter().filter_map(|object| object.location.filename().map(str::to_owned)).collect())
            }
            Err(e) => Err(self.failed("cannot list", e)),
        }
    }

    async fn delete(&self, keys: Vec<String>) -> Result<()> {
        let keys: Vec<Result<Key, Error>> = keys.iter().map(|key| Ok(self.key(key))).collect();
        let mut gone = self.store.delete_stream(stream::iter(keys).boxed());
        while let Some(result) = gone.next().await {
            match result {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(e) => return Err(self.failed("cannot delete", e)),
            }
        }
        Ok(())
    }

    /// Unfinished uploads of a machine that vanished: the bucket's lifecycle rule is the only one who can
    /// tell them from running ones.
    async fn sweep(&self) -> Result<()> {
        Ok(())
    }
}

/// Names what is to blame, so that a person changes the right thing: by the error's type as far as it tells, then
/// by the code that the store answered with, which `object_store` shows in its words only.
fn culprit_of(error: &Error) -> Culprit {
    if let Some(http) = source_of::<HttpError>(error)
        && !matches!(http.kind(), HttpErrorKind::Decode)
    {
        return Culprit::Endpoint;
    }
    let words = windfall_core::english::with_causes(error);
    let has = |codes: &[&str]| codes.iter().any(|code| words.contains(code));
    if has(&["AuthorizationHeaderMalformed", "PermanentRedirect", "redirect without LOCATION", "IllegalLocation"]) {
        return Culprit::Region;
    }
    if has(&["NoSuchBucket", "ContainerNotFound", "specified bucket does not exist"]) {
        return Culprit::Bucket;
    }
    if has(&FULL) {
        return Culprit::Full;
    }
    if matches!(error, Error::Unauthenticated { .. }) || has(&BAD_CREDENTIALS) || has(&["401 Unauthorized"]) {
        return Culprit::Credentials;
    }
    if matches!(error, Error::PermissionDenied { .. })
        || has(&["AccessDenied", "AuthorizationPermissionMismatch", "403 Forbidden"])
    {
        return Culprit::Permission;
    }
    match error {
        // An object of ours that is missing is told apart before; what is left is the bucket.
        Error::NotFound { .. } => Culprit::Bucket,
        _ if has(&["404 Not Found"]) => Culprit::Bucket,
        Error::NotImplemented { .. } | Error::NotSupported { .. } => Culprit::Feature,
        // A server that answers with 5xx, or not at all.
        _ if has(&["status code: 5", "error sending request", "tcp connect", "dns error", "timed out"]) => {
            Culprit::Endpoint
        }
        _ => Culprit::Other,
    }
}

const FULL: [&str; 6] =
    ["status code: 507", "XMinioStorageFull", "InsufficientStorage", "QuotaExceeded", "StorageQuota", "NoSpaceLeft"];
const BAD_CREDENTIALS: [&str; 9] = [
    "NotSignedUp",
    "AuthorizationFailure",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "AuthenticationFailed",
    "InvalidToken",
    "ExpiredToken",
    "169.254.169.254",
    "metadata.google",
];

/// The first error of that type below this one.
fn source_of<T: std::error::Error + 'static>(error: &Error) -> Option<&T> {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        if let Some(found) = cause.downcast_ref::<T>() {
            return Some(found);
        }
        next = cause.source();
    }
    None
}

pub(crate) fn explain(remote: &Remote, what: &str, error: Error) -> CheckpointError {
    let kind = remote.kind;
    let culprit = culprit_of(&error);
    let (reason, hint) = match culprit {
        Culprit::Region => {
            let region = if remote.region.is_empty() { "us-east-1, the default" } else { &remote.region };
            (format!("the bucket is not in region {region}"), "set AWS_REGION to the bucket's region".to_owned())
        }
        Culprit::Bucket => {
            let word = kind.bucket_word();
            (
                format!("there is no {word} {}", remote.bucket),
                format!("create the {word}, or correct its name in the store's address"),
            )
        }
        Culprit::Credentials => (
            "the credentials are missing or not accepted".to_owned(),
            format!("set {} in the job's environment", kind.credential_words()),
        ),
        Culprit::Permission => (
            "the credentials lack the permission".to_owned(),
            "grant read, write, list and delete on this prefix".to_owned(),
        ),
        Culprit::Endpoint => {
            let at = if remote.endpoint.is_empty() { "the provider's endpoint" } else { &remote.endpoint };
            (format!("nothing answers at {at}"), format!("check {} and the network", kind.endpoint_word()))
        }
        Culprit::Full => ("no space is left".to_owned(), "free some space there, or keep fewer checkpoints".to_owned()),
        Culprit::Feature | Culprit::Disk | Culprit::Other => {
            ("the store refused".to_owned(), "see the cause".to_owned())
        }
    };
    let what = format!("{what}: {reason}: {}", remote.label());
    CheckpointError::Store { what, culprit, hint, source: Box::new(error) }
}
