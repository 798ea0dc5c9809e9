//! Strategies that generate every kind of message.

use std::borrow::Cow;

use bytes::Bytes;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use zk_proto::{
    Acl, AclEntry, ConnectRequest, ConnectResponse, Create, ErrorCode, EventKind, Id, OpCode, PartReply,
    Reply, ReplyHeader, Request, Stat, WatchEvent,
};

/// Mostly known ones.
pub(crate) fn ops() -> impl Strategy<Value = OpCode> {
    prop_oneof![1..=22, 100..=107, Just(-11), any::<i32>()].prop_map(OpCode)
}

fn unknown_op() -> impl Strategy<Value = OpCode> {
    ops().prop_filter("it is known", |op| matches!(Request::decode(*op, &[]), Ok(Request::Other { .. })))
}

/// With characters beyond the first plane, which Java encodes in its own way.
fn string() -> impl Strategy<Value = String> {
    "(\\PC|\\x00|😀){0,8}"
}

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    string().prop_map(Cow::Owned)
}

fn blob() -> impl Strategy<Value = Option<Cow<'static, [u8]>>> {
    option::of(vec(any::<u8>(), 0..12).prop_map(Cow::Owned))
}

fn texts() -> impl Strategy<Value = Vec<Cow<'static, str>>> {
    vec(text(), 0..4)
}

fn acl_entries() -> impl Strategy<Value = Vec<AclEntry<'static>>> {
    let entry = (any::<i32>(), option::of(text()), option::of(text()));
    vec(entry.prop_map(|(permissions, scheme, id)| AclEntry { permissions, scheme, id }), 0..3)
}

fn create() -> impl Strategy<Value = Create<'static>> {
    let op = prop_oneof![
        Just(OpCode::CREATE),
        Just(OpCode::CREATE2),
        Just(OpCode::CREATE_CONTAINER),
        Just(OpCode::CREATE_TTL)
    ];
    (op, text(), blob(), acl_entries(), any::<i32>(), any::<i64>()).prop_map(
        |(op, path, data, acl, flags, ttl)| {
            let ttl_ms = if op == OpCode::CREATE_TTL { ttl } else { -1 };
            Create { op, path, data, acl, flags, ttl_ms }
        },
    )
}

fn multi() -> impl Strategy<Value = Vec<Request<'static>>> {
    let write = prop_oneof![
        create().prop_map(Request::Create),
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Delete { path, version }),
        (text(), blob(), any::<i32>()).prop_map(|(path, data, version)| Request::SetData {
            path,
            data,
            version
        }),
        (text(), any::<i32>()).prop_map(|(path, version)| Request::Check { path, version }),
    ];
    vec(write, 0..5)
}

fn multi_read() -> impl Strategy<Value = Vec<Request<'static>>> {
    let read = prop_oneof![
        text().prop_map(|path| Request::GetData { path, watch: false }),
        text().prop_map(|path| Request::GetChildren { path, watch: false, with_stat: false }),
    ];
    vec(read, 0..5)
}

