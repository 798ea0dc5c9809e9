//! Requests as the client has them.

use zk_proto::{OpCode, Reply, Request, Stat};
use zookeeper_async::{Acl, CreateMode, Permission, ZkError, ZkResult, ZooKeeper};

/// A request that goes through the client.
pub(super) enum Call {
    Get { path: String },
    Exists { path: String },
    Create { path: String, data: Vec<u8>, acl: Vec<Acl>, mode: CreateMode },
    Set { path: String, data: Vec<u8>, version: Option<i32> },
    Delete { path: String, version: Option<i32> },
}

impl Call {
    /// `None` for what the client can't do, or not as it is meant.
    pub(super) fn new(request: &Request<'_>) -> Option<Self> {
        let version = |version: i32| (version != -1).then_some(version);
        let call = match request {
            Request::GetData { path, .. } => Self::Get { path: path.to_string() },
            Request::Exists { path, .. } => Self::Exists { path: path.to_string() },
            Request::Create(create) if create.op == OpCode::CREATE2 => Self::Create {
                path: create.path.to_string(),
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
            Request::SetData { path, data, version: number } => {
                Self::Set { path: path.to_string(), data: data.as_ref()?.to_vec(), version: version(*number) }
            }
            Request::Delete { path, version: number } => {
                Self::Delete { path: path.to_string(), version: version(*number) }
            }
            _ => return None,
        };
        // It would refuse these by itself, the prefix of a sequential name among them: what a path may be is the server's
        // to say.
        let refused = call.path().is_empty() || (call.path().ends_with('/') && call.path() != "/");
        (!refused).then_some(call)
    }

    pub(super) fn op(&self) -> OpCode {
        match self {
            Self::Get { .. } => OpCode::GET_DATA,
            Self::Exists { .. } => OpCode::EXISTS,
            Self::Create { .. } => OpCode::CREATE2,
            Self::Set { .. } => OpCode::SET_DATA,
            Self::Delete { .. } => OpCode::DELETE,
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Get { path }
            | Self::Exists { path }
            | Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }

    /// Has the client do it. Watches are never its affair.
    pub(super) async fn perform(self, client: &ZooKeeper) -> ZkResult<Reply> {
        Ok(match self {
            Self::Get { path } => {
                let (data, stat) = client.get_data(&path, false).await?;
                Reply::Data(Some(data.into()), convert(&stat))
            }
            Self::Exists { path } => {
                let stat = client.exists(&path, false).await?;
                Reply::Stat(convert(&stat.ok_or(ZkError::NoNode)?))
            }
            Self::Create { path, data, acl, mode } => {
                let (path, stat) = client.create2(&path, data, acl, mode).await?;
                Reply::PathAndStat(path, convert(&stat))
            }
            Self::Set { path, data, version } => {
                Reply::Stat(convert(&client.set_data(&path, data, version).await?))
            }
            Self::Delete { path, version } => {
                client.delete(&path, version).await?;
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
