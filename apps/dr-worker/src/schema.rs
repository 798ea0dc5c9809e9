//! The JSON Schema of what is sent.

use schemars::{JsonSchema, Schema, generate::SchemaSettings, transform::transform_subschemas};
use serde_json::{Map, Value};

/// A JSON object whose fields are those of a type of another crate.
pub(crate) type Object = Map<String, Value>;

/// The schema of what is sent as this type, without references.
pub(crate) fn schema_of<T: JsonSchema>() -> Schema {
    by::<T>(SchemaSettings::draft2020_12().for_serialize())
}

/// The schema of what is read as this type, without references.
pub(crate) fn schema_as_read<T: JsonSchema>() -> Schema {
    by::<T>(SchemaSettings::draft2020_12().for_deserialize())
}

fn by<T: JsonSchema>(settings: SchemaSettings) -> Schema {
    let settings = settings.with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().subschema_for::<T>();
    never_null(&mut schema);
    schema
}

/// A field that can be absent is never sent as null.
fn never_null(schema: &mut Schema) {
    let required = schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten();
    for (_, property) in properties.filter(|(name, _)| !required.iter().any(|known| known == name.as_str())) {
        let Some(types) = property["type"].as_array_mut() else { continue };
        types.retain(|name| name != "null");
        if let [one] = types.as_slice() {
            property["type"] = one.clone();
        }
    }
    transform_subschemas(&mut never_null, schema);
}
