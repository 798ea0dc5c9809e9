//! Whatever bytes a znode has, its reader gets a record that can be written again as it is, or an error.

use serde_json::Value;

use super::{limits::*, *};

/// Each record with all of its fields.
const SAMPLES: [(&str, &str); 12] = [
    (
        "breadcrumbs",
        r#"{"v":1,"leaderships":[{"member":"a","ballot":"x-0000000001","site":"s","address":"h","slot":1,"term":2,
        "fencing_token":3,"since_ms":4}]}"#,
    ),
    (
        "contender",
        r#"{"v":1,"member":"a","site":"s","status":"READY","address":"h","http":"u","token_base":3,"software":"w","since_ms":1,
        "ready_ms":2}"#,
    ),
    (
        "control",
        r#"{"v":2,"mode":"auto","drained":["s"],"failed_sites":[{"site":"s","reason":"r","by":"b","at_ms":1}],
        "maintenance":[{"member":"a","site":"s","by":"b","at_ms":2}],"preferred_site":"s","site_order":["s"],
        "paused_in":"manual","stay":[3],"confirmed":[{"term":4,"site":"s","by":"b"}],
        "stopped":{"reason":"r","by":"b","at_ms":5},"changed_by":"b","changed_at_ms":6,
        "changed_reason":"r"}"#,
    ),
    (
        "current",
        r#"{"v":1,"member":"a","ballot":"x-0000000001","site":"s","slot":1,"term":2,"status":"READY","endpoint":"h",
        "fencing_token":3,"since_ms":4,"ready_ms":5}"#,
    ),
    (
        "drill answer",
        r#"{"v":1,"run":"r","member":"a","site":"s","version":"w","seen_ms":1,"steps":[{"state":"accepted","after_ms":2,
        "reason":"r"}],"probes":{"target":"t","interval_ms":3,"first_ms":4,"last_ms":5,"count":6,"failed":7,
        "longest_gap_ms":8,"outages":[{"served_until_ms":9,"first_ms":10,"last_ms":11,"served_from_ms":12,"count":13,
        "reason":"r"}],"omitted":14,"last_success_ms":15},"closed":true}"#,
    ),
    (
        "drill order",
        r#"{"v":1,"run":"r","by":"b","reason":"r","at_ms":1,"until_ms":2,"mode":"cut-site","members":["a"],"delay_ms":3,
        "cut_ms":4,"probe":true}"#,
    ),
    (
        "elected",
        r#"{"v":1,"term":9,"slots":[{"named":{"member":"a","ballot":"x-0000000001","site":"s"},"given":{"term":8,
        "cause":"startup","sentence":"s","decided_at_ms":1,"noticed_at_ms":2,"request":{"czxid":3,"name":"r"},
        "previous":{"member":"a","ballot":"x-0000000001","site":"s"}},"succession":[{"member":"a","ballot":"x-0000000001",
        "site":"s"}],"attempts":[4],"obeyed":[5]}],"exclusions":[{"member":"a","ballot":"x-0000000001","since_ms":6,
        "until_ms":7,"reason":"r"}],"failures":[{"member":"a","at_ms":8,"cause":"c","term":9}],"site_failures":[{"site":"s",
        "at_ms":10,"why":"w","over":true,"overruled":"b"}],"losses":{"s":[11]},"acknowledged_at_ms":12,
        "youngest":"x-0000000001","token_base":13,"decided_by":"b","last_request":14}"#,
    ),
    (
        "history",
        r#"{"v":1,"term":1,"member":"a","ballot":"x-0000000001","site":"s","slot":1,"fencing_token":2,"cause":"startup",
        "sentence":"s","previous":{"member":"a","ballot":"x-0000000001","site":"s"},"ready_ms":3,"phases":{"decide_ms":4,
        "release_ms":5,"acquire_ms":6,"takeover_ms":7}}"#,
    ),
    (
        "member",
        r#"{"v":1,"member":"a","site":"s","ballot":"x-0000000001","address":"h","http":"u","priority":1,"attributes":{"k":"v"},
        "measured":["k"],"health":{"state":"unhealthy","reason":"r"},"site_health":{"state":"healthy"},"policy":"p",
        "config":{"version":1,"refused":{"version":2,"reason":"r"}},"software":"w","orders_format":2,
        "session_timeout_ms":3,"joined_ms":4,"gave_up":{"term":5,"cause":"resigned","reason":"r","at_ms":6},
        "withdrawn":"w","leaving":true,"prepared":7,"holds":"h","unreached":[{"ballot":"x-0000000001","since_ms":8}],
        "round_trips":{"peers":{"a":9},"zookeeper":10,"targets":{"t":11}},
        "remembers":{"term":12,"mzxid":13,"token":14,"token_base":15,"last_request":16}}"#,
    ),
    ("roster", r#"{"v":1,"members":{"a":{"site":"s","absent":{"since_ms":1,"stopped":true}}}}"#),
    ("tokens", r#"{"v":1,"token_base":1,"by":"b","at_ms":2}"#),
    ("overlay", r#"{"v":1,"version":2,"text":"t","by":"b","at_ms":3,"reason":"r","restores":1}"#),
];

/// Requests have one field that differs.
const STATES: [&str; 7] = [
    r#"{"state":"pending"}"#,
    r#"{"state":"planned","at_ms":1}"#,
    r#"{"state":"accepted","term":2}"#,
    r#"{"state":"done","term":3,"leader":"a","at_ms":4}"#,
    r#"{"state":"failed","reason":"r","at_ms":5}"#,
    r#"{"state":"expired","reason":"r","at_ms":6}"#,
    r#"{"state":"cancelled","reason":"r","at_ms":7}"#,
];

fn samples() -> Vec<(&'static str, String)> {
    let fixed = SAMPLES.map(|(kind, text)| (kind, text.to_owned()));
    let request = |state| {
        let text = r#"{"v":1,"id":"i","kind":"switchover","to":{"member":"a"},"from":{"slot":1},"force":true,
            "now":true,"accept_loss":true,"reason":"r","by":"b","created_ms":1,"valid_for_ms":2,"state":"#;
        ("request", format!("{text}{state}}}"))
    };
    fixed.into_iter().chain(STATES.map(request)).collect()
}

/// Whether the record can be used.
fn is_usable(kind: &str, data: &[u8]) -> bool {
    written_again(kind, data).is_some()
}

/// The record as it is written again, if it can be used. It is then the same when it is read again.
fn written_again(kind: &str, data: &[u8]) -> Option<Vec<u8>> {
    fn check<R: Record + PartialEq + std::fmt::Debug>(data: &[u8]) -> Option<Vec<u8>> {
        let record = match R::decode("/r-0000000001", data) {
            Ok(record) => record,
            Err(error) => {
                assert!(
                    error.to_string().len() < 600 && !error.to_string().contains(char::is_control),
                    "{error}"
                );
                return None;
            }
        };
        let again = record.encode("/z").unwrap_or_else(|e| panic!("{e}: {record:?}"));
        assert_eq!(R::decode("/r-0000000001", &again).unwrap(), record);
        Some(again)
    }
    match kind {
        "breadcrumbs" => check::<Breadcrumbs>(data),
        "contender" => check::<Contender>(data),
        "control" => check::<Control>(data),
        "current" => check::<Current>(data),
        "drill answer" => check::<DrillAnswer>(data),
        "drill order" => check::<DrillOrder>(data),
        "elected" => check::<Elected>(data),
        "history" => check::<HistoryEntry>(data),
        "member" => check::<MemberRecord>(data),
        "overlay" => check::<Overlay>(data),
        "roster" => check::<Roster>(data),
        "tokens" => check::<TokenBase>(data),
        "request" => check::<AdminRequest>(data),
        _ => panic!("{kind}"),
    }
}

/// The values in a record, by their path in it.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| leaves(value, &format!("{path}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, value)| leaves(value, &format!("{path}/{at}"), found));
        }
        _ => found.push(path.to_owned()),
    }
}

