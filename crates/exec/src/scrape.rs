//! What an exporter of metrics answers. One question, one answer, no more than it may be long.

use std::time::Duration;

/// Eight GPUs have some forty kilobytes; a rack's exporter has megabytes.
const LONGEST: usize = 32 << 20;
const LIMIT: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum NotScraped {
    #[error("{url} is not reached")]
    Away { url: String, source: reqwest::Error },
    #[error("{url} answers {status}")]
    Refused { url: String, status: u16 },
    #[error("{url} answers more than {} MB", LONGEST >> 20)]
    TooLong { url: String },
}

/// Asks an exporter for its metrics. Redirects are not followed.
pub async fn scrape(url: &str) -> Result<String, NotScraped> {
    let away = |source: reqwest::Error| NotScraped::Away { url: url.to_owned(), source: source.without_url() };
    // The process's choice of cryptography; where there is one already, that holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(LIMIT).redirect(reqwest::redirect::Policy::none());
    let mut answer = client.no_proxy().build().map_err(away)?.get(url).send().await.map_err(away)?;
    if !answer.status().is_success() {
        return Err(NotScraped::Refused { url: url.to_owned(), status: answer.status().as_u16() });
    }
    let mut text = Vec::new();
    while let Some(more) = answer.chunk().await.map_err(away)? {
        text.extend_from_slice(&more);
        if text.len() > LONGEST {
            return Err(NotScraped::TooLong { url: url.to_owned() });
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}
