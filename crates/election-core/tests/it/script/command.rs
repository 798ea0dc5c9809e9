//! The commands of a script.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use election_core::{
    config::{Confirm, Leftovers, MemberId, OnPause, Profile, QueueFormat, Recipe, SiteId, TakeoverLimit},
    internals::{
        self, AppEvent, Config, Engine, Event, Forgotten, Wish,
        calendar::Windows,
        fencing_token,
        record::{
            AdminRequest, Confirmed, Control, Elected, FailedSite, Health, MemberRecord, Mode, OrderedBy,
            Outgoing, Record, RequestKind, RequestState, Target,
        },
    },
};

use serde_json::Value;

use crate::strategy::{SiteOrder, Spread};

use super::{Loss, Member, Pending, STEPS, Stage, UNIX_MS, outcome_in_words};

impl Stage {
    pub(super) fn command(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["policy", settings @ ..] => settings.iter().try_for_each(|s| self.set_policy(s)),
            ["recipe", recipe] => self.set_recipe(recipe),
            // For members that start from now on.
            ["order", sites @ ..] => {
                let sites: Result<Vec<_>, _> = sites.iter().map(|site| SiteId::new(*site)).collect();
                self.recipe = Recipe::Elector(Arc::new(SiteOrder(sites.map_err(|e| e.to_string())?)));
                Ok(())
            }
            ["grant", span] => parse(span).map(|span| self.granted = span),
            ["start", "checked", rest @ ..] => rest
                .iter()
                .try_for_each(|name| self.start(name, Leftovers::Wait, |me| me.health = Health::Unknown)),
            ["start", name, "above", "term", term, "and", "token", token] => {
                let number = |text: &str| text.parse().map_err(|e| format!("{text}: {e}"));
                let known = (number(term)?, number(token)?);
                self.prepare(name, Leftovers::Wait, |_| ())?;
                self.member(name)?.engine.begin_above(known.0, known.1);
                self.connect(name)
            }
            // Two members of one process can share a session.
            ["start", name, "on", "the", "session", "of", other] => {
                let session = self.member(other)?.session;
                self.prepare(name, Leftovers::Wait, |_| ())?;
                self.connect_on(name, session)
            }
            ["start", rest @ ..] => {
                rest.iter().try_for_each(|name| self.start(name, Leftovers::Wait, |_| ()))
            }
            [
                "restart",
                name,
                "knowing",
                "that",
                "nothing",
                "is",
                "left",
                "on",
                "the",
                "session",
                "of",
                other,
            ] => {
                let session = self.member(other)?.session;
                self.prepare(name, Leftovers::Remove, |_| ())?;
                self.connect_on(name, session)
            }
            ["restart", name, "knowing", "that", "nothing", "is", "left"] => {
                self.start(name, Leftovers::Remove, |_| ())
            }
            // The policy and the order as they are set now.
            ["reconfigure", names @ ..] => names.iter().try_for_each(|name| self.reconfigure(name)),
            ["crash", name] => {
                self.members.remove(*name).map(drop).ok_or(format!("there is no member {name}"))
            }
            ["lease", name, span] => self.lease(name, span),
            ["app", name, rest @ ..] => self.app(name, rest),
            ["pause", name] => {
                let member = self.member(name)?;
                member.connected = false;
                let epoch = member.epoch;
                self.feed(name, Event::SessionPaused(epoch))
            }
            // No watch has news, as where all that was read went back with a copy.
            ["resume", name, "without", "news"] => {
                let member = self.member(name)?;
                member.connected = true;
                let epoch = member.epoch;
                self.feed(name, Event::SessionResumed(epoch))
            }
            ["resume", name] => {
                let member = self.member(name)?;
                member.connected = true;
                let epoch = member.epoch;
                let watched: Vec<_> = member.watched.keys().cloned().collect();
                self.feed(name, Event::SessionResumed(epoch))?;
                for watched in watched {
                    self.pending.push_back(Pending::Watch { member: (*name).to_owned(), watched });
                }
                Ok(())
            }
            ["expire", name] => {
                let session = self.member(name)?.session;
                self.end_session(session);
                Ok(())
            }
            ["expire", "session", id] => {
                let session = i64::from_str_radix(id, 16).map_err(|e| e.to_string())?;
                self.end_session(session);
                Ok(())
            }
            ["over", name] => {
                let member = self.member(name)?;
                member.connected = false;
                let epoch = member.epoch;
                self.feed(name, Event::SessionOver(epoch))
            }
            ["connect", name] => self.connect(name),
            ["freeze", name] => self.member(name).map(|m| m.frozen = true),
            ["thaw", name] => {
                self.member(name)?.frozen = false;
                Ok(())
            }
            ["cut", name] => self.member(name).map(|m| m.connected = false),
            ["hold", "operations", "of", name] => self.member(name).map(|m| m.holds_operations = true),
            ["hold", "watches", "of", name] => self.member(name).map(|m| m.holds_watches = true),
            ["hold", "replies", "to", name] => self.member(name).map(|m| m.holds_replies = true),
            ["hold", "the", "watch", "of", name, "on", path] => {
                let path = self.absolute(path);
                self.member(name).map(|m| _ = m.unread.insert(path))
            }
            ["server", "of", name, "lacks", path] => {
                let path = self.absolute(path);
                self.member(name).map(|m| _ = m.lacks.insert(path))
            }
            // The session has moved to another one.
            ["another", "server", "for", name] => {
                self.member(name)?.lacks.clear();
                self.command(&["pause", name])?;
                self.command(&["resume", name])
            }
            ["let", "operations", "of", name, "go"] => self.member(name).map(|m| m.holds_operations = false),
            ["let", "go", name] => self.member(name).map(|m| {
                m.holds_operations = false;
                m.holds_watches = false;
                m.holds_replies = false;
                m.unread.clear();
            }),
            ["lose", what @ ("reply" | "request"), name, verb, path] => {
                self.losses.push(Loss {
                    member: (*name).to_owned(),
                    verb: (*verb).to_owned(),
                    path: (*path).to_owned(),
                    applied: *what == "reply",
                });
                Ok(())
            }
            ["the", "lost", "request", "arrives"] => {
                let (name, session, request) = self.lost.pop_front().ok_or("no request is lost")?;
                let applied = self.zk.apply(self.now_ms, session, self.zk.zxid(), &request);
                let told = self.operation_in_words(&request);
                self.say(&format!("{name} -> {told}{}, late", outcome_in_words(&applied.outcome)));
                self.changed(&applied.changed);
                Ok(())
            }
            ["advance", span] => self.advance(parse(span)?),
            ["health", name, "well"] => self.feed(name, Event::Health(Health::Healthy)),
            ["health", name, "unknown"] => self.feed(name, Event::Health(Health::Unknown)),
            ["health", name, "unwell"] => {
                let reason = "the disk is full".to_owned();
                self.feed(name, Event::Health(Health::Unhealthy { reason }))
            }
            ["probes", name, "lose", lost @ ..] => self.probes(name, lost),
            ["resign", name, "within", span] => {
                let by = self.now().time + parse(span)?;
                self.feed(name, Event::Wish(Wish::ResignBy { by, reason: "it is time".to_owned() }))
            }
            ["resign", name, why @ ..] => self.feed(name, Event::Wish(Wish::Resign(why.join(" ")))),
            ["withdraw", name, why @ ..] => self.feed(name, Event::Wish(Wish::Withdraw(why.join(" ")))),
            ["rejoin", name] => self.feed(name, Event::Wish(Wish::Rejoin)),
            ["block", name, why @ ..] => self.feed(name, Event::Wish(Wish::BlockSwitchover(why.join(" ")))),
            ["ask", name, "before", "moves"] => self.feed(name, Event::Wish(Wish::AskBeforeMoves)),
            ["allow", name] => self.feed(name, Event::Wish(Wish::AllowSwitchover)),
            ["leave", name] => self.feed(name, Event::Leave { hand_over: true }),
            ["leave", name, "at", "once"] => self.feed(name, Event::Leave { hand_over: false }),
            ["delete", "ballot", "of", name] => {
                let ballot = self.member(name)?.engine.ballot().ok_or("it has no ballot")?;
                let path = self.paths.ballot(&ballot);
                self.admin(|zk, now| zk.delete(now, &path, None))
            }
            ["ballots", "wrap"] => {
                self.zk.wrap(&self.paths.election());
                Ok(())
            }
            ["stranger", "creates", path] => {
                let (session, path) = (self.zk.open(self.now_ms, 10_000), self.absolute(path));
                let (path, _) = self.zk.create_sequential(self.now_ms, &path, b"stranger".to_vec(), session);
                self.say(&format!("session {session:x} creates {path}"));
                self.changed(&[path]);
                Ok(())
            }
            ["delete", path] => {
                let path = self.absolute(path);
                self.admin(|zk, now| zk.delete(now, &path, None))
            }
            ["deleteall", path @ ..] => {
                let path = self.absolute(path.first().unwrap_or(&""));
                let gone = self.zk.delete_tree(self.now_ms, path.trim_end_matches('/'));
                if gone.is_empty() {
                    return Err(format!("there is no {path}"));
                }
                self.changed(&gone);
                Ok(())
            }
            ["copy", "the", "ensemble"] => {
                self.copy = Some(self.zk.clone());
                Ok(())
            }
            ["restore", "the", "ensemble"] => {
                let copy = self.copy.clone().ok_or("there is no copy")?;
                let (changed, _) = self.zk.restore(copy, false);
                self.zk.elect_leader(self.now_ms);
                self.changed(&changed);
                Ok(())
            }
            ["spoil", path] => {
                let path = self.absolute(path);
                self.admin(|zk, now| zk.set(now, &path, b"garbage".to_vec(), None))
            }
            // As another program would have written it.
            ["edit", path, key, value] => {
                let path = self.absolute(path);
                let data = self.zk.get(&path).ok_or(format!("there is no {path}"))?.data.clone();
                let mut record: Value = serde_json::from_slice(&data).map_err(|e| e.to_string())?;
                record[*key] = serde_json::from_str(value).map_err(|e| e.to_string())?;
                self.admin(|zk, now| zk.set(now, &path, record.to_string().into_bytes(), None))
            }
            // Empty servers: no znode, no session, and transactions count anew.
            ["wipe", "the", "ensemble"] => {
                let (changed, _) = self.zk.restore(super::Ensemble::new(), false);
                self.changed(&changed);
                Ok(())
            }
            ["mode", mode] => self.mode(mode),
            ["drain", sites @ ..] => self.drain(sites),
            ["service", member, site] => {
                let order = serde_json::json!([{ "member": member, "site": site }]);
                let maintenance = serde_json::from_value(order).map_err(|e| e.to_string())?;
                self.order(&Control::default().with(|control| control.maintenance = maintenance))
            }
            ["stay", terms @ ..] => {
                let terms: Result<_, _> = terms.iter().map(|term| term.parse::<u64>()).collect();
                let stay = terms.map_err(|e| e.to_string())?;
                self.order(&Control::default().with(|control| control.stay = stay))
            }
            ["confirm", term, site] => {
                let term = term.parse().map_err(|_| "a term")?;
                let site = SiteId::new(*site).map_err(|e| e.to_string())?;
                let confirmed = vec![Confirmed { term, site, by: "desk".to_owned() }];
                self.order(&Control::default().with(|control| control.confirmed = confirmed))
            }
            ["fail", sites @ ..] => self.declare_failed(sites),
            ["site", name, "well"] => self.feed(name, Event::SiteHealth(Some(Health::Healthy))),
            ["site", name, "unwell"] => {
                let reason = "its uplink is down".to_owned();
                self.feed(name, Event::SiteHealth(Some(Health::Unhealthy { reason })))
            }
            ["ack"] => self.acknowledge(Forgotten::HOLD),
            ["ack", "all"] => self.acknowledge(Forgotten::ALL),
            ["request", kind, rest @ ..] => self.request(kind, rest),
            ["cancel", name] => self.cancel(name),
            ["raise", "tokens", "above", token] => self.raise_tokens(token),
            ["foreign", "record", "of", name] => self.foreign_record(name),
            ["foreign", "place"] => self.foreign_place(),
            ["show", rest @ ..] => {
                self.show(rest);
                Ok(())
            }
            _ => Err(format!("no such command: {}", words.join(" "))),
        }
    }

    // ---- the commands of a script ----

    fn set_policy(&mut self, setting: &str) -> Result<(), String> {
        let (key, value) = setting.split_once('=').ok_or("key=value")?;
        let policy = &mut self.policy;
        match key {
            "slots" => policy.slots = value.parse().map_err(|_| "a count")?,
            "spread" if value == "sites" => self.recipe = Recipe::Elector(Arc::new(Spread(super::sites()))),
            "on_pause" if value == "freeze" => {
                policy.on_pause = OnPause::Freeze { kill_budget: std::time::Duration::from_millis(400) };
            }
            "on_pause" if value == "keep" => policy.on_pause = OnPause::Keep { max_pause: None },
            "stop_budget" => policy.stop_budget = Some(parse(value)?),
            "takeover_timeout" => policy.takeover_timeout = parse(value)?,
            "release_timeout" => policy.release_timeout = parse(value)?,
            "acquire_timeout" => policy.acquire_timeout = parse(value)?,
            "exclusion" => policy.exclusion = parse(value)?,
            "max_exclusion" => policy.max_exclusion = parse(value)?,
            "penalty_window" => policy.penalty_window = parse(value)?,
            "min_tenure" => policy.min_tenure = parse(value)?,
            "max_site_failures" => {
                let count = value.parse().map_err(|_| "a count")?;
                policy.max_site_failures.count = count;
            }
            "site_gone_after" => policy.site_gone_after = parse(value)?,
            "confirm" if value == "cross-site" => policy.confirm = Confirm::CrossSite,
            "better_after" => policy.better_after = parse(value)?,
            "failback_windows" => {
                policy.failback_windows = Windows::read(&[value]).map_err(|e| e.to_string())?;
            }
            "startup_wait" => policy.startup_wait = parse(value)?,
            "history_kept" => policy.history_kept = value.parse().map_err(|_| "a number")?,
            "suspect_after" => {
                policy.fenced = true;
                policy.fast_failover = true;
                policy.suspect_after = parse(value)?;
            }
            "max_takeovers" => {
                let (count, within) = value.split_once('/').ok_or("count/window")?;
                let count = count.parse().map_err(|_| "a count")?;
                policy.max_takeovers = TakeoverLimit { count, within: parse(within)? };
            }
            _ => return Err(format!("no such setting: {setting}")),
        }
        Ok(())
    }

    fn set_recipe(&mut self, recipe: &str) -> Result<(), String> {
        self.recipe = match recipe {
            "queue" => Recipe::Queue(QueueFormat::Native),
            "leader-latch" => Recipe::Queue(QueueFormat::LeaderLatch),
            "kazoo-election" => Recipe::Queue(QueueFormat::KazooElection),
            "single" => Recipe::Single,
            _ => return Err(format!("no such recipe: {recipe}")),
        };
        Ok(())
    }

    fn start(&mut self, name: &str, leftovers: Leftovers, with: impl Fn(&mut Profile)) -> Result<(), String> {
        self.prepare(name, leftovers, with)?;
        self.connect(name)
    }

    fn prepare(
        &mut self,
        name: &str,
        leftovers: Leftovers,
        with: impl Fn(&mut Profile),
    ) -> Result<(), String> {
        let mut config = self.config(name, leftovers)?;
        with(Arc::make_mut(&mut config.member));
        self.started += 1;
        let engine = Engine::new(config, self.started, self.now());
        let member = Member {
            engine,
            session: 0,
            epoch: 0,
            connected: false,
            frozen: false,
            holds_operations: false,
            holds_watches: false,
            holds_replies: false,
            unread: BTreeSet::new(),
            lacks: BTreeSet::new(),
            inbox: VecDeque::new(),
            watched: BTreeMap::new(),
        };
        self.members.insert(name.to_owned(), member);
        Ok(())
    }

    /// The settings of a member as they are set now.
    fn config(&self, name: &str, leftovers: Leftovers) -> Result<Config, String> {
        let site = name.split('-').next().unwrap_or(name);
        let member = MemberId::new(name).map_err(|e| e.to_string())?;
        let site = SiteId::new(site).map_err(|e| e.to_string())?;
        Ok(Config {
            paths: self.paths.clone(),
            member: Profile::new(member).in_site(site).into(),
            policy: self.policy.clone().into(),
            leftovers,
            recipe: self.recipe.clone(),
        })
    }

    fn reconfigure(&mut self, name: &str) -> Result<(), String> {
        let (config, now) = (self.config(name, Leftovers::Wait)?, self.now());
        self.member(name)?.engine.reconfigure(now, config);
        self.feed(name, Event::Tick)
    }

    fn connect(&mut self, name: &str) -> Result<(), String> {
        let session = self.zk.open(self.now_ms, 10_000);
        self.connect_on(name, session)
    }

    fn connect_on(&mut self, name: &str, session: i64) -> Result<(), String> {
        let member = self.member(name)?;
        if !member.engine.is_clear() {
            return Err(format!("{name} is not clear: what it did on its former session still runs"));
        }
        member.session = session;
        member.epoch += 1;
        member.connected = true;
        member.watched.clear();
        let epoch = member.epoch;
        self.say(&format!("{name} <- session {session:x}"));
        self.feed(name, Event::SessionStarted { epoch, session_id: session, granted: self.granted })
    }

    fn lease(&mut self, names: &str, span: &str) -> Result<(), String> {
        let valid_until = self.now().time + parse(span)?;
        let all: Vec<_> = match names {
            "all" => self.members.keys().cloned().collect(),
            name => vec![name.to_owned()],
        };
        for name in all {
            let epoch = self.member(&name)?.epoch;
            self.feed(&name, Event::Lease { epoch, valid_until })?;
        }
        Ok(())
    }

    fn app(&mut self, name: &str, answer: &[&str]) -> Result<(), String> {
        let why = || answer.get(1..).map(|w| w.join(" ")).unwrap_or_default();
        let event = match answer {
            ["prepared"] => AppEvent::Prepared,
            ["prepare-failed", ..] => AppEvent::PrepareFailed(why()),
            ["taken-over-with", ..] => AppEvent::TakenOverWith(why()),
            ["taken-over"] => AppEvent::TakenOver,
            ["takeover-failed", ..] => AppEvent::TakeoverFailed(why()),
            ["declined", ..] => AppEvent::Declined(why()),
            ["work-failed", ..] => AppEvent::WorkFailed(why()),
            ["may-move"] => AppEvent::MoveAccepted,
            ["calls-off", ..] => AppEvent::MoveDeclined(why()),
            ["work-finished"] => AppEvent::WorkFinished,
            ["stopped"] => AppEvent::Stopped,
            _ => return Err(format!("no such answer: {answer:?}")),
        };
        self.feed(name, Event::App(event))
    }

    fn advance(&mut self, span: Duration) -> Result<(), String> {
        let end = self.now_ms + u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        for _ in 0..STEPS {
            let due = |m: &Member| m.engine.wakeup().filter(|_| !m.frozen);
            let next = self.members.iter().filter_map(|(name, m)| Some((due(m)?, name.clone()))).min();
            let Some((at, name)) = next else { break };
            let at = u64::try_from(at.since_origin().as_millis()).unwrap_or(u64::MAX) + 1;
            if at > end {
                break;
            }
            self.now_ms = self.now_ms.max(at);
            let mark = self.out.len();
            self.feed(&name, Event::Tick)?;
            self.settle()?;
            if self.out.len() > mark {
                let stamp = format!("({:.1} s)\n", self.now_ms as f64 / 1000.0);
                self.out.insert_str(mark, &stamp);
            }
        }
        self.now_ms = end;
        Ok(())
    }

    fn mode(&mut self, mode: &str) -> Result<(), String> {
        let mode = match mode {
            "auto" => Mode::Auto,
            "manual" => Mode::Manual,
            "observe" => Mode::Observe,
            _ => return Err(format!("no such mode: {mode}")),
        };
        self.order(&Control::default().with(|control| control.mode = mode))
    }

    fn declare_failed(&mut self, sites: &[&str]) -> Result<(), String> {
        let failed = |site: &&str| {
            let site = SiteId::new(*site).map_err(|e| e.to_string())?;
            Ok::<_, String>(FailedSite {
                site,
                ordered: OrderedBy { reason: Some("flood".to_owned()), by: "ann".to_owned(), at_ms: 0 },
            })
        };
        let failed_sites = sites.iter().map(failed).collect::<Result<_, _>>()?;
        self.order(&Control::default().with(|control| control.failed_sites = failed_sites))
    }

    fn drain(&mut self, sites: &[&str]) -> Result<(), String> {
        let sites: Result<_, _> = sites.iter().map(|site| SiteId::new(*site)).collect();
        let drained = sites.map_err(|e| e.to_string())?;
        self.order(&Control::default().with(|control| control.drained = drained))
    }

    fn acknowledge(&mut self, what: Forgotten) -> Result<(), String> {
        let path = self.paths.elected();
        let node = self.zk.get(&path).ok_or("nothing is decided")?;
        let elected = Elected::decode(&path, &node.data).map_err(|e| e.to_string())?;
        let (next, _) = internals::acknowledge(&elected, what).ok_or("nothing to acknowledge")?;
        let data = next.encode(&path).map_err(|e| e.to_string())?;
        self.admin(|zk, now| zk.set(now, &path, data, None))
    }

    fn order(&mut self, control: &Control) -> Result<(), String> {
        let path = self.paths.control();
        let data = control.encode(&path).map_err(|e| e.to_string())?;
        self.put(path, data)
    }

    /// Writes a znode that may not exist yet.
    fn put(&mut self, path: String, data: Vec<u8>) -> Result<(), String> {
        if self.zk.get(&path).is_some() {
            return self.admin(|zk, now| zk.set(now, &path, data, None));
        }
        self.zk.create(self.now_ms, &path, data, 0);
        self.changed(&[path]);
        Ok(())
    }

    fn request(&mut self, kind: &str, rest: &[&str]) -> Result<(), String> {
        let kind = match kind {
            "switchover" => RequestKind::Switchover,
            "failover" => RequestKind::Failover,
            _ => return Err(format!("no such request: {kind}")),
        };
        let (force, now) = (rest.contains(&"by-force"), rest.contains(&"now"));
        let valid_for = match rest.iter().position(|w| *w == "for").and_then(|at| rest.get(at + 1)) {
            None => AdminRequest::USUAL_VALIDITY,
            Some(span) => parse(span)?,
        };
        let to = match rest.iter().position(|w| *w == "to").and_then(|at| rest.get(at + 1)) {
            None => Target::Any,
            Some(site @ (&"east" | &"west")) => Target::Site(SiteId::new(*site).map_err(|e| e.to_string())?),
            Some(member) => Target::Member(MemberId::new(*member).map_err(|e| e.to_string())?),
        };
        let from = match rest.iter().position(|w| *w == "from").and_then(|at| rest.get(at + 1)) {
            None => Outgoing::Only,
            Some(member) => Outgoing::Member(MemberId::new(*member).map_err(|e| e.to_string())?),
        };
        let prefix = self.paths.request_prefix();
        let mut request =
            AdminRequest::new("1".to_owned(), kind, to, "ann".to_owned(), UNIX_MS + self.now_ms);
        (request.from, request.force, request.now) = (from, force, now);
        // Planned: `at 30s` is in so long.
        let request = match rest.iter().position(|w| *w == "at").and_then(|at| rest.get(at + 1)) {
            None => request.with_validity(valid_for),
            Some(span) => {
                let at = Duration::from_millis(UNIX_MS + self.now_ms) + parse(span)?;
                request.planned_for(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), valid_for)
            }
        };
        let data = request.encode(&prefix).map_err(|e| e.to_string())?;
        let mut changed = self.zk.make_parents(self.now_ms, &prefix);
        changed.push(self.zk.create_sequential(self.now_ms, &prefix, data, 0).0);
        self.changed(&changed);
        Ok(())
    }

    /// What `dr-worker cancel` does.
    fn cancel(&mut self, name: &str) -> Result<(), String> {
        let path = self.paths.request(name);
        let node = self.zk.get(&path).cloned().ok_or_else(|| format!("there is no request {name}"))?;
        let mut request = AdminRequest::decode(&path, &node.data).map_err(|e| e.to_string())?;
        if !request.state.is_unbegun() {
            self.say(&format!("{name} is not pending any more"));
            return Ok(());
        }
        let at_ms = UNIX_MS + self.now_ms;
        request.state = RequestState::Cancelled { reason: "by bob".to_owned(), at_ms };
        let data = request.encode(&path).map_err(|e| e.to_string())?;
        self.admin(|zk, now| zk.set(now, &path, data, Some(node.version)))
    }

    fn raise_tokens(&mut self, above: &str) -> Result<(), String> {
        let above = above.parse().map_err(|e| format!("{above}: {e}"))?;
        if !matches!(self.recipe, Recipe::Elector(_)) {
            let tokens = serde_json::json!({ "v": 1, "token_base": above, "by": "ann" });
            return self.put(self.paths.tokens(), tokens.to_string().into_bytes());
        }
        let path = self.paths.elected();
        let read = self.zk.get(&path).map(|node| Elected::decode(&path, &node.data)).transpose();
        let elected = read.map_err(|e| e.to_string())?;
        let base = elected.as_ref().map_or(0, |e| e.token_base);
        let lowest_token =
            self.zk.get(&self.paths.leader_znode(0)).and_then(|node| fencing_token(node.czxid, base));
        let unix_ms = UNIX_MS + self.now_ms;
        let raised = internals::raise_tokens(elected.as_ref(), lowest_token, above, "ann", unix_ms);
        match raised.map_err(|e| e.to_string())? {
            Some(next) => {
                let data = next.encode(&path).map_err(|e| e.to_string())?;
                self.put(path, data)
            }
            None => {
                self.say("they are already");
                Ok(())
            }
        }
    }

    /// A round of probes of each of these members (`a,b`) reaches none of `lost`.
    fn probes(&mut self, names: &str, lost: &[&str]) -> Result<(), String> {
        let nodes = self.zk.tree_at(&self.paths.nodes(), self.zk.zxid());
        let mut unanswered = BTreeSet::new();
        for name in lost.iter().filter(|name| **name != "nobody") {
            let node = nodes.get(*name).ok_or_else(|| format!("{name} has no record"))?;
            let record = MemberRecord::decode(name, &node.data).map_err(|e| e.to_string())?;
            unanswered.insert(record.ballot);
        }
        for name in names.split(',') {
            self.feed(name, Event::Probed(unanswered.clone()))?;
        }
        Ok(())
    }

    /// Another session holds this member's record.
    fn foreign_record(&mut self, name: &str) -> Result<(), String> {
        let session = self.zk.open(self.now_ms, 10_000);
        let member = MemberId::new(name).map_err(|e| e.to_string())?;
        let path = self.paths.node(&member);
        let data = br#"{"v":1,"member":"east-1","site":"east","ballot":"other-0000000000"}"#.to_vec();
        self.zk.create(self.now_ms, &path, data, session);
        self.say(&format!("session {session:x} holds nodes/{name}"));
        self.changed(&[path]);
        Ok(())
    }

    /// A foreign session holds the leader znode for a moment.
    fn foreign_place(&mut self) -> Result<(), String> {
        let session = self.zk.open(self.now_ms, 10_000);
        let path = self.paths.leader_znode(0);
        let data = br#"{"v":1,"member":"west-9","site":"west","ballot":"other-0000000009","term":2,
            "status":"PROGRESS","since_ms":0}"#;
        self.zk.create(self.now_ms, &path, data.to_vec(), session);
        self.say(&format!("session {session:x} holds leader/current"));
        self.changed(&[path]);
        Ok(())
    }

    fn show(&mut self, what: &[&str]) {
        if what.first() == Some(&"members") {
            for (name, member) in &self.members {
                let elector = if member.engine.is_elector() { ", elector" } else { "" };
                let line = format!("{name}: {}{elector}", member.engine.role());
                let _ = writeln!(self.out, "{line}");
            }
            return;
        }
        let base = self.paths.base().to_owned();
        let parents =
            ["nodes", "election", "leader", "queue", "requests", "history"].map(|p| format!("{base}/{p}"));
        // The queue of another implementation has no znode above it.
        let foreign = matches!(self.recipe, Recipe::Queue(format) if format != QueueFormat::Native);
        let parents = foreign.then_some(base).into_iter().chain(parents);
        for parent in parents {
            for (name, node) in self.zk.tree_at(&parent, self.zk.zxid()) {
                let path = format!("{parent}/{name}");
                let owner =
                    if node.owner == 0 { String::new() } else { format!(" (session {:x})", node.owner) };
                let line = format!("{}{owner}", self.written(&path, &node.data));
                self.say(&line);
            }
        }
    }
}

fn parse(span: &str) -> Result<Duration, String> {
    let number = |text: &str| text.parse::<f64>().map_err(|e| format!("{span}: {e}"));
    match (span.strip_suffix("ms"), span.strip_suffix('s')) {
        (Some(ms), _) => Ok(Duration::from_secs_f64(number(ms)? / 1000.0)),
        (None, Some(s)) => Ok(Duration::from_secs_f64(number(s)?)),
        _ => Err(format!("{span}: a number and 's' or 'ms'")),
    }
}
