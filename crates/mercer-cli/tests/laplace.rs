//! `mercer laplace`: what it compares, chooses, writes and saves.

mod common;

use common::Folder;
use serde_json::Value;

fn named<'a>(found: &'a Value, name: &str) -> &'a Value {
    let methods = found["methods"].as_array().unwrap();
    methods.iter().find(|method| method["method"] == name).unwrap_or_else(|| panic!("no {name} in {found}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_network_gets_probabilities_and_every_method_stands_beside_the_baselines() {
    let folder = Folder::new();
    folder.object("train digits --rows 1-900 --net 'dense(32) relu dense(10)' --epochs 30 --out net.safetensors");
    let line = "laplace net.safetensors digits --rows 1-900 --validation digits --test digits --ood digits --report p.html --out m.mercer";
    let found = folder.object(line);
    assert_eq!(found["methods"].as_array().unwrap().len(), 9, "{found}");
    let losses: Vec<f64> = found["methods"].as_array().unwrap().iter().map(|m| number(&m["validation_nll"])).collect();
    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    let chosen = named(&found, found["method"].as_str().unwrap());
    assert_eq!(number(&chosen["validation_nll"]), best);
    assert!(found["why"].as_str().unwrap().contains("lowest NLL"), "{found}");
    for method in found["methods"].as_array().unwrap() {
        let [nll, low, high] = [
            &method["test"]["nll"]["value"],
            &method["test"]["nll"]["interval"][0],
            &method["test"]["nll"]["interval"][1],
        ]
        .map(number);
        assert!(low < nll && nll < high && nll < 1.0, "{method}");
        // The same rows on both sides cannot be told apart.
        assert!((number(&method["ood"]["auroc"]["value"]) - 0.5).abs() < 1e-9, "{method}");
        assert_eq!(method["nll_minus_temperature"].is_null(), method["method"] == "temperature");
    }
    let gap = &named(&found, "map")["nll_minus_temperature"];
    let want = number(&named(&found, "map")["test"]["nll"]["value"])
        - number(&named(&found, "temperature")["test"]["nll"]["value"]);
    assert!((number(&gap["value"]) - want).abs() < 1e-12);
    let page = std::fs::read_to_string(folder.join("p.html")).unwrap();
    for part in ["Reliability", "Confidence", "adaptive ECE", "eigenfunctions", "mercer laplace"] {
        assert!(page.contains(part), "{part}");
    }
    // The model predicts what was measured.
    let predicted = folder.object("predict m.mercer digits");
    let accuracy = number(&predicted["test"]["accuracy"]);
    assert!((accuracy - number(&chosen["test"]["accuracy"]["value"])).abs() < 1e-12, "{accuracy}");
    assert!((number(&predicted["test"]["log_loss"]) - number(&chosen["test"]["nll"]["value"])).abs() < 1e-9);
    assert!(folder.said("inspect m.mercer").contains("laplace ("));
}

/// By default no posterior is worse than the network; where one is, the output, the object and the page say so.
#[test]
fn a_posterior_that_is_worse_than_the_network_is_never_shown_without_a_warning() {
    let folder = Folder::new();
    folder.object("train digits --rows 1-900 --net 'dense(32) relu dense(10)' --epochs 30 --out net.safetensors");
    let line = "laplace net.safetensors digits --rows 1-900 --validation digits";
    let found = folder.object(line);
    let network = number(&named(&found, "map")["test"]["nll"]["value"]);
    for method in found["methods"].as_array().unwrap() {
        assert!(number(&method["test"]["nll"]["value"]) < network + 5e-5, "{method}");
    }
    assert_eq!(found["warnings"], serde_json::json!([]));
    let asked = format!("{line} --method last-layer --prior likelihood --report p.html");
    let found = folder.object(&asked);
    let gap = &named(&found, "last-layer")["nll_minus_map"];
    assert!(number(&gap["interval"][0]) > 0.05, "{found}");
    let warning = found["warnings"][0].as_str().unwrap().to_owned();
    assert!(warning.contains("higher than the NLL of the network alone: last-layer +0."), "{warning}");
    let page = std::fs::read_to_string(folder.join("p.html")).unwrap();
    assert!(page.contains(&warning), "{warning}");
    let said = folder.mercer(&asked).output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains(&format!("warning: {warning}")), "{said:?}");
}

