//! `/`: the status page. It is one file without anything from elsewhere. Its data comes from the other endpoints; the first
//! answers of them are in the page.

use std::{fs::File, io::Read as _, sync::Arc, time::Duration};

use axum::{
    body::to_bytes,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    answer::{Answered, refuse},
    cluster::{cluster, history},
    explain::explain,
    roles::JobQuery,
    status,
};
use crate::worker::state::Worker;

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

/// The page comes without data if ZooKeeper does not answer by then. It asks by itself.
const FIRST_DATA: Duration = Duration::from_secs(1);

pub(super) async fn page(State(worker): State<Arc<Worker>>, Query(which): Query<JobQuery>) -> Response {
    let first = timeout(FIRST_DATA, first_data(&worker, which)).await.ok().flatten();
    let nonce = match nonce() {
        Ok(nonce) => nonce,
        Err(error) => {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("no random numbers: {error}"));
        }
    };
    // Only what the page itself contains runs, and it talks only to this worker.
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy.as_str()),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, Html(html(&nonce, &json!(first)))).into_response()
}

/// What the page draws at first: of the requested job, or of the first one.
async fn first_data(worker: &Arc<Worker>, which: JobQuery) -> Option<Value> {
    let job = match which.of(worker) {
        Ok(job) => job.slot.name(),
        Err(_) => worker.jobs().iter().map(|job| job.slot.name()).min()?,
    };
    let of_job = || (State(Arc::clone(worker)), Query(JobQuery { job: Some(job.to_owned()) }));
    let (of_cluster, of_history, of_explain) = (of_job(), of_job(), of_job());
    let (cluster, history, explained) = tokio::join!(
        cluster(of_cluster.0, of_cluster.1),
        history(of_history.0, of_history.1),
        explain(of_explain.0, of_explain.1)
    );
    let (cluster, history, explained) = (data(cluster).await?, data(history).await?, data(explained).await?);
    let status = status::of(worker);
    Some(json!({ "status": status, "cluster": cluster, "history": history, "explained": explained }))
}

async fn data(answer: Answered) -> Option<Value> {
    let body = answer.ok().filter(|answer| answer.status().is_success())?.into_body();
    serde_json::from_slice(&to_bytes(body, usize::MAX).await.ok()?).ok()
}

fn html(nonce: &str, first: &Value) -> String {
    // As JSON in a script it can't end the script. The nonce is put in first, and the data last: they must not replace
    // anything in the others.
    let first = first.to_string().replace('<', "\\u003c");
    let page = HTML.replace("{{NONCE}}", nonce).replace("{{CSS}}", CSS).replace("{{JS}}", JS);
    page.replace("{{FIRST}}", &first)
}

/// A number that can't be guessed, as text.
fn nonce() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::operations::ALL;

    #[test]
    fn its_buttons_are_operations() {
        let buttons = HTML.split("<button type=\"button\" value=\"").skip(1);
        let verbs: Vec<_> = buttons.filter_map(|rest| rest.split('"').next()).collect();
        assert!(!verbs.is_empty());
        for verb in verbs {
            assert!(ALL.iter().any(|declared| declared.verb == verb), "{verb}");
        }
    }

    #[test]
    fn the_page_is_complete_and_names_no_other_place() {
        let page = html("abc", &json!({ "reason": "</script><!--{{NONCE}}" }));
        assert!(page.contains(r#"{"reason":"\u003c/script>\u003c!--{{NONCE}}"}"#));
        let page = html("abc", &Value::Null);
        assert!(!page.contains("{{") && page.matches("nonce=\"abc\"").count() == 2);
        for part in [HTML, CSS, JS] {
            for forbidden in
                ["http://", "https://", "url(", "@import", "style=", "innerHTML", "onclick", "eval("]
            {
                assert!(!part.contains(forbidden), "{forbidden}");
            }
        }
        assert!(!JS.contains("</script") && !CSS.contains("</style"));
        assert_ne!(nonce().unwrap(), nonce().unwrap());
    }
}
