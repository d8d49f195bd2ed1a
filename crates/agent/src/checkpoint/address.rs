//! Where a store is: reads its address and the job's environment, and connects. Only the environment that
//! is passed in counts: the agent's own belongs to whoever runs the agent, not to the job.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};
use url::Url;

use super::error::{CheckpointError, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    S3,
    Gcs,
    Azure,
}

impl StoreKind {
    pub fn bucket_word(self) -> &'static str {
        match self {
            Self::S3 | Self::Gcs => "bucket",
            Self::Azure => "container",
        }
    }

    /// The variables that hold credentials, for hints.
    pub fn credential_words(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            Self::Gcs => "GOOGLE_APPLICATION_CREDENTIALS",
            Self::Azure => "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        }
    }

    pub fn endpoint_word(self) -> &'static str {
        match self {
            Self::S3 => "AWS_ENDPOINT_URL",
            Self::Gcs => "GOOGLE_BASE_URL",
            Self::Azure => "AZURE_STORAGE_ENDPOINT",
        }
    }
}

/// How long to hold out against a store that does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// For the work itself.
    Work,
    /// For the probe: a person or a planner is waiting for the answer.
    Probe,
}

/// A store's address, read but not yet connected to.
#[derive(Debug, Clone)]
pub(crate) enum StoreAddress {
    Directory(PathBuf),
    Relay(Relay),
    Remote(Remote),
}

/// A directory on the server's machine, behind a socket on this one.
#[derive(Clone)]
pub(crate) struct Relay {
    pub socket: PathBuf,
    /// What is said first on a connection. It may be what lets us in, so it is never shown.
    pub opening: String,
}

impl Relay {
    /// What a person can do while the server is out of reach.
    pub const HINT: &str = "it is tried again; see the agent's connection to the server";

