//! `mercer gp`: what it says, writes and saves.

mod common;

use common::Folder;
use mercer::rng::Rng;

/// y = sin(2a) + noise of standard deviation 0.1, whatever b.
fn table(folder: &Folder, name: &str, n: usize, seed: u64) {
    let mut rng = Rng::new(seed);
    let row = |_| {
        let (a, b) = (rng.normal(), rng.normal());
        format!("{a},{b},{}\n", 50.0 + (2.0 * a).sin() + 0.1 * rng.normal())
    };
    let rows: String = (0..n).map(row).collect();
    std::fs::write(folder.join(name), format!("a,b,y\n{rows}")).unwrap();
}

#[test]
fn numbers_come_with_intervals_that_hold() {
    let folder = Folder::new();
    table(&folder, "train.csv", 250, 1);
    table(&folder, "test.csv", 400, 2);
    let line = "gp train.csv --target y --kernel 'rbf(lengthscale=ard)' --restarts 1 --predict test.csv --out p.csv --model m.mercer";
    let found = folder.object(line);
    assert!((found["noise"].as_f64().unwrap().sqrt() - 0.1).abs() < 0.02, "{found}");
    assert!(found["search"]["converged"].as_bool().unwrap(), "{found}");
    for part in ["left_out", "test"] {
        let of = |name: &str| found[part][name].as_f64().unwrap();
        assert!(of("rmse") < 0.15 && (0.91..0.98).contains(&of("coverage")), "{part}: {found}");
        // The entropy of the noise is log(0.1·√(2πe)) = −0.88.
        assert!((-0.95..-0.6).contains(&of("nll")), "{part}: {found}");
    }
    let written = std::fs::read_to_string(folder.join("p.csv")).unwrap();
    let mut lines = written.lines();
    assert_eq!(lines.next(), Some("mean,deviation,low,high"));
    let row: Vec<f64> = lines.next().unwrap().split(',').map(|v| v.parse().unwrap()).collect();
    assert!((row[0] - 1.959_963_985 * row[1] - row[2]).abs() < 1e-6 && (row[2] + row[3] - 2.0 * row[0]).abs() < 1e-9);
    // The model predicts the same.
    let again = folder.object("predict m.mercer test.csv");
    assert_eq!(again["predictions"][0].as_f64().unwrap(), row[0]);
    assert_eq!(again["deviations"][0].as_f64().unwrap(), row[1]);
    assert!(folder.said("predict m.mercer test.csv").starts_with("prediction,deviation\n"));
    let said =
        folder.said("gp train.csv --target y --kernel 'rbf(lengthscale=ard)' --restarts 1 --holdout 0.2 --level 0.8");
    for words in ["log marginal likelihood", "lengthscale", "holdout", "80", "NLL"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.find("\na ").unwrap() < said.find("\nb ").unwrap(), "{said}");
}

#[test]
fn what_a_process_cannot_learn_is_refused() {
    let folder = Folder::new();
    table(&folder, "train.csv", 60, 3);
    folder.refuses("gp train.csv --target y --level 95", "between 0 and 1");
    folder.refuses("gp train.csv --target y --method exact --rank 5", "the method exact does not take --rank");
    folder.refuses("gp train.csv --target y --kernel 'rbf(lengthscale=wide)'", "lengthscale must be");
    std::fs::write(folder.join("words.csv"), "a,y\n1,up\n2,down\n3,up\n").unwrap();
    folder.refuses("gp words.csv --target y --method nystrom", "regress --loss logistic");
    std::fs::write(folder.join("one.csv"), "a,y\n1,up\n2,up\n3,up\n").unwrap();
    folder.refuses("gp one.csv --target y", "same class");
}

