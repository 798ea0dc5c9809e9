//! What a leader reads of the orders about its job, and how it begins and answers requests about it; what a member does of
//! its standby.

use std::{collections::BTreeSet, time::Duration};

use zk_session::{
    BootTime, ChildrenWatch, Closed, DataWatch, Incarnation, MultiOp, OpError, ReadOp, Session, sleep_until,
};

use crate::{
    change::Attempts,
    error::{AdminError, Hindrance},
    known::Known,
    observer::Observer,
};
use election_core::{
    Paths,
    config::MemberId,
    internals::{
        Node, get_all, node,
        record::{
            AdminRequest, Control, Current, FiledRequest, MAX_SLOTS, OrderedBy, Record as _, RecordError,
            RequestKind, RequestRef, RequestState, StoppedJob, StoppedStandby,
        },
        unix_ms,
    },
};

/// The delay before a failed read is repeated.
const RETRY: Duration = Duration::from_millis(200);

/// The standing orders and the requests about the job of a leader, and their changes.
#[derive(Debug)]
pub struct JobRequests {
    session: Session,
    paths: Paths,
    orders: DataWatch,
    are_orders_known: bool,
    names: ChildrenWatch,
    /// What was listed and is not read yet.
    listed: Option<(i64, BTreeSet<String>)>,
    /// Requests that need no further look: moves, and those that have ended. And what they are children of: their names
    /// are used again after it was deleted.
    over: (i64, BTreeSet<String>),
    /// What this process has tried to begin.
    tried: BTreeSet<RequestRef>,
}

/// What a leader has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobNews {
    /// The standing orders.
    Orders(Box<Control>),
    /// The standing orders can't be read.
    Unreadable(RecordError),
    /// All requests about the job that have not ended, oldest first.
    Requests(Vec<FiledRequest>),
}

/// A standby for which a request is begun.
#[derive(Clone, Copy, Debug)]
pub struct StandingBy<'a> {
    /// The member.
    pub member: &'a MemberId,
    /// The term of the last decision that it knows.
    pub term: u64,
}

/// The leadership in which a request is begun.
#[derive(Clone, Copy, Debug)]
pub struct Leading<'a> {
    /// The leader.
    pub member: &'a MemberId,
    /// The slot that it leads.
    pub slot: usize,
    /// The term.
    pub term: u64,
}

impl JobRequests {
    /// Follows the orders and requests of an election with an elector.
    pub fn follow(session: &Session, paths: Paths) -> Self {
        Self {
            session: session.clone(),
            orders: session.watch_data(paths.control()),
            are_orders_known: false,
            names: session.watch_children(paths.requests()),
            listed: None,
            over: (0, BTreeSet::new()),
            tried: BTreeSet::new(),
            paths,
        }
    }

