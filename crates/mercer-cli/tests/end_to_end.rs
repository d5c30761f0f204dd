//! The program as a user meets it: files in, files out, and nothing left behind where it fails.

use mercer::FitContext;
use mercer::compute::Device;
use mercer::data::{ReadOptions, digits, open, write_npy};
use mercer::kernel::Kernel;
use mercer::operator::gram;
use mercer::spectrum::{Exact, Problem, Spectrum};
use ndarray::{Array2, Array3, s};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder in which the program runs; it goes away with the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_mercer")).args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    /// Standard output of a run that succeeds.
    fn said(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "mercer {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn object(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.said(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Standard error of a run that fails for bad input.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(2), "mercer {arguments:?}");
        assert!(output.stdout.is_empty(), "mercer {arguments:?} must print no result");
        String::from_utf8(output.stderr).unwrap()
    }

    fn read(&self, name: &str) -> Array2<f64> {
        open(self.join(name).to_str().unwrap(), &ReadOptions::default()).unwrap().x.into_f64()
    }
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn fit_inspect_and_transform_agree_with_the_library() {
    let folder = Folder::new();
    let data = digits().x.into_f64();
    let (train, new) = (data.slice(s![..300, ..]), data.slice(s![300..350, ..]));
    write_npy(folder.join("train.npy"), train).unwrap();
    write_npy(folder.join("new.npy"), new).unwrap();
    let fit = ["fit", "train.npy", "--kernel", "rbf(lengthscale=8)", "--method", "exact", "--k", "5", "--holdout", "0"];
    let fitted = folder.object(&[&fit[..], &["--out", "digits.mercer"]].concat());
    let inspected = folder.object(&["inspect", "digits.mercer"]);
    assert_eq!(fitted, inspected);
    folder.said(&["transform", "digits.mercer", "new.npy", "--out", "z.npy"]);

    let kernel = Kernel::parse("rbf(lengthscale=8)").unwrap();
    let operator = FitContext::default().kernel_operator(&kernel, train).unwrap();
    let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 5), None).unwrap();
    let eigenvalues: Vec<f64> = serde_json::from_value(fitted["eigenvalues"].clone()).unwrap();
    for (a, b) in eigenvalues.iter().zip(&spectrum.eigenvalues) {
        assert!((a - b).abs() <= 1e-12 * b, "{a} {b}");
    }
    let z = folder.read("z.npy");
    let expected = spectrum.transform(new).unwrap();
    assert_eq!(z.dim(), (50, 5));
    for j in 0..5 {
        // An eigenfunction is known up to its sign.
        let sign = z.column(j).dot(&expected.column(j)).signum();
        let difference = (&z.column(j) - &(sign * &expected.column(j))).mapv(f64::abs);
        assert!(difference.iter().all(|d| *d < 1e-7), "function {j}");
    }
}

#[test]
fn a_scaled_model_scales_new_points_alike() {
    let folder = Folder::new();
    let x = Array2::from_shape_fn((80, 2), |(i, j)| if j == 0 { i as f64 } else { 1e3 * ((i * 7) % 13) as f64 });
    write_npy(folder.join("x.npy"), x.view()).unwrap();
    let scaler = mercer::data::Scaler::fit(mercer::data::Scaling::Standard, x.view()).unwrap();
    write_npy(folder.join("scaled.npy"), scaler.apply(x.view()).unwrap().view()).unwrap();
    let common = ["--kernel", "rbf(1)", "--k", "3", "--holdout", "0"];
    folder.said(&[&["fit", "x.npy", "--scale", "standard", "--out", "a.mercer"], &common[..]].concat());
    folder.said(&[&["fit", "scaled.npy", "--out", "b.mercer"], &common[..]].concat());
    folder.said(&["transform", "a.mercer", "x.npy", "--out", "a.npy"]);
    folder.said(&["transform", "b.mercer", "scaled.npy", "--out", "b.npy"]);
    assert_eq!(folder.read("a.npy"), folder.read("b.npy"));
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let folder = Folder::new();
    for method in ["exact", "krylov", "nystrom", "rff"] {
        let k = if method == "krylov" { "20" } else { "4" };
        let run = |threads: &str| {
            let model = format!("{threads}.mercer");
            let fit = ["fit", "swiss-roll(n=900)", "--kernel", "rbf(4)", "--method", method, "--k", k];
            let options = ["--seed", "3", "--threads", threads, "--out", &model];
            let mut object = folder.object(&[&fit[..], &options[..]].concat());
            object["seconds"] = Value::Null;
            let z = format!("{threads}.npy");
            folder.said(&["transform", &model, "swiss-roll(n=100, seed=1)", "--threads", threads, "--out", &z]);
            (object, std::fs::read(folder.join(z)).unwrap())
        };
        assert!(run("1") == run("2"), "{method}");
    }
}

