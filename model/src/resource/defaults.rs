//! The defaults that an API server fills in, by the same schema: what we compare with must have them too, and what we
//! store must not, because a default that was filled in was not said by anybody.

use serde_json::Value;

/// Fills in what the schema gives a default for, as an API server does: only inside of objects that are there.
pub fn fill(schema: &Value, value: &mut Value) {
    walk(schema, value, &mut |members, name, default| {
        members.entry(name.to_owned()).or_insert_with(|| default.clone());
    });
}

/// Takes out what says nothing beyond the default.
pub fn strip(schema: &Value, value: &mut Value) {
    walk(schema, value, &mut |members, name, default| {
        if members.get(name) == Some(default) {
            members.remove(name);
        }
    });
}

type Visit<'a> = &'a mut dyn FnMut(&mut serde_json::Map<String, Value>, &str, &Value);

fn walk(schema: &Value, value: &mut Value, visit: Visit<'_>) {
    match value {
        Value::Object(members) => {
            for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if let Some(default) = inner.get("default") {
                    visit(members, name, default);
                }
                if let Some(member) = members.get_mut(name) {
                    walk(inner, member, visit);
                }
            }
            if let Some(inner) = schema.get("additionalProperties") {
                members.values_mut().for_each(|member| walk(inner, member, visit));
            }
        }
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for item in items {
                    walk(inner, item, visit);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, bare: Value, filled: &Value) {
        let mut value = bare.clone();
        fill(schema, &mut value);
        assert_eq!(value, *filled);
        strip(schema, &mut value);
        assert_eq!(value, bare);
    }

    #[test]
    fn defaults_go_into_objects_that_are_there_and_out_again() {
        let schema = json!({ "properties": {
            "mode": { "default": "advise" },
            "block": { "properties": { "cpu": { "default": 70 } } },
            "list": { "items": { "properties": { "on": { "default": true } } } },
        } });
        check(&schema, json!({}), &json!({ "mode": "advise" }));
        check(&schema, json!({ "mode": "active" }), &json!({ "mode": "active" }));
        check(&schema, json!({ "block": {} }), &json!({ "mode": "advise", "block": { "cpu": 70 } }));
        check(
            &schema,
            json!({ "list": [{}, { "on": false }] }),
            &json!({ "mode": "advise", "list": [{ "on": true }, { "on": false }] }),
        );
    }
}
