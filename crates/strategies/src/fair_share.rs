//! The leaderships of many elections, spread over the nodes.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use election_core::strategy::MemberId;

/// A node that leads some of the elections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id under which it is a member of the elections.
    pub member: MemberId,
    /// Its share beside the others: with twice the weight it leads twice as many. With weight 0 it leads none.
    pub weight: u32,
}

/// An election, as a [`FairShare`] sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Its name, unique among all.
    pub name: String,
    /// Its leader. A member that is not one of the nodes counts as none.
    pub leader: Option<MemberId>,
    /// The nodes that can lead it: `None` for all of them.
    pub fit: Option<BTreeSet<MemberId>>,
    /// Whether its leader stays for now: it has not led for long enough, or leads by an operator's order.
    pub stays: bool,
}

/// Spreads leaderships over nodes by their weights, a few moves at a time.
/// It is a pure planner. It looks at all elections at once, so there are no races, and its plan is the same on every
/// node. A leadership moves only if its new node leads less for its weight *after* the move than its old node did
/// before. With equal weights that is a difference of two or more: a gain of one. So the plan for the result of a plan
/// is empty, and no leadership moves back and forth.
/// The result are the shares of the D'Hondt method. When a node leaves, no other node gives up a leadership; when a
/// node joins, no other node gets one.
/// If not every node can lead every election, one leadership may have to move to make room for another. Such a chain of
/// moves is planned as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    /// The highest number of moves in a plan. A chain is never cut: the first can be longer.
    pub at_most: usize,
}

/// The moves to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The new node of each election without a leader. Their number is not limited: they interrupt nothing.
    pub places: Vec<Place>,
    /// The moves to make now, by the name of the election.
    pub moves: Vec<Move>,
    /// Elections without a leader that no node can lead.
    pub nowhere: Vec<String>,
    /// The number of moves after these.
    pub left: usize,
}

/// Where an election that has no leader should be led.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The election.
    pub election: String,
    /// Its new leader.
    pub to: MemberId,
    /// The reason, as a short phrase.
    pub reason: String,
}

/// A leadership that should move.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Move {
    /// The election.
    pub election: String,
    /// Its present leader.
    pub from: MemberId,
    /// Its new leader.
    pub to: MemberId,
    /// The reason, as a short phrase.
    pub reason: String,
}

impl FairShare {
    /// Plans for these nodes and elections. Their order does not matter. Of a node or an election that is given twice
    /// the first counts.
    pub fn plan(&self, nodes: &[Node], elections: &[Election]) -> Plan {
        let mut state = State::new(nodes, elections);
        let before = state.counts.clone();
        let (places, nowhere) = state.place();
        let placed = state.at.clone();
        let mut now = placed.clone();
        let mut is_open = true;
        while let Some(chain) = state.chain() {
            let moved = state.moved(&placed);
            is_open &= (moved == 0 || moved + chain.len() <= self.at_most) && self.at_most > 0;
            chain.into_iter().for_each(|(election, node)| state.put(election, node));
            if is_open {
                now.clone_from(&state.at);
            }
        }
        let left = state.moved(&now);
        let moves: Vec<_> = (0..placed.len())
            .filter_map(|e| Some((e, placed[e]?, now[e]?)))
            .filter(|(_, from, to)| from != to)
            .map(|(e, from, to)| state.told(e, from, to, &before))
            .collect();
        Plan { places, moves, nowhere, left }
    }
}

/// Nodes and elections by number, in the order of their names.
struct State<'a> {
    nodes: Vec<&'a Node>,
    elections: Vec<&'a Election>,
    /// The nodes that can lead each: `None` for all.
    fit: Vec<Option<Vec<usize>>>,
    /// The leader of each.
    at: Vec<Option<usize>>,
    /// The elections that each node leads and that may move.
    movable: Vec<BTreeSet<usize>>,
    /// The number of elections that each node leads.
    counts: Vec<u64>,
}

/// Moves that hang together: election and its new node. The last one is made first.
type Chain = Vec<(usize, usize)>;

impl<'a> State<'a> {
    fn new(nodes: &'a [Node], elections: &'a [Election]) -> Self {
        let mut by_id = BTreeMap::new();
        for node in nodes {
            by_id.entry(&node.member).or_insert(node);
        }
        let nodes: Vec<_> = by_id.into_values().collect();
        let number = |id: &MemberId| nodes.binary_search_by(|node| node.member.cmp(id)).ok();
        let mut by_name = BTreeMap::new();
        for election in elections {
            by_name.entry(election.name.as_str()).or_insert(election);
        }
        let elections: Vec<_> = by_name.into_values().collect();
        let fit = elections
            .iter()
            .map(|e| e.fit.as_ref().map(|fit| fit.iter().filter_map(number).collect()))
            .collect();
        let none = vec![None; elections.len()];
        let (movable, counts) = (vec![BTreeSet::new(); nodes.len()], vec![0; nodes.len()]);
        let leaders: Vec<_> = elections.iter().map(|e| number(e.leader.as_ref()?)).collect();
        let mut state = State { fit, at: none, movable, counts, nodes, elections };
        for (election, leader) in leaders.into_iter().enumerate() {
            leader.into_iter().for_each(|node| state.put(election, node));
        }
        state
    }

