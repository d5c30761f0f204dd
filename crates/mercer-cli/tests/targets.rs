//! Which rows a target belongs to: that of a file of its own to the data alone, a column to every table; and rows without a target.

mod common;

use common::Folder;
use mercer::data::write_npy;
use mercer::rng::Rng;
use ndarray::{Array1, Array2};
use serde_json::Value;
use std::fs;

/// `name.npy` with n rows of three columns, their classes `[x0 > 0]` in `y-name.npy`, and the table of both in `name.csv`.
fn rows(folder: &Folder, name: &str, n: usize, seed: u64) -> Array1<f64> {
    let x = Rng::new(seed).normals((n, 3));
    let y = x.column(0).mapv(|v| f64::from(u8::from(v > 0.0)));
    write_npy(folder.join(format!("{name}.npy")), x.view()).unwrap();
    write_npy(folder.join(format!("y-{name}.npy")), y.view()).unwrap();
    let line = |i: usize| format!("{},{},{},{}\n", x[[i, 0]], x[[i, 1]], x[[i, 2]], y[i]);
    let table: String = std::iter::once("x0,x1,x2,y\n".into()).chain((0..n).map(line)).collect();
    fs::write(folder.join(format!("{name}.csv")), table).unwrap();
    y
}

/// Data of 200 rows, others of 200 and of 150.
fn folder() -> Folder {
    let folder = Folder::new();
    rows(&folder, "a", 200, 1);
    rows(&folder, "same", 200, 2);
    rows(&folder, "other", 150, 3);
    folder
}

fn errors(folder: &Folder, line: &str) -> String {
    let output = folder.mercer(line).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "mercer {line}: {said}");
    said
}

/// Arrays with targets in files of their own give what tables with a column give; and new rows have no target unless they get one.
#[test]
fn a_target_file_belongs_to_the_data_alone() {
    let folder = folder();
    for command in ["regress", "gp --method exact --restarts 0 --search-rows 50"] {
        let line = format!("{command} a.npy --target y-a.npy --regress");
        for other in ["same", "other"] {
            let alone = folder.object(&format!("{line} --predict {other}.npy --out p.npy"));
            assert!(alone["test"].is_null(), "{command} {other}: {alone}");
            let table = folder.object(&format!("{command} a.csv --target y --regress --predict {other}.csv"));
            let given = format!("{line} --predict {other}.npy --predict-target y-{other}.npy");
            assert_eq!(folder.object(&given)["test"], table["test"], "{command} {other}");
            assert!(table["test"]["rmse"].as_f64().unwrap() < 0.4, "{table}");
            folder.refuses(&format!("{line} --predict {other}.npy"), "or its targets by --predict-target");
        }
    }
    // A score against the targets of the data would be that of guesses.
    let told = folder.object(
        "regress a.npy --target y-a.npy --classify --predict other.npy --predict-target y-other.npy --out p.npy",
    );
    let (predicted, truth) = (folder.read("p.npy"), folder.read("y-other.npy"));
    let right = predicted.iter().zip(&truth).filter(|(a, b)| a == b).count();
    assert_eq!(told["test"]["accuracy"].as_f64().unwrap(), right as f64 / 150.0);
    assert!(right > 135, "{right}");
    folder.refuses(
        "regress a.npy --target y-a.npy --predict same.npy --predict-target y.csv",
        "it must be an .npy file with one number for each row",
    );
}

