//! `docs/reference/http.md`: every endpoint.

use std::fmt::Write as _;

use super::{
    endpoint::{Access, Endpoint},
    endpoints::ALL,
    openapi::{ERROR, errors},
};
use crate::reference::{cell, compare};

const TITLE: &str = "# HTTP endpoints

The endpoints of a worker at [`http.listen`](keys.md#http), as `/openapi.json` describes them.
[dr-worker](../../apps/dr-worker/README.md#http) describes how they behave, [how clients find the leader](../clients.md) what they
are for.

- GET endpoints also answer HEAD and OPTIONS.
- Each endpoint without a job needs none. `?job=J` names the job; it can be left out if there is only one.
- *Health* is open to everyone; *status* and *control* are as `http.access` says; *output* is as *status*, or as
  *control* where *status* is open.

| endpoint | access | does |
|---|---|---|
";

fn method(endpoint: &Endpoint) -> &'static str {
    if endpoint.access == Access::Control { "POST" } else { "GET" }
}

fn access(endpoint: &Endpoint) -> &'static str {
    match endpoint.access {
        Access::Health => "health",
        Access::Status => "status",
        Access::Output => "output",
        Access::Secret | Access::Control => "control",
    }
}

/// Fields with their types: `name: type`, or `name?: type` for one that may be absent.
fn fields(fields: &[&str]) -> String {
    let field = |field: &&str| {
        let (name, kind) = field.split_once(": ").unwrap();
        let (name, absent) = name.strip_suffix('?').map_or((name, ""), |name| (name, ", optional"));
        format!("`{name}` ({}{absent})", kind.replace('|', " or "))
    };
    fields.iter().map(field).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_reference_has_each_endpoint() {
    let mut page = TITLE.to_owned();
    for endpoint in ALL {
        let (method, path) = (method(endpoint), endpoint.path);
        let anchor: String =
            path.chars().filter(|symbol| symbol.is_alphanumeric() || *symbol == '-').collect();
        let anchor = format!("{}-{anchor}", method.to_lowercase());
        let (access, summary) = (access(endpoint), cell(endpoint.summary));
        writeln!(page, "| [{method} `{path}`](#{anchor}) | {access} | {summary} |").unwrap();
    }
    for endpoint in ALL {
        write!(page, "\n## {} {}\n\n{}\n\n", method(endpoint), endpoint.path, endpoint.summary).unwrap();
        writeln!(page, "- Access: {}", access(endpoint)).unwrap();
        if !endpoint.parameters.is_empty() {
            writeln!(page, "- Query: {}", fields(endpoint.parameters)).unwrap();
        }
        if !endpoint.body.is_empty() {
            writeln!(page, "- Body, a JSON object: {}", fields(endpoint.body)).unwrap();
        }
        for (status, media, answer) in endpoint.answers {
            let of = if answer.is_empty() { String::new() } else { format!(": {}", fields(answer)) };
            writeln!(page, "- {status} `{media}`{of}").unwrap();
        }
        let errors: Vec<_> = errors(endpoint).iter().map(ToString::to_string).collect();
        if !errors.is_empty() {
            writeln!(page, "- Errors {}: {}", errors.join(", "), fields(ERROR)).unwrap();
        }
    }
    compare("http.md", &page);
}
