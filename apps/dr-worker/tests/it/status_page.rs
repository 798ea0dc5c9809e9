//! The status page, in headless Chromium.
//!
//! `STATUS_PAGE_PICTURES=DIR` writes pictures of it: `desktop-light.png` and the like.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    path::Path,
};

use crate::support::{
    browser::Browser,
    code_of,
    stage::{Stage, leads},
    until,
};
use nix::sys::signal::Signal;
use serde_json::json;

const TOKEN: &str = "correct-horse-battery-staple";

/// Nothing was wrong in the page, and it asked for nothing from elsewhere.
#[track_caller]
fn assert_clean(browser: &Browser, origin: &str) {
    assert_eq!(browser.seen.errors, Vec::<String>::new());
    assert!(!browser.seen.requests.is_empty());
    for url in &browser.seen.requests {
        assert!(url.starts_with(origin) || url == "data:,", "{url}");
    }
}

#[test]
fn the_page_shows_the_leader_and_follows_a_switchover() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page");
    let pipeline = "policy.pipeline=[\"site-order\", { stage = \"latency\", by = \"mean\" }, \"incumbent\"]";
    let east = stage.worker("east-1", "east", &[pipeline]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[pipeline]);
    let others = [("east-2", "east"), ("west-2", "west")];
    let others = others.map(|(id, site)| stage.worker(id, site, &[pipeline]));
    for worker in others.iter().chain([&west]) {
        until("it is standby", || worker.code("/standby") == 200);
    }

    let origin = format!("http://127.0.0.1:{}/", west.port);
    browser.open(&origin);
    browser.until_text("#summary .lead", |text| text == "east-1 leads orders");
    browser.until_text("#link", |text| text == "live");
    browser.until_text("#next-lost", |text| text.contains("west-1 in west"));
    // By events alone: the timers by which the page looks by itself do not fire.
    browser
        .eval("window.timers = setTimeout; setTimeout = (f, ms) => ms < 2000 ? timers(f, ms) : 0; soon(0)");
    stage.operator(&["switchover", "--to", "west-1", "--reason", "a drill", "--wait"]).assert(0, &[]);
    browser.until_text("#summary .lead", |text| text == "west-1 leads orders");
    browser.eval("setTimeout = timers; soon(0)");
    browser.until_text("#history", |text| text.contains("term 2") && text.contains("a drill"));
    browser.until_text("#requests", |text| text.contains("done") && text.contains("r-0000000000"));
    browser.until_text("#trips", |text| text.contains("from \\ to") && text.contains("ms"));
    let sites = browser.text("#sites");
    assert!(sites.find("east").expect("a site") < sites.find("west").expect("a site"), "{sites}");
    // What is in the way.
    browser.until_text("#blockers", |text| text.contains("No hold"));
    browser.eval("document.querySelector('#sites a').focus(); window.focused = document.activeElement");
    stage.operator(&["drain", "east"]).assert(0, &[]);
    stage.operator(&["pause"]).assert(0, &[]);
    browser.until_text("#sites", |text| text.contains("drained"));
    // The site was drawn again, and the focus is on the new link.
    let focus =
        "[document.activeElement.closest('#sites') !== null, document.activeElement === window.focused]";
    assert_eq!(browser.eval(focus), json!([true, false]));
    browser.until_text("#blockers", |text| {
        text.contains("site east is drained") && text.contains("mode manual")
    });
    stage.operator(&["drain", "east", "--off"]).assert(0, &[]);
    stage.operator(&["resume"]).assert(0, &[]);
    browser.until_text("#blockers", |text| text.contains("No hold"));

    // Nothing is wider than the screen, large or small, and the page reads the colours that the user prefers.
    for (name, width, height) in [("desktop", 1200, 1000), ("phone", 390, 1000)] {
        for (scheme, is_dark) in [("light", false), ("dark", true)] {
            browser.appear(width, height, scheme);
            let wide = browser.eval("document.documentElement.scrollWidth");
            assert!(wide.as_u64().is_some_and(|wide| wide <= width.into()), "{name}: {wide}");
            let background = browser.eval("getComputedStyle(document.body).backgroundColor");
            assert_eq!(background == "rgb(15, 20, 26)", is_dark, "{background}");
            if let Some(dir) = std::env::var_os("STATUS_PAGE_PICTURES") {
                let picture = browser.picture();
                fs::write(Path::new(&dir).join(format!("{name}-{scheme}.png")), picture).expect("written");
            }
        }
    }
    assert_clean(&browser, &origin);

    // A worker that is gone is noticed, and what is shown is marked as old.
    west.signal(Signal::SIGKILL);
    browser.until_text("#link", |text| text == "no data");
    browser.until_text("#summary", |text| text.contains("This worker has no answer"));
}

