//! Programs: what clients do, as values that can be drawn, printed and made smaller.

use proptest::prelude::*;
use proptest::sample::select;

use crate::wire::Body;

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

/// A request. Paths are relative to the root of the program.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Create {
        code: i32,
        path: String,
        data: Option<Vec<u8>>,
        acl: Acl,
        flags: i32,
        ttl: i64,
    },
    Delete {
        path: String,
        version: i32,
    },
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    GetAcl {
        path: String,
    },
    SetAcl {
        path: String,
        acl: Acl,
        version: i32,
    },
    GetChildren {
        code: i32,
        path: String,
        watch: bool,
    },
    Sync {
        path: String,
    },
    Ping,
    Multi(Vec<Ask>),
    MultiRead(Vec<Ask>),
    AddWatch {
        path: String,
        mode: i32,
    },
    Watches {
        code: i32,
        path: String,
        kind: i32,
    },
    /// The zxid is relative to the beginning of the program.
    SetWatches {
        code: i32,
        zxid: i64,
        lists: Vec<Vec<String>>,
    },
    GetEphemerals {
        prefix: Option<String>,
    },
    CountBelow {
        path: String,
    },
    WhoAmI,
    Reconfig,
    /// A request whose last bytes are missing.
    Short(Box<Ask>, usize),
}

/// Stands for a string that is missing.
const NULL: &str = "(null)";

pub(crate) type Acl = Vec<(i32, &'static str, &'static str)>;

impl Ask {
    pub(crate) fn code(&self) -> i32 {
        match self {
            Self::Create { code, .. }
            | Self::GetChildren { code, .. }
            | Self::Watches { code, .. }
            | Self::SetWatches { code, .. } => *code,
            Self::Delete { .. } => 2,
            Self::Exists { .. } => 3,
            Self::GetData { .. } => 4,
            Self::SetData { .. } => 5,
            Self::GetAcl { .. } => 6,
            Self::SetAcl { .. } => 7,
            Self::Sync { .. } => 9,
            Self::Ping => 11,
            Self::Multi(_) => 14,
            Self::Reconfig => 16,
            Self::MultiRead(_) => 22,
            Self::GetEphemerals { .. } => 103,
            Self::CountBelow { .. } => 104,
            Self::AddWatch { .. } => 106,
            Self::WhoAmI => 107,
            Self::Short(ask, _) => ask.code(),
        }
    }

    /// With the zxid at which the program began.
    pub(crate) fn body(&self, root: &str, began: i64) -> Body {
        let at = |path: &String| absolute(root, path);
        let body = Body::default();
        match self {
            Self::Create { code, path, data, acl, flags, ttl } => {
                let body = with_acl(body.string(&at(path)).buffer(data.as_deref()), acl).int(*flags);
                if *code == 21 { body.long(*ttl) } else { body }
            }
            Self::Delete { path, version } => body.string(&at(path)).int(*version),
            Self::Exists { path, watch } | Self::GetData { path, watch } => {
                body.string(&at(path)).bool(*watch)
            }
            Self::GetChildren { path, watch, .. } => body.string(&at(path)).bool(*watch),
            Self::SetData { path, data, version } => {
                body.string(&at(path)).buffer(data.as_deref()).int(*version)
            }
            Self::GetAcl { path } | Self::Sync { path } | Self::CountBelow { path } => body.string(&at(path)),
            Self::SetAcl { path, acl, version } => with_acl(body.string(&at(path)), acl).int(*version),
            Self::Ping | Self::WhoAmI => body,
            Self::Reconfig => body.int(-1).int(-1).int(-1).long(-1),
            Self::Multi(parts) | Self::MultiRead(parts) => {
                let part = |body: Body, part: &Self| {
                    let mut body = body.int(part.code()).bool(false).int(-1);
                    body.0.extend(part.body(root, began).0);
                    body
                };
                parts.iter().fold(body, part).int(-1).bool(true).int(-1)
            }
            Self::AddWatch { path, mode } => body.string(&at(path)).int(*mode),
            Self::Watches { path, kind, .. } => body.string(&at(path)).int(*kind),
            Self::SetWatches { zxid, lists, .. } => {
                let absolute = |list: &Vec<String>| list.iter().map(at).collect::<Vec<_>>();
                lists.iter().fold(body.long(began + zxid), |body, list| body.strings(&absolute(list)))
            }
            Self::GetEphemerals { prefix } => match prefix {
                Some(prefix) => body.string(&at(prefix)),
                None => body.int(-1),
            },
            Self::Short(ask, by) => {
                let mut body = ask.body(root, began);
                body.0.truncate(body.0.len().saturating_sub(*by));
                body
            }
        }
    }
}

