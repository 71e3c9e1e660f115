//! As much of YAML as the presets use: block mappings and lists, flow mappings and lists, quoted and
//! plain scalars.

use serde_json::{Map, Number, Value};

/// Reads a preset.
pub(crate) fn read(text: &str) -> Value {
    let lines: Vec<(usize, &str)> = text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
        .map(|line| (line.len() - line.trim_start().len(), line.trim()))
        .collect();
    let (value, rest) = block(&lines);
    assert!(rest.is_empty(), "left over: {:?}", rest.first());
    value
}

type Lines<'a> = &'a [(usize, &'a str)];

/// What begins at the first line, and the lines after it.
fn block<'a>(lines: Lines<'a>) -> (Value, Lines<'a>) {
    let (indent, first) = lines[0];
    if first.starts_with("- ") { list(lines, indent) } else { mapping(lines, indent) }
}

fn list<'a>(mut lines: Lines<'a>, indent: usize) -> (Value, Lines<'a>) {
    let mut items = Vec::new();
    while let Some((at, line)) =
        lines.first().filter(|(at, line)| *at == indent && line.starts_with("- "))
    {
        let rest = &line[2..];
        if rest.starts_with('{') || rest.starts_with('[') {
            items.push(flow(rest));
            lines = &lines[1..];
            continue;
        }
        // A mapping that begins on the dash's line.
        let end =
            lines[1..].iter().position(|(other, _)| other <= at).map_or(lines.len(), |i| i + 1);
        let inner: Vec<(usize, &str)> =
            std::iter::once((at + 2, rest)).chain(lines[1..end].iter().copied()).collect();
        let (value, left) = mapping(&inner, at + 2);
        assert!(left.is_empty(), "left over in a list: {left:?}");
        items.push(value);
        lines = &lines[end..];
    }
    (Value::Array(items), lines)
}

fn mapping<'a>(mut lines: Lines<'a>, indent: usize) -> (Value, Lines<'a>) {
    let mut entries = Map::new();
    while let Some((_, line)) = lines.first().filter(|(at, _)| *at == indent) {
        let (key, rest) = line.split_once(':').unwrap_or_else(|| panic!("no key: {line}"));
        lines = &lines[1..];
        let value = match rest.trim() {
            "" => {
                let (value, left) = block(lines);
                lines = left;
                value
            }
            rest => flow(rest),
        };
        assert!(entries.insert(key.to_owned(), value).is_none(), "{key} comes twice");
    }
    (Value::Object(entries), lines)
}

fn flow(text: &str) -> Value {
    let (value, rest) = item(text);
    assert!(rest.trim().is_empty(), "left over: {rest}");
    value
}

fn item(text: &str) -> (Value, &str) {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('[') {
        let mut items = Vec::new();
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            if let Some(rest) = rest.strip_prefix(']') {
                return (Value::Array(items), rest);
            }
            let (value, left) = item(rest);
            items.push(value);
            rest = left;
        }
    }
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut entries = Map::new();
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            if let Some(rest) = rest.strip_prefix('}') {
                return (Value::Object(entries), rest);
            }
            let (key, left) = rest.split_once(':').expect("a key");
            let (value, left) = item(left);
            assert!(entries.insert(key.trim().to_owned(), value).is_none(), "{key} comes twice");
            rest = left;
        }
    }
    if let Some(rest) = text.strip_prefix('"') {
        let (inner, rest) = rest.split_once('"').expect("the quote is closed");
        return (Value::String(inner.to_owned()), rest);
    }
    let end = text.find([',', ']', '}']).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let word = word.trim();
    let value = match (word, word.parse::<u64>(), word.parse::<f64>()) {
        ("true", ..) => Value::Bool(true),
        ("false", ..) => Value::Bool(false),
        (_, Ok(whole), _) => Value::from(whole),
        (_, _, Ok(number)) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        _ => Value::String(word.to_owned()),
    };
    (value, rest)
}
