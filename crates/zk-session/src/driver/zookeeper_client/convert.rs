//! Between the client's types and this crate's.

use zookeeper_client::{
    Acl as ClientAcl, Acls, CreateMode as ClientMode, Error, MultiWriteResult, Permission,
};

use crate::acl::Acl;
use crate::driver::{Code, DriverError};
use crate::multi::MultiResult;
use crate::node::{CreateMode, Stat};

pub(super) fn client_mode(mode: CreateMode, sequential: bool) -> ClientMode {
    match (mode, sequential) {
        (CreateMode::Persistent, false) => ClientMode::Persistent,
        (CreateMode::Persistent, true) => ClientMode::PersistentSequential,
        (CreateMode::Ephemeral, false) => ClientMode::Ephemeral,
        (CreateMode::Ephemeral, true) => ClientMode::EphemeralSequential,
    }
}

pub(super) fn convert_result(result: MultiWriteResult) -> MultiResult {
    match result {
        MultiWriteResult::Check => MultiResult::Checked,
        MultiWriteResult::Delete => MultiResult::Deleted,
        // Servers up to 3.8 send a stat without content here.
        MultiWriteResult::Create { stat, .. } => {
            MultiResult::Created { stat: Some(convert(stat)).filter(|stat| stat.czxid > 0) }
        }
        MultiWriteResult::SetData { stat } => MultiResult::Set { stat: Some(convert(stat)) },
        // The client knows no other, and no other is asked for.
        _ => MultiResult::Checked,
    }
}

pub(super) fn access_list(acl: Acl) -> Acls<'static> {
    static CREATOR_ALL_WORLD_READ: [ClientAcl; 2] = [
        ClientAcl::new_const(Permission::ALL, "auth", ""),
        ClientAcl::new_const(Permission::READ, "world", "anyone"),
    ];
    match acl {
        Acl::Open => Acls::anyone_all(),
        Acl::CreatorAll => Acls::creator_all(),
        Acl::CreatorAllWorldRead => Acls::new(&CREATOR_ALL_WORLD_READ),
    }
}

pub(super) fn convert(stat: zookeeper_client::Stat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        pzxid: stat.pzxid,
        version: stat.version,
        cversion: stat.cversion,
        ephemeral_owner: stat.ephemeral_owner,
        ctime_ms: stat.ctime,
        mtime_ms: stat.mtime,
        num_children: stat.num_children,
        data_length: stat.data_length,
    }
}

/// What the client's error says of the request. Whatever is not certainly 'not done' is ambiguous.
pub(super) fn classify(error: Error) -> DriverError {
    let code = match error {
        Error::NoNode => Code::NoNode,
        Error::NodeExists => Code::NodeExists,
        Error::BadVersion => Code::BadVersion,
        Error::NotEmpty => Code::NotEmpty,
        Error::NoAuth => Code::NoAuth,
        Error::NoChildrenForEphemerals => Code::NoChildrenForEphemerals,
        Error::BadArguments(_) => Code::Invalid(error.to_string()),
        Error::InvalidAcl | Error::QuotaExceeded | Error::Unimplemented | Error::MarshallingError => {
            Code::Other(error.to_string())
        }
        // Refused this time, by this server: worth another attempt.
        Error::Throttled | Error::SessionMoved | Error::NotReadOnly => {
            return DriverError::NotSent(error.to_string());
        }
        _ => return DriverError::Ambiguous(error.to_string()),
    };
    DriverError::Definite(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_certainly_undone_is_ambiguous() {
        for error in [
            Error::ConnectionLoss,
            Error::SessionExpired,
            Error::ClientClosed,
            Error::Timeout,
            Error::UnexpectedError(String::new()),
            Error::UnexpectedErrorCode(-42),
        ] {
            assert!(matches!(classify(error.clone()), DriverError::Ambiguous(_)), "{error}");
        }
        assert_eq!(classify(Error::NoNode), DriverError::Definite(Code::NoNode));
        assert!(matches!(classify(Error::Throttled), DriverError::NotSent(_)));
    }
}
