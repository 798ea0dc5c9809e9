//! One transport, from its first byte to the point where the session is served on it.

use std::fmt;
use std::time::Duration;

use bytes::BytesMut;

#[cfg(feature = "sasl")]
use super::sasl::DigestMd5;
use crate::codec::{
    ConnectRequest, ConnectResponse, ErrorCode, Malformed, PASSWORD_LEN, Reply, ReplyHeader, Request,
    SessionId, cut_frame, xid,
};

/// What carries a session to another transport, or to another process. Whoever has it can act as the session.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    /// What ZooKeeper calls the session.
    pub session_id: SessionId,
    /// What proves that it is ours.
    pub password: Vec<u8>,
    /// Granted by the server.
    pub timeout: Duration,
    /// The newest change that the session has seen. A server that is behind it does not take the session.
    pub last_zxid: i64,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("session_id", &format_args!("{}", self.session_id))
            .field("timeout", &self.timeout)
            .field("last_zxid", &self.last_zxid)
            .finish_non_exhaustive()
    }
}

/// What a handshake is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A new session, with this timeout if the server grants it.
    New(Duration),
    /// A session that exists.
    Resume(Ticket),
}

/// What a client proves to be, beside the transport's own certificates.
#[derive(Default)]
pub struct Credentials<'a> {
    /// As `addauth` has it: schemes and secrets.
    pub auth: &'a [(&'a str, &'a [u8])],
    /// SASL, which is spoken before anything else.
    #[cfg(feature = "sasl")]
    pub sasl: Option<DigestMd5>,
}

/// What a server granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// For the next transport. Its timeout may be another one than asked for.
    pub ticket: Ticket,
}

/// Why a transport does not serve the session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such session, or no longer.
    #[error("the session has expired")]
    Expired,
    /// The credentials are not accepted, or the server could not prove what it is.
    #[error("{0}")]
    AuthFailed(String),
    /// The server has no quorum: it would serve reads that are out of date.
    #[error("the server is read-only, which was not asked for")]
    ReadOnly,
    /// The answer names a session that was not asked for. It must never be used.
    #[error("the server answered with another session")]
    AnotherSession,
    /// What came makes no sense.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// The numbers of the requests of a handshake; those of a connection begin at 1.
const SASL: i32 = 0;
const PROBE: i32 = i32::MAX;

/// The largest message of a handshake.
const MOST: usize = 64 << 10;

/// The handshake on one transport. Write what [`outgoing`](Self::outgoing) gives, and feed what arrives to
/// [`receive`](Self::receive), until that answers with a [`Grant`] or a [`Refusal`].
///
/// The connect request, the credentials and, for a new session, a first request that changes nothing are sent at once: a
/// server reads them in order.
pub struct Handshake {
    resumed: Option<Ticket>,
    outgoing: BytesMut,
    schemes: Vec<String>,
    /// Answers to credentials that have come.
    accepted: usize,
    /// The first request has been answered.
    probed: bool,
    grant: Option<Grant>,
    #[cfg(feature = "sasl")]
    sasl: Option<DigestMd5>,
}

