//! Tables as they are, and models that keep their columns: what the program makes of them, and what it refuses.

mod common;

use common::Folder;
use mercer::data::write_npy;
use mercer::rng::Rng;
use ndarray::{Array1, Array2, Axis, aview1, s};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Stdio;

/// A table of two columns in different units and a target.
fn points(folder: &Folder) {
    let mut rng = Rng::new(7);
    let (mut table, mut moved, mut renamed) = (String::from("a,b,y\n"), String::from("y,b,a\n"), String::from("a,c\n"));
    for _ in 0..60 {
        let (a, b) = (rng.normal(), 1000.0 * rng.normal());
        let y = a.sin() + b / 2000.0;
        table += &format!("{a},{b},{y}\n");
        moved += &format!("{y},{b},{a}\n");
        renamed += &format!("{a},{b}\n");
    }
    for (name, text) in [("t.csv", table), ("moved.csv", moved), ("renamed.csv", renamed)] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn close(a: &Array2<f64>, b: &Array2<f64>, tolerance: f64) {
    assert_eq!(a.dim(), b.dim());
    assert!((a - b).iter().all(|d| d.abs() <= tolerance), "{a} {b}");
}

/// `C c + b` with `(K + αI) c + b 1 = y` and `Σ c = 0`, by elimination: ridge regression with a constant that is not penalised.
fn ridge_with_constant(k: &Array2<f64>, cross: &Array2<f64>, y: &Array1<f64>, alpha: f64) -> Array2<f64> {
    let n = y.len();
    let mut a = Array2::from_shape_fn((n + 1, n + 2), |(i, j)| match (i < n, j < n) {
        (true, true) => k[[i, j]] + if i == j { alpha } else { 0.0 },
        (true, false) => {
            if j == n {
                1.0
            } else {
                y[i]
            }
        }
        (false, inside) => f64::from(u8::from(inside)),
    });
    for p in 0..=n {
        let pivot = (p..=n).max_by(|&i, &j| a[[i, p]].abs().total_cmp(&a[[j, p]].abs())).unwrap();
        for j in 0..n + 2 {
            a.swap([p, j], [pivot, j]);
        }
        for i in (0..=n).filter(|&i| i != p) {
            let factor = a[[i, p]] / a[[p, p]];
            for j in p..n + 2 {
                a[[i, j]] -= factor * a[[p, j]];
            }
        }
    }
    let solution: Vec<f64> = (0..=n).map(|i| a[[i, n + 1]] / a[[i, i]]).collect();
    let value = |i: usize| (0..n).map(|j| cross[[i, j]] * solution[j]).sum::<f64>() + solution[n];
    Array2::from_shape_fn((cross.nrows(), 1), |(i, _)| value(i))
}

fn errors(folder: &Folder, line: &str) -> String {
    let output = folder.mercer(line).output().unwrap();
    assert!(output.status.success(), "mercer {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

/// Columns of new points are found by name for spectra and for embeddings, and a column that is not there is an error.
#[test]
fn transform_finds_columns_by_name() {
    let folder = Folder::new();
    points(&folder);
    folder.said("fit t.csv --target y --k 3 --holdout 0 --out fit.mercer");
    folder.said("embed t.csv --target y --k 2 --out z.npy --model embed.mercer");
    for model in ["fit", "embed"] {
        folder.said(&format!("transform {model}.mercer t.csv --out a.npy"));
        folder.said(&format!("transform {model}.mercer moved.csv --out b.npy"));
        assert_eq!(folder.read("a.npy"), folder.read("b.npy"), "{model}");
        folder.refuses(&format!("transform {model}.mercer renamed.csv --out c.npy"), "no column `b`");
        assert!(!folder.join("c.npy").exists());
    }
    // The coordinates of fitted points are those that embed wrote.
    close(&folder.read("a.npy"), &folder.read("z.npy"), 1e-9);
    folder.refuses("predict embed.mercer t.csv", "mercer transform");
}

#[test]
fn tables_are_standardised_unless_told_otherwise() {
    let folder = Folder::new();
    points(&folder);
    let regress = "regress t.csv --target y --holdout 0.2";
    let score = |options: &str| folder.object(&format!("{regress} {options}"))["holdout"].clone();
    assert_eq!(score(""), score("--scale standard"));
    let rmse = |score: Value| score["rmse"].as_f64().unwrap();
    assert!(rmse(score("")) < 0.7 * rmse(score("--scale none")));
    assert!(errors(&folder, regress).contains("columns: 2 numbers (standardised); target y: numbers"));
    assert!(errors(&folder, &format!("{regress} --scale none")).contains("2 numbers (as they are)"));
    // Images are not scaled.
    let digits = |options: &str| folder.object(&format!("regress digits --rows 200 {options}"))["left_out_mse"].clone();
    assert_eq!(digits(""), digits("--scale none"));
    assert!(!errors(&folder, "regress digits --rows 200").contains("columns:"));
}

#[test]
fn whole_numbers_are_classes_and_said_to_be() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|i| format!("{},{}\n", f64::from(i) / 10.0, i / 20)).collect();
    fs::write(folder.join("t.csv"), format!("x,y\n{rows}")).unwrap();
    let regress = "regress t.csv --target y";
    assert!(folder.object(regress)["train"]["accuracy"].as_f64().unwrap() > 0.9);
    let said = errors(&folder, regress);
    assert!(said.contains("whole numbers, taken as classes; --regress takes them as numbers"), "{said}");
    assert!(said.contains("target y: 3 classes (0, 1, 2)"), "{said}");
    assert!(folder.object(&format!("{regress} --regress"))["train"]["rmse"].is_number());
    let many: String = (0..60).map(|i| format!("{},{}\n", f64::from(i) / 10.0, i)).collect();
    fs::write(folder.join("many.csv"), format!("x,y\n{many}")).unwrap();
    assert!(
        errors(&folder, "regress many.csv --target y").contains("taken as numbers; --classify takes them as classes")
    );
}

/// Rows of every kind, and the same rows with the features by hand.
#[test]
fn mixed_tables_are_those_made_by_hand() {
    let folder = Folder::new();
    let mut rng = Rng::new(3);
    let (mut mixed, mut by_hand) = (String::from("colour,size,sold,when,y\n"), String::from("r,g,b,s,m,t,d,y\n"));
    let (mut sizes, mut rows) = (vec![], vec![]);
    for i in 0..80 {
        let (colour, sold, day) = (rng.below(3), rng.below(2), rng.below(28));
        let size = (i % 9 != 4).then(|| rng.normal());
        sizes.extend(size);
        let y = colour as f64 + size.unwrap_or(0.0).sin() + sold as f64 * 0.3 + day as f64 / 50.0;
        let cell = size.map_or("NA".into(), |size| size.to_string());
        let word = ["blue", "green", "red"][colour];
        mixed += &format!("{word},{cell},{},2024-02-{:02},{y}\n", ["no", "yes"][sold], day + 1);
        rows.push((colour, size, sold, day, y));
    }
    let mean = sizes.iter().sum::<f64>() / sizes.len() as f64;
    let standard = |values: Vec<f64>| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        values.into_iter().map(|v| (v - mean) / variance.sqrt()).collect::<Vec<f64>>()
    };
    let size = standard(rows.iter().map(|row| row.1.unwrap_or(mean)).collect());
    let day = standard(rows.iter().map(|row| row.3 as f64).collect());
    for (i, (colour, missing, sold, _, y)) in rows.iter().enumerate() {
        let hot = [0, 1, 2].map(|c| u8::from(c == *colour));
        let missing = u8::from(missing.is_none());
        by_hand += &format!("{},{},{},{},{missing},{sold},{},{y}\n", hot[0], hot[1], hot[2], size[i], day[i]);
    }
    fs::write(folder.join("mixed.csv"), mixed).unwrap();
    fs::write(folder.join("hand.csv"), by_hand).unwrap();
    let regress = "--target y --kernel rbf(2) --alpha 0.01 --regress";
    folder.said(&format!(
        "regress mixed.csv {regress} --missing impute --predict mixed.csv --out a.npy --model m.mercer"
    ));
    folder.said(&format!("regress hand.csv {regress} --scale none --predict hand.csv --out b.npy"));
    close(&folder.read("a.npy"), &folder.read("b.npy"), 1e-9);
    folder.said("predict m.mercer mixed.csv --out c.npy");
    assert_eq!(folder.read("a.npy"), folder.read("c.npy"));
    let message = folder.refused(&format!("regress mixed.csv {regress}"));
    assert!(["row 5, column 2", "`size`", "--missing impute"].iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn predictions_of_a_model_are_those_of_its_fit() {
    let folder = Folder::new();
    points(&folder);
    let regress = "regress t.csv --target y --predict moved.csv --out p.npy --model m.mercer";
    for method in ["ridge", "nadaraya-watson"] {
        folder.said(&format!("{regress} --method {method}"));
        let scored = folder.object("predict m.mercer moved.csv --out q.npy");
        assert_eq!(folder.read("p.npy"), folder.read("q.npy"), "{method}");
        assert!(scored["test"]["rmse"].is_number());
        folder.refuses("predict m.mercer renamed.csv", "no column `b`");
        folder.refuses("transform m.mercer t.csv --out z.npy", "mercer predict");
    }
    // Rows without a target, some of them in a table that has one.
    fs::write(folder.join("new.csv"), "b,a\n10,0.5\n").unwrap();
    fs::write(folder.join("some.csv"), "b,a,y\n10,0.5,NA\n10,0.5,1\n").unwrap();
    let one = folder.object("predict m.mercer new.csv");
    let two = folder.object("predict m.mercer some.csv");
    assert!(one["test"].is_null() && two["test"]["rmse"].is_number());
    let at = |object: &Value, i: usize| object["predictions"][i].as_f64().unwrap();
    assert!((at(&one, 0) - at(&two, 1)).abs() < 1e-12);
    assert!(folder.said("inspect m.mercer").contains("Called: a, b"));
}

#[test]
fn classes_come_with_scores_or_probabilities() {
    let folder = Folder::new();
    folder.said("regress moons(n=200) --method nadaraya-watson --model m.mercer");
    folder.said("train moons(n=200) --net 'dense(16) relu dense(2)' --epochs 2 --out n.safetensors");
    let accuracy = |object: Value| object["test"]["accuracy"].as_f64().unwrap();
    let network = accuracy(folder.object("evaluate n.safetensors moons(n=50,seed=3)"));
    assert!((accuracy(folder.object("predict n.safetensors moons(n=50,seed=3)")) - network).abs() < 1e-12);
    for model in ["m.mercer", "n.safetensors"] {
        let said = folder.said(&format!("predict {model} moons(n=50,seed=3)"));
        let mut lines = said.lines();
        let heading = lines.next().unwrap();
        assert!(heading.starts_with("prediction,probability "), "{heading}");
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let p: Vec<f64> = cells[1..].iter().map(|cell| cell.parse().unwrap()).collect();
            assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-9 && p.iter().all(|p| *p >= 0.0), "{line}");
            let largest = usize::from(p[1] > p[0]);
            assert!(heading.split(',').nth(1 + largest).unwrap().ends_with(cells[0]), "{line}");
        }
    }
    assert!(folder.said("inspect n.safetensors").contains("dense(16) relu dense(2)"));
    folder.said("regress moons(n=60) --alpha 0.1 --model r.mercer");
    assert!(folder.said("predict r.mercer moons(n=3)").starts_with("prediction,probability "));
}