/// Without test rows, what is measured on the validation rows is what chooses among methods: each half by what was found on the other.
#[test]
fn methods_are_compared_on_rows_that_nothing_was_found_on() {
    let folder = Folder::new();
    folder.object("train digits --rows 1-900 --net 'dense(32) relu dense(10)' --epochs 30 --out net.safetensors");
    let line = "laplace net.safetensors digits --rows 1-900 --validation digits --out m.mercer";
    let found = folder.object(&format!("{line} --prior validation --tempered"));
    assert!(found["why"].as_str().unwrap().contains("judged by what was found on the other half"), "{found}");
    for method in found["methods"].as_array().unwrap() {
        let [judged, measured] = [&method["validation_nll"], &method["test"]["nll"]["value"]].map(number);
        assert!((judged - measured).abs() < 1e-12, "{method}");
    }
    // The temperature of all rows has the least loss on them: half of them cannot find a lower one for the other half.
    let kept = folder.object(&format!("{line} --method temperature --test digits"));
    let temperature = named(&kept, "temperature");
    let [crossed, own] = [&temperature["validation_nll"], &temperature["test"]["nll"]["value"]].map(number);
    assert!(own < crossed && crossed < own + 0.02, "{own} {crossed}");
    // The network alone has nothing to find.
    let map = named(&kept, "map");
    assert!((number(&map["validation_nll"]) - number(&map["test"]["nll"]["value"])).abs() < 1e-9, "{map}");
    std::fs::write(folder.join("one.csv"), "x,y\n1,a\n2,b\n3,a\n").unwrap();
    folder.object("train one.csv --target y --net 'dense(2) relu dense(2)' --epochs 1 --out one.safetensors");
    folder.refuses("laplace one.safetensors one.csv --target y --validation 0.4", "there is 1 validation row");
}

#[test]
fn numbers_get_deviations_and_draws_are_reproducible() {
    let folder = Folder::new();
    let mut rng = mercer::rng::Rng::new(1);
    let mut rows = |n: usize| -> String {
        let row = |_| {
            let x = 4.0 * rng.uniform() - 2.0;
            format!("{x},{}\n", 10.0 + 3.0 * x.sin() + 0.5 * rng.normal())
        };
        format!("x,y\n{}", (0..n).map(row).collect::<String>())
    };
    for (name, n) in [("train.csv", 400), ("test.csv", 1000)] {
        std::fs::write(folder.join(name), rows(n)).unwrap();
    }
    folder.object(
        "train train.csv --target y --net 'dense(20) tanh dense(1)' --epochs 100 --lr 0.02 --out net.safetensors",
    );
    let line = "laplace net.safetensors train.csv --target y --method last-layer --test test.csv --out m.mercer --report p.html";
    let found = folder.object(line);
    assert_eq!(found["methods"].as_array().unwrap().len(), 2, "{found}");
    let gap = &named(&found, "last-layer")["nll_minus_map"];
    let [low, value, high] = [&gap["interval"][0], &gap["value"], &gap["interval"][1]].map(number);
    assert!(low < value && value < high && named(&found, "map")["nll_minus_map"].is_null(), "{gap}");
    let page = std::fs::read_to_string(folder.join("p.html")).unwrap();
    assert!(page.contains("Mean and 95 % intervals") && page.contains("NLL − map"));
    let coverage = number(&named(&found, "last-layer")["test"]["coverage"]["value"]);
    assert!((0.92..0.98).contains(&coverage), "{found}");
    let predicted = folder.object("predict m.mercer test.csv");
    assert_eq!(predicted["deviations"].as_array().unwrap().len(), 1000);
    // The noise in units of the target: 0.5, its variance 0.25.
    let noise = number(&named(&found, "map")["noise"]);
    assert!((noise - 0.25).abs() < 0.08, "{noise}");
    assert!((number(&predicted["deviations"][0]) - 0.5).abs() < 0.1, "{}", predicted["deviations"][0]);
    let line = "laplace net.safetensors train.csv --target y --method temperature";
    folder.refuses(line, "scales logits of classes");
}

