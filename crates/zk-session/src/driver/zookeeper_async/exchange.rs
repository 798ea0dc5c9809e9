//! What one session has under way on the wire: requests without a reply and
//! watches without an event. Frames in, frames out, no I/O and no clock.
//!
//! ```text
//!   client --frame--> take_request --forward--> server
//!   client <--frames-- take_reply <--frame---- server
//!   client <--frames-- cut()          (the link is gone: all in flight fail)
//!                      resume() --frames-----> server (the watches again)
//! ```

use std::collections::VecDeque;

use super::armed::{Armed, Look};
use super::wire::{
    Fields, Frame, Malformed, ReplyHeader, STAT_LEN, bare_frame, code, op, pong_frame, put_bytes, xid,
};
use crate::driver::{WatchKind, WatchToken};

/// Error code that stands, in replies made up by the link, for "the request
/// never left this process". Servers do not send it; should one, it becomes
/// [`PERHAPS_APPLIED`].
pub(super) const NOT_SENT: i32 = -7;

/// Error code that stands, in replies made up by the link, for "the request
/// may have been applied".
pub(super) const PERHAPS_APPLIED: i32 = -4;

/// The first character of the list element that carries the `Stat` of a
/// children reply to the driver: no znode's name can contain it.
pub(super) const STAT_MARK: char = '/';

/// Separates, in the requests of the driver, a path from the token of the
/// watch that is wanted on it. No path contains it.
const TOKEN_MARK: char = '\0';

/// Requests and watches of one session, in wire order.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    last_xid: i32,
    /// The newest transaction that a reply has shown; a server that is behind
    /// it must not serve this session.
    last_zxid: i64,
    expected: VecDeque<Expected>,
    /// Replies to `SetWatches` that are still to come.
    settling: usize,
    pings: usize,
    armed: Armed,
}

#[derive(Debug)]
enum Expected {
    Reply {
        xid: i32,
        op: i32,
        watch: Option<(WatchToken, String)>,
    },
    /// The client pinged; it is answered here, in its turn.
    Pong,
    /// The session's end was asked for.
    Closed {
        xid: i32,
    },
}

/// What follows from a frame of the client.
#[derive(Debug)]
pub(super) enum FromClient {
    /// To be sent to the server.
    Forward(Frame),
    /// To be given back to the client (nothing, while older requests wait).
    Answer(Option<Frame>),
}

/// What follows from a frame of the server.
#[derive(Debug, Default)]
pub(super) struct FromServer {
    /// To be given to the client, in order.
    pub(super) to_client: Vec<Frame>,
    /// Watches that the frame has fired.
    pub(super) fired: Vec<(WatchToken, WatchKind, String)>,
    /// What the frame means for the session.
    pub(super) notice: Option<Notice>,
}

/// Something that concerns the whole session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// The server says that the session is over.
    Expired,
    /// Another server serves the session by now.
    Moved,
    /// The end of the session, as asked for, is acknowledged.
    Closed,
}

impl Exchange {
    /// The newest transaction seen.
    pub(super) fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// Whether no reply is owed to the client.
    pub(super) fn is_idle(&self) -> bool {
        self.expected.is_empty()
    }

    /// Whether watches that were set again have not been acknowledged yet.
    pub(super) fn is_settling(&self) -> bool {
        self.settling > 0
    }

    /// Nobody waits for this watch any more.
    pub(super) fn forget(&mut self, token: WatchToken) {
        self.armed.forget(token);
        for expected in &mut self.expected {
            if let Expected::Reply { watch, .. } = expected {
                watch.take_if(|(other, _)| *other == token);
            }
        }
    }

    /// Whether a ping has not been answered yet.
    pub(super) fn is_pinging(&self) -> bool {
        self.pings > 0
    }

    /// A ping of the link's own.
    pub(super) fn ping(&mut self) -> Frame {
        self.pings += 1;
        bare_frame(xid::PING, op::PING)
    }

    /// The request that ends the session.
    pub(super) fn close(&mut self) -> Frame {
        let xid = self.next_xid();
        self.expected.push_back(Expected::Closed { xid });
        bare_frame(xid, op::CLOSE)
    }