#[test]
fn networks_of_tables_find_their_columns_too() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 7, ["x", "z"][i % 2], ["no", "yes"][i % 2])).collect();
    fs::write(folder.join("t.csv"), format!("a,b,y\n{rows}")).unwrap();
    let moved: String = (0..60).map(|i| format!("{},{}\n", ["x", "z"][i % 2], i % 7)).collect();
    fs::write(folder.join("moved.csv"), format!("b,a\n{moved}")).unwrap();
    folder.said("train t.csv --target y --net 'dense(8) relu dense(2)' --epochs 3 --out n.safetensors");
    let [a, b] = ["t.csv", "moved.csv"].map(|file| folder.object(&format!("predict n.safetensors {file}")));
    assert_eq!(a["predictions"], b["predictions"]);
    assert!(folder.said("inspect n.safetensors").contains("1 category of 2 levels"));
    // Other commands that take a trained network find its columns, too.
    let labelled: String =
        (0..60).map(|i| format!("{},{},{}\n", ["no", "yes"][i % 2], ["x", "z"][i % 2], i % 7)).collect();
    fs::write(folder.join("labelled.csv"), format!("y,b,a\n{labelled}")).unwrap();
    let score = |file: &str| folder.object(&format!("evaluate n.safetensors {file} --target y"))["test"].clone();
    assert_eq!(score("t.csv"), score("labelled.csv"));
    for (file, out) in [("t.csv", "k.npy"), ("moved.csv", "l.npy")] {
        folder.said(&format!("ntk {file} --net n.safetensors --method mean --rows 9 --out {out}"));
    }
    assert_eq!(folder.read("k.npy"), folder.read("l.npy"));
}

