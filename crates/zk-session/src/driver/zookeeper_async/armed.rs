//! Which watches the server holds for this session, and who waits for each.

use std::collections::HashMap;

use super::wire::{Frame, op, put_bytes, xid};
use crate::driver::{WatchKind, WatchToken};

/// How many bytes of paths go into one request that sets watches again; well below what any server takes.
const PATHS_PER_FRAME: usize = 128 << 10;

/// What a watch looks at. The order is that of the lists in a `SetWatches` request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The data of a znode that is there.
    Data,
    /// A znode that is not there.
    Exist,
    /// The children of a znode.
    Child,
}

/// Armed watches, in the order of the wire.
#[derive(Debug, Default)]
pub(super) struct Armed {
    /// By what is looked at, then by path: the server holds one watch for any number of tokens.
    tokens: [HashMap<String, Vec<WatchToken>>; 3],
    index: HashMap<WatchToken, (Look, String)>,
}

impl Armed {
    pub(super) fn arm(&mut self, look: Look, path: String, token: WatchToken) {
        self.tokens[look as usize].entry(path.clone()).or_default().push(token);
        self.index.insert(token, (look, path));
    }

    /// The tokens that this event of the server fires; they are armed no longer.
    pub(super) fn fire(&mut self, kind: WatchKind, path: &str) -> Vec<WatchToken> {
        let looks: &[Look] = match kind {
            WatchKind::Created | WatchKind::DataChanged => &[Look::Data, Look::Exist],
            WatchKind::ChildrenChanged => &[Look::Child],
            WatchKind::Deleted | WatchKind::Gap => &[Look::Data, Look::Exist, Look::Child],
        };
        let mut fired = Vec::new();
        for look in looks {
            fired.extend(self.tokens[*look as usize].remove(path).unwrap_or_default());
        }
        for token in &fired {
            self.index.remove(token);
        }
        fired
    }

    pub(super) fn forget(&mut self, token: WatchToken) {
        let Some((look, path)) = self.index.remove(&token) else { return };
        let paths = &mut self.tokens[look as usize];
        if let Some(tokens) = paths.get_mut(&path) {
            tokens.retain(|other| *other != token);
            if tokens.is_empty() {
                paths.remove(&path);
            }
        }
    }

    /// The requests that set all watches on another connection. For each path the server compares with `last_zxid`,
    /// and where something happened since, it sends the event instead.
    pub(super) fn set_watches(&self, last_zxid: i64) -> Vec<Frame> {
        let mut frames = Vec::new();
        let mut lists: [Vec<&str>; 3] = Default::default();
        let mut size = 0;
        for (look, paths) in self.tokens.iter().enumerate() {
            for path in paths.keys() {
                if size > PATHS_PER_FRAME {
                    frames.push(frame(last_zxid, &lists));
                    lists = Default::default();
                    size = 0;
                }
                lists[look].push(path);
                size += path.len() + 4;
            }
        }
        if size > 0 {
            frames.push(frame(last_zxid, &lists));
        }
        frames
    }
}

fn frame(last_zxid: i64, lists: &[Vec<&str>; 3]) -> Frame {
    Frame::build(|out| {
        out.extend_from_slice(&xid::SET_WATCHES.to_be_bytes());
        out.extend_from_slice(&op::SET_WATCHES.to_be_bytes());
        out.extend_from_slice(&last_zxid.to_be_bytes());
        for list in lists {
            let count = i32::try_from(list.len()).unwrap_or(i32::MAX);
            out.extend_from_slice(&count.to_be_bytes());
            for path in list {
                put_bytes(out, path.as_bytes());
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::wire::Fields;
    use super::*;

    fn paths_of(frame: &Frame) -> [Vec<String>; 3] {
        let mut fields = Fields(&frame.payload()[16..]);
        std::array::from_fn(|_| {
            let count = fields.i32().unwrap();
            let mut list: Vec<String> = (0..count).map(|_| fields.str().unwrap().to_owned()).collect();
            list.sort();
            list
        })
    }

    #[test]
    fn an_event_fires_every_token_of_its_kind_and_no_other() {
        let mut armed = Armed::default();
        armed.arm(Look::Data, "/a".into(), WatchToken(1));
        armed.arm(Look::Data, "/a".into(), WatchToken(2));
        armed.arm(Look::Child, "/a".into(), WatchToken(3));
        armed.arm(Look::Exist, "/b".into(), WatchToken(4));
        assert_eq!(armed.fire(WatchKind::ChildrenChanged, "/b"), []);
        assert_eq!(armed.fire(WatchKind::DataChanged, "/a"), [WatchToken(1), WatchToken(2)]);
        assert_eq!(armed.fire(WatchKind::DataChanged, "/a"), []);
        assert_eq!(armed.fire(WatchKind::Deleted, "/a"), [WatchToken(3)]);
        assert_eq!(armed.fire(WatchKind::Created, "/b"), [WatchToken(4)]);
        assert!(armed.index.is_empty());
        assert!(armed.set_watches(1).is_empty());
    }

    #[test]
    fn forgetting_the_last_token_of_a_path_forgets_the_path() {
        let mut armed = Armed::default();
        armed.arm(Look::Data, "/a".into(), WatchToken(1));
        armed.arm(Look::Data, "/a".into(), WatchToken(2));
        armed.forget(WatchToken(1));
        assert_eq!(paths_of(&armed.set_watches(1)[0])[0], ["/a"]);
        armed.forget(WatchToken(2));
        armed.forget(WatchToken(2));
        assert!(armed.set_watches(1).is_empty());
    }

    #[test]
    fn each_kind_is_set_again_as_itself() {
        let mut armed = Armed::default();
        armed.arm(Look::Data, "/here".into(), WatchToken(1));
        armed.arm(Look::Exist, "/missing".into(), WatchToken(2));
        armed.arm(Look::Child, "/parent".into(), WatchToken(3));
        let frames = armed.set_watches(8);
        assert_eq!(frames.len(), 1);
        assert_eq!(paths_of(&frames[0]), [["/here"], ["/missing"], ["/parent"]]);
    }

    #[test]
    fn many_watches_go_in_several_frames() {
        let mut armed = Armed::default();
        for n in 0..4000 {
            armed.arm(Look::Child, format!("/{n:0>100}"), WatchToken(n));
        }
        let frames = armed.set_watches(1);
        assert!(frames.len() > 3);
        assert!(frames.iter().all(|frame| frame.payload().len() < 2 * PATHS_PER_FRAME));
        let total: usize = frames.iter().map(|frame| paths_of(frame)[2].len()).sum();
        assert_eq!(total, 4000);
    }
}