/// What begins with `!` is meant as it stands.
fn absolute(root: &str, path: &str) -> String {
    path.strip_prefix('!').map_or_else(|| format!("{root}{path}"), str::to_owned)
}

fn with_acl(body: Body, acl: &Acl) -> Body {
    let body = body.int(i32::try_from(acl.len()).unwrap());
    let text = |body: Body, text: &str| if text == NULL { body.int(-1) } else { body.string(text) };
    acl.iter().fold(body, |body, (permissions, scheme, id)| text(text(body.int(*permissions), scheme), id))
}

/// Often the few that are there, sometimes what must be refused.
fn path() -> BoxedStrategy<String> {
    const USUAL: &[&str] = &["/a", "/a/b", "/a/b/c", "/b", "/b/x", "/c", "/Aa", "/BB", "/a/Aa", "/a/BB"];
    const ODD: &[&str] =
        &["", "/", "//", "/a/", "/a//b", "/.", "/a/..", "/a/./b", "/\u{1}", "/\u{f0}", "/\u{1f600}"];
    const ELSEWHERE: &[&str] = &["!", "!/", "!a", "!/zookeeper", "!/zookeeper/quota", "!/zookeeper/config"];
    prop_oneof![
        20 => select(USUAL).prop_map(str::to_owned),
        1 => select(ODD).prop_map(str::to_owned),
        1 => select(ELSEWHERE).prop_map(str::to_owned),
        1 => Just("/nul\0".to_owned()),
        1 => (0..3).prop_map(|number| format!("/a/s-000000000{number}")),
    ]
    .boxed()
}

/// The same without what could change what other programs see.
fn own_path() -> BoxedStrategy<String> {
    path()
        .prop_filter("its own", |path| !path.starts_with('!') || matches!(&**path, "!" | "!/" | "!a"))
        .boxed()
}

fn data() -> BoxedStrategy<Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Vec::new())),
        4 => prop::collection::vec(any::<u8>(), 1..6).prop_map(Some),
    ]
    .boxed()
}

fn version() -> BoxedStrategy<i32> {
    prop_oneof![4 => Just(-1), 4 => 0..3, 1 => select(&[-2, i32::MIN, i32::MAX][..])].boxed()
}

