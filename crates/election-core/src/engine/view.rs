//! What this member has read: the last known content of the znodes it cares for.

use std::collections::{BTreeMap, BTreeSet};

use super::io::Node;
use crate::record::{Control, Current, Elected, MemberRecord, Record, RecordError, Request, unknown_format};

/// What is known of one znode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Known<T> {
    /// It has not been read in this session.
    #[default]
    Unread,
    /// It is not there.
    Absent,
    /// It is there and can't be used.
    Unreadable(RecordError, Meta),
    /// It is there.
    Present(T, Meta),
}

/// What ZooKeeper says of a znode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Meta {
    pub(super) version: i32,
    pub(super) czxid: i64,
    pub(super) mzxid: i64,
    pub(super) owner: i64,
}

impl From<&Node> for Meta {
    fn from(node: &Node) -> Self {
        Self { version: node.version, czxid: node.czxid, mzxid: node.mzxid, owner: node.owner }
    }
}

impl<T: Record> Known<T> {
    pub(super) fn read(path: &str, node: Option<&Node>) -> Self {
        match node {
            None => Self::Absent,
            Some(node) => match T::decode(path, &node.data) {
                Ok(record) => Self::Present(record, node.into()),
                Err(error) => Self::Unreadable(error, node.into()),
            },
        }
    }
}

impl<T> Known<T> {
    pub(super) fn record(&self) -> Option<&T> {
        match self {
            Self::Present(record, _) => Some(record),
            _ => None,
        }
    }

    pub(super) fn meta(&self) -> Option<Meta> {
        match self {
            Self::Present(_, meta) | Self::Unreadable(_, meta) => Some(*meta),
            Self::Unread | Self::Absent => None,
        }
    }

    /// Whether `node`, read by a watch, is older than what is known already: the
    /// outcome of an own write can overtake a watch's reading.
    fn is_newer_than(&self, node: Option<&Node>) -> bool {
        match (self.meta(), node) {
            (Some(known), Some(node)) => node.mzxid < known.mzxid,
            _ => false,
        }
    }
}

/// The last known content of the znodes.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct View {
    pub(super) elected: Known<Elected>,
    /// The leaders' places, by slot.
    places: Vec<Known<Current>>,
    pub(super) control: Known<Control>,
    /// Lowest ballot first. Only the elector's.
    pub(super) members: Option<Vec<MemberRecord>>,
    /// The names of all records under `nodes`, usable or not.
    pub(super) member_nodes: BTreeSet<String>,
    /// By name, which is the order of their numbers. Only the elector's.
    pub(super) requests: Option<BTreeMap<String, (Request, Meta)>>,
    /// Records among members and requests that can't be used.
    pub(super) unreadable: Vec<RecordError>,
}

impl View {
    /// `format` is the newest that this member reads.
    pub(super) fn see_elected(&mut self, path: &str, node: Option<&Node>, format: u32) {
        if self.elected.is_newer_than(node) {
            return;
        }
        self.elected = match Known::<Elected>::read(path, node) {
            Known::Present(elected, meta) if elected.v > format => {
                let why = unknown_format(elected.v, format);
                Known::Unreadable(RecordError { path: path.to_owned(), why }, meta)
            }
            known => known,
        };
    }

    /// The place of the leader of `slot`.
    pub(super) fn place(&self, slot: usize) -> &Known<Current> {
        self.places.get(slot).unwrap_or(&Known::Unread)
    }

    /// All places that were read.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &Known<Current>)> {
        self.places.iter().enumerate()
    }

    /// The place was read, and `seen` is what was made of it.
    pub(super) fn see_place(&mut self, slot: usize, seen: Known<Current>, node: Option<&Node>) {
        if self.places.len() <= slot {
            self.places.resize_with(slot + 1, Known::default);
        }
        let known = &mut self.places[slot];
        if !known.is_newer_than(node) {
            *known = seen;
        }
    }

    /// Forgets the places of slots that there are not any more: nobody watches them.
    pub(super) fn forget_places(&mut self, from: usize) {
        self.places.truncate(from);
    }

    pub(super) fn see_members(&mut self, parent: &str, nodes: &BTreeMap<String, Node>) {
        self.unreadable.retain(|e| !e.path.starts_with(parent));
        let mut members = Vec::with_capacity(nodes.len());
        for (name, node) in nodes {
            let path = format!("{parent}/{name}");
            match MemberRecord::decode(&path, &node.data) {
                Ok(record) if record.member.as_str() == name => members.push(record),
                Ok(record) => self.unreadable.push(RecordError {
                    path,
                    why: format!("it says that it is the record of {}", record.member),
                }),
                Err(error) => self.unreadable.push(error),
            }
        }
        members.sort_by(|a, b| a.ballot.cmp(&b.ballot));
        self.members = Some(members);
        self.member_nodes = nodes.keys().cloned().collect();
    }

    pub(super) fn see_requests(&mut self, parent: &str, nodes: &BTreeMap<String, Node>) {
        self.unreadable.retain(|e| !e.path.starts_with(parent));
        let mut requests = BTreeMap::new();
        for (name, node) in nodes {
            let path = format!("{parent}/{name}");
            match Request::decode(&path, &node.data) {
                Ok(request) => {
                    requests.insert(name.clone(), (request, Meta::from(node)));
                }
                Err(error) => self.unreadable.push(error),
            }
        }
        self.requests = Some(requests);
    }

    /// A request was answered by this member itself.
    pub(super) fn answered(&mut self, name: String, request: Request, version: i32, mzxid: i64) {
        if let Some((known, meta)) = self.requests.as_mut().and_then(|requests| requests.get_mut(&name))
            && meta.mzxid < mzxid
        {
            *known = request;
            *meta = Meta { version, mzxid, ..*meta };
        }
    }

    /// A request was removed by this member itself.
    pub(super) fn trimmed(&mut self, name: &str) {
        if let Some(requests) = &mut self.requests {
            requests.remove(name);
        }
    }

    /// Forgets what only an elector keeps.
    pub(super) fn forget_membership(&mut self) {
        self.members = None;
        self.member_nodes.clear();
        self.requests = None;
        self.control = Known::Unread;
        self.unreadable.clear();
    }
}
