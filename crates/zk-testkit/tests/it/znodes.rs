//! Znodes and watches of the embedded server, as its clients see them.

use crate::wire::{Client, OK, create, set, word};
use zk_proto::{Acl, AclEntry, Create, ErrorCode, Id, OpCode, Reply, Request, Stat, WatchMode, permission};
use zk_testkit::{Release, TestServer};

const EPHEMERAL: i32 = 1;

async fn start(release: Release) -> (TestServer, [Client; 2]) {
    let server = TestServer::builder().with(|settings| settings.release = release).start().await.unwrap();
    let clients = [(); 2].map(|()| Client::new(server.addresses()[0]).unwrap());
    (server, clients)
}

fn ask(client: &mut Client, request: &Request<'_>) -> Reply {
    client.reply(request).unwrap().reply(request.op())
}

fn stat(client: &mut Client, path: &str) -> Stat {
    match ask(client, &Request::Exists { path: path.into(), watch: false }) {
        Reply::Stat(stat) => stat,
        other => panic!("{other:?}"),
    }
}

/// With that access list.
fn create_with<'a>(path: &'a str, entries: &[AclEntry<'a>]) -> Request<'a> {
    match create(path, 0) {
        Request::Create(create) => Request::Create(Create { acl: entries.to_vec(), ..create }),
        other => other,
    }
}

fn auth(proof: &[u8]) -> Request<'_> {
    Request::Auth { kind: 0, scheme: Some("digest".into()), credentials: Some(proof.into()) }
}

fn acl_of(client: &mut Client, path: &str) -> Vec<Acl> {
    match ask(client, &Request::GetAcl { path: path.into() }) {
        Reply::Acl(acl, _) => acl,
        other => panic!("{other:?}"),
    }
}

fn children(path: &str) -> Request<'_> {
    Request::GetChildren { path: path.into(), watch: true, with_stat: false }
}

fn data(path: &str) -> Request<'_> {
    Request::GetData { path: path.into(), watch: true }
}

fn add_watch(path: &str, mode: WatchMode) -> Request<'_> {
    Request::AddWatch { path: path.into(), mode: mode.number() }
}

fn delete(path: &str) -> Request<'_> {
    Request::Delete { path: path.into(), version: -1 }
}

/// What it has been told since it asked last: kinds of events, and paths.
fn told(client: &mut Client) -> Vec<(i32, String)> {
    let mut events = Vec::new();
    client.ping_for_events(&mut events).unwrap();
    events.iter().map(crate::wire::Frame::event).map(|event| (event.kind.0, event.path)).collect()
}