/// A linear model of two columns with three outputs whose functions are the columns and a one: arrays, and a table with classes.
fn functions(folder: &Folder, name: &str, n: usize, seed: u64) {
    use ndarray::{Array2, Array3};
    let mut rng = mercer::rng::Rng::new(seed);
    let x = rng.normals((n, 2));
    let input = |i: usize, j: usize| if j < 2 { x[[i, j]] } else { 1.0 };
    let weight = |o: usize, j: usize| [[2.0, -1.0, 0.0], [-1.0, 1.5, 0.3], [0.0, -0.5, -0.3]][o][j];
    let z = Array2::from_shape_fn((n, 3), |(i, o)| (0..3).map(|j| weight(o, j) * input(i, j)).sum::<f64>());
    let j = Array3::from_shape_fn((n, 3, 9), |(i, o, p)| if p / 3 == o { input(i, p % 3) } else { 0.0 });
    let mut table = String::from("a,b,y,number\n");
    for (i, z) in z.rows().into_iter().enumerate() {
        let p = z.mapv(|z| (0.5 * z).exp());
        let u = rng.uniform() * p.sum();
        let class = usize::from(u > p[0]) + usize::from(u > p[0] + p[1]);
        table += &format!("{},{},{class},{}\n", x[[i, 0]], x[[i, 1]], z[0] + 0.5 * rng.normal());
    }
    std::fs::write(folder.join(format!("{name}.csv")), table).unwrap();
    let write = |kind: &str, array: ndarray::ArrayViewD<f64>| {
        mercer::data::write_npy(&folder.join(format!("{kind}-{name}.npy")), array).unwrap();
    };
    write("z", z.view().into_dyn());
    write("j", j.view().into_dyn());
    write("f", (j.permuted_axes([2, 0, 1]) * 3.0).as_standard_layout().view().into_dyn());
    write("one", z.column(0).into_dyn());
}

