//! `mercer regress`: which method is chosen, what is said of classes, and what an early end leaves, also in `mercer fit`; `mercer train` for numbers.

mod common;

use common::Folder;
use mercer::rng::Rng;

/// A table of n rows: two columns and a class or number that depends on them.
fn table(folder: &Folder, name: &str, n: usize, target: impl Fn(f64, f64, &mut Rng) -> String) {
    let mut rng = Rng::new(n as u64);
    let row = |_| {
        let (a, b) = (rng.normal(), rng.normal());
        format!("{a},{b},{}\n", target(a, b, &mut rng))
    };
    let rows: String = (0..n).map(row).collect();
    std::fs::write(folder.join(name), format!("a,b,y\n{rows}")).unwrap();
}

fn class(a: f64, b: f64, rng: &mut Rng) -> String {
    let noisy = a + 0.3 * rng.normal();
    String::from(if noisy > 1.5 {
        "rare"
    } else if noisy * b > 0.0 {
        "same"
    } else {
        "mixed"
    })
}

fn number(a: f64, b: f64, rng: &mut Rng) -> String {
    ((2.0 * a).sin() + b + 0.1 * rng.normal() + 20.0).to_string()
}

#[test]
fn the_method_is_chosen_by_size_and_kernel() {
    let folder = Folder::new();
    table(&folder, "few.csv", 300, number);
    table(&folder, "many.csv", 6000, number);
    for (line, method, words) in [
        ("few.csv", "ridge", "few enough for the exact solution"),
        ("few.csv --kernel linear", "linear", "no more than its 2 columns"),
        ("many.csv", "nystrom", "1000 landmarks"),
        ("many.csv --rank 50", "nystrom", "50 landmarks"),
        ("many.csv --kernel poly(degree=2)", "nystrom", "rank 6 at most"),
    ] {
        let line = format!("regress {line} --target y --holdout 0.1 --precision f32");
        let found = folder.object(&line);
        assert_eq!(found["method"], method, "{line}");
        let why = found["why"].as_str().unwrap();
        assert!(why.contains(words), "{line}: {why}");
        let said = folder.mercer(&line).output().unwrap();
        assert!(String::from_utf8_lossy(&said.stderr).contains(why), "{line}");
    }
    // All of them learn the function; a linear one its linear part alone.
    for method in ["ridge", "nystrom", "random-features", "spectrum"] {
        let line = format!("regress few.csv --target y --holdout 0.2 --kernel rbf(1) --rank 60 --method {method}");
        let found = folder.object(&line);
        let rmse = found["holdout"]["rmse"].as_f64().unwrap();
        assert!(rmse < 0.35, "{method}: {rmse}");
        assert!(found["why"].is_null());
    }
}

