//! The codec: encodes and decodes the messages of both sides.

mod connect;
mod numbers;
mod reply;
mod request;
mod types;
mod wire;

pub use connect::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
pub use numbers::{Aftermath, ErrorCode, EventKind, OpCode, xid};
pub use reply::{PartReply, Reply, ReplyHeader, WatchEvent};
pub use request::{Create, Request, RequestHeader, WatchMode, WatcherType};
pub use types::{Acl, AclEntry, CreateMode, Id, SessionId, Stat, permission};
pub use wire::{Malformed, cut_frame, frame_length};