    /// Take a request of the client.
    ///
    /// Exchange ids are given anew: the client counts without bound, and its
    /// numbers would in time become those that mean events and pings.
    pub(super) fn take_request(&mut self, mut frame: Frame) -> Result<FromClient, Malformed> {
        let mut fields = Fields(frame.payload());
        let _xid = fields.i32()?;
        let op = fields.i32()?;
        let mut watch = None;
        match op {
            op::PING => {
                self.expected.push_back(Expected::Pong);
                return Ok(FromClient::Answer(self.pongs().pop()));
            }
            op::EXISTS | op::GET_DATA | op::GET_CHILDREN => {
                let (path, token) = split_token(fields.str()?)?;
                if let Some(token) = token {
                    watch = Some((token, path.to_owned()));
                }
                // The newer request for children has the same fields; its
                // reply begins with the same list and goes on with the Stat
                // of the parent.
                if op == op::GET_CHILDREN {
                    frame = read_frame(op::GET_CHILDREN2, path, token.is_some());
                } else if token.is_some() {
                    frame = read_frame(op, path, true);
                }
            }
            op::CREATE2 | op::DELETE | op::SET_DATA => {}
            _ => return Err(Malformed("a request that the driver never makes")),
        }
        let xid = self.next_xid();
        frame.set_xid(xid);
        self.expected.push_back(Expected::Reply { xid, op, watch });
        Ok(FromClient::Forward(frame))
    }

    /// The reply to a request of the client that can't be sent now.
    pub(super) fn refuse(frame: &Frame) -> Result<Frame, Malformed> {
        let mut fields = Fields(frame.payload());
        let _xid = fields.i32()?;
        Ok(match fields.i32()? {
            op::PING => pong_frame(),
            _ => error_frame(NOT_SENT),
        })
    }

    /// Take a message of the server.
    ///
    /// # Errors
    /// For anything that the client could not digest, or that answers no
    /// request: nothing that this connection says can be relied upon.
    pub(super) fn take_reply(&mut self, mut frame: Frame) -> Result<FromServer, Malformed> {
        let (header, body) = ReplyHeader::parse(frame.payload())?;
        match header.xid {
            xid::EVENT => return self.event(body),
            xid::PING => {
                self.pings =
                    self.pings.checked_sub(1).ok_or(Malformed("the answer to a ping that was not sent"))?;
                return Ok(FromServer::default());
            }
            xid::SET_WATCHES => {
                self.settling =
                    self.settling.checked_sub(1).ok_or(Malformed("watches set that were not asked for"))?;
                // Without its watches the session would miss changes: begin
                // again on another connection.
                return match header.err {
                    0 => Ok(FromServer::default()),
                    _ => Err(Malformed("the server refused to set the watches again")),
                };
            }
            _ => {}
        }
        if header.zxid > 0 {
            self.last_zxid = header.zxid;
        }
        let mut out = FromServer::default();
        match self.expected.front_mut() {
            Some(Expected::Reply { xid, op, watch }) if *xid == header.xid => {
                let (op, watch) = (*op, watch.take());
                // Only now, for a reply that is no good leaves the request without one: it fails with the connection.
                let other = self.reply(header, body, op, watch)?;
                out.to_client.push(other.unwrap_or_else(|| {
                    frame.set_xid(FOR_THE_CLIENT);
                    frame
                }));
            }
            Some(Expected::Closed { xid }) if *xid == header.xid => {
                out.notice = Some(Notice::Closed);
            }
            _ => return Err(Malformed("a reply to another request than the oldest")),
        }
        self.expected.pop_front();
        out.to_client.append(&mut self.pongs());
        out.notice = out.notice.or(match header.err {
            code::SESSION_EXPIRED => Some(Notice::Expired),
            code::SESSION_MOVED => Some(Notice::Moved),
            _ => None,
        });
        Ok(out)
    }

    /// The connection is gone: everything under way fails, in order.
    pub(super) fn cut(&mut self) -> Vec<Frame> {
        self.settling = 0;
        self.pings = 0;
        let failed = self.expected.drain(..).filter_map(|expected| match expected {
            Expected::Reply { .. } => Some(error_frame(PERHAPS_APPLIED)),
            Expected::Pong => Some(pong_frame()),
            Expected::Closed { .. } => None,
        });
        failed.collect()
    }

    /// There is a connection again: set all watches anew, before anything
    /// else is sent. The server compares them with the newest transaction
    /// seen here and sends the events that were missed.
    pub(super) fn resume(&mut self) -> Vec<Frame> {
        let frames = self.armed.set_watches(self.last_zxid);
        self.settling = frames.len();
        frames
    }

    fn next_xid(&mut self) -> i32 {
        self.last_xid = self.last_xid.checked_add(1).unwrap_or(1);
        self.last_xid
    }

    /// Answers to the pings of the client whose turn has come.
    fn pongs(&mut self) -> Vec<Frame> {
        let mut pongs = Vec::new();
        while matches!(self.expected.front(), Some(Expected::Pong)) {
            self.expected.pop_front();
            pongs.push(pong_frame());
        }
        pongs
    }

