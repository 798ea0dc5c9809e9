//! A bare socket: one task that writes requests and reads their replies, of which it checks only the number and the
//! error. It is the reference for the other clients.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::load::Load;
use crate::setting::{DATA, SESSION_TIMEOUT};

const CREATE: i32 = 1;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const PING: i32 = 11;
const PING_XID: i32 = -2;
const EPHEMERAL: i32 = 1;
const ANY_VERSION: i32 = -1;
const ALL_PERMISSIONS: i32 = 31;
/// The header of a reply: its request's number, the ensemble's latest transaction, the error.
const REPLY_HEADER: usize = 4 + 8 + 4;
/// More than the replies to all pending requests.
const BUFFER: usize = 16 * 1024;

pub(crate) struct Socket {
    stream: TcpStream,
    /// Data that was read and not yet parsed.
    input: Vec<u8>,
    output: Vec<u8>,
    /// The numbers of the latest request, and of the latest one that has a reply.
    sent: i32,
    answered: i32,
}

impl Socket {
    /// Creates a session, which is kept alive until the last handle is dropped.
    pub(crate) async fn connect(address: &str) -> Result<Arc<Mutex<Self>>, String> {
        let opened = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true).map(|()| stream)
        };
        let stream = opened.await.map_err(|error| format!("{address}: {error}"))?;
        let (input, output) = (Vec::with_capacity(BUFFER), Vec::new());
        let mut socket = Self { stream, input, output, sent: 0, answered: 0 };
        // Protocol version, latest transaction seen, timeout, session and its password: a new one; not read-only.
        let timeout = i32::try_from(SESSION_TIMEOUT.as_millis()).map_err(|error| error.to_string())?;
        let ask = Frame::default().int(0).long(0).int(timeout).long(0).buffer(&[0; 16]).bool(false);
        ask.write(&mut socket.output);
        socket.flush().await?;
        let granted = loop {
            if let Some((reply, _)) = split(&socket.input) {
                break int(reply, 4);
            }
            socket.fill().await?;
        };
        if granted.is_none_or(|timeout| timeout <= 0) {
            return Err(format!("{address} has granted no session"));
        }
        socket.input.clear();
        let socket = Arc::new(Mutex::new(socket));
        let handle = Arc::downgrade(&socket);
        tokio::spawn(async move {
            loop {
                sleep(SESSION_TIMEOUT / 3).await;
                let Some(socket) = handle.upgrade() else { return };
                // A session in use stays alive by its requests.
                if let Ok(mut socket) = socket.try_lock()
                    && let Err(error) = socket.ping().await
                {
                    return eprintln!("a ping failed: {error}");
                }
            }
        });
        Ok(socket)
    }

    pub(crate) async fn create(&mut self, path: &str) -> Result<(), String> {
        let create = Frame::request(CREATE).buffer(path.as_bytes()).buffer(&[0; DATA]);
        let create = create.int(1).int(ALL_PERMISSIONS).buffer(b"world").buffer(b"anyone").int(EPHEMERAL);
        self.ask(&create).await
    }

    pub(crate) async fn read(&mut self, path: &str) -> Result<(), String> {
        self.ask(&Frame::get(path)).await
    }

    pub(crate) async fn write(&mut self, path: &str, data: &[u8]) -> Result<(), String> {
        self.ask(&Frame::set(path, data)).await
    }

    /// Runs the load until then, and returns the time of each operation. One write sends as many requests as replies
    /// came with one read.
    pub(crate) async fn bear(
        &mut self,
        load: Load,
        path: &str,
        end: Instant,
    ) -> Result<Vec<Duration>, String> {
        let request = if load.writes() { Frame::set(path, &[7; DATA]) } else { Frame::get(path) };
        let mut begun = VecDeque::with_capacity(load.width());
        let mut times = Vec::new();
        let mut free = load.width();
        let mut now = Instant::now();
        loop {
            // One at least, however late it begins.
            if now < end || (times.is_empty() && begun.is_empty()) {
                for _ in 0..free {
                    self.put(&request);
                    begun.push_back(now);
                }
                self.flush().await?;
            }
            if begun.is_empty() {
                return Ok(times);
            }
            free = self.replies().await?;
            now = Instant::now();
            times.extend(begun.drain(..free).map(|begun| now.duration_since(begun)));
        }
    }

    async fn ask(&mut self, request: &Frame) -> Result<(), String> {
        self.put(request);
        self.flush().await?;
        self.replies().await.map(drop)
    }

    /// The next read takes its reply.
    async fn ping(&mut self) -> Result<(), String> {
        Frame::default().int(PING_XID).int(PING).write(&mut self.output);
        self.flush().await
    }

    /// Adds a request to the next write.
    fn put(&mut self, request: &Frame) {
        let at = self.output.len() + 4;
        request.write(&mut self.output);
        self.sent += 1;
        self.output[at..at + 4].copy_from_slice(&self.sent.to_be_bytes());
    }

    async fn flush(&mut self) -> Result<(), String> {
        self.stream.write_all(&self.output).await.map_err(|error| error.to_string())?;
        self.output.clear();
        Ok(())
    }

    /// Reads until there is a reply, and returns the number of replies, at most the requested number.
    async fn replies(&mut self) -> Result<usize, String> {
        loop {
            let before = self.answered;
            let mut rest = &self.input[..];
            while let Some((reply, behind)) = split(rest) {
                rest = behind;
                let (Some(xid), Some(error)) = (int(reply, 0), int(reply, REPLY_HEADER - 4)) else {
                    return Err(format!("a reply of {} bytes", reply.len()));
                };
                if xid == PING_XID {
                    continue;
                }
                if xid != self.answered + 1 || xid > self.sent || error != 0 {
                    let expected = self.answered + 1;
                    return Err(format!("reply {xid} in the place of {expected}, with error {error}"));
                }
                self.answered = xid;
            }
            let used = self.input.len() - rest.len();
            self.input.drain(..used);
            if self.answered > before {
                return Ok((self.answered - before).unsigned_abs() as usize);
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), String> {
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) => Err("the server has closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A request without its length.
#[derive(Default)]
struct Frame(Vec<u8>);

impl Frame {
    /// Its number is filled in when it is sent.
    fn request(code: i32) -> Self {
        Self::default().int(0).int(code)
    }

    fn get(path: &str) -> Self {
        Self::request(GET_DATA).buffer(path.as_bytes()).bool(false)
    }

    fn set(path: &str, data: &[u8]) -> Self {
        Self::request(SET_DATA).buffer(path.as_bytes()).buffer(data).int(ANY_VERSION)
    }

    fn bool(self, value: bool) -> Self {
        self.bytes(&[u8::from(value)])
    }

    fn int(self, value: i32) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    fn long(self, value: i64) -> Self {
        self.bytes(&value.to_be_bytes())
    }

    fn buffer(self, bytes: &[u8]) -> Self {
        self.int(bytes.len() as i32).bytes(bytes)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn write(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(&(self.0.len() as u32).to_be_bytes());
        output.extend_from_slice(&self.0);
    }
}

/// The first frame and the rest, if the frame is complete.
fn split(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = input.split_first_chunk()?;
    rest.split_at_checked(u32::from_be_bytes(*length) as usize)
}

fn int(frame: &[u8], at: usize) -> Option<i32> {
    frame.get(at..)?.first_chunk().map(|bytes| i32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use zk_testkit::TestServer;

    use super::*;

    #[tokio::test]
    async fn what_it_counts_was_done() {
        let server = TestServer::start().await.expect("a server");
        let socket = Socket::connect(&server.connect_string()).await.expect("a session");
        let mut socket = socket.lock().await;
        socket.create("/node").await.expect("a znode");
        assert_eq!(server.data(0, "/node"), Some(vec![0; DATA]));
        for load in Load::ALL {
            let before = (server.zxid(0), socket.sent);
            let end = Instant::now() + Duration::from_millis(50);
            let done = socket.bear(load, "/node", end).await.expect("it bears the load").len();
            assert!(done >= load.width(), "{done} of {load}");
            assert_eq!((socket.sent - before.1) as usize, done, "{load}");
            let written = if load.writes() { done } else { 0 };
            assert_eq!((server.zxid(0) - before.0) as usize, written, "{load}");
        }
        assert_eq!(server.data(0, "/node"), Some(vec![7; DATA]));
        let missing = socket.read("/nowhere").await.expect_err("no such znode");
        assert!(missing.contains("error -101"), "{missing}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_outlives_its_timeout() {
        let server = TestServer::start().await.expect("a server");
        let socket = Socket::connect(&server.connect_string()).await.expect("a session");
        socket.lock().await.create("/node").await.expect("a znode");
        for _ in 0..60 {
            sleep(SESSION_TIMEOUT / 10).await;
        }
        socket.lock().await.read("/node").await.expect("the znode is still there");
        drop(socket);
        sleep(SESSION_TIMEOUT * 3).await;
        assert_eq!(server.data(0, "/node"), None);
    }
}
