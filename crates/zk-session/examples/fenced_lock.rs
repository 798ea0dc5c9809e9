//! A lock with a fencing token: `lock` and `work`, some 40 lines. Start it twice, and kill or freeze the one that holds
//! the lock:
//!
//! `cargo run -p zk-session --example fenced_lock -- 127.0.0.1:2181 /lock`

use std::error::Error;
use std::time::Duration;

use zk_session::{BootTime, CreateMode, OpError, Session, SessionPin};

type Failure = Box<dyn Error + Send + Sync>;

/// Waits for the lock. It is held while the session of the pin lives; the number grows with each holder.
async fn lock(session: &Session, path: &str) -> Result<(SessionPin, i64), Failure> {
    let mut holder = session.watch_data(path);
    loop {
        // The pin keeps this process from a second life on a new session while it still works in its first.
        let Some(pin) = session.pin() else {
            session.active().await?;
            continue;
        };
        match pin.incarnation().create(path, "", CreateMode::Ephemeral).await {
            Ok(created) => return Ok((pin, created.stat.czxid)),
            Err(OpError::NodeExists { .. }) => {
                drop(pin); // Nothing is done in its name while this waits.
                while holder.next().await?.value.is_some() {}
            }
            Err(error) if error.is_session_over() => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Does steps of work under the lock; each gets the token, which the resource compares with the highest it has seen.
pub(crate) async fn work(
    connect: &str,
    path: &str,
    mut step: impl FnMut(i64) -> bool,
) -> Result<(), Failure> {
    let session = Session::builder(connect).connect().await?;
    let (pin, token) = lock(&session, path).await?;
    let (keeper, held) = (session.keep_lease(), pin.incarnation());
    let mut leases = keeper.subscribe();
    tokio::select! {
        lease = leases.wait_for(Option::is_some) => drop(lease?),
        () = held.over() => return Err("the lock was lost before the work began".into()),
    }
    // Looked at before each step; a step takes much less time than is left of a lease at its worst. While the pin
    // lives there is no other session, so the lease is the lock's.
    while keeper.lease().is_some_and(|lease| lease.is_valid_at(BootTime::now())) {
        if !step(token) {
            held.delete(path, None).await?;
            session.close(Duration::from_secs(2)).await;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Err("the lock is lost: nothing more may be done under it".into())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let (Some(connect), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fenced_lock HOST:PORT,HOST:PORT /path/of/the/lock".into());
    };
    let mut left = 50;
    let step = |token| {
        println!("step with token {token:#x}, {left} left");
        left -= 1;
        left > 0
    };
    work(&connect, &path, step).await
}
