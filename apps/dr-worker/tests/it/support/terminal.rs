//! A command on a terminal.

use std::{
    fs::File,
    io::Read as _,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use nix::pty::{Winsize, openpty};

use super::{LONG, until};

/// A command on a terminal of its own.
pub(crate) struct OnTerminal {
    pub(crate) child: Ended,
    pub(crate) keys: File,
    shown: Arc<Mutex<String>>,
}

impl OnTerminal {
    pub(crate) fn start(command: &mut Command, width: u16, height: u16) -> Self {
        let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        let terminal = openpty(Some(&size), None).expect("a terminal");
        command.env_remove("COLUMNS").env("TERM", "xterm");
        let end = || Stdio::from(terminal.slave.try_clone().expect("a descriptor"));
        let child =
            command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("dr-worker can be started");
        // The command keeps its ends, and with them a terminal that would end.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let keys = File::from(terminal.master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (keys.try_clone().expect("a descriptor"), Arc::clone(&shown));
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            // The end is an error on Linux: no program has the terminal open any more.
            while let Ok(length @ 1..) = from.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..length]);
                to.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            }
        });
        Self { child: Ended(child), keys, shown }
    }

    pub(crate) fn shown(&self) -> String {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    #[track_caller]
    pub(crate) fn until_shown(&self, part: &str) {
        until(part, || self.shown().contains(part));
    }

    #[track_caller]
    pub(crate) fn assert_ends(&mut self, code: i32) {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.0.try_wait().expect("its own child") {
                assert_eq!(status.code(), Some(code), "{}", self.shown());
                return;
            }
            assert!(Instant::now() < deadline, "it has not ended: {}", self.shown());
            // Between two looks.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A command that ends with the test.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
