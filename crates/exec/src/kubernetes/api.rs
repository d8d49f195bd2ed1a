//! Talks to a cluster's API server: one request, one answer, and an error that says what to do. What is asked for is small and
//! fixed, so its types are our own (`objects`), and what is written is JSON (decision 40).

use super::access::{Access, NoAccess, SignIn};
use super::objects::{Listed, Status};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use reqwest::{Certificate, Client, Identity, Method, Proxy, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use windfall_core::english::with_causes;
use windfall_core::{Refusal, Span};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// An answer that takes longer does not come; a page of pods of a large cluster takes seconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// A token in a file is read again this often; kubelets replace them at four fifths of their time, which is ten minutes at the least.
const TOKEN_IS_GOOD_FOR: Duration = Duration::from_secs(60);
/// Objects in one answer.
const PAGE: usize = 500;
/// A list that changes too fast to be read in pages is begun anew so often.
const TRIES: usize = 3;
/// Whoever writes an object is its manager under this name.
const MANAGER: &str = "windfall";

/// What came of a request.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ApiError {
    #[error("{0}")]
    NoAccess(NoAccess),
    #[error("the API server at {server} does not answer: {why}")]
    Away { server: String, why: String },
    /// 401.
    #[error("the API server at {server} does not know who we are (401): the credentials are wrong or too old")]
    Unauthenticated { server: String },
    /// 403.
    #[error("not allowed: {said}")]
    Forbidden { said: String },
    /// 403 where a quota is the reason.
    #[error("beyond a quota: {said}")]
    Quota { said: String },
    /// 404.
    #[error("not there: {said}")]
    NotFound { said: String },
    /// 409.
    #[error("there already, or changed meanwhile: {said}")]
    Conflict { said: String },
    /// 410.
    #[error("too old to go on from: {said}")]
    Gone { said: String },
    /// 429, or busy for a moment.
    #[error("the API server is busy, ask again in {} s", after.as_secs())]
    Busy { after: Duration },
    /// 400 or 422.
    #[error("the cluster does not accept that: {said}")]
    Invalid { said: String },
    #[error("the API server answered {status}: {said}")]
    Failed { status: u16, said: String },
    #[error("the answer of the API server cannot be read: {why}")]
    Unreadable { why: String },
}

impl ApiError {
    /// What the brain can decide on; none where nobody knows whether it was done.
    pub fn refusal(&self) -> Option<Refusal> {
        Some(match self {
            ApiError::NoAccess(_) | ApiError::Unauthenticated { .. } | ApiError::Forbidden { .. } => Refusal::Auth,
            ApiError::Quota { .. } => Refusal::Quota,
            ApiError::NotFound { .. } | ApiError::Invalid { .. } => Refusal::Invalid,
            ApiError::Busy { after } => Refusal::Retry { after: Span(after.as_millis() as i64) },
            ApiError::Away { .. }
            | ApiError::Conflict { .. }
            | ApiError::Gone { .. }
            | ApiError::Failed { .. }
            | ApiError::Unreadable { .. } => return None,
        })
    }

    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            ApiError::NoAccess(no) => no.hint().to_owned(),
            ApiError::Away { server, .. } => {
                format!("`kubectl --server={server} version` as the server's user says the same")
            }
            ApiError::Unauthenticated { .. } => {
                "renew the token or the certificate of the kubeconfig's user".to_owned()
            }
            ApiError::Forbidden { .. } => "`windfall engines check` lists the rights that are missing".to_owned(),
            ApiError::Quota { .. } => "`kubectl describe quota` in that namespace shows it".to_owned(),
            _ => "`windfall engines check` says what it needs".to_owned(),
        }
    }
}

/// A cluster's API server.
pub(super) struct Api {
    client: Client,
    access: Access,
    token: Mutex<Option<(Instant, HeaderValue)>>,
}

impl Api {
    pub fn open(access: Access) -> Result<Api, NoAccess> {
        let broken =
            |what: &'static str| move |error: reqwest::Error| NoAccess::Broken { what, why: with_causes(&error) };
        // Another one that was installed before is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder().connect_timeout(CONNECT_WITHIN).timeout(ANSWER_WITHIN);
        client = client.redirect(reqwest::redirect::Policy::none());
        if let Some(authority) = &access.authority {
            let certificates = Certificate::from_pem_bundle(authority).map_err(broken("the authority"))?;
            client = client.tls_certs_only(certificates);
        }
        if access.is_unchecked {
            client = client.tls_danger_accept_invalid_certs(true);
        }
        if let SignIn::Certificate(pem) = &access.sign_in {
            client = client.identity(Identity::from_pem(pem).map_err(broken("the client certificate"))?);
        }
        if let Some(proxy) = &access.proxy {
            client = client.proxy(Proxy::all(proxy).map_err(broken("proxy-url"))?);
        }
        let client = client.build().map_err(broken("what it says of TLS"))?;
        Ok(Api { client, access, token: Mutex::default() })
    }

