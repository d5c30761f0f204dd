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
    assert_eq!(found["methods"].as_array().unwrap().len(), 8, "{found}");
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
    let line = "laplace net.safetensors train.csv --target y --method last-layer --test test.csv --out m.mercer";
    let found = folder.object(line);
    assert_eq!(found["methods"].as_array().unwrap().len(), 2, "{found}");
    let coverage = number(&named(&found, "last-layer")["test"]["coverage"]);
    assert!((0.92..0.98).contains(&coverage), "{found}");
    let predicted = folder.object("predict m.mercer test.csv");
    assert_eq!(predicted["deviations"].as_array().unwrap().len(), 1000);
    // The noise in units of the target: 0.5.
    assert!((number(&predicted["deviations"][0]) - 0.5).abs() < 0.1, "{}", predicted["deviations"][0]);
    let line = "laplace net.safetensors train.csv --target y --method temperature";
    folder.refuses(line, "scales logits of classes");
}
