//! The election, the member, and the settings.

use std::sync::Arc;

use crate::{
    engine::{self, Leftovers, Policy, Profile, QueueFormat, Recipe},
    ids::{InvalidName, MemberId, SiteId},
    paths::Paths,
    strategy::Strategy,
};

/// The election, the member, and the settings. All members of an election need the same recipe and policy.
///
/// ```
/// # use election_core::{ElectionConfig, config::Policy};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = ElectionConfig::queue("/app/greetings", "host-1")?
///     .site("east".parse()?)
///     .policy(Policy::default().with(|policy| policy.history_kept = 1000));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ElectionConfig {
    engine: engine::Config,
    /// The newest term and token of former processes.
    above: (u64, u64),
}

impl ElectionConfig {
    /// The election at `paths`, with the default policy. Elections of the same member can share its profile.
    pub fn new(paths: Paths, member: impl Into<Arc<Profile>>, recipe: Recipe) -> Self {
        let engine = engine::Config {
            paths,
            member: member.into(),
            policy: Arc::default(),
            leftovers: Leftovers::default(),
            recipe,
        };
        Self { engine, above: (0, 0) }
    }

    /// The recipe `queue`: members lead in the order in which they have joined.
    ///
    /// # Errors
    /// When `path` (such as `/app/greetings`) or the member's id can't be part of a path of ZooKeeper.
    pub fn queue(path: &str, member: &str) -> Result<Self, InvalidName> {
        Self::at(path, member, Recipe::Queue(QueueFormat::Native))
    }

    /// The recipe `single`: the member that creates the one leader znode leads. For a few members.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub fn single(path: &str, member: &str) -> Result<Self, InvalidName> {
        Self::at(path, member, Recipe::Single)
    }

    /// The recipe `elector`: the strategy decides who leads. The crate `strategies` has some.
    ///
    /// # Errors
    /// As for [`queue`](Self::queue).
    pub fn elector(path: &str, member: &str, strategy: impl Strategy + 'static) -> Result<Self, InvalidName> {
        Self::at(path, member, Recipe::Elector(Arc::new(strategy)))
    }

    fn at(path: &str, member: &str, recipe: Recipe) -> Result<Self, InvalidName> {
        Ok(Self::new(Paths::at(path)?, Profile::new(MemberId::new(member)?), recipe))
    }

    /// The site of this member; `default` if it is not set.
    pub fn site(mut self, site: SiteId) -> Self {
        Arc::make_mut(&mut self.engine.member).site = site;
        self
    }

    /// How others can connect to this node.
    pub fn address(mut self, address: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.engine.member).address = Some(address.into());
        self
    }

    /// Higher is preferred, 1 if it is not set; 0 or less never leads unless an operator names it. Recipe `elector`.
    pub fn priority(mut self, priority: i64) -> Self {
        Arc::make_mut(&mut self.engine.member).priority = priority;
        self
    }

    /// Free attributes for policies.
    pub fn attributes<N: Into<String>, V: Into<String>>(
        mut self,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Self {
        let attributes = attributes.into_iter().map(|(name, value)| (name.into(), value.into()));
        Arc::make_mut(&mut self.engine.member).attributes = attributes.collect();
        self
    }

    /// How the election behaves. Elections with the same policy can share it.
    pub fn policy(mut self, policy: impl Into<Arc<Policy>>) -> Self {
        self.engine.policy = policy.into();
        self
    }

    /// How to treat the znodes of a former process of this member.
    pub fn leftovers(mut self, leftovers: Leftovers) -> Self {
        self.engine.leftovers = leftovers;
        self
    }

    /// The newest term and fencing token that former processes of this member have seen. The election continues above
    /// them, even if the ensemble has lost them. A program can keep
    /// [`ElectionStatus::newest_token`](super::ElectionStatus::newest_token) in a file for that.
    pub fn above(mut self, term: u64, token: u64) -> Self {
        self.above = (term, token);
        self
    }

    /// The paths of the election's znodes.
    pub fn paths(&self) -> &Paths {
        &self.engine.paths
    }

    /// The id of this member.
    pub fn member(&self) -> &MemberId {
        &self.engine.member.member
    }

    pub(super) fn into_engine(self) -> (engine::Config, (u64, u64)) {
        (self.engine, self.above)
    }
}
