//! Traces of changes of leadership: a real receiver, real workers.

use serde_json::Value;

use crate::notify::{Got, listen, receiver};
use crate::support::{
    stage::{Stage, leads, successors},
    until,
};

/// What the receiver got of this term.
fn spans_of(got: &Got, term: u64) -> Option<Vec<Value>> {
    let term = term.to_string();
    got.lock().expect("no panic").iter().rev().find_map(|(_, body)| {
        let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array()?;
        let attributes = spans.first()?["attributes"].as_array()?;
        let is_of_term = |one: &Value| one["key"] == "dr.term" && one["value"]["intValue"] == *term;
        attributes.iter().any(is_of_term).then(|| spans.clone())
    })
}

fn attribute<'a>(attributes: &'a Value, key: &str) -> &'a Value {
    let mut all = attributes.as_array().into_iter().flatten();
    all.find(|one| one["key"] == key).map_or(&Value::Null, |one| &one["value"]["stringValue"])
}

#[test]
fn the_new_leader_sends_one_trace_with_the_phases_as_spans() {
    let stage = Stage::new("/trace");
    let (listener, port) = listen();
    // It is not ready at first.
    let got = receiver(listener, &[503, 200]);
    let url = format!("trace.url=http://127.0.0.1:{port}/v1/traces");
    let east = stage.worker("east-1", "east", &[&url]);
    until("east-1 leads", || leads(&east));
    until("the trace has arrived at the second attempt", || got.lock().expect("no panic").len() == 2);
    let _west = stage.worker("west-1", "west", &[&url]);
    until("west-1 is in line", || successors(&stage.json(&["list"])) == serde_json::json!(["west-1"]));
    stage.operator(&["switchover", "--to", "west-1", "--wait"]).assert(0, &[]);
    until("the move is traced", || spans_of(&got, 2).is_some());

    let (head, first) = got.lock().expect("no panic")[0].clone();
    assert!(
        head.starts_with("POST /v1/traces ") && head.to_lowercase().contains("application/json"),
        "{head}"
    );
    let (_, again) = got.lock().expect("no panic")[1].clone();
    assert_eq!(first, again);
    let resource = &first["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(
        (attribute(resource, "service.name"), attribute(resource, "service.instance.id")),
        (&"dr-worker".into(), &"east-1".into())
    );

    let spans = spans_of(&got, 2).expect("it is there");
    let names: Vec<_> = spans.iter().map(|span| span["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["change of leadership", "decide", "release", "acquire", "takeover"]);
    let (whole, phases) = spans.split_first().expect("five");
    assert_eq!(attribute(&whole["attributes"], "dr.cause"), "switchover");
    assert_eq!(attribute(&whole["attributes"], "dr.previous_leader"), "east-1");
    let [from, to] = ["startTimeUnixNano", "endTimeUnixNano"];
    assert_eq!((&phases[0][from], &phases[3][to]), (&whole[from], &whole[to]));
    for both in phases.windows(2) {
        assert_eq!(both[0][to], both[1][from], "one after the other");
    }
    for phase in phases {
        assert_eq!((&phase["parentSpanId"], &phase["traceId"]), (&whole["spanId"], &whole["traceId"]));
    }

    // Also of a leader that does not start its job.
    stage.operator(&["stop", "--wait"]).assert(0, &[]);
    stage.operator(&["switchover", "--to", "east-1", "--wait"]).assert(0, &[]);
    until("the move without the job is traced", || spans_of(&got, 3).is_some());
}