    pub fn server(&self) -> &str {
        &self.access.server
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        read(&self.ask(Method::GET, path, None).await?)
    }

    /// One object, or none where there is none of that name.
    pub async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, ApiError> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Every object of a kind, page by page. A list whose next page is void meanwhile (410) is begun anew.
    pub async fn list<T: DeserializeOwned>(&self, path: &str, selectors: &[(&str, &str)]) -> Result<Vec<T>, ApiError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.pages(path, selectors).await {
                Err(ApiError::Gone { .. }) if tries < TRIES => {}
                listed => return listed,
            }
        }
    }

    async fn pages<T: DeserializeOwned>(&self, path: &str, selectors: &[(&str, &str)]) -> Result<Vec<T>, ApiError> {
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let limit = PAGE.to_string();
            let mut query: Vec<(&str, &str)> = selectors.to_vec();
            query.push(("limit", &limit));
            if !next.is_empty() {
                query.push(("continue", &next));
            }
            let page: Listed<T> = self.get(&with_query(path, &query)).await?;
            all.extend(page.items.unwrap_or_default());
            next = page.metadata.next.unwrap_or_default();
            if next.is_empty() {
                return Ok(all);
            }
        }
    }

    pub async fn create<T: DeserializeOwned>(&self, path: &str, object: &Value) -> Result<T, ApiError> {
        read(&self.ask(Method::POST, path, Some(("application/json", object))).await?)
    }

    /// Changes what is named in `changes`, and nothing else.
    pub async fn merge(&self, path: &str, changes: &Value) -> Result<(), ApiError> {
        self.ask(Method::PATCH, path, Some(("application/merge-patch+json", changes))).await.map(|_| ())
    }

    /// Has an object be so, whether it was there or not (server-side apply).
    pub async fn apply(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        let path = with_query(path, &[("fieldManager", MANAGER), ("force", "true")]);
        self.ask(Method::PATCH, &path, Some(("application/apply-patch+yaml", object))).await.map(|_| ())
    }

    /// Deletes an object after everything that it owns; one that is not there is deleted.
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground" });
        match self.ask(Method::DELETE, path, Some(("application/json", &options))).await {
            Err(ApiError::NotFound { .. }) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> Result<Vec<u8>, ApiError> {
        let server = self.server();
        let away = |error: reqwest::Error| ApiError::Away {
            server: server.to_owned(),
            why: if error.is_timeout() { "it takes too long".to_owned() } else { with_causes(&error.without_url()) },
        };
        let mut request = self.client.request(method, format!("{server}{path}"));
        request = request.header(ACCEPT, "application/json").header(USER_AGENT, MANAGER);
        if let Some(token) = self.token().await? {
            request = request.header(AUTHORIZATION, token);
        }
        if let Some((kind, body)) = body {
            let body = serde_json::to_vec(body).expect("JSON has string keys");
            request = request.header(CONTENT_TYPE, kind).body(body);
        }
        let answer = request.send().await.map_err(away)?;
        let (status, after) = (answer.status(), retry_after(answer.headers().get(RETRY_AFTER)));
        let body = answer.bytes().await.map_err(away)?;
        if status.is_success() {
            return Ok(body.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            // A file may hold a newer one.
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
        Err(refused(status, after, &body, server))
    }

    /// What says who we are.
    async fn token(&self) -> Result<Option<HeaderValue>, ApiError> {
        let path = match &self.access.sign_in {
            SignIn::Nobody | SignIn::Certificate(_) => return Ok(None),
            SignIn::Token(token) => return bearer(token).map(Some),
            SignIn::TokenFile(path) => path,
        };
        let known = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, token)) = known.filter(|(at, _)| at.elapsed() < TOKEN_IS_GOOD_FOR) {
            return Ok(Some(token));
        }
        let unreadable = |error: std::io::Error| {
            ApiError::NoAccess(NoAccess::Unreadable { path: path.clone(), why: error.to_string() })
        };
        let token = bearer(&tokio::fs::read_to_string(path).await.map_err(unreadable)?)?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), token.clone()));
        Ok(Some(token))
    }
}

fn bearer(token: &str) -> Result<HeaderValue, ApiError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
        ApiError::NoAccess(NoAccess::Broken { what: "the token", why: "it is not one line of text".to_owned() })
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn retry_after(header: Option<&HeaderValue>) -> Option<Duration> {
    header?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::Unreadable { why: error.to_string() })
}

/// What an answer that is none means.
fn refused(status: StatusCode, after: Option<Duration>, body: &[u8], server: &str) -> ApiError {
    let told: Option<Status> = serde_json::from_slice(body).ok();
    let said = told.and_then(|status| status.message).unwrap_or_else(|| {
        let text = String::from_utf8_lossy(body);
        text.lines().next().unwrap_or_default().chars().take(200).collect()
    });
    match status.as_u16() {
        401 => ApiError::Unauthenticated { server: server.to_owned() },
        403 if said.contains("exceeded quota") => ApiError::Quota { said },
        403 => ApiError::Forbidden { said },
        404 => ApiError::NotFound { said },
        409 => ApiError::Conflict { said },
        410 => ApiError::Gone { said },
        429 => ApiError::Busy { after: after.unwrap_or(Duration::from_secs(1)) },
        400 | 422 => ApiError::Invalid { said },
        503 | 504 if after.is_some() => ApiError::Busy { after: after.unwrap_or_default() },
        status => ApiError::Failed { status, said },
    }
}

