//! The members: their records, and the answers of their endpoints.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, SystemTime},
};

use axum::http::{StatusCode, Uri};
use election_core::internals::{record::MemberRecord, text::shown};
use futures_util::{StreamExt as _, stream};
use serde_json::Value;
use tokio::time::timeout;

use super::super::facts::MemberFacts;
use crate::{
    client,
    commands::servers::{addresses, clock},
    workers::Workers,
};

/// How long a member may take to answer.
const WITHIN: Duration = Duration::from_secs(3);
/// The longest answer, in bytes.
const LONGEST: usize = 16 << 20;
/// How many are asked at a time.
const AT_ONCE: usize = 32;

/// Adds the record of a member in the election of `job`.
pub(super) fn add(all: &mut BTreeMap<String, MemberFacts>, job: &str, record: &MemberRecord) {
    let member = all.entry(record.member.to_string()).or_insert_with(|| MemberFacts {
        member: record.member.to_string(),
        site: record.site.to_string(),
        ..MemberFacts::default()
    });
    let part = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
    member.places.insert((part(&record.address), part(&record.http)));
    if !record.software.is_empty() {
        member.software.insert(record.software.clone());
    }
    if let Some(config) = &record.config {
        member.overlays.insert(job.to_owned(), config.version);
    }
}

/// The same with what their endpoints answer.
pub(super) async fn asked(
    members: BTreeMap<String, MemberFacts>,
    workers: Option<&Workers>,
) -> Vec<MemberFacts> {
    stream::iter(members.into_values()).map(|member| ask(member, workers)).buffered(AT_ONCE).collect().await
}

async fn ask(mut member: MemberFacts, workers: Option<&Workers>) -> MemberFacts {
    for (address, _) in &member.places.clone() {
        member.addresses.extend(addresses(&format!("{address}:0")).await);
    }
    let Some((_, url)) = member.places.iter().find(|(_, url)| url != "-").cloned() else { return member };
    let Some(workers) = workers else { return member };
    let sent = SystemTime::now();
    let answer = match timeout(WITHIN, workers.get(&format!("{url}/status"))).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => {
            member.unreachable = Some(format!("{url}: {why}"));
            return member;
        }
        Err(_) => {
            member.unreachable = Some(format!("{url}: no answer within {WITHIN:?}"));
            return member;
        }
    };
    let date = answer.headers().get("date").and_then(|date| date.to_str().ok());
    member.clock = date.and_then(|date| clock::compare(date, sent, SystemTime::now()));
    // With `http.access.status` the state is not for every client.
    if answer.status() == StatusCode::OK {
        let body = timeout(WITHIN, client::body(answer, LONGEST)).await.ok().flatten();
        let status: Option<Value> = body.and_then(|body| serde_json::from_slice(&body).ok());
        let text = |key| status.as_ref().and_then(|status| status[key].as_str());
        let answers_as = text("member");
        let answers_as = shown(answers_as.unwrap_or("another program")).into_owned();
        if answers_as != member.member && is_loopback(&url) {
            // It is this host's.
            member.unreachable = Some(format!("{url} is for its own host only"));
            member.clock = None;
        } else {
            member.standbys = status.as_ref().map(standbys).unwrap_or_default();
            member.problem = text("problem").map(|why| shown(why).into_owned());
            member.answers_as = Some(answers_as);
        }
    }
    member
}

/// The states of the standbys in a worker's answer, by job.
fn standbys(status: &Value) -> BTreeMap<String, String> {
    let state = |(job, of_job): (&String, &Value)| {
        Some((shown(job).into_owned(), shown(of_job["standby"]["state"].as_str()?).into_owned()))
    };
    status["jobs"].as_object().into_iter().flatten().filter_map(state).collect()
}

/// Whether each host has an own endpoint at this URL.
fn is_loopback(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).map(|host| host.trim_matches(['[', ']']));
    host.is_some_and(|host| host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn a_url_of_each_host_names_none() {
        for url in ["http://127.0.0.1:7080", "https://[::1]:7080", "http://localhost:7080"] {
            assert!(is_loopback(url), "{url}");
        }
        for url in ["http://10.0.0.1:7080", "http://east-1:7080", "http://[fd00::1]:7080", "-"] {
            assert!(!is_loopback(url), "{url}");
        }
    }
}
