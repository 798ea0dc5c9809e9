//! One transport, from its first byte to the point where the session is served on it.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::sasl::DigestMd5;
use super::ticket::Ticket;
use crate::codec::{
    ConnectRequest, ConnectResponse, ErrorCode, Malformed, OpCode, PASSWORD_LEN, Reply, ReplyHeader, Request,
    SessionId, cut_frame, xid,
};

/// The purpose of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new session, with this timeout if the server grants it.
    New(Duration),
    /// A session that exists.
    Resume(Ticket),
}

/// The credentials of a client, beside the transport's certificates.
#[derive(Default)]
pub struct Credentials<'a> {
    auth: &'a [(&'a str, &'a [u8])],
    sasl: Option<DigestMd5>,
}

impl<'a> Credentials<'a> {
    /// Schemes and secrets, as for `addauth`.
    #[must_use]
    pub fn new(auth: &'a [(&'a str, &'a [u8])]) -> Self {
        Self { auth, sasl: None }
    }

    /// SASL, which comes before anything else.
    #[cfg(feature = "sasl")]
    #[must_use]
    pub fn with_sasl(self, sasl: DigestMd5) -> Self {
        Self { sasl: Some(sasl), ..self }
    }
}

/// Why a transport does not serve the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The session does not exist, or has expired.
    #[error("the session has expired")]
    Expired,
    /// The server refused the credentials, or could not authenticate itself.
    #[error("{0}")]
    AuthFailed(String),
    /// The server did not say what it makes of the credentials.
    #[error("{0}")]
    Unanswered(String),
    /// The server has no quorum: it would serve reads that are out of date.
    #[error("the server is read-only: it has no quorum")]
    ReadOnly,
    /// The answer names a session that was not asked for. It must never be used.
    #[error("the server answered with another session")]
    AnotherSession,
    /// The answer is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The numbers of the requests of a handshake; those of a connection begin at 1.
const SASL: i32 = 0;
const PROBE: i32 = i32::MAX;

/// The largest message of a handshake.
const MOST: usize = 64 << 10;

/// The handshake on one transport. Write the bytes of [`outgoing`](Self::outgoing), and pass the bytes that arrive to
/// [`receive`](Self::receive), until that returns the granted [`Ticket`] or a [`Refusal`].
///
/// The connect request, the credentials and, for a new session, a first request that changes nothing are sent at once: a
/// server reads them in order.
pub struct Handshake {
    /// Of the session to be resumed; with the id 0 where a new one is asked for.
    asked: Ticket,
    is_new: bool,
    outgoing: BytesMut,
    /// Of the credentials that are not answered yet.
    schemes: VecDeque<String>,
    /// The first request has been answered.
    probed: bool,
    granted: Option<Ticket>,
    sasl: Option<DigestMd5>,
}

