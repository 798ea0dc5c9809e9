//! Reading an election without being a candidate.

use zk_session::{Incarnation, OpError, ReadOp};

use crate::{
    error::{AdminError, Refusal},
    known::{Known, KnownDecision},
    outline::{Outline, children, last_of},
    record::{Absent, Breadcrumb, Breadcrumbs, Roster},
};
use election_core::{
    Paths,
    config::MemberId,
    internals::{
        self, BATCH, Layout, Node, ReadError,
        explain::Seen,
        fencing_token, get_all,
        record::{
            AdminRequest, Control, Current, Elected, FiledRequest, HistoryEntry, MAX_SLOTS, MemberRecord,
            Record, RecordError, RequestRef, TokenBase,
        },
        slot_of, to_node, tree, unix_ms,
    },
    status::Ballot,
};

/// An election as read at one time. It takes several reads, which are not a transaction.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// The recipe of the election.
    pub layout: Layout,
    /// The living members, lowest ballot first. With the recipe `single`, only the leader.
    pub members: Vec<MemberRecord>,
    /// The members of the last day that do not take part now; none if there is no elector.
    pub absent: Vec<Absent>,
    /// The latest transaction that wrote one of their records; 0 if there is no elector.
    pub newest_zxid: i64,
    /// The lowest living ballot: the elector's, if there is an elector.
    pub lowest: Option<Ballot>,
    /// The version of the ballots' parent, see [`Elected::generation`].
    pub generation: i32,
    /// The decision.
    pub elected: Option<Decision>,
    /// The leader znodes, by slot: as many as the decision has slots; one before the first decision.
    pub leader_znodes: Vec<Option<LeaderZnode>>,
    /// The base of the tokens in an election without an elector.
    pub(crate) tokens: Option<TokenBase>,
    /// The standing orders; the default if there are none.
    pub control: Control,
    /// The leaderships whose work may still run; none if no member fences.
    pub breadcrumbs: Breadcrumbs,
    /// The operators' requests, oldest first.
    pub requests: Vec<FiledRequest>,
    /// Records that can't be used.
    pub unreadable: Vec<RecordError>,
}

/// The decision, and the metadata of its znode.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The decision.
    pub record: Elected,
    /// The version of the data.
    pub version: i32,
    /// The transaction that wrote it.
    pub mzxid: i64,
}

/// The leader znode of a slot.
#[derive(Clone, Debug)]
pub struct LeaderZnode {
    /// The record of its holder.
    pub record: Current,
    /// The version of the data.
    pub version: i32,
    /// The transaction that created it.
    pub czxid: i64,
}

impl Snapshot {
    /// The member with the lowest ballot.
    pub fn elector(&self) -> Option<&MemberId> {
        let lowest = self.lowest.as_ref()?;
        self.members.iter().find(|m| m.ballot == *lowest).map(|m| &m.member)
    }

    /// The decision.
    pub fn decided(&self) -> Option<&Elected> {
        self.elected.as_ref().map(|decision| &decision.record)
    }

    /// Whether this is a living member, or one that the decision or a leader znode names: more than one record says so.
    pub fn names(&self, member: &MemberId) -> bool {
        let leads = |leader: &LeaderZnode| leader.record.member == *member;
        let is_decided = |elected: &Elected| {
            let slots = elected.slots.iter().any(|slot| {
                let previous = slot.given.previous.as_ref().map(|previous| &previous.member);
                let named = slot.named.iter().chain(&slot.succession).map(|named| &named.member);
                named.chain(previous).any(|named| named == member)
            });
            slots
                || elected.exclusions.iter().any(|excluded| excluded.member == *member)
                || elected.failures.iter().any(|failure| failure.member == *member)
        };
        self.members.iter().any(|known| known.member == *member)
            || self.leader_znodes.iter().flatten().any(leads)
            || self.decided().is_some_and(is_decided)
    }

    /// The leader znode of `slot`, if it exists.
    pub fn leader_znode(&self, slot: usize) -> Option<&LeaderZnode> {
        self.leader_znodes.get(slot)?.as_ref()
    }

    fn take_breadcrumbs(&mut self, paths: &Paths, node: Option<Node>) {
        let decode =
            |node: Node| usable(Breadcrumbs::decode(&paths.breadcrumbs(), &node.data), &mut self.unreadable);
        self.breadcrumbs = node.and_then(decode).unwrap_or_default();
    }

    /// The leaderships of former leaders whose work may still run. A leader has its leader znode before it is among the
    /// leaderships, and they are read first: so it is not taken for a former one while it leads.
    pub fn former(&self) -> impl Iterator<Item = &Breadcrumb> {
        let leads = |left: &Breadcrumb| {
            self.leader_znode(left.slot).is_some_and(|present| present.record.member == left.member)
        };
        self.breadcrumbs.leaderships.iter().filter(move |left| !leads(left))
    }

