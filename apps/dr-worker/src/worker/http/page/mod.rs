//! `/`: the status page. It is one file without anything from elsewhere; its data comes from the other endpoints.

use std::{fs::File, io::Read as _};

use axum::{
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};

use super::answer::refuse;

const HTML: &str = include_str!("page.html");
const CSS: &str = include_str!("page.css");
const JS: &str = include_str!("page.js");

pub(super) async fn page() -> Response {
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
    (headers, Html(html(&nonce))).into_response()
}

fn html(nonce: &str) -> String {
    // The nonce is put in first: it must not replace anything in the other two.
    HTML.replace("{{NONCE}}", nonce).replace("{{CSS}}", CSS).replace("{{JS}}", JS)
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

    #[test]
    fn the_page_is_complete_and_names_no_other_place() {
        let page = html("abc");
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