impl Handshake {
    /// A handshake that has sent nothing yet.
    #[must_use]
    pub fn new(purpose: &Purpose, credentials: Credentials<'_>) -> Self {
        let mut outgoing = BytesMut::new();
        let (asked, is_new) = match purpose {
            Purpose::New(timeout) => {
                let (session_id, password) = (SessionId(0), vec![0; PASSWORD_LEN]);
                (Ticket { session_id, password, timeout: *timeout, last_zxid: 0 }, true)
            }
            Purpose::Resume(ticket) => (ticket.clone(), false),
        };
        ConnectRequest {
            last_zxid: asked.last_zxid,
            timeout_ms: i32::try_from(asked.timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: asked.session_id.0,
            password: asked.password.clone(),
            read_only: Some(false),
        }
        .encode(&mut outgoing);
        if credentials.sasl.is_some() {
            Request::Sasl { token: Some((&[][..]).into()) }.encode(SASL, &mut outgoing);
        }
        for (scheme, secret) in credentials.auth {
            let credentials = Some((*secret).into());
            Request::Auth { kind: 0, scheme: Some((*scheme).into()), credentials }
                .encode(xid::AUTH, &mut outgoing);
        }
        if is_new && credentials.sasl.is_none() {
            probe(&mut outgoing);
        }
        Self {
            asked,
            is_new,
            outgoing,
            schemes: credentials.auth.iter().map(|(scheme, _)| (*scheme).to_owned()).collect(),
            probed: !is_new,
            granted: None,
            sasl: credentials.sasl,
        }
    }

    /// The bytes to write now. Each byte is returned once.
    #[must_use]
    pub fn outgoing(&mut self) -> BytesMut {
        self.outgoing.split()
    }

    /// Handles the bytes that have arrived. `None` until the handshake is complete; bytes beyond it stay in `input`.
    ///
    /// # Errors
    /// [`Refusal`]: the transport can't be used.
    pub fn receive(&mut self, input: &mut BytesMut) -> Result<Option<Ticket>, Refusal> {
        while !self.is_complete() {
            let Some(frame) = cut_frame(input, MOST)? else { return Ok(None) };
            if self.granted.is_none() {
                self.granted = Some(self.judge(&frame)?);
                continue;
            }
            let header = ReplyHeader::decode(&frame)?;
            match header.xid {
                xid::AUTH => self.auth_answered(header.error)?,
                SASL => self.sasl_answered(header, &frame)?,
                PROBE if header.error.refuses_client() => {
                    return Err(Refusal::AuthFailed(header.error.to_string()));
                }
                PROBE => {
                    self.probed = true;
                    if let Some(granted) = &mut self.granted {
                        granted.last_zxid = header.zxid.max(0);
                    }
                }
                _ => return Err(unasked().into()),
            }
        }
        Ok(self.granted.clone())
    }

    fn is_complete(&self) -> bool {
        let is_known = self.sasl.as_ref().is_none_or(DigestMd5::is_complete);
        is_known && self.granted.is_some() && self.schemes.is_empty() && self.probed
    }

    fn judge(&self, frame: &[u8]) -> Result<Ticket, Refusal> {
        let ConnectResponse { timeout_ms, session_id, password, read_only } = ConnectResponse::decode(frame)?;
        let timeout = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0 && session_id != 0);
        let timeout = Duration::from_millis(timeout.ok_or(Refusal::Expired)?);
        if read_only == Some(true) {
            return Err(Refusal::ReadOnly);
        }
        let session_id = SessionId(session_id);
        if !self.is_new && session_id != self.asked.session_id {
            return Err(Refusal::AnotherSession);
        }
        Ok(Ticket { session_id, password, timeout, last_zxid: self.asked.last_zxid })
    }

    fn auth_answered(&mut self, error: ErrorCode) -> Result<(), Refusal> {
        let scheme = self.schemes.pop_front();
        let scheme = scheme.ok_or(Malformed("an answer to credentials that were not sent"))?;
        accepted(error, &format!("the credentials for the scheme {scheme:?}"))
    }

    fn sasl_answered(&mut self, header: ReplyHeader, frame: &Bytes) -> Result<(), Refusal> {
        let Some(sasl) = &mut self.sasl else { return Err(unasked().into()) };
        accepted(header.error, "the SASL user")?;
        let Reply::Token(token) = Reply::decode(OpCode::SASL, frame)? else { return Err(unasked().into()) };
        if let Some(answer) = sasl.step(&token.unwrap_or_default()).map_err(Refusal::AuthFailed)? {
            Request::Sasl { token: Some(answer.into()) }.encode(SASL, &mut self.outgoing);
        } else if !self.probed {
            probe(&mut self.outgoing);
        }
        Ok(())
    }
}

/// What a server's answer means for these credentials. With a code for anything else, or one that is unknown here, it has
/// not refused them.
fn accepted(error: ErrorCode, what: &str) -> Result<(), Refusal> {
    match error {
        ErrorCode::OK => Ok(()),
        _ if error.refuses_client() => {
            Err(Refusal::AuthFailed(format!("the server does not accept {what}: {error}")))
        }
        _ => Err(Refusal::Unanswered(format!("the server could not check {what}: {error}"))),
    }
}

/// Some servers accept any client, and refuse it at its first request if it has not authenticated itself.
fn probe(outgoing: &mut BytesMut) {
    Request::Exists { path: "/".into(), watch: false }.encode(PROBE, outgoing);
}

fn unasked() -> Malformed {
    Malformed("a reply to nothing that was asked")
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("complete", &self.is_complete()).finish_non_exhaustive()
    }
}