#[test]
fn the_page_shows_the_state_of_each_standby() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-standbys");
    let file = stage.dir.path().join("in-sync");
    let ready = json!(["test", "-e", file]);
    let ready =
        format!("job.orders.standby.ready={{ kind = \"exec\", command = {ready}, interval = \"50ms\" }}");
    let settings = ["job.orders.standby.command=[\"sleep\", \"600\"]", ready.as_str()];
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || leads(&east));
    let _west = stage.worker("west-1", "west", &settings);

    let origin = format!("http://127.0.0.1:{}/", east.port);
    browser.open(&origin);
    browser.until_text("#sites", |text| text.contains("standby starting"));
    fs::write(file, "").expect("a file");
    browser.until_text("#sites", |text| text.contains("standby running"));
    assert_clean(&browser, &origin);
}

#[test]
fn the_first_paint_shows_the_state_or_that_there_is_none() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-first");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    // What the page asks for later never comes.
    let silent =
        "window.fetch = () => new Promise(() => {}); window.EventSource = class extends EventTarget {};";
    browser.call("Page.addScriptToEvaluateOnNewDocument", json!({ "source": silent }));
    browser.open(&format!("http://127.0.0.1:{}/", east.port));
    let disabled = "[...document.querySelectorAll('#operate button')].map((button) => button.disabled)";
    browser.until_text("#summary .lead", |text| text == "east-1 leads orders");
    for (card, part) in
        [("#sites", "east-1"), ("#history", "term 1"), ("#blockers", "No hold"), ("#next-lost", "No other")]
    {
        let text = browser.text(card);
        assert!(text.contains(part), "{card}: {text}");
    }
    assert_eq!(browser.eval(disabled), json!([false, false, false]));

    // This worker has no session.
    let lost = stage.worker("west-1", "west", &["zookeeper.connect=127.0.0.1:1"]);
    browser.open(&format!("http://127.0.0.1:{}/", lost.port));
    browser.until_text("#summary .lead", |text| text == "Waiting for the first data of this worker");
    for card in ["#sites", "#history", "#blockers", "#next-lost", "#next-switchover", "#trips"] {
        assert_eq!(browser.text(card), "Waiting for data.", "{card}");
    }
    assert_eq!(browser.eval(disabled), json!([true, true, true]));
}

#[test]
fn without_events_the_page_polls() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-polls");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    // No more clients may follow.
    let followers: Vec<_> = (0..64)
        .map(|_| {
            let mut follower = TcpStream::connect(("127.0.0.1", east.port)).expect("it listens");
            follower.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
            let mut line = String::new();
            BufReader::new(&follower).read_line(&mut line).expect("an answer");
            assert!(line.contains("200"), "{line}");
            follower
        })
        .collect();
    browser.open(&format!("http://127.0.0.1:{}/", east.port));
    browser.until_text("#summary .lead", |text| text == "east-1 leads orders");
    browser.until_text("#link", |text| text == "polling");
    stage.operator(&["pause"]).assert(0, &[]);
    browser.until_text("#blockers", |text| text.contains("mode manual"));
    drop(followers);
    browser.until_text("#link", |text| text == "live");
}

