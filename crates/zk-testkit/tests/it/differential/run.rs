//! Runs a program against one server and writes down all that its clients see, in
//! words that are the same for two servers that behave alike.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use zk_proto::{OpCode, Reply, Request, Stat, xid};

use super::program::{Ask, CLIENTS, Password, Step};
use crate::wire::{Client, Frame, NO_PASSWORD, OK, create};

const TIMEOUT_MS: i32 = 20_000;

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
            let client = run.connect(0, NO_PASSWORD)?;
            run.clients.push(client);
        }
        let created = run.clients[0].reply(&create(root, 0))?;
        assert_eq!(created.header.error, OK, "the root of the program");
        run.began = created.header.zxid;
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
            if let Ok(xid) = client.ask(&Request::CloseSession) {
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
                let xid = self.clients[*index].ask(&Request::CloseSession)?;
                for frame in self.clients[*index].frames_to(xid)? {
                    self.note(*index, &frame, None);
                }
                let closed = self.clients[*index].is_closed();
                self.seen.push(format!("  closed by the server: {closed}"));
                self.clients[*index] = self.connect(0, NO_PASSWORD)?;
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
                    back = self.connect(0, NO_PASSWORD)?;
                }
                self.clients[*index] = back;
            }
            Step::Identify(index, scheme, proof) => {
                let (scheme, credentials) = (Some((*scheme).into()), Some(proof.as_bytes().into()));
                let xid = self.clients[*index].ask(&Request::Auth { kind: 0, scheme, credentials })?;
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
            let request = ask.request(&self.root, self.began);
            asked.push((self.clients[index].ask(&request)?, request.op()));
        }
        for (xid, op) in asked {
            for frame in self.clients[index].frames_to(xid)? {
                let answered = (frame.header.xid == xid).then_some(op);
                self.note(index, &frame, answered);
            }
        }
        Ok(())
    }

    /// Whatever was sent to anyone before now comes before the answer to a ping.
    fn hear_all(&mut self) -> io::Result<()> {
        for index in 0..self.clients.len() {
            let xid = self.clients[index].ask(&Request::Ping)?;
            for frame in self.clients[index].frames_to(xid)? {
                if frame.header.xid != xid {
                    self.note(index, &frame, None);
                } else {
                    self.last = frame.header.zxid;
                }
            }
        }
        Ok(())
    }

    /// `op`: the kind of the request that it answers.
    fn note(&mut self, client: usize, frame: &Frame, op: Option<OpCode>) {
        let mut text = format!("  client {client}: ");
        let header = frame.header;
        if header.xid == xid::EVENT {
            let mut event = frame.event();
            if event.zxid > 0 {
                event.zxid = self.zxid(event.zxid);
            }
            let _ = write!(text, "{event:?}");
        } else {
            // What authentication is answered with has none.
            let zxid = if header.zxid == 0 { "none".to_owned() } else { self.zxid(header.zxid).to_string() };
            let _ = write!(text, "reply zxid {zxid} error {}: ", header.error.0);
            match op.filter(|_| header.error == OK) {
                Some(op) => {
                    let _ = write!(text, "{:?}", self.relative(frame.reply(op)));
                }
                None => {
                    let _ = write!(text, "{:?}", frame.body());
                }
            }
        }
        self.seen.push(text);
    }

    /// Without what two servers can't have in common.
    fn relative(&self, mut reply: Reply) -> Reply {
        match &mut reply {
            Reply::PathAndStat(_, stat)
            | Reply::Stat(stat)
            | Reply::Data(_, stat)
            | Reply::NamesAndStat(_, stat)
            | Reply::Acl(_, stat) => *stat = self.relative_stat(stat),
            Reply::Multi(parts) => {
                for (_, part) in parts {
                    if let Ok(Reply::PathAndStat(_, stat) | Reply::Stat(stat) | Reply::Data(_, stat)) = part {
                        *stat = self.relative_stat(stat);
                    }
                }
            }
            _ => {}
        }
        reply
    }

    fn relative_stat(&self, stat: &Stat) -> Stat {
        let owner = self.sessions.iter().zip(1..).find(|(known, _)| **known == stat.ephemeral_owner);
        Stat {
            czxid: self.zxid(stat.czxid),
            mzxid: self.zxid(stat.mzxid),
            pzxid: self.zxid(stat.pzxid),
            ctime_ms: 0,
            mtime_ms: 0,
            ephemeral_owner: owner.map_or(stat.ephemeral_owner, |(_, index)| index),
            ..*stat
        }
    }

    /// Relative to the beginning; what was before is not compared.
    fn zxid(&self, zxid: i64) -> i64 {
        (zxid - self.began).max(-1)
    }

    fn name_of(&self, session: i64) -> String {
        match self.sessions.iter().position(|known| *known == session) {
            Some(index) => format!("#{index}"),
            None => format!("{session:#x}"),
        }
    }
}
