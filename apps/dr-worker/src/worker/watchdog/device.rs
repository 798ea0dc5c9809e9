//! The device: opened, kicked, stopped.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    time::Duration,
};

use nix::fcntl::OFlag;

use crate::config::WatchdogConfig;

/// An open device. It runs from its opening on, and resets the machine after its timeout without a kick. If it is dropped
/// without [`Device::disarm`], it keeps running.
#[derive(Debug)]
pub(super) struct Device {
    file: File,
    pub(super) timeout: Duration,
}

impl Device {
    /// Opens the device with a timeout of at most `longest`.
    ///
    /// # Errors
    /// Why it can't be used, as a sentence. A device that was opened is stopped again, if that is possible.
    pub(super) fn open(config: &WatchdogConfig, longest: Duration) -> Result<Device, String> {
        let path = &config.device;
        let shown = path.display();
        if !can_be_stopped(path) {
            return Err(format!(
                "can't use {shown}: it can't be stopped once it runs; load its driver with nowayout=0"
            ));
        }
        // A pipe without a reader, a test's device, must not block.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).bits();
        let file = OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => "; load the driver of the hardware, or softdog",
                io::ErrorKind::PermissionDenied => "; let the worker's user write to it",
                io::ErrorKind::ResourceBusy => "; another program uses it",
                _ => "",
            };
            format!("can't open {shown}: {error}{hint}")
        })?;
        let mut device = Device { file, timeout: longest };
        let timeout = match config.fixed_timeout {
            Some(fixed) => Ok(fixed),
            None => watchdog_timer::set_timeout(&device.file, longest),
        };
        let problem = match timeout {
            Ok(timeout) if timeout <= longest && !timeout.is_zero() => {
                device.timeout = timeout;
                return Ok(device);
            }
            Ok(timeout) => format!(
                "its timeout is {timeout:?}, and must be at most {longest:?}; lengthen zookeeper.session_timeout"
            ),
            Err(error) => format!(
                "its timeout can't be set: {error}; set watchdog.fixed_timeout if it has one that can't be changed"
            ),
        };
        let _ = device.disarm();
        Err(format!("can't use {shown}: {problem}"))
    }

    /// Puts off the reset for its timeout.
    pub(super) fn kick(&mut self) -> io::Result<()> {
        self.file.write_all(b"k")
    }

    /// Stops it: the 'magic close'.
    pub(super) fn disarm(mut self) -> io::Result<()> {
        self.file.write_all(b"V")
    }
}

/// Whether the driver lets it be stopped, as far as the kernel reports.
fn can_be_stopped(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = if name == "watchdog" { "watchdog0" } else { name };
    let nowayout = fs::read_to_string(format!("/sys/class/watchdog/{name}/nowayout"));
    nowayout.map_or(true, |nowayout| nowayout.trim() != "1")
}
