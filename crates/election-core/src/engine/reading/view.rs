//! What this member has read: the last known content of the znodes that it uses.

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use crate::{
    engine::{
        io::Node,
        znode::{Known, Meta},
    },
    ids::{Ballot, MemberId},
    record::{
        AdminRequest, Control, Current, Elected, FiledRequest, MemberRecord, Record, RecordError, RequestRef,
        RequestState, TokenBase,
    },
    slots::Slots,
    time::{FAR, Time},
};

/// How long the end of a deleted request is remembered: a server that lags may show the request again.
const REMEMBERED: Duration = Duration::from_secs(600);

/// A transaction, and when it was made by the clock of the servers, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Stamp {
    pub(crate) zxid: i64,
    ms: i64,
}

impl Stamp {
    fn latest<'a>(nodes: impl Iterator<Item = &'a Node>) -> Self {
        nodes.map(|node| Self { zxid: node.mzxid, ms: node.mtime_ms }).max().unwrap_or_default()
    }

    /// How long before this transaction `node` was created, as far as that is known.
    fn since_creation_of(self, czxid: i64, ctime_ms: i64) -> Duration {
        let known = czxid < self.zxid && ctime_ms > 0;
        let ms = if known { self.ms.saturating_sub(ctime_ms) } else { 0 };
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

/// The last known content of the znodes.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct View {
    pub(crate) elected: Known<Elected>,
    /// The leader znodes, by slot.
    leaders: Slots<Known<Current>>,
    /// The base of the tokens, in a contest.
    pub(crate) tokens: Known<TokenBase>,
    /// What is only read by the elector: nothing in most of thousands of elections.
    electors: Option<Box<ElectorsView>>,
    /// What the next leader has prepared for while this leader hands over: the next leader's ballot, and the term.
    pub(crate) prepared: Option<Box<(Ballot, u64)>>,
}

/// What is only read by the elector.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct ElectorsView {
    pub(crate) control: Known<Control>,
    /// Lowest ballot first.
    pub(crate) members: Option<Vec<MemberRecord>>,
    /// All records under `nodes`, usable or not, by name: which state of each was read.
    member_nodes: BTreeMap<String, Meta>,
    /// In the order of their creation.
    pub(crate) requests: Option<Vec<(FiledRequest, Meta)>>,
    /// Until when each pending request may be begun. Kept while this member is not the elector: each process counts
    /// the validity of a request once.
    pub(crate) ends: BTreeMap<RequestRef, Time>,
    /// When each request was created, by the clock of the servers.
    filed_ms: BTreeMap<RequestRef, i64>,
    /// The latest changes of any member's record and of any request.
    pub(crate) members_stamp: Stamp,
    requests_stamp: Stamp,
    /// Records among members and requests that can't be used.
    pub(crate) unreadable: Vec<RecordError>,
}

/// The elector's view before anything was read.
static UNREAD: LazyLock<ElectorsView> = LazyLock::new(ElectorsView::default);

impl View {
    /// What is only read by the elector.
    pub(crate) fn electors(&self) -> &ElectorsView {
        self.electors.as_deref().unwrap_or(&UNREAD)
    }

    pub(crate) fn electors_mut(&mut self) -> &mut ElectorsView {
        self.electors.get_or_insert_default()
    }

    /// Forgets what is only read by the elector.
    pub(crate) fn forget_membership(&mut self) {
        let ends = self.electors.take().map(|electors| electors.ends).filter(|ends| !ends.is_empty());
        self.electors = ends.map(|ends| Box::new(ElectorsView { ends, ..ElectorsView::default() }));
    }

    /// The leader znode of `slot`.
    pub(crate) fn leader(&self, slot: usize) -> &Known<Current> {
        self.leaders.get(slot).unwrap_or(&Known::Unread)
    }

    /// All leader znodes that were read.
    pub(crate) fn leaders(&self) -> impl Iterator<Item = (usize, &Known<Current>)> {
        self.leaders.iter().enumerate()
    }