pub(crate) fn request() -> impl Strategy<Value = Request<'static>> {
    let about_a_path =
        prop_oneof![
            (text(), any::<i32>()).prop_map(|(path, version)| Request::Delete { path, version }),
            (text(), any::<bool>()).prop_map(|(path, watch)| Request::Exists { path, watch }),
            (text(), any::<bool>()).prop_map(|(path, watch)| Request::GetData { path, watch }),
            (text(), blob(), any::<i32>()).prop_map(|(path, data, version)| Request::SetData {
                path,
                data,
                version
            }),
            text().prop_map(|path| Request::GetAcl { path }),
            (text(), acl_entries(), any::<i32>()).prop_map(|(path, acl, version)| Request::SetAcl {
                path,
                acl,
                version
            }),
            (text(), any::<bool>(), any::<bool>())
                .prop_map(|(path, watch, with_stat)| Request::GetChildren { path, watch, with_stat }),
            text().prop_map(|path| Request::Sync { path }),
            (text(), any::<i32>()).prop_map(|(path, version)| Request::Check { path, version }),
            text().prop_map(|path| Request::GetAllChildrenNumber { path }),
        ];
    let about_watches = prop_oneof![
        (text(), any::<i32>()).prop_map(|(path, kind)| Request::CheckWatches { path, kind }),
        (text(), any::<i32>()).prop_map(|(path, kind)| Request::RemoveWatches { path, kind }),
        (text(), any::<i32>()).prop_map(|(path, mode)| Request::AddWatch { path, mode }),
        (any::<i64>(), texts(), texts(), texts(), texts(), texts()).prop_map(
            |(relative_zxid, data, exist, child, persistent, recursive)| Request::SetWatches {
                relative_zxid,
                data,
                exist,
                child,
                persistent,
                recursive
            }
        ),
    ];
    let about_the_session =
        prop_oneof![
            Just(Request::Ping),
            Just(Request::WhoAmI),
            Just(Request::CloseSession),
            option::of(text()).prop_map(|prefix| Request::GetEphemerals { prefix }),
            (any::<i32>(), option::of(text()), blob())
                .prop_map(|(kind, scheme, credentials)| Request::Auth { kind, scheme, credentials }),
            blob().prop_map(|token| Request::Sasl { token }),
        ];
    prop_oneof![
        create().prop_map(Request::Create),
        multi().prop_map(Request::Multi),
        multi_read().prop_map(Request::MultiRead),
        about_a_path,
        about_watches,
        about_the_session,
        (option::of(text()), option::of(text()), option::of(text()), any::<i64>()).prop_map(
            |(joining, leaving, members, version)| Request::Reconfig { joining, leaving, members, version }
        ),
        (unknown_op(), vec(any::<u8>(), 0..12))
            .prop_map(|(op, body)| Request::Other { op, body: body.into() }),
    ]
}

prop_compose! {
    fn stat()(
        (czxid, mzxid, pzxid, ephemeral_owner) in any::<(i64, i64, i64, i64)>(),
        (ctime_ms, mtime_ms) in any::<(i64, i64)>(),
        (version, cversion, aversion, data_length, num_children) in any::<(i32, i32, i32, i32, i32)>(),
    ) -> Stat {
        Stat {
            czxid, mzxid, ctime_ms, mtime_ms, version, cversion, aversion, ephemeral_owner, data_length,
            num_children, pzxid,
        }
    }
}

fn id() -> impl Strategy<Value = Id> {
    (string(), string()).prop_map(|(scheme, id)| Id { scheme, id })
}

fn data() -> impl Strategy<Value = Option<Bytes>> {
    option::of(vec(any::<u8>(), 0..12).prop_map(Bytes::from))
}

fn names() -> impl Strategy<Value = Vec<String>> {
    vec(string(), 0..4)
}

pub(crate) fn error() -> impl Strategy<Value = ErrorCode> {
    prop_oneof![-127..=0, any::<i32>()].prop_map(ErrorCode)
}

fn multi_reply() -> impl Strategy<Value = Vec<PartReply>> {
    let part = prop_oneof![
        string().prop_map(|path| (OpCode::CREATE, Ok(Reply::Path(path)))),
        (string(), stat()).prop_map(|(path, stat)| (OpCode::CREATE2, Ok(Reply::PathAndStat(path, stat)))),
        Just((OpCode::DELETE, Ok(Reply::Empty))),
        stat().prop_map(|stat| (OpCode::SET_DATA, Ok(Reply::Stat(stat)))),
        Just((OpCode::CHECK, Ok(Reply::Empty))),
        (data(), stat()).prop_map(|(data, stat)| (OpCode::GET_DATA, Ok(Reply::Data(data, stat)))),
        names().prop_map(|names| (OpCode::GET_CHILDREN, Ok(Reply::Names(names)))),
        error().prop_map(|error| (OpCode::ERROR, Err(error))),
    ];
    vec(part, 0..5)
}

