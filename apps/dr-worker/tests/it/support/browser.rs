//! Headless Chromium, over its debugging protocol on a pipe.

use std::{
    io::{BufRead as _, BufReader, PipeWriter, Write as _},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use base64::Engine as _;
use serde_json::{Value, json};

use super::LONG;

/// What Chromium reports of requests that were under way while the network of this machine changed.
const NETWORK_CHANGED: &str = "net::ERR_NETWORK_CHANGED";

/// A browser with one page.
pub(crate) struct Browser {
    child: Child,
    commands: PipeWriter,
    messages: Receiver<Value>,
    session: String,
    number: u64,
    /// What the page did since it was opened.
    pub(crate) seen: Seen,
    _profile: tempfile::TempDir,
}

/// Events of a page.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The URLs of all requests.
    pub(crate) requests: Vec<String>,
    /// Errors and warnings of the console, violations of the policy, uncaught exceptions.
    pub(crate) errors: Vec<String>,
}

impl Browser {
    /// Starts it; `None` if it is not installed, which fails with CI=true.
    pub(crate) fn start() -> Option<Self> {
        let is_there =
            |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        let Some(program) = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there)
        else {
            zk_testkit::skip("there is no Chromium: apt-get install chromium");
            return None;
        };
        let profile = tempfile::tempdir().expect("a directory");
        let (input, commands) = std::io::pipe().expect("a pipe");
        let (output, events) = std::io::pipe().expect("a pipe");
        // It reads commands from descriptor 3, and writes to 4.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null";
        let child = Command::new("/bin/sh")
            .args([
                "-c",
                script,
                program,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--remote-debugging-pipe",
            ])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--disable-breakpad"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(input)
            .stdout(events)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut message = Vec::new();
            while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(parsed) = serde_json::from_slice(&message) else { return };
                if sender.send(parsed).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let (session, seen) = (String::new(), Seen::default());
        let mut browser = Self { child, commands, messages, session, number: 0, seen, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command, and waits for its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let number = self.number;
        let mut message = json!({ "id": number, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).expect("it reads");
        let deadline = Instant::now() + LONG;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let message = self.messages.recv_timeout(left).unwrap_or_else(|e| panic!("{method}: {e}"));
            if message["id"] == number {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].clone();
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let (parameters, seen) = (&message["params"], &mut self.seen);
        match message["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                seen.requests.push(parameters["request"]["url"].as_str().unwrap_or_default().to_owned());
            }
            "Runtime.exceptionThrown" => seen.errors.push(parameters.to_string()),
            "Runtime.consoleAPICalled" if parameters["type"] != "log" => {
                seen.errors.push(parameters.to_string());
            }
            // Another test has added or removed a network interface. The page reads again.
            "Log.entryAdded" if parameters["entry"]["text"].to_string().contains(NETWORK_CHANGED) => {}
            // Such as that an element has the focus already, where the test was quicker than the page.
            "Log.entryAdded" if parameters["entry"]["level"] == "info" => {}
            "Log.entryAdded" => seen.errors.push(parameters["entry"].to_string()),
            _ => {}
        }
    }

    /// Opens a page.
    pub(crate) fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// The value of an expression in the page; of a promise its result.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// The text of an element; empty without one.
    pub(crate) fn text(&mut self, selector: &str) -> String {
        let expression = format!("(document.querySelector({}) || {{}}).innerText || ''", json!(selector));
        self.eval(&expression).as_str().expect("text").to_owned()
    }

    /// Waits until the text of an element fits.
    #[track_caller]
    pub(crate) fn until_text(&mut self, selector: &str, fits: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + LONG;
        loop {
            let text = self.text(selector);
            if fits(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "{selector}: {text}\n{:?}", self.seen.errors);
            // Between two looks.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key in the page.
    pub(crate) fn press(&mut self, key: &str, code: u32, text: &str) {
        let event = |kind: &str| json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.call("Input.dispatchKeyEvent", event("keyDown"));
        self.call("Input.dispatchKeyEvent", event("keyUp"));
    }

    /// Shows the page as on a screen of this size, with this colour scheme.
    pub(crate) fn appear(&mut self, width: u32, height: u32, scheme: &str) {
        let mobile = width < 600;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// A picture of what is on the screen, as PNG.
    pub(crate) fn picture(&mut self) -> Vec<u8> {
        let picture = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let text = picture["data"].as_str().expect("a picture");
        base64::prelude::BASE64_STANDARD.decode(text).expect("base64")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