#[test]
fn sampled_functions_are_fitted_whatever_their_outputs() {
    let folder = Folder::new();
    let x = Array2::from_shape_fn((80, 1), |(i, _)| i as f64 / 40.0 - 1.0);
    let f =
        Array3::from_shape_fn((6, 80, 2), |(s, n, c)| ((s + 1) as f64 * x[[n, 0]] + c as f64).sin() / (s + 1) as f64);
    write_npy(folder.join("x.npy"), x.view()).unwrap();
    write_npy(folder.join("f.npy"), f.view()).unwrap();
    let fit = ["fit", "x.npy", "--samples", "f.npy", "--k", "3", "--method"];
    let trace = f.iter().map(|v| v * v).sum::<f64>() / f.len() as f64;
    for (factorised, outputs) in [(&[][..], 2), (&["--factorised"][..], 1)] {
        let run = |method: &str, more: &[&str]| folder.object(&[&fit[..], &[method], factorised, more].concat());
        let exact = run("exact", &["--out", "psi.npy"]);
        assert!((exact["certificate"]["trace"].as_f64().unwrap() - trace).abs() < 1e-12);
        assert_eq!(folder.read("psi.npy").dim(), (80, outputs * 3));
        let ritz = run("ritz", &["--steps", "0"]);
        for j in 0..3 {
            let [exact, ritz] = [&exact, &ritz].map(|found| found["eigenvalues"][j].as_f64().unwrap());
            assert!((exact - ritz).abs() < 1e-3 * exact, "{exact} {ritz}");
        }
    }
    assert!(folder.refused(&["fit", "x.npy", "--samples", "x.npy"]).contains("do not fit 80 points"));
    assert!(folder.refused(&["fit", "x.npy", "--samples", "f.npy", "--method", "rff"]).contains("need a kernel"));
}

#[test]
fn a_model_of_samples_goes_to_new_points_and_files_stay_where_they_are() {
    let folder = Folder::new();
    let net = ["--net", "dense(40, w=2, b=0.3) erf dense(1)", "--samples", "60"];
    folder.said(&[&["sample", "moons(n=120)"], &net[..], &["--out", "F.npy"]].concat());
    folder.said(&[&["sample", "moons(n=9, seed=4)"], &net[..], &["--out", "new.npy"]].concat());
    assert_eq!(folder.read("F.npy").dim(), (60, 120));
    for method in ["exact", "krylov", "nystrom"] {
        let fit = ["fit", "moons(n=120)", "--samples", "F.npy", "--k", "3", "--method", method, "--out", "m.mercer"];
        folder.said(&fit);
        folder.said(&["transform", "m.mercer", "--samples", "F.npy", "--out", "psi.csv"]);
        folder.said(&["transform", "m.mercer", "--samples", "new.npy", "--out", "psi_new.npy"]);
        assert_eq!(folder.read("psi_new.npy").dim(), (9, 3));
        let psi = folder.read("psi.csv");
        let gram = psi.t().dot(&psi) / 120.0;
        assert!((gram - Array2::<f64>::eye(3)).iter().all(|d| d.abs() < 1e-6));
    }
    assert!(folder.refused(&["transform", "m.mercer", "moons(n=9)", "--out", "z.npy"]).contains("give --samples"));
    let fewer = ["sample", "moons(n=9)", "--net", "dense(3) erf dense(1)", "--samples", "59", "--out", "few.npy"];
    folder.said(&fewer);
    let transform = ["transform", "m.mercer", "--samples", "few.npy", "--out", "z.npy"];
    assert!(folder.refused(&transform).contains("the same functions"));
    // Networks are functions of the points: no samples needed.
    let fit = ["fit", "moons(n=120)", "--samples", "F.npy", "--k", "2", "--method", "neuralef", "--steps", "20"];
    folder.said(&[&fit[..], &["--out", "n.mercer"]].concat());
    folder.said(&["transform", "n.mercer", "moons(n=9)", "--out", "z.npy"]);
    assert_eq!(folder.read("z.npy").dim(), (9, 2));
    assert!(folder.refused(&["transform", "n.mercer", "--samples", "F.npy", "--out", "z.npy"]).contains("coordinates"));
    for model in ["m.mercer", "n.mercer"] {
        assert!(folder.said(&["inspect", model]).contains("60 sampled functions in F.npy"), "{model}");
    }
}

