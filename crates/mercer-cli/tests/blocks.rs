//! Files that do not fit into the memory budget: read in blocks, with the results of a fit in memory, and within the budget.

mod common;

use common::Folder;
use mercer::data::{MappedArray, write_npy, write_npy_rows};
use mercer::rng::Rng;
use ndarray::{Array1, Array2};
use serde_json::Value;

/// Rows and columns of `xy.npy`, 24 MB in single precision; with its features it takes 72 MB.
const N: usize = 200_000;
const D: usize = 30;
/// A budget that the program fits into, but not the data.
const SMALL: &str = "--memory 70MB";

/// Points with a smooth function of the first two columns as the last; `classes.npy` has its sign.
fn write_data(folder: &Folder) {
    let (mut rng, mut classes) = (Rng::new(3), Vec::with_capacity(N));
    write_npy_rows(folder.join("xy.npy"), &[N, D], |put| {
        (0..N).try_for_each(|_| {
            let mut row: [f32; D] = std::array::from_fn(|j| (j as f64 + rng.normal()) as f32);
            row[D - 1] = row[0].sin() + 0.5 * (row[1] - 1.0) + 0.1 * rng.normal() as f32;
            classes.push(if row[D - 1] > 0.0 { 1i64 } else { -1 });
            put(&row)
        })
    })
    .unwrap();
    write_npy(folder.join("classes.npy"), Array1::from(classes).view()).unwrap();
}

fn numbers(folder: &Folder, name: &str) -> Vec<f64> {
    let file = MappedArray::open(folder.join(name)).unwrap();
    let mut all = vec![0.0; file.dims().iter().product()];
    file.read(0, &mut all);
    all
}

#[track_caller]
fn close(a: &[f64], b: &[f64], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    let scale = b.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let worst = a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
    assert!(worst <= tolerance * scale, "{worst:e} of {scale:e}");
}

fn number(object: &Value, path: &str) -> f64 {
    object.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} in {object}"))
}

/// A run that is refused, in a sentence with these words.
#[track_caller]
fn refuses(folder: &Folder, line: &str, words: &[&str]) {
    let message = folder.refused(line);
    assert!(words.iter().all(|word| message.contains(word)), "mercer {line}: {message}");
}

/// What a run says on standard error, and the object that it prints.
fn run(folder: &Folder, line: &str) -> (Value, String) {
    let output = folder.mercer(&format!("{line} --json --threads 2")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "mercer {line}: {said}");
    (serde_json::from_slice(&output.stdout).unwrap(), said)
}

/// The same command with a small budget and with a large one; the first says that it reads blocks, and keeps to the budget.
fn both(folder: &Folder, line: &str) -> [Value; 2] {
    let (small, said) = run(folder, &format!("{line} {SMALL}"));
    assert!(said.contains("more than the memory budget of 66.8 MiB; they are read in blocks"), "{said}");
    assert!(said.contains("estimated peak memory of"), "{said}");
    if let Some(peak) = small.pointer("/peak_memory").and_then(Value::as_f64) {
        assert!(peak < 70e6, "mercer {line}: {peak:e} bytes");
    }
    let (large, said) = run(folder, &format!("{line} --memory 8GiB"));
    assert!(!said.contains("in blocks"), "{said}");
    [small, large]
}