    /// What the client gets instead of the server's reply; `None` if that will do.
    fn reply(
        &mut self,
        header: ReplyHeader,
        mut body: Fields<'_>,
        op: i32,
        watch: Option<(WatchToken, String)>,
    ) -> Result<Option<Frame>, Malformed> {
        if let Some((token, path)) = watch {
            match (op, header.err) {
                (op::EXISTS | op::GET_DATA, 0) => self.armed.arm(Look::Data, path, token),
                (op::EXISTS, code::NO_NODE) => self.armed.arm(Look::Exist, path, token),
                (op::GET_CHILDREN, 0) => self.armed.arm(Look::Child, path, token),
                _ => {}
            }
        }
        match header.err {
            0 => {}
            NOT_SENT => return Ok(Some(error_frame(PERHAPS_APPLIED))),
            other => return Ok(Some(error_frame(other))),
        }
        match op {
            op::CREATE2 => {
                body.str()?;
                body.skip_stat()?;
            }
            op::EXISTS | op::SET_DATA => body.skip_stat()?,
            op::GET_DATA => {
                body.bytes()?;
                body.skip_stat()?;
            }
            op::GET_CHILDREN => {
                let list = body.0;
                body.skip_strings()?;
                let names = &list[4..list.len() - body.0.len()];
                let stat = body.0;
                body.skip_stat()?;
                return Ok(Some(children_frame(list, names, &stat[..STAT_LEN])));
            }
            _ => {}
        }
        Ok(None)
    }

    fn event(&mut self, mut body: Fields<'_>) -> Result<FromServer, Malformed> {
        let kind = match body.i32()? {
            1 => WatchKind::Created,
            2 => WatchKind::Deleted,
            3 => WatchKind::DataChanged,
            4 => WatchKind::ChildrenChanged,
            // Of the session, or of a kind that was never asked for.
            _ => return Ok(FromServer::default()),
        };
        let _state = body.i32()?;
        let path = body.str()?;
        let tokens = self.armed.fire(kind, path).into_iter();
        Ok(FromServer {
            fired: tokens.map(|token| (token, kind, path.to_owned())).collect(),
            ..FromServer::default()
        })
    }
}

/// The path as the driver hands it to the client in order to get a watch.
///
/// The client tells the server that a watch is wanted and has no place for
/// whose watch it is; the token travels in the path as far as the link, which
/// takes it out. So it is known, in the very order of the wire, which token
/// each reply arms and each event fires.
pub(super) fn path_with_token(path: &str, token: WatchToken) -> String {
    format!("{path}{TOKEN_MARK}{}", token.0)
}

fn split_token(path: &str) -> Result<(&str, Option<WatchToken>), Malformed> {
    match path.split_once(TOKEN_MARK) {
        None => Ok((path, None)),
        Some((path, token)) => match token.parse() {
            Ok(token) => Ok((path, Some(WatchToken(token)))),
            Err(_) => Err(Malformed("a path with NUL in it")),
        },
    }
}

fn read_frame(op: i32, path: &str, watch: bool) -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&0i32.to_be_bytes());
        out.extend_from_slice(&op.to_be_bytes());
        put_bytes(out, path.as_bytes());
        out.push(u8::from(watch));
    })
}

/// The exchange id in every reply to the client, which matches replies by
/// their order alone; it only must not be one of those with a meaning.
const FOR_THE_CLIENT: i32 = 1;

fn error_frame(code: i32) -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&FOR_THE_CLIENT.to_be_bytes());
        out.extend_from_slice(&0i64.to_be_bytes());
        out.extend_from_slice(&code.to_be_bytes());
    })
}

/// A children reply whose last element is the parent's `Stat`.
fn children_frame(list: &[u8], names: &[u8], stat: &[u8]) -> Frame {
    let count = list.first_chunk().map_or(0, |n| i32::from_be_bytes(*n));
    let mut mark = String::with_capacity(1 + 2 * stat.len());
    mark.push(STAT_MARK);
    for byte in stat {
        for digit in [byte >> 4, byte & 15] {
            mark.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    Frame::build(|out| {
        out.extend_from_slice(&FOR_THE_CLIENT.to_be_bytes());
        out.extend_from_slice(&0i64.to_be_bytes());
        out.extend_from_slice(&0i32.to_be_bytes());
        out.extend_from_slice(&count.saturating_add(1).to_be_bytes());
        out.extend_from_slice(names);
        put_bytes(out, mark.as_bytes());
    })
}

/// The bytes of the `Stat` that [`children_frame`] put into a list element.
pub(super) fn marked_stat(element: &str) -> Option<Vec<u8>> {
    let digits = element.strip_prefix(STAT_MARK)?.as_bytes();
    let nibble = |digit: &u8| char::from(*digit).to_digit(16);
    digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(nibble(high)? << 4 | nibble(low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests;
