//! Where a cluster is and who we are there, by the chain that every client of Kubernetes knows: a kubeconfig that was named, those of
//! `KUBECONFIG`, the one of the home directory, or the service account of the pod that this runs in. What is found is kept in memory
//! alone, and never shown.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where pods find their service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The namespace of a context that names none.
const USUAL_NAMESPACE: &str = "default";

/// Why a cluster cannot be reached with what is configured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAccess {
    #[error("no cluster is known: there is no kubeconfig, and this is no pod")]
    Nowhere,
    #[error("{} cannot be read: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("{} is no kubeconfig: {why}", path.display())]
    NotOne { path: PathBuf, why: String },
    #[error("no kubeconfig has a {kind} named {name}")]
    Missing { kind: &'static str, name: String },
    #[error("no kubeconfig says which context is the current one")]
    NoContext,
    #[error("user {user} of the kubeconfig signs in by {how}, which is not supported")]
    NotSupported { user: String, how: &'static str },
    #[error("{what} of the kubeconfig cannot be used: {why}")]
    Broken { what: &'static str, why: String },
}

impl NoAccess {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            NoAccess::Nowhere | NoAccess::NoContext => {
                "say kubeconfig and context below [kubernetes], or set KUBECONFIG where the server starts"
            }
            NoAccess::Unreadable { .. } => "the server's user must be able to read it",
            NoAccess::NotOne { .. } | NoAccess::Broken { .. } => "see what `kubectl config view` says of it",
            NoAccess::Missing { .. } => "`kubectl config get-contexts` lists what there is",
            NoAccess::NotSupported { .. } => {
                "use a service account's token: kubectl create token NAME --duration=8760h, as `token:` of a user"
            }
        }
    }
}

/// How we say who we are.
#[derive(Clone)]
pub(super) enum SignIn {
    Nobody,
    Token(String),
    /// Read again now and then: whoever wrote it replaces it before it is void.
    TokenFile(PathBuf),
    /// A certificate and its key, as PEM.
    Certificate(Vec<u8>),
}

/// A cluster, and who we are there.
#[derive(Clone)]
pub(super) struct Access {
    /// `https://host:port`, without a slash at its end.
    pub server: String,
    /// Who vouches for the server, as PEM; none for whoever vouches for servers here.
    pub authority: Option<Vec<u8>>,
    /// Whoever answers is taken for the server.
    pub is_unchecked: bool,
    pub proxy: Option<String>,
    pub sign_in: SignIn,
    pub namespace: String,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("server", &self.server)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct File {
    current_context: Option<String>,
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
}

#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    #[serde(default)]
    cluster: Cluster,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    #[serde(default)]
    user: User,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    #[serde(rename = "client-certificate")]
    certificate: Option<PathBuf>,
    #[serde(rename = "client-certificate-data")]
    certificate_data: Option<String>,
    #[serde(rename = "client-key")]
    key: Option<PathBuf>,
    #[serde(rename = "client-key-data")]
    key_data: Option<String>,
    username: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
    #[serde(rename = "auth-provider")]
    auth_provider: Option<serde::de::IgnoredAny>,
    #[serde(rename = "as")]
    acts_as: Option<String>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    #[serde(default)]
    context: Context,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
    namespace: Option<String>,
}

/// Looks the cluster up. What is named counts more than what is usual.
pub(super) fn find(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Access, NoAccess> {
    let files = match kubeconfig {
        Some(named) => vec![named.to_owned()],
        None => usual_files(),
    };
    if files.is_empty() {
        return in_pod(Path::new(SERVICE_ACCOUNT), |name| std::env::var(name).ok());
    }
    of_files(&files, context)
}

fn usual_files() -> Vec<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    if let Some(named) = named {
        return std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
    }
    let own = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    own.filter(|path| path.is_file()).into_iter().collect()
}

