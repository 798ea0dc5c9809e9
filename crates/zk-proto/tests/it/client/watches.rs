//! Which watches a connection has on its server, and who is told of what.

use super::*;

const NOW: Duration = Duration::from_millis(1);
/// How many one-shot watches that nobody waits for stay on the server.
const MOST_STALE: u64 = 64;

struct Watcher(Connection<u32>);

impl Watcher {
    fn new() -> Self {
        Self(connection())
    }

    /// Of a session with servers that accept requests of that size.
    fn with_limit(request: usize) -> Self {
        let mut connection = Connection::new(ms(0), ticket(), Limits { request, ..Limits::default() });
        assert_eq!(outputs(&mut connection), [Output::Ready]);
        Self(connection)
    }

    /// Asks for a watch and lets the server arm it.
    fn arm(&mut self, id: u64, request: &Request<'_>) {
        ask(&mut self.0, NOW, request, Some(id), 0);
        let [(xid, op, _)] = written(&mut self.0, NOW)[..] else { panic!("one request") };
        let (error, reply) = match op {
            OpCode::EXISTS => (ErrorCode::NO_NODE, Reply::Empty),
            OpCode::GET_DATA => (ErrorCode::OK, data()),
            OpCode::GET_CHILDREN => (ErrorCode::OK, Reply::Names(Vec::new())),
            _ => (ErrorCode::OK, Reply::Int(0)),
        };
        answer(&mut self.0, NOW, xid, error, &reply);
        assert_eq!(outputs(&mut self.0).len(), 1);
    }

    fn told(&mut self, kind: EventKind, path: &str) -> Vec<Output<u32>> {
        event(&mut self.0, NOW, kind, path);
        outputs(&mut self.0)
    }

    /// The paths that the server is to watch no longer, and of which kind of watches.
    fn forget(&mut self, id: u64) -> Vec<(String, i32)> {
        self.0.handle(NOW, Input::Forget(WatchId(id)));
        let mut removed = Vec::new();
        for (xid, op, body) in written(&mut self.0, NOW) {
            answer(&mut self.0, NOW, xid, ErrorCode::OK, &Reply::Empty);
            match Request::decode(op, &body).unwrap() {
                Request::RemoveWatches { path, kind } => removed.push((path.into_owned(), kind)),
                other => panic!("{other:?}"),
            }
        }
        removed
    }

    /// The lists of each request by which they are armed on another transport.
    fn again(&mut self) -> Vec<[Vec<String>; 5]> {
        let ticket = self.0.ticket().clone();
        self.0.handle(NOW, Input::Attached(ticket));
        let lists = |(_, op, body): (_, _, Bytes)| match Request::decode(op, &body).unwrap() {
            Request::SetWatches { data, exist, child, persistent, recursive, .. } => {
                [data, exist, child, persistent, recursive].map(|list| {
                    assert!(body.len() < 256 << 10, "{} bytes", body.len());
                    list.iter().map(|path| path.to_string()).collect()
                })
            }
            other => panic!("{other:?}"),
        };
        let requests: Vec<_> = written(&mut self.0, NOW).into_iter().map(lists).collect();
        for _ in &requests {
            answer(&mut self.0, NOW, xid::SET_WATCHES, ErrorCode::OK, &Reply::Empty);
        }
        requests
    }
}

fn absence(path: &str) -> Request<'_> {
    Request::Exists { path: path.into(), watch: true }
}

fn children(path: &str) -> Request<'_> {
    Request::GetChildren { path: path.into(), watch: true, with_stat: false }
}

fn lasting(path: &str, mode: WatchMode) -> Request<'_> {
    Request::AddWatch { path: path.into(), mode: mode.number() }
}

#[test]
fn an_event_fires_every_watch_of_its_kind_and_no_other() {
    let mut watcher = Watcher::new();
    watcher.arm(1, &get("/a", true));
    watcher.arm(2, &get("/a", true));
    watcher.arm(3, &children("/a"));
    watcher.arm(4, &absence("/b"));
    assert_eq!(watcher.told(EventKind::CHILDREN_CHANGED, "/b"), []);
    let changed = [1, 2].map(|id| watch(id, WatchKind::DataChanged, "/a"));
    assert_eq!(watcher.told(EventKind::DATA_CHANGED, "/a"), changed);
    assert_eq!(watcher.told(EventKind::DATA_CHANGED, "/a"), []);
    assert_eq!(watcher.told(EventKind::DELETED, "/a"), [watch(3, WatchKind::Deleted, "/a")]);
    assert_eq!(watcher.told(EventKind(99), "/b"), [watch(4, WatchKind::Gap, "/b")]);
    assert!(watcher.again().is_empty());
}

