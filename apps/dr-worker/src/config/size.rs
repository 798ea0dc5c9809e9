//! Sizes with a unit, such as `"10MiB"`.

use job_guard::Size;

use serde::Deserializer;
use strategies::settings::parsed;

use super::parse::Parse;

const SIZE: &str =
    "a size: a string with a whole number and a unit, such as \"512KiB\", \"10MiB\" or \"2GiB\"";

impl Parse for Size {
    const IS_TEXT: bool = true;

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        parsed(from, SIZE, |text| text.parse().ok())
    }

    fn show(&self) -> String {
        self.to_string().show()
    }

    #[cfg(test)]
    fn schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": r"^\s*[0-9]+\s*([KMGT]iB|B)\s*$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Size, String> {
        Size::read(serde_json::Value::from(text)).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn sizes_have_a_unit_and_are_shown_in_the_largest_that_fits() {
        for (text, bytes, shown) in [
            ("0B", 0, "0B"),
            ("1500B", 1500, "1500B"),
            ("10 MiB", 10 << 20, "10MiB"),
            ("2048KiB", 2 << 20, "2MiB"),
            ("1GiB", 1 << 30, "1GiB"),
        ] {
            assert_eq!(parse(text), Ok(Size(bytes)), "{text}");
            assert_eq!(Size(bytes).to_string(), shown);
        }
        for text in ["10", "10MB", "MiB", "-1KiB", "1.5GiB", "99999999999TiB"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("\"10MiB\"") && error.contains(text), "{error}");
        }
    }
}