#[test]
fn operators_act_by_keyboard_with_a_token() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-acts");
    let (_, setting) = stage.tokens(TOKEN);
    let east = stage.worker("east-1", "east", &[&setting]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker("west-1", "west", &[&setting]);
    until("west-1 is standby", || west.code("/standby") == 200);
    let origin = format!("http://127.0.0.1:{}/", east.port);
    browser.open(&origin);
    browser.until_text("#target", |text| text.contains("west-1") && text.contains("site west"));

    // Enter presses the button that has the focus; the dialog begins on its harmless button.
    let enter = |browser: &mut Browser| browser.press("Enter", 13, "\r");
    let tab = |browser: &mut Browser| browser.press("Tab", 9, "");
    browser.eval("document.querySelector('button[value=switchover]').focus()");
    enter(&mut browser);
    browser.until_text("#confirm-text", |text| !text.is_empty());
    tab(&mut browser);
    enter(&mut browser);
    browser.until_text("#result", |text| text == "switchover: it needs a token: Authorization: Bearer TOKEN");
    // The focus is in the field of the token now. The browser reports the answer 401.
    browser.seen.errors.clear();
    browser.call("Input.insertText", json!({ "text": TOKEN }));
    browser.eval("document.getElementById('target').value = 'member:west-1'");
    for _ in 0..3 {
        tab(&mut browser);
    }
    assert_eq!(browser.eval("document.activeElement.value"), "switchover");
    enter(&mut browser);
    browser.until_text("#confirm-text", |text| text.contains("Move the leadership of orders to west-1?"));
    assert_eq!(browser.eval("document.activeElement.value"), "no");
    tab(&mut browser);
    enter(&mut browser);
    browser.until_text("#result", |text| text == "switchover done: west-1 leads in term 2");
    browser.until_text("#summary .lead", |text| text == "west-1 leads orders");
    until("west-1 leads", || leads(&west));
    // Cancel does nothing.
    browser.eval("document.querySelector('button[value=pause]').focus()");
    enter(&mut browser);
    browser.until_text("#confirm-text", |text| text.starts_with("Pause orders?"));
    enter(&mut browser);
    assert_eq!(stage.json(&["list"])["mode"], "auto");
    for (verb, mode) in [("pause", "manual"), ("resume", "auto")] {
        // The buttons work again once the last action has ended.
        browser.eval(&format!(
            "new Promise((done) => {{ const b = document.querySelector('button[value={verb}]'); \
             const look = () => b.disabled ? setTimeout(look, 20) : done(b.focus()); look(); }})"
        ));
        enter(&mut browser);
        browser
            .until_text("#confirm-text", |text| text.to_lowercase().starts_with(&format!("{verb} orders?")));
        tab(&mut browser);
        enter(&mut browser);
        browser.until_text("#result", |text| text == format!("{verb} done"));
        assert_eq!(stage.json(&["list"])["mode"], mode);
    }
    // The token is nowhere but in its field.
    let kept = "JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage), document.cookie, location.href])";
    assert_eq!(browser.eval(kept), format!("[[],[],\"\",\"{origin}\"]"));
    assert!(browser.seen.requests.iter().all(|url| !url.contains(TOKEN)));
    assert_clean(&browser, &origin);
}