#[test]
fn a_lasting_watch_stays_and_a_recursive_one_hears_of_what_is_below() {
    let mut watcher = Watcher::new();
    watcher.arm(1, &lasting("/a", WatchMode::Persistent));
    watcher.arm(2, &lasting("/a", WatchMode::Recursive));
    watcher.arm(3, &children("/a"));
    let changed = [1, 2].map(|id| watch(id, WatchKind::DataChanged, "/a"));
    assert_eq!(watcher.told(EventKind::DATA_CHANGED, "/a"), changed);
    assert_eq!(watcher.told(EventKind::CREATED, "/a/b/c"), [watch(2, WatchKind::Created, "/a/b/c")]);
    let children_changed = |id| watch(id, WatchKind::ChildrenChanged, "/a");
    let created = [watch(2, WatchKind::Created, "/a/b"), children_changed(3), children_changed(1)];
    assert_eq!(watcher.told(EventKind::CREATED, "/a/b"), created);
    let here = || vec!["/a".to_owned()];
    assert_eq!(watcher.again(), [[vec![], vec![], vec![], vec![], here()]]);
    let gaps = outputs(&mut watcher.0);
    assert_eq!(gaps.iter().filter(|output| matches!(output, Output::Watch { .. })).count(), 2, "{gaps:?}");
    // The server goes on as it is.
    assert_eq!(watcher.forget(2), []);
    assert_eq!(watcher.told(EventKind::DELETED, "/a/b"), [children_changed(1)]);
    assert_eq!(watcher.again(), [[vec![], vec![], vec![], here(), vec![]]]);
    outputs(&mut watcher.0);
    assert_eq!(watcher.told(EventKind::CREATED, "/a/b"), [], "it tells of the children as such");
}

#[test]
fn children_of_a_recursive_watch_are_told_of_once_whatever_the_server_keeps_beside_it() {
    let mut watcher = Watcher::new();
    watcher.arm(1, &children("/a"));
    watcher.arm(2, &lasting("/a", WatchMode::Persistent));
    watcher.arm(3, &lasting("/a", WatchMode::Recursive));
    let children_changed = |id| watch(id, WatchKind::ChildrenChanged, "/a");
    let created = [watch(3, WatchKind::Created, "/a/b"), children_changed(1), children_changed(2)];
    assert_eq!(watcher.told(EventKind::CREATED, "/a/b"), created);
    assert_eq!(watcher.told(EventKind::CHILDREN_CHANGED, "/a"), []);
}

#[test]
fn the_last_lasting_watch_of_a_path_is_removed_on_the_server() {
    let mut watcher = Watcher::new();
    watcher.arm(1, &lasting("/a", WatchMode::Persistent));
    watcher.arm(2, &lasting("/a", WatchMode::Persistent));
    watcher.arm(3, &get("/a", true));
    assert_eq!(watcher.forget(1), []);
    assert_eq!(watcher.forget(2), [("/a".to_owned(), WatcherType::Any.number())]);
    let gap = [watch(3, WatchKind::Gap, "/a")];
    assert_eq!(outputs(&mut watcher.0), gap, "it was told of by the lasting one");
    assert_eq!(watcher.forget(2), []);
}

