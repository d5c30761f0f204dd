//! Numbers that overflow, names that are equal, texts that are too deep, arrays that are too large: the program says so, and
//! writes nothing.

mod common;

use mercer::data::write_npy;
use mercer::rng::Rng;
use ndarray::Array2;
use serde_json::Value;
use std::path::{Path, PathBuf};

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Exit code, standard output and standard error.
    fn run(&self, line: &str) -> (i32, String, String) {
        let output = common::mercer(line, '\'', self.path()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().expect("no signal ends it"), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn refuses(&self, line: &str, words: &[&str]) {
        let (code, out, error) = self.run(line);
        assert!(code == 1 || code == 2, "mercer {line}: {code} {error}");
        assert!(out.is_empty(), "mercer {line} prints {out}");
        assert!(words.iter().all(|word| error.contains(word)), "mercer {line}: {error}");
        assert!(error.len() < 1000 && error.lines().count() < 4, "mercer {line}: {error}");
    }

    fn object(&self, line: &str) -> Value {
        let (code, out, error) = self.run(&format!("{line} --json"));
        assert_eq!(code, 0, "mercer {line}: {error}");
        serde_json::from_str(&out).unwrap()
    }
}

/// Random numbers `[n, d]`.
fn normal(n: usize, d: usize, seed: u64) -> Array2<f64> {
    Rng::new(seed).normals((n, d))
}

fn csv(path: &Path, header: &str, rows: &Array2<f64>) {
    let line = |row: ndarray::ArrayView1<f64>| row.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n";
    let text: String = rows.rows().into_iter().map(line).collect();
    std::fs::write(path, format!("{header}\n{text}")).unwrap();
}

#[test]
fn spectra_that_are_not_finite_are_refused_and_not_written() {
    let folder = Folder::new();
    for (kernel, words) in [
        ("expdot", &["expdot", "scale the data"][..]),
        ("poly(63)", &["poly", "scale the data"]),
        ("rbf(1e-300)", &["NaN", "scale the data"]),
    ] {
        for method in ["krylov", "exact", "nystrom"] {
            folder.refuses(&format!("fit digits --kernel '{kernel}' --method {method} --k 2 --out bad.mercer"), words);
        }
    }
    folder.refuses("fit digits --kernel expdot --method positive --k 2 --out bad.mercer", &["scale the data"]);
    csv(&folder.join("x.csv"), "a,b,y", &normal(60, 3, 1));
    csv(&folder.join("huge.csv"), "a,b,y", &(normal(60, 3, 2) * 1e155));
    csv(&folder.join("far.csv"), "a,b,y", &(normal(20, 3, 3) * 1e120));
    folder
        .refuses("fit huge.csv --target y --scale none --kernel 'rbf(1)' --k 2 --out bad.mercer", &["scale the data"]);
    folder.refuses(
        "fit x.csv --target y --kernel 'poly(3)' --k 2 --certify far.csv --out bad.mercer",
        &["scale the data"],
    );
    for method in ["ridge", "nadaraya-watson"] {
        folder.refuses(
            &format!("regress huge.csv --target y --scale none --method {method} --kernel 'rbf(1)'"),
            &["scale"],
        );
    }
    let kernel = "--kernel 'poly(3)' --alpha 0.1";
    folder.refuses(&format!("regress x.csv --target y {kernel} --predict far.csv --out bad.csv"), &["row 1", "scale"]);
    folder.object("fit x.csv --target y --kernel 'poly(3)' --k 2 --out good.mercer");
    folder.refuses("transform good.mercer far.csv --target y --out bad.npy", &["row 1", "scale"]);
    let files = std::fs::read_dir(folder.path()).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.filter(|name| name.contains("bad")).collect::<Vec<_>>(), Vec::<String>::new());
}