    /// Reads `<socket>#<opening>`. A folder's name may hold a '#', an opening does not.
    fn read(text: &str) -> Result<Self> {
        let hint = "write it as relay:/path/of/a/socket#opening";
        let (socket, opening) =
            text.rsplit_once('#').ok_or_else(|| bad("a relay's address has no opening".into(), hint))?;
        if opening.is_empty() || opening.chars().any(char::is_control) {
            return Err(bad("a relay's opening is not one line of text".into(), hint));
        }
        let socket = PathBuf::from(socket);
        if !socket.is_absolute() || socket.file_name().is_none() {
            return Err(bad(format!("not the absolute path of a socket: {}", socket.display()), hint));
        }
        Ok(Self { socket, opening: opening.to_owned() })
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("socket", &self.socket).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Remote {
    pub kind: StoreKind,
    pub bucket: String,
    pub prefix: String,
    /// As the environment says it; empty means the provider's own.
    pub endpoint: String,
    pub region: String,
    env: Vec<(String, String)>,
}

impl StoreAddress {
    pub fn read(address: &str, env: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        if let Some(relay) = address.strip_prefix("relay:") {
            return Relay::read(relay).map(Self::Relay);
        }
        if !address.contains("://") {
            return directory(Path::new(address));
        }
        let url = Url::parse(address)
            .map_err(|e| bad(format!("{e}: {address}"), "write it as s3://bucket/prefix, gs://…, az://… or a path"))?;
        let kind = match url.scheme() {
            "file" => {
                let path = url
                    .to_file_path()
                    .map_err(|()| bad(format!("not a path: {address}"), "write it as file:///path"))?;
                return directory(&path);
            }
            "s3" | "s3a" => StoreKind::S3,
            "gs" => StoreKind::Gcs,
            "az" | "azure" | "abfs" | "abfss" => StoreKind::Azure,
            other => {
                return Err(bad(
                    format!("unknown kind of store: {other}"),
                    "known are s3, gs, az, file and plain paths",
                ));
            }
        };
        let bucket = url.host_str().unwrap_or_default().to_owned();
        if bucket.is_empty() {
            return Err(bad(format!("no {} in: {address}", kind.bucket_word()), "write it as s3://bucket/prefix"));
        }
        let prefix = url.path().trim_matches('/').to_owned();
        Remote::read(kind, bucket, prefix, env).map(Self::Remote)
    }
}

/// What stays the same about a store from one stint to the next: a relay's socket and opening do not.
pub(crate) fn store_identity(address: &str) -> &str {
    if address.starts_with("relay:") { "relay:" } else { address }
}

fn directory(path: &Path) -> Result<StoreAddress> {
    if path.as_os_str().is_empty() {
        return Err(bad("the address is empty".into(), "name a directory or a bucket"));
    }
    let absolute = std::path::absolute(path).map_err(CheckpointError::local("cannot resolve", path))?;
    Ok(StoreAddress::Directory(absolute))
}

fn bad(what: String, hint: &str) -> CheckpointError {
    CheckpointError::Address { what, hint: hint.into() }
}

/// Keys, tokens and regions travel in headers, and the client panics on what no header can hold.
fn check_printable(key: &str, value: &str) -> Result<()> {
    match value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        true => Ok(()),
        // The value may be a secret, so it is not shown.
        false => Err(bad(
            format!("{key} holds a line break or another character that cannot be sent"),
            &format!("set {key} again, in one line of plain characters"),
        )),
    }
}

impl Remote {
    fn read(
        kind: StoreKind,
        bucket: String,
        prefix: String,
        env: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let mut settings = Vec::new();
        let (mut endpoint, mut region) = (String::new(), String::new());
        for (key, value) in env {
            if value.is_empty() {
                continue;
            }
            match (kind, key.as_str()) {
                (StoreKind::S3, "AWS_ENDPOINT_URL_S3") => endpoint.clone_from(&value),
                (StoreKind::S3, "AWS_ENDPOINT_URL" | "AWS_ENDPOINT") if endpoint.is_empty() => {
                    endpoint.clone_from(&value)
                }
                (StoreKind::S3, "AWS_REGION") => region.clone_from(&value),
                (StoreKind::S3, "AWS_DEFAULT_REGION") if region.is_empty() => region.clone_from(&value),
                (StoreKind::Gcs, "GOOGLE_BASE_URL") => endpoint.clone_from(&value),
                // What Google's own libraries read for an emulator, which takes no credentials.
                (StoreKind::Gcs, "STORAGE_EMULATOR_HOST") if endpoint.is_empty() => {
                    endpoint = if value.contains("://") { value.clone() } else { format!("http://{value}") };
                    settings.push(("GOOGLE_BASE_URL".into(), endpoint.clone()));
                    // Not SKIP_SIGNATURE: object_store 0.14 asks the metadata server for a token all the same.
                    settings.push(("GOOGLE_BEARER_TOKEN".into(), "emulator".into()));
                }
                (StoreKind::Azure, "AZURE_STORAGE_ENDPOINT" | "AZURE_ENDPOINT") => endpoint.clone_from(&value),
                (StoreKind::Azure, "AZURE_STORAGE_CONNECTION_STRING") => {
                    for (key, value) in connection_string(&value) {
                        if key == "AZURE_STORAGE_ENDPOINT" {
                            endpoint.clone_from(&value);
                        }
                        settings.push((key.into(), value));
                    }
                }
                _ => {}
            }
            let ours = match kind {
                StoreKind::S3 => "AWS_",
                StoreKind::Gcs => "GOOGLE_",
                StoreKind::Azure => "AZURE_",
            };
            if key.starts_with(ours) {
                check_printable(&key, &value)?;
                settings.push((key, value));
            }
        }
        let remote = Self { kind, bucket, prefix, endpoint, region, env: settings };
        remote.check_endpoint()?;
        if remote.endpoint.starts_with("http://") && !remote.is_loopback() && !remote.says_http() {
            return Err(bad(
                format!("the endpoint is not encrypted and not on this machine: {}", remote.endpoint),
                "use https, or set AWS_ALLOW_HTTP=true (AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP)",
            ));
        }
        Ok(remote)
    }