/// The largest value of the number at this path; `None` for one that has only the limit of its type.
fn limit(kind: &str, path: &str) -> Option<u64> {
    let parent = path.rsplit_once('/').unwrap().0;
    Some(match path.rsplit('/').find(|part| part.parse::<usize>().is_err()).unwrap() {
        name if name.ends_with("_ms") => MAX_MS,
        "attempts" | "obeyed" => MAX_MS,
        "s" if parent.ends_with("losses/s") => MAX_MS,
        "term" if matches!(kind, "elected" | "control" | "member") => MAX_TERM,
        "prepared" | "stay" => MAX_TERM,
        "term" | "fencing_token" | "czxid" | "mzxid" | "last_request" => MAX_TOKEN,
        "token" | "token_base" => MAX_TOKEN_BASE,
        "slot" => MAX_SLOTS as u64 - 1,
        "version" | "count" | "failed" | "omitted" => MAX_COUNT,
        _ => return None,
    })
}

#[test]
fn each_number_has_a_limit_that_is_kept() {
    let mut numbers = 0;
    for (kind, text) in samples() {
        let sample: Value = serde_json::from_str(&text).unwrap();
        assert!(is_usable(kind, text.as_bytes()), "{kind}");
        let mut paths = Vec::new();
        leaves(&sample, "", &mut paths);
        paths.retain(|path| sample.pointer(path).unwrap().is_number());
        for path in paths {
            let with = |number: Value| {
                let mut changed = sample.clone();
                *changed.pointer_mut(&path).unwrap() = number;
                is_usable(kind, changed.to_string().as_bytes())
            };
            numbers += 1;
            assert!(!with(u64::MAX.into()) && !with((1_u64 << 63).into()), "{kind} {path}");
            assert_eq!(with((-1).into()), path == "/priority", "{kind} {path}");
            if let Some(limit) = limit(kind, &path) {
                assert!(!with((limit + 1).into()), "{kind} {path}");
                // A slot is not ahead of its decision.
                assert_eq!(with(limit.into()), path != "/slots/0/given/term", "{kind} {path}");
            }
        }
    }
    assert!(numbers > 80, "{numbers}");
}