/// Two columns called `a`: the same rows, predicted, score as they did in training, and with their columns in another order too.
#[test]
fn columns_of_one_name_are_told_apart() {
    let folder = Folder::new();
    let mut x = normal(80, 4, 4);
    for mut row in x.rows_mut() {
        row[3] = row[0] - 2.0 * row[1] + (3.0 * row[2]).sin();
    }
    csv(&folder.join("train.csv"), "a,a,b,y", &x);
    csv(&folder.join("same.csv"), "a,a,b,y", &x);
    csv(&folder.join("moved.csv"), "b,a,a,y", &x.select(ndarray::Axis(1), &[2, 0, 1, 3]));
    csv(&folder.join("fewer.csv"), "a,b,y", &x.select(ndarray::Axis(1), &[0, 2, 3]));
    let line = "regress train.csv --target y --kernel 'rbf(1)' --alpha 0.01 --predict";
    for file in ["same.csv", "moved.csv"] {
        let object = folder.object(&format!("{line} {file}"));
        assert!(object["train"]["r2"].as_f64().unwrap() > 0.9);
        assert_eq!(object["train"], object["test"], "{file}");
    }
    folder.refuses(&format!("{line} fewer.csv"), &["a.2"]);
}

#[test]
fn texts_that_are_too_deep_are_refused() {
    let folder = Folder::new();
    let kernel = format!("{}rbf(1){}", "(".repeat(8000), ")".repeat(8000));
    folder.refuses(&format!("fit digits --kernel {kernel}"), &["nested deeper than 32"]);
    let net = format!("'{}dense(4){} dense(1)'", "res(".repeat(4000), ")".repeat(4000));
    for line in [
        "fit digits --method neuralef --net",
        "train digits --net",
        "sample digits --out f.npy --net",
        "ntk digits --out k.npy --net",
    ] {
        folder.refuses(&format!("{line} {net}"), &["nested deeper than 32"]);
    }
    folder.refuses(&format!("fit digits --kernel 'nngp(\"{}\")'", &net[1..net.len() - 1]), &["nested deeper than 32"]);
}

#[test]
fn what_does_not_fit_into_memory_is_refused() {
    let folder = Folder::new();
    let budget = "but the memory budget is";
    for method in ["rff --kernel 'rbf(1)'", "positive --kernel 'expdot(4000)'"] {
        let line = format!("fit digits --method {method} --features 100000000000");
        folder.refuses(&line, &["100000000000 random features", budget]);
    }
    let wide = "'dense(1048576) relu dense(1048576) relu dense(10)'";
    for line in [
        "fit digits --method neuralef --net",
        "train digits --net",
        "sample digits --out f.npy --net",
        "ntk digits --out k.npy --net",
    ] {
        folder.refuses(&format!("{line} {wide}"), &["parameters of", budget]);
    }
    let f = Array2::from_shape_fn((400, 2000), |(s, n)| ((s * n) as f64).sin());
    write_npy(folder.join("f.npy"), f.view()).unwrap();
    write_npy(folder.join("x.npy"), normal(2000, 1, 5).view()).unwrap();
    folder.refuses("fit x.npy --memory 10KB --samples f.npy --k 2", &[budget]);
    folder.refuses("fit moons(n=10000000) --memory 10MB --k 2", &["10000000 points of `moons`", budget]);
    folder.refuses("gram f.npy --memory 1MB --out k.npy", &["f.npy", budget, "--memory"]);
}