#[test]
fn sources_of_other_kinds() {
    let folder = Folder::new();
    points(&folder);
    let plain = folder.object("regress t.csv --target y --rows 40");
    let same = |mut object: Value| {
        object["data"] = plain["data"].clone();
        object["seconds"] = plain["seconds"].clone();
        for cost in common::COSTS {
            object.as_object_mut().unwrap().remove(cost);
        }
        assert_eq!(object, plain);
    };
    // Standard input.
    let mut command = folder.mercer("regress - --target y --rows 40 --json");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = fs::read(folder.join("t.csv")).unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    same(serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap());
    // Features and target in two arrays.
    let table = folder.read("t.csv");
    write_npy(folder.join("x.npy"), table.select(Axis(1), &[0, 1]).view()).unwrap();
    write_npy(folder.join("y.npy"), aview1(&table.column(2).to_vec())).unwrap();
    same(folder.object("regress x.npy --target y.npy --rows 40"));
    write_npy(folder.join("all.npy"), table.view()).unwrap();
    same(folder.object("regress all.npy --target -1 --rows 1-40"));
    // Columns.
    fs::write(folder.join("more.csv"), String::from_utf8(text).unwrap().replace('\n', ",word\n")).unwrap();
    same(folder.object("regress more.csv --target y --rows 40 --columns a,b"));
    same(folder.object("regress more.csv --target y --rows 40 --drop word"));
}