/// What a reader shows and passes on is one line, whatever was written.
#[test]
fn each_text_is_read_as_a_line_or_refused() {
    let mut texts = 0;
    for (kind, text) in samples() {
        let sample: Value = serde_json::from_str(&text).unwrap();
        let mut paths = Vec::new();
        leaves(&sample, "", &mut paths);
        paths.retain(|path| sample.pointer(path).unwrap().is_string());
        for path in paths {
            for hostile in ["a\0b", "a\nb", "a\u{1b}[2Jb", "a\u{202e}b", &"x".repeat(5000)] {
                let mut changed = sample.clone();
                *changed.pointer_mut(&path).unwrap() = hostile.into();
                // What was read, as it would be written.
                let Some(read) = written_again(kind, changed.to_string().as_bytes()) else { continue };
                let read: Value = serde_json::from_slice(&read).unwrap();
                let read = read.pointer(&path).map_or("", |read| read.as_str().unwrap());
                let is_long = ["/attributes/k", "/measured/0"].contains(&path.as_str());
                let is_block = (kind, path.as_str()) == ("overlay", "/text");
                let is_line =
                    |text: &str| text.chars().all(|c| crate::text::is_plain(c) || (is_block && c == '\n'));
                assert!(is_line(read), "{kind} {path}: {read:?}");
                assert!(is_long || is_block || read.len() <= crate::text::MAX, "{kind} {path}");
                texts += 1;
            }
        }
    }
    assert!(texts > 150, "{texts}");
}

