//! Whether the ensemble keeps its quorum when a site is lost. Pure.

use std::{collections::BTreeSet, fmt};

use super::{Server, voters};

/// The quorum of an ensemble, by the sites of its servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quorum {
    /// How many servers have a vote.
    pub(crate) voters: usize,
    /// How many of them are in no known site.
    pub(crate) elsewhere: usize,
    /// The sites whose loss loses it.
    pub(crate) lost: Vec<LostQuorum>,
}

/// What would be left without a site: no quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostQuorum {
    /// The site.
    pub(crate) site: String,
    /// The servers whose failure is the reason. Empty: it would be lost if all others served, too.
    pub(crate) down: Vec<String>,
    left: usize,
    needed: usize,
    voters: usize,
}

impl fmt::Display for LostQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, down, left, needed, voters } = self;
        write!(f, "the loss of site {site} loses the quorum")?;
        if !down.is_empty() {
            let are = if down.len() == 1 { "is" } else { "are" };
            write!(f, " while {} {are} down", down.join(", "))?;
        }
        write!(f, ": {left} of {voters} voting servers would be left, and {needed} are needed")
    }
}

impl Quorum {
    /// By what the servers have answered.
    pub(crate) fn of(servers: &[Server]) -> Self {
        let voters = voters(servers);
        let needed = voters.len() / 2 + 1;
        let site = |voter: &Option<&Server>| voter.and_then(|server| server.site.clone());
        let sites: BTreeSet<_> = voters.iter().filter_map(site).collect();
        let lost = sites.into_iter().filter_map(|lost| {
            let left: Vec<_> = voters.iter().filter(|voter| site(voter).as_ref() != Some(&lost)).collect();
            let down = left.iter().filter_map(|voter| voter.filter(|server| server.unreachable.is_some()));
            let mut down: Vec<_> = down.map(|server| server.name.clone()).collect();
            let up = left.len() - down.len();
            if left.len() < needed {
                down.clear();
            }
            (up < needed).then_some(LostQuorum { site: lost, down, left: up, needed, voters: voters.len() })
        });
        let elsewhere = voters.iter().filter(|voter| site(voter).is_none()).count();
        Self { voters: voters.len(), elsewhere, lost: lost.collect() }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

    use super::*;

    fn servers(all: &[(&str, bool)]) -> Vec<Server> {
        let server = |(index, (site, is_up)): (usize, &(&str, bool))| Server {
            name: format!("zk{}:2181", index + 1),
            site: (!site.is_empty()).then(|| (*site).to_owned()),
            unreachable: (!is_up).then(|| "refused".to_owned()),
            ..Server::default()
        };
        all.iter().enumerate().map(server).collect()
    }

    fn lost(all: &[(&str, bool)]) -> Vec<String> {
        Quorum::of(&servers(all)).lost.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn three_sites_survive_the_loss_of_each_while_all_servers_are_up() {
        let all = [("east", true), ("west", true), ("third", true)];
        assert_eq!(Quorum::of(&servers(&all)), Quorum { voters: 3, elsewhere: 0, lost: Vec::new() });
        let two = [("east", true), ("east", true), ("west", true)];
        let east =
            "the loss of site east loses the quorum: 1 of 3 voting servers would be left, and 2 are needed";
        assert_eq!(lost(&two), [east]);
        // Another server that is down changes nothing about that.
        let quorum = Quorum::of(&servers(&[("east", true), ("east", true), ("west", false)]));
        assert!(quorum.lost[0].down.is_empty());
    }

    #[test]
    fn a_server_that_is_down_is_named_where_it_is_the_reason() {
        let all = [("east", true), ("west", true), ("third", false)];
        let each = ["east", "west"].map(|site| {
            format!(
                "the loss of site {site} loses the quorum while zk3:2181 is down: 1 of 3 voting servers would be left, and 2 \
                 are needed"
            )
        });
        assert_eq!(lost(&all), each);
    }

    #[test]
    fn a_server_whose_site_is_not_known_is_lost_with_none() {
        let quorum = Quorum::of(&servers(&[("east", true), ("", true), ("", true)]));
        assert_eq!(quorum, Quorum { voters: 3, elsewhere: 2, lost: Vec::new() });
    }
}
