//! A headless Chromium, driven through its debugging pipe (`--remote-debugging-pipe`): messages of the DevTools protocol, each with a
//! zero byte at its end, in two named pipes. There is no port that others could reach, and nothing to download beside the browser.
//!
//! It is for tests: what goes wrong is a panic or a text. It ends with its handle.
#![forbid(unsafe_code)]

mod rules;

pub use rules::ACCESSIBILITY;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::Chromium;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// For one answer; what is waited for in the page has its own time.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long the page may take to get into a state, in ms.
const STATE_WITHIN_MS: u32 = 30_000;

/// An open page.
pub struct Browser {
    child: Child,
    folder: PathBuf,
    to: File,
    from: Receiver<Value>,
    next: u64,
    session: Option<String>,
    wrong: Vec<String>,
}

/// How the page is seen.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Whether the system asks for dark colours.
    pub dark: bool,
}

impl Browser {
    /// Starts it with an empty page; it keeps its files in this folder, which must be new.
    ///
    /// # Errors
    /// If it cannot be started, with the reason.
    pub fn open(chromium: &Chromium, folder: &Path, screen: Screen) -> Result<Self, String> {
        std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let (orders, answers) = (folder.join("orders"), folder.join("answers"));
        let made = Command::new("mkfifo").arg(&orders).arg(&answers).status();
        if !made.map_err(|error| format!("mkfifo: {error}"))?.success() {
            return Err("mkfifo failed".to_owned());
        }
        let mut command = Command::new("sh");
        // Each side of a named pipe waits for the other one, in the same order as below.
        command.args(["-c", "in=$1; out=$2; shift 2; exec \"$@\" 3<\"$in\" 4>\"$out\"", "browser"]);
        command.arg(&orders).arg(&answers).arg(chromium.program());
        command
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", folder.join("profile").display()));
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage", "--disable-background-networking", "--lang=en-GB"]);
        chromium.prepare(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("starting the browser: {error}"))?;
        let to = OpenOptions::new().write(true).open(&orders).map_err(|error| error.to_string())?;
        let from = File::open(&answers).map_err(|error| error.to_string())?;
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            let mut message = Vec::new();
            while from.read_until(0, &mut message).is_ok_and(|read| read > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { break };
                message.clear();
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            folder: folder.to_owned(),
            to,
            from: receiver,
            next: 0,
            session: None,
            wrong: Vec::new(),
        };
        browser.begin(screen)?;
        Ok(browser)
    }

    fn begin(&mut self, screen: Screen) -> Result<(), String> {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}))?;
        let attached = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", attached)?;
        self.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Performance"] {
            self.call(&format!("{domain}.enable"), json!({}))?;
        }
        let Screen { width, height, dark } = screen;
        let phone = width < 600;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone});
        self.call("Emulation.setDeviceMetricsOverride", metrics)?;
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", media).map(drop)
    }

    /// A call of the DevTools protocol, and its result.
    ///
    /// # Errors
    /// What the browser says, or that it says nothing.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.next += 1;
        let mut message = json!({"id": self.next, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let sent = self.to.write_all(format!("{message}\0").as_bytes());
        sent.map_err(|error| format!("{method}: the browser is gone: {error}"))?;
        loop {
            let answer = self.from.recv_timeout(PATIENCE);
            let mut answer =
                answer.map_err(|error| format!("{method}: the browser does not answer: {error}"))?;
            if answer["id"] != self.next {
                self.note(&answer);
                continue;
            }
            return match answer["error"]["message"].as_str() {
                Some(why) => Err(format!("{method}: {why}")),
                None => Ok(answer["result"].take()),
            };
        }
    }

    /// Notes what a page complains of.
    fn note(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.wrong.push(params["exceptionDetails"].to_string()),
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.wrong.push(params["entry"].to_string());
            }
            "Runtime.consoleAPICalled" if params["type"] == "error" || params["type"] == "warning" => {
                self.wrong.push(params["args"].to_string());
            }
            _ => {}
        }
    }

    /// What the pages have complained of so far: errors of scripts and of the network, and what the policy has stopped.
    pub fn complaints(&mut self) -> Vec<String> {
        // A call takes in what has come before its answer.
        if let Err(why) = self.js("1") {
            self.wrong.push(why);
        }
        self.wrong.clone()
    }

    /// Goes to a page.
    ///
    /// # Errors
    /// If it cannot be loaded.
    pub fn go(&mut self, url: &str) -> Result<(), String> {
        let gone = self.call("Page.navigate", json!({"url": url}))?;
        match gone["errorText"].as_str() {
            Some(why) => Err(format!("{url}: {why}")),
            None => Ok(()),
        }
    }

    /// The value of an expression in the page; of a promise, what comes of it.
    ///
    /// # Errors
    /// If it throws.
    pub fn js(&mut self, expression: &str) -> Result<Value, String> {
        let asked = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut said = self.call("Runtime.evaluate", asked)?;
        if said["exceptionDetails"].is_null() {
            return Ok(said["result"]["value"].take());
        }
        Err(format!("{expression}: {}", said["exceptionDetails"]["exception"]["description"]))
    }

    /// Waits until an expression is true in the page.
    ///
    /// # Errors
    /// If it does not become true.
    pub fn until(&mut self, what: &str) -> Result<(), String> {
        let looking = format!(
            "new Promise((done, fail) => {{ const end = Date.now() + {STATE_WITHIN_MS}; const look = () => {{
                let is; try {{ is = {what} }} catch {{ is = false }}
                is ? done(true) : Date.now() > end ? fail(new Error('not within the time')) : setTimeout(look, 50) }}; look() }})"
        );
        self.js(&looking).map(drop)
    }

    /// Presses a key, such as `ArrowDown` or `Tab`.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn key(&mut self, key: &str) -> Result<(), String> {
        // Of these the browser knows what they do by their numbers alone.
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", event)?;
        }
        Ok(())
    }

    /// Measures processor time of the page's thread from now on, and not time that passes: what else the machine does does not count.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn clock_by_thread(&mut self) -> Result<(), String> {
        self.call("Performance.disable", json!({}))?;
        self.call("Performance.enable", json!({"timeDomain": "threadTicks"})).map(drop)
    }

    /// For how long scripts of the page have run so far, in ms.
    ///
    /// # Errors
    /// If the browser does not say.
    pub fn script_ms(&mut self) -> Result<f64, String> {
        let said = self.call("Performance.getMetrics", json!({}))?;
        let script =
            said["metrics"].as_array().into_iter().flatten().find(|one| one["name"] == "ScriptDuration");
        let seconds = script.and_then(|one| one["value"].as_f64());
        seconds
            .map(|seconds| seconds * 1e3)
            .ok_or_else(|| format!("it does not say for how long scripts ran: {said}"))
    }

    /// A picture (WebP, half as large as PNG) of what the screen shows.
    ///
    /// # Errors
    /// As for [`Self::call`].
    pub fn picture(&mut self) -> Result<Vec<u8>, String> {
        let asked = json!({"format": "webp", "quality": 75});
        let taken = self.call("Page.captureScreenshot", asked)?;
        STANDARD.decode(taken["data"].as_str().unwrap_or_default()).map_err(|error| error.to_string())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _killed = self.child.kill();
        let _ended = self.child.wait();
        // What still writes in it leaves something behind; the next test has a folder of its own.
        let _gone = std::fs::remove_dir_all(&self.folder);
    }
}
