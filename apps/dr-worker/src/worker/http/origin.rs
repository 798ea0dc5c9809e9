//! Requests that a page of another site makes a browser send.
//!
//! A browser that holds a client certificate shows it for every page. So a request to change something must come from the
//! worker's own page, or from no browser, and have a media type that a form can't send. The page of a site whose name
//! resolves to a loopback address (DNS rebinding) reaches a port that only this host should reach, with that site's name in
//! `Host`. [Fetch Metadata](https://www.w3.org/TR/fetch-metadata/), and the check of Go's `http.CrossOriginProtection`.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, Uri, header};

use super::endpoint::JSON;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused that a page of another site may have made a browser send.
///
/// `listen` is the host of `http.listen`; `changes` is whether the request changes something.
pub(super) fn foreign(headers: &HeaderMap, uri: &Uri, listen: &str, changes: bool) -> Option<&'static str> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // HTTP/1.0 has no host; each browser sends it.
    let host = text(header::HOST).or(uri.authority().map(|authority| authority.as_str()));
    if is_loopback(listen) && host.is_some_and(|host| !is_loopback(without_port(host))) {
        return Some("the header Host is not a loopback address, and http.listen is one");
    }
    if !changes {
        return None;
    }
    let is_foreign = match (text(SEC_FETCH_SITE), text(header::ORIGIN)) {
        (Some(site), _) => !["same-origin", "none"].contains(&site),
        (None, Some(origin)) => origin.split_once("://").map(|(_, authority)| authority) != host,
        (None, None) => false,
    };
    is_foreign.then_some("it comes from a page of another site (Sec-Fetch-Site, Origin)")
}

/// Whether the body has the media type of this interface, which the form of a page can't send.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON)
}

fn without_port(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_page_of_another_site_changes_nothing() {
        let is_foreign = |pairs: &[_]| {
            let mut all = vec![("host", "10.0.0.1:7080")];
            all.extend_from_slice(pairs);
            foreign(&headers(&all), &Uri::from_static("/pause"), "10.0.0.1", true).is_some()
        };
        assert!(!is_foreign(&[]), "no browser");
        assert!(!is_foreign(&[("sec-fetch-site", "same-origin"), ("origin", "https://proxy")]));
        assert!(!is_foreign(&[("sec-fetch-site", "none")]));
        assert!(!is_foreign(&[("origin", "https://10.0.0.1:7080")]));
        for site in ["cross-site", "same-site", "", "Same-Origin"] {
            assert!(is_foreign(&[("sec-fetch-site", site), ("origin", "https://10.0.0.1:7080")]), "{site}");
        }
        for origin in ["https://evil.example", "null", "", "https://10.0.0.1", "https://10.0.0.1:7081"] {
            assert!(is_foreign(&[("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn a_loopback_port_is_reached_by_a_loopback_name() {
        let is_foreign = |host: &'static str, listen: &str| {
            foreign(&headers(&[("host", host)]), &Uri::from_static("/cluster"), listen, false).is_some()
        };
        for host in ["127.0.0.1:7080", "localhost", "LOCALHOST:9000", "[::1]:7080", "127.8.9.1"] {
            assert!(!is_foreign(host, "127.0.0.1"), "{host}");
            assert!(!is_foreign(host, "::1"), "{host}");
        }
        for host in
            ["evil.example:7080", "10.0.0.1", "localhost.evil.example", "[::2]", "[::1", "", "127.0.0.1.x"]
        {
            assert!(is_foreign(host, "localhost"), "{host}");
            assert!(!is_foreign(host, "0.0.0.0"), "{host}");
        }
        assert!(foreign(&HeaderMap::new(), &Uri::from_static("/cluster"), "::1", true).is_none());
    }

    #[test]
    fn a_form_has_another_media_type() {
        for media in ["application/json", "Application/JSON; charset=utf-8", "application/json ;x"] {
            assert!(is_json(&headers(&[("content-type", media)])), "{media}");
        }
        for media in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
            assert!(!is_json(&headers(&[("content-type", media)])), "{media}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