#[test]
fn the_empirical_ntk_is_written_in_every_form() {
    let folder = Folder::new();
    let ntk = ["ntk", "moons(n=12)", "--net", "dense(20) tanh dense(3)", "--out", "k.npy"];
    let run = |more: &[&str]| {
        let object = folder.object(&[&ntk[..], more].concat());
        (object["shape"].clone(), folder.read("k.npy"))
    };
    let (shape, exact) = run(&[]);
    assert_eq!(shape, serde_json::json!([12, 12, 3, 3]));
    let at = |n: usize, m: usize, c: usize, d: usize| exact[[n, (m * 3 + c) * 3 + d]];
    let (_, mean) = run(&["--method", "mean"]);
    let (_, one) = run(&["--outputs", "2"]);
    let (_, cross) = run(&["--outputs", "0,2", "--cross", "moons(n=5)"]);
    assert_eq!(cross.dim(), (12, 5 * 4));
    for (n, m) in (0..12).flat_map(|n| (0..12).map(move |m| (n, m))) {
        let want = (at(n, m, 0, 0) + at(n, m, 1, 1) + at(n, m, 2, 2)) / 3.0;
        assert!((mean[[n, m]] - want).abs() < 1e-4 * want.abs().max(1.0));
        assert!((one[[n, m]] - at(n, m, 2, 2)).abs() < 1e-4 * at(n, m, 2, 2).abs().max(1.0));
    }
    for law in ["rademacher", "gaussian"] {
        let directions = ["--method", "directions", "--directions", "3000", "--law", law];
        let (shape, f) = run(&directions);
        assert_eq!(shape, serde_json::json!([3000, 12, 3]));
        let (_, difference) = run(&[&directions[..], &["--finite-difference", "1e-3"]].concat());
        let gap = (&f - &difference).mapv(|v| v * v).sum() / f.mapv(|v| v * v).sum();
        assert!(gap.sqrt() < 0.02, "{gap}");
        let trace: f64 = (0..12).flat_map(|n| (0..3).map(move |c| (n, c))).map(|(n, c)| at(n, n, c, c)).sum();
        let estimate = f.mapv(|v| v * v).sum() / 3000.0;
        assert!((estimate / trace - 1.0).abs() < 0.1, "{estimate} {trace}");
    }
    let refuse = |more: &[&str]| folder.refused(&[&ntk[..], more].concat());
    assert!(refuse(&["--outputs", "3"]).contains("from 0 to 2"));
    assert!(refuse(&["--outputs", "1,1"]).contains("each once"));
    assert!(refuse(&["--law", "gaussian"]).contains("--method directions"));
    assert!(refuse(&["--method", "directions", "--cross", "moons"]).contains("--cross"));
}

#[test]
fn gram_writes_the_kernel_matrix() {
    let folder = Folder::new();
    let x = digits().x.to_f64().slice(s![..40, ..]).to_owned();
    write_npy(folder.join("x.npy"), x.view()).unwrap();
    let expression = "0.5*rbf(10) + poly(degree=2)";
    folder.said(&["gram", "x.npy", "--kernel", expression, "--out", "K.npy"]);
    assert_eq!(folder.read("K.npy"), gram::<f64>(&Kernel::parse(expression).unwrap(), x.view(), Device::Cpu).unwrap());
}

