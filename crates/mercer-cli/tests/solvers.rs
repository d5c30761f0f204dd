//! Iterative solvers of `mercer regress`: checkpoints, Ctrl-C, and what is measured along the way.

mod common;

use common::Folder;
use serde_json::Value;

/// A table of points in the plane, a smooth function of them and a class.
fn write_table(folder: &Folder, n: usize) {
    let row = |i: usize| {
        let (a, b) = ((i as f64 * 0.618_033_988_749_895).fract(), (i as f64 * 0.754_877_666_246_693).fract());
        let y = (9.0 * a).sin() + b;
        format!("{a},{b},{y},{}\n", if y > 0.5 { "high" } else { "low" })
    };
    let table = (0..n).map(row).fold("a,b,y,class\n".to_owned(), |table, row| table + &row);
    std::fs::write(folder.join("t.csv"), table).unwrap();
}

const METHODS: [&str; 7] = [
    "ridge --solver cg",
    "askotch",
    "eigenpro",
    "richardson",
    "falkon --rank 60",
    "krill --rank 60",
    "eigenpro --rank 60",
];

/// K and its factor, or K and the vectors: far more than the program itself.
#[test]
fn the_expected_memory_is_near_the_peak() {
    let folder = Folder::new();
    write_table(&folder, 3600);
    for method in ["ridge --solver direct", "ridge --solver cg", "askotch", "falkon --rank 1800"] {
        let line = format!("regress t.csv --target y --drop class --kernel matern32(1) --alpha 0.1 --method {method}");
        let found = folder.object_with_cost(&format!("{line} --memory 4GB"));
        let [expected, peak] = ["expected_memory", "peak_memory"].map(|key| found[key].as_f64().unwrap());
        assert!((expected / peak - 1.0).abs() < 0.2, "{method}: {expected:e} of {peak:e}");
    }
}

/// A run that ends by its limit is continued by one with a larger limit, to the bits of a run that had that limit at once.
#[test]
fn a_checkpoint_is_continued_to_the_same_bits() {
    let folder = Folder::new();
    write_table(&folder, 400);
    for (i, method) in METHODS.into_iter().enumerate() {
        let line = |more: &str| {
            format!(
                "regress t.csv --target y --drop class --holdout 0.2 --kernel matern32(1) --tolerance 1e-9 --method {method} {more}"
            )
        };
        let whole = folder.object(&line("--iterations 12"));
        let part = folder.object(&line(&format!("--iterations 5 --checkpoint c{i}")));
        let again = folder.object(&line(&format!("--iterations 12 --checkpoint c{i} --resume")));
        assert_ne!(part["train"], whole["train"], "{method}");
        for key in ["train", "holdout", "residual", "curve", "held_out_curve", "iterations", "alpha", "tried"] {
            assert_eq!(again[key], whole[key], "{method}: {key}");
        }
        folder.refuses(&line(&format!("--checkpoint c{i}")), "exists already; continue that run (--resume)");
        folder.refuses(&line(&format!("--checkpoint c{i} --resume --alpha 1")), "alpha by leave-one-out there, 1 here");
        assert!(
            folder.said(&line(&format!("--iterations 3 --checkpoint c{i} --overwrite"))).contains("relative residual")
        );
    }
    folder.refuses(
        "regress t.csv --target y --method nystrom --checkpoint c",
        "the method nystrom does not take --checkpoint",
    );
    folder
        .refuses("regress t.csv --target y --tolerance 1e-3", "--tolerance is for iterative solvers; give --solver cg");
    folder.refuses("regress t.csv --target y --resume", "--checkpoint");
}

#[test]
fn the_report_has_the_residual_and_the_held_out_error() {
    let folder = Folder::new();
    write_table(&folder, 500);
    for (target, label) in
        [("y --drop class", "root of the mean squared error"), ("class --drop y", "share of wrong classes")]
    {
        let line = format!(
            "regress t.csv --target {target} --holdout 0.2 --kernel matern32(1) --alpha 0.01 --method askotch --report r.html"
        );
        let found = folder.object(&line);
        let curve = found["held_out_curve"].as_array().unwrap();
        assert!(curve.len() >= 2 && curve.iter().all(|at| at["error"].is_f64()), "{found}");
        // The last measurement is that of a solution that has converged, up to one or two epochs.
        let last = curve[curve.len() - 1]["error"].as_f64().unwrap();
        let want = match found["holdout"]["rmse"].as_f64() {
            Some(rmse) => rmse,
            None => 1.0 - found["holdout"]["accuracy"].as_f64().unwrap(),
        };
        assert!((last - want).abs() < 0.02 + 0.2 * want, "{target}: {last} {want}");
        let page = std::fs::read_to_string(folder.join("r.html")).unwrap();
        for words in ["relative residual", "Error on held-out rows", label, "ASkotch took", "Scores"] {
            assert!(page.contains(words), "{words}");
        }
    }
    let direct = folder.object("regress t.csv --target y --drop class --report d.html");
    assert_eq!(direct.get("held_out_curve"), None::<&Value>);
    let page = std::fs::read_to_string(folder.join("d.html")).unwrap();
    assert!(page.contains("Choice of alpha") && !page.contains("Error on held-out rows"));
    // New rows with targets are watched where none are held out; without any, the report says how to get them.
    let cg = "regress t.csv --target y --drop class --kernel rbf(1) --method ridge --solver cg --alpha 1e-3";
    assert!(folder.object(&format!("{cg} --predict t.csv"))["held_out_curve"].is_array());
    folder.object(&format!("{cg} --rank 5 --report n.html --iterations 3"));
    let page = std::fs::read_to_string(folder.join("n.html")).unwrap();
    assert!(page.contains("would show their error here") && page.contains("stopped after"), "a note on the early end");
}

#[test]
fn an_early_end_is_named_with_its_residual() {
    let folder = Folder::new();
    write_table(&folder, 300);
    for method in METHODS {
        let line = format!(
            "regress t.csv --target y --drop class --kernel rbf(0.5) --alpha 1e-6 --tolerance 1e-12 --iterations 3 --method {method}"
        );
        let output = folder.mercer(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{method}: {said}");
        for words in ["stopped after", "at a relative residual of", "more iterations (--iterations)"] {
            assert!(said.contains(words), "{method}: {words}: {said}");
        }
    }
}
