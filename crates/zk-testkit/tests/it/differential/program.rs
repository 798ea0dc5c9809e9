//! Programs: what clients do, as values that can be drawn, printed and made smaller.

use std::borrow::Cow;

use proptest::prelude::*;
use proptest::sample::select;
use zk_proto::{AclEntry, Create, OpCode, Request};

use super::SUPER_USER;
use crate::wire::{OPEN, body_of};

/// How many clients there are.
pub(crate) const CLIENTS: usize = 3;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Ask(usize, Ask),
    /// Several requests at once, before any reply is read.
    Burst(usize, Vec<Ask>),
    /// Closes the session and opens a new one.
    Renew(usize),
    /// Leaves the connection and comes back to the session; with a wrong password it
    /// gets none, and opens a new one.
    Return(usize, Password),
    /// Says who it is: a scheme and a proof.
    Identify(usize, &'static str, &'static str),
}

impl Step {
    /// Whether it names a path outside of the program's own root.
    pub(crate) fn reaches_out(&self) -> bool {
        format!("{self:?}").contains("\"!")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Password {
    Right,
    Wrong,
}

/// A request. Paths are relative to the root of the program, and so is the zxid of `SetWatches` to its beginning.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    request: Request<'static>,
    /// How many of its last bytes are missing.
    short: usize,
}

impl From<Request<'static>> for Ask {
    fn from(request: Request<'static>) -> Self {
        Self { request, short: 0 }
    }
}

impl Ask {
    /// As it is sent.
    pub(crate) fn request(&self, root: &str, began: i64) -> Request<'static> {
        let mut request = self.request.clone();
        match &mut request {
            Request::Create(Create { path, .. })
            | Request::Delete { path, .. }
            | Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::SetData { path, .. }
            | Request::GetAcl { path }
            | Request::SetAcl { path, .. }
            | Request::GetChildren { path, .. }
            | Request::Sync { path }
            | Request::CheckWatches { path, .. }
            | Request::RemoveWatches { path, .. }
            | Request::AddWatch { path, .. }
            | Request::GetEphemerals { prefix: Some(path) }
            | Request::GetAllChildrenNumber { path } => set_below(root, path),
            Request::Multi(parts) | Request::MultiRead(parts) => {
                for part in parts {
                    if let Request::Create(Create { path, .. })
                    | Request::Delete { path, .. }
                    | Request::SetData { path, .. }
                    | Request::Check { path, .. }
                    | Request::GetData { path, .. }
                    | Request::GetChildren { path, .. } = part
                    {
                        set_below(root, path);
                    }
                }
            }
            Request::SetWatches { relative_zxid, data, exist, child, persistent, recursive } => {
                *relative_zxid += began;
                let lists = [data, exist, child, persistent, recursive];
                lists.into_iter().flatten().for_each(|path| set_below(root, path));
            }
            _ => {}
        }
        if self.short == 0 {
            return request;
        }
        let mut body = body_of(&request);
        body.truncate(body.len().saturating_sub(self.short));
        Request::Other { op: request.op(), body: body.into() }
    }
}

/// What begins with `!` is meant as it stands.
fn set_below(root: &str, path: &mut Cow<'static, str>) {
    *path = Cow::Owned(path.strip_prefix('!').map_or_else(|| format!("{root}{path}"), str::to_owned));
}

/// Means a missing string.
const NULL: &str = "(null)";

fn entry((permissions, scheme, id): (i32, &'static str, &'static str)) -> AclEntry<'static> {
    let text = |text| (text != NULL).then_some(Cow::Borrowed(text));
    AclEntry { permissions, scheme: text(scheme), id: text(id) }
}

type Path = Cow<'static, str>;
type Data = Option<Cow<'static, [u8]>>;

/// Often the few that are there, sometimes what must be refused.
fn path() -> BoxedStrategy<Path> {
    const USUAL: &[&str] = &["/a", "/a/b", "/a/b/c", "/b", "/b/x", "/c", "/Aa", "/BB", "/a/Aa", "/a/BB"];
    const ODD: &[&str] =
        &["", "/", "//", "/a/", "/a//b", "/.", "/a/..", "/a/./b", "/\u{1}", "/\u{f0}", "/\u{1f600}"];
    const ELSEWHERE: &[&str] = &["!", "!/", "!a", "!/zookeeper", "!/zookeeper/quota", "!/zookeeper/config"];
    prop_oneof![
        20 => select(USUAL).prop_map(Path::from),
        1 => select(ODD).prop_map(Path::from),
        1 => select(ELSEWHERE).prop_map(Path::from),
        1 => Just(Path::from("/nul\0")),
        1 => (0..3).prop_map(|number| Path::from(format!("/a/s-000000000{number}"))),
    ]
    .boxed()
}