impl Handshake {
    /// A handshake that has sent nothing yet.
    #[must_use]
    pub fn new(purpose: &Purpose, credentials: Credentials<'_>) -> Self {
        let mut outgoing = BytesMut::new();
        let resumed = match purpose {
            Purpose::New(_) => None,
            Purpose::Resume(ticket) => Some(ticket.clone()),
        };
        let timeout = match purpose {
            Purpose::New(timeout) => *timeout,
            Purpose::Resume(ticket) => ticket.timeout,
        };
        ConnectRequest {
            last_zxid: resumed.as_ref().map_or(0, |ticket| ticket.last_zxid),
            timeout_ms: i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX),
            session_id: resumed.as_ref().map_or(0, |ticket| ticket.session_id.0),
            password: resumed
                .as_ref()
                .map_or_else(|| vec![0; PASSWORD_LEN], |ticket| ticket.password.clone()),
            read_only: Some(false),
        }
        .encode(&mut outgoing);
        #[cfg(feature = "sasl")]
        if credentials.sasl.is_some() {
            Request::Sasl { token: Some((&[][..]).into()) }.encode(SASL, &mut outgoing);
        }
        for (scheme, secret) in credentials.auth {
            let credentials = Some((*secret).into());
            Request::Auth { kind: 0, scheme: Some((*scheme).into()), credentials }
                .encode(xid::AUTH, &mut outgoing);
        }
        #[cfg(feature = "sasl")]
        let is_known = credentials.sasl.is_none();
        #[cfg(not(feature = "sasl"))]
        let is_known = true;
        if resumed.is_none() && is_known {
            probe(&mut outgoing);
        }
        Self {
            probed: resumed.is_some(),
            resumed,
            outgoing,
            schemes: credentials.auth.iter().map(|(scheme, _)| (*scheme).to_owned()).collect(),
            accepted: 0,
            grant: None,
            #[cfg(feature = "sasl")]
            sasl: credentials.sasl,
        }
    }

    /// What is to be written now. Each byte is given once.
    #[must_use]
    pub fn outgoing(&mut self) -> BytesMut {
        self.outgoing.split()
    }

    /// Takes what has arrived. `None` until all is said; bytes beyond the handshake stay in `input`.
    ///
    /// # Errors
    /// [`Refusal`]: the transport is of no use.
    pub fn receive(&mut self, input: &mut BytesMut) -> Result<Option<Grant>, Refusal> {
        while !self.is_complete() {
            let Some(frame) = cut_frame(input, MOST)? else { return Ok(None) };
            if self.grant.is_none() {
                self.grant = Some(self.granted(&frame)?);
                continue;
            }
            let header = ReplyHeader::decode(&frame)?;
            match header.xid {
                xid::AUTH => self.auth_answered(header.error)?,
                SASL => self.sasl_answered(header, &frame)?,
                PROBE if header.error == ErrorCode::SESSION_CLOSED_REQUIRE_SASL => {
                    return Err(Refusal::AuthFailed(header.error.to_string()));
                }
                PROBE => self.probed = true,
                _ => return Err(unasked().into()),
            }
        }
        Ok(self.grant.clone())
    }

    fn is_complete(&self) -> bool {
        #[cfg(feature = "sasl")]
        if self.sasl.as_ref().is_some_and(|sasl| !sasl.is_complete()) {
            return false;
        }
        self.grant.is_some() && self.accepted == self.schemes.len() && self.probed
    }

    fn granted(&self, frame: &[u8]) -> Result<Grant, Refusal> {
        let ConnectResponse { timeout_ms, session_id, password, read_only } = ConnectResponse::decode(frame)?;
        let timeout = u64::try_from(timeout_ms).ok().filter(|ms| *ms > 0 && session_id != 0);
        let timeout = Duration::from_millis(timeout.ok_or(Refusal::Expired)?);
        if read_only == Some(true) {
            return Err(Refusal::ReadOnly);
        }
        let last_zxid = self.resumed.as_ref().map_or(0, |ticket| ticket.last_zxid);
        if self.resumed.as_ref().is_some_and(|ticket| ticket.session_id.0 != session_id) {
            return Err(Refusal::AnotherSession);
        }
        Ok(Grant { ticket: Ticket { session_id: SessionId(session_id), password, timeout, last_zxid } })
    }

    fn auth_answered(&mut self, error: ErrorCode) -> Result<(), Refusal> {
        let Some(scheme) = self.schemes.get(self.accepted) else {
            return Err(Malformed("an answer to credentials that were not sent").into());
        };
        if error != ErrorCode::OK {
            return Err(Refusal::AuthFailed(format!(
                "the server does not accept the credentials for the scheme {scheme:?}: {error}"
            )));
        }
        self.accepted += 1;
        Ok(())
    }

    #[cfg(feature = "sasl")]
    fn sasl_answered(&mut self, header: ReplyHeader, frame: &bytes::Bytes) -> Result<(), Refusal> {
        use crate::codec::OpCode;

        let Some(sasl) = &mut self.sasl else { return Err(unasked().into()) };
        if header.error != ErrorCode::OK {
            return Err(Refusal::AuthFailed(format!("the server refused the SASL user: {}", header.error)));
        }
        let Reply::Token(token) = Reply::decode(OpCode::SASL, frame)? else { return Err(unasked().into()) };
        if let Some(answer) = sasl.step(&token.unwrap_or_default()).map_err(Refusal::AuthFailed)? {
            Request::Sasl { token: Some(answer.into()) }.encode(SASL, &mut self.outgoing);
        } else if !self.probed {
            probe(&mut self.outgoing);
        }
        Ok(())
    }

    #[cfg(not(feature = "sasl"))]
    fn sasl_answered(&mut self, header: ReplyHeader, frame: &bytes::Bytes) -> Result<(), Refusal> {
        let _ = (header, frame, Reply::Empty);
        Err(unasked().into())
    }
}

/// Some servers take any client, and turn away at its first request who has not said enough of itself.
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