    /// What is new. The first call is about the standing orders.
    ///
    /// A leader that calls it first after it has created its leader znode knows all orders of earlier leaders: they were
    /// written before, and a session reads what its own writes have followed.
    ///
    /// # Errors
    /// When the session was closed.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> Result<JobNews, Closed> {
        loop {
            if let Some((parent, names)) = self.listed.clone() {
                match self.read(parent, names).await {
                    Ok(requests) => {
                        self.listed = None;
                        return Ok(JobNews::Requests(requests));
                    }
                    Err(error) => {
                        tracing::debug!(%error, "requests about the job are read once more");
                        self.session.active().await?;
                        sleep_until(BootTime::now() + RETRY).await;
                        continue;
                    }
                }
            }
            tokio::select! {
                biased;
                orders = self.orders.next_allowed() => {
                    self.are_orders_known = true;
                    let Some(node) = orders?.value else { return Ok(JobNews::Orders(Box::default())) };
                    return Ok(match Control::decode(&self.paths.control(), &node.data) {
                        Ok(control) => JobNews::Orders(Box::new(control)),
                        Err(error) => JobNews::Unreadable(error),
                    });
                }
                children = self.names.next_allowed(), if self.are_orders_known => {
                    let children = children?.value;
                    let parent = children.as_ref().map_or(0, |children| children.stat.czxid);
                    let names = children.map(|children| children.names.into_iter().collect());
                    self.listed = Some((parent, names.unwrap_or_default()));
                }
            }
        }
    }

    /// Reads the listed requests that may not have ended.
    async fn read(&mut self, parent: i64, names: BTreeSet<String>) -> Result<Vec<FiledRequest>, OpError> {
        if self.over.0 != parent {
            self.over = (parent, BTreeSet::new());
        }
        self.over.1.retain(|name| names.contains(name));
        let wanted = names.difference(&self.over.1).cloned().collect();
        let incarnation = self.incarnation()?;
        let mut open = Vec::new();
        for (name, node) in get_all(&incarnation, &self.paths.requests(), wanted).await? {
            match AdminRequest::decode(&self.paths.request(&name), &node.data) {
                Ok(request) if !request.kind.is_move() && !request.state.is_final() => {
                    open.push(FiledRequest { which: RequestRef { czxid: node.czxid, name }, request });
                }
                // The elector reports what can't be read.
                Ok(_) | Err(_) => drop(self.over.1.insert(name)),
            }
        }
        open.sort_by(|a, b| a.which.cmp(&b.which));
        Ok(open)
    }

    fn incarnation(&self) -> Result<Incarnation, OpError> {
        self.session.incarnation().ok_or(OpError::SessionOver)
    }

    /// Whether this process may have begun the request: it has tried to.
    pub fn has_tried(&self, which: &RequestRef) -> bool {
        self.tried.contains(which)
    }

    /// Begins a request, in one transaction with the standing order that it changes, and only while this leader holds
    /// its leader znode. Returns the standing orders then; `None` if the request was withdrawn, has expired or was begun
    /// by another process, or this member does not lead any more. Call it again after an error: then it finds out whether
    /// it has begun the request before. Once it has returned the orders, do not call it again for this request.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or a record can't be read.
    ///
    /// # Cancel safety
    /// May have been begun or not. The next leader answers a request that was begun and has not ended.
    pub async fn begin(
        &mut self,
        filed: &FiledRequest,
        leading: Leading<'_>,
    ) -> Result<Option<Control>, AdminError> {
        let path = self.paths.leader_znode(leading.slot);
        let held = |node: Option<Node>| Ok(node.filter(|node| is_held(node, &path, leading)));
        self.begin_while((&path, held), filed, leading.term).await
    }

    /// Begins a request about the standby of a member, while this process is that member, in one transaction with the standing
    /// order that it changes. Returns the standing orders then; `None` if the request was withdrawn, has expired or was begun by
    /// another process. Call it again after an error, and not after it has returned something.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or a record can't be read; [`Hindrance::NotJoined`] before the member has its record.
    ///
    /// # Cancel safety
    /// May have been begun or not. A leader answers a request that was begun and has not ended.
    pub async fn begin_here(
        &mut self,
        filed: &FiledRequest,
        standby: StandingBy<'_>,
    ) -> Result<Option<Control>, AdminError> {
        let path = self.paths.node(standby.member);
        let session = self.incarnation()?.session_id().0;
        let held = |node: Option<Node>| {
            let own = node.filter(|node| node.owner == session);
            own.map(Some).ok_or_else(|| Hindrance::NotJoined(standby.member.clone()))
        };
        self.begin_while((&path, held), filed, standby.term).await
    }

    /// Begins a request in this term while `held` returns the znode at this path. `Ok(None)` from it: no request is begun.
    async fn begin_while(
        &mut self,
        (held_path, held): (&str, impl Fn(Option<Node>) -> Result<Option<Node>, Hindrance>),
        filed: &FiledRequest,
        term: u64,
    ) -> Result<Option<Control>, AdminError> {
        let FiledRequest { which, request } = filed;
        let (path, control_path) = (self.paths.request(&which.name), self.paths.control());
        let incarnation = self.incarnation()?;
        let mut attempts = Attempts::within(&incarnation);
        let control = loop {
            let observer = attempts.look().await?;
            let [asked, orders, holder] = observer.read_all([&path, &control_path, held_path]).await?;
            let orders = Known::<Control>::new(&control_path, orders);
            let Some(asked) = asked.filter(|node| node.czxid == which.czxid) else { return Ok(None) };
            let begun = RequestState::Accepted { term };
            let state = AdminRequest::decode(&path, &asked.data)?.state;
            // An earlier try was carried out, and its reply was lost.
            let is_begun = state == begun && self.tried.contains(which);
            if state != RequestState::Pending && !is_begun {
                return Ok(None);
            }
            let Some(holder) = held(holder)? else { return Ok(None) };
            let mut control = orders.record_or_default()?;
            if is_begun {
                break control;
            }
            let before = control.clone();
            obey(&mut control, request);
            let request = request.clone().with(|request| request.state = begun);
            let mut group = vec![
                MultiOp::check(held_path, holder.version),
                MultiOp::set(&path, request.encode(&path)?, asked.version),
            ];
            if control != before {
                group.push(orders.replace(&control)?);
            }
            self.tried.insert(which.clone());
            if attempts.write(group).await? {
                break control;
            }
        };
        // What the watch has read is older than what was written.
        self.orders = self.session.watch_data(self.paths.control());
        Ok(Some(control))
    }

    /// A request about the standby of this member as it is now, and whether the member will not go on with it: it is gone, or has
    /// come back since. `None` if the request is gone.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or the request can't be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn of_standby(
        &self,
        which: &RequestRef,
        member: &MemberId,
    ) -> Result<Option<(RequestState, bool)>, AdminError> {
        let (path, of_member) = (self.paths.request(&which.name), self.paths.node(member));
        let observer = Observer::new(self.incarnation()?);
        let [request, member] = observer.read_all([&path, &of_member]).await?;
        let Some(node) = request.filter(|node| node.czxid == which.czxid) else { return Ok(None) };
        let request = AdminRequest::decode(&path, &node.data)?;
        Ok(Some((request.state, member.is_none_or(|member| member.czxid > node.mzxid))))
    }

    /// Whether no leader will end this request, which was begun in this term: the leadership that began it is over, and no
    /// standing order has others carry it out.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or a record can't be read.
    ///
    /// # Cancel safety
    /// Cancel safe: it only reads.
    pub async fn is_abandoned(&self, request: &AdminRequest, begun: u64) -> Result<bool, AdminError> {
        let control_path = self.paths.control();
        let leaders: Vec<_> = (0..MAX_SLOTS).map(|slot| self.paths.leader_znode(slot)).collect();
        let reads = std::iter::once(&control_path).chain(&leaders).map(ReadOp::get);
        let mut nodes = self.incarnation()?.multi_read(reads).await?.into_iter().map(node);
        let control = Known::<Control>::new(control_path, nodes.next().flatten()).record_or_default()?;
        let mut current = Vec::new();
        for (path, node) in leaders.iter().zip(nodes) {
            current.extend(node.map(|node| Current::decode(path, &node.data)).transpose()?);
        }
        Ok(is_abandoned(request, begun, &current, &control))
    }

    /// Records the outcome of a request, unless it has ended.
    ///
    /// # Errors
    /// When ZooKeeper doesn't answer, or the request can't be read.
    ///
    /// # Cancel safety
    /// May have been recorded or not. Repeating it is safe.
    pub async fn answer(&self, which: &RequestRef, state: &RequestState) -> Result<(), AdminError> {
        let path = self.paths.request(&which.name);
        let incarnation = self.incarnation()?;
        let mut attempts = Attempts::within(&incarnation);
        loop {
            let observer = attempts.look().await?;
            let node = observer.read(&path).await?;
            let Some(node) = node.filter(|node| node.czxid == which.czxid) else { return Ok(()) };
            let request = AdminRequest::decode(&path, &node.data)?;
            if request.state.is_final() {
                return Ok(());
            }
            let data = request.with(|request| request.state = state.clone()).encode(&path)?;
            if attempts.write([MultiOp::set(&path, data, node.version)]).await? {
                return Ok(());
            }
        }
    }
}