fn acl() -> BoxedStrategy<Acl> {
    let entry = prop_oneof![
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
    prop_oneof![
        16 => Just(vec![(31, "world", "anyone")]),
        6 => prop::collection::vec(entry, 1..4),
        1 => refused,
    ]
    .boxed()
}

fn create() -> BoxedStrategy<Ask> {
    let kind = prop_oneof![
        6 => (Just(1), prop_oneof![12 => 0..5, 1 => select(&[-1, 5, 6, 7][..])], Just(-1_i64)),
        6 => (Just(15), prop_oneof![12 => 0..4, 1 => select(&[4, 5, 7][..])], Just(-1_i64)),
        2 => (Just(19), select(&[4, 0][..]), Just(-1_i64)),
        2 => (Just(21), 5..7, prop_oneof![4 => 1..1_000_000_i64, 1 => select(&[0, -1, 1_i64 << 40][..])]),
    ];
    (kind, own_path(), data(), acl())
        .prop_map(|((code, flags, ttl), path, data, acl)| {
            // A sequence number follows it.
            let path = if matches!(flags, 2 | 3 | 6) { format!("{path}/s-") } else { path };
            Ask::Create { code, path, data, acl, flags, ttl }
        })
        .boxed()
}

/// Without access lists: in a burst their effect depends on how far Apache ZooKeeper has come.
fn create_open() -> BoxedStrategy<Ask> {
    create()
        .prop_map(|ask| match ask {
            Ask::Create { code, path, data, flags, ttl, .. } => {
                Ask::Create { code, path, data, acl: vec![(31, "world", "anyone")], flags, ttl }
            }
            other => other,
        })
        .boxed()
}

fn write() -> BoxedStrategy<Ask> {
    prop_oneof![
        4 => create(),
        3 => (path(), version()).prop_map(|(path, version)| Ask::Delete { path, version }),
        3 => (own_path(), data(), version())
            .prop_map(|(path, data, version)| Ask::SetData { path, data, version }),
    ]
    .boxed()
}

fn multi_part() -> BoxedStrategy<Ask> {
    let create = create().prop_filter("of one kind", |ask| match ask {
        Ask::Create { code: 1 | 15, flags, .. } => !matches!(flags, 5 | 6),
        _ => true,
    });
    let check =
        (path(), version()).prop_map(|(path, version)| Ask::Watches { code: 13, path, kind: version });
    prop_oneof![
        4 => create,
        2 => (path(), version()).prop_map(|(path, version)| Ask::Delete { path, version }),
        2 => (own_path(), data(), version())
            .prop_map(|(path, data, version)| Ask::SetData { path, data, version }),
        2 => check,
    ]
    .boxed()
}

fn read() -> BoxedStrategy<Ask> {
    let lists = |count: usize| prop::collection::vec(prop::collection::vec(path(), 0..3), count);
    prop_oneof![
        3 => (path(), any::<bool>()).prop_map(|(path, watch)| Ask::Exists { path, watch }),
        3 => (path(), any::<bool>()).prop_map(|(path, watch)| Ask::GetData { path, watch }),
        3 => (select(&[8, 12][..]), path(), any::<bool>())
            .prop_map(|(code, path, watch)| Ask::GetChildren { code, path, watch }),
        1 => path().prop_map(|path| Ask::GetAcl { path }),
        1 => path().prop_map(|path| Ask::Sync { path }),
        1 => Just(Ask::Ping),
        1 => multi_read().prop_map(Ask::MultiRead),
        3 => (path(), prop_oneof![6 => 0..2, 1 => Just(2)]).prop_map(|(path, mode)| Ask::AddWatch { path, mode }),
        2 => (select(&[17, 18][..]), path(), prop_oneof![8 => 1..4, 1 => Just(4)])
            .prop_map(|(code, path, kind)| Ask::Watches { code, path, kind }),
        1 => (0..20_i64, lists(3)).prop_map(|(zxid, lists)| Ask::SetWatches { code: 101, zxid, lists }),
        1 => (0..20_i64, lists(5)).prop_map(|(zxid, lists)| Ask::SetWatches { code: 105, zxid, lists }),
        1 => prop::option::of(path()).prop_map(|prefix| Ask::GetEphemerals { prefix }),
        1 => path().prop_map(|path| Ask::CountBelow { path }),
        1 => Just(Ask::WhoAmI),
    ]
    .boxed()
}

fn multi_read() -> BoxedStrategy<Vec<Ask>> {
    let part = prop_oneof![
        path().prop_map(|path| Ask::GetData { path, watch: false }),
        path().prop_map(|path| Ask::GetChildren { code: 8, path, watch: false }),
    ];
    prop::collection::vec(part, 0..4).boxed()
}

fn ask() -> BoxedStrategy<Ask> {
    let multi = prop::collection::vec(multi_part(), 0..5).prop_map(Ask::Multi);
    let short = prop_oneof![write(), read()].prop_filter("has a body", |ask| {
        !matches!(ask, Ask::Ping | Ask::WhoAmI | Ask::GetEphemerals { .. } | Ask::SetWatches { .. })
    });
    prop_oneof![
        10 => write(),
        10 => read(),
        3 => multi,
        2 => (path(), acl(), version()).prop_filter("its own", |(path, ..)| !path.starts_with("!/"))
            .prop_map(|(path, acl, version)| Ask::SetAcl { path, acl, version }),
        1 => (short, 1..5_usize).prop_map(|(ask, by)| Ask::Short(Box::new(ask), by)),
        1 => Just(Ask::Reconfig),
    ]
    .boxed()
}

pub(crate) fn step() -> BoxedStrategy<Step> {
    let client = 0..CLIENTS;
    let in_burst = prop_oneof![
        3 => create_open(),
        2 => (own_path(), version()).prop_map(|(path, version)| Ask::Delete { path, version }),
        2 => (own_path(), data(), version())
            .prop_map(|(path, data, version)| Ask::SetData { path, data, version }),
        4 => read(),
    ];
    let who = select(&[("digest", "ann:1"), ("digest", "bob:2"), ("digest", "noname"), ("ip", "")][..]);
    let back = prop_oneof![3 => Just(Password::Right), 1 => Just(Password::Wrong)];
    prop_oneof![
        30 => (client.clone(), ask()).prop_map(|(client, ask)| Step::Ask(client, ask)),
        3 => (client.clone(), prop::collection::vec(in_burst, 2..6))
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
