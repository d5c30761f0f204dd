//! Changes of the header and the matrices of a model file, written again as the library writes it: what a byte changed at
//! random would not get past a checksum with.

use crate::mutate::NUMBERS;
use mercer::model::Bundle;
use mercer::rng::Rng;
use ndarray::{Array2, Axis};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The header and the matrices of a model file.
pub struct Model {
    header: Map<String, Value>,
    matrices: Vec<(String, Array2<f64>)>,
}

impl Model {
    /// Reads a file that the library has written.
    pub fn read(path: &Path) -> Model {
        let bytes = std::fs::read(path).expect("the seed was just written");
        let length = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
        let file: Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).expect("the header is JSON");
        let header = file["__metadata__"]["header"].as_str().expect("the header is a text");
        let bundle = Bundle::read(path).expect("the seed is read");
        let names = file.keys().filter(|name| *name != "__metadata__");
        let matrices = names.map(|name| (name.clone(), bundle.matrix(name).expect("its matrix"))).collect();
        Model { header: serde_json::from_str(header).expect("the header holds JSON"), matrices }
    }

    /// Writes the model with one to three changes.
    pub fn write_edited(&self, rng: &mut Rng, path: &Path) {
        let mut header = Value::Object(self.header.clone());
        let mut matrices = self.matrices.clone();
        for _ in 0..1 + rng.below(3) {
            if rng.below(3) > 0 || matrices.is_empty() {
                edit_value(rng, &mut header);
            } else {
                edit_matrices(rng, &mut matrices);
            }
        }
        let mut bundle = Bundle::default();
        for (key, value) in header.as_object().into_iter().flatten() {
            bundle.set(key, value);
        }
        for (name, matrix) in &matrices {
            bundle.put(name, matrix.view());
        }
        // A library that does not write numbers that are not finite is right to refuse.
        if bundle.write(path).is_err() {
            std::fs::write(path, b"").expect("the folder is ours");
        }
    }
}

/// Changes a value somewhere inside.
fn edit_value(rng: &mut Rng, value: &mut Value) {
    let deeper = rng.below(6) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let key = map.keys().nth(rng.below(map.len())).expect("a key").clone();
            if rng.below(20) == 0 {
                map.remove(&key);
            } else {
                edit_value(rng, &mut map[key.as_str()]);
            }
        }
        Value::Array(all) if deeper && !all.is_empty() => {
            let at = rng.below(all.len());
            match rng.below(6) {
                0 => drop(all.remove(at)),
                1 => all.insert(at, all[at].clone()),
                2 => all.truncate(at),
                _ => edit_value(rng, &mut all[at]),
            }
        }
        Value::String(text) if rng.below(3) > 0 => *text = edited_text(rng, text),
        Value::Bool(flag) if rng.below(3) > 0 => *flag = !*flag,
        other => *other = any_value(rng),
    }
}

fn edited_text(rng: &mut Rng, text: &str) -> String {
    let bytes =
        crate::mutate::mutated(rng, text.as_bytes(), &[], &["(", ")", "*", "+", "rbf(1)", "nngp('", "dense(9) "]);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn any_value(rng: &mut Rng) -> Value {
    match rng.below(8) {
        0 => Value::Null,
        1 => json!([]),
        2 => json!({}),
        3 => json!(""),
        4 => json!(rng.below(2) == 0),
        5 => json!(rng.below(40)),
        _ => {
            let text = NUMBERS[rng.below(NUMBERS.len())];
            // Numbers that JSON cannot hold are kept as texts.
            serde_json::from_str(text).unwrap_or_else(|_| json!(text))
        }
    }
}

/// Takes a matrix away, exchanges two, cuts or doubles rows or columns, or changes an entry.
fn edit_matrices(rng: &mut Rng, matrices: &mut Vec<(String, Array2<f64>)>) {
    let at = rng.below(matrices.len());
    let (n, m) = matrices[at].1.dim();
    let axis = Axis(rng.below(2));
    let length = if axis == Axis(0) { n } else { m };
    match rng.below(7) {
        0 => drop(matrices.remove(at)),
        1 => {
            let other = rng.below(matrices.len());
            let matrix = matrices[other].1.clone();
            matrices[other].1 = std::mem::replace(&mut matrices[at].1, matrix);
        }
        2 if length > 0 => matrices[at].1.remove_index(axis, rng.below(length)),
        3 if length > 0 => {
            let rows: Vec<usize> = (0..length).chain([rng.below(length)]).collect();
            matrices[at].1 = matrices[at].1.select(axis, &rows);
        }
        4 => matrices[at].1 = Array2::zeros(if axis == Axis(0) { (0, m) } else { (n, 0) }),
        5 => matrices[at].1 = matrices[at].1.t().as_standard_layout().into_owned(),
        _ if n * m > 0 => {
            let value: f64 = NUMBERS[rng.below(NUMBERS.len())].parse().expect("a number");
            matrices[at].1[[rng.below(n), rng.below(m)]] = if value.is_finite() { value } else { 1e300 };
        }
        _ => {}
    }
}