/// Whether this leadership holds the leader znode. Its term names one leader.
pub(crate) fn is_held(node: &Node, path: &str, leading: Leading<'_>) -> bool {
    let current = Current::decode(path, &node.data);
    current.is_ok_and(|current| current.member == *leading.member && current.term == leading.term)
}

/// [`JobRequests::is_abandoned`], by the leader znodes and the standing orders.
fn is_abandoned(request: &AdminRequest, begun: u64, leaders: &[Current], control: &Control) -> bool {
    let is_ordered = match request.kind {
        RequestKind::Stop => control.stopped.is_some(),
        RequestKind::Start => control.stopped.is_none(),
        _ => false,
    };
    let begins = |leader: &Current| request.is_for(&leader.member, leader.slot) && leader.term == begun;
    !is_ordered && !leaders.iter().any(begins)
}

/// Changes the standing orders as a request asks.
fn obey(control: &mut Control, request: &AdminRequest) {
    let at_ms = unix_ms();
    let stopped = || StoppedJob {
        ordered: OrderedBy { reason: request.reason.clone(), by: request.by.clone(), at_ms },
    };
    let of_standby = request.standby_of().map(|member| (member, control.stopped_standby(member).is_some()));
    match (request.kind, of_standby) {
        (RequestKind::Stop, _) if control.stopped.is_none() => control.stopped = Some(stopped()),
        (RequestKind::Start, _) if control.stopped.is_some() => control.stopped = None,
        (RequestKind::StopStandby, Some((member, false))) => {
            let order = StoppedStandby { member: member.clone(), stopped: stopped() };
            control.stopped_standbys.push(order);
        }
        (RequestKind::StartStandby, Some((member, true))) => {
            control.stopped_standbys.retain(|order| order.member != *member);
        }
        _ => return,
    }
    control.v = control.format();
    request.by.clone_into(&mut control.changed_by);
    control.changed_at_ms = at_ms;
    control.changed_reason.clone_from(&request.reason);
}

