//! Model files that were changed: whatever is done to a file, it is refused or gives the same bits, and nothing panics.

mod common;
#[path = "model_files/models.rs"]
mod models;
#[path = "model_files/registry.rs"]
mod registry;

use common::*;
use mercer::Result;
use mercer::model::{Bundle, checksum};
use models::*;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The answer of a file of these bytes; a panic fails the test.
fn answered(model: &Model, path: &Path, bytes: &[u8], what: &str) -> Result<String> {
    std::fs::write(path, bytes).unwrap();
    let answer = catch_unwind(AssertUnwindSafe(|| (model.answer)(path)));
    answer.unwrap_or_else(|_| panic!("{}: {what} makes it panic", model.name))
}

/// The length of a file's header, which follows the first eight bytes.
fn header_length(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize
}

/// One random change of some bytes: anywhere, or within the header only.
fn changed(bytes: &[u8], rng: &mut Rng) -> (Vec<u8>, String) {
    let mut bytes = bytes.to_vec();
    let within = if rng.below(3) == 0 { bytes.len() } else { 8 + header_length(&bytes) };
    let at = rng.below(within);
    let what = match rng.below(7) {
        0 => {
            bytes[at] ^= 1 << rng.below(8);
            "a flipped bit"
        }
        1 => {
            bytes[at] = rng.below(256) as u8;
            "another byte"
        }
        2 => {
            bytes.remove(at);
            "a byte less"
        }
        3 => {
            bytes.insert(at, rng.below(256) as u8);
            "a byte more"
        }
        4 => {
            bytes.truncate(at);
            "a truncation"
        }
        5 => {
            let other = rng.below(within);
            bytes.swap(at, other);
            "two bytes exchanged"
        }
        // Another digit where there is one: what an edited number looks like.
        _ => {
            let digits: Vec<usize> = (8..8 + header_length(&bytes)).filter(|&i| bytes[i].is_ascii_digit()).collect();
            bytes[digits[rng.below(digits.len())]] = b'0' + rng.below(10) as u8;
            "another digit"
        }
    };
    (bytes, format!("{what} at {at}"))
}

#[test]
fn a_changed_file_is_refused_or_gives_the_same_bits() {
    const MUTANTS: usize = 250;
    let (_folder, path) = scratch("mutant");
    let mut rng = Rng::new(18);
    for model in models() {
        let right = answered(&model, &path, &model.bytes, "nothing").unwrap();
        let mut accepted = 0;
        for _ in 0..MUTANTS {
            let (bytes, what) = changed(&model.bytes, &mut rng);
            if let Ok(said) = answered(&model, &path, &bytes, &what) {
                accepted += 1;
                assert!(said == right, "{}: {what} gives another answer", model.name);
            }
        }
        // Only what stands for the same numbers passes, such as a space in the header.
        assert!(accepted < MUTANTS / 4, "{}: {accepted} of {MUTANTS} pass", model.name);
    }
}

/// The values of a tree that are not lists or records, or are short lists, by their places.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    all.push(at.clone());
    match value {
        Value::Array(list) => {
            list.iter().enumerate().take(3).for_each(|(i, inner)| places(inner, format!("{at}/{i}"), all));
        }
        Value::Object(map) => map.iter().for_each(|(name, inner)| places(inner, format!("{at}/{name}"), all)),
        _ => {}
    }
}

