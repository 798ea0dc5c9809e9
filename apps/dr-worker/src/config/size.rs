//! Sizes with a unit, such as `"10MiB"`.

use job_guard::Size;

use super::{
    parse::{Mismatch, Parse},
    tree::Node,
};

const SIZE: &str =
    "a size: a string with a whole number and a unit, such as \"512KiB\", \"10MiB\" or \"2GiB\"";

impl Parse for Size {
    fn parse(node: &Node) -> Result<Self, Mismatch> {
        let text = String::parse(node)?;
        text.parse().map_err(|_| Mismatch::from(format!("expected {SIZE}, found {text:?}")))
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
    use super::super::tree::{Origin, Value};
    use super::*;

    fn parse(text: &str) -> Result<Size, String> {
        let value = Value::String(text.to_owned());
        let node = Node { value, origin: Origin::BuiltIn, key_origin: Origin::BuiltIn, outlived: false };
        Size::parse(&node).map_err(|wrong| wrong.message)
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