#[test]
fn a_network_of_another_program_is_given_by_its_functions() {
    let folder = Folder::new();
    for (name, n, seed) in [("train", 200, 1), ("test", 500, 2), ("far", 50, 3)] {
        functions(&folder, name, n, seed);
    }
    let line = "laplace train.csv --target y --drop number --test test.csv --logits z-train.npy,z-test.npy";
    let by = |rest: &str| folder.object(&format!("{line} {rest}"));
    let found = by("--samples f-train.npy,f-test.npy --out m.mercer --report p.html");
    assert_eq!(found["methods"].as_array().unwrap().len(), 4, "{found}");
    assert_eq!((&found["n"], &found["validation"], &found["rows"]), (&160.into(), &40.into(), &500.into()));
    // The logits are twice those that the classes were drawn from.
    assert!((number(&named(&found, "temperature")["temperature"]) - 2.0).abs() < 0.8, "{found}");
    let same = by("--jacobians j-train.npy,j-test.npy");
    for method in ["map", "temperature", "functions", "eigenfunctions"] {
        let [a, b] = [&found, &same].map(|found| number(&named(found, method)["test"]["nll"]["value"]));
        assert!((a - b).abs() < 1e-6, "{method}: {a} {b}");
    }
    let predicted =
        folder.object("predict m.mercer test.csv --target y --drop number --logits z-test.npy --samples f-test.npy");
    let chosen = named(&found, found["method"].as_str().unwrap());
    let loss = number(&predicted["test"]["log_loss"]);
    assert!((loss - number(&chosen["test"]["nll"]["value"])).abs() < 1e-9, "{predicted}");
    folder.said("predict m.mercer --logits z-test.npy --samples f-test.npy --out p.csv");
    assert!(std::fs::read_to_string(folder.join("p.csv")).unwrap().starts_with("prediction,probability 0"));
    let inspected = folder.said("inspect m.mercer");
    for part in ["9 functions of a network of another program with 3 outputs, at 160 rows", "--logits Z.npy"] {
        assert!(inspected.contains(part), "{inspected}");
    }
    assert!(!inspected.contains("column") && !inspected.contains("NEW.csv"), "{inspected}");
    assert!(std::fs::read_to_string(folder.join("p.html")).unwrap().contains("Reliability"));
    let with = "laplace train.csv --target y --drop number --method functions --test test.csv --ood far.csv --draws 20 --tempered \
                --logits z-train.npy,z-test.npy,z-far.npy --samples f-train.npy,f-test.npy,f-far.npy";
    assert!(number(&named(&folder.object(with), "functions")["ood"]["auroc"]["value"]) > 0.3);
    let numbers =
        "laplace train.csv --target number --drop y --logits one-train.npy,one-test.npy --test test.csv --jacobians";
    let wrong = format!("{numbers} j-train.npy,j-test.npy");
    folder.refuses(&wrong, "do not fit outputs of shape [200, 1]");
    folder.refuses("laplace train.csv --target y --logits z-train.npy", "needs the network's functions too");
    folder.refuses(&format!("{line} --samples f-train.npy"), "give one for each of train.csv, test.csv");
    folder.refuses(&format!("{line} --samples f-train.npy,f-test.npy --prior likelihood"), "--prior validation");
    folder.refuses(&format!("{line} --samples f-train.npy,f-test.npy --method kfac"), "needs the network itself");
    folder.refuses("predict m.mercer test.csv --target y --drop number", "rows of 30 numbers");
}

#[test]
fn a_file_of_numbers_without_a_network_is_told_by_its_tensors() {
    let folder = Folder::new();
    let tensors = [("body.0.weight", vec![4, 3]), ("body.0.bias", vec![4])];
    let header: Vec<String> = tensors
        .iter()
        .scan(0, |end, (name, shape)| {
            let start = *end;
            *end += 4 * shape.iter().product::<usize>();
            Some(format!("\"{name}\":{{\"dtype\":\"F32\",\"shape\":{shape:?},\"data_offsets\":[{start},{end}]}}"))
        })
        .collect();
    let header = format!("{{{}}}", header.join(","));
    let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 64]].concat();
    std::fs::write(folder.join("n.safetensors"), bytes).unwrap();
    let said = folder.refused("evaluate n.safetensors digits");
    for part in ["name the network beside the file (--net", "body.0.bias [4], body.0.weight [4, 3]"] {
        assert!(said.contains(part), "{said}");
    }
}

/// R² of one row, or of equal targets, is none for every command.
#[test]
fn the_share_of_a_variance_that_is_zero_is_none() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|i| format!("{i},{}\n", 2 * i + i % 3)).collect();
    std::fs::write(folder.join("t.csv"), format!("x,y\n{rows}")).unwrap();
    std::fs::write(folder.join("one.csv"), "x,y\n3,7.1\n").unwrap();
    std::fs::write(folder.join("same.csv"), format!("x,y\n{}", "3,0.1\n4,0.1\n5,0.1\n".repeat(5))).unwrap();
    let net = "train t.csv --target y --regress --net 'dense(4) tanh dense(1)' --epochs 2 --out n.safetensors --test";
    for test in ["one.csv", "same.csv"] {
        assert!(folder.object(&format!("{net} {test}"))["test"]["r2"].is_null(), "{test}");
        folder.object("regress t.csv --target y --regress --model m.mercer");
        let predicted = folder.object(&format!("predict m.mercer {test} --out p.csv"));
        assert!(predicted["test"]["r2"].is_null() && predicted["test"]["rmse"].is_number(), "{predicted}");
    }
    assert!(folder.object(&format!("{net} t.csv"))["test"]["r2"].is_number());
}
