//! The published algorithm's watches: every member watches the whole membership and the leader, and determines by
//! itself whether it leads. There is no lease and no takeover.

use std::time::Duration;

use tokio::{task::JoinSet, time::timeout};
use zk_session::{CreateMode, Recovery, Session};

use crate::members::Members;

const PEERS: &str = "/everybody/peers";
const LEADER: &str = "/everybody/leader";

/// How many connect at the same time. A busy server accepts hundreds, and answers too late.
const CONNECTING: usize = 32;

/// The longest wait for a leader.
const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Everybody {
    members: Vec<Member>,
}

struct Member {
    session: Session,
    name: String,
    task: JoinSet<()>,
}

impl Everybody {
    pub(crate) async fn start(connect: &str, number: usize) -> Result<Self, String> {
        let mut connecting = JoinSet::new();
        let mut members = Vec::new();
        for begun in 1..=number + CONNECTING {
            if begun <= number {
                connecting
                    .spawn(Session::builder(connect).session_timeout(Duration::from_secs(40)).connect());
            }
            if begun >= CONNECTING
                && let Some(session) = connecting.join_next().await
            {
                let session =
                    session.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
                members.push(Member { session, name: String::new(), task: JoinSet::new() });
            }
        }
        for member in &mut members {
            member.stand().await?;
        }
        let everybody = Self { members };
        everybody.leader().await?;
        Ok(everybody)
    }

    async fn leader(&self) -> Result<usize, String> {
        let session = &self.members[0].session;
        let mut watch = session.watch_data(LEADER);
        let found = async {
            loop {
                let seen = watch.next().await.map_err(|error| error.to_string())?;
                if let Some(node) = seen.value {
                    return Ok::<_, String>(node.data);
                }
            }
        };
        let data: Vec<u8> = timeout(SOON, found).await.map_err(|_| "nobody leads".to_owned())??;
        let at = self.members.iter().position(|member| member.name.as_bytes() == data);
        at.ok_or_else(|| "a stranger leads".to_owned())
    }
}

impl Members for Everybody {
    async fn release(&mut self) -> Result<usize, String> {
        let at = self.leader().await?;
        let member = &mut self.members[at];
        member.task.abort_all();
        let session = member.session.active().await.map_err(|error| error.to_string())?;
        for path in [LEADER.to_owned(), format!("{PEERS}/{}", member.name)] {
            session.delete(&path, None).await.map_err(|error| error.to_string())?;
        }
        Ok(at)
    }

    async fn rejoin(&mut self, member: usize) -> Result<(), String> {
        self.leader().await?;
        self.members[member].stand().await
    }

    async fn end(self) {
        let mut closing = JoinSet::new();
        for member in self.members {
            closing.spawn(async move { member.session.close(Duration::from_secs(5)).await });
        }
        while closing.join_next().await.is_some() {}
    }
}

impl Member {
    async fn stand(&mut self) -> Result<(), String> {
        let session = self.session.active().await.map_err(|error| error.to_string())?;
        session.create_parents(&format!("{PEERS}/x")).await.map_err(|error| error.to_string())?;
        let id = session.session_id().0;
        let prefix = format!("{PEERS}/{id:016x}-{:012}-", 0);
        let created = session.create_sequential(&prefix, b"", CreateMode::Ephemeral, Recovery::Name).await;
        let path = created.map_err(|error| error.to_string())?.path;
        self.name = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.task = JoinSet::new();
        self.task.spawn(watch(self.session.clone(), self.name.clone()));
        Ok(())
    }
}

/// Leads when there is no leader and no member before it.
async fn watch(session: Session, name: String) {
    let number = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    let (mut peers, mut leader) = (session.watch_children(PEERS), session.watch_data(LEADER));
    let (mut is_first, mut is_led) = (false, true);
    loop {
        tokio::select! {
            seen = peers.next() => {
                let Ok(seen) = seen else { return };
                let names = seen.value.map(|children| children.names).unwrap_or_default();
                is_first = names.iter().map(|name| number(name)).min() == Some(number(&name));
            }
            seen = leader.next() => {
                let Ok(seen) = seen else { return };
                is_led = seen.value.is_some();
            }
        }
        if is_first
            && !is_led
            && let Ok(session) = session.active().await
        {
            // Refused if another member was faster; the watch then reports it.
            let _ = session.create(LEADER, name.as_bytes(), CreateMode::Ephemeral).await;
        }
    }
}