#[test]
fn predictions_learn_the_function() {
    let folder = Folder::new();
    let table = |n: usize, target: bool| {
        let row = |i: usize| {
            let x = i as f64 * 6.0 / n as f64;
            if target { format!("{x},{}\n", x.sin()) } else { format!("{x}\n") }
        };
        (0..n).map(row).collect::<String>()
    };
    std::fs::write(folder.join("train.csv"), format!("x,y\n{}", table(60, true))).unwrap();
    std::fs::write(folder.join("test.csv"), format!("x\n{}", table(17, false))).unwrap();
    for solver in [&[][..], &["--solver", "cg"]] {
        let command = ["regress", "train.csv", "--target", "y", "--kernel", "matern52(2)"];
        folder.said(&[&command[..], &["--predict", "test.csv", "--out", "y.npy"], solver].concat());
        let predicted = folder.read("y.npy");
        assert_eq!(predicted.dim(), (17, 1));
        for (i, y) in predicted.iter().enumerate() {
            assert!((y - (i as f64 * 6.0 / 17.0).sin()).abs() < 1e-2, "{i}: {y}");
        }
    }
}

#[test]
fn damaged_and_newer_models_are_named_as_such() {
    let folder = Folder::new();
    folder.said(&["fit", "moons(n=60)", "--k", "2", "--out", "m.mercer"]);
    let whole = std::fs::read(folder.join("m.mercer")).unwrap();
    for end in [0, 5, 8, 100, whole.len() - 1] {
        std::fs::write(folder.join("t.mercer"), &whole[..end]).unwrap();
        let message = folder.refused(&["inspect", "t.mercer"]);
        assert!(message.starts_with("error: t.mercer: ") && message.lines().count() == 1, "{message}");
    }
    let header = r#"{"__metadata__":{"format":"mercer","version":"99","header":"{}"}}"#;
    let newer = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    std::fs::write(folder.join("newer.mercer"), newer).unwrap();
    let message = folder.refused(&["transform", "newer.mercer", "moons", "--out", "z.npy"]);
    assert!(message.contains("version 99") && message.contains("update mercer"), "{message}");
    assert!(!folder.join("z.npy").exists());
}

#[test]
fn a_refusal_leaves_nothing_behind() {
    let folder = Folder::new();
    std::fs::write(folder.join("bad.csv"), "a,b\n1,2\n3,NaN\n").unwrap();
    for arguments in [
        &["fit", "bad.csv", "--out", "m.mercer"][..],
        &["gram", "bad.csv", "--out", "K.npy"],
        &["embed", "bad.csv", "--out", "z.npy", "--plot", "z.svg"],
        &["regress", "bad.csv", "--target", "b", "--predict", "bad.csv", "--out", "y.csv"],
        &["fit", "moons(n=60)", "--k", "61", "--out", "m.mercer"],
        &["fit", "moons(n=60)", "--out", "missing/m.mercer"],
    ] {
        folder.refused(arguments);
        assert_eq!(names(folder.0.path()), ["bad.csv"], "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_unwritable_folder_is_named_before_the_work() {
    let folder = Folder::new();
    let message = folder.refused(&["fit", "digits", "--out", "/proc/m.mercer"]);
    assert!(message.contains("/proc/m.mercer: cannot be written"), "{message}");
}

#[test]
fn the_demonstration_writes_one_page_that_stands_alone() {
    let folder = Folder::new();
    let object = folder.object(&["demo"]);
    let methods = object["methods"].as_array().unwrap();
    let exact: Vec<f64> = serde_json::from_value(methods[0]["eigenvalues"].clone()).unwrap();
    for method in methods {
        let eigenvalues: Vec<f64> = serde_json::from_value(method["eigenvalues"].clone()).unwrap();
        assert_eq!(eigenvalues.len(), 10);
        assert!((eigenvalues[0] - exact[0]).abs() < 0.05 * exact[0], "{}", method["method"]);
    }
    assert_eq!(names(folder.0.path()), ["report"]);
    let page = std::fs::read_to_string(folder.join("report/demo.html")).unwrap();
    assert!(page.matches("<svg").count() >= 6);
    for outside in ["http://", "https://", "<script", "src=\"/"] {
        assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
    }
}

/// Without the images in `$MERCER_DATA` it has nothing to test.
#[test]
fn the_process_of_a_convolutional_network_tells_digits_apart() {
    if !mercer::data::catalogue().iter().any(|entry| entry.name == "mnist" && entry.present) {
        eprintln!("skipped: mnist is not in MERCER_DATA");
        return;
    }
    let folder = Folder::new();
    let found = &folder.object(&["reproduce", "cnn-gp", "--quick"])["result"]["found"];
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 7);
    for row in rows {
        // Chance is right on one digit in ten.
        let accuracy = row["accuracy"].as_f64().unwrap();
        assert!(accuracy > 0.3 && accuracy < 1.0, "{row}");
        assert_eq!(row["eigenvalues"].as_array().unwrap().len(), 10);
    }
    // Functions that are solved for, not trained in a moment, tell most digits apart.
    let exact = rows.iter().find(|row| row["method"] == "exact").unwrap();
    assert!(exact["accuracy"].as_f64() > Some(0.6), "{exact}");
    let named = |method: &str| rows.iter().find(|row| row["method"] == method).unwrap();
    let residual = |method: &str| named(method)["residual"].as_f64().unwrap();
    // The first eigenvalue is most of the trace: penalties one by one hold NeuralEF up, those taken together do not.
    assert!(residual("exact") < 1e-5 && residual("joint NeuralEF") < 0.6 * residual("NeuralEF"));
    assert!(named("joint NeuralEF")["accuracy"].as_f64() > Some(0.6));
    // Trained functions need no drawn network at a new image.
    assert_eq!(named("joint NeuralEF")["networks"], 0);
    assert_eq!(named("exact")["networks"], found["networks"]);
    let page = std::fs::read_to_string(folder.join("report/cnn-gp.html")).unwrap();
    assert!(page.matches("<svg").count() >= 2 && page.contains("84.98"));
}

#[test]
fn completions_and_man_pages_know_the_commands() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.said(&["completions", shell]);
        assert!(script.contains("transform") && script.contains("kmeans++"), "{shell}");
    }
    assert!(folder.said(&["man"]).contains("mercer\\-fit(1)"));
    folder.said(&["man", "--out", "."]);
    assert!(names(folder.0.path()).contains(&"mercer-fit.1".to_owned()));
}

