//! Orders, and their file format.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One order of one customer, as a line of the orders file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Order {
    /// Unique in the file. 'Exactly once' refers to it.
    pub(crate) order_id: String,
    /// Day of the order, `YYYY-MM-DD`.
    pub(crate) ordered_on: String,
    /// The customer's account.
    pub(crate) account: String,
    /// What was ordered.
    pub(crate) article: String,
    /// Pieces; negative for goods sent back.
    pub(crate) quantity: i64,
    /// What the account owes for it, in hundredths of the currency; negative
    /// for goods sent back.
    pub(crate) amount_cents: i64,
    /// ISO 4217 code.
    pub(crate) currency: String,
}

/// Why a file can't be read as orders. Nothing is booked then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrdersError {
    #[error("{}: can't be opened: {source}", path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{}:{line}: not an order: {what}", path.display())]
    Line { path: PathBuf, line: u64, what: String },
}

/// Reads a whole file of orders, in its order.
///
/// # Errors
/// A file that can't be opened; and, with its line, the first record with a
/// missing, unknown or unreadable field, or with an id that an earlier record has.
pub(crate) fn read(path: &Path) -> Result<Vec<Order>, OrdersError> {
    let file = std::fs::File::open(path).map_err(|source| OrdersError::Open { path: path.into(), source })?;
    let mut reader = csv::Reader::from_reader(file);
    let mut orders = Vec::new();
    let mut lines_by_id: HashMap<String, u64> = HashMap::new();
    let headers = reader.headers().cloned().map_err(|error| line_error(path, 1, error.to_string()))?;
    let mut record = csv::StringRecord::new();
    loop {
        let line = reader.position().line();
        match reader.read_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(orders),
            Err(error) => return Err(line_error(path, line, error.to_string())),
        }
        let line = record.position().map_or(line, csv::Position::line);
        let order: Order = record
            .deserialize(Some(&headers))
            .map_err(|error| line_error(path, line, describe(&error, &headers)))?;
        order.validate().map_err(|what| line_error(path, line, what))?;
        if let Some(earlier) = lines_by_id.insert(order.order_id.clone(), line) {
            let what = format!("order {} stands in line {earlier} already", order.order_id);
            return Err(line_error(path, line, what));
        }
        orders.push(order);
    }
}

/// Writes orders in the form that [`read`] reads.
pub(crate) fn write(orders: impl Iterator<Item = Order>, to: impl io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(to);
    for order in orders {
        writer.serialize(order)?;
    }
    writer.flush()
}

impl Order {
    fn validate(&self) -> Result<(), String> {
        if self.order_id.is_empty() {
            return Err("order_id is empty".into());
        }
        if self.account.is_empty() {
            return Err("account is empty".into());
        }
        if !is_date(&self.ordered_on) {
            return Err(format!("ordered_on is {:?}, a day such as 2026-03-31 is wanted", self.ordered_on));
        }
        if self.currency.len() != 3 || !self.currency.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return Err(format!("currency is {:?}, an ISO code such as EUR is wanted", self.currency));
        }
        Ok(())
    }
}

fn is_date(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| -> Option<u32> {
        let part = text.get(range)?;
        part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let dashes = text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(7) == Some(&b'-');
    text.len() == 10
        && dashes
        && digits(0..4).is_some()
        && digits(5..7).is_some_and(|month| (1..=12).contains(&month))
        && digits(8..10).is_some_and(|day| (1..=31).contains(&day))
}

/// Names the column of a field that can't be read; the csv crate only counts it.
fn describe(error: &csv::Error, headers: &csv::StringRecord) -> String {
    let csv::ErrorKind::Deserialize { err, .. } = error.kind() else {
        return error.to_string();
    };
    match err.field().and_then(|field| headers.get(usize::try_from(field).ok()?)) {
        Some(column) => format!("column {column}: {}", err.kind()),
        None => err.kind().to_string(),
    }
}

fn line_error(path: &Path, line: u64, what: String) -> OrdersError {
    OrdersError::Line { path: path.into(), line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "order_id,ordered_on,account,article,quantity,amount_cents,currency\n";

    fn read_text(text: &str) -> Result<Vec<Order>, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path()).map_err(|error| error.to_string().replace(&*file.path().to_string_lossy(), "FILE"))
    }

    #[test]
    fn what_is_written_reads_back() {
        let orders: Vec<Order> = crate::generate::orders(300, 9).collect();
        let mut text = Vec::new();
        write(orders.iter().cloned(), &mut text).unwrap();
        assert_eq!(read_text(std::str::from_utf8(&text).unwrap()).unwrap(), orders);
    }

    #[test]
    fn a_bad_line_is_named_with_its_number_and_column() {
        let good = "SO-1,2026-01-01,C-1,\"Lamp, brass\",1,100,EUR\n";
        for (bad, expected) in [
            (
                "SO-2,2026-01-01,C-1,Lamp,1,ten,EUR\n",
                "FILE:3: not an order: column amount_cents: invalid digit",
            ),
            ("SO-2,2026-13-01,C-1,Lamp,1,10,EUR\n", "FILE:3: not an order: ordered_on is \"2026-13-01\""),
            ("SO-2,2026-1-001,C-1,Lamp,1,10,EUR\n", "FILE:3: not an order: ordered_on is \"2026-1-001\""),
            ("SO-2,2026-01-01,C-1,Lamp,1,10,euro\n", "FILE:3: not an order: currency is \"euro\""),
            ("SO-2,2026-01-01,C-1,Lamp,1\n", "FILE:3: not an order: "),
            (",2026-01-01,C-1,Lamp,1,10,EUR\n", "FILE:3: not an order: order_id is empty"),
            (
                "SO-1,2026-01-01,C-1,Lamp,1,10,EUR\n",
                "FILE:3: not an order: order SO-1 stands in line 2 already",
            ),
        ] {
            let error = read_text(&format!("{HEADER}{good}{bad}")).unwrap_err();
            assert!(error.starts_with(expected), "{error:?} should start with {expected:?}");
        }
    }

    #[test]
    fn a_file_with_other_columns_is_refused() {
        let error = read_text("id,total\n1,2\n").unwrap_err();
        assert!(error.starts_with("FILE:2: not an order: "), "{error}");
    }

    #[test]
    fn a_file_without_records_is_no_orders() {
        assert_eq!(read_text(HEADER).unwrap(), []);
    }
}
