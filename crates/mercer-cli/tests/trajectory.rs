//! `mercer train --snapshots` and `mercer trajectory`: what they write, compare, choose and save.

mod common;

use common::Folder;
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_snapshots_of_a_run_give_probabilities_beside_the_baselines() {
    let folder = Folder::new();
    let train = "train digits --rows 1-560 --test digits --net 'dense(24) bn relu dense(10)' --epochs 12 --batch 64";
    let trained =
        folder.object(&format!("{train} --snapshots run --snapshot-every 3 --snapshot-from 0.7 --out a.safetensors"));
    let count = trained["snapshots"].as_array().unwrap().len();
    assert_eq!(count, 11, "{trained}"); // 9 steps an epoch, 108 in all, from step 75
    let evaluated = folder.object("evaluate run/step-00000108.safetensors digits");
    assert!(number(&evaluated["test"]["accuracy"]) > 0.8, "{evaluated}");
    folder.object(&format!("{train} --seed 1 --out b.safetensors"));
    let rest = "--rows 1-700 --validation digits --test digits --ood digits -k 4";
    let line = format!(
        "trajectory run digits {rest} --ensemble a.safetensors,b.safetensors --samples F.npy --report p.html --out m.mercer"
    );
    let found = folder.object(&line);
    let methods = found["methods"].as_array().unwrap();
    assert_eq!(methods.len(), 14, "{found}");
    let named = |name: &str| methods.iter().find(|m| m["method"] == name).unwrap_or_else(|| panic!("no {name}"));
    let best = methods.iter().map(|m| number(&m["validation_nll"])).fold(f64::INFINITY, f64::min);
    let chosen = named(found["method"].as_str().unwrap());
    assert_eq!(number(&chosen["validation_nll"]), best);
    for (name, passes) in
        [("map", 1), ("swa", 1), ("swag", 30), ("snapshots", 11), ("ensemble", 2), ("eigenfunctions", 11), ("ritz", 1)]
    {
        assert_eq!(named(name)["passes"], passes, "{name}");
    }
    for method in methods {
        assert!(number(&method["test"]["nll"]["value"]) < 1.0, "{method}");
        assert!((number(&method["ood"]["auroc"]["value"]) - 0.5).abs() < 1e-9, "{method}");
        assert_eq!(method["eigenvalues"].is_array(), method["scale"].is_number());
    }
    // The validation rows are the test rows here: a temperature cannot make the loss larger.
    for (plain, tempered) in [("swa", "swa-tempered"), ("ritz", "ritz-tempered"), ("map", "temperature")] {
        let [plain, tempered] = [plain, tempered].map(|name| number(&named(name)["test"]["nll"]["value"]));
        assert!(tempered <= plain + 1e-6, "{plain} {tempered}");
    }
    let page = std::fs::read_to_string(folder.join("p.html")).unwrap();
    for part in ["Reliability", "swag-tempered", "mercer trajectory"] {
        assert!(page.contains(part), "{part}");
    }
    // The model predicts what was measured.
    let predicted = folder.object("predict m.mercer digits");
    let nll = number(&chosen["test"]["nll"]["value"]);
    assert!((number(&predicted["test"]["log_loss"]) - nll).abs() < 1e-9, "{predicted}");
    assert!(folder.said("inspect m.mercer").contains("trajectory ("));
    // The samples are those of a kernel: the same eigenvalues.
    let spectrum = folder.object("fit digits --rows 1-700 --samples F.npy --method exact -k 4 --holdout 0");
    let exact = named("eigenfunctions")["eigenvalues"].as_array().unwrap();
    for (a, b) in spectrum["eigenvalues"].as_array().unwrap().iter().zip(exact) {
        assert!((number(a) - number(b)).abs() < 1e-9 * number(&exact[0]), "{a} {b}");
    }
}

#[test]
fn what_cannot_be_done_is_said_in_a_sentence() {
    let folder = Folder::new();
    let train = "train digits --rows 1-100 --net 'dense(8) relu dense(10)' --epochs 8 --batch 50";
    folder.said(&format!("{train} --snapshots run --snapshot-every 1 --snapshot-from 0 --out a.safetensors"));
    std::fs::create_dir(folder.join("empty")).unwrap();
    std::fs::create_dir(folder.join("one")).unwrap();
    std::fs::copy(folder.join("a.safetensors"), folder.join("one/a.safetensors")).unwrap();
    let trajectory = |rest: &str| format!("trajectory {rest} --rows 1-100");
    for (line, words) in [
        (format!("{train} --snapshots run"), &["holds networks already"][..]),
        (format!("{train} --snapshot-every 3"), &["--snapshots"]),
        (format!("{train} --snapshots other --snapshot-every 100"), &["a single one"]),
        (trajectory("empty digits"), &["empty", "no networks"]),
        (trajectory("one digits"), &["single network"]),
        (trajectory("missing digits"), &["missing"]),
        (trajectory("run digits -k 99"), &["99 eigenfunctions", "span"]),
        (trajectory("run digits --method ensemble"), &["--ensemble"]),
        (trajectory("run digits --validation 2"), &["--validation"]),
    ] {
        let output = folder.mercer(&line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let error = said.lines().find(|line| line.starts_with("error")).unwrap_or_default();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(words.iter().all(|word| error.contains(word)), "{line}: {said}");
    }
}