    /// The client that `object_store` builds from an address without a scheme panics at its first request.
    fn check_endpoint(&self) -> Result<()> {
        if self.endpoint.is_empty() {
            return Ok(());
        }
        let parsed = Url::parse(&self.endpoint);
        let usable = parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        if usable && self.endpoint.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(());
        }
        let word = self.kind.endpoint_word();
        Err(bad(
            format!("{word} is not an address of the web: {}", self.endpoint),
            &format!("write {word} with its scheme, as in https://{}", self.endpoint.trim_start_matches("//")),
        ))
    }

    /// The address a person would recognise.
    pub fn label(&self) -> String {
        let scheme = match self.kind {
            StoreKind::S3 => "s3",
            StoreKind::Gcs => "gs",
            StoreKind::Azure => "az",
        };
        let at = if self.endpoint.is_empty() { String::new() } else { format!(" at {}", self.endpoint) };
        format!("{scheme}://{}{}{}{at}", self.bucket, if self.prefix.is_empty() { "" } else { "/" }, self.prefix)
    }

    fn says_http(&self) -> bool {
        self.env.iter().any(|(key, value)| key.ends_with("_ALLOW_HTTP") && value.eq_ignore_ascii_case("true"))
    }

    fn is_loopback(&self) -> bool {
        let Ok(url) = Url::parse(&self.endpoint) else { return false };
        match url.host() {
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            Some(url::Host::Domain(name)) => name == "localhost",
            None => false,
        }
    }

    pub fn connect(&self, patience: Patience) -> Result<Arc<dyn ObjectStore>> {
        // Fails only when one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (connect, request, retries, retry_within) = match patience {
            // The mover tries again by itself, and says so; here only short faults are bridged.
            Patience::Work => (5, 120, 4, 30),
            Patience::Probe => (3, 5, 1, 4),
        };
        let client = ClientOptions::new()
            .with_connect_timeout(Duration::from_secs(connect))
            .with_timeout(Duration::from_secs(request))
            .with_allow_http(self.is_loopback() || self.says_http());
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: retries,
            retry_timeout: Duration::from_secs(retry_within),
        };
        let wrong = |e: object_store::Error| {
            bad(format!("{e}"), &format!("check {} and {}", self.kind.credential_words(), self.kind.endpoint_word()))
        };
        let settings = self.env.iter().map(|(key, value)| (key.to_ascii_lowercase(), value));
        Ok(match self.kind {
            StoreKind::S3 => {
                let mut builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
                for (key, value) in settings {
                    if let Ok(key) = key.parse::<AmazonS3ConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.with_bucket_name(&self.bucket).build().map_err(wrong)?)
            }
            StoreKind::Gcs => {
                let mut builder = GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
                for (key, value) in settings {
                    if let Ok(key) = key.parse::<GoogleConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.with_bucket_name(&self.bucket).build().map_err(wrong)?)
            }
            StoreKind::Azure => {
                let mut builder = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
                for (key, value) in settings {
                    if let Ok(key) = key.parse::<AzureConfigKey>() {
                        builder = builder.with_config(key, value);
                    }
                }
                Arc::new(builder.with_container_name(&self.bucket).build().map_err(wrong)?)
            }
        })
    }
}