    /// The leader znode was read; `seen` is the result.
    pub(crate) fn see_leader_znode(&mut self, slot: usize, seen: Known<Current>, node: Option<&Node>) {
        self.leaders.grow(slot + 1);
        let known = &mut self.leaders[slot];
        if !known.is_newer_than(node) {
            *known = seen;
        }
    }

    /// What is known of this leader znode does not count any more.
    pub(crate) fn forget_leader_znode(&mut self, slot: usize) {
        if let Some(known) = self.leaders.get_mut(slot) {
            *known = Known::Unread;
        }
    }

    /// Forgets the leader znodes of slots that do not exist any more: they are not watched.
    pub(crate) fn forget_leader_znodes(&mut self, from: usize) {
        self.leaders.truncate(from);
    }
}

impl ElectorsView {
    /// Whether exactly these records were read.
    pub(crate) fn has_members(&self, names: &[String]) -> bool {
        names.len() == self.member_nodes.len()
            && names.iter().all(|name| self.member_nodes.contains_key(name))
    }

    /// The version in which the record of this member was read.
    pub(crate) fn version_of(&self, member: &MemberId) -> Option<i32> {
        self.member_nodes.get(member.as_str()).map(|known| known.version)
    }

    /// Decodes the records that have changed: there may be hundreds that have not.
    pub(crate) fn see_members(&mut self, parent: &str, nodes: &BTreeMap<String, Node>) {
        let mut members = self.members.take().unwrap_or_default();
        let known = &self.member_nodes;
        let is_known = |name: &str| {
            let there = nodes.get(name).zip(known.get(name));
            there.is_some_and(|(node, known)| (known.czxid, known.mzxid) == (node.czxid, node.mzxid))
        };
        members.retain(|member| is_known(member.member.as_str()));
        self.unreadable.retain(|error| match error.path.strip_prefix(parent) {
            Some(name) => is_known(name.trim_start_matches('/')),
            None => true,
        });
        let changed = nodes.iter().filter(|(name, _)| !is_known(name));
        for (name, node) in changed {
            let path = format!("{parent}/{name}");
            match MemberRecord::decode(&path, &node.data) {
                Ok(record) if record.member.as_str() == name => {
                    let place = (&record.ballot, &record.member);
                    let at = members.partition_point(|other| (&other.ballot, &other.member) < place);
                    members.insert(at, record);
                }
                Ok(record) => {
                    let why = format!("it says that it is the record of {}", record.member);
                    self.unreadable.push(RecordError::new(&path, &why));
                }
                Err(error) => self.unreadable.push(error),
            }
        }
        self.members = Some(members);
        self.members_stamp = Stamp::latest(nodes.values());
        self.member_nodes = nodes.iter().map(|(name, node)| (name.clone(), node.into())).collect();
    }

    pub(crate) fn see_requests(&mut self, parent: &str, nodes: &BTreeMap<String, Node>) {
        self.unreadable.retain(|e| !e.path.starts_with(parent));
        let mut requests = Vec::with_capacity(nodes.len());
        for (name, node) in nodes {
            let path = format!("{parent}/{name}");
            match AdminRequest::decode(&path, &node.data) {
                Ok(request) => {
                    let which = RequestRef { czxid: node.czxid, name: name.clone() };
                    requests.push((FiledRequest { which, request }, Meta::from(node)));
                }
                Err(error) => self.unreadable.push(error),
            }
        }
        requests.sort_by(|(a, _), (b, _)| a.which.cmp(&b.which));
        self.requests = Some(requests);
        self.requests_stamp = Stamp::latest(nodes.values());
        let filed = nodes
            .iter()
            .map(|(name, node)| (RequestRef { czxid: node.czxid, name: name.clone() }, node.ctime_ms));
        self.filed_ms = filed.filter(|(_, ctime_ms)| *ctime_ms > 0).collect();
    }