/// `--rows` is for the rows to learn from, and a table without numbers says that its first row may be a header.
#[test]
fn rows_of_other_files_are_all_read() {
    let folder = Folder::new();
    points(&folder);
    folder.said("regress t.csv --target y --rows 40 --predict t.csv --out p.npy");
    assert_eq!(folder.read("p.npy").nrows(), 60);
    fs::write(folder.join("w.csv"), format!("a,b\n{}", "x,y\nu,v\n".repeat(3))).unwrap();
    assert!(errors(&folder, "fit w.csv --k 1 --holdout 0").contains("--header yes"));
    assert!(!errors(&folder, "fit w.csv --k 1 --holdout 0 --header yes").contains("--header"));
}

#[test]
fn sampled_spectra_are_inspected() {
    let folder = Folder::new();
    folder.said("sample moons(n=60) --net 'dense(8) erf dense(1)' --count 20 --out F.npy");
    folder.said("fit moons(n=60) --samples F.npy --k 2 --out s.mercer");
    assert!(folder.said("inspect s.mercer").contains("20 sampled functions"));
    folder.said("fit moons(n=60) --method neuralef --steps 1 --k 1 --checkpoint state");
    folder.refuses("inspect state", "--resume");
}

/// A kernel matrix in a file gives what the kernel gives, in each command, at new points too.
#[test]
fn precomputed_matrices_are_kernels() {
    let folder = Folder::new();
    points(&folder);
    let table = folder.read("t.csv");
    let mut x = table.select(Axis(1), &[0, 1]);
    x.column_mut(1).mapv_inplace(|b| b / 1000.0);
    let (old, new) = (x.slice(s![..50, ..]), x.slice(s![50.., ..]));
    write_npy(folder.join("x.npy"), old).unwrap();
    write_npy(folder.join("new.npy"), new).unwrap();
    write_npy(folder.join("y.npy"), table.slice(s![..50, 2])).unwrap();
    folder.said("gram x.npy --kernel rbf(1) --out K.npy");
    folder.said("gram new.npy --cross x.npy --kernel rbf(1) --out C.npy");
    let both = |command: &str, options: &str, used: &str| {
        let given = "--kernel precomputed";
        folder.said(&format!("{command} x.npy --kernel rbf(1) --scale none {options} a.mercer"));
        folder.said(&format!("{command} K.npy {given} {options} b.mercer"));
        folder.said(&format!("{used} a.mercer new.npy --out a.npy"));
        folder.said(&format!("{used} b.mercer C.npy --out b.npy"));
        (folder.read("a.npy"), folder.read("b.npy"))
    };
    folder.said("regress K.npy --kernel precomputed --target y.npy --alpha 0.01 --model b.mercer");
    folder.said("predict b.mercer C.npy --out b.npy");
    let y = table.slice(s![..50, 2]).to_owned();
    close(&ridge_with_constant(&folder.read("K.npy"), &folder.read("C.npy"), &y, 0.01), &folder.read("b.npy"), 1e-6);
    let (a, b) = both("embed", "--k 2 --model", "transform");
    close(&a, &b, 1e-9);
    let (a, b) = both("fit", "--k 3 --method exact --holdout 0 --out", "transform");
    close(&a.mapv(f64::abs), &b.mapv(f64::abs), 1e-9);
    folder.refuses("transform b.mercer new.npy --out z.npy", "has 2 columns, where 50 were fitted");
    folder.refuses("fit x.npy --kernel precomputed --k 2", "a kernel matrix is square");
    write_npy(folder.join("odd.npy"), ndarray::array![[1.0, 0.5], [0.4, 1.0]].view()).unwrap();
    folder.refuses("fit odd.npy --kernel precomputed --k 1", "row 2, column 1 (counted from 1) is 0.4");
    folder.refuses("regress K.npy --target y.npy --kernel precomputed --holdout 0.2", "without --holdout");
    folder.refuses(
        "embed K.npy --kernel precomputed --method diffusion --out z.npy",
        "a kernel matrix is for the method kpca",
    );
}

