//! The fewest requests that do what an election does, without an engine, a lease or a record: the reference that no election
//! over the same client can beat.

use std::time::{Duration, Instant};

use zk_session::{CreateMode, DataWatch, OpError, Session};

use crate::clients::{Clients, path};

const CLOSING: Duration = Duration::from_secs(10);

/// The leader deletes its znode; the next one is notified, and creates its own. From the deletion's sending to the answer
/// of the create.
///
/// # Errors
/// If an operation fails.
pub async fn handover(clients: &mut Clients) -> Result<Duration, String> {
    let server = clients.next_server();
    let (old, new) = (clients.of(server), clients.of(server + 1));
    let leader = path("raw-handover");
    create(old, &leader).await?;
    let mut watch = armed(new, &leader).await?;
    let begun = Instant::now();
    let delete = async {
        let deleted = old.delete(&leader, None).await;
        deleted.map_err(|error| error.to_string())
    };
    let follow = async {
        create_next(new, &leader, &mut watch).await?;
        Ok::<_, String>(begun.elapsed())
    };
    let ((), took) = tokio::try_join!(delete, follow)?;
    new.delete(&leader, None).await.map_err(|error| error.to_string())?;
    Ok(took)
}

/// The leader's session is closed; the next one is notified, and creates its own znode. From the notification of a third
/// client to the answer of the create.
///
/// # Errors
/// If an operation fails.
pub async fn crash(clients: &mut Clients) -> Result<Duration, String> {
    let server = clients.next_server();
    let old = clients.another(server).await?;
    let (new, observer) = (clients.of(server + 1), clients.of(server + 2));
    let leader = path("raw-crash");
    create(&old, &leader).await?;
    let (mut watch, mut observed) = (armed(new, &leader).await?, armed(observer, &leader).await?);
    let observe = async {
        observed.changed().await;
        Ok::<_, String>(Instant::now())
    };
    let follow = async {
        create_next(new, &leader, &mut watch).await?;
        Ok(Instant::now())
    };
    let close = async {
        old.close(CLOSING).await;
        Ok(())
    };
    let (seen, created, ()) = tokio::try_join!(observe, follow, close)?;
    new.delete(&leader, None).await.map_err(|error| error.to_string())?;
    Ok(created.saturating_duration_since(seen))
}

/// A client connects and creates the znode. From the connection to the answer of the create.
///
/// # Errors
/// If an operation fails.
pub async fn start(clients: &mut Clients) -> Result<Duration, String> {
    let server = clients.next_server();
    let begun = Instant::now();
    let session = clients.another(server).await?;
    create(&session, &path("raw-start")).await?;
    let took = begun.elapsed();
    session.close(CLOSING).await;
    Ok(took)
}

async fn create(session: &Session, leader: &str) -> Result<(), String> {
    let created = session.create(leader, b"leader", CreateMode::Ephemeral).await;
    created.map(drop).map_err(|error: OpError| error.to_string())
}

/// Creates the znode once it is gone.
async fn create_next(session: &Session, leader: &str, watch: &mut DataWatch) -> Result<(), String> {
    loop {
        watch.changed().await;
        match session.create(leader, b"leader", CreateMode::Ephemeral).await {
            // The session has lost its connection, which is a change too.
            Err(OpError::NodeExists { .. }) => drop(watch.next().await),
            created => return created.map(drop).map_err(|error| error.to_string()),
        }
    }
}

/// A watch of a znode that exists, on this server too.
async fn armed(session: &Session, leader: &str) -> Result<DataWatch, String> {
    let mut watch = session.watch_data(leader);
    while watch.next().await.map_err(|error| error.to_string())?.value.is_none() {}
    Ok(watch)
}
