//! Orders made from a seed.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::failure::Failure;
use crate::orders::{self, Order};

/// `ledger generate`.
pub(crate) fn run(count: u32, seed: u64, out: Option<&Path>) -> Result<(), Failure> {
    let (path, written) = match out {
        Some(path) => (path, File::create(path).and_then(|file| orders::write(orders(count, seed), file))),
        None => (Path::new("standard output"), orders::write(orders(count, seed), io::stdout().lock())),
    };
    written.map_err(|source| Failure::Write { path: path.into(), source })
}

/// The orders of one year of a shop for household goods: some customers order
/// often, most seldom; each has one currency; some goods come back.
///
/// The same count and seed give the same orders for ever: the file that is
/// shipped is compared with this.
pub(crate) fn orders(count: u32, seed: u64) -> impl Iterator<Item = Order> {
    let mut random = SplitMix64(seed);
    (0..count).map(move |index| {
        // The smaller of two draws: low numbers come up more often.
        let customer = random.below(CUSTOMERS).min(random.below(CUSTOMERS));
        let (article, unit_price_cents) = ARTICLES[random.below(ARTICLES.len() as u64) as usize];
        let pieces = 1 + random.below(6).min(random.below(6)) as i64;
        let sent_back = random.below(100) < 3;
        let quantity = if sent_back { -pieces } else { pieces };
        Order {
            order_id: format!("SO-{YEAR}-{:06}", index + 1),
            ordered_on: day_of_year(u64::from(index) * 365 / u64::from(count)),
            account: format!("C-{}", 10_000 + customer * 7),
            article: article.into(),
            quantity,
            amount_cents: quantity * unit_price_cents,
            currency: CURRENCIES[(customer % CURRENCIES.len() as u64) as usize].into(),
        }
    })
}

const YEAR: u32 = 2026;
const CUSTOMERS: u64 = 640;
/// Listed as often as they are used.
const CURRENCIES: [&str; 10] = ["EUR", "EUR", "CHF", "EUR", "EUR", "GBP", "EUR", "USD", "EUR", "EUR"];
const ARTICLES: [(&str, i64); 20] = [
    ("Desk lamp, brass", 8_950),
    ("Desk lamp, black", 7_450),
    ("Bookshelf, oak, 80 cm", 24_900),
    ("Bookshelf, oak, 120 cm", 32_900),
    ("Kettle 1.7 l", 3_999),
    ("Coffee grinder", 12_900),
    ("Filter papers, 100 pieces", 449),
    ("Carafe 0.8 l", 2_490),
    ("Wool blanket, grey", 11_900),
    ("Linen towel", 1_290),
    ("Bed linen, 2 pieces", 6_990),
    ("Wall clock", 4_590),
    ("Picture frame, 30 x 40", 1_890),
    ("Kitchen scale", 2_999),
    ("Chef's knife, 20 cm", 9_900),
    ("Cutting board, beech", 2_790),
    ("Cast-iron pan, 28 cm", 8_990),
    ("Umbrella stand", 5_490),
    ("Doormat, 60 x 90", 2_290),
    ("Batteries AA, 8 pieces", 699),
];

/// The day of [`YEAR`], no leap year, counted from 0.
fn day_of_year(day: u64) -> String {
    const MONTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut rest = day;
    for (index, length) in MONTHS.into_iter().enumerate() {
        if rest < length {
            return format!("{YEAR}-{:02}-{:02}", index + 1, rest + 1);
        }
        rest -= length;
    }
    format!("{YEAR}-12-31")
}

/// Steele, Lea and Flood's SplitMix64. Written out, since a random-number crate
/// may change its sequence with a version, and the shipped file must not change.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound` - 1. The remainder's bias is of no account for bounds
    /// this small.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_file_is_what_the_generator_writes() {
        let shipped = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/orders.csv")).unwrap();
        let mut generated = Vec::new();
        orders::write(orders(10_000, 1), &mut generated).unwrap();
        assert!(
            shipped == generated,
            "remake it: cargo run -p ledger -- generate --orders 10000 --seed 1 --out examples/ledger/data/orders.csv"
        );
    }

    #[test]
    fn a_seed_decides_the_orders_and_another_seed_gives_others() {
        assert!(orders(50, 3).eq(orders(50, 3)));
        assert!(!orders(50, 3).eq(orders(50, 4)));
    }

    #[test]
    fn days_run_through_the_year() {
        assert_eq!(day_of_year(0), "2026-01-01");
        assert_eq!(day_of_year(58), "2026-02-28");
        assert_eq!(day_of_year(59), "2026-03-01");
        assert_eq!(day_of_year(364), "2026-12-31");
    }
}