/// The decoder panics at a page of this file (one byte of which was changed); the user sees a sentence alone.
#[test]
fn a_corrupt_page_prints_one_sentence() {
    let folder = Folder::new();
    fs::write(folder.join("t.parquet"), include_bytes!("data_panic.parquet")).unwrap();
    let output = folder.mercer("fit t.parquet --k 1 --holdout 0").env("RUST_BACKTRACE", "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(said, "error: t.parquet: is a corrupt parquet file: its pages cannot be decoded\n");
}

/// How a table was read is said where it is not the usual way, with the option that changes it.
#[test]
fn odd_tables_are_spoken_of() {
    let folder = Folder::new();
    let rows: String = (0..60).map(|i| format!("{i},caf{},{},5\n", ["é", "è"][i % 2], i % 5)).collect();
    let text = format!(",k,x,y\n{rows}").replace('é', "\u{1}").replace('è', "\u{2}");
    let western: Vec<u8> = text.bytes().map(|b| if b < 3 { 0xe7 + b } else { b }).collect();
    fs::write(folder.join("t.csv"), western).unwrap();
    let said = errors(&folder, "regress t.csv --target k");
    assert!(said.contains("2 classes (cafè, café)"), "{said}");
    assert!(said.contains("t.csv: its text is not UTF-8 and was read as Windows-1252"), "{said}");
    assert!(said.contains("`x0`") && said.contains("leave the column out (--drop)"), "{said}");
}