    fn put(&mut self, election: usize, node: usize) {
        if let Some(from) = self.at[election].replace(node) {
            self.counts[from] -= 1;
            self.movable[from].remove(&election);
        }
        self.counts[node] += 1;
        if !self.elections[election].stays {
            self.movable[node].insert(election);
        }
    }

    /// The nodes that can lead an election.
    fn fit_for(&self, election: usize) -> impl Iterator<Item = usize> {
        let fit = self.fit[election].as_ref();
        let all = if fit.is_none() { 0..self.nodes.len() } else { 0..0 };
        fit.into_iter().flatten().copied().chain(all)
    }

    fn moved(&self, since: &[Option<usize>]) -> usize {
        self.at.iter().zip(since).filter(|(now, then)| now != then).count()
    }

    /// Compares what two nodes would lead for their weights: `(node, leaderships)`.
    fn compare(&self, (a, led_by_a): (usize, u64), (b, led_by_b): (usize, u64)) -> Ordering {
        let weight = |node: usize| u128::from(self.nodes[node].weight);
        let (weight_a, weight_b) = (weight(a), weight(b));
        // A node of weight 0 that leads any leads more than all others, and one that leads none less.
        let by_weight = (u128::from(led_by_a) * weight_b).cmp(&(u128::from(led_by_b) * weight_a));
        by_weight.then((weight_a > 0).cmp(&(weight_b > 0)))
    }

    /// Of these nodes the one that would lead least for its weight with one more.
    fn least(&self, nodes: impl Iterator<Item = usize>) -> Option<usize> {
        let with_one_more = |node: usize| (node, self.counts[node] + 1);
        nodes
            .filter(|node| self.nodes[*node].weight > 0)
            .min_by(|a, b| self.compare(with_one_more(*a), with_one_more(*b)).then(a.cmp(b)))
    }

    /// Gives a node to each election that has none.
    fn place(&mut self) -> (Vec<Place>, Vec<String>) {
        let (mut places, mut nowhere) = (Vec::new(), Vec::new());
        for election in 0..self.elections.len() {
            if self.at[election].is_some() {
                continue;
            }
            let best = self.least(self.fit_for(election));
            let name = self.elections[election].name.clone();
            let Some(node) = best else {
                nowhere.push(name);
                continue;
            };
            let leads = self.leads(node, self.counts[node]);
            let reason = format!("it has no leader, and {leads}: the least for its weight");
            places.push(Place { election: name, to: self.nodes[node].member.clone(), reason });
            self.put(election, node);
        }
        (places, nowhere)
    }

    /// The next chain of moves that is a gain, from the node that leads most for its weight
    /// and can give any away, to the one that leads least.
    fn chain(&self) -> Option<Chain> {
        let mut givers: Vec<_> = (0..self.nodes.len()).filter(|n| !self.movable[*n].is_empty()).collect();
        let led = |node: usize| (node, self.counts[node]);
        givers.sort_by(|a, b| self.compare(led(*b), led(*a)).then(a.cmp(b)));
        givers.into_iter().find_map(|giver| self.chain_from(giver))
    }

    fn chain_from(&self, giver: usize) -> Option<Chain> {
        // Breadth first: the shortest chain to each node.
        let mut through: Vec<Option<(usize, usize)>> = vec![None; self.nodes.len()];
        let mut reached = Vec::new();
        let mut queue = VecDeque::from([giver]);
        let open = self.nodes.iter().enumerate().filter(|(n, node)| *n != giver && node.weight > 0).count();
        while let Some(node) = queue.pop_front() {
            if reached.len() == open {
                break;
            }
            for &election in &self.movable[node] {
                let mut reach = |to: usize| {
                    if to != giver && through[to].is_none() && self.nodes[to].weight > 0 {
                        through[to] = Some((node, election));
                        reached.push(to);
                        queue.push_back(to);
                    }
                };
                self.fit_for(election).for_each(&mut reach);
                if reached.len() == open {
                    break;
                }
            }
        }
        let receiver = self.least(reached.into_iter())?;
        let gains = self.compare((receiver, self.counts[receiver] + 1), (giver, self.counts[giver])).is_lt();
        gains.then_some(())?;
        let mut chain = Vec::new();
        let mut node = receiver;
        while let Some((from, election)) = through[node] {
            chain.push((election, node));
            node = from;
        }
        Some(chain)
    }

    fn leads(&self, node: usize, count: u64) -> String {
        let Node { member, weight } = self.nodes[node];
        match weight {
            1 => format!("{member} leads {count}"),
            _ => format!("{member} leads {count} with a weight of {weight}"),
        }
    }

    fn told(&self, election: usize, from: usize, to: usize, before: &[u64]) -> Move {
        let (giver, receiver) = (self.leads(from, before[from]), self.leads(to, before[to]));
        Move {
            election: self.elections[election].name.clone(),
            from: self.nodes[from].member.clone(),
            to: self.nodes[to].member.clone(),
            reason: format!("{giver}, {receiver}"),
        }
    }
}