/// Another value in the place of one of a header.
fn another(value: &Value, rng: &mut Rng) -> Value {
    match (value, rng.below(4)) {
        (_, 0) => [Value::Null, json!(0), json!("x"), json!([]), json!(-1), json!(1e300)][rng.below(6)].clone(),
        (Value::Number(number), 1) => json!(number.as_f64().unwrap() + 1.0),
        (Value::Number(number), 2) if number.is_u64() => json!(number.as_u64().unwrap() + 1 + rng.below(3) as u64),
        (Value::Number(number), _) if number.is_u64() => json!([0, 1, u64::MAX / 3, 1 << 40][rng.below(4)]),
        (Value::Number(_), _) => json!([0.0, -1.0, 1e-300, 1e300][rng.below(4)]),
        (Value::Array(list), 1) => list[..list.len().saturating_sub(1)].to_vec().into(),
        (Value::Array(list), 2) => [&list[..], &list[..list.len().min(1)]].concat().into(),
        (Value::String(text), 1) => text.chars().rev().collect::<String>().into(),
        (Value::String(text), 2) => {
            let digit = char::from(b'0' + rng.below(10) as u8);
            text.chars()
                .map(|c| if c.is_ascii_digit() && rng.below(3) == 0 { digit } else { c })
                .collect::<String>()
                .into()
        }
        (Value::String(text), _) => text[..text.len() / 2].to_owned().into(),
        (Value::Bool(b), _) => json!(!b),
        (Value::Object(map), _) => {
            let mut map = map.clone();
            if let Some(name) = map.keys().nth(rng.below(map.len().max(1))).cloned() {
                map.remove(&name);
            }
            map.into()
        }
        _ => Value::Null,
    }
}

/// The file with another header, and the checksum of the new content: what somebody makes who knows the format.
fn resealed(bytes: &[u8], edit: impl FnOnce(&mut Value)) -> Vec<u8> {
    let length = header_length(bytes);
    let mut file: Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
    let metadata = &mut file["__metadata__"];
    let key = if metadata["mercer"].is_string() { "mercer" } else { "header" };
    let mut header: Value = serde_json::from_str(metadata[key].as_str().unwrap()).unwrap();
    edit(&mut header);
    let header = header.to_string();
    let sum = checksum(&header, SafeTensors::deserialize(bytes).unwrap().iter());
    (metadata[key], metadata["checksum"]) = (header.into(), sum.into());
    let mut text = file.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    [&(text.len() as u64).to_le_bytes(), &text[..], &bytes[8 + length..]].concat()
}

#[test]
fn headers_that_contradict_the_rest_are_refused_without_a_panic() {
    const MUTANTS: usize = 150;
    let (_folder, path) = scratch("mutant");
    let mut rng = Rng::new(19);
    for model in models() {
        let right = answered(&model, &path, &resealed(&model.bytes, |_| ()), "a new seal").unwrap();
        assert_eq!(right, answered(&model, &path, &model.bytes, "nothing").unwrap(), "{}", model.name);
        for _ in 0..MUTANTS {
            let mut what = String::new();
            let bytes = resealed(&model.bytes, |header| {
                let mut all = vec![];
                places(header, String::new(), &mut all);
                let place = &all[1 + rng.below(all.len() - 1)];
                let value = header.pointer_mut(place).unwrap();
                let other = another(value, &mut rng);
                what = format!("{place} = {other} instead of {value}");
                *value = other;
            });
            // A number that stands for itself alone, such as a time, may be any other.
            let _ = answered(&model, &path, &bytes, &what);
        }
    }
}