#[test]
fn networks_are_scored_and_calibrated_on_targets_of_their_own() {
    let folder = folder();
    let net = "--net 'dense(8) relu dense(2)' --epochs 80";
    for other in ["same", "other"] {
        folder.refuses(
            &format!("train a.npy --target y-a.npy {net} --test {other}.npy"),
            &format!("`{other}.npy` has no target; give one number for each row by --test-target"),
        );
        let table = folder.object(&format!("train a.csv --target y {net} --test {other}.csv --out t.safetensors"));
        let line = format!("train a.npy --target y-a.npy {net} --test {other}.npy --test-target y-{other}.npy");
        let given = folder.object(&format!("{line} --out n.safetensors"));
        assert_eq!(given["test"], table["test"]);
        assert!(table["test"]["accuracy"].as_f64().unwrap() > 0.9, "{table}");
    }
    let laplace = "laplace n.safetensors a.npy --target y-a.npy --method temperature";
    folder.refuses(&format!("{laplace} --validation same.npy"), "--validation-target");
    folder.refuses(&format!("{laplace} --validation-target y-same.npy --validation 0.3"), "name the rows");
    let both = "--validation same.npy --validation-target y-same.npy --test other.npy";
    folder.refuses(&format!("{laplace} {both}"), "--test-target");
    let scored = |line: &str| {
        let object = folder.object(line);
        object["methods"]
            .as_array()
            .unwrap()
            .iter()
            .map(|m| [&m["test"], &m["temperature"]].map(Value::clone))
            .collect::<Vec<_>>()
    };
    let table = scored(
        "laplace t.safetensors a.csv --target y --method temperature --validation same.csv --test other.csv --ood same.csv",
    );
    assert_eq!(scored(&format!("{laplace} {both} --test-target y-other.npy --ood same.npy")), table);
    assert!(table.iter().any(|[_, t]| t.as_f64().is_some_and(|t| t < 5.0)), "{table:?}");
}

#[test]
fn snapshots_and_codes_are_measured_on_targets_of_their_own() {
    let folder = folder();
    let net = "--net 'dense(8) relu dense(2)' --epochs 8 --snapshots";
    folder.said(&format!("train a.csv --target y {net} csv"));
    folder.said(&format!("train a.npy --target y-a.npy {net} npy"));
    let scored = |line: &str| folder.object(&format!("trajectory {line} --method swa"))["methods"][0]["test"].clone();
    let table = scored("csv a.csv --target y --validation same.csv --test other.csv");
    let given = "npy a.npy --target y-a.npy --validation same.npy --validation-target y-same.npy --test other.npy";
    assert_eq!(scored(&format!("{given} --test-target y-other.npy")), table);
    folder.refuses(&format!("trajectory {given}"), "--test-target");
    for (from, target) in [("csv", "--target y"), ("npy", "")] {
        folder.said(&format!("embed a.{from} {target} --k 2 --model {from}.mercer"));
    }
    let probe = "probe npy.mercer a.npy --target y-a.npy --test other.npy";
    folder.refuses(probe, "name the column or the file that holds them by --test-target");
    let mut given = folder.object(&format!("{probe} --test-target y-other.npy"))["codes"].clone();
    let mut table = folder.object("probe csv.mercer a.csv --target y --test other.csv")["codes"].clone();
    for codes in [&mut given, &mut table] {
        codes.as_array_mut().unwrap().iter_mut().for_each(|code| code["milliseconds"] = Value::Null);
    }
    assert_eq!(given, table);
    assert!(given.as_array().unwrap().last().unwrap()["linear"]["value"].as_f64().unwrap() > 0.7, "{given}");
}

/// Files beside the data that need no target, of other numbers of rows.
#[test]
fn files_without_a_target_are_read_beside_a_target_file() {
    let folder = folder();
    let data = "a.npy --target y-a.npy";
    folder.said(&format!("fit {data} --k 2 --certify other.npy"));
    folder.said(&format!("gram {data} --kernel 'rbf(1)' --cross other.npy --out K.npy"));
    assert_eq!(folder.read("K.npy").dim(), (200, 150));
    folder.said(&format!("ntk {data} --net 'dense(4) relu dense(1)' --cross other.npy --out T.npy"));
    let near = folder.read("a.npy").mapv(|v| v + 0.01 * v.sin());
    write_npy(folder.join("near.npy"), near.view()).unwrap();
    folder.said(&format!("eigenmap {data} --pairs near.npy --net 'dense(8) relu dense(2)' --k 2 --epochs 1"));
    folder.said(&format!("eigenmap {data} --test other.npy --net 'dense(8) relu dense(2)' --k 2 --epochs 1"));
    // Functions in column order cannot be mapped, and go through the reader.
    let f = Array2::from_shape_fn((200, 40), |(i, s)| ((i * (s + 1)) as f64).sin());
    write_npy(folder.join("F.npy"), f.t()).unwrap();
    let mut column_order = fs::read(folder.join("F.npy")).unwrap();
    let order = column_order.windows(5).position(|w| w == b"False").unwrap();
    column_order[order..order + 5].copy_from_slice(b"True ");
    let start = column_order.len() - 8 * 200 * 40;
    for (at, v) in f.iter().enumerate() {
        column_order[start + 8 * at..start + 8 * at + 8].copy_from_slice(&v.to_le_bytes());
    }
    fs::write(folder.join("C.npy"), column_order).unwrap();
    assert_eq!(folder.read("C.npy"), folder.read("F.npy"));
    let scores =
        |file: &str| folder.object(&format!("gp {data} --regress --samples {file} --holdout 0.2"))["holdout"].clone();
    assert_eq!(scores("C.npy"), scores("F.npy"));
}

