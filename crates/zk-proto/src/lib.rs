#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod client;
mod codec;
mod path;

#[cfg(feature = "sasl")]
pub use client::DigestMd5;
pub use client::{
    Connection, Credentials, Handshake, Input, Limits, NotSent, Outcome, Output, Purpose, Refusal, Ticket,
    WatchId, WatchKind,
};
pub use codec::{
    Acl, AclEntry, Aftermath, ConnectRequest, ConnectResponse, Create, CreateMode, ErrorCode, EventKind, Id,
    Malformed, OpCode, PASSWORD_LEN, PartReply, Reply, ReplyHeader, Request, RequestHeader, SessionId, Stat,
    WatchEvent, WatchMode, WatcherType, cut_frame, frame_length, permission, xid,
};
pub use path::ancestors;