#[test]
fn parts_that_do_not_fit_together_are_named() {
    let (_folder, path) = scratch("edited");
    let models = models();
    let refused = |name: &str, place: &str, value: Value, words: &[&str]| {
        let model = models.iter().find(|model| model.name == name).unwrap();
        let bytes = resealed(&model.bytes, |header| *header.pointer_mut(place).unwrap() = value);
        says(answered(model, &path, &bytes, place), words);
    };
    refused("exact", "/certificate/residual", json!([0.1]), &["certificate.residual", "1 entries", "3 pairs"]);
    refused("exact", "/eigenvalues", json!([0.5, 0.2]), &["coefficients"]);
    refused("exact", "/origin/d", json!(3), &["3 columns", "2"]);
    refused("exact", "/origin/outputs", json!(2), &["2 outputs"]);
    let table = "krylov of a table";
    refused(table, "/schema/scaler/shift", json!([0.0]), &["scaling of 1 and 3", "3 were fitted"]);
    refused(table, "/schema/fill", json!([0.0]), &["schema of 2 columns", "3 were fitted"]);
    refused(table, "/schema/fill", json!([0.0, null]), &["missing values"]);
    refused(table, "/schema/indicator", json!([false, false]), &["2 features", "3 were fitted"]);
    refused(table, "/schema/missing", json!("refuse"), &["missing values"]);
    refused(table, "/schema/missing", json!("guess"), &["schema", "guess"]);
    refused(table, "/schema/columns", json!([]), &["schema of 0 columns"]);
    refused(table, "/schema/scaling", json!("none"), &["scaling"]);
    refused(table, "/schema/target/classes", json!([]), &["without classes"]);
    refused("ridge of a table", "/schema/columns/0/kind", json!({"category": []}), &["2 features", "5 were fitted"]);
    refused("rff", "/features.centre", json!([0.0]), &["centre"]);
    refused("networks", "/features.standard/scale", json!(0.0), &["scale above 0", "not 0"]);
    refused("networks", "/features.standard/centre", json!([]), &["0 inputs"]);
    refused("networks", "/features.networks", json!(4), &["numbers"]);
    refused("samples", "/features.functions", json!(4), &["3×3"]);
    refused("networks on samples", "/features.outputs", json!(3), &["by_samples", "outputs"]);
    refused("kpca", "/explained", json!([0.5]), &["explained", "1 entries"]);
    refused("laplacian", "/walk.eigenvalues", json!([]), &["walk.eigenvalues", "0 entries"]);
    refused("laplacian", "/time", json!(-1e308), &["the coordinate of row", "inf"]);
    refused("laplacian", "/origin/kernel", json!("neighbours(30)"), &["between 1 and 29"]);
    refused("ridge of classes", "/target", json!({"Classes": []}), &["no classes"]);
    refused("ridge", "/origin/n", json!(29), &["points", "30×2"]);
    let brackets = json!(format!("{}rbf(1){}", "(".repeat(8000), ")".repeat(8000)));
    refused("exact", "/features.kernel", brackets, &["nested deeper than 32"]);
    refused("kfac", "/blocks/0/start", json!(1), &["1 of 2 blocks"]);
    refused("ella", "/network/net", json!("dense(7) bn relu dense(3)"), &["trained numbers"]);
    refused("classifier", "/standard/spread", json!([0.0]), &["contradicts itself"]);
}

#[test]
fn files_of_other_versions_are_refused_with_what_to_do() {
    let (_folder, path) = scratch("version");
    let models = models();
    let edited = |model: &Model, from: &str, to: &str| {
        let end = 8 + header_length(&model.bytes);
        let text = std::str::from_utf8(&model.bytes[8..end]).unwrap().replace(from, to);
        [&model.bytes[..8], text.as_bytes(), &model.bytes[end..]].concat()
    };
    let (first, last) = (&models[0], models.last().unwrap());
    for (model, from, to, words) in [
        (first, r#""version":"3""#, r#""version":"2""#, ["version 2", "fit and save the model again"]),
        (first, r#""version":"3""#, r#""version":"4""#, ["version 4", "update mercer"]),
        (last, r#"\"version\":2"#, r#"\"version\":1"#, ["version 1", "save the network again"]),
        (last, r#"\"version\":2"#, r#"\"version\":9"#, ["version 9", "update mercer"]),
        (first, r#""header":"#, r#""haeder":"#, ["has no header", ""]),
    ] {
        let bytes = edited(model, from, to);
        assert_ne!(bytes, model.bytes, "{from}");
        says(answered(model, &path, &bytes, to), &words);
    }
}

/// The same model gives the same bytes, and a bundle with a number that is not finite gives no file at all.
#[test]
fn files_hold_finite_numbers_only() {
    let (folder, path) = scratch("bundle");
    let weights = ndarray::array![[1.0, 2.0], [3.0, f64::NAN]];
    let mut bundle = Bundle::default();
    bundle.put("weights", weights.view());
    says(bundle.write(&path), &["weights", "row 2", "NaN", "not written"]);
    let mut bundle = Bundle::default();
    bundle.set("certificate", json!({"a": 1.0}));
    bundle.set("interval", [Some([0.0, f64::INFINITY])]);
    says(bundle.write(&path), &["interval", "inf", "not written"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut bundle = Bundle::default();
    bundle.set("none", None::<f64>);
    bundle.put("weights", weights.slice(s![..1, ..]));
    bundle.write(&path).unwrap();
    let first = std::fs::read(&path).unwrap();
    bundle.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
    let back = Bundle::read(&path).unwrap();
    back.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);
}
