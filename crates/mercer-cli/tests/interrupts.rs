//! Ctrl-C: the best result so far where there is one, else a prompt end.
#![cfg(unix)]

mod common;

use common::Folder;
use mercer::data::write_npy;
use mercer::rng::Rng;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a run that was interrupted left behind.
struct Ended {
    code: Option<i32>,
    stdout: String,
    /// Standard error after the line that it was interrupted at.
    stderr: String,
    /// How long it went on.
    after: Duration,
}

/// Runs the program until it reports `stage`, and sends it this many interrupts.
fn interrupted(folder: &Folder, line: &str, stage: &str, times: usize) -> Ended {
    let mut command = folder.mercer(&format!("{line} --json --verbose --threads 2"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut all = String::new();
    loop {
        let start = all.len();
        assert!(said.read_line(&mut all).unwrap() > 0, "mercer {line} never came to {stage}: {all}");
        if all[start..].contains(stage) {
            break;
        }
    }
    for _ in 0..times {
        interrupt(&child);
        std::thread::sleep(Duration::from_millis(100));
    }
    let (sent, mut stderr) = (Instant::now(), String::new());
    said.read_to_string(&mut stderr).unwrap();
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    Ended { code: output.status.code(), stdout, stderr, after: sent.elapsed() }
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// The object that a run prints which was interrupted at `stage` and returns what it has; it warns in these words.
fn kept(folder: &Folder, line: &str, stage: &str, warning: &str) -> Value {
    let Ended { code, stdout, stderr, .. } = interrupted(folder, line, stage, 1);
    assert_eq!(code, Some(130), "mercer {line}: {stderr}");
    assert!(stderr.contains("interrupted: ending with the best result so far"), "mercer {line}: {stderr}");
    assert!(stderr.contains(warning), "mercer {line}: {stderr}");
    let object: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(object["stop"], "interrupted", "mercer {line}: {object}");
    object
}

/// Fails unless a run that is interrupted at `stage` ends promptly, with one line.
fn ends(folder: &Folder, line: &str, stage: &str) {
    let Ended { code, stdout, stderr, after } = interrupted(folder, line, stage, 1);
    assert_eq!(code, Some(130), "mercer {line}: {stderr}");
    assert!(stderr.ends_with("interrupted: there is no result yet that could be kept\n"), "mercer {line}: {stderr}");
    assert!(stdout.is_empty() && after < Duration::from_secs(2), "mercer {line}: {after:?}");
}

/// Writes standard normal numbers `[n, d]` to `x.npy`.
fn write_points(folder: &Folder, n: usize, d: usize) {
    write_npy(folder.join("x.npy"), Rng::new(7).normals((n, d)).view()).unwrap();
}

#[test]
fn spectra() {
    let folder = Folder::new();
    write_points(&folder, 6000, 5);
    ends(&folder, "fit uniform(n=5000) --method exact --out m", "kernel matrix 1/");
    ends(&folder, "fit uniform(n=3000) --method exact --out m", "eigendecomposition 0/1");
    ends(&folder, "fit uniform(n=200000) --method nystrom --out m", "choice of landmarks");
    ends(
        &folder,
        "fit uniform(n=200000) --method nystrom --landmarks 1000 --choice uniform",
        "features of the points 4096/",
    );
    assert!(!folder.join("m").exists());
    let krylov = "fit x.npy --kernel laplacian(0.1) --k 40 --tolerance 1e-12 --out m";
    let object = kept(&folder, krylov, "krylov", "the Krylov iteration was interrupted after");
    assert_eq!(object["eigenvalues"].as_array().unwrap().len(), 40);
    assert!(folder.join("m").exists());
    let object = kept(&folder, "fit uniform(n=20000) --method nystrom --landmarks 50", "certificate 3 of 4", "");
    assert_eq!(object["certificate"]["held_out"], 2000);
}

#[test]
fn regression() {
    let folder = Folder::new();
    std::fs::write(folder.join("d.csv"), table(6000)).unwrap();
    let regress = "regress d.csv --target y";
    ends(&folder, &format!("{regress} --method ridge --solver direct --alpha 1e-12"), "factorisation 0/1");
    ends(&folder, &format!("{regress} --rows 2000 --method ridge --solver direct"), "eigendecomposition 0/1");
    ends(&folder, &format!("{regress} --method nystrom --rank 2000"), "ridge on features 4096/");
    let warning = "cross-validation was interrupted after";
    let object = kept(&folder, &format!("{regress} --method nystrom --cv 5"), "cross-validation 1/5", warning);
    assert!(object["train"]["rmse"].as_f64().unwrap() < 0.2, "{object}");
    let cg = format!("{regress} --kernel rbf(0.05) --method ridge --solver cg --alpha 1e-9 --rank 10");
    let object = kept(&folder, &cg, "conjugate gradients", "conjugate gradients were interrupted after");
    assert!(object["residual"].as_f64().unwrap() > 1e-8);
    let search =
        format!("{regress} --search rbf,matern32,laplacian,matern52 --method ridge --solver direct --alpha 1e-3");
    let object =
        kept(&folder, &search, "kernel 1 of 4, rbf", "the search was interrupted: the kernel is the best of the");
    assert_eq!(object["search"]["cut_short"], true);
    assert_eq!(object["kernel"], object["search"]["tried"][0]["kernel"]);
    // The kernel that was found is then used to the end.
    assert!(object["train"]["rmse"].as_f64().unwrap() < 0.2, "{object}");
}

/// Every iterative solver returns its best iterate, and its checkpoint is continued.
#[test]
fn solvers() {
    let folder = Folder::new();
    std::fs::write(folder.join("d.csv"), table(1500)).unwrap();
    for (i, (method, stage)) in [
        ("ridge --solver cg --rank 10", "conjugate gradients"),
        ("askotch", "ASkotch"),
        ("eigenpro", "EigenPro"),
        ("richardson", "Richardson's iteration"),
        ("falkon --rank 300", "conjugate gradients"),
        ("krill --rank 300", "conjugate gradients"),
        ("eigenpro --rank 300", "EigenPro"),
    ]
    .into_iter()
    .enumerate()
    {
        let line = format!(
            "regress d.csv --target y --kernel rbf(0.1) --alpha 1e-9 --tolerance 1e-14 --iterations 100000 --method {method} --checkpoint c{i}"
        );
        let object = kept(&folder, &line, stage, "interrupted after");
        let residual = object["residual"].as_f64().unwrap();
        assert!(residual <= 1.0 && residual > 1e-14, "{method}: {object}");
        let before = object["curve"].as_array().unwrap().len();
        let again = kept(&folder, &format!("{line} --resume"), stage, "continue that run (--resume)");
        let curve = again["curve"].as_array().unwrap();
        assert!(curve.len() > before, "{method}");
        assert_eq!(curve[..before], object["curve"].as_array().unwrap()[..], "{method}");
    }
}

/// A table of points in the plane and a smooth function of them.
fn table(n: usize) -> String {
    let row = |i: usize| {
        let (a, b) = ((i as f64 * 0.618_033_988_749_895).fract(), (i as f64 * 0.754_877_666_246_693).fract());
        format!("{a},{b},{}\n", (9.0 * a).sin() + b)
    };
    (0..n).map(row).fold("a,b,y\n".to_owned(), |table, row| table + &row)
}

#[test]
fn embeddings() {
    let folder = Folder::new();
    write_points(&folder, 6000, 5);
    let kpca = "embed x.npy --kernel laplacian(0.05) --k 60 --out z.npy";
    kept(&folder, kpca, "krylov", "was interrupted after");
    assert_eq!(folder.read("z.npy").nrows(), 6000);
    ends(&folder, "embed uniform(n=30000) --method laplacian --out y.npy", "nearest neighbours 1/");
    let maps = "embed swiss-roll(n=8000) --method laplacian --k 20 --out z.npy";
    kept(&folder, maps, "krylov", "the Krylov iteration on the graph was interrupted");
    assert!(!folder.join("y.npy").exists() && folder.read("z.npy").nrows() == 8000);
}

#[test]
fn a_second_interrupt_ends_the_program() {
    let folder = Folder::new();
    // A product with so many points takes seconds.
    write_points(&folder, 60_000, 10);
    let fit = "fit x.npy --kernel laplacian(0.1) --k 20 --memory 500MB --out m";
    let Ended { code, stderr, after, .. } = interrupted(&folder, fit, "krylov", 2);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.contains("the second interrupt ends the program") && after < Duration::from_secs(2), "{stderr}");
    assert!(!folder.join("m").exists());
}

#[test]
fn whatever_has_no_result_ends_at_once() {
    let folder = Folder::new();
    ends(&folder, "demo --out d.html", "method 1 of");
    ends(&folder, "gram uniform(n=20000) --out k.npy", "rows of the matrix");
    assert!(!folder.join("d.html").exists() && !folder.join("k.npy").exists());
}