/// A target that names rows cannot be learnt, and classes are counted before their columns are made.
#[test]
fn targets_with_too_many_classes_are_refused() {
    let folder = Folder::new();
    let table = |name: &str, rows: usize, of_row: &dyn Fn(usize) -> String| {
        let lines: String = (0..rows).map(|i| format!("{},{},{}\n", i % 7, i % 11, of_row(i))).collect();
        std::fs::write(folder.join(name), format!("a,b,id\n{lines}")).unwrap();
    };
    table("ids.csv", 300, &|i| format!("u{i}"));
    table("numbers.csv", 300, &|i| i.to_string());
    table("many.csv", 4000, &|i| format!("u{}", i % 1000));
    let words = ["ids.csv", "`id` has 300 classes in 300 rows", "`u0`", "too many to learn"];
    for command in
        ["regress ids.csv", "regress ids.csv --loss logistic", "gp ids.csv", "train ids.csv --net 'dense(300)'"]
    {
        folder.refuses(&format!("{command} --target id"), &words);
    }
    folder.refuses("regress numbers.csv --target id --classify", &["`id` has 300 classes in 300 rows"]);
    let line = "regress many.csv --target id --method nystrom --rank 20 --memory 50MB";
    folder.refuses(line, &["the target of 4000 points in 1000 classes", "but the memory budget is", "--memory"]);
    // The columns and the vectors have room, and the sums of a product have not.
    let line = "regress many.csv --target id --method ridge --solver cg --memory 480MB";
    folder.refuses(line, &["the preconditioner of rank", "for 4000 points needs", "but the memory budget is"]);
    // The posterior has room, and its variances at the validation rows for every precision of the prior have not.
    table("classes.csv", 1500, &|i| format!("u{}", i % 300));
    let line = "train classes.csv --target id --net 'dense(4) relu dense(300)' --epochs 1 --out many.safetensors";
    assert_eq!(folder.run(line).0, 0);
    let line = "laplace many.safetensors classes.csv --target id --method last-layer-kfac --memory 50MB";
    let (code, _, error) = folder.run(line);
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("the variances of 300 outputs at 300 validation rows"), "{error}");
    assert!(error.contains("use fewer validation rows"), "{error}");
}

/// One sentence, and no signal, where the system refuses an allocation that the budget allowed.
#[test]
#[cfg(target_os = "linux")]
fn a_limit_of_the_system_ends_in_a_sentence() {
    let program = env!("CARGO_BIN_EXE_mercer");
    let run = |memory: &str| {
        let line = format!(
            "ulimit -v 300000; exec '{program}' fit 'moons(n=4000)' --method exact --k 2 --threads 2 --quiet {memory}"
        );
        let output = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    // The default budget knows the limit; a larger one meets it.
    for (memory, words) in [("", "but the memory budget is"), ("--memory 64GiB", "the system has no memory for")] {
        let (code, error) = run(memory);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
}

/// Networks that are promised by few words, and numbers whose squares overflow.
#[test]
fn wide_networks_and_large_targets_are_refused() {
    let folder = Folder::new();
    csv(&folder.join("x.csv"), "a,b,y", &normal(60, 3, 7));
    for net in ["rff(1048576) dense(1)", "image(1,1,2) conv(1048576,1) gap dense(1)"] {
        let fit = format!("fit x.csv --target y --method ritz --steps 2 --net '{net}' --k 1 --holdout 0 --memory 2GiB");
        folder.refuses(&fit, &["parameters by ritz", "but the memory budget is"]);
    }
    folder.refuses(
        "sample x.csv --target y --net 'rff(1048576) dense(1)' --count 1 --out s.npy --memory 200MB",
        &["at 60 points"],
    );
    let wide = "dense(100000) relu dense(1)";
    folder.refuses(&format!("train x.csv --target y --net '{wide}' --memory 1MB"), &["parameters of 1 networks"]);
    let mut x = normal(60, 3, 8);
    x.column_mut(2).mapv_inplace(|y| y * 1e200);
    csv(&folder.join("huge.csv"), "a,b,y", &x);
    let line = "train huge.csv --target y --net 'dense(4) relu dense(1)' --out n.safetensors";
    folder.refuses(line, &["the target of row 1", "too large to compute with"]);
    assert!(!folder.join("n.safetensors").exists());
}

/// A class of one row is in one part of a split only; both know it.
#[test]
fn classes_in_numbers_are_found_before_the_split() {
    let folder = Folder::new();
    let mut x = normal(60, 3, 6);
    for (i, mut row) in x.rows_mut().into_iter().enumerate() {
        row[2] = if i < 2 { 7.0 } else { (i % 2) as f64 };
    }
    csv(&folder.join("x.csv"), "a,b,y", &x);
    for seed in 0..6 {
        let options = format!("--net 'dense(4) relu dense(3)' --epochs 1 --seed {seed}");
        let object = folder.object(&format!("train x.csv --target y {options}"));
        assert_eq!(object["n"], 48);
        let regressed = folder.object(&format!("regress x.csv --target y --classify --holdout 0.2 --seed {seed}"));
        assert!(regressed["holdout"]["accuracy"].is_number());
    }
}
