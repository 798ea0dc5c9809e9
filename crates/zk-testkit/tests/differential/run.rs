//! Runs a program against one server and writes down all that its clients see, in
//! words that are the same for two servers that behave alike.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use crate::program::{Ask, CLIENTS, Password, Step};
use crate::wire::{Body, Client, EVENT_XID, Fields, Frame};

const TIMEOUT_MS: i32 = 20_000;
const PING: i32 = 11;
const AUTH: i32 = 100;
const CLOSE: i32 = -11;

/// One line for each thing seen.
pub(crate) fn run(address: SocketAddr, root: &str, program: &[Step]) -> Vec<String> {
    match Run::begin(address, root) {
        Ok(mut run) => {
            for (index, step) in program.iter().enumerate() {
                run.seen.push(format!("step {index}: {step:?}"));
                if let Err(error) = run.step(step) {
                    run.seen.push(format!("the connection failed: {:?}", error.kind()));
                    break;
                }
            }
            run.end();
            run.seen
        }
        Err(error) => vec![format!("no beginning: {error}")],
    }
}

struct Run {
    address: SocketAddr,
    root: String,
    clients: Vec<Client>,
    /// Sessions that nobody is connected to, with their passwords.
    left: Vec<(i64, Vec<u8>)>,
    /// Every session that there was, in order of appearance.
    sessions: Vec<i64>,
    /// The zxid at which the program began.
    began: i64,
    last: i64,
    seen: Vec<String>,
}

impl Run {
    fn begin(address: SocketAddr, root: &str) -> io::Result<Self> {
        let mut run = Self {
            address,
            root: root.to_owned(),
            clients: Vec::new(),
            left: Vec::new(),
            sessions: Vec::new(),
            began: 0,
            last: 0,
            seen: Vec::new(),
        };
        for _ in 0..CLIENTS {
            let client = run.connect(0, &[0; 16])?;
            run.clients.push(client);
        }
        let create = Ask::Create {
            code: 1,
            path: String::new(),
            data: None,
            acl: vec![(31, "world", "anyone")],
            flags: 0,
            ttl: -1,
        };
        let xid = run.clients[0].ask(1, &create.body(root, 0))?;
        for frame in run.clients[0].frames_to(xid)? {
            assert_eq!(frame.error, 0, "the root of the program");
            run.began = frame.zxid;
        }
        Ok(run)
    }

    /// Leaves no session behind that would expire in the middle of a later program.
    fn end(&mut self) {
        for (session, password) in std::mem::take(&mut self.left) {
            if let Ok(client) = Client::connect(self.address, TIMEOUT_MS, session, &password, self.last) {
                self.clients.push(client);
            }
        }
        for client in &mut self.clients {
            if let Ok(xid) = client.ask(CLOSE, &Body::default()) {
                let _ = client.frames_to(xid);
            }
        }
    }

    fn connect(&mut self, session: i64, password: &[u8]) -> io::Result<Client> {
        let client = Client::connect(self.address, TIMEOUT_MS, session, password, self.last)?;
        if client.session != 0 && !self.sessions.contains(&client.session) {
            self.sessions.push(client.session);
        }
        let name = self.name_of(client.session);
        self.seen.push(format!("  connected: session {name}, timeout {}", client.timeout_ms));
        Ok(client)
    }