/// The same without what could change what other programs see.
fn own_path() -> BoxedStrategy<Path> {
    path()
        .prop_filter("its own", |path| !path.starts_with('!') || matches!(&**path, "!" | "!/" | "!a"))
        .boxed()
}

fn data() -> BoxedStrategy<Data> {
    prop_oneof![
        1 => Just(None),
        5 => prop::collection::vec(any::<u8>(), 0..6).prop_map(|data| Some(data.into())),
    ]
    .boxed()
}

fn version() -> BoxedStrategy<i32> {
    prop_oneof![4 => Just(-1), 4 => 0..3, 1 => select(&[-2, i32::MIN, i32::MAX][..])].boxed()
}

fn acl() -> BoxedStrategy<Vec<AclEntry<'static>>> {
    let usual = prop_oneof![
        Just((31, "world", "anyone")),
        Just((1, "world", "anyone")),
        Just((0, "world", "anyone")),
        Just((31, "auth", "")),
        Just((12, "auth", "whoever")),
        Just((31, "auth", NULL)),
        Just((31, "ip", NULL)),
        Just((31, "digest", "ann:UmMI5EFCwI7K8FvyS8VvQuLtZRs=")),
        Just((16, "digest", "bob:none")),
        Just((31, "ip", "127.0.0.1")),
        Just((17, "ip", "127.0.0.0/8")),
        Just((31, "ip", "10.0.0.0/8")),
    ];
    let refused = prop_oneof![
        Just(vec![]),
        Just(vec![(31, "world", "someone")]),
        Just(vec![(31, "digest", "nohash")]),
        Just(vec![(31, "ip", "1.2.3.4/99")]),
        Just(vec![(31, "sasl", "ann")]),
        Just(vec![(31, "", "")]),
        Just(vec![(31, NULL, NULL)]),
        Just(vec![(31, "nonesuch", NULL)]),
    ];
    let list = prop_oneof![
        16 => Just(vec![(31, "world", "anyone")]),
        6 => prop::collection::vec(usual, 1..4),
        1 => refused,
    ];
    list.prop_map(|list| list.into_iter().map(entry).collect()).boxed()
}

fn create() -> BoxedStrategy<Create<'static>> {
    let kind = prop_oneof![
        6 => (Just(OpCode::CREATE), prop_oneof![12 => 0..5, 1 => select(&[-1, 5, 6, 7][..])], Just(-1_i64)),
        6 => (Just(OpCode::CREATE2), prop_oneof![12 => 0..4, 1 => select(&[4, 5, 7][..])], Just(-1_i64)),
        2 => (Just(OpCode::CREATE_CONTAINER), select(&[4, 0][..]), Just(-1_i64)),
        2 => (
            Just(OpCode::CREATE_TTL),
            5..7,
            prop_oneof![4 => 1..1_000_000_i64, 1 => select(&[0, -1, 1_i64 << 40][..])],
        ),
    ];
    (kind, own_path(), data(), acl())
        .prop_map(|((op, flags, ttl_ms), path, data, acl)| {
            // A sequence number follows it.
            let path = if matches!(flags, 2 | 3 | 6) { format!("{path}/s-").into() } else { path };
            Create { op, path, data, acl, flags, ttl_ms }
        })
        .boxed()
}

fn write() -> BoxedStrategy<Request<'static>> {
    prop_oneof![
        4 => create().prop_map(Request::Create),
        3 => (path(), version()).prop_map(|(path, version)| Request::Delete { path, version }),
        3 => (own_path(), data(), version())
            .prop_map(|(path, data, version)| Request::SetData { path, data, version }),
    ]
    .boxed()
}

fn multi_part() -> BoxedStrategy<Request<'static>> {
    let create = create().prop_filter("of one kind", |create| {
        !matches!(create, Create { op: OpCode::CREATE | OpCode::CREATE2, flags: 5 | 6, .. })
    });
    prop_oneof![
        4 => create.prop_map(Request::Create),
        2 => (path(), version()).prop_map(|(path, version)| Request::Delete { path, version }),
        2 => (own_path(), data(), version())
            .prop_map(|(path, data, version)| Request::SetData { path, data, version }),
        2 => (path(), version()).prop_map(|(path, version)| Request::Check { path, version }),
    ]
    .boxed()
}