#[test]
fn classes_are_reported_one_by_one() {
    let folder = Folder::new();
    table(&folder, "classes.csv", 600, class);
    let line = "regress classes.csv --target y --holdout 0.3 --kernel rbf(0.7)";
    let (found, said) = (folder.object(line), folder.said(&format!("{line} --report c.html")));
    let page = std::fs::read_to_string(folder.join("c.html")).unwrap();
    assert!(
        page.contains("Classification on classes.csv")
            && page.contains("Classes of holdout")
            && page.contains("predicted")
    );
    let test = &found["holdout"];
    // The measures follow from the confusion matrix.
    let count = |a: usize, b: usize| test["confusion"][a][b].as_f64().unwrap();
    let right: f64 = (0..3).map(|c| count(c, c)).sum();
    assert!((right / 180.0 - test["accuracy"].as_f64().unwrap()).abs() < 1e-12);
    for c in 0..3 {
        let [taken, support] = [(0..3).map(|a| count(a, c)).sum::<f64>(), (0..3).map(|b| count(c, b)).sum::<f64>()];
        let class = &test["classes"][c];
        assert!((class["precision"].as_f64().unwrap() - count(c, c) / taken).abs() < 1e-12);
        assert!((class["recall"].as_f64().unwrap() - count(c, c) / support).abs() < 1e-12);
        assert_eq!(class["support"].as_f64().unwrap(), support);
        assert!(said.contains(class["name"].as_str().unwrap()));
    }
    // Better than the frequencies of the classes, whose log loss is their entropy.
    let loss = test["log_loss"].as_f64().unwrap();
    assert!(loss > 0.0 && loss < 0.7, "{loss}");
    for words in ["precision", "recall", "support", "true \\ predicted", "log loss", "classes of holdout"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn class_weights_find_more_of_a_rare_class() {
    let folder = Folder::new();
    table(&folder, "classes.csv", 900, class);
    let recall = |more: &str| {
        let line = format!("regress classes.csv --target y --kernel rbf(2) {more} --holdout 0.4");
        let found = folder.object(&line);
        let classes = found["holdout"]["classes"].as_array().unwrap().clone();
        classes.iter().find(|c| c["name"] == "rare").unwrap()["recall"].as_f64().unwrap()
    };
    let ways =
        ["nystrom --rank 40", "ridge", "ridge --solver cg", "spectrum --rank 20", "nystrom --rank 40 --loss logistic"];
    for way in ways {
        let recall = |more: &str| recall(&format!("--method {way} {more}"));
        let (plain, balanced) = (recall(""), recall("--class-weight balanced"));
        assert!(balanced > plain, "{way}: {plain} {balanced}");
        assert!(recall("--class-weight rare=9") > plain, "{way}");
    }
    let refuses = |more: &str, words: &str| folder.refuses(&format!("regress classes.csv --target y {more}"), words);
    refuses("--class-weight rar=2", "did you mean 'rare'");
    refuses("--class-weight rare", "balanced, or numbers");
    refuses(
        "--class-weight balanced --method nadaraya-watson",
        "does not take --class-weight, which is for auto, ridge, nystrom",
    );
}

#[test]
fn a_logistic_head_has_less_log_loss_and_its_model_predicts_the_same() {
    let folder = Folder::new();
    table(&folder, "classes.csv", 900, class);
    let line = "regress classes.csv --target y --kernel rbf(2) --rank 40 --holdout 0.4";
    let loss = |found: &serde_json::Value| found["holdout"]["log_loss"].as_f64().unwrap();
    for method in ["nystrom", "random-features", "spectrum --rank 30", "linear --kernel linear"] {
        let line = line.replace("--kernel rbf(2) --rank 40", &format!("--method {method}"));
        let (squared, logistic) = (folder.object(&line), folder.object(&format!("{line} --loss logistic")));
        assert!(loss(&logistic) < loss(&squared), "{method}: {} {}", loss(&logistic), loss(&squared));
        let name = method.split(' ').next().unwrap();
        assert_eq!(logistic["method"], format!("{name}-logistic"));
        assert!(logistic["left_out_log_loss"].is_number() && logistic["left_out_mse"].is_null(), "{logistic}");
    }
    // Few points, for which ridge regression would be chosen.
    let more = "--loss logistic --class-weight balanced --model m.mercer --predict classes.csv --out p.csv";
    let auto = folder.object(&format!("{line} {more}"));
    assert_eq!((auto["method"].as_str(), auto["rank"].as_f64()), (Some("nystrom-logistic"), Some(40.0)), "{auto}");
    let again = folder.object("predict m.mercer classes.csv --out q.csv");
    assert_eq!(again["test"], auto["test"]);
    let refuses = |more: &str, words: &str| folder.refuses(&format!("{line} {more}"), words);
    refuses(
        "--loss logistic --method ridge",
        "--loss logistic is for methods on features: nystrom, random-features, spectrum, linear",
    );
    refuses("--loss logistic --method nadaraya-watson", "the method nadaraya-watson does not take --loss");
    refuses("--loss logistic --solver cg", "leave one of them out");
    refuses("--loss logistic --alpha 0", "an α above 0");
    table(&folder, "numbers.csv", 90, number);
    folder.refuses(
        "regress numbers.csv --target y --loss logistic",
        "--loss logistic is for classes, and the target is numbers",
    );
}

#[test]
fn conjugate_gradients_that_end_early_still_predict() {
    let folder = Folder::new();
    table(&folder, "hard.csv", 2500, number);
    // Rank 1 and a tiny α: 1000 products are not enough, and single precision would not get there at all.
    let line = "regress hard.csv --target y --kernel rbf(0.3) --solver cg --rank 1 --alpha 1e-12 --holdout 0.1";
    let output = folder.mercer(&format!("{line} --json")).output().unwrap();
    let (said, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{warned}");
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    let residual = found["residual"].as_f64().unwrap();
    assert!(residual > 1e-8 && found["holdout"]["rmse"].is_number(), "{found}");
    for words in ["warning: conjugate gradients stopped", "(--rank)", "(--alpha)", "best iterate"] {
        assert!(warned.contains(words), "{warned}");
    }
}

#[test]
fn a_search_shows_what_it_tried() {
    let folder = Folder::new();
    table(&folder, "numbers.csv", 300, number);
    let line = "regress numbers.csv --target y --search rbf,linear,matern32(2) --holdout 0.2";
    let (found, said) = (folder.object(line), folder.said(line));
    let tried = found["search"]["tried"].as_array().unwrap();
    assert_eq!(tried[0]["kernel"], found["kernel"]);
    assert!(
        tried.iter().any(|t| t["kernel"] == "linear") && tried.iter().any(|t| t["kernel"] == "matern32(lengthscale=2)")
    );
    assert!(tried.iter().filter(|t| t["kernel"].as_str().unwrap().starts_with("rbf")).count() > 8);
    assert!(said.contains("kernel tried") && said.contains("left-out MSE"), "{said}");
    assert!(found["holdout"]["rmse"].as_f64().unwrap() < 0.3, "{found}");
    let auto = folder.object("regress numbers.csv --target y --kernel 'rbf(lengthscale=auto)' --cv 4");
    assert!(auto["search"]["tried"].as_array().unwrap().len() > 8);
    folder.refuses("fit numbers.csv --target y --kernel 'rbf(lengthscale=auto)'", "use median or a number");
    folder.refuses("fit numbers.csv --target y --kernel 'rbf(lengthscale=ard)'", "use median or a number");
    let refused = "regress numbers.csv --target y --method nadaraya-watson --search rbf,laplacian";
    folder.refuses(refused, "--search");
}

/// `y` depends on `a` through a sine and on `b` along a line: the lengthscale of `a` is the shorter, by both criteria, and the model with both
/// of them predicts the same after it is read back.
#[test]
fn each_column_finds_its_lengthscale() {
    let folder = Folder::new();
    table(&folder, "numbers.csv", 200, number);
    for criterion in ["left-out", "likelihood"] {
        let line = format!(
            "regress numbers.csv --target y --kernel 'rbf(lengthscale=ard)' --criterion {criterion} --holdout 0.2 --model m.mercer"
        );
        let (found, said) = (folder.object(&line), folder.said(&line));
        assert_eq!(found["search"]["criterion"], criterion);
        let kernel = found["kernel"].as_str().unwrap();
        let list = kernel.split_once("lengthscale=[").unwrap().1.split_once(']').unwrap().0;
        let each: Vec<f64> = list.split(", ").map(|v| v.parse().unwrap()).collect();
        assert!(each.len() == 2 && each[0] < each[1], "{kernel}");
        assert!(found["holdout"]["rmse"].as_f64().unwrap() < 0.15, "{found}");
        let (a, b) = (said.find("\na ").unwrap(), said.find("\nb ").unwrap());
        assert!(said.contains("column") && a < b, "{said}");
        let again = folder.object("predict m.mercer numbers.csv");
        assert!(again["test"]["rmse"].as_f64().unwrap() < 0.15, "{again}");
    }
    let (likely, said) = (
        folder.object("regress numbers.csv --target y --search rbf,linear --criterion likelihood"),
        folder.said("regress numbers.csv --target y --search rbf,linear --criterion likelihood"),
    );
    assert_eq!(likely["search"]["tried"].as_array().unwrap().len(), 2);
    assert!(likely["kernel"].as_str().unwrap().contains("rbf"), "{likely}");
    assert!(said.contains("-log likelihood/row"), "{said}");
    folder.refuses("regress numbers.csv --target y --kernel 'rbf([1, 2, 3])'", "3 lengthscales");
}

#[test]
fn a_tolerance_that_the_krylov_method_misses_is_said() {
    let folder = Folder::new();
    let warned = |more: &str| {
        let output = folder.mercer(&format!("fit moons(n=300) --kernel rbf(1) --k 3 {more}")).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(!warned("").contains("warning"));
    let missed = warned("--tolerance 1e-12 --precision f32");
    for words in ["3 of 3 pairs above the residual 1e-12 asked for", "use double precision", "(--tolerance)"] {
        assert!(missed.contains(words), "{missed}");
    }
}

#[test]
fn one_thing_has_one_name_in_all_commands() {
    let folder = Folder::new();
    // Landmarks and random features, as `fit` calls them.
    let named = |options: &str| folder.object(&format!("regress moons(n=200) --seed 1 {options}"))["rank"].clone();
    assert_eq!(named("--method nystrom --landmarks 20"), named("--method nystrom --rank 20"));
    assert_eq!(named("--method rff --features 40"), 40);
    // The model file is `--model` wherever one is written.
    folder.said("fit moons(n=80) --k 2 --model spectrum.mercer");
    folder.said("train digits --net mlp --epochs 1 --rows 200 --lr 0.01 --model net.safetensors");
    for file in ["spectrum.mercer", "net.safetensors"] {
        assert!(folder.join(file).exists(), "{file}");
    }
}

#[test]
fn a_recursive_feature_machine_learns_which_columns_matter() {
    let folder = Folder::new();
    // b and a third column of noise do nothing.
    let mut rng = Rng::new(5);
    let row = |_| {
        let (a, b, c) = (rng.normal(), rng.normal(), rng.normal());
        format!("{a},{b},{c},{}\n", (3.0 * a).sin() + 0.05 * rng.normal())
    };
    let rows: String = (0..250).map(row).collect();
    std::fs::write(folder.join("t.csv"), format!("first,second,third,y\n{rows}")).unwrap();
    let line = "regress t.csv --target y --holdout 0.2 --kernel matern52(lengthscale=auto)";
    let plain = folder.object(line)["holdout"]["rmse"].as_f64().unwrap();
    let line = format!("{line} --method rfm");
    let found = folder.object(&format!("{line} --model m.mercer"));
    assert_eq!(found["method"], "rfm");
    assert!(
        found["metric"]["rounds"].as_u64().unwrap() > 0 && found["metric"]["tried"].as_array().unwrap().len() == 11
    );
    let rmse = found["holdout"]["rmse"].as_f64().unwrap();
    assert!(rmse < 0.8 * plain, "{rmse} for {plain}");
    assert!(found["importances"]["columns"][0].as_f64().unwrap() > 0.9, "{found}");
    let said = folder.said(&format!("{line} --report r.html"));
    let page = std::fs::read_to_string(folder.join("r.html")).unwrap();
    for words in ["metric tried", "importance", "first", "direction", "agree"] {
        assert!(said.contains(words) && page.contains(words), "{words}: {said}");
    }
    let inspected = folder.said("inspect m.mercer");
    assert!(inspected.contains("importance") && inspected.contains("second"), "{inspected}");
    assert_eq!(folder.object("inspect m.mercer")["importances"], found["importances"]);
    let predicted = folder.object("predict m.mercer t.csv");
    assert!(predicted["test"]["rmse"].as_f64().unwrap() < 0.2, "{predicted}");
    let fixed =
        folder.object("regress t.csv --target y --method rfm --metric full --rounds 2 --rank 50 --kernel rbf(1)");
    assert_eq!((&fixed["metric"]["form"], &fixed["metric"]["rounds"]), (&"full".into(), &2.into()));
    assert!(fixed["metric"]["tried"].as_array().unwrap().is_empty() && fixed["rank"] == 50);
    folder.refuses("regress t.csv --target y --rounds 2", "the method auto does not take --rounds, which is for rfm");
    folder.refuses("regress t.csv --target y --method rfm --search rbf", "the method rfm does not take --search");
}

#[test]
fn solvers_of_all_points_agree() {
    let folder = Folder::new();
    table(&folder, "t.csv", 400, number);
    let line = |method: &str| {
        format!("regress t.csv --target y --holdout 0.2 --kernel matern32(2) --alpha 0.1 --method {method}")
    };
    let want = folder.object(&line("ridge"))["holdout"]["rmse"].as_f64().unwrap();
    for method in ["askotch", "eigenpro", "richardson", "falkon"] {
        let found = folder.object(&line(method));
        let rmse = found["holdout"]["rmse"].as_f64().unwrap();
        assert!((rmse / want - 1.0).abs() < 0.01, "{method}: {rmse} for {want}");
        if method != "falkon" {
            assert!(found["residual"].as_f64().unwrap() <= 1e-3, "{method}: {found}");
            assert_eq!(found["curve"].as_array().unwrap().len() as u64, found["iterations"].as_u64().unwrap());
            assert!(folder.said(&line(method)).contains("to a relative residual of"), "{method}");
        }
    }
}

/// `train` for numbers: the error in their own units, and the scaling that is asked for kept in the file.
#[test]
fn numbers_are_learnt_and_predicted() {
    let folder = Folder::new();
    let row = |i: u32| (f64::from(i % 20), 1000.0 * f64::from(i / 20 % 20));
    let rows: String = (0..400).map(row).map(|(a, b)| format!("{a},{b},{}\n", 5.0 + 2.5 * a - 0.004 * b)).collect();
    std::fs::write(folder.join("d.csv"), format!("a,b,y\n{rows}")).unwrap();
    for scale in ["standard", "minmax"] {
        let train = "train d.csv --target y --net 'dense(16) tanh dense(1)' --epochs 60 --batch 16 --optimiser adam --rate 0.01";
        let object = folder.object(&format!("{train} --scale {scale} --out n.safetensors"));
        // The numbers have a standard deviation of 27.
        assert!(object["test"]["rmse"].as_f64().unwrap() < 1.0, "{scale}: {}", object["test"]);
        let said = folder.said("evaluate n.safetensors d.csv --target y --out p.csv");
        assert!(said.contains("RMSE") && said.contains("n.safetensors on d.csv"), "{said}");
        assert!(std::fs::read_to_string(folder.join("p.csv")).unwrap().starts_with("prediction\n"));
    }
    // Whole numbers are classes unless it is said otherwise.
    let whole: String = (0..60).map(|i| format!("{i},{}\n", i % 3)).collect();
    std::fs::write(folder.join("w.csv"), format!("a,y\n{whole}")).unwrap();
    let test =
        |more: &str| folder.object(&format!("train w.csv --target y --net mlp --epochs 1 {more}"))["test"].clone();
    assert!(test("")["accuracy"].is_number() && test("--regress")["rmse"].is_number());
    folder.refuses("train digits --net 'dense(8) dropout(0.5) dense(10)'", "dropout");
}

#[test]
fn ensembles_and_linearised_networks_are_saved_and_predict() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|i| format!("{},{}\n", f64::from(i) / 10.0, (f64::from(i) / 10.0).sin())).collect();
    std::fs::write(folder.join("w.csv"), format!("a,y\n{rows}")).unwrap();
    let learn = "regress w.csv --target y --method ntk-ensemble --time 1000 --model m.mercer";
    let learnt = folder.object(learn);
    assert!(learnt["time"] == 1000.0 && learnt["kernel"].as_str().unwrap().starts_with("ntk("), "{learnt}");
    let found = folder.object("predict m.mercer w.csv");
    assert_eq!(found["deviations"].as_array().unwrap().len(), 40);
    assert!(found["test"]["rmse"].as_f64().unwrap() < 0.1, "{found}");
    folder.refuses(
        "regress w.csv --target y --time 3",
        "the method auto does not take --time, which is for ntk-ensemble",
    );
    folder.refuses("regress w.csv --target y --method ntk-ensemble --kernel 'rbf(1)'", "ntk(depth=2, act=erf)");
    let trained =
        folder.object("train digits --net 'dense(16) relu dense(10)' --epochs 2 --linearised -o n.safetensors");
    assert!(trained["linearised"] == true);
    let found = folder.object("evaluate n.safetensors digits");
    assert!(found.to_string().contains("accuracy"));
    assert_eq!(folder.object("inspect n.safetensors")["linearised"], true);
}