    fn step(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Ask(client, ask) => self.ask(*client, std::slice::from_ref(ask))?,
            Step::Burst(client, asks) => self.ask(*client, asks)?,
            Step::Renew(index) => {
                let xid = self.clients[*index].ask(CLOSE, &Body::default())?;
                for frame in self.clients[*index].frames_to(xid)? {
                    self.note(*index, &frame, None);
                }
                let closed = self.clients[*index].is_closed();
                self.seen.push(format!("  closed by the server: {closed}"));
                self.clients[*index] = self.connect(0, &[0; 16])?;
            }
            Step::Return(index, password) => {
                let (session, mut right) =
                    (self.clients[*index].session, self.clients[*index].password.clone());
                if *password == Password::Wrong {
                    right[0] ^= 1;
                }
                let mut back = self.connect(session, &right)?;
                if back.session == 0 {
                    self.seen.push(format!("  closed by the server: {}", back.is_closed()));
                    right[0] ^= 1;
                    self.left.push((session, right));
                    back = self.connect(0, &[0; 16])?;
                }
                self.clients[*index] = back;
            }
            Step::Identify(index, scheme, proof) => {
                let body = Body::default().int(0).string(scheme).string(proof);
                let xid = self.clients[*index].ask(AUTH, &body)?;
                for frame in self.clients[*index].frames_to(xid)? {
                    self.note(*index, &frame, None);
                }
            }
        }
        self.hear_all()
    }

    fn ask(&mut self, index: usize, asks: &[Ask]) -> io::Result<()> {
        let mut asked = Vec::new();
        for ask in asks {
            let body = ask.body(&self.root, self.began);
            asked.push((self.clients[index].ask(ask.code(), &body)?, ask));
        }
        for (xid, ask) in asked {
            for frame in self.clients[index].frames_to(xid)? {
                let answered = (frame.xid == xid).then_some(ask);
                self.note(index, &frame, answered);
            }
        }
        Ok(())
    }

    /// Whatever was sent to anyone before now comes before the answer to a ping.
    fn hear_all(&mut self) -> io::Result<()> {
        for index in 0..self.clients.len() {
            let xid = self.clients[index].ask(PING, &Body::default())?;
            for frame in self.clients[index].frames_to(xid)? {
                if frame.xid != xid {
                    self.note(index, &frame, None);
                } else {
                    self.last = frame.zxid;
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, client: usize, frame: &Frame, ask: Option<&Ask>) {
        let mut text = format!("  client {client}: ");
        let mut fields = Fields(&frame.body);
        if frame.xid == EVENT_XID {
            let _ = write!(text, "event zxid {} error {}: ", frame.zxid, frame.error);
            let _ = write!(text, "{} {} {:?}", fields.int(), fields.int(), fields.string());
        } else {
            // What authentication is answered with has none.
            let zxid = if frame.zxid == 0 { "none".to_owned() } else { self.zxid(frame.zxid) };
            let _ = write!(text, "reply zxid {zxid} error {}: ", frame.error);
            if let Some(ask) = ask.filter(|_| !frame.body.is_empty()) {
                self.describe(&mut text, ask, &mut fields);
            }
        }
        if !fields.0.is_empty() {
            let _ = write!(text, " and {:?}", fields.0);
        }
        self.seen.push(text);
    }

    fn describe(&self, text: &mut String, ask: &Ask, fields: &mut Fields<'_>) {
        match ask {
            Ask::Create { code, .. } => {
                let _ = write!(text, "{:?}", fields.string());
                if *code != 1 {
                    self.stat(text, fields);
                }
            }
            Ask::Exists { .. } | Ask::SetData { .. } | Ask::SetAcl { .. } => self.stat(text, fields),
            Ask::GetData { .. } => {
                let _ = write!(text, "{:?}", fields.buffer());
                self.stat(text, fields);
            }
            Ask::GetAcl { .. } => {
                for _ in 0..fields.int() {
                    let _ = write!(text, "{}:{}:{} ", fields.int(), fields.string(), fields.string());
                }
                self.stat(text, fields);
            }
            Ask::GetChildren { code, .. } => {
                names(text, fields);
                if *code == 12 {
                    self.stat(text, fields);
                }
            }
            Ask::GetEphemerals { .. } => names(text, fields),
            Ask::Sync { .. } => text.push_str(&fields.string()),
            Ask::AddWatch { .. } | Ask::CountBelow { .. } => {
                let _ = write!(text, "{}", fields.int());
            }
            Ask::WhoAmI => {
                for _ in 0..fields.int() {
                    let _ = write!(text, "{}:{} ", fields.string(), fields.string());
                }
            }
            Ask::Multi(_) | Ask::MultiRead(_) => self.parts(text, fields),
            Ask::Short(ask, _) => self.describe(text, ask, fields),
            Ask::Delete { .. } | Ask::Ping | Ask::Watches { .. } | Ask::SetWatches { .. } | Ask::Reconfig => {
            }
        }
    }

    fn parts(&self, text: &mut String, fields: &mut Fields<'_>) {
        loop {
            let (code, done, error) = (fields.int(), fields.bool(), fields.int());
            let _ = write!(text, "[{code} {done} {error}");
            if !done {
                match code {
                    -1 => {
                        let _ = write!(text, " {}", fields.int());
                    }
                    1 => {
                        let _ = write!(text, " {:?}", fields.string());
                    }
                    15 => {
                        let _ = write!(text, " {:?}", fields.string());
                        self.stat(text, fields);
                    }
                    4 => {
                        let _ = write!(text, " {:?}", fields.buffer());
                        self.stat(text, fields);
                    }
                    5 => self.stat(text, fields),
                    8 => names(text, fields),
                    _ => {}
                }
            }
            text.push(']');
            if done {
                return;
            }
        }
    }

    /// All fields but the two times.
    fn stat(&self, text: &mut String, fields: &mut Fields<'_>) {
        let (czxid, mzxid) = (fields.long(), fields.long());
        let (_ctime, _mtime) = (fields.long(), fields.long());
        let (version, cversion, aversion) = (fields.int(), fields.int(), fields.int());
        let (owner, length, children, pzxid) = (fields.long(), fields.int(), fields.int(), fields.long());
        let _ = write!(
            text,
            " {{c {} m {} p {} version {version} {cversion} {aversion} owner {} length {length} children {children}}}",
            self.zxid(czxid),
            self.zxid(mzxid),
            self.zxid(pzxid),
            self.name_of(owner),
        );
    }

    /// Relative to the beginning; what was before is not compared.
    fn zxid(&self, zxid: i64) -> String {
        if zxid < self.began { "before".to_owned() } else { format!("+{}", zxid - self.began) }
    }

    fn name_of(&self, session: i64) -> String {
        match self.sessions.iter().position(|known| *known == session) {
            Some(index) => format!("#{index}"),
            None => format!("{session:#x}"),
        }
    }
}

/// In the order in which they came.
fn names(text: &mut String, fields: &mut Fields<'_>) {
    for _ in 0..fields.int() {
        let _ = write!(text, "{:?} ", fields.string());
    }
}