    /// The records of the leader znodes, by slot.
    pub(crate) fn leaders(&self) -> Vec<Option<&Current>> {
        self.leader_znodes.iter().map(|leader| leader.as_ref().map(|leader| &leader.record)).collect()
    }

    /// The part of it that an elector uses, as input for `explain`.
    pub fn seen(&self) -> Seen {
        Seen {
            members: self.members.clone(),
            lowest: self.lowest.clone(),
            elected: self.decided().cloned(),
            leader_znodes: self.leaders().into_iter().map(|leader| leader.cloned()).collect(),
            control: self.control.clone(),
            requests: self.requests.clone(),
            unreadable: self.unreadable.clone(),
        }
    }

    /// The slot that a request is about.
    ///
    /// # Errors
    /// If there is none, or several could be meant.
    pub fn slot_for(&self, request: &AdminRequest) -> Result<usize, AdminError> {
        slot_of(request, self.decided(), &self.leaders()).map_err(|why| Refusal::from(why).into())
    }

    /// The base of the tokens.
    pub fn token_base(&self) -> u64 {
        let of_record = self.tokens.as_ref().map(|tokens| tokens.token_base);
        self.decided().map(|elected| elected.token_base).or(of_record).unwrap_or(0)
    }

    /// The fencing token of the leader of `slot`.
    pub fn fencing_token(&self, slot: usize) -> Option<u64> {
        let leader_znode = self.leader_znode(slot)?;
        leader_znode.record.fencing_token.or_else(|| fencing_token(leader_znode.czxid, self.token_base()))
    }
}

/// Reads elections over a session.
#[derive(Clone, Debug)]
pub struct Observer {
    session: Incarnation,
}

impl Observer {
    /// Reads over this session.
    pub fn new(session: Incarnation) -> Self {
        Self { session }
    }

    /// The session it reads over.
    pub fn session(&self) -> &Incarnation {
        &self.session
    }