    /// Counts how long each request is valid: from now on, if it was not known before, minus the time that has passed
    /// before according to the servers' own times. A member that has just started wrote its record a moment ago, so a
    /// request that was left behind while no member lived is known to be old.
    pub(crate) fn count_validity(&mut self, now: Time) {
        let latest = self.members_stamp.max(self.requests_stamp);
        for (FiledRequest { which, request }, _) in self.requests.iter().flatten() {
            if request.state != RequestState::Pending {
                self.ends.remove(which);
                continue;
            }
            // So long that no process lives until its end.
            if request.valid_for() >= FAR {
                continue;
            }
            let filed_ms = self.filed_ms.get(which).copied().unwrap_or(0);
            let passed = latest.since_creation_of(which.czxid, filed_ms);
            let end = now + request.valid_for().saturating_sub(passed);
            let known = self.ends.entry(which.clone()).or_insert(end);
            *known = end.min(*known);
        }
        self.ends.retain(|_, end| now < *end + REMEMBERED);
    }

    /// This member itself has answered a request.
    pub(crate) fn answered(&mut self, name: &str, request: AdminRequest, version: i32, mzxid: i64) {
        let mut requests = self.requests.iter_mut().flatten();
        if let Some((known, meta)) = requests.find(|(filed, _)| filed.which.name == name)
            && meta.mzxid < mzxid
        {
            known.request = request;
            *meta = Meta { version, mzxid, ..*meta };
        }
    }

    /// This member itself has removed a request.
    pub(crate) fn trimmed(&mut self, name: &str) {
        if let Some(requests) = &mut self.requests {
            requests.retain(|(filed, _)| filed.which.name != name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "/e/nodes";

    fn node(member: &str, ballot: u32, mzxid: i64) -> Node {
        let record = format!(r#"{{"v":1,"member":"{member}","site":"s","ballot":"b-{ballot:010}"}}"#);
        Node { mzxid, ..Node::created(record.into_bytes(), 1, 0) }
    }

    fn seen<'a>(views: &mut ElectorsView, nodes: impl IntoIterator<Item = (&'a str, Node)>) {
        let nodes = nodes.into_iter().map(|(name, node)| (name.to_owned(), node)).collect();
        views.see_members(PARENT, &nodes);
    }

    #[test]
    fn a_view_that_was_brought_up_to_date_is_that_of_all_records() {
        let broken = || Node { mzxid: 4, ..Node::created(b"{".to_vec(), 1, 0) };
        let mut view = ElectorsView::default();
        seen(&mut view, [("a", node("a", 7, 2)), ("b", node("b", 5, 3)), ("c", broken()), ("d", broken())]);
        let ballots = |view: &ElectorsView| -> Vec<_> {
            view.members
                .iter()
                .flatten()
                .map(|member| (member.member.to_string(), member.ballot.sequence()))
                .collect()
        };
        assert_eq!(ballots(&view), [("b".to_owned(), 5), ("a".to_owned(), 7)]);
        assert_eq!(view.unreadable.len(), 2);

        // One has changed, one is new, one is readable now, one is broken still, and one has gone.
        let now =
            || [("a", node("a", 2, 5)), ("c", node("c", 3, 6)), ("d", broken()), ("e", node("x", 9, 7))];
        seen(&mut view, now());
        let mut fresh = ElectorsView::default();
        seen(&mut fresh, now());
        assert_eq!(ballots(&view), [("a".to_owned(), 2), ("c".to_owned(), 3)]);
        assert_eq!((view.members.as_ref(), view.members_stamp.zxid), (fresh.members.as_ref(), 7));
        assert_eq!(view.member_nodes, fresh.member_nodes);
        let unreadable =
            |view: &ElectorsView| view.unreadable.iter().map(|error| error.path.clone()).collect::<Vec<_>>();
        assert_eq!(unreadable(&view), [format!("{PARENT}/d"), format!("{PARENT}/e")]);
        assert_eq!(unreadable(&view), unreadable(&fresh));
        assert!(view.has_members(&["e", "d", "c", "a"].map(str::to_owned)));
        assert!(!view.has_members(&["a", "c", "d", "f"].map(str::to_owned)));
    }
}