/// Words are classes with probabilities; the model gives the same ones again.
#[test]
fn classes_come_with_probabilities() {
    let folder = Folder::new();
    let mut rng = Rng::new(5);
    let row = |_| {
        let (a, b) = (rng.normal(), rng.normal());
        format!("{a},{b},{}\n", if a + 0.3 * rng.normal() > 0.0 { "up" } else { "down" })
    };
    let rows: Vec<String> = (0..260).map(row).collect();
    std::fs::write(folder.join("train.csv"), format!("a,b,y\n{}", rows[..160].concat())).unwrap();
    std::fs::write(folder.join("test.csv"), format!("a,b,y\n{}", rows[160..].concat())).unwrap();
    let line = "gp train.csv --target y --restarts 0 --predict test.csv --out p.csv --model m.mercer";
    let found = folder.object(line);
    for part in ["left_out", "test"] {
        let of = |name: &str| found[part][name].as_f64().unwrap();
        assert!(of("accuracy") > 0.8 && of("log_loss") < 0.45, "{part}: {found}");
    }
    assert!(found["noise"].is_null() && found["log_likelihood"].as_f64().unwrap() < 0.0, "{found}");
    let written = std::fs::read_to_string(folder.join("p.csv")).unwrap();
    assert!(
        written.starts_with("prediction,probability down,probability up\n")
            || written.starts_with("prediction,probability up,probability down\n"),
        "{written}"
    );
    assert_eq!(folder.said("predict m.mercer test.csv"), written);
    let said = folder.said("gp train.csv --target y --restarts 0 --holdout 0.2");
    for words in ["Laplace approximation", "log loss", "classes of holdout", "recall"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Features stand for the kernel where they are asked for; intervals hold there too.
#[test]
fn features_give_intervals_that_hold() {
    let folder = Folder::new();
    table(&folder, "train.csv", 1200, 6);
    table(&folder, "test.csv", 400, 7);
    for method in ["--method nystrom --rank 60", "--method random-features --rank 200", "--method spectrum --rank 60"] {
        let line = format!(
            "gp train.csv --target y {method} --restarts 0 --search-rows 200 --predict test.csv --model m.mercer"
        );
        let found = folder.object(&line);
        for part in ["left_out", "test"] {
            let of = |name: &str| found[part][name].as_f64().unwrap();
            assert!(of("rmse") < 0.13 && (0.91..0.98).contains(&of("coverage")), "{method}, {part}: {found}");
        }
        assert_eq!(found["search"]["rows"], 200);
        assert!(folder.said("predict m.mercer test.csv").starts_with("prediction,deviation\n"));
    }
}

/// Titsias' bound holds where the features' kernel is below the kernel, which random features' is not.
#[test]
fn only_bounds_are_called_bounds() {
    let folder = Folder::new();
    table(&folder, "train.csv", 150, 6);
    let said = |method: &str| {
        folder.said(&format!("gp train.csv --target y --method {method} --restarts 0 --search-rows 100"))
    };
    assert!(said("nystrom --rank 30").contains("lower bound of the log marginal likelihood"));
    let random = said("random-features --rank 60");
    assert!(random.contains("under the kernel of the random features") && !random.contains("lower bound"), "{random}");
}

/// Conjugate gradients: intervals that hold, a likelihood with its error, a model that predicts the same; refusals with their numbers.
#[test]
fn conjugate_gradients_say_what_they_did() {
    let folder = Folder::new();
    table(&folder, "train.csv", 900, 8);
    table(&folder, "test.csv", 400, 9);
    let options = "--target y --method cg --restarts 0 --search-rows 200";
    let found = folder.object(&format!("gp train.csv {options} --predict test.csv --out p.csv --model m.mercer"));
    for part in ["left_out", "test"] {
        let of = |name: &str| found[part][name].as_f64().unwrap();
        assert!(of("rmse") < 0.13 && (0.91..0.98).contains(&of("coverage")), "{part}: {found}");
    }
    assert!(found["log_likelihood_error"].as_f64().unwrap() < 5.0, "{found}");
    assert!(found["conjugate_gradients"]["residual"].as_f64().unwrap() <= 1e-6, "{found}");
    let written = std::fs::read_to_string(folder.join("p.csv")).unwrap();
    let first: Vec<f64> = written.lines().nth(1).unwrap().split(',').map(|v| v.parse().unwrap()).collect();
    let again = folder.object("predict m.mercer test.csv");
    assert_eq!(again["predictions"][0].as_f64().unwrap(), first[0]);
    assert_eq!(again["deviations"][0].as_f64().unwrap(), first[1]);
    let said = folder.said(&format!("gp train.csv {options} --rank 40 --precision f32"));
    for words in [" ± ", "products, relative residual", "preconditioner of rank 40"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    folder.refuses(
        "gp train.csv --target y --precision f32",
        "the method auto does not take --precision, which is for cg; leave it out",
    );
    folder.refuses("gp train.csv --target y --method exact --rank 5", "the method exact does not take --rank");
    folder.refuses(&format!("gp train.csv {options} --memory 1MB"), "memory budget");
}

/// Sampled functions in place of a kernel: numbers and classes, and new rows by the same functions.
#[test]
fn sampled_functions_are_a_kernel() {
    let folder = Folder::new();
    table(&folder, "train.csv", 300, 10);
    folder.said("sample train.csv --target y --net 'dense(32) sin dense(1)' --count 120 -o F.npy");
    let found = folder.object("gp train.csv --target y --samples F.npy --holdout 0.3 --model m.mercer");
    assert_eq!(found["method"], "linear");
    assert!(found["holdout"]["rmse"].as_f64().unwrap() < 0.5, "{found}");
    let again = folder.object("predict m.mercer --samples F.npy");
    assert_eq!(again["deviations"].as_array().unwrap().len(), 300);
    // More functions than rows.
    let few = folder.object("gp train.csv --target y --samples F.npy --holdout 0.8");
    assert_eq!(few["method"], "gaussian-process");
    folder.refuses("gp train.csv --target y --samples F.npy --method nystrom", "the functions are the features");
    folder.refuses("gp train.csv --target y --rows 100 --samples F.npy", "do not fit 100 points");
    folder.refuses("predict m.mercer train.csv", "120");
}

#[test]
fn a_report_draws_the_posterior_over_the_line_and_the_plane() {
    let folder = Folder::new();
    let mut rng = Rng::new(4);
    let row = |_| {
        let x = 3.0 * rng.uniform();
        format!("{x},{}\n", x.sin() + 0.1 * rng.normal())
    };
    std::fs::write(folder.join("line.csv"), format!("x,y\n{}", (0..40).map(row).collect::<String>())).unwrap();
    folder.said("gp line.csv --target y --restarts 0 --report line.html");
    let page = std::fs::read_to_string(folder.join("line.html")).unwrap();
    assert!(page.contains("Mean and 95 % intervals") && page.contains("deviation of the noise"));
    folder.said("gp moons(n=60,noise=0.2) --restarts 0 --holdout 0.3 --report plane.html");
    let page = std::fs::read_to_string(folder.join("plane.html")).unwrap();
    assert!(page.contains("Entropy of the probabilities") && page.contains("Reliability"));
}
