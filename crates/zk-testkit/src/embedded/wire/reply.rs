//! What clients are told.

use std::sync::Arc;

use super::{Writer, op};
use crate::embedded::code::Code;
use crate::embedded::tree::{Acl, Event, Id, Stat};

/// The xid and the zxid of what answers no request.
const EVENT: i32 = -1;
const EVENT_ZXID: i64 = -1;
/// `KeeperState.SyncConnected`.
const CONNECTED: i32 = 3;

/// What follows the header of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The header says it all.
    Nothing,
    Path(String),
    PathAndStat(String, Stat),
    Stat(Stat),
    Data(Option<Arc<[u8]>>, Stat),
    Names(Vec<String>),
    NamesAndStat(Vec<String>, Stat),
    Acl(Vec<Acl>, Stat),
    Int(i32),
    Identities(Vec<Id>),
    Multi(Vec<MultiAnswer>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MultiAnswer {
    Created(String),
    CreatedWithStat(String, Stat),
    Deleted,
    Set(Stat),
    Checked,
    Data(Option<Arc<[u8]>>, Stat),
    Names(Vec<String>),
    Failed(Code),
}

pub(crate) fn reply_frame(xid: i32, zxid: i64, code: Code, answer: &Answer) -> Vec<u8> {
    let mut writer = header(xid, zxid, code);
    match answer {
        Answer::Nothing => {}
        Answer::Path(path) => writer.string(path),
        Answer::PathAndStat(path, stat) => {
            writer.string(path);
            write_stat(&mut writer, stat);
        }
        Answer::Stat(stat) => write_stat(&mut writer, stat),
        Answer::Data(data, stat) => {
            writer.buffer(data.as_deref());
            write_stat(&mut writer, stat);
        }
        Answer::Names(names) => writer.list(names, |writer, name| writer.string(name)),
        Answer::NamesAndStat(names, stat) => {
            writer.list(names, |writer, name| writer.string(name));
            write_stat(&mut writer, stat);
        }
        Answer::Acl(acl, stat) => {
            writer.list(acl, |writer, entry| {
                writer.int(entry.permissions);
                write_id(writer, &entry.id);
            });
            write_stat(&mut writer, stat);
        }
        Answer::Int(value) => writer.int(*value),
        Answer::Identities(ids) => writer.list(ids, write_id),
        Answer::Multi(parts) => {
            for part in parts {
                write_part(&mut writer, part);
            }
            part_header(&mut writer, op::ERROR, true, -1);
        }
    }
    writer.finish()
}

pub(crate) fn event_frame(event: Event, path: &str) -> Vec<u8> {
    let mut writer = header(EVENT, EVENT_ZXID, Code::OK);
    writer.int(event.number());
    writer.int(CONNECTED);
    writer.string(path);
    writer.finish()
}

fn header(xid: i32, zxid: i64, code: Code) -> Writer {
    let mut writer = Writer::frame();
    writer.int(xid);
    writer.long(zxid);
    writer.int(code.0);
    writer
}

fn part_header(writer: &mut Writer, code: i32, done: bool, error: i32) {
    writer.int(code);
    writer.bool(done);
    writer.int(error);
}

fn write_part(writer: &mut Writer, part: &MultiAnswer) {
    match part {
        MultiAnswer::Created(path) => {
            part_header(writer, op::CREATE, false, 0);
            writer.string(path);
        }
        MultiAnswer::CreatedWithStat(path, stat) => {
            part_header(writer, op::CREATE2, false, 0);
            writer.string(path);
            write_stat(writer, stat);
        }
        MultiAnswer::Deleted => part_header(writer, op::DELETE, false, 0),
        MultiAnswer::Set(stat) => {
            part_header(writer, op::SET_DATA, false, 0);
            write_stat(writer, stat);
        }
        MultiAnswer::Checked => part_header(writer, op::CHECK, false, 0),
        MultiAnswer::Data(data, stat) => {
            part_header(writer, op::GET_DATA, false, 0);
            writer.buffer(data.as_deref());
            write_stat(writer, stat);
        }
        MultiAnswer::Names(names) => {
            part_header(writer, op::GET_CHILDREN, false, 0);
            writer.list(names, |writer, name| writer.string(name));
        }
        MultiAnswer::Failed(code) => {
            part_header(writer, op::ERROR, false, code.0);
            writer.int(code.0);
        }
    }
}

fn write_id(writer: &mut Writer, id: &Id) {
    writer.string(&id.scheme);
    writer.string(&id.id);
}

fn write_stat(writer: &mut Writer, stat: &Stat) {
    writer.long(stat.czxid);
    writer.long(stat.mzxid);
    writer.long(stat.ctime);
    writer.long(stat.mtime);
    writer.int(stat.version);
    writer.int(stat.cversion);
    writer.int(stat.aversion);
    writer.long(stat.ephemeral_owner);
    writer.int(stat.data_length);
    writer.int(stat.num_children);
    writer.long(stat.pzxid);
}
