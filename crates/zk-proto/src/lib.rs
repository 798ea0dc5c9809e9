#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod codec;

pub use codec::{
    Acl, AclEntry, Aftermath, ConnectRequest, ConnectResponse, Create, CreateMode, ErrorCode, EventKind, Id,
    Malformed, MultiOp, MultiReply, OpCode, PASSWORD_LEN, Reply, ReplyHeader, Request, RequestHeader, Stat,
    WatchEvent, WatchMode, WatcherType, cut_frame, frame_length, permission, xid,
};