/// A training run that is killed without warning, continued from its checkpoint, ends in the same bits as one that ran
/// through; one that is interrupted by Ctrl-C still gives a certified result.
#[cfg(unix)]
#[test]
fn training_survives_being_killed() {
    let folder = Folder::new();
    let fit = ["fit", "uniform(n=600)", "--kernel", "rbf(1)", "--k", "4", "--method", "neuralef", "--steps", "1500"];
    let fit = [&fit[..], &["--net", "dense(24) sincos dense(24) sincos dense(1)"]].concat();
    let through = folder.object(&fit);

    let kept = [&fit[..], &["--checkpoint", "c", "--checkpoint-every", "0.05", "--json"]].concat();
    let start = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mercer"));
        let command = command.args(arguments).current_dir(folder.0.path()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let wait_for_checkpoint = || {
        for _ in 0..600 {
            if folder.join("c").exists() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        panic!("no checkpoint after six seconds");
    };
    let mut killed = start(&kept);
    wait_for_checkpoint();
    killed.kill().unwrap();
    killed.wait().unwrap();
    let resumed = folder.object(&[&kept[..kept.len() - 1], &["--resume"]].concat());
    assert_eq!(resumed["eigenvalues"], through["eigenvalues"]);
    assert_eq!(resumed["certificate"], through["certificate"]);

    std::fs::remove_file(folder.join("c")).unwrap();
    let long: Vec<&str> = kept.iter().map(|word| if *word == "1500" { "1000000" } else { word }).collect();
    let interrupted = start(&long);
    wait_for_checkpoint();
    let id = interrupted.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = interrupted.wait_with_output().unwrap();
    assert!(output.status.success());
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["training"]["stop"], "interrupted");
    assert_eq!(result["eigenvalues"].as_array().unwrap().len(), 4);
}

#[test]
fn the_ntk_of_a_trained_network_is_that_of_its_folded_self() {
    let folder = Folder::new();
    let net = "conv(4, 3) bn relu res(conv(4, 3) bn) relu gap dense(10)";
    let train = ["train", "digits", "--net", net, "--epochs", "1", "--out", "n.safetensors"];
    folder.said(&train);
    write_npy(folder.join("x.npy"), digits().x.to_f64().slice(s![..6, ..])).unwrap();
    let ntk = ["ntk", "x.npy", "--net", "n.safetensors", "--outputs", "2,7", "--out"];
    let object = folder.object(&[&ntk[..], &["k.npy"]].concat());
    assert_eq!(object["shape"], serde_json::json!([6, 6, 2, 2]));
    assert!(!object["net"].as_str().unwrap().contains("bn"));
    // Many directions come near: E|FᵀF/S − Θ|² is of the order of |Θ|²/S.
    folder.said(&[&ntk[..], &["f.npy", "--method", "directions", "--directions", "2000"]].concat());
    let kernel = folder.read("k.npy").into_shape_with_order((6, 6, 4)).unwrap();
    let f = folder.read("f.npy").into_shape_with_order((2000, 6, 2)).unwrap();
    let first = f.slice(s![.., .., 0]);
    let (sampled, exact) = (mercer::linalg::matmul(first.t(), first) / 2000.0, kernel.slice(s![.., .., 0]).to_owned());
    let norm = |m: &Array2<f64>| m.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!(norm(&(&sampled - &exact)) < 0.2 * norm(&exact), "{sampled} {exact}");
    assert!(folder.refused(&["ntk", "moons(n=5)", "--net", "n.safetensors", "--out", "k.npy"]).contains("64"));
}

/// The file of weights `from` without what it says of itself: as PyTorch saves it.
fn without_metadata(from: &Path, to: &Path) {
    let bytes = std::fs::read(from).unwrap();
    let end = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let mut header: Value = serde_json::from_slice(&bytes[8..end]).unwrap();
    header.as_object_mut().unwrap().remove("__metadata__").expect("there is some");
    let header = header.to_string();
    std::fs::write(to, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &bytes[end..]].concat()).unwrap();
}

