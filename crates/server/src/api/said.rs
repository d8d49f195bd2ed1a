//! What a client says, read from the body of a request. What cannot be read is a problem like any other.

use crate::api_types::Problem;
use crate::problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;

/// The body of a request, and how many bytes it had.
pub(super) struct Said<T>(pub T, pub usize);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Said<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Said<T>, Problem> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
            return Err(problem(415, "bad-body", "expected a body of the type application/json"));
        }
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| problem(error.status().as_u16(), "bad-body", &error.body_text()))?;
        if std::str::from_utf8(&bytes).is_err() {
            return Err(problem(400, "bad-body", "the body is no JSON: it is not UTF-8"));
        }
        let read = windfall_core::codec::from_json(&bytes);
        read.map(|read| Said(read, bytes.len())).map_err(|error| {
            let (status, what) = match error.is_data() {
                true => (422, "the body is not what is expected here"),
                false => (400, "the body is no JSON"),
            };
            problem(status, "bad-body", &format!("{what}: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    #[derive(Debug, serde::Deserialize)]
    struct Number {
        #[expect(dead_code, reason = "only whether it can be read is asked")]
        number: u32,
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_a_problem_that_says_where() {
        let say = async |kind: &str, body: &'static str| {
            let request = Request::builder().header(CONTENT_TYPE, kind).body(Body::from(body)).expect("a request");
            let said = Said::<Number>::from_request(request, &()).await;
            said.map(|_| ()).map_err(|problem| (problem.status, problem.title))
        };
        const JSON: &str = "application/json";
        assert_eq!(say(JSON, r#"{"number":7}"#).await, Ok(()));
        let refused = [("text/plain", "{}", 415, "application/json"), (JSON, "{", 400, "line 1 column 1")];
        let refused = refused.into_iter().chain([(JSON, r#"{"name":7}"#, 422, "missing field `number`")]);
        for (kind, body, status, words) in refused {
            let (given, title) = say(kind, body).await.expect_err(body);
            assert!(given == status && title.contains(words), "{given} {title}");
        }
    }
}
