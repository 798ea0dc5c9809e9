//! A disk that stops to answer: a file system of one program, served by this process over `/dev/fuse`.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// The name of the only file.
const NAME: &str = "job-guard";

const ROOT: u64 = 1;
const PROGRAM: u64 = 2;

/// Both requests and answers, of linux/fuse.h.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;

const ENOENT: i32 = 2;
const ENOSYS: i32 = 38;

/// How long what was said about the file is valid, in seconds: longer than a test.
const VALID: u64 = 100_000;

/// The mounted disk. Dropped, it answers all that waits, and is unmounted.
pub struct HungDisk {
    dir: tempfile::TempDir,
    served: Arc<Served>,
}

struct Served {
    device: File,
    program: Vec<u8>,
    /// Reads that wait, by their number, while the disk hangs.
    held: Mutex<Option<HashMap<u64, (u64, u32)>>>,
}

impl HungDisk {
    /// A disk that holds a copy of `program`, and answers; `None`, loudly, where this user can't mount one.
    pub fn of(program: &Path) -> Option<HungDisk> {
        let disk = HungDisk::mount(program);
        if disk.is_none() {
            zk_testkit::skip("this test needs /dev/fuse, and the right to mount");
        }
        disk
    }

    fn mount(program: &Path) -> Option<HungDisk> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
        let dir = tempfile::tempdir().expect("tempdir");
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        mount(Some("hung"), dir.path(), Some("fuse"), flags, Some(options.as_str())).ok()?;
        let program = std::fs::read(program).expect("the program");
        let served = Arc::new(Served { device, program, held: Mutex::new(None) });
        let server = Arc::clone(&served);
        std::thread::spawn(move || server.serve());
        Some(HungDisk { dir, served })
    }

    pub fn program(&self) -> PathBuf {
        self.dir.path().join(NAME)
    }

    /// From now on no read is answered.
    pub fn hang(&self) {
        self.served.held().get_or_insert_default();
    }

    /// How many reads wait.
    pub fn waiting(&self) -> usize {
        self.served.held().as_ref().map_or(0, HashMap::len)
    }

    /// Answers what waits, and all that comes.
    pub fn recover(&self) {
        for (unique, (offset, size)) in self.served.held().take().unwrap_or_default() {
            self.served.read(unique, offset, size);
        }
    }
}

impl Drop for HungDisk {
    fn drop(&mut self) {
        self.recover();
        let _ = umount2(self.dir.path(), MntFlags::MNT_DETACH);
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Served {
    fn held(&self) -> std::sync::MutexGuard<'_, Option<HashMap<u64, (u64, u32)>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with the mount.
    fn serve(&self) {
        let mut buffer = vec![0; 1 << 18];
        while let Ok(count) = (&self.device).read(&mut buffer) {
            // Length, operation, number, inode, and 16 bytes about the caller.
            let (head, arguments) = buffer[..count].split_at(40);
            let (operation, unique, inode) = (u32_at(head, 4), u64_at(head, 8), u64_at(head, 16));
            match operation {
                INIT => self.answer(unique, 0, &self.welcome(arguments)),
                LOOKUP if arguments.strip_suffix(&[0]) == Some(NAME.as_bytes()) => {
                    let times = [PROGRAM, 0, VALID, VALID, 0].map(u64::to_ne_bytes).concat();
                    self.answer(unique, 0, &[times, self.attributes(PROGRAM)].concat());
                }
                LOOKUP => self.answer(unique, ENOENT, &[]),
                GETATTR => {
                    let valid = [VALID, 0].map(u64::to_ne_bytes).concat();
                    self.answer(unique, 0, &[valid, self.attributes(inode)].concat());
                }
                // FOPEN_KEEP_CACHE: as on a disk, what was read stays in memory.
                OPEN => self.answer(unique, 0, &[0, 2].map(u64::to_ne_bytes).concat()),
                READ => {
                    let (offset, size) = (u64_at(arguments, 8), u32_at(arguments, 16));
                    match &mut *self.held() {
                        Some(held) => _ = held.insert(unique, (offset, size)),
                        None => self.read(unique, offset, size),
                    }
                }
                RELEASE | FLUSH => self.answer(unique, 0, &[]),
                // These have no answer. A disk that hangs knows no interruption.
                FORGET | BATCH_FORGET | INTERRUPT => {}
                _ => self.answer(unique, ENOSYS, &[]),
            }
        }
    }

    fn read(&self, unique: u64, offset: u64, size: u32) {
        let rest = self.program.get(usize::try_from(offset).expect("64 bits")..).unwrap_or_default();
        self.answer(unique, 0, &rest[..rest.len().min(size as usize)]);
    }

    /// An error means that the kernel has given the request up.
    fn answer(&self, unique: u64, error: i32, content: &[u8]) {
        let length = u32::try_from(16 + content.len()).expect("short");
        let head = [&length.to_ne_bytes()[..], &(-error).to_ne_bytes(), &unique.to_ne_bytes()].concat();
        let _ = (&self.device).write_all(&[&head, content].concat());
    }

    /// `fuse_init_out`: the versions, the readahead of the kernel, no flags, and the defaults.
    fn welcome(&self, theirs: &[u8]) -> Vec<u8> {
        let mut out = [7, 31, u32_at(theirs, 8), 0].map(u32::to_ne_bytes).concat();
        out.extend([16_u16, 12].map(u16::to_ne_bytes).concat());
        out.extend([1_u32 << 17, 1].map(u32::to_ne_bytes).concat());
        out.resize(64, 0);
        out
    }

    /// `fuse_attr`.
    fn attributes(&self, inode: u64) -> Vec<u8> {
        let (mode, size) =
            if inode == ROOT { (0o040_755, 0) } else { (0o100_755, self.program.len() as u64) };
        let mut out = [inode, size, size.div_ceil(512), 0, 0, 0].map(u64::to_ne_bytes).concat();
        out.extend([0, 0, 0, mode, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
        out
    }
}