#[test]
fn regressions_and_predictions_are_those_in_memory() {
    let folder = Folder::new();
    write_data(&folder);
    for method in [
        "--method linear --kernel linear",
        "--method random-features --rank 40",
        "--method random-features --rank 40 --kernel 'matern32(5)' --alpha 0.1 --scale none",
    ] {
        let line = format!("regress xy.npy --target 30 --holdout 0.05 --model m.mercer {method}");
        let [small, large] = both(&folder, &line);
        assert_eq!(number(&small, "/blocks/passes"), 2.0);
        if let Some(peak) = small["peak_memory"].as_f64() {
            let expected = number(&small, "/blocks/expected_memory");
            assert!((0.8..1.2).contains(&(peak / expected)), "{peak:e} bytes, where {expected:e} were expected");
        }
        for part in ["/n", "/d", "/rank"] {
            assert_eq!(small.pointer(part), large.pointer(part));
        }
        for part in ["/alpha", "/holdout/rmse", "/holdout/r2"] {
            close(&[number(&small, part)], &[number(&large, part)], 1e-6);
        }
        assert!((number(&small, "/train/rmse") / number(&large, "/train/rmse") - 1.0).abs() < 0.1);
    }
    // The model of the last command, by both ways.
    let [small, large] =
        both(&folder, "predict m.mercer xy.npy --out p.npy").map(|object| number(&object, "/test/rmse"));
    close(&[small], &[large], 1e-9);
    let in_memory = numbers(&folder, "p.npy");
    run(&folder, &format!("predict m.mercer xy.npy --out q.npy {SMALL}"));
    close(&numbers(&folder, "q.npy"), &in_memory, 1e-12);
    run(&folder, &format!("predict m.mercer xy.npy --out q.csv {SMALL}"));
    let table = std::fs::read_to_string(folder.join("q.csv")).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("prediction"));
    close(&lines.map(|line| line.parse().unwrap()).collect::<Vec<f64>>(), &in_memory, 1e-12);
    refuses(&folder, &format!("predict m.mercer xy.npy {SMALL}"), &["200 000 rows", "--out"]);
}

/// A lengthscale and a kernel are searched for on the rows in memory.
#[test]
fn kernels_are_found_in_blocks() {
    let folder = Folder::new();
    write_data(&folder);
    let line = "regress xy.npy --target 30 --holdout 0.02 --method random-features --rank 100";
    let (median, _) = run(&folder, &format!("{line} --memory 150MB"));
    let (found, said) = run(&folder, &format!("{line} --search rbf,matern32 --memory 150MB"));
    assert!(said.contains("rows and the fit take") && said.contains("read in blocks, 2 times"), "{said}");
    assert_eq!(number(&found, "/blocks/passes"), 2.0);
    assert!(number(&found, "/search/rows") == 4000.0, "{found}");
    assert!(found["search"]["tried"].as_array().unwrap().len() > 20, "{found}");
    let [searched, median] = [&found, &median].map(|object| number(object, "/holdout/rmse"));
    assert!(searched < median, "{searched} where the median distance has {median}");
    if let Some(peak) = found.pointer("/peak_memory").and_then(Value::as_f64) {
        assert!(peak < 150e6, "{peak:e} bytes");
    }
    let (folds, _) = run(&folder, &format!("{line} --cv 3 {SMALL}"));
    assert!(number(&folds, "/blocks/passes") == 2.0 && number(&folds, "/holdout/rmse") < 1.1 * median, "{folds}");
    for (option, word) in [("--solver cg", "--solver needs"), ("--method falkon", "--method falkon needs")] {
        let line = format!("regress xy.npy --target 30 {option} {SMALL}");
        refuses(&folder, &line, &[word, "read such a file in blocks", "memory budget"]);
    }
}

/// The choice between memory and blocks counts the fit.
#[test]
fn a_fit_that_does_not_fit_beside_its_rows_is_in_blocks() {
    let folder = Folder::new();
    write_data(&folder);
    let line = "regress xy.npy --target 30 --method random-features --rank 300 --memory 100MB";
    let (found, said) = run(&folder, line);
    assert!(said.contains("rows and the fit take"), "{said}");
    if let Some(peak) = found.pointer("/peak_memory").and_then(Value::as_f64) {
        assert!(peak < 100e6, "{peak:e} bytes");
    }
}

#[test]
fn classes_are_those_in_memory() {
    let folder = Folder::new();
    write_data(&folder);
    let line = "regress xy.npy --target classes.npy --drop 30 --method nystrom --rank 30 --kernel 'matern12(8)'";
    let (small, said) = run(&folder, &format!("{line} --holdout 0.02 --model m.mercer {SMALL}"));
    assert!(said.contains("read in blocks, 2 times"), "{said}");
    assert!(number(&small, "/holdout/accuracy") > 0.8, "{small}");
    for name in ["p.npy", "p.csv"] {
        let [a, b] = both(&folder, &format!("predict m.mercer xy.npy --target classes.npy --drop 30 --out {name}"));
        assert_eq!(a["test"]["confusion"], b["test"]["confusion"]);
        close(&[number(&a, "/test/log_loss")], &[number(&b, "/test/log_loss")], 1e-9);
    }
    let table = std::fs::read_to_string(folder.join("p.csv")).unwrap();
    assert!(table.starts_with("prediction,probability -1,probability 1\n"), "{}", &table[..60]);
}

