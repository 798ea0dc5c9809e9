//! The numbers of the protocol. Unknown numbers are kept.

use std::fmt;

/// The kind of a request: `ZooDefs.OpCode` of Apache ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpCode(pub i32);

#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
impl OpCode {
    pub const ERROR: Self = Self(-1);
    pub const CREATE: Self = Self(1);
    pub const DELETE: Self = Self(2);
    pub const EXISTS: Self = Self(3);
    pub const GET_DATA: Self = Self(4);
    pub const SET_DATA: Self = Self(5);
    pub const GET_ACL: Self = Self(6);
    pub const SET_ACL: Self = Self(7);
    pub const GET_CHILDREN: Self = Self(8);
    pub const SYNC: Self = Self(9);
    pub const PING: Self = Self(11);
    pub const GET_CHILDREN2: Self = Self(12);
    pub const CHECK: Self = Self(13);
    pub const MULTI: Self = Self(14);
    pub const CREATE2: Self = Self(15);
    pub const RECONFIG: Self = Self(16);
    pub const CHECK_WATCHES: Self = Self(17);
    pub const REMOVE_WATCHES: Self = Self(18);
    pub const CREATE_CONTAINER: Self = Self(19);
    pub const DELETE_CONTAINER: Self = Self(20);
    pub const CREATE_TTL: Self = Self(21);
    pub const MULTI_READ: Self = Self(22);
    pub const AUTH: Self = Self(100);
    pub const SET_WATCHES: Self = Self(101);
    pub const SASL: Self = Self(102);
    pub const GET_EPHEMERALS: Self = Self(103);
    pub const GET_ALL_CHILDREN_NUMBER: Self = Self(104);
    pub const SET_WATCHES2: Self = Self(105);
    pub const ADD_WATCH: Self = Self(106);
    pub const WHO_AM_I: Self = Self(107);
    pub const CLOSE_SESSION: Self = Self(-11);
}

impl OpCode {
    /// Whether a server answers it only after a quorum has: what writes, and `SYNC` (`needCommit` of Apache ZooKeeper's
    /// request processors).
    #[must_use]
    pub fn needs_quorum(self) -> bool {
        matches!(
            self,
            Self::CREATE
                | Self::CREATE2
                | Self::CREATE_CONTAINER
                | Self::CREATE_TTL
                | Self::DELETE
                | Self::DELETE_CONTAINER
                | Self::SET_DATA
                | Self::SET_ACL
                | Self::SYNC
                | Self::CHECK
                | Self::MULTI
                | Self::RECONFIG
                | Self::CLOSE_SESSION
        )
    }
}

/// The numbers of special messages.
pub mod xid {
    /// A watch event.
    pub const EVENT: i32 = -1;
    /// A ping and its answer.
    pub const PING: i32 = -2;
    /// Credentials and their answer.
    pub const AUTH: i32 = -4;
    /// Watches that are set again, and their answer. ZooKeeper's own client numbers them like other requests.
    pub const SET_WATCHES: i32 = -8;
}

/// What happened to a znode that is watched: `Watcher.Event.EventType` of Apache ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EventKind(pub i32);

#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
impl EventKind {
    /// About the connection, not about a znode.
    pub const NONE: Self = Self(-1);
    pub const CREATED: Self = Self(1);
    pub const DELETED: Self = Self(2);
    pub const DATA_CHANGED: Self = Self(3);
    pub const CHILDREN_CHANGED: Self = Self(4);
}

/// A server's answer to a request, 0 for success: `KeeperException.Code` of Apache ZooKeeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

/// What an error means for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aftermath {
    /// The request had no effect, and would have none if it were repeated unchanged.
    Refused,
    /// The request had no effect; another server, or this one later, may carry it out.
    Retry,
    /// The server does not know, or the code is unknown here.
    Unknown,
}

impl ErrorCode {
    /// Whether the server refuses this client, whatever it asks for.
    #[must_use]
    pub fn refuses_client(self) -> bool {
        matches!(self, Self::AUTH_FAILED | Self::SESSION_CLOSED_REQUIRE_SASL)
    }
}

macro_rules! error_codes {
    ($($name:ident = $number:literal, $aftermath:ident, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are ZooKeeper's own")]
        impl ErrorCode {
            $(pub const $name: Self = Self($number);)*

            /// What it means for the request.
            #[must_use]
            pub fn aftermath(self) -> Aftermath {
                match self.0 {
                    $($number => Aftermath::$aftermath,)*
                    _ => Aftermath::Unknown,
                }
            }
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str($text),)*
                    unknown => write!(f, "error {unknown}"),
                }
            }
        }
    };
}

error_codes! {
    OK = 0, Unknown, "success";
    SYSTEM_ERROR = -1, Unknown, "system error of the server";
    RUNTIME_INCONSISTENCY = -2, Unknown, "runtime inconsistency of the server";
    DATA_INCONSISTENCY = -3, Unknown, "data inconsistency of the server";
    CONNECTION_LOSS = -4, Unknown, "connection loss";
    MARSHALLING_ERROR = -5, Refused, "the server could not read the request";
    UNIMPLEMENTED = -6, Refused, "not implemented by the server";
    OPERATION_TIMEOUT = -7, Unknown, "the server took too long";
    BAD_ARGUMENTS = -8, Refused, "invalid arguments";
    NEW_CONFIG_NO_QUORUM = -13, Refused, "no quorum of the new configuration is connected";
    RECONFIG_IN_PROGRESS = -14, Retry, "another reconfiguration is in progress";
    UNKNOWN_SESSION = -12, Refused, "unknown session";
    NO_NODE = -101, Refused, "no such znode";
    NO_AUTH = -102, Refused, "not authorized";
    BAD_VERSION = -103, Refused, "version does not match";
    NO_CHILDREN_FOR_EPHEMERALS = -108, Refused, "an ephemeral znode can't have children";
    NODE_EXISTS = -110, Refused, "znode exists";
    NOT_EMPTY = -111, Refused, "znode has children";
    SESSION_EXPIRED = -112, Unknown, "session expired";
    INVALID_CALLBACK = -113, Refused, "invalid callback";
    INVALID_ACL = -114, Refused, "invalid access list";
    AUTH_FAILED = -115, Retry, "authentication failed";
    SESSION_MOVED = -118, Retry, "the session is served by another server";
    NOT_READ_ONLY = -119, Retry, "the server is read-only";
    EPHEMERAL_ON_LOCAL_SESSION = -120, Refused, "a local session can't have ephemerals";
    NO_WATCHER = -121, Refused, "no such watch";
    REQUEST_TIMEOUT = -122, Unknown, "the request timed out on the server";
    RECONFIG_DISABLED = -123, Refused, "reconfiguration is disabled on the servers";
    SESSION_CLOSED_REQUIRE_SASL = -124, Retry, "the server requires SASL authentication";
    QUOTA_EXCEEDED = -125, Refused, "quota exceeded";
    THROTTLED = -127, Retry, "the server is overloaded";
}
