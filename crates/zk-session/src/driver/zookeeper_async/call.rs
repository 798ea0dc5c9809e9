//! Requests in the form of the client.

use zk_proto::{OpCode, Reply, Request, Stat};
use zookeeper_async::{Acl, CreateMode, Permission, ZkError, ZkResult, ZooKeeper};

/// A request that goes through the client.
pub(super) struct Call {
    pub(super) op: OpCode,
    pub(super) path: String,
    what: What,
}

enum What {
    Get,
    Exists,
    Create { data: Vec<u8>, acl: Vec<Acl>, mode: CreateMode },
    Set { data: Vec<u8>, version: Option<i32> },
    Delete { version: Option<i32> },
}

impl Call {
    /// `None` for requests that the client does not support, or does differently.
    pub(super) fn new(request: &Request<'_>) -> Option<Self> {
        // It would refuse other paths by itself, the prefix of a sequential name among them: the server decides which paths
        // are valid.
        let is_taken = |path: &&str| *path == "/" || !(path.is_empty() || path.ends_with('/'));
        let path = request.path().filter(is_taken)?.to_owned();
        let version = |version: i32| (version != -1).then_some(version);
        let what = match request {
            Request::GetData { .. } => What::Get,
            Request::Exists { .. } => What::Exists,
            Request::Create(create) if create.op == OpCode::CREATE2 => What::Create {
                data: create.data.as_ref()?.to_vec(),
                acl: create
                    .acl
                    .iter()
                    .map(|entry| {
                        let permissions = permissions(entry.permissions)?;
                        Some(Acl::new(permissions, entry.scheme.as_deref()?, entry.id.as_deref()?))
                    })
                    .collect::<Option<_>>()?,
                mode: match create.flags {
                    0 => CreateMode::Persistent,
                    1 => CreateMode::Ephemeral,
                    2 => CreateMode::PersistentSequential,
                    3 => CreateMode::EphemeralSequential,
                    _ => return None,
                },
            },
            Request::SetData { data, version: number, .. } => {
                What::Set { data: data.as_ref()?.to_vec(), version: version(*number) }
            }
            Request::Delete { version: number, .. } => What::Delete { version: version(*number) },
            _ => return None,
        };
        Some(Self { op: request.op(), path, what })
    }

    /// Has the client do it, without a watch.
    pub(super) async fn perform(self, client: &ZooKeeper) -> ZkResult<Reply> {
        let path = &self.path;
        Ok(match self.what {
            What::Get => {
                let (data, stat) = client.get_data(path, false).await?;
                Reply::Data(Some(data.into()), convert(&stat))
            }
            What::Exists => {
                let stat = client.exists(path, false).await?;
                Reply::Stat(convert(&stat.ok_or(ZkError::NoNode)?))
            }
            What::Create { data, acl, mode } => {
                let (path, stat) = client.create2(path, data, acl, mode).await?;
                Reply::PathAndStat(path, convert(&stat))
            }
            What::Set { data, version } => Reply::Stat(convert(&client.set_data(path, data, version).await?)),
            What::Delete { version } => {
                client.delete(path, version).await?;
                Reply::Empty
            }
        })
    }
}

/// The client makes these of its own constants only.
fn permissions(bits: i32) -> Option<Permission> {
    let all =
        [Permission::READ, Permission::WRITE, Permission::CREATE, Permission::DELETE, Permission::ADMIN];
    let wanted = (0..).zip(all).filter(|(bit, _)| bits & (1 << bit) != 0);
    (0..1 << all.len())
        .contains(&bits)
        .then(|| wanted.fold(Permission::NONE, |permissions, (_, permission)| permissions | permission))
}

fn convert(stat: &zookeeper_async::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime_ms: stat.ctime,
        mtime_ms: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    }
}