/// The service account of the pod that this runs in.
fn in_pod(folder: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Access, NoAccess> {
    let token = folder.join("token");
    let (Some(host), true) = (variable("KUBERNETES_SERVICE_HOST"), token.is_file()) else {
        return Err(NoAccess::Nowhere);
    };
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let namespace = std::fs::read_to_string(folder.join("namespace")).unwrap_or_default();
    let namespace = namespace.trim();
    Ok(Access {
        server: format!("https://{host}:{port}"),
        authority: Some(read(&folder.join("ca.crt"))?),
        is_unchecked: false,
        proxy: None,
        sign_in: SignIn::TokenFile(token),
        namespace: if namespace.is_empty() { USUAL_NAMESPACE } else { namespace }.to_owned(),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, NoAccess> {
    std::fs::read(path).map_err(|error| NoAccess::Unreadable { path: path.to_owned(), why: error.to_string() })
}

/// Several files are one: of each name the first counts, and a path in a file is relative to that file.
fn of_files(files: &[PathBuf], context: Option<&str>) -> Result<Access, NoAccess> {
    let mut whole = File::default();
    for path in files {
        let file = of_text(&read(path)?, path)?;
        whole.current_context = whole.current_context.or(file.current_context.filter(|name| !name.is_empty()));
        whole.clusters.get_or_insert_default().extend(file.clusters.unwrap_or_default());
        whole.users.get_or_insert_default().extend(file.users.unwrap_or_default());
        whole.contexts.get_or_insert_default().extend(file.contexts.unwrap_or_default());
    }
    let name = context.map(str::to_owned).or(whole.current_context).ok_or(NoAccess::NoContext)?;
    let missing = |kind: &'static str, name: &str| NoAccess::Missing { kind, name: name.to_owned() };
    let contexts = whole.contexts.unwrap_or_default();
    let found = contexts.into_iter().find(|one| one.name == name).ok_or_else(|| missing("context", &name))?.context;
    let clusters = whole.clusters.unwrap_or_default();
    let cluster = clusters.into_iter().find(|one| one.name == found.cluster);
    let cluster = cluster.ok_or_else(|| missing("cluster", &found.cluster))?.cluster;
    let user = match found.user.as_str() {
        "" => User::default(),
        name => {
            let users = whole.users.unwrap_or_default();
            users.into_iter().find(|one| one.name == name).ok_or_else(|| missing("user", name))?.user
        }
    };
    if cluster.tls_server_name.is_some() {
        return Err(NoAccess::NotSupported { user: found.user, how: "a cluster with another tls-server-name" });
    }
    let authority = either(cluster.certificate_authority_data, cluster.certificate_authority, "the authority")?;
    Ok(Access {
        server: cluster.server.trim_end_matches('/').to_owned(),
        authority,
        is_unchecked: cluster.insecure_skip_tls_verify,
        proxy: cluster.proxy_url.filter(|url| !url.is_empty()),
        sign_in: signs_in(&found.user, user)?,
        namespace: found.namespace.filter(|name| !name.is_empty()).unwrap_or_else(|| USUAL_NAMESPACE.to_owned()),
    })
}

fn of_text(text: &[u8], path: &Path) -> Result<File, NoAccess> {
    // What the parser says may quote the file, and with it a secret: only where it stopped is told.
    let not_one = |error: serde_saphyr::Error| {
        let place = error.location().map_or(String::new(), |at| format!(" at line {}", at.line()));
        NoAccess::NotOne { path: path.to_owned(), why: format!("it is not what a kubeconfig should be{place}") }
    };
    let mut file: File = serde_saphyr::from_slice(text).map_err(not_one)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let from_here = |path: &mut Option<PathBuf>| *path = path.take().map(|path| folder.join(path));
    file.clusters.iter_mut().flatten().for_each(|one| from_here(&mut one.cluster.certificate_authority));
    for NamedUser { user, .. } in file.users.iter_mut().flatten() {
        [&mut user.token_file, &mut user.certificate, &mut user.key].into_iter().for_each(from_here);
    }
    Ok(file)
}

/// What stands in the kubeconfig itself counts more than a file that it names.
fn either(data: Option<String>, path: Option<PathBuf>, what: &'static str) -> Result<Option<Vec<u8>>, NoAccess> {
    match (data.filter(|data| !data.is_empty()), path.filter(|path| !path.as_os_str().is_empty())) {
        (Some(data), _) => {
            let decoded = STANDARD.decode(data.trim());
            decoded.map(Some).map_err(|_| NoAccess::Broken { what, why: "it is not base64".to_owned() })
        }
        (None, Some(path)) => read(&path).map(Some),
        (None, None) => Ok(None),
    }
}

fn signs_in(name: &str, user: User) -> Result<SignIn, NoAccess> {
    let not_supported = |how: &'static str| Err(NoAccess::NotSupported { user: name.to_owned(), how });
    let token_file = user.token_file.filter(|path| !path.as_os_str().is_empty());
    if user.acts_as.is_some() {
        return not_supported("acting as somebody else");
    }
    let certificate = either(user.certificate_data, user.certificate, "the client certificate")?;
    let key = either(user.key_data, user.key, "the client key")?;
    match (token_file, user.token.filter(|token| !token.is_empty()), certificate.zip(key)) {
        (Some(path), ..) => Ok(SignIn::TokenFile(path)),
        (None, Some(token), _) => Ok(SignIn::Token(token)),
        (None, None, Some((mut certificate, key))) => {
            certificate.push(b'\n');
            certificate.extend(key);
            Ok(SignIn::Certificate(certificate))
        }
        (None, None, None) if user.exec.is_some() => not_supported("a program (exec)"),
        (None, None, None) if user.auth_provider.is_some() => not_supported("an auth-provider"),
        (None, None, None) if user.username.is_some() => not_supported("a password"),
        (None, None, None) => Ok(SignIn::Nobody),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
apiVersion: v1
kind: Config
current-context: lab
clusters:
  - { name: c, cluster: { server: 'https://10.0.0.1:6443/', certificate-authority: ca.crt } }
  - { name: open, cluster: { server: 'https://10.0.0.2', insecure-skip-tls-verify: true } }
users:
  - { name: token, user: { token: hush } }
  - { name: files, user: { client-certificate: c.crt, client-key-data: a2V5 } }
  - { name: cloud, user: { exec: { command: get-token, args: [x] } } }
contexts:
  - { name: lab, context: { cluster: c, user: token, namespace: ml } }
  - { name: certificates, context: { cluster: open, user: files } }
  - { name: cloud, context: { cluster: open, user: cloud } }
  - { name: nobody, context: { cluster: gone, user: token } }
";

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [("config", CONFIG), ("ca.crt", "authority"), ("c.crt", "certificate")] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        folder
    }

    #[test]
    fn a_context_says_where_who_and_in_which_namespace() {
        let folder = folder();
        let found = |context: Option<&str>| of_files(&[folder.path().join("config")], context);
        let lab = found(None).expect("the current one");
        assert_eq!((lab.server.as_str(), lab.namespace.as_str()), ("https://10.0.0.1:6443", "ml"));
        assert_eq!(lab.authority.as_deref(), Some(b"authority".as_slice()), "relative to the file");
        assert!(matches!(&lab.sign_in, SignIn::Token(token) if token == "hush"));
        assert!(!format!("{lab:?}").contains("hush"), "it is never shown");
        let other = found(Some("certificates")).expect("there is one");
        assert_eq!((other.is_unchecked, other.namespace.as_str()), (true, "default"));
        assert!(matches!(&other.sign_in, SignIn::Certificate(pem) if pem == b"certificate\nkey"));
        let cloud = found(Some("cloud")).expect_err("it is a program");
        assert!(matches!(cloud, NoAccess::NotSupported { how: "a program (exec)", .. }), "{cloud}");
        assert!(cloud.hint().contains("kubectl create token"));
        assert_eq!(
            found(Some("nobody")).expect_err("no cluster"),
            NoAccess::Missing { kind: "cluster", name: "gone".to_owned() }
        );
        assert!(matches!(found(Some("lap")), Err(NoAccess::Missing { kind: "context", .. })));
    }

    #[test]
    fn of_several_files_the_first_says_what_a_name_is() {
        let folder = folder();
        let other = folder.path().join("other");
        let text = "current-context: mine\nusers:\n  - { name: token, user: { token: other } }\ncontexts:\n  - { name: mine, context: { cluster: open, user: token } }\n";
        std::fs::write(&other, text).expect("written");
        let both = of_files(&[other.clone(), folder.path().join("config")], None).expect("together");
        assert_eq!(both.server, "https://10.0.0.2");
        assert!(matches!(both.sign_in, SignIn::Token(token) if token == "other"));
        assert!(matches!(of_files(&[other], None), Err(NoAccess::Missing { kind: "cluster", .. })));
    }

    #[test]
    fn what_is_no_kubeconfig_is_said_without_what_is_in_it() {
        let folder = folder();
        let path = folder.path().join("bad");
        std::fs::write(&path, "users: hush-hush\n").expect("written");
        let said = of_files(&[path], None).expect_err("it is none").to_string();
        assert!(said.contains("is no kubeconfig") && !said.contains("hush"), "{said}");
        let gone = of_files(&[folder.path().join("gone")], None);
        assert!(matches!(gone, Err(NoAccess::Unreadable { .. })));
    }

    #[test]
    fn in_a_pod_it_is_the_service_account() {
        let folder = folder();
        let variable = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "fd00::1".to_owned());
        assert_eq!(in_pod(folder.path(), variable).expect_err("no token"), NoAccess::Nowhere);
        for (name, text) in [("token", "hush"), ("namespace", "jobs\n")] {
            std::fs::write(folder.path().join(name), text).expect("written");
        }
        let access = in_pod(folder.path(), variable).expect("a service account");
        assert_eq!((access.server.as_str(), access.namespace.as_str()), ("https://[fd00::1]:443", "jobs"));
        assert!(matches!(access.sign_in, SignIn::TokenFile(_)));
        assert_eq!(in_pod(folder.path(), |_| None).expect_err("no pod"), NoAccess::Nowhere);
    }
}
