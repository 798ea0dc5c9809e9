use super::*;

const START: u64 = 1_700_000_000_000;
const PATIENCE: Duration = Duration::from_secs(10);

fn second(n: u64) -> BootTime {
    BootTime::from_duration(Duration::from_secs(1000 + n))
}

/// A look at one site, `west`, by its members: `+a` is ready, `-a@7` not since that second, `?a` absent since an unknown time, `*a`
/// leads, `^a@7/3` is absent since second 7 and has led until second 3, and `a` publishes nothing. Another site has `elsewhere` ready ones.
fn seen(members: &str, elsewhere: usize) -> BTreeMap<SiteId, SiteStandbys> {
    let mut west = SiteStandbys::default();
    for member in members.split_whitespace() {
        let (kind, rest) = member.split_at(1);
        let id = |text: &str| text.parse::<MemberId>().unwrap();
        match (kind, rest.split_once('@')) {
            ("+", _) => west.ready.extend([id(rest)]),
            ("*", _) => west.leading.extend([id(rest)]),
            ("?", _) => west.gone.extend([(id(rest), None)]),
            ("-", Some((rest, at))) => {
                west.gone.extend([(id(rest), Some(START + 1000 * at.parse::<u64>().unwrap()))]);
            }
            ("^", Some((rest, at))) => {
                let (at, led) = at.split_once('/').unwrap();
                let second = |text: &str| START + 1000 * text.parse::<u64>().unwrap();
                west.gone.extend([(id(rest), Some(second(at)))]);
                west.led_until.extend([(id(rest), second(led))]);
            }
            _ => {}
        }
    }
    let ready = (0..elsewhere).map(|n| format!("e{n}").parse().unwrap()).collect();
    let east = SiteStandbys { ready, ..SiteStandbys::default() };
    [("west", west), ("east", east)].map(|(site, seen)| (site.parse().unwrap(), seen)).into()
}

/// The events of these looks, each at a second, as text: the second, the name and the key.
fn events(looks: &[(u64, &str)]) -> Vec<String> {
    let mut sites = Sites::new(START, PATIENCE);
    let looked = looks.iter().flat_map(|(at, members)| {
        let found = sites.look(&seen(members, 2), second(*at), START + 1000 * at);
        found.events.into_iter().map(move |event| format!("{at} {} {}", event.kind.as_str(), event.key))
    });
    looked.collect()
}

#[test]
fn a_site_is_reported_once_it_has_been_without_a_ready_standby_for_a_while() {
    let mut sites = Sites::new(START, PATIENCE);
    let mut look = |at: u64, members: &str| sites.look(&seen(members, 2), second(at), START + 1000 * at);
    assert_eq!(look(0, "+a +b").events, []);
    assert_eq!(look(1, "+a -b@1").events, [], "one is left");
    let found = look(3, "-a@2 -b@1");
    assert_eq!((found.events, found.look_again), (vec![], Some(PATIENCE)));
    assert_eq!(look(9, "-a@2 -b@1").look_again, Some(Duration::from_secs(4)));
    let found = look(13, "-a@2 -b@1");
    let event = &found.events[0];
    assert_eq!((found.events.len(), found.look_again), (1, None));
    assert_eq!((event.kind, event.key.as_str()), (NotifyEvent::StandbysLost, "west/a/1700000002000"));
    assert_eq!(
        event.text,
        "the last ready standby of site west is gone: that of a at 2023-11-14T22:13:22Z; 2 are ready in other sites"
    );
    assert_eq!(event.facts["ready_elsewhere"], 2);
    assert_eq!(look(30, "-a@2 -b@1").events, [], "once");
    let found = look(31, "-a@2 +b");
    let event = &found.events[0];
    assert_eq!((event.kind, event.key.as_str()), (NotifyEvent::StandbysReturned, "west/a/1700000002000"));
    assert_eq!(event.text, "site west has a ready standby again: that of b");
    assert_eq!(look(32, "+a +b").events, []);
}

#[test]
fn a_restart_an_upgrade_and_a_promotion_are_not_reported() {
    assert_eq!(
        events(&[(0, "+a"), (1, "-a@1"), (10, "+a"), (11, "-a@11"), (20, "-a@11"), (21, "+a")]),
        [""; 0]
    );
    assert_eq!(
        events(&[(0, "+a"), (1, "a"), (9, "+a"), (20, "+a")]),
        [""; 0],
        "nothing is published for a moment"
    );
    assert_eq!(events(&[(0, "+a"), (1, "*a"), (60, "*a"), (61, "+a")]), [""; 0]);
    // An old absence is no news when the other one is promoted.
    assert_eq!(events(&[(500, "+a -b@1"), (501, "*a -b@1"), (600, "*a -b@1"), (601, "+a -b@1")]), [""; 0]);
    // The other standby of the site of a leader is its last one.
    let lost = events(&[(0, "+a +b"), (1, "*a +b"), (5, "*a -b@5"), (15, "*a -b@5")]);
    assert_eq!(lost, ["15 standbys-lost west/b/1700000005000"]);
    // What was promoted has failed, and is no standby again.
    let lost = events(&[(0, "+a"), (1, "*a"), (50, "-a@50"), (60, "-a@50"), (70, "+a")]);
    assert_eq!(lost, ["60 standbys-lost west/a/1700000050000", "70 standbys-returned west/a/1700000050000"]);
}

#[test]
fn a_member_that_is_lost_or_starts_again_and_again_is_reported_as_well() {
    let lost = events(&[(0, "+a"), (1, "?a"), (3, "-a@2"), (11, "-a@2")]);
    assert_eq!(lost, ["11 standbys-lost west/a/1700000002000"]);
    // It is there again, and publishes nothing: the record that was seen meanwhile counts, or this member's clock.
    assert_eq!(
        events(&[(0, "+a"), (1, "-a@1"), (5, "a"), (11, "a")]),
        ["11 standbys-lost west/a/1700000001000"]
    );
    assert_eq!(events(&[(0, "+a"), (2, "a"), (12, "a")]), ["12 standbys-lost west/a/1700000002000"]);
}

#[test]
fn a_new_sender_reports_what_is_recent_with_the_same_id() {
    // START is the beginning of what is recent.
    assert_eq!(events(&[(30, "-a@5"), (40, "-a@5")]), ["40 standbys-lost west/a/1700000005000"]);
    let mut sites = Sites::new(START + 6000, PATIENCE);
    let mut look =
        |at: u64, members: &str| sites.look(&seen(members, 0), second(at), START + 1000 * at).events;
    assert_eq!(look(30, "-a@5"), []);
    assert_eq!(look(90, "-a@5"), [], "the sender before has reported it");
    assert_eq!(look(91, "+a")[0].key, "west/a/1700000005000", "its return was not reported");
    assert_eq!(events(&[(0, "a"), (60, "a")]), [""; 0], "none was ever ready");
    // The sender before had the standby itself, or led.
    let lost = events(&[(30, "?a"), (32, "-a@31"), (45, "-a@31")]);
    assert_eq!(lost, ["45 standbys-lost west/a/1700000031000"]);
    assert_eq!(events(&[(30, "^a@29/30"), (60, "^a@29/30")]), [""; 0]);
    let lost = events(&[(30, "^a@29/5"), (60, "^a@29/5")]);
    assert_eq!(lost, ["60 standbys-lost west/a/1700000029000"], "it has been a standby since");
}
