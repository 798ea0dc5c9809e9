"use strict";
// All text from outside becomes text nodes; nothing is parsed as HTML.
const $ = (id) => document.getElementById(id);
const el = (tag, cls, ...children) => {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};
// Replaces the content of an element if it differs. The focus and the position of a scrolled table are kept.
const show = (id, ...children) => {
  const box = $(id);
  const fresh = box.cloneNode(false);
  fresh.append(...children.flat());
  if (fresh.isEqualNode(box)) return;
  const places = () => [...box.querySelectorAll("a, [tabindex]")];
  const focus = places().indexOf(document.activeElement);
  const left = (box.querySelector(".scroll") || box).scrollLeft;
  box.replaceChildren(...fresh.childNodes);
  if (focus >= 0 && places()[focus]) places()[focus].focus({ preventScroll: true });
  (box.querySelector(".scroll") || box).scrollLeft = left;
};
const pill = (text, kind) => el("p", `pill ${kind || ""}`, text);

let job = new URLSearchParams(location.search).get("job");
let drawn = null; // the job whose data is in the page
let skew = 0; // the server's clock minus this one
let asOf = 0;
let live = "connecting";
let source = null;

const now = () => Date.now() + skew;
const span = (ms) => {
  const s = Math.max(0, Math.round(ms / 1000));
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} d`;
};
const ago = (ms) => {
  const text = el("time", "", `${span(now() - ms)} ago`);
  const date = new Date(ms);
  if (!Number.isNaN(date.getTime())) text.title = text.dateTime = date.toISOString();
  return text;
};
const moment = (ms) => {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : `${date.toISOString().slice(0, 19)}Z`;
};
const fact = (name, ...value) => el("div", "", el("dt", "", name), el("dd", "", ...value));
const hasText = (text) => text !== null && text !== undefined && text !== "";

const jobQuery = (of) => (of ? `?job=${encodeURIComponent(of)}` : "");
const read = async (path, of) => {
  const answer = await fetch(path + jobQuery(of), { signal: AbortSignal.timeout(8000), cache: "no-store" });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error || `${path}: ${answer.status}`), { status: answer.status });
  return body;
};

// Colours of members, in the order of their first appearance.
const colours = new Map();
const colour = (member) => {
  if (!colours.has(member)) colours.set(member, colours.size % 6);
  return `c${colours.get(member)}`;
};

const ROLES = { leader: "good", "taking-over": "busy", "gave-up": "bad", "stepping-down": "busy", excluded: "bad", maintenance: "busy", drained: "busy", "site-failed": "bad", closed: "busy" };
const roleName = (role) => role.replace("-", " ");

// A link to a member's own page. What is no URL of a host and port stays text.
const memberName = (member) => {
  const name = el("b", "", member.member);
  if (!/^https?:\/\/([\w.-]+|\[[\da-f:]+\]):\d+$/i.test(member.http || "") || member.http === location.origin) return name;
  const link = el("a", "", name);
  link.href = `${member.http}/${jobQuery(job)}`;
  link.title = "the page of this member";
  return link;
};

const drawSummary = (cluster, status) => {
  const leads = cluster.slots.filter((slot) => slot.leader);
  const several = cluster.slots.length > 1;
  const own = (status.jobs || {})[cluster.election] || {};
  const serves = ({ leader }) => leader.status === "READY" && (leader.member !== status.member || own.serves);
  const ready = leads.length > 0 && leads.length === cluster.slots.length && leads.every(serves);
  const lines = cluster.slots.map(({ slot, leader, decision }) => {
    const text = leader ? `${leader.member} ${leader.status === "READY" ? "leads" : "takes over"} ${cluster.election}` : `No leader of ${cluster.election}`;
    const facts = [];
    if (leader) {
      facts.push(fact("site", leader.site), fact("since", ago(leader.ready_ms || leader.since_ms)));
      if (hasText(leader.fencing_token)) facts.push(fact("token", String(leader.fencing_token)));
      if (leader.member === status.member && status.lease_remaining_ms !== null) facts.push(fact("lease", `${(status.lease_remaining_ms / 1000).toFixed(1)} s left`));
      if (leader.member === status.member && own.process) {
        facts.push(fact("process", `${own.process.state}${own.process.pid ? `, pid ${own.process.pid}` : ""}, ${own.process.restarts} restarts`));
        for (const p of own.process.processes || []) facts.push(fact(p.name, `${p.state}${p.pid ? `, pid ${p.pid}` : ""}, ${p.restarts} restarts`));
      }
    } else if (decision && decision.named) facts.push(fact("elected", decision.named.member));
    return [
      el("p", "lead", several ? `Slot ${slot}: ${text}` : text),
      el("dl", "facts", facts, slot === 0 ? [fact("term", String(cluster.term)), fact("mode", cluster.mode), hasText(cluster.elector) && fact("elector", cluster.elector)] : []),
      decision && decision.given.sentence ? el("p", "soft", decision.given.sentence) : null,
    ];
  });
  if (!lines.length) lines.push([el("p", "lead", `No leader of ${cluster.election}`)]);
  $("summary").className = `summary ${ready ? "good" : leads.length ? "busy" : "bad"}`;
  show("summary", ...lines.flat().filter(Boolean));
  // Read aloud only when it changes.
  show("announce", lines.map(([lead]) => lead.textContent).join(", "));
  document.title = leads.length ? `${leads.map((slot) => slot.leader.member).join(", ")} – ${cluster.election}` : `no leader – ${cluster.election}`;
};

const drawBlockers = (cluster, explained) => {
  const items = [];
  const add = (kind, label, text, command) => items.push(el("li", "", pill(label, kind), el("p", "", text), command ? el("p", "soft", "run ", el("code", "", command)) : null));
  const said = new Set();
  if (cluster.skipped && cluster.skipped.reason !== "steady") {
    said.add(cluster.skipped.sentence);
    add(/hold|hindered/.test(cluster.skipped.reason) ? "bad" : "busy", cluster.skipped.reason, cluster.skipped.sentence);
  }
  cluster.planned_stops.forEach((stop) => add("busy", "stopping", `${stop.member} stops the job: for ${span(now() - stop.since_ms)} by now, killed in ${span(stop.until_ms - now())}`));
  for (const slot of explained.slots || []) {
    for (const obstacle of slot.obstacles) {
      if (said.has(obstacle.sentence)) continue;
      said.add(obstacle.sentence);
      const until = obstacle.until_ms ? ` (for ${span(obstacle.until_ms - now())})` : "";
      add("busy", obstacle.reason, obstacle.sentence + until);
    }
  }
  if (cluster.mode !== "auto") add("busy", "order", `mode ${cluster.mode}: the elector does not decide on its own`);
  if (cluster.stopped) add("bad", "order", `the job is stopped${cluster.stopped.by ? ` by ${cluster.stopped.by}` : ""}${cluster.stopped.reason ? ` (${cluster.stopped.reason})` : ""}`);
  cluster.maintenance.forEach((order) => add("busy", "order", `${order.member} is in maintenance`));
  if (cluster.closed) add("busy", "order", cluster.closed);
  cluster.drained.forEach((site) => add("busy", "order", `site ${site} is drained`));
  if (cluster.preferred_site) add("", "order", `site ${cluster.preferred_site} is preferred`);
  if (cluster.site_order.length) add("", "order", `sites in the order ${cluster.site_order.join(", ")}`);
  if (cluster.stay.length) add("", "order", `the leader of term ${cluster.stay.join(", ")} stays`);
  cluster.confirmed.forEach((move) => add("", "order", `a move to site ${move.site} is confirmed in term ${move.term}`));
  cluster.failed_sites.forEach((site) => add("bad", "site failed", `${site.site}: ${site.why}`));
  cluster.unwell_sites.forEach((site) => add("busy", "site", `${site.site} counts as healthy, though ${site.why}`));
  cluster.exclusions.filter((e) => e.until_ms > now()).forEach((e) => add("bad", "excluded", `${e.member} for ${span(e.until_ms - now())}: ${e.reason}`));
  cluster.failures.forEach((failure) => add("", "failed", `${failure.member}, ${span(now() - failure.at_ms)} ago: ${failure.cause}`));
  cluster.members.filter((m) => !["healthy", "unchecked"].includes(m.health)).forEach((m) => add("bad", "unfit", `${m.member}: ${m.health}`));
  cluster.problems.forEach((problem) => add("bad", problem.kind, problem.sentence, problem.command));
  cluster.unreadable.forEach((znode) => add("bad", "unreadable", `${znode.path}: ${znode.why}`));
  if (explained.other_policy) add("busy", "policy", "the elector has another policy than this worker");
  show("blockers", el("div", "card", items.length ? el("ul", "list", items) : el("p", "row", pill("clear", "good"), "No hold, no order and no problem.")));
};

const drawSites = (cluster, status) => {
  const sites = new Map();
  cluster.members.forEach((m) => sites.set(m.site, [...(sites.get(m.site) || []), m]));
  cluster.absent.forEach((m) => sites.set(m.site, sites.get(m.site) || []));
  const own = (status.jobs || {})[cluster.election];
  const card = ([site, members]) => el("article", "site",
    el("div", "row", el("h3", "", site),
      cluster.failed_sites.some((failed) => failed.site === site) && pill("failed", "bad"),
      cluster.drained.includes(site) && pill("drained", "busy"),
      cluster.preferred_site === site && pill("preferred"),
      el("p", "soft push", members.length === 1 ? "1 member" : `${members.length} members`)),
    members.map((m) => el("div", m.role === "leader" ? "member leads" : "member",
      el("div", "row", memberName(m), pill(roleName(m.role), ROLES[m.role]), hasText(m.next) && pill(`if lost: ${m.next}`),
        cluster.standbys.filter((s) => s.member === m.member).map((s) => pill(`standby ${s.state}`, s.state === "running" ? "good" : "busy")),
        m.elector && pill("elector"), !["healthy", "unchecked"].includes(m.health) && pill("unfit", "bad"),
        m.member === status.member && el("span", "soft push", "this worker")),
      el("p", "soft", [m.health === "unchecked" ? "fitness unchecked" : m.health, m.address, m.software, ...Object.entries(m.attributes).filter(([k]) => k !== "dr.standby").map(([k, v]) => `${k}=${v}`)].filter(hasText).join(" · ")),
      m.member === status.member && own && own.process.problem ? el("p", "soft", own.process.problem) : null)),
    cluster.absent.filter((m) => m.site === site).map((m) => el("div", "member",
      el("div", "row", el("b", "", m.member), pill("absent", m.stopped ? "" : "bad")),
      el("p", "soft", m.stopped ? "stopped" : "not connected", hasText(m.since_ms) && [" since ", moment(m.since_ms), " (", ago(m.since_ms), ")"]))));
  show("sites", sites.size ? [...sites].sort(([a], [b]) => (a < b ? -1 : 1)).map(card) : el("p", "card", "No members."));
};

const drawNext = (explained) => {
  const order = (candidates) => candidates.map((c) => el("li", "",
    el("span", "rank", c.rank === null ? "–" : `${c.rank}.`),
    el("p", c.rank === null ? "row" : "", el("b", "", c.member), ` in ${c.site}`, c.rank === null && pill("can't lead", "bad")),
    c.reasons.length ? el("p", "soft", c.reasons.join("; ")) : null,
    c.ahead_of ? el("p", "soft", `before ${c.ahead_of.member} by ${c.ahead_of.stage}: ${c.ahead_of.value}; ${c.ahead_of.other}`) : null));
  const slots = explained.slots || [];
  for (const [id, candidates] of [["next-lost", (slot) => slot.if_lost], ["next-switchover", (slot) => slot.switchover]]) {
    const lists = slots.filter((slot) => candidates(slot).length).map((slot) => el("div", "card",
      slots.length > 1 && el("h3", "", `slot ${slot.slot}`), el("ol", "list", order(candidates(slot)))));
    show(id, ...(lists.length ? lists : [el("p", "card", "No other member can follow.")]));
  }
};

const drawTrips = (cluster) => {
  const members = cluster.members.filter((m) => Object.keys(m.round_trips).length);
  if (!members.length) return show("trips", el("p", "card soft", "Not measured: no policy of this job uses round trips."));
  const ids = cluster.members.map((m) => m.member);
  const targets = [...new Set(members.flatMap((m) => Object.keys(m.round_trips.targets || {})))].sort();
  const all = members.flatMap((m) => Object.values(m.round_trips.peers || {}));
  const most = Math.max(1, ...all);
  const toZooKeeper = members.some((m) => hasText(m.round_trips.zookeeper)) ? ["ZooKeeper"] : [];
  const cell = (us) => {
    if (us === undefined || us === null) return el("td", "soft", "–");
    const td = el("td", "", us >= 4294967295 ? "lost" : `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms`);
    td.style.background = `rgb(var(--heat) / ${(0.06 + 0.34 * Math.min(1, us / most)).toFixed(2)})`;
    return td;
  };
  const head = el("tr", "", el("th", "", "from \\ to"), [...ids, ...toZooKeeper, ...targets].map((to) => el("th", "", to)));
  const rows = members.map((m) => el("tr", "", el("th", "", m.member),
    ids.map((to) => (to === m.member ? el("td", "soft", "") : cell((m.round_trips.peers || {})[to]))),
    toZooKeeper.map(() => cell(m.round_trips.zookeeper)), targets.map((to) => cell((m.round_trips.targets || {})[to]))));
  head.querySelectorAll("th").forEach((th) => { th.scope = "col"; });
  rows.forEach((row) => { row.firstChild.scope = "row"; });
  const scroll = el("div", "card scroll", el("table", "", el("thead", "", head), el("tbody", "", rows)));
  scroll.tabIndex = 0;
  scroll.setAttribute("aria-label", "Round trips between members");
  return show("trips", scroll);
};

const drawHistory = (history, cluster) => {
  const slot = (entry) => entry.slot || 0;
  const all = history.leaderships.slice(-50);
  if (!all.length) return show("history", el("p", "card", "No leadership is recorded yet."));
  const several = all.some((entry) => slot(entry) > 0);
  const strips = [...new Set(all.map(slot))].sort().map((which) => {
    const entries = all.filter((entry) => slot(entry) === which && entry.ready_ms).slice(-12);
    return el("div", "strip", entries.map((entry, at) => {
      const end = at + 1 < entries.length ? entries[at + 1].ready_ms : now();
      // The square root keeps a short leadership visible beside a long one.
      const bar = el("span", colour(entry.member), entry.member);
      bar.style.flexGrow = String(Math.sqrt(Math.max(1, end - entry.ready_ms)));
      bar.style.flexBasis = "0";
      // The two times can be from two clocks.
      bar.title = `term ${entry.term}: ${entry.member}${end < entry.ready_ms ? "" : `, ${span(end - entry.ready_ms)}`}`;
      return bar;
    }));
  });
  strips.forEach((strip) => strip.setAttribute("aria-hidden", "true"));
  const leads = new Set(cluster.slots.map((s) => s.leader && s.leader.term));
  const items = [...all].reverse().slice(0, 12).map((entry) => {
    const { decide_ms: decide, release_ms: release, acquire_ms: acquire, takeover_ms: takeover } = entry.phases || {};
    const phases = [["decided", decide], ["released", release], ["acquired", acquire], ["ready", takeover]].filter(([, ms]) => hasText(ms));
    return el("li", "", el("span", `dot ${colour(entry.member)}`),
      el("p", "row", el("b", "", entry.member), ` in ${entry.site}`, pill(entry.cause, ["leader-lost", "takeover-failed", "work-failed", "site-failed"].includes(entry.cause) ? "bad" : ""),
        leads.has(entry.term) && pill("now", "good"), el("span", "soft push", `term ${entry.term}${several ? `, slot ${slot(entry)}` : ""} · `, entry.ready_ms ? ago(entry.ready_ms) : "not ready")),
      el("p", "soft", entry.sentence),
      phases.length ? el("p", "soft", phases.map(([name, ms]) => `${name} in ${span(ms)}`).join(" · ")) : null);
  });
  return show("history", el("div", "card", strips, el("ol", "list", items)));
};

const place = (to) => (to.member ? ` to ${to.member}` : to.site ? ` to site ${to.site}` : "");
const STATES = { done: "good", planned: "", pending: "busy", accepted: "busy", failed: "bad", expired: "bad", cancelled: "" };
const drawRequests = (cluster) => {
  const planned = ({ outcome }) => outcome.state === "planned";
  const shown = [...cluster.requests.filter(planned), ...cluster.requests.filter((r) => !planned(r)).slice(-5).reverse()];
  const items = shown.map((request) => el("li", "", pill(request.outcome.state, STATES[request.outcome.state]),
    el("p", "", `${request.id}: ${request.kind}${place(request.to)}`, request.reason ? ` (${request.reason})` : ""),
    el("p", "soft", `by ${request.by}, `, ago(request.created_ms), request.outcome.reason ? `: ${request.outcome.reason}` : "",
      planned(request) ? `, planned for ${moment(request.outcome.at_ms)}` : "")));
  show("requests", items.length ? el("ul", "list card requests", items) : []);
  const options = [["", "the best other member"], ...cluster.members.map((m) => [`member:${m.member}`, m.member]),
    ...[...new Set(cluster.members.map((m) => m.site))].map((site) => [`site:${site}`, `site ${site}`])];
  const chosen = $("target").value;
  if ([...$("target").options].map((o) => o.value).join("\n") !== options.map(([value]) => value).join("\n")) {
    show("target", options.map(([value, text]) => new Option(text, value, false, value === chosen)));
  }
};

// One line for each job, in their order. It stays for a day.
const STEPS = { waiting: "", begun: "busy", done: "good", failed: "bad", skipped: "" };
const drawEvacuation = ({ evacuation }) => {
  const steps = evacuation ? evacuation.steps : [];
  const last = Math.max(0, ...steps.map((step) => step.ended_ms || 0), evacuation ? evacuation.at_ms : 0);
  if (!steps.length || (evacuation.phase !== "running" && now() - last > 86400000)) { show("evacuation", []); return; }
  const items = steps.map((step) => el("li", "", pill(step.state, STEPS[step.state]),
    el("p", "", el("b", "", step.job), step.from ? ` from ${step.from.site}` : "", step.leader ? ` to ${step.leader.member} in ${step.leader.site}` : "",
      (step.after || []).length ? el("span", "soft", `, after ${step.after.join(", ")}`) : ""),
    el("p", "soft", step.ended_ms && step.begun_ms ? `took ${span(step.ended_ms - step.begun_ms)}` : "", hasText(step.why) ? ` ${step.why}` : "")));
  const kind = { running: "busy", stopped: "bad", done: "good" }[evacuation.phase];
  const verb = evacuation.undo ? "Back to" : "Evacuation of";
  show("evacuation", el("section", "", el("h2", "", `${verb} site ${evacuation.site}`), pill(evacuation.phase, kind), el("ul", "list card requests", items)));
};

// A script names no other place, so the namespace is that of an element of the page.
const svg = (tag, attributes, ...children) => {
  const node = document.createElementNS($("drawing").content.firstChild.namespaceURI, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};

// The jobs in the layers of their order: each to the right of those that it comes after.
const WIDE = 170, GAP = 60, HIGH = 26, NEXT = 36;
const drawGraph = (names, after, kind) => {
  const layers = new Map();
  const layer = (name) => {
    if (!layers.has(name)) {
      layers.set(name, 0);
      layers.set(name, Math.max(-1, ...after(name).map(layer)) + 1);
    }
    return layers.get(name);
  };
  const rows = [];
  const places = new Map(names.map((name) => {
    const x = layer(name);
    rows[x] = (rows[x] || 0) + 1;
    return [name, [x * (WIDE + GAP) + 1, (rows[x] - 1) * NEXT + 1]];
  }));
  const lines = names.flatMap((name) => after(name).map((other) => {
    const [[x, y], [toX, toY]] = [places.get(other), places.get(name)];
    const [from, to, half] = [y + HIGH / 2, toY + HIGH / 2, GAP / 2];
    return svg("path", { d: `M${x + WIDE} ${from} C${x + WIDE + half} ${from} ${toX - half} ${to} ${toX} ${to}` });
  }));
  const boxes = names.map((name) => {
    const [x, y] = places.get(name);
    const short = name.length > 22 ? `${name.slice(0, 21)}…` : name;
    return svg("g", { class: kind(name) }, svg("title", {}, name), svg("rect", { x, y, width: WIDE, height: HIGH, rx: 6 }), svg("text", { x: x + 9, y: y + 18 }, short));
  });
  const size = { width: rows.length * (WIDE + GAP) - GAP + 2, height: Math.max(...rows.map((count) => count || 0)) * NEXT };
  const words = names.filter((name) => after(name).length).map((name) => `${name} after ${after(name).join(", ")}`).join("; ");
  return svg("svg", { class: "graph", role: "img", "aria-label": `the order of the jobs: ${words}`, ...size }, ...lines, ...boxes);
};

// One line for each job of this worker, and their order.
const drawAllJobs = (status, { evacuation }) => {
  const jobs = status.jobs || {};
  const names = Object.keys(jobs).sort();
  if (names.length < 2) { show("jobs", []); return; }
  const moving = evacuation && evacuation.phase === "running" ? evacuation.steps : [];
  const step = (name) => moving.find((one) => one.job === name);
  // A plan can have an order of its own.
  const after = (name) => [...new Set([...jobs[name].after, ...((step(name) || {}).after || [])])].filter((other) => jobs[other]);
  const led = (name) => jobs[name].leaders.every(hasText) && jobs[name].leaders.length > 0;
  const kind = (name) => (step(name) && STEPS[step(name).state]) || (led(name) ? "good" : "bad");
  const lines = names.map((name) => {
    const leaders = jobs[name].leaders.filter(hasText).join(", ");
    return el("li", "", pill(jobs[name].sites.map((site) => site || "no leader").join(", ") || "no leader", kind(name)),
      el("p", "", el("b", "", name), leaders ? ` on ${leaders}` : "", after(name).length ? el("span", "soft", `, after ${after(name).join(", ")}`) : ""));
  });
  const scroll = el("div", "scroll", drawGraph(names, after, kind));
  scroll.tabIndex = 0;
  show("jobs", el("section", "", el("h2", "", "Jobs"), el("div", "card", names.some((name) => after(name).length) && scroll, el("ul", "list requests", lines))));
};

// Nothing of the former job stays in the page.
const select = (name) => {
  job = name;
  drawn = null;
  asOf = 0;
  colours.clear();
  for (const id of ["blockers", "sites", "next-lost", "next-switchover", "trips", "history"]) show(id, el("p", "card soft", "Waiting for data."));
  for (const id of ["requests", "target", "announce"]) show(id, []);
  $("summary").className = "summary";
  show("summary", el("p", "lead", `Waiting for the data of ${job}`));
  document.title = job;
  say("");
  enable();
};

const drawJobs = (status) => {
  const names = Object.keys(status.jobs || {}).sort();
  if (names.length && !names.includes(job)) select(names[0]);
  if ([...$("job").options].map((o) => o.value).join("\n") !== names.join("\n")) show("job", names.map((name) => new Option(name, name)));
  $("job").value = job || "";
};

const drawLink = (error) => {
  const [text, kind] = error ? ["no data", "bad"] : live === "live" ? ["live", "good"] : ["polling", "busy"];
  if ($("link").textContent !== text) $("link").textContent = text;
  $("link").className = `pill ${kind}`;
  $("main").classList.toggle("stale", Boolean(error));
};

const buttons = () => $("operate").querySelectorAll("button");
let acting = false;
const enable = () => buttons().forEach((button) => { button.disabled = acting || drawn !== job; });

const draw = ({ status, cluster, history, explained }) => {
  skew = explained.at_ms - Date.now();
  asOf = Date.now();
  const lease = hasText(status.lease_remaining_ms) ? ` · lease ${(status.lease_remaining_ms / 1000).toFixed(1)} s` : "";
  $("self").textContent = `${status.member} in ${status.site} · session ${status.session}${lease}`;
  drawSummary(cluster, status);
  drawBlockers(cluster, explained);
  drawSites(cluster, status);
  drawNext(explained);
  drawTrips(cluster);
  drawHistory(history, cluster);
  drawRequests(cluster);
  drawn = job;
  enable();
};

const refresh = async () => {
  try {
    const status = await read("/status");
    drawJobs(status);
    const shown = job;
    const last = read("/evacuation").catch(() => ({ evacuation: null }));
    const [cluster, history, explained, evacuation] = await Promise.all([read("/cluster", shown), read("/history", shown), read("/explain", shown), last]);
    // Another job was selected meanwhile.
    if (job !== shown) return;
    draw({ status, cluster, history, explained });
    drawEvacuation(evacuation);
    drawAllJobs(status, evacuation);
    drawLink(null);
  } catch (error) {
    drawLink(error);
    const since = asOf ? ` The data below is ${span(Date.now() - asOf)} old.` : "";
    $("summary").className = "summary bad";
    show("summary", el("p", "lead", "This worker has no answer"), el("p", "soft", `${error.message}.${since}`));
  }
};

let running = false;
let again = false;
let due = Infinity;
let timer = null;
const look = async () => {
  due = Infinity;
  if (running) { again = true; return; }
  running = true;
  if (!document.hidden) await refresh();
  running = false;
  const next = live === "live" ? 5000 : 2000;
  soon(again ? 200 : next);
  again = false;
};

// Looks no later than this. What was asked for earlier remains.
const soon = (ms) => {
  const at = performance.now() + ms;
  if (at >= due) return;
  due = at;
  clearTimeout(timer);
  timer = setTimeout(look, ms);
};

// Each event is a reason to look; without events the page looks more often.
const follow = () => {
  if (source || document.hidden) return;
  const own = new EventSource("/events");
  source = own;
  own.addEventListener("open", () => { live = "live"; soon(0); });
  for (const name of ["session", "role", "process", "decision", "leader"]) own.addEventListener(name, () => soon(100));
  const retry = () => {
    if (source === own) unfollow();
    setTimeout(follow, 5000);
  };
  own.addEventListener("dropped", retry);
  own.addEventListener("error", () => {
    live = "polling";
    soon(500);
    if (own.readyState === EventSource.CLOSED) retry();
  });
};

// A browser opens six connections to a worker. A page that nobody looks at must not keep one.
const unfollow = () => {
  if (source) source.close();
  source = null;
  live = "polling";
};

const say = (text, kind) => {
  $("result").textContent = text;
  $("result").className = `result ${kind || ""}`;
};

// The outcome of a request of this job, which need not be the one that is shown.
const outcomeOf = async (id, of, tell) => {
  for (;;) {
    try {
      const { outcome } = await read(`/requests/${encodeURIComponent(id)}`, of);
      if (!["pending", "accepted"].includes(outcome.state)) return outcome;
      tell(outcome.state === "pending" ? `${id}: waiting for the elector` : `${id}: begun in term ${outcome.term}; waiting for the new leader`);
    } catch (error) {
      // Old requests are removed.
      if (error.status === 404) return { state: "has an unknown outcome", reason: error.message };
      tell(`${id}: filed; its outcome can't be read now: ${error.message}`);
    }
    await new Promise((done) => { setTimeout(done, 500); });
  }
};