#[test]
fn all_jobs_have_a_line_and_their_order_is_drawn_also_while_a_site_is_evacuated() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-jobs");
    let gate = stage.dir.path().join("gate");
    fs::write(&gate, "").expect("a file");
    let ready =
        format!("job.app.ready={{ kind = \"exec\", command = [\"test\", \"-e\", \"{}\"] }}", gate.display());
    let settings = [
        "policy.min_tenure=0s",
        "job.app.command=[\"sleep\", \"3600\"]",
        "job.app.stop_timeout=1s",
        "job.app.after=[\"orders\"]",
        &ready,
    ];
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || {
        ["orders", "app"].iter().all(|job| east.code(&format!("/leader?job={job}")) == 200)
    });
    let west = stage.worker("west-1", "west", &settings);
    until("it is standby", || {
        ["orders", "app"].iter().all(|job| west.code(&format!("/standby?job={job}")) == 200)
    });
    let origin = format!("http://127.0.0.1:{}/", west.port);
    browser.open(&origin);
    browser.until_text("#jobs", |text| text.contains("app on east-1, after orders"));
    browser.until_text("#jobs", |text| text.contains("orders on east-1"));
    let drawn = "['path', 'rect', '.good rect', '.busy rect'].map((tag) => document.querySelectorAll(`#jobs svg ${tag}`).length)";
    assert_eq!(browser.eval(drawn), json!([1, 2, 2, 0]));

    // The application is not ready in the other site.
    fs::remove_file(&gate).expect("a file");
    let sets = settings.map(|setting| format!("--set={setting}"));
    let operate = |verb: &[&str]| {
        let sets = sets.iter().map(String::as_str);
        stage.operator(&sets.chain(verb.iter().copied()).collect::<Vec<_>>()).assert(0, &[]);
    };
    operate(&["evacuate", "east"]);
    browser.until_text("#evacuation", |text| text.contains("running") && text.contains("to west-1 in west"));
    until("a move is drawn", || browser.eval(drawn) == json!([1, 2, 1, 1]));
    fs::write(&gate, "").expect("a file");
    browser.until_text("#jobs", |text| text.contains("app on west-1, after orders"));
    until("nothing moves", || browser.eval(drawn) == json!([1, 2, 2, 0]));

    // The page of another job has nothing of the former one, and its address and its links name the job.
    browser.until_text("#summary .lead", |text| text == "west-1 leads app");
    browser.eval("window.answers = fetch; fetch = () => new Promise(() => {}); 0");
    let choose = "const jobs = document.getElementById('job'); jobs.value = 'orders'; \
                  jobs.dispatchEvent(new Event('change'));";
    browser.eval(&format!("{{ {choose} }}"));
    assert_eq!(browser.text("#summary .lead"), "Waiting for the data of orders");
    assert_eq!(browser.text("#sites"), "Waiting for data.");
    let state =
        "[location.search, ...[...document.querySelectorAll('#operate button')].map((b) => b.disabled)]";
    assert_eq!(browser.eval(state), json!(["?job=orders", true, true, true]));
    browser.open(&format!("{origin}?job=orders"));
    browser.until_text("#summary .lead", |text| text == "west-1 leads orders");
    let link = format!("http://127.0.0.1:{}/?job=orders", east.port);
    assert_eq!(browser.eval("document.querySelector('#sites a').href"), link);
    assert_clean(&browser, &origin);
}

#[test]
fn the_outcome_is_that_of_the_own_request_and_is_read_again_after_an_error() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-outcome");
    let (_, token) = stage.tokens(TOKEN);
    let settings = [token.as_str(), "job.app.command=[\"sleep\", \"3600\"]", "job.app.stop_timeout=1s"];
    let east = stage.worker("east-1", "east", &settings);
    until("east-1 leads", || {
        ["orders", "app"].iter().all(|job| east.code(&format!("/leader?job={job}")) == 200)
    });
    let origin = format!("http://127.0.0.1:{}/", east.port);
    browser.open(&format!("{origin}?job=orders"));
    browser.until_text("#summary .lead", |text| text == "east-1 leads orders");
    browser.eval(&format!("document.getElementById('token').value = '{TOKEN}'"));
    // The first questions after the outcome fail. Meanwhile the other job is chosen.
    browser.eval(
        "window.answers = fetch; window.asked = []; \
         fetch = (path, how) => { \
           if (!path.startsWith('/requests/')) return answers(path, how); \
           asked.push(path); \
           return window.go ? answers(path, how) : Promise.reject(new TypeError('no network')); \
         }; 0",
    );
    browser.eval("document.querySelector('button[value=pause]').click()");
    browser.eval("document.querySelector('#confirm button[value=yes]').click()");
    browser.until_text("#result", |text| text.ends_with("filed; its outcome can't be read now: no network"));
    browser.eval(
        "{ window.go = true; const jobs = document.getElementById('job'); jobs.value = 'app'; \
         jobs.dispatchEvent(new Event('change')); }",
    );
    browser.until_text("#result", |text| text == "orders: pause done");
    let asked = "asked.length > 1 && asked.every((path) => path.endsWith('?job=orders'))";
    assert_eq!(browser.eval(asked), json!(true));
    assert_clean(&browser, &origin);
}

