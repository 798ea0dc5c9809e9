use super::*;

fn apply(tree: &mut Tree, change: Change) -> Outcome {
    let txn = Txn { zxid: tree.zxid() + 1, time: 1000, session: 7, change };
    tree.apply(&txn, &mut Watches::default(), &mut Vec::new())
}

fn create(path: &str, owner: Owner, created_children: i32) -> Change {
    Change::Create {
        path: path.to_owned(),
        data: None,
        acl: for_anyone(permission::ALL),
        owner,
        created_children,
        with_stat: false,
    }
}

#[test]
fn a_new_tree_is_as_apaches() {
    let tree = Tree::new();
    let root = tree.find("/").unwrap().stat();
    assert_eq!((root.cversion, root.num_children, root.pzxid), (-1, 1, 0));
    assert_eq!(tree.find("/zookeeper").unwrap().stat().cversion, -2);
    assert_eq!(tree.len(), 5);
    assert_eq!(tree.count_below("/"), 3);
}

#[test]
fn a_child_counts_at_its_parent() {
    let mut tree = Tree::new();
    apply(&mut tree, create("/a", Owner::Nobody, 1));
    apply(&mut tree, create("/a/b", Owner::Session(7), 1));
    let stat = tree.find("/a").unwrap().stat();
    assert_eq!((stat.cversion, stat.num_children, stat.pzxid, stat.mzxid), (1, 1, 2, 1));
    assert_eq!(tree.ephemerals(7), ["/a/b"]);
    let paths = tree.ephemerals(7);
    apply(&mut tree, Change::CloseSession(paths));
    let stat = tree.find("/a").unwrap().stat();
    assert_eq!((stat.cversion, stat.num_children, stat.pzxid), (2, 0, 3));
    assert!(tree.ephemerals(7).is_empty());
}

#[test]
fn a_multi_that_fails_changes_nothing() {
    let mut tree = Tree::new();
    let parts = vec![
        create("/a", Owner::Nobody, 1),
        Change::Nothing(ErrorCode::NO_NODE),
        Change::Nothing(ErrorCode(-2)),
    ];
    let outcome = apply(&mut tree, Change::Multi(parts));
    let expected = [ErrorCode::OK, ErrorCode::NO_NODE, ErrorCode::RUNTIME_INCONSISTENCY].map(Outcome::Failed);
    assert_eq!(outcome, Outcome::Multi(expected.to_vec()));
    assert!(tree.get("/a").is_none());
    assert_eq!(tree.zxid(), 1);
}

#[test]
fn what_ends_by_itself() {
    let mut tree = Tree::new();
    apply(&mut tree, create("/ttl", Owner::Ttl(50), 1));
    apply(&mut tree, create("/new", Owner::Container, 2));
    apply(&mut tree, create("/used", Owner::Container, 3));
    apply(&mut tree, create("/used/x", Owner::Nobody, 1));
    assert!(tree.ended(1050).is_empty());
    assert_eq!(tree.ended(1051), ["/ttl"]);
    apply(&mut tree, Change::Delete("/used/x".to_owned()));
    assert_eq!(tree.ended(0), ["/used"]);
}