fn figure(server: &TestServer, key: &str) -> usize {
    let answer = word(server.addresses()[0], "mntr").unwrap();
    answer.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_new_tree_is_as_apaches() {
    let (server, [mut client, _other]) = start(Release::V3_8).await;
    let root = stat(&mut client, "/");
    assert_eq!((root.cversion, root.num_children, root.pzxid), (-1, 1, 0));
    assert_eq!(stat(&mut client, "/zookeeper").cversion, -2);
    assert_eq!(figure(&server, "zk_znode_count"), 5);
    assert_eq!(ask(&mut client, &Request::GetAllChildrenNumber { path: "/".into() }), Reply::Int(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_child_counts_at_its_parent() {
    let (server, [mut owner, mut other]) = start(Release::V3_8).await;
    let began = server.zxid(0);
    assert_eq!(owner.create("/a", 0).unwrap(), OK);
    assert_eq!(owner.create("/a/b", EPHEMERAL).unwrap(), OK);
    let seen = stat(&mut other, "/a");
    assert_eq!((seen.cversion, seen.num_children), (1, 1));
    assert_eq!((seen.pzxid, seen.mzxid), (began + 2, began + 1));
    let ephemerals = Request::GetEphemerals { prefix: None };
    assert_eq!(ask(&mut owner, &ephemerals), Reply::Names(vec!["/a/b".to_owned()]));
    assert_eq!(owner.do_it(&Request::CloseSession).unwrap(), OK);
    let seen = stat(&mut other, "/a");
    assert_eq!((seen.cversion, seen.num_children, seen.pzxid), (2, 0, began + 3));
    assert_eq!(figure(&server, "zk_ephemerals_count"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_multi_that_fails_changes_nothing() {
    let (server, [mut client, _other]) = start(Release::V3_8).await;
    let began = server.zxid(0);
    let parts = vec![create("/a", 0), delete("/none"), create("/b", 0)];
    let expected = [ErrorCode::OK, ErrorCode::NO_NODE, ErrorCode::RUNTIME_INCONSISTENCY];
    let expected = expected.map(|error| (OpCode::ERROR, Err(error))).to_vec();
    assert_eq!(ask(&mut client, &Request::Multi(parts)), Reply::Multi(expected));
    assert_eq!(server.data(0, "/a"), None);
    assert_eq!(server.zxid(0), began + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_test_sees_the_children_of_a_znode_without_a_client() {
    let (server, [mut client, mut other]) = start(Release::V3_8).await;
    for path in ["/queue", "/queue/b", "/queue/a"] {
        assert_eq!(client.create(path, 0).unwrap(), OK);
    }
    assert_eq!(other.create("/queue/c", 1).unwrap(), OK);
    assert_eq!(server.children(0, "/queue").unwrap(), ["a", "b", "c"]);
    assert_eq!(other.do_it(&Request::CloseSession).unwrap(), OK);
    assert_eq!(server.children(0, "/queue").unwrap(), ["a", "b"]);
    assert_eq!((server.children(0, "/queue/a"), server.children(0, "/none")), (Some(vec![]), None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watch_of_once_fires_once() {
    let (server, [mut client, _other]) = start(Release::V3_8).await;
    assert_eq!(client.create("/a", 0).unwrap(), OK);
    client.do_it(&data("/a")).unwrap();
    let xids = [(); 2].map(|()| client.ask(&set("/a", b"new")).unwrap());
    let frames = client.frames_to(xids[1]).unwrap();
    assert_eq!(frames.len(), 3);
    let event = frames[0].event();
    assert_eq!((event.kind.0, event.path.as_str()), (3, "/a"));
    assert_eq!(figure(&server, "zk_watch_count"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_deletion_is_told_once_to_who_watches_both() {
    let (server, [mut both, mut children_only]) = start(Release::V3_8).await;
    let mut writer = Client::new(server.addresses()[0]).unwrap();
    for path in ["/a", "/a/b"] {
        assert_eq!(writer.create(path, 0).unwrap(), OK);
    }
    both.do_it(&data("/a/b")).unwrap();
    both.do_it(&children("/a/b")).unwrap();
    children_only.do_it(&children("/a/b")).unwrap();
    children_only.do_it(&children("/a")).unwrap();
    assert_eq!(writer.do_it(&delete("/a/b")).unwrap(), OK);
    assert_eq!(told(&mut both), [(2, "/a/b".to_owned())]);
    assert_eq!(told(&mut children_only), [(2, "/a/b".to_owned()), (4, "/a".to_owned())]);
    assert_eq!(figure(&server, "zk_watch_count"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_recursive_watch_hears_of_what_is_below_and_not_of_children() {
    let (_server, [mut client, mut writer]) = start(Release::V3_8).await;
    client.do_it(&add_watch("/", WatchMode::Recursive)).unwrap();
    for path in ["/a", "/a/b"] {
        assert_eq!(writer.create(path, 0).unwrap(), OK);
    }
    assert_eq!(told(&mut client), [(1, "/a".to_owned()), (1, "/a/b".to_owned())]);
    assert_eq!(client.do_it(&Request::RemoveWatches { path: "/".into(), kind: 3 }).unwrap(), OK);
    assert_eq!(writer.create("/a/c", 0).unwrap(), OK);
    assert_eq!(told(&mut client), []);
}

/// A persistent watch and one of once on the data of a path, which changes twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn before_3_9_the_last_mode_counts_and_since_then_each_does() {
    for (release, after_the_second) in [(Release::V3_8, 0), (Release::V3_9, 1)] {
        let (server, [mut client, mut writer]) = start(release).await;
        assert_eq!(writer.create("/a", 0).unwrap(), OK);
        client.do_it(&add_watch("/a", WatchMode::Persistent)).unwrap();
        client.do_it(&data("/a")).unwrap();
        assert_eq!(writer.set("/a", "1").unwrap(), OK);
        assert_eq!(told(&mut client).len(), 1, "once, whatever the number of its modes");
        assert_eq!(writer.set("/a", "2").unwrap(), OK);
        assert_eq!(told(&mut client).len(), after_the_second, "{release:?}");
        let removed = |client: &mut Client, kind| {
            client.do_it(&Request::RemoveWatches { path: "/a".into(), kind }).unwrap() == OK
        };
        // Of the data, of once; then all.
        assert!(!removed(&mut client, 2), "it has fired");
        assert_eq!(removed(&mut client, 1), release == Release::V3_8, "{release:?}");
        assert_eq!(removed(&mut client, 3), release == Release::V3_9, "{release:?}");
        assert_eq!(figure(&server, "zk_watch_count"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn watches_end_with_their_connection() {
    let (server, [mut client, mut other]) = start(Release::V3_9).await;
    for request in
        [add_watch("/a", WatchMode::Recursive), add_watch("/a", WatchMode::Persistent), children("/")]
    {
        assert_eq!(client.do_it(&request).unwrap(), OK);
    }
    assert_ne!(figure(&server, "zk_watch_count"), 0);
    assert!(server.faults().disconnect(client.session));
    other.ping().unwrap();
    assert_eq!(figure(&server, "zk_watch_count"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn auth_becomes_whom_the_client_has_proved_to_be() {
    const DIGEST: &str = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let (_server, [mut owner, mut reader]) = start(Release::V3_8).await;
    let all = create_with("/all", &[AclEntry::new(permission::ALL, "auth", "")]);
    let read = create_with("/read", &[AclEntry::new(permission::READ, "auth", "")]);
    assert_eq!(owner.do_it(&all).unwrap(), ErrorCode::INVALID_ACL, "it is nobody yet");
    for client in [&mut owner, &mut reader] {
        assert_eq!(client.do_it(&auth(b"super:test")).unwrap(), OK);
    }
    assert_eq!(ask(&mut owner, &all), Reply::Path("/all".to_owned()));
    assert_eq!(ask(&mut owner, &read), Reply::Path("/read".to_owned()));
    let entry = |permissions, id: &str| vec![Acl { permissions, id: Id::new("digest", id) }];
    assert_eq!(acl_of(&mut reader, "/all"), entry(permission::ALL, DIGEST));
    assert_eq!(acl_of(&mut reader, "/read"), entry(permission::READ, "super:x"), "without what proves it");
    assert_eq!(reader.do_it(&data("/read")).unwrap(), OK);
    assert_eq!(reader.set("/read", "new").unwrap(), ErrorCode::NO_AUTH);
    let Reply::Identities(shown) = ask(&mut owner, &Request::WhoAmI) else { panic!("not who it is") };
    assert!(shown.contains(&Id::new("digest", "super")), "{shown:?}");
    let mut stranger = Client::new(owner.into_stream().peer_addr().unwrap()).unwrap();
    assert_eq!(stranger.do_it(&data("/read")).unwrap(), ErrorCode::NO_AUTH);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_no_scheme_knows_is_not_accepted() {
    let (_server, [mut client, _other]) = start(Release::V3_8).await;
    assert_eq!(client.do_it(&create_with("/a", &[])).unwrap(), ErrorCode::INVALID_ACL);
    for (scheme, id) in [("world", "someone"), ("digest", "ann"), ("ip", "x"), ("sasl", "ann"), ("", "")] {
        let create = create_with("/a", &[AclEntry::new(permission::READ, scheme, id)]);
        assert_eq!(client.do_it(&create).unwrap(), ErrorCode::INVALID_ACL, "{scheme}:{id}");
    }
}