#[test]
fn the_ntk_takes_weights_that_do_not_name_their_network() {
    let folder = Folder::new();
    let (net, data) = ("dense(16) tanh dense(2)", "moons(n=60)");
    folder.said(&["train", "moons(n=300)", "--net", net, "--epochs", "20", "--out", "n.safetensors"]);
    without_metadata(&folder.join("n.safetensors"), &folder.join("bare.safetensors"));
    let kernel = |more: &[&str]| {
        folder.said(&[&["ntk", data, "--method", "mean", "--out", "k.npy"], more].concat());
        folder.read("k.npy")
    };
    let own = kernel(&["--net", "n.safetensors"]);
    let bare = kernel(&["--net", net, "--weights", "bare.safetensors"]);
    let drawn = kernel(&["--net", net]);
    let apart = |k: &Array2<f64>| ((k - &own).mapv(|v| v * v).sum() / own.mapv(|v| v * v).sum()).sqrt();
    // Points are scaled by the spread of 60 moons instead of that of 300.
    assert!(apart(&bare) < 0.2 && apart(&drawn) > 2.0 * apart(&bare), "{} {}", apart(&bare), apart(&drawn));
    let error = folder.refused(&["ntk", data, "--net", "bare.safetensors", "--out", "k.npy"]);
    assert!(error.contains("--weights"), "{error}");
}

#[test]
fn the_kernel_of_a_network_on_two_classes_is_reproduced() {
    let present =
        std::env::var_os("MERCER_DATA").is_some_and(|f| Path::new(&f).join("cifar-10/test_batch.bin").is_file());
    let folder = Folder::new();
    assert!(folder.refused(&["reproduce", "eigenvalue-decay", "--train", "5"]).contains("does not take --train"));
    if !present {
        assert!(folder.refused(&["reproduce", "ntk", "--quick"]).contains("needs CIFAR-10"));
        return;
    }
    let object = folder.object(&["reproduce", "ntk", "--quick", "--out", "out"]);
    let rows = object["result"]["found"]["rows"].as_array().unwrap().clone();
    let error = |i: usize| rows[i]["error"].as_f64().unwrap();
    // Nothing of rank ten is better than the best of rank ten.
    assert!((0..4).all(|i| error(i) >= error(5)) && error(3) < 1.0 && error(4) < error(1), "{rows:?}");
    assert_eq!(names(&folder.join("out")), ["ntk.html", "ntk.svg"]);
}