const confirmed = (text) => new Promise((done) => {
  const dialog = $("confirm");
  $("confirm-text").textContent = text;
  dialog.returnValue = "no";
  dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true });
  dialog.showModal();
});

const act = async (verb) => {
  const token = $("token").value.trim();
  const [kind, ...rest] = $("target").value.split(":");
  const body = { job };
  const tell = (text, result) => say(body.job === job ? text : `${body.job}: ${text}`, result);
  if (verb === "switchover") {
    const name = rest.join(":");
    if (kind === "member") body.to = name;
    if (kind === "site") body.to_site = name;
    if ($("reason").value.trim()) body.reason = $("reason").value.trim();
  }
  const texts = {
    switchover: `Move the leadership of ${job} to ${body.to || (body.to_site ? `site ${body.to_site}` : "the best other member")}? The job stops and starts there.`,
    pause: `Pause ${job}? Nothing is decided automatically until Resume: a failed leader is not replaced.`,
    resume: `Resume ${job}? The elector decides again.`,
  };
  if (!await confirmed(texts[verb])) return;
  try {
    tell(`${verb}: sent`);
    const answer = await fetch(`/${verb}`, {
      method: "POST", cache: "no-store", signal: AbortSignal.timeout(15000),
      // A client certificate can be enough.
      headers: { ...(token && { Authorization: `Bearer ${token}` }), "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const result = await answer.json();
    if (!answer.ok) {
      tell(`${verb}: ${result.error}`, "bad");
      if (answer.status === 401) $("token").focus();
      return;
    }
    const outcome = result.request ? await outcomeOf(result.request, body.job, tell) : result.outcome || { state: "done" };
    const leader = outcome.leader ? `: ${outcome.leader} leads in term ${outcome.term}` : "";
    tell(`${verb} ${outcome.state}${leader}${outcome.reason ? `: ${outcome.reason}` : ""}`, outcome.state === "done" ? "good" : "bad");
  } catch (error) {
    tell(`${verb}: no answer: ${error.message}; check whether it was done before you try again`, "bad");
  }
  soon(0);
};

$("job").addEventListener("change", () => {
  select($("job").value);
  history.replaceState(null, "", jobQuery(job));
  soon(0);
});
$("operate").addEventListener("submit", (event) => event.preventDefault());
buttons().forEach((button) => button.addEventListener("click", async () => {
  acting = true;
  enable();
  await act(button.value);
  acting = false;
  enable();
}));
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { unfollow(); return; }
  follow();
  soon(0);
});
const first = JSON.parse($("first").textContent);
if (first) {
  drawJobs(first.status);
  draw(first);
}
follow();
soon(0);