#[test]
fn names_that_are_too_long_and_counts_that_are_too_high_are_refused() {
    for (kind, text) in samples() {
        let long = "a".repeat(crate::ids::MAX_NAME + 1);
        for name in [r#""a""#, r#""s""#, r#""x-0000000001""#] {
            // Some of these texts are no names.
            let changed = text.replacen(name, &format!("\"{long}{}", &name[1..]), 1);
            let is_name = !changed.contains(&format!("\"sentence\":\"{long}")) && changed != text;
            assert!(!is_name || !is_usable(kind, changed.as_bytes()), "{kind}: {changed}");
        }
    }
    let (_, text) = samples().into_iter().find(|(kind, _)| *kind == "elected").unwrap();
    let sample: Value = serde_json::from_str(&text).unwrap();
    for (list, most) in [
        ("/slots", MAX_SLOTS),
        ("/exclusions", most::EXCLUSIONS),
        ("/site_failures", most::SITE_FAILURES),
        ("/slots/0/succession", most::LINE),
        ("/slots/0/attempts", most::attempts(1)),
        ("/slots/0/obeyed", most::obeyed(1)),
    ] {
        let with = |count: usize| {
            let mut changed = sample.clone();
            let items = changed.pointer_mut(list).unwrap().as_array_mut().unwrap();
            *items = vec![items[0].clone(); count];
            is_usable("elected", changed.to_string().as_bytes())
        };
        assert!(with(1) && (list == "/slots" || with(most)) && !with(most + 1), "{list}");
    }
}

/// The error names what mends it, unless a newer program does.
#[test]
fn a_refused_decision_is_mended_by_its_deletion() {
    let refused = |text: &str| Elected::decode("/e", text.as_bytes()).unwrap_err().to_string();
    assert!(
        refused(r#"{"v":1,"term":18446744073709551615,"slots":[],"decided_by":""}"#).contains("delete it")
    );
    assert!(!refused(r#"{"v":7,"term":1,"slots":[],"decided_by":""}"#).contains("delete it"));
}

#[test]
fn whatever_the_bytes_are_a_record_encodes_to_itself() {
    let samples = samples();
    let extreme = [0, 1, MAX_SLOTS as u64, MAX_COUNT, MAX_MS, MAX_TERM, MAX_TOKEN, u64::MAX];
    let mut usable = 0;
    for seed in 0..6000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (kind, text) = &samples[rng.usize(..samples.len())];
        let mut value: Value = serde_json::from_str(text).unwrap();
        let mut paths = Vec::new();
        leaves(&value, "", &mut paths);
        for _ in 0..rng.usize(..3) {
            let path = &paths[rng.usize(..paths.len())];
            let parent = path.rsplit_once('/').unwrap().0;
            match value.pointer_mut(if rng.bool() { path } else { parent }) {
                Some(Value::Array(items)) if !items.is_empty() => {
                    *items = vec![items[0].clone(); [0, 2, 9, 60, 4000][rng.usize(..5)]];
                }
                Some(Value::Object(fields)) => {
                    let key = fields.keys().nth(rng.usize(..fields.len().max(1))).cloned();
                    key.map(|key| fields.remove(&key));
                }
                Some(leaf) if leaf.is_number() => *leaf = extreme[rng.usize(..extreme.len())].into(),
                Some(leaf) if leaf.is_string() => *leaf = "\u{1}\"ü".repeat(rng.usize(..9000)).into(),
                _ => {}
            }
        }
        let mut data = value.to_string().into_bytes();
        if rng.u8(..4) == 0 {
            let at = rng.usize(..data.len());
            data[at] = rng.u8(..);
        }
        // Also a record of another kind.
        let kind = if rng.u8(..8) == 0 { samples[rng.usize(..samples.len())].0 } else { kind };
        usable += usize::from(is_usable(kind, &data));
    }
    assert!(usable > 500, "{usable}");
}
