//! The report of a drill, in headless Chromium.
//!
//! `DRILL_PICTURES=DIR` writes pictures of it: `drill-desktop-light.png` and the like.

use std::{fs, path::Path};

use crate::support::{
    browser::Browser,
    stage::{Stage, leads},
    until,
};
use serde_json::json;

#[test]
fn the_report_is_one_page_that_shows_the_timeline() {
    let Some(mut browser) = Browser::start() else { return };
    let stage = Stage::new("/drill-report");
    // What users see: a file that is there while the job serves.
    let served = stage.dir.path().join("served");
    let served = served.display();
    let settings = [
        "policy.min_tenure=0s",
        "job.orders.ready={ kind = \"none\", after = \"500ms\" }",
        &format!("job.orders.hooks.after_ready.command=[\"touch\", \"{served}\"]"),
        &format!("job.orders.hooks.before_stop.command=[\"rm\", \"-f\", \"{served}\"]"),
        &format!("job.orders.drill.probe={{ kind = \"exec\", command = [\"test\", \"-e\", \"{served}\"] }}"),
    ];
    let members = [("east-1", "east"), ("east-2", "east"), ("west-1", "west"), ("west-2", "west")];
    let mut workers = Vec::new();
    for (id, site) in members {
        let worker = stage.worker(id, site, &settings);
        if workers.is_empty() {
            until("the first one leads", || leads(&worker));
        } else {
            until("it is standby", || worker.code("/standby") == 200);
        }
        workers.push(worker);
    }
    let reason = "practice <script>document.title='owned'</script>";
    // No member publishes the attribute: the check of the lag fails, and nothing happens.
    let run = |objectives: &str| {
        let plan = format!(
            "--set=drill.page={{ job = \"orders\", mode = \"switchover\", to_site = \"west\", back = true, stay = \"1s\", \
             objectives = {objectives} }}"
        );
        let drill = ["drill", "--plan", "page", "--yes", "--reason", reason];
        stage.operator(&[&[plan.as_str(), "--set=policy.min_tenure=0s"], &drill[..]].concat())
    };
    let refused = run("{ rto = \"30s\", rpo = \"1s\", lag = \"lag\" }");
    refused.assert(75, &["west-1 has no attribute lag"]);
    run("{ rto = \"30s\" }").assert(0, &[]);

    let page = stage.operator(&["drill", "show", "last", "--format", "html"]);
    page.assert(0, &[]);
    let file = stage.dir.path().join("drill.html");
    fs::write(&file, &page.stdout).expect("a file");
    let url = format!("file://{}", file.display());
    browser.open(&url);
    browser
        .until_text("#sentence", |text| text.starts_with("west-") && text.contains("the job was moved back"));
    browser.until_text("#events", |text| text.contains("requests a switchover to site west"));
    browser.until_text("#decisions", |text| text.contains("switchover"));
    browser.until_text("#probes", |text| text.contains("serves") && text.contains("west"));
    browser.until_text("header", |text| text.contains(reason));
    browser.until_text("#objectives", |text| text.contains("RTO") && text.contains("reached"));
    // The leader, both moves, and a prober of each site; each lane has bars that are in it.
    let lanes =
        "Array.from(document.querySelectorAll('.lane svg')).map(svg => svg.querySelectorAll('rect').length)";
    let counts = browser.eval(lanes);
    let counts: Vec<_> =
        counts.as_array().expect("lanes").iter().filter_map(|count| count.as_u64()).collect();
    assert!(counts.len() == 5 && counts.iter().all(|count| *count >= 2), "{counts:?}");
    let inside = "Array.from(document.querySelectorAll('.lane svg')).every(svg => { const lane = svg.getBoundingClientRect(); \
                  return Array.from(svg.querySelectorAll('rect')).every(rect => { const bar = rect.getBoundingClientRect(); \
                  return bar.width > 0 && bar.left >= lane.left - 1 && bar.right <= lane.right + 1; }); })";
    for (name, width, height) in [("desktop", 1200, 1600), ("phone", 390, 2600)] {
        for (scheme, is_dark) in [("light", false), ("dark", true)] {
            browser.appear(width, height, scheme);
            let wide = browser.eval("document.documentElement.scrollWidth");
            assert!(wide.as_u64().is_some_and(|wide| wide <= width.into()), "{name}: {wide}");
            assert_eq!(browser.eval(inside), json!(true), "{name}");
            let background = browser.eval("getComputedStyle(document.body).backgroundColor");
            assert_eq!(background == "rgb(15, 20, 26)", is_dark, "{background}");
            if let Some(dir) = std::env::var_os("DRILL_PICTURES") {
                let picture = browser.picture();
                fs::write(Path::new(&dir).join(format!("drill-{name}-{scheme}.png")), picture)
                    .expect("written");
            }
        }
    }
    assert_eq!(browser.eval("document.scripts.length"), json!(0));
    assert_ne!(browser.eval("document.title"), "owned");
    assert_eq!(browser.seen.errors, Vec::<String>::new());
    assert!(
        browser.seen.requests.iter().all(|seen| *seen == url || seen == "data:,"),
        "{:?}",
        browser.seen.requests
    );
}