/// The lines of a file, some of them without the last cell.
fn without_targets(folder: &Folder, name: &str, missing: &[usize]) {
    let text = fs::read_to_string(folder.join(format!("{name}.csv"))).unwrap();
    let line = |(i, line): (usize, &str)| match i > 0 && missing.contains(&(i - 1)) {
        true => format!("{},\n", line.rsplit_once(',').unwrap().0),
        false => format!("{line}\n"),
    };
    fs::write(folder.join("gaps.csv"), text.lines().enumerate().map(line).collect::<String>()).unwrap();
    let kept = text.lines().enumerate().filter(|(i, _)| *i == 0 || !missing.contains(&(i - 1)));
    fs::write(folder.join("kept.csv"), kept.map(|(_, line)| format!("{line}\n")).collect::<String>()).unwrap();
}

/// Whether two scores are the same but for rounding: sums over other rows are taken in other parts.
fn agree(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().all(|(name, v)| agree(v, &b[name])),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b)),
        (Value::Number(a), Value::Number(b)) => {
            let [a, b] = [a, b].map(|v| v.as_f64().expect("a number"));
            (a - b).abs() <= 1e-12 * a.abs().max(1e-3)
        }
        _ => a == b,
    }
}

/// Rows without a target are left out of the score, and are predicted.
#[test]
fn rows_without_a_target_are_left_out_of_the_score() {
    let folder = folder();
    without_targets(&folder, "other", &[0, 7, 8, 149]);
    let warning = "gaps: 4 rows without a target left out of the score";
    for command in ["regress", "regress --regress", "gp --regress --restarts 0 --search-rows 50"] {
        let score = |file: &str| {
            folder.object(&format!("{command} a.csv --target y --predict {file} --out p.npy --model m.mercer"))["test"]
                .clone()
        };
        assert!(agree(&score("gaps.csv"), &score("kept.csv")), "{command}");
        let said = errors(&folder, &format!("{command} a.csv --target y --predict gaps.csv --out p.npy"));
        assert!(said.contains(warning), "{command}: {said}");
        assert_eq!(folder.read("p.npy").nrows(), 150);
        let predicted = |file: &str| folder.object(&format!("predict m.mercer {file}"));
        assert!(agree(&predicted("gaps.csv")["test"], &predicted("kept.csv")["test"]), "{command}");
        assert!(!predicted("kept.csv")["test"].is_null());
        let said = errors(&folder, "predict m.mercer gaps.csv");
        assert!(said.contains(warning) && said.contains("on 146 rows"), "{said}");
    }
    let net = "--net 'dense(8) relu dense(2)' --epochs 5";
    let score = |file: &str| {
        folder.object(&format!("train a.csv --target y {net} --test {file} --out n.safetensors"))["test"].clone()
    };
    assert_eq!(score("gaps.csv"), score("kept.csv"));
    let score = |file: &str| folder.object(&format!("evaluate n.safetensors {file} --out z.npy"))["test"].clone();
    assert_eq!(score("kept.csv"), score("gaps.csv"));
    assert_eq!(folder.read("z.npy").dim(), (150, 2));
    let laplace = |file: &str| {
        let line =
            format!("laplace n.safetensors a.csv --target y --method temperature --validation {file} --test {file}");
        folder.object(&line)["methods"][0]["test"].clone()
    };
    assert_eq!(laplace("gaps.csv"), laplace("kept.csv"));
    let all: Vec<usize> = (0..150).collect();
    without_targets(&folder, "other", &all);
    folder.refuses(&format!("train a.csv --target y {net} --test gaps.csv"), "`gaps.csv` has no target");
}