#[test]
fn one_shot_watches_that_are_given_up_are_removed_only_when_they_are_many() {
    let mut watcher = Watcher::new();
    for n in 0..MOST_STALE {
        watcher.arm(n, &absence(&format!("/{n}")));
        assert_eq!(watcher.forget(n), [], "{n}");
    }
    let removed = |path: &str| [(path.to_owned(), WatcherType::Data.number())];
    let mut ids = 1000..;
    let mut one_more = |watcher: &mut Watcher| {
        let id = ids.next().unwrap();
        watcher.arm(id, &absence(&format!("/{id}")));
        watcher.forget(id)
    };

    watcher.arm(100, &absence("/100"));
    ask(&mut watcher.0, NOW, &absence("/0"), Some(101), 0);
    let [(asked, ..)] = written(&mut watcher.0, NOW)[..] else { panic!("one request") };
    assert_eq!(watcher.forget(100), [], "/0, the oldest, is about to be armed again");
    answer(&mut watcher.0, NOW, asked, ErrorCode::NO_NODE, &Reply::Empty);
    outputs(&mut watcher.0);
    watcher.arm(102, &get("/1", true));
    assert_eq!(one_more(&mut watcher), [], "/1 is watched by somebody else");
    assert_eq!(one_more(&mut watcher), removed("/2"));
    // Armed once more, it is not one of them any longer; nor is one that has fired.
    watcher.arm(103, &absence("/5"));
    assert_eq!(watcher.told(EventKind::CREATED, "/6"), []);
    assert_eq!([one_more(&mut watcher), one_more(&mut watcher)], [[], []]);
    assert_eq!(one_more(&mut watcher), removed("/3"));
}

#[test]
fn a_lasting_watch_is_not_removed_with_a_one_shot_watch_that_was_given_up_before() {
    let mut watcher = Watcher::new();
    watcher.arm(1000, &children("/a"));
    watcher.arm(1001, &get("/b", true));
    assert_eq!([watcher.forget(1000), watcher.forget(1001)], [[], []]);
    watcher.arm(1002, &lasting("/a", WatchMode::Persistent));
    watcher.arm(1003, &lasting("/b", WatchMode::Recursive));
    let mut removed = Vec::new();
    for n in 0..MOST_STALE + 1 {
        watcher.arm(n, &absence(&format!("/{n}")));
        removed.extend(watcher.forget(n));
    }
    assert_eq!(removed, [("/0".to_owned(), WatcherType::Data.number())]);
}

#[test]
fn who_watches_children_is_told_while_the_watches_are_being_set_again() {
    let mut watcher = Watcher::new();
    watcher.arm(1, &children("/a"));
    watcher.arm(2, &lasting("/a", WatchMode::Recursive));
    let ticket = watcher.0.ticket().clone();
    watcher.0.handle(NOW, Input::Attached(ticket));
    outputs(&mut watcher.0);
    // The server has set them, and the answer is still to come.
    assert_eq!(written(&mut watcher.0, NOW).len(), 1);
    let changed = [watch(1, WatchKind::ChildrenChanged, "/a")];
    assert_eq!(watcher.told(EventKind::CREATED, "/a/b"), changed);
    answer(&mut watcher.0, NOW, xid::SET_WATCHES, ErrorCode::OK, &Reply::Empty);
    let settled = [watch(2, WatchKind::Gap, "/a"), Output::Ready];
    assert_eq!(outputs(&mut watcher.0), settled);
}

#[test]
fn watches_are_set_again_by_requests_that_the_servers_accept() {
    const LIMIT: usize = 64 << 10;
    let mut watcher = Watcher::with_limit(LIMIT);
    let paths: Vec<String> = (0..4).map(|n| format!("/{n}{}", "x".repeat(20 << 10))).collect();
    for (id, path) in (0..).zip(&paths) {
        watcher.arm(id, &get(path, true));
        watcher.arm(id + 100, &children(path));
    }
    let requests = watcher.again();
    for lists in &requests {
        let bytes: usize =
            lists.iter().map(|paths| 4 + paths.iter().map(|path| 4 + path.len()).sum::<usize>()).sum();
        assert!(RequestHeader::LEN + 8 + bytes <= LIMIT, "{bytes}");
    }
    let all = |list: usize| requests.iter().flat_map(|lists| lists[list].clone()).collect::<Vec<_>>();
    assert_eq!([all(0), all(2)], [paths.clone(), paths]);
}

#[test]
fn many_watches_are_set_again_by_several_requests() {
    let mut watcher = Watcher::new();
    for n in 0..4000 {
        watcher.arm(n, &children(&format!("/{n:0>100}")));
    }
    let requests = watcher.again();
    assert!(requests.len() > 3);
    assert_eq!(requests.iter().map(|lists| lists[2].len()).sum::<usize>(), 4000);
}