#[test]
fn a_leader_whose_job_stays_down_is_not_green() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-down");
    let settings =
        ["job.orders.command=[\"/bin/sh\", \"-c\", \"exit 3\"]", "job.orders.exit_codes.stay_down=[3]"];
    let east = stage.worker("east-1", "east", &settings);
    browser.open(&format!("http://127.0.0.1:{}/", east.port));
    browser.until_text("#summary", |text| text.contains("east-1 leads orders") && text.contains("exited"));
    assert_eq!(browser.eval("document.getElementById('summary').className"), "summary busy");
}

#[test]
fn a_hidden_page_follows_no_events() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-hidden");
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    browser.open(&format!("http://127.0.0.1:{}/", east.port));
    browser.until_text("#link", |text| text == "live");
    let turn = |browser: &mut Browser, hidden: bool| {
        browser.eval(&format!(
            "Object.defineProperty(document, 'hidden', {{ value: {hidden}, configurable: true }}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        ));
    };
    turn(&mut browser, true);
    assert_eq!(browser.eval("source === null"), json!(true));
    turn(&mut browser, false);
    until("it follows again", || browser.eval("source.readyState") == json!(1));
}

#[test]
fn text_from_outside_stays_text() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/page-text");
    const SCRIPT: &str = "<script>document.title='owned'<\\u002fscript>";
    const IMAGE: &str = "<img/src=x/onerror=alert(1)>";
    let east = stage.worker("east-1", "east", &[]);
    until("east-1 leads", || leads(&east));
    let west = stage.worker(
        "west-1",
        "west",
        &["node.attributes={ rack = \"<img src=x onerror=window.owned=1>\", row = \"<i>1<i>\" }"],
    );
    until("it is standby", || west.code("/standby") == 200);
    let reason = format!("{SCRIPT}{IMAGE}</script>");
    stage.operator(&["switchover", "--to", "west-1", "--reason", &reason, "--wait"]).assert(0, &[]);
    let origin = format!("http://127.0.0.1:{}/", east.port);
    browser.open(&origin);
    browser.until_text("#summary .lead", |text| text == "west-1 leads orders");
    browser.until_text("#history", |text| text.contains(IMAGE) && text.contains("west-1"));
    let sites = browser.until_text("#sites", |text| text.contains("rack=<img src=x onerror=window.owned=1>"));
    assert!(sites.contains("row=<i>1<i>"), "{sites}");
    assert_eq!(
        browser.eval("[window.owned, document.querySelectorAll('main img, main i, main script').length]"),
        json!([null, 0])
    );
    assert_ne!(browser.eval("document.title"), "owned");
    assert_clean(&browser, &origin);

    // The policy holds even against a script that got in.
    let (head, _) = east.http("GET", "/");
    let policy =
        head.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'nonce-"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(code_of(&head), 200);
    browser.eval(
        "document.body.append(Object.assign(document.createElement('script'), { text: 'window.owned = 1' }))",
    );
    browser.eval(
        "document.body.append(Object.assign(document.createElement('img'), { src: 'http://127.0.0.1:1/x' }))",
    );
    assert_eq!(browser.eval("window.owned"), json!(null));
    assert!(browser.seen.errors.iter().any(|error| error.contains("Content Security Policy")));
}