    /// The names of the elections under `root`.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    pub async fn elections(&self, root: &str) -> Result<Vec<String>, ReadError> {
        let trimmed = root.trim_end_matches('/');
        let path = if trimmed.is_empty() { "/" } else { trimmed };
        let names = self.session.children(path).await?.map(|c| c.names).unwrap_or_default();
        let paths = names.into_iter().filter_map(|name| Some((Paths::new(root, &name).ok()?, name)));
        let paths: Vec<_> = paths.collect();
        let mut found = Vec::new();
        for group in paths.chunks(BATCH) {
            let reads = group.iter().map(|(paths, _)| ReadOp::children(paths.base()));
            for (parts, (_, name)) in self.session.multi_read(reads).await?.into_iter().zip(group) {
                if last_of(&children(parts)).is_some() {
                    found.push(name.clone());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Reads a whole election. Records that can't be used are listed and are no error.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or there is no such election.
    pub async fn snapshot(&self, paths: &Paths) -> Result<Snapshot, ReadError> {
        // The server may lag behind.
        self.session.barrier().await?;
        let outline = Outline::read(&self.session, paths).await?;
        match outline.layout(paths) {
            None => return Err(ReadError::NoElection(paths.base().to_owned())),
            Some(Layout::Elector) => {}
            Some(layout) => {
                let node = outline.breadcrumbs.clone();
                let mut snapshot = self.contest(paths, layout, outline).await?;
                snapshot.take_breadcrumbs(paths, node);
                return Ok(snapshot);
            }
        }
        let generation = outline.election.map_or(0, |parent| parent.version);
        let lowest = outline.ballots.into_iter().filter_map(|name| Ballot::new(name).ok()).min();
        let mut snapshot = Snapshot { lowest, generation, ..Snapshot::default() };
        snapshot.take_breadcrumbs(paths, outline.breadcrumbs);
        if let Some(node) = outline.roster {
            let roster = usable(Roster::decode(&paths.roster(), &node.data), &mut snapshot.unreadable);
            snapshot.absent = roster.unwrap_or_default().absent(&outline.nodes, unix_ms());
        }
        let unreadable = &mut snapshot.unreadable;
        for (name, node) in get_all(&self.session, &paths.nodes(), outline.nodes).await? {
            snapshot.newest_zxid = snapshot.newest_zxid.max(node.mzxid);
            let path = format!("{}/{name}", paths.nodes());
            snapshot.members.extend(usable(MemberRecord::decode(&path, &node.data), unreadable));
        }
        snapshot.members.sort_by(|a, b| a.ballot.cmp(&b.ballot));
        if let Some(node) = outline.elected {
            let elected = usable(Elected::decode(&paths.elected(), &node.data), unreadable);
            let (version, mzxid) = (node.version, node.mzxid);
            snapshot.elected = elected.map(|record| Decision { record, version, mzxid });
        }
        let slots = snapshot.elected.as_ref().map_or(1, |e| e.record.slots.len()).clamp(1, MAX_SLOTS);
        let mut leader = outline.leader;
        for (slot, path) in (0..slots).map(|slot| (slot, paths.leader_znode(slot))) {
            let node = if slot == 0 { leader.take() } else { self.read(&path).await? };
            snapshot.leader_znodes.push(node.and_then(|node| {
                let record = usable(Current::decode(&path, &node.data), unreadable)?;
                Some(LeaderZnode { record, version: node.version, czxid: node.czxid })
            }));
        }
        if let Some(node) = outline.control {
            snapshot.control =
                usable(Control::decode(&paths.control(), &node.data), unreadable).unwrap_or_default();
        }
        for (name, node) in get_all(&self.session, &paths.requests(), outline.requests).await? {
            let request = usable(AdminRequest::decode(&paths.request(&name), &node.data), unreadable);
            let which = RequestRef { czxid: node.czxid, name };
            snapshot.requests.extend(request.map(|request| FiledRequest { which, request }));
        }
        snapshot.requests.sort_by(|a, b| a.which.cmp(&b.which));
        Ok(snapshot)
    }

    /// The member that is a candidate with this ballot, if both exist.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or the record can't be used.
    pub async fn member(&self, paths: &Paths, ballot: &Ballot) -> Result<Option<MemberRecord>, ReadError> {
        let Some(node) = self.read(&paths.ballot(ballot)).await? else { return Ok(None) };
        let Ok(member) = String::from_utf8_lossy(&node.data).parse::<MemberId>() else { return Ok(None) };
        let path = paths.node(&member);
        let Some(node) = self.read(&path).await? else { return Ok(None) };
        let record = MemberRecord::decode(&path, &node.data)?;
        Ok((record.ballot == *ballot).then_some(record))
    }

    /// The kept leaderships, oldest first, and the entries that can't be used.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    pub async fn history(&self, paths: &Paths) -> Result<(Vec<HistoryEntry>, Vec<RecordError>), ReadError> {
        let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
        for (name, node) in tree(&self.session, &paths.history()).await? {
            let path = format!("{}/{name}", paths.history());
            entries.extend(usable(HistoryEntry::decode(&path, &node.data), &mut unreadable));
        }
        Ok((entries, unreadable))
    }

    /// One request, if it is still there.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or the record can't be used.
    pub async fn request(
        &self,
        paths: &Paths,
        which: &RequestRef,
    ) -> Result<Option<AdminRequest>, ReadError> {
        let path = paths.request(&which.name);
        let node = self.read(&path).await?.filter(|node| node.czxid == which.czxid);
        Ok(node.map(|node| AdminRequest::decode(&path, &node.data)).transpose()?)
    }

    /// All living ballots.
    pub(crate) async fn ballots(&self, paths: &Paths) -> Result<Vec<Ballot>, OpError> {
        let names = self.session.children(&paths.election()).await?.map(|c| c.names).unwrap_or_default();
        Ok(names.into_iter().filter_map(|name| Ballot::new(name).ok()).collect())
    }

    /// Reads a znode; `None` if there is none.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    pub async fn read(&self, path: &str) -> Result<Option<Node>, OpError> {
        Ok(self.session.get(path).await?.map(to_node))
    }

    /// Reads these znodes, as they are at one moment.
    pub(crate) async fn read_all<const N: usize>(
        &self,
        paths: [&str; N],
    ) -> Result<[Option<Node>; N], OpError> {
        let mut results = self.session.multi_read(paths.map(ReadOp::get)).await?.into_iter();
        Ok(paths.map(|_| results.next().and_then(internals::node)))
    }

    /// Reads a record, to change it.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    pub async fn known<R: Record>(&self, path: impl Into<String>) -> Result<Known<R>, OpError> {
        let path = path.into();
        let node = self.read(&path).await?;
        Ok(Known::new(path, node))
    }

    /// Reads the decision, to change it.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer.
    pub async fn decision(&self, paths: &Paths) -> Result<KnownDecision, OpError> {
        let [parent, decision] = self.read_all([&paths.election(), &paths.elected()]).await?;
        Ok(KnownDecision::new(paths, parent.as_ref(), decision))
    }

    /// Reads a record; `None` if there is no such znode.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or the record can't be used.
    pub async fn record<R: Record>(&self, path: &str) -> Result<Option<R>, ReadError> {
        Ok(self.known(path).await?.record()?)
    }
}

/// The record; one that can't be used is listed.
pub(crate) fn usable<T>(record: Result<T, RecordError>, unreadable: &mut Vec<RecordError>) -> Option<T> {
    record.map_err(|error| unreadable.push(error)).ok()
}
