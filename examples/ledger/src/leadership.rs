//! The leadership this process was started under.

use clap::Args;

/// Who leads, in which term, with which token: as the worker put it into the
/// environment, or as given by hand.
#[derive(Debug, Clone, Args)]
pub(crate) struct Leadership {
    /// The fencing token. A decimal from 1 to 9223372036854775807: a store's
    /// integer column is signed.
    #[arg(long, value_name = "N", env = "DR_FENCING_TOKEN",
          value_parser = clap::value_parser!(i64).range(1..))]
    pub(crate) token: i64,
    /// The term, for the record only: the token decides.
    #[arg(long, value_name = "N", env = "DR_TERM", default_value_t = 0,
          value_parser = clap::value_parser!(i64).range(0..))]
    pub(crate) term: i64,
    /// The member that leads.
    #[arg(long, value_name = "ID", env = "DR_MEMBER", default_value = "by-hand")]
    pub(crate) member: String,
    /// The member's site, for the record only.
    #[arg(long, value_name = "SITE", env = "DR_SITE", default_value = "")]
    pub(crate) site: String,
}
