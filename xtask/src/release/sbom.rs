//! The bill of materials: every crate that the program is built of, as CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::cargo::cargo;
use crate::dist::{NAME, output};

/// As cargo resolves the features of the program alone, which `cargo metadata` does not.
pub(super) fn made(target: &str) -> anyhow::Result<String> {
    let mut tree = cargo(["tree", "--locked", "-p", NAME, "--target", target, "-e", "normal,build"]);
    let tree = output(tree.args(["--prefix", "depth", "--no-dedupe", "--format", " {p}|{l}"]))?;
    Ok(serde_json::to_string_pretty(&of_tree(&tree)?)? + "\n")
}

fn of_tree(tree: &str) -> anyhow::Result<Value> {
    let mut licenses = BTreeMap::new();
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut path: Vec<String> = Vec::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let (depth, rest) = line.split_once(' ').context(line.to_owned())?;
        let (package, license) = rest.split_once('|').context(line.to_owned())?;
        let mut words = package.split(' ');
        let (name, version) = words.next().zip(words.next()).context(line.to_owned())?;
        let id = format!("pkg:cargo/{name}@{}", version.trim_start_matches('v'));
        path.truncate(depth.parse()?);
        if let Some(parent) = path.last() {
            needs.entry(parent.clone()).or_default().insert(id.clone());
        }
        needs.entry(id.clone()).or_default();
        licenses.insert(id.clone(), license.replace('/', " OR "));
        path.push(id);
    }
    let component = |(id, license): (&String, &String)| -> Option<Value> {
        let (name, version) = id.strip_prefix("pkg:cargo/")?.split_once('@')?;
        let kind = if name == NAME { "application" } else { "library" };
        let licenses = json!([{ "expression": license }]);
        Some(json!({
            "type": kind, "bom-ref": id, "name": name, "version": version, "purl": id, "licenses": licenses,
        }))
    };
    let (program, libraries): (Vec<_>, Vec<_>) =
        licenses.iter().filter_map(component).partition(|component| component["name"] == NAME);
    let dependencies = needs.iter().map(|(id, needed)| json!({ "ref": id, "dependsOn": needed }));
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": program.first().context("no program")? },
        "components": libraries,
        "dependencies": dependencies.collect::<Vec<_>>(),
    }))
}

#[test]
fn a_bill_has_each_crate_once_and_what_it_needs() -> anyhow::Result<()> {
    let bill = of_tree("0 dr-worker v0.1.0 (/w)|MIT OR X\n1 a v1.0.0|MIT/X\n2 b v2.0.0|X\n1 b v2.0.0|X\n")?;
    let names = |list: &Value| list.as_array().map_or(0, Vec::len);
    assert_eq!((names(&bill["components"]), names(&bill["dependencies"])), (2, 3));
    assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/dr-worker@0.1.0");
    assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR X");
    let needed = json!(["pkg:cargo/a@1.0.0", "pkg:cargo/b@2.0.0"]);
    assert_eq!(bill["dependencies"][2], json!({ "ref": "pkg:cargo/dr-worker@0.1.0", "dependsOn": needed }));
    Ok(())
}