/// A reply, and the kind of a request that it may answer.
pub(crate) fn reply() -> impl Strategy<Value = (OpCode, Reply)> {
    fn to(
        ops: &'static [OpCode],
        reply: impl Strategy<Value = Reply>,
    ) -> impl Strategy<Value = (OpCode, Reply)> {
        (proptest::sample::select(ops), reply)
    }
    prop_oneof![
        to(
            &[
                OpCode::DELETE,
                OpCode::PING,
                OpCode::CHECK,
                OpCode::CHECK_WATCHES,
                OpCode::REMOVE_WATCHES,
                OpCode::AUTH,
                OpCode::SET_WATCHES,
                OpCode::SET_WATCHES2,
                OpCode::CLOSE_SESSION
            ],
            Just(Reply::Empty)
        ),
        to(&[OpCode::CREATE, OpCode::SYNC], string().prop_map(Reply::Path)),
        to(
            &[OpCode::CREATE2, OpCode::CREATE_CONTAINER, OpCode::CREATE_TTL],
            (string(), stat()).prop_map(|(path, stat)| Reply::PathAndStat(path, stat))
        ),
        to(&[OpCode::EXISTS, OpCode::SET_DATA, OpCode::SET_ACL], stat().prop_map(Reply::Stat)),
        to(
            &[OpCode::GET_DATA, OpCode::RECONFIG],
            (data(), stat()).prop_map(|(data, stat)| Reply::Data(data, stat))
        ),
        to(&[OpCode::GET_CHILDREN, OpCode::GET_EPHEMERALS], names().prop_map(Reply::Names)),
        to(
            &[OpCode::GET_CHILDREN2],
            (names(), stat()).prop_map(|(names, stat)| Reply::NamesAndStat(names, stat))
        ),
        to(
            &[OpCode::GET_ACL],
            (vec((any::<i32>(), id()).prop_map(|(permissions, id)| Acl { permissions, id }), 0..3), stat())
                .prop_map(|(acl, stat)| Reply::Acl(acl, stat))
        ),
        to(&[OpCode::GET_ALL_CHILDREN_NUMBER, OpCode::ADD_WATCH], any::<i32>().prop_map(Reply::Int)),
        to(&[OpCode::WHO_AM_I], vec(id(), 0..3).prop_map(Reply::Identities)),
        to(&[OpCode::MULTI, OpCode::MULTI_READ], multi_reply().prop_map(Reply::Multi)),
        to(&[OpCode::SASL], data().prop_map(Reply::Token)),
        (unknown_op(), vec(any::<u8>(), 0..12)).prop_map(|(op, body)| (op, Reply::Other(body.into()))),
    ]
}

prop_compose! {
    pub(crate) fn reply_header()(xid in any::<i32>(), zxid in any::<i64>(), error in error()) -> ReplyHeader {
        ReplyHeader { xid, zxid, error }
    }
}

prop_compose! {
    pub(crate) fn event()(
        kind in any::<i32>(), state in any::<i32>(), path in string(), zxid in any::<i64>(),
    ) -> WatchEvent {
        WatchEvent { kind: EventKind(kind), state, path, zxid }
    }
}

prop_compose! {
    pub(crate) fn connect_request()(
        (last_zxid, timeout_ms, session_id) in any::<(i64, i32, i64)>(),
        password in vec(any::<u8>(), 0..20),
        read_only in any::<Option<bool>>(),
    ) -> ConnectRequest {
        ConnectRequest { last_zxid, timeout_ms, session_id, password, read_only }
    }
}

prop_compose! {
    pub(crate) fn connect_response()(
        (timeout_ms, session_id) in any::<(i32, i64)>(),
        password in vec(any::<u8>(), 0..20),
        read_only in any::<Option<bool>>(),
    ) -> ConnectResponse {
        ConnectResponse { timeout_ms, session_id, password, read_only }
    }
}