/// A path with a query, each part as it may stand in an address.
fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let escaped = |text: &str| {
        let byte = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
        text.bytes().map(byte).collect::<String>()
    };
    let pairs: Vec<String> = query.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use super::super::objects::Pod;
    use super::*;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// A server that gives these answers, one a connection, and what it was asked.
    async fn server(answers: Vec<&'static str>) -> (Api, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&asked);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let (mut text, mut piece) = (String::new(), [0; 4_096]);
                while !text.contains("\r\n\r\n") {
                    let count = stream.read(&mut piece).await.expect("a request");
                    text.push_str(&String::from_utf8_lossy(&piece[..count]));
                }
                heard.lock().expect("free").push(text);
                let (status, body) = answer.split_once('|').expect("a status and a body");
                let said =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                stream.write_all(said.as_bytes()).await.expect("answered");
            }
        });
        let access = Access {
            server: format!("http://127.0.0.1:{port}"),
            authority: None,
            is_unchecked: false,
            proxy: None,
            sign_in: SignIn::Token("hush".to_owned()),
            namespace: "ml".to_owned(),
        };
        (Api::open(access).expect("opened"), asked)
    }

    #[tokio::test]
    async fn a_list_is_read_page_by_page_and_anew_where_its_next_page_is_void() {
        let (first, rest) = (
            r#"200 OK|{"metadata":{"continue":"a b"},"items":[{"metadata":{"name":"one"}}]}"#,
            r#"200 OK|{"metadata":{},"items":[{"metadata":{"name":"two"}}]}"#,
        );
        let gone = r#"410 Gone|{"kind":"Status","message":"The provided continue parameter is too old"}"#;
        let (api, asked) = server(vec![first, gone, first, rest]).await;
        let pods: Vec<Pod> = api.list("/api/v1/pods", &[("labelSelector", "a=b,c")]).await.expect("listed");
        let names: Vec<&str> = pods.iter().map(|pod| pod.metadata.name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        let asked = asked.lock().expect("free").clone();
        assert!(asked[0].starts_with("GET /api/v1/pods?labelSelector=a%3Db%2Cc&limit=500 HTTP/1.1"), "{}", asked[0]);
        assert!(asked[3].contains("continue=a%20b") && asked[3].contains("authorization: Bearer hush"), "{}", asked[3]);
    }

    #[tokio::test]
    async fn every_refusal_is_told_apart_and_says_what_to_do() {
        let answers = vec![
            r#"401 Unauthorized|{"message":"Unauthorized"}"#,
            r#"403 Forbidden|{"message":"pods is forbidden: User \"ada\" cannot list resource \"pods\""}"#,
            r#"403 Forbidden|{"message":"jobs is forbidden: exceeded quota: q, requested: count/jobs.batch=1"}"#,
            r#"409 Conflict|{"message":"already exists"}"#,
            "429 Too Many Requests\r\nretry-after: 7|",
            r#"422 Unprocessable Entity|{"message":"spec.template: bad"}"#,
            "500 Internal Server Error|oh no\nmore",
            "200 OK|not JSON",
        ];
        let count = answers.len();
        let (api, _) = server(answers).await;
        let mut said = Vec::new();
        for _ in 0..count {
            let error = api.get::<Pod>("/x").await.expect_err("refused");
            assert!(!error.hint().is_empty() && !error.to_string().contains("hush"));
            said.push((error.refusal(), error.to_string()));
        }
        let refusals: Vec<Option<Refusal>> = said.iter().map(|(refusal, _)| *refusal).collect();
        let (auth, retry) = (Some(Refusal::Auth), Some(Refusal::Retry { after: Span::seconds(7) }));
        assert_eq!(refusals, [auth, auth, Some(Refusal::Quota), None, retry, Some(Refusal::Invalid), None, None]);
        assert!(said[1].1.contains("cannot list resource"), "{said:?}");
        assert_eq!(said[6].1, "the API server answered 500: oh no");
        // Nobody listens any more.
        let away = api.get::<Pod>("/x").await.expect_err("away");
        assert!(matches!(away, ApiError::Away { .. }) && away.to_string().contains("does not answer"), "{away}");
    }

    #[tokio::test]
    async fn what_is_not_there_is_none_and_is_deleted() {
        let gone = r#"404 Not Found|{"message":"jobs.batch \"x\" not found"}"#;
        let (api, asked) = server(vec![gone, gone]).await;
        assert!(api.find::<Pod>("/x").await.expect("answered").is_none());
        api.delete("/x").await.expect("it is not there");
        assert!(asked.lock().expect("free")[1].starts_with("DELETE /x "));
    }
}