/// The parts of an Azure connection string, as the variables that stand for them.
fn connection_string(text: &str) -> impl Iterator<Item = (&'static str, String)> + '_ {
    text.split(';').filter_map(|part| {
        let (key, value) = part.split_once('=')?;
        let key = match key {
            "AccountName" => "AZURE_STORAGE_ACCOUNT_NAME",
            "AccountKey" => "AZURE_STORAGE_ACCOUNT_KEY",
            "BlobEndpoint" => "AZURE_STORAGE_ENDPOINT",
            "SharedAccessSignature" => "AZURE_STORAGE_SAS_KEY",
            _ => return None,
        };
        Some((key, value.to_owned()))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::*;

    fn remote(address: &str, env: &[(&str, &str)]) -> Result<Remote> {
        let env = env.iter().map(|(k, v)| (k.to_string(), v.to_string()));
        match StoreAddress::read(address, env)? {
            StoreAddress::Remote(remote) => Ok(remote),
            other => panic!("not a remote store: {other:?}"),
        }
    }

    #[test]
    fn an_address_is_read_with_its_endpoint() {
        let s3 =
            remote("s3://b/some/prefix/", &[("AWS_ENDPOINT_URL", "http://127.0.0.1:1"), ("AWS_REGION", "eu-west-1")])
                .unwrap();
        assert_eq!(s3.label(), "s3://b/some/prefix at http://127.0.0.1:1");
        assert_eq!(s3.region, "eu-west-1");
        let azure = "BlobEndpoint=http://127.0.0.1:2/acc;AccountName=acc;AccountKey=a2V5";
        assert_eq!(
            remote("az://c", &[("AZURE_STORAGE_CONNECTION_STRING", azure)]).unwrap().endpoint,
            "http://127.0.0.1:2/acc"
        );
    }

    #[test]
    fn a_plain_path_and_a_file_address_are_directories() {
        for address in ["/tmp/x", "file:///tmp/x"] {
            assert!(
                matches!(StoreAddress::read(address, []).unwrap(), StoreAddress::Directory(path) if path == Path::new("/tmp/x"))
            );
        }
    }

    #[test]
    fn a_relay_is_a_socket_and_an_opening_which_is_never_shown() {
        let read = StoreAddress::read("relay:/run/a#b/node.sock#store 7 hush", []).unwrap();
        assert!(!format!("{read:?}").contains("hush"), "{read:?}");
        let StoreAddress::Relay(relay) = read else { panic!("not a relay: {read:?}") };
        assert_eq!((relay.socket.as_path(), relay.opening.as_str()), (Path::new("/run/a#b/node.sock"), "store 7 hush"));
        for address in ["relay:", "relay:/a", "relay:/a#", "relay:a#x", "relay:#x", "relay:/#x", "relay:/a#x\ny"] {
            assert!(matches!(StoreAddress::read(address, []), Err(CheckpointError::Address { .. })), "{address}");
        }
    }

    #[test]
    fn an_open_endpoint_on_the_network_is_refused() {
        let error = remote("s3://b", &[("AWS_ENDPOINT_URL", "http://10.0.0.1:9000")]).unwrap_err();
        assert!(error.hint().unwrap().contains("AWS_ALLOW_HTTP"));
        assert!(remote("s3://b", &[("AWS_ENDPOINT_URL", "http://10.0.0.1:9000"), ("AWS_ALLOW_HTTP", "true")]).is_ok());
    }

    #[test]
    fn an_endpoint_without_a_scheme_is_refused_with_the_variable_and_a_hint() {
        let cases = [
            ("s3://b", "AWS_ENDPOINT_URL", "127.0.0.1:9000"),
            ("s3://b", "AWS_ENDPOINT_URL", "localhost:9000"),
            ("s3://b", "AWS_ENDPOINT_URL", "http://"),
            ("s3://b", "AWS_ENDPOINT_URL", "http://a b"),
            ("s3://b", "AWS_ENDPOINT_URL", "ftp://minio:9000"),
            ("gs://b", "GOOGLE_BASE_URL", "minio"),
            ("az://b", "AZURE_STORAGE_ENDPOINT", "minio/account"),
        ];
        for (address, variable, value) in cases {
            let error = remote(address, &[(variable, value)]).unwrap_err();
            assert!(error.to_string().contains(variable), "{error}");
            assert!(error.hint().unwrap().contains("https://"), "{error:?}");
        }
    }

    #[test]
    fn a_setting_that_cannot_be_sent_is_refused_without_showing_it() {
        for key in ["AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"] {
            for value in ["hush\n", "hu\u{1}sh", "hüsh"] {
                let error = remote("s3://b", &[(key, value)]).unwrap_err();
                assert!(error.to_string().contains(key) && !error.to_string().contains("sh"), "{error}");
                assert!(error.hint().unwrap().contains(key));
            }
        }
    }

    #[test]
    fn an_unknown_scheme_names_the_known_ones() {
        assert!(remote("ftp://b", &[]).unwrap_err().hint().unwrap().contains("s3"));
    }
}