fn read() -> BoxedStrategy<Request<'static>> {
    let kind = prop_oneof![8 => 1..4, 2 => 4..7];
    let multi = prop::collection::vec(multi_read_part(), 0..4);
    prop_oneof![
        3 => (path(), any::<bool>()).prop_map(|(path, watch)| Request::Exists { path, watch }),
        3 => (path(), any::<bool>()).prop_map(|(path, watch)| Request::GetData { path, watch }),
        3 => (path(), any::<bool>(), any::<bool>())
            .prop_map(|(path, watch, with_stat)| Request::GetChildren { path, watch, with_stat }),
        1 => path().prop_map(|path| Request::GetAcl { path }),
        1 => path().prop_map(|path| Request::Sync { path }),
        1 => Just(Request::Ping),
        1 => multi.prop_map(Request::MultiRead),
        3 => (path(), prop_oneof![6 => 0..2, 1 => Just(2)])
            .prop_map(|(path, mode)| Request::AddWatch { path, mode }),
        1 => (path(), kind.clone()).prop_map(|(path, kind)| Request::CheckWatches { path, kind }),
        1 => (path(), kind).prop_map(|(path, kind)| Request::RemoveWatches { path, kind }),
        2 => set_watches(),
        1 => prop::option::of(path()).prop_map(|prefix| Request::GetEphemerals { prefix }),
        1 => path().prop_map(|path| Request::GetAllChildrenNumber { path }),
        1 => Just(Request::WhoAmI),
    ]
    .boxed()
}

/// Half of them without persistent and recursive watches, which is a request of its own.
fn set_watches() -> BoxedStrategy<Request<'static>> {
    let list = || prop::collection::vec(path(), 0..3);
    (0..20_i64, [list(), list(), list(), list(), list()], any::<bool>())
        .prop_map(|(relative_zxid, [data, exist, child, persistent, recursive], newer)| {
            let [persistent, recursive] = if newer { [persistent, recursive] } else { Default::default() };
            Request::SetWatches { relative_zxid, data, exist, child, persistent, recursive }
        })
        .boxed()
}

fn multi_read_part() -> BoxedStrategy<Request<'static>> {
    prop_oneof![
        path().prop_map(|path| Request::GetData { path, watch: false }),
        path().prop_map(|path| Request::GetChildren { path, watch: false, with_stat: false }),
    ]
    .boxed()
}

fn ask() -> BoxedStrategy<Ask> {
    const RECONFIG: Request<'static> =
        Request::Reconfig { joining: None, leaving: None, members: None, version: -1 };
    let multi = prop::collection::vec(multi_part(), 0..5).prop_map(Request::Multi);
    let set_acl = (path(), acl(), version())
        .prop_filter("its own", |(path, ..)| !path.starts_with("!/"))
        .prop_map(|(path, acl, version)| Request::SetAcl { path, acl, version });
    let has_body = |request: &Request<'_>| {
        use Request::{GetEphemerals, Ping, SetWatches, WhoAmI};
        !matches!(request, Ping | WhoAmI | GetEphemerals { .. } | SetWatches { .. })
    };
    let short =
        prop_oneof![4 => write(), 4 => read(), 1 => Just(RECONFIG)].prop_filter("has a body", has_body);
    prop_oneof![
        10 => write().prop_map(Ask::from),
        10 => read().prop_map(Ask::from),
        3 => multi.prop_map(Ask::from),
        2 => set_acl.prop_map(Ask::from),
        1 => (short, 1..5_usize).prop_map(|(request, short)| Ask { request, short }),
        1 => Just(RECONFIG).prop_map(Ask::from),
    ]
    .boxed()
}

pub(crate) fn step() -> BoxedStrategy<Step> {
    let client = 0..CLIENTS;
    // Without access lists: in a burst their effect depends on how far Apache ZooKeeper has come.
    let create_open = create().prop_map(|create| Request::Create(Create { acl: vec![OPEN], ..create }));
    let in_burst = prop_oneof![
        3 => create_open,
        2 => (own_path(), version()).prop_map(|(path, version)| Request::Delete { path, version }),
        2 => (own_path(), data(), version())
            .prop_map(|(path, data, version)| Request::SetData { path, data, version }),
        4 => read(),
    ];
    let who = select(
        &[("digest", "ann:1"), ("digest", "bob:2"), ("digest", "noname"), ("ip", ""), ("digest", SUPER_USER)]
            [..],
    );
    let back = prop_oneof![3 => Just(Password::Right), 1 => Just(Password::Wrong)];
    prop_oneof![
        30 => (client.clone(), ask()).prop_map(|(client, ask)| Step::Ask(client, ask)),
        3 => (client.clone(), prop::collection::vec(in_burst.prop_map(Ask::from), 2..6))
            .prop_map(|(client, asks)| Step::Burst(client, asks)),
        1 => client.clone().prop_map(Step::Renew),
        1 => (client.clone(), back).prop_map(|(client, password)| Step::Return(client, password)),
        2 => (client, who).prop_map(|(client, (scheme, proof))| Step::Identify(client, scheme, proof)),
    ]
    .boxed()
}

pub(crate) fn program() -> BoxedStrategy<Vec<Step>> {
    prop::collection::vec(step(), 1..60).boxed()
}
