//! The smallest client that can make and read a znode: what the proxy does can
//! be seen byte by byte, with no library that repairs it.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const CREATE_CONTAINER: i32 = 19;
/// The flags of a container.
const CONTAINER: i32 = 4;
const CREATE_TTL: i32 = 21;
/// The flags of a znode that ends by itself.
const PERSISTENT_WITH_TTL: i32 = 5;
const EXISTS: i32 = 3;
const PING: i32 = 11;
const PING_XID: i32 = -2;
const ALL_PERMISSIONS: i32 = 31;
const PERSISTENT: i32 = 0;
const EPHEMERAL: i32 = 1;
const SESSION_TIMEOUT_MS: i32 = 10_000;

pub(crate) struct RawClient {
    stream: TcpStream,
    xid: i32,
}

/// A reply's header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) xid: i32,
    pub(crate) error: i32,
}

impl RawClient {
    /// Connects and opens a session.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        let mut client = Self { stream, xid: 0 };
        let mut hello = Vec::new();
        hello.extend(0_i32.to_be_bytes()); // protocol version
        hello.extend(0_i64.to_be_bytes()); // last zxid seen
        hello.extend(SESSION_TIMEOUT_MS.to_be_bytes());
        hello.extend(0_i64.to_be_bytes()); // session id: a new one
        hello.extend(bytes(&[0; 16])); // password
        hello.push(0); // not read-only
        client.send(&hello).await?;
        client.receive().await?;
        Ok(client)
    }

    pub(crate) async fn create(&mut self, path: &str) -> io::Result<Reply> {
        let xid = self.send_create(path).await?;
        self.reply_to(xid).await
    }

    pub(crate) async fn create_ephemeral(&mut self, path: &str) -> io::Result<Reply> {
        let xid = self.request(CREATE, &create_body(path, EPHEMERAL)).await?;
        self.reply_to(xid).await
    }

    /// A znode of which anybody may do so much.
    pub(crate) async fn create_allowing(&mut self, path: &str, permissions: i32) -> io::Result<Reply> {
        let xid = self.request(CREATE, &body_allowing(path, permissions, PERSISTENT)).await?;
        self.reply_to(xid).await
    }

    pub(crate) async fn create_container(&mut self, path: &str) -> io::Result<Reply> {
        let xid = self.request(CREATE_CONTAINER, &create_body(path, CONTAINER)).await?;
        self.reply_to(xid).await
    }

    /// A znode that ends when nobody has changed it for so long.
    pub(crate) async fn create_ttl(&mut self, path: &str, ttl_ms: i64) -> io::Result<Reply> {
        let mut body = create_body(path, PERSISTENT_WITH_TTL);
        body.extend(ttl_ms.to_be_bytes());
        let xid = self.request(CREATE_TTL, &body).await?;
        self.reply_to(xid).await
    }

    pub(crate) async fn delete(&mut self, path: &str) -> io::Result<Reply> {
        let mut body = bytes(path.as_bytes());
        body.extend((-1_i32).to_be_bytes()); // any version
        let xid = self.request(DELETE, &body).await?;
        self.reply_to(xid).await
    }

    /// Sends the request and doesn't wait for the reply.
    pub(crate) async fn send_create(&mut self, path: &str) -> io::Result<i32> {
        self.request(CREATE, &create_body(path, PERSISTENT)).await
    }

    pub(crate) async fn exists(&mut self, path: &str) -> io::Result<bool> {
        let mut body = bytes(path.as_bytes());
        body.push(0); // no watch
        let xid = self.request(EXISTS, &body).await?;
        Ok(self.reply_to(xid).await?.error == 0)
    }

    pub(crate) async fn ping(&mut self) -> io::Result<()> {
        let mut frame = PING_XID.to_be_bytes().to_vec();
        frame.extend(PING.to_be_bytes());
        self.send(&frame).await?;
        self.reply_to(PING_XID).await.map(|_| ())
    }

    pub(crate) async fn reply_to(&mut self, xid: i32) -> io::Result<Reply> {
        let frame = self.receive().await?;
        let int = |at: usize| -> io::Result<i32> {
            let bytes = frame.get(at..at + 4).ok_or(io::ErrorKind::InvalidData)?;
            let bytes = bytes.try_into().map_err(io::Error::other)?;
            Ok(i32::from_be_bytes(bytes))
        };
        let reply = Reply { xid: int(0)?, error: int(12)? };
        if reply.xid != xid {
            return Err(io::Error::other(format!("{reply:?} is not to {xid}")));
        }
        Ok(reply)
    }

    async fn request(&mut self, code: i32, body: &[u8]) -> io::Result<i32> {
        self.xid += 1;
        let mut frame = self.xid.to_be_bytes().to_vec();
        frame.extend(code.to_be_bytes());
        frame.extend(body);
        self.send(&frame).await?;
        Ok(self.xid)
    }

    async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.stream.write_all(&bytes(frame)).await
    }

    async fn receive(&mut self) -> io::Result<Vec<u8>> {
        let length = self.stream.read_u32().await?;
        let mut frame = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        self.stream.read_exact(&mut frame).await?;
        Ok(frame)
    }
}

fn create_body(path: &str, flags: i32) -> Vec<u8> {
    body_allowing(path, ALL_PERMISSIONS, flags)
}

fn body_allowing(path: &str, permissions: i32, flags: i32) -> Vec<u8> {
    let mut body = bytes(path.as_bytes());
    body.extend(bytes(b"data"));
    body.extend(1_i32.to_be_bytes()); // one entry of the access list
    body.extend(permissions.to_be_bytes());
    body.extend(bytes(b"world"));
    body.extend(bytes(b"anyone"));
    body.extend(flags.to_be_bytes());
    body
}

/// A length and then the bytes: a frame, a string or a buffer.
fn bytes(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut all = length.to_be_bytes().to_vec();
    all.extend(content);
    all
}
