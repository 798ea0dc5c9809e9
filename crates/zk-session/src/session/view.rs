//! A session as a handle sees it.

use std::sync::Arc;

use crate::error::{Closed, OpError};
use crate::session::incarnation::{Bound, Incarnation};
use crate::session::scope::Scope;
use crate::session::shared::Shared;

/// A session in a [`Scope`]: what the handles, watches and held znodes of a session have in common.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) shared: Arc<Shared>,
    pub(crate) scope: Arc<Scope>,
}

impl View {
    /// Of the whole session.
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), scope: Arc::clone(&shared.scope) }
    }

    fn scoped(&self, incarnation: Incarnation) -> Incarnation {
        Incarnation { scope: Arc::clone(&self.scope), ..incarnation }
    }

    /// See [`Shared::living`].
    pub(crate) fn living(&self) -> Option<Incarnation> {
        Some(self.scoped(self.shared.living()?))
    }

    /// See [`Shared::active`].
    pub(crate) async fn active(&self) -> Result<Incarnation, Closed> {
        Ok(self.scoped(self.shared.active().await?))
    }

    /// See [`Shared::current`].
    pub(crate) async fn current(
        &self,
        op: &'static str,
        path: &str,
        bound: Bound,
    ) -> Result<Incarnation, OpError> {
        Ok(self.scoped(self.shared.current(op, path, bound).await?))
    }
}
