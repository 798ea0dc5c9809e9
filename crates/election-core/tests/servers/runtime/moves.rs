//! An election moves to another root: the old one ends before the new one is open, and a move that is called off does not arrive.

use std::time::Duration;

use election_admin::{
    AdminError, Hindrance, Observer, Snapshot, forget,
    moving::{self, Ended as Left, Ending, Holding},
};
use election_core::{
    Paths,
    errors::Ended,
    internals::record::{Move, OrderedBy, Place},
};
use zk_session::{BootTime, DriverKind};

use super::{
    SOON,
    members::{World, wait_for},
};

const BY: &str = "the test";

/// A move of the election of this world.
struct Moving<'a> {
    world: &'a World,
    to: Paths,
    origin: Place,
    target: Place,
}

fn order(place: &Place) -> Move {
    Move { place: place.clone(), done: false, ordered: OrderedBy::default() }
}

impl<'a> Moving<'a> {
    /// The other election is prepared.
    async fn prepared(world: &'a World) -> Self {
        let (session, from) = (world.operator(), world.paths());
        let to = Paths::new("/elsewhere", from.name()).unwrap();
        let origin = moving::place(session, "here", from.base()).await.unwrap().unwrap();
        let present = world.try_snapshot().await.unwrap();
        moving::prepare(session, &to, &order(&origin), &present, BY).await.unwrap();
        let target = moving::place(session, "there", to.base()).await.unwrap().unwrap();
        assert!(!target.is_same(&origin));
        Self { world, to, origin, target }
    }

    async fn close(&self) {
        let (session, from) = (self.world.operator(), self.world.paths());
        moving::close(session, from, &order(&self.target), BY).await.unwrap();
    }

    async fn awaited(&self) -> i64 {
        moving::awaited(self.world.operator(), &self.to, &self.origin).await.unwrap()
    }

    async fn end(&self) -> Ending {
        moving::end(self.world.operator(), self.world.paths(), &self.target, BY).await.unwrap()
    }

    /// What the election leaves when no member leads.
    async fn ended(&self) -> Box<Left> {
        let deadline = BootTime::now() + SOON;
        loop {
            match self.end().await {
                Ending::Ended(left) => return left,
                Ending::Held(holding) => assert!(BootTime::now() < deadline, "{holding:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn arrive(&self, awaited: i64, left: &Left) -> Result<(), AdminError> {
        moving::arrive(self.world.operator(), &self.to, &order(&self.origin), awaited, left, BY).await
    }

    async fn call_off(&self) -> Result<bool, AdminError> {
        let session = self.world.operator();
        moving::call_off((session, self.world.paths()), (session, &self.to), &self.origin, BY).await
    }

    async fn there(&self) -> Snapshot {
        let session = self.world.operator().active().await.unwrap();
        Observer::new(session).snapshot(&self.to).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_called_off_or_arrives_but_not_both() {
    let world = World::start(DriverKind::Native).await;
    let east = world.join("east-1", "east").await;
    wait_for("east-1 leads", SOON, || east.leads()).await;
    let west = world.join("west-1", "west").await;
    let moving = Moving::prepared(&world).await;
    assert!(moving.there().await.control.is_closed());
    moving.close().await;
    let held = moving.end().await;
    let Ending::Held(Holding::Leaders(leaders)) = held else { panic!("{held:?}") };
    assert_eq!(leaders, ["east-1".parse().unwrap()]);

    // The leader leaves, another member stays, and does not lead.
    assert_eq!(east.election().leave().await, Ended::Left);
    let awaited = moving.awaited().await;
    let left = moving.ended().await;
    assert!(left.decision.leaders().next().is_none() && !west.leads());
    assert!(moving.call_off().await.unwrap());
    let late = moving.arrive(awaited, &left).await;
    assert!(matches!(late, Err(AdminError::NotNow(Hindrance::MoveChanged))), "{late:?}");
    let gone = moving::end(world.operator(), world.paths(), &moving.target, BY).await;
    assert!(matches!(gone, Err(AdminError::NotNow(Hindrance::MoveChanged))), "{gone:?}");
    assert!(!moving.call_off().await.unwrap() && moving.there().await.control.is_closed());
    wait_for("west-1 leads", SOON, || west.leads()).await;
    let token = west.status().fencing_token.unwrap();

    // The other order.
    moving.close().await;
    assert_eq!(west.election().leave().await, Ended::Left);
    let awaited = moving.awaited().await;
    let left = moving.ended().await;
    moving.arrive(awaited, &left).await.unwrap();
    let off = moving.call_off().await;
    assert!(matches!(off, Err(AdminError::NotNow(Hindrance::Moved))), "{off:?}");
    // Its answer was lost.
    moving.arrive(awaited, &left).await.unwrap();
    let there = moving.there().await;
    assert!(!there.control.is_closed() && there.control.moves_to.is_none(), "{:?}", there.control);
    assert!(there.token_base() >= token);
    assert!(there.decided().is_some_and(|next| next.term > left.decision.term));
    let previous = there.decided().and_then(|next| next.slots[0].given.previous.clone());
    assert_eq!(previous.map(|previous| previous.member.to_string()).as_deref(), Some("west-1"));

    // It can be forgotten once the move is done.
    let (session, from) = (world.operator(), world.paths());
    let held = forget::remove(session, from, &[]).await;
    assert!(matches!(held, Err(AdminError::NotNow(Hindrance::StandingOrders))), "{held:?}");
    moving::finish(session, from, &order(&moving.target), BY).await.unwrap();
    assert!(forget::remove(session, from, &[]).await.unwrap() > 0);
}
