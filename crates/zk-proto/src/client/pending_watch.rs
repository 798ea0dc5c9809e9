//! A watch between its request and the reply.

use super::watches::{Look, WatchId};
use crate::codec::{ErrorCode, OpCode, Reply, Request, WatchMode};

/// A watch that a successful reply arms.
pub(super) struct PendingWatch {
    pub(super) id: WatchId,
    pub(super) path: String,
    /// Of a request for a lasting watch.
    pub(super) lasting: Option<Look>,
    /// Whether the server is asked for a recursive one, for this watch or for another one of the path.
    pub(super) recursive: bool,
    /// Whether the server arms it. If a lasting watch covers the path already, it need not.
    pub(super) on_server: bool,
    /// Given up before it was armed.
    pub(super) forgotten: bool,
}

impl PendingWatch {
    /// The watch that a request asks for, as if it were the only one of its path.
    pub(super) fn new(id: WatchId, request: &Request<'_>) -> Option<Self> {
        let lasting = match request {
            Request::AddWatch { mode, .. } if *mode == WatchMode::Recursive.number() => Some(Look::Recursive),
            Request::AddWatch { .. } => Some(Look::Persistent),
            _ => None,
        };
        let path = request.path()?.to_owned();
        let recursive = lasting == Some(Look::Recursive);
        Some(Self { id, path, lasting, recursive, on_server: true, forgotten: false })
    }

    /// The watch that the server holds after that answer.
    pub(super) fn look_after(&self, op: OpCode, answer: &Result<Reply, ErrorCode>) -> Option<Look> {
        match (op, answer) {
            (OpCode::EXISTS | OpCode::GET_DATA, Ok(_)) => Some(Look::Data),
            (OpCode::EXISTS, Err(ErrorCode::NO_NODE)) => Some(Look::Absence),
            (OpCode::GET_CHILDREN | OpCode::GET_CHILDREN2, Ok(_)) => Some(Look::Children),
            (OpCode::ADD_WATCH, Ok(_)) => self.lasting,
            _ => None,
        }
    }
}

/// The same read without a watch.
pub(super) fn without_watch<'a>(request: &Request<'a>) -> Request<'a> {
    let mut request = request.clone();
    if let Request::Exists { watch, .. }
    | Request::GetData { watch, .. }
    | Request::GetChildren { watch, .. } = &mut request
    {
        *watch = false;
    }
    request
}
