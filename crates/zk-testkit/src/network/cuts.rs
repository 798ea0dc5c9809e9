//! The cuts of a host, as rules for its packets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

/// The name of a host's end of the cable to the switch.
pub(super) const INTERFACE: &str = "eth0";

/// The addresses that a host is cut off from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Cuts {
    pub(super) all: bool,
    pub(super) some: BTreeSet<Ipv4Addr>,
    /// Only in one direction: what it sends.
    pub(super) mute: bool,
    /// How many of a hundred packets that it receives.
    pub(super) lost: u8,
}

impl Cuts {
    /// The whole table of `iptables-restore`, which replaces the last one in one step.
    pub(super) fn table(&self) -> String {
        let mut table =
            "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n".to_owned();
        if self.all {
            // Except its own packets to itself.
            let _ = writeln!(table, "-A INPUT -i {INTERFACE} -j DROP\n-A OUTPUT -o {INTERFACE} -j DROP");
        }
        for other in &self.some {
            let _ = writeln!(table, "-A INPUT -s {other} -j DROP\n-A OUTPUT -d {other} -j DROP");
        }
        if self.mute {
            let _ = writeln!(table, "-A OUTPUT -o {INTERFACE} -j DROP");
        }
        if self.lost > 0 {
            let random = format!("-m statistic --mode random --probability 0.{:02}", self.lost.min(99));
            let _ = writeln!(table, "-A INPUT -i {INTERFACE} {random} -j DROP");
        }
        table + "COMMIT\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_cuts_drops_nothing() {
        assert!(!Cuts::default().table().contains("DROP"));
    }

    #[test]
    fn packets_can_be_lost_in_one_direction() {
        let table = Cuts { mute: true, lost: 7, ..Cuts::default() }.table();
        assert!(table.contains("-A OUTPUT -o eth0 -j DROP\n"), "{table}");
        assert!(
            table.contains("-A INPUT -i eth0 -m statistic --mode random --probability 0.07 -j DROP\n"),
            "{table}"
        );
    }

    #[test]
    fn both_directions_are_cut() {
        let cuts = Cuts { some: [Ipv4Addr::new(198, 18, 0, 2)].into(), ..Cuts::default() };
        let table = cuts.table();
        assert!(table.contains("-A INPUT -s 198.18.0.2 -j DROP\n"), "{table}");
        assert!(table.contains("-A OUTPUT -d 198.18.0.2 -j DROP\n"), "{table}");
        assert!(table.ends_with("COMMIT\n"), "{table}");
    }
}