#[test]
fn spectra_and_functions_are_those_in_memory() {
    let folder = Folder::new();
    write_data(&folder);
    let fit =
        "fit xy.npy --method random-features --features 60 --k 4 --kernel 'rbf(8)' --holdout 0.002 --out m.mercer";
    let [small, large] = both(&folder, fit);
    for j in 0..4 {
        let part = format!("/eigenvalues/{j}");
        close(&[number(&small, &part)], &[number(&large, &part)], 1e-9);
        let part = format!("/certificate/residual/{j}");
        close(&[number(&small, &part)], &[number(&large, &part)], 1e-5);
    }
    assert_eq!(small["certificate"]["standing"], large["certificate"]["standing"]);
    both(&folder, "transform m.mercer xy.npy --out psi.npy");
    let in_memory = numbers(&folder, "psi.npy");
    assert_eq!(in_memory.len(), 4 * N);
    run(&folder, &format!("transform m.mercer xy.npy --out phi.npy {SMALL}"));
    assert_eq!(numbers(&folder, "phi.npy"), in_memory);
    run(&folder, &format!("transform m.mercer xy.npy --out phi.csv {SMALL}"));
    let table = std::fs::read_to_string(folder.join("phi.csv")).unwrap();
    assert!(table.starts_with("psi1,psi2,psi3,psi4\n") && table.lines().count() == N + 1);
    refuses(
        &folder,
        &format!("fit xy.npy --method krylov {SMALL}"),
        &["memory budget", "rff (without --ritz) and nystrom"],
    );
    refuses(&folder, &format!("{fit} --report r.html {SMALL}"), &["--report"]);
}

#[test]
fn unfit_files_are_refused_in_one_sentence() {
    let folder = Folder::new();
    write_data(&folder);
    let line = |rest: &str| format!("regress {rest} --method linear --kernel linear {SMALL}");
    refuses(&folder, &line("xy.npy"), &["`xy.npy` has no target", "--target"]);
    refuses(&folder, &line("xy.npy --target 31"), &["no column 31"]);
    folder.said(&line("xy.npy --target 30 --model m.mercer"));
    // A file of one column less, one with a number that is none, and one that lies column by column.
    let narrow = Array2::<f32>::zeros((280_000, 28));
    write_npy(folder.join("narrow.npy"), narrow.view()).unwrap();
    refuses(
        &folder,
        &format!("predict m.mercer narrow.npy --out p.npy {SMALL}"),
        &["narrow.npy", "28 columns", "29 were fitted"],
    );
    assert!(!folder.join("p.npy").exists());
    let bytes = std::fs::read(folder.join("xy.npy")).unwrap();
    let mut damaged = bytes.clone();
    let at = bytes.len() - 4 * D;
    damaged[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(folder.join("nan.npy"), &damaged).unwrap();
    refuses(&folder, &line("nan.npy --target 30"), &["nan.npy", "row 200000, column 1 (counted from 1) is NaN"]);
    refuses(&folder, &format!("predict m.mercer nan.npy --out p.npy {SMALL}"), &["row 200000, column 1", "NaN"]);
    let at = bytes.windows(5).position(|word| word == b"False").unwrap();
    let fortran = [&bytes[..at], b"True ", &bytes[at + 5..]].concat();
    std::fs::write(folder.join("fortran.npy"), fortran).unwrap();
    refuses(
        &folder,
        &format!("{} --memory 20MB", "regress fortran.npy --target 30 --method linear --kernel linear"),
        &["Fortran order"],
    );
    assert!(!folder.join("p.npy").exists());
    // The program itself takes more than so little.
    refuses(
        &folder,
        "regress xy.npy --target 30 --method linear --kernel linear --memory 10MB",
        &["the fit in blocks of rows"],
    );
}