#[cfg(test)]
mod tests {
    use super::*;
    use election_core::internals::record::{Outgoing, Target};

    fn asked(kind: RequestKind) -> AdminRequest {
        AdminRequest::new("1".to_owned(), kind, Target::Any, "ann@desk".to_owned(), 1)
    }

    #[test]
    fn a_stop_is_an_order_of_a_format_that_older_programs_do_not_read() {
        let mut control = Control::default();
        obey(&mut control, &asked(RequestKind::Restart));
        assert_eq!(control, Control::default());
        obey(&mut control, &asked(RequestKind::Stop));
        let by = control.stopped.as_ref().map(|stopped| stopped.ordered.by.as_str());
        assert_eq!((by, control.v), (Some("ann@desk"), Control::WITH_STOP));
        let read = Control::decode("/c", &control.encode("/c").unwrap()).unwrap();
        assert_eq!(read, control);
        let first = control.clone();
        obey(&mut control, &asked(RequestKind::Stop));
        assert_eq!(control, first, "the first operator and reason are kept");
        obey(&mut control, &asked(RequestKind::Start));
        assert_eq!((control.stopped, control.v), (None, 1));
    }

    #[test]
    fn the_standby_of_one_member_is_stopped_and_started() {
        let of = |kind, member: &str| {
            asked(kind).with(|request| request.from = Outgoing::Member(member.parse().unwrap()))
        };
        let mut control = Control::default();
        obey(&mut control, &of(RequestKind::StartStandby, "a"));
        obey(&mut control, &of(RequestKind::RestartStandby, "a"));
        assert_eq!(control, Control::default());
        obey(&mut control, &of(RequestKind::StopStandby, "a"));
        obey(&mut control, &of(RequestKind::StopStandby, "b"));
        let first = control.clone();
        obey(&mut control, &of(RequestKind::StopStandby, "a"));
        assert_eq!(control, first, "the first operator and reason are kept");
        obey(&mut control, &of(RequestKind::StartStandby, "a"));
        let left: Vec<_> = control.stopped_standbys.iter().map(ToString::to_string).collect();
        assert_eq!(
            (left, control.stopped),
            (vec!["the standby of b is stopped by ann@desk".to_owned()], None)
        );
    }

    /// Kinds of requests, and who is left of those that may have begun one in term 4.
    #[test]
    fn a_request_is_abandoned_once_whoever_began_it_leads_no_more() {
        let current = |member: &str, slot: usize, term: u64| -> Current {
            let current = serde_json::json!({
                "v": 1, "member": member, "ballot": "x-0000000001", "site": "east", "slot": slot, "term": term,
                "status": "READY", "since_ms": 1,
            });
            serde_json::from_value(current).unwrap()
        };
        let member = || Outgoing::Member("a".parse().unwrap());
        let (own, of_another) = (current("a", 0, 4), current("b", 1, 4));
        let (later, next) = (current("a", 0, 5), current("b", 0, 5));
        let mut stopped = Control::default();
        obey(&mut stopped, &asked(RequestKind::Stop));
        let running = Control::default();
        for (kind, from, leaders, control, abandoned) in [
            (RequestKind::Restart, member(), vec![own.clone()], &running, false),
            (RequestKind::Restart, member(), vec![], &running, true),
            (RequestKind::Restart, member(), vec![next.clone()], &running, true),
            (RequestKind::Restart, member(), vec![later.clone()], &running, true),
            // Two slots of one decision have the same term.
            (RequestKind::Restart, member(), vec![of_another.clone()], &running, true),
            (RequestKind::Restart, Outgoing::Only, vec![own.clone()], &running, false),
            (RequestKind::Restart, Outgoing::Only, vec![next.clone()], &running, true),
            (
                RequestKind::Restart,
                Outgoing::Slot(1),
                vec![of_another.clone(), next.clone()],
                &running,
                false,
            ),
            (RequestKind::Restart, Outgoing::Slot(1), vec![own.clone()], &running, true),
            // The order is obeyed by each leader, also by the next one.
            (RequestKind::Stop, Outgoing::Only, vec![next.clone()], &stopped, false),
            (RequestKind::Start, Outgoing::Only, vec![next.clone()], &running, false),
            // It was deleted, or reversed.
            (RequestKind::Stop, Outgoing::Only, vec![of_another], &running, false),
            (RequestKind::Stop, Outgoing::Only, vec![next.clone()], &running, true),
            (RequestKind::Start, Outgoing::Only, vec![next], &stopped, true),
        ] {
            let request = asked(kind).with(|request| request.from = from);
            let found = is_abandoned(&request, 4, &leaders, control);
            assert_eq!(found, abandoned, "{request:?} {leaders:?}");
        }
    }
}
