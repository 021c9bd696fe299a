// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chromium for tests of pages that live: it is driven by the DevTools protocol over two pipes, so nothing listens.

use std::io::{BufRead as _, BufReader, PipeReader, PipeWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use command_fds::{CommandFdExt as _, FdMapping};
use serde_json::{Value, json};

/// Longest wait for anything, beside any load.
const PATIENCE: Duration = Duration::from_secs(120);
/// Period of looks at the page.
const LOOK: Duration = Duration::from_millis(20);

/// Chromium, or `None` with the reason recorded.
#[track_caller]
#[must_use]
pub fn find() -> Option<&'static str> {
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success()));
    if found.is_none() {
        crate::skip("no Chromium here (apt-get install chromium)");
    }
    found
}

/// Options with which Chromium asks nobody for anything by itself.
pub const QUIET: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// A page in a browser of its own.
#[derive(Debug)]
pub struct Page {
    child: Child,
    to: PipeWriter,
    from: Receiver<Value>,
    last: u64,
    session: Option<String>,
    /// What the browser has told so far, beside answers.
    told: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Page {
    /// An empty page of this size in CSS pixels. Certificates are not checked.
    ///
    /// # Panics
    /// As all functions here, if the browser does not do what it is told.
    #[must_use]
    pub fn open(browser: &str, width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let (theirs_in, to) = std::io::pipe().expect("a pipe");
        let (ours_in, theirs_out) = std::io::pipe().expect("a pipe");
        let mut command = Command::new(browser);
        command.args(QUIET).args(["--remote-debugging-pipe", "--ignore-certificate-errors", "about:blank"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let map = |parent_fd, child_fd| FdMapping { parent_fd, child_fd };
        let fds = vec![map(theirs_in.into(), 3), map(theirs_out.into(), 4)];
        let child = command.fd_mappings(fds).expect("no number twice").spawn().expect("the browser runs");
        // the ends of the browser are its own now
        drop(command);
        let mut page = Self {
            child,
            to,
            from: listen(ours_in),
            last: 0,
            session: None,
            told: Vec::new(),
            _profile: profile,
        };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = page.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.resize(width, height);
        page
    }

    /// Gives a command, and returns its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// As [`Page::call`], with the browser's error.
    fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser listens");
        loop {
            let answer = self.from.recv_timeout(PATIENCE).unwrap_or_else(|e| panic!("{method}: {e}"));
            if answer["id"] == id {
                let error = &answer["error"];
                return if error.is_null() { Ok(answer["result"].clone()) } else { Err(error.clone()) };
            }
            if answer["id"].is_null() {
                self.told.push(answer);
            }
        }
    }

    /// Changes the size of the window. Below 600 pixels, it is that of a phone.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Chooses dark or light colours.
    pub fn set_dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Opens an address.
    pub fn go(&mut self, url: &str) {
        let result = self.call("Page.navigate", json!({ "url": url }));
        assert!(result["errorText"].is_null(), "{url}: {result}");
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        self.evaluate(expression).unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    fn evaluate(&mut self, expression: &str) -> Result<Value, Value> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = self.ask("Runtime.evaluate", params)?;
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        Ok(result["result"]["value"].clone())
    }

    /// Waits until an expression in the page is true.
    pub fn wait(&mut self, expression: &str) {
        let began = Instant::now();
        // a page that is being loaded has no elements
        let careful =
            format!("(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()");
        // and one that goes elsewhere meanwhile gives no answer
        while !self.evaluate(&careful).is_ok_and(|value| value == true) {
            let body = began.elapsed() > PATIENCE;
            assert!(!body, "{expression}: {}\n{:?}", self.value("document.body.innerText"), self.problems());
            std::thread::sleep(LOOK);
        }
    }

    /// Presses a key, named as in `KeyboardEvent.key`.
    pub fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let down = json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", down);
        self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key }));
    }

    /// Errors of the page so far: exceptions, and what is in the console.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let is_problem = |told: &&Value| {
            told["method"] == "Runtime.exceptionThrown"
                || told["method"] == "Runtime.consoleAPICalled"
                || told["method"] == "Log.entryAdded"
        };
        self.told.iter().filter(is_problem).map(Value::to_string).collect()
    }

    /// Addresses of all requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let sent = self.told.iter().filter(|told| told["method"] == "Network.requestWillBeSent");
        sent.filter_map(|told| told["params"]["request"]["url"].as_str()).map(str::to_owned).collect()
    }

    /// Writes a picture of the whole page, PNG.
    pub fn picture(&mut self, file: &Path) {
        let params = json!({ "format": "png", "captureBeyondViewport": true });
        let result = self.call("Page.captureScreenshot", params);
        std::fs::write(file, base64(result["data"].as_str().unwrap_or_default())).expect("written");
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads messages, each of which ends with a zero byte.
fn listen(from: PipeReader) -> Receiver<Value> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut bytes = Vec::new();
        while from.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
            bytes.pop();
            let Ok(message) = serde_json::from_slice(&bytes) else { return };
            if sender.send(message).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receiver
}

/// The bytes of a text in base64.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u32> = text.bytes().filter_map(digit).map(u32::from).collect();
    let group = |four: &[u32]| {
        let all = four.iter().fold(0, |all, digit| (all << 6) | digit) << (6 * (4 - four.len()));
        all.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_every_length_is_read() {
        for (text, bytes) in [("", ""), ("QQ==", "A"), ("QUI=", "AB"), ("QUJD", "ABC"), ("QUJDRA==", "ABCD")]
        {
            assert_eq!(base64(text), bytes.as_bytes());
        }
    }
}
