//! What users write of kernels and what they read of them: units, widths, noise, and options that a method does not know.

mod common;

use common::Folder;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// Monthly values over thirty years: a trend, a season that repeats every year, and noise.
fn seasons(folder: &Folder) {
    let mut rng = mercer::rng::Rng::new(8);
    let row = |i: usize| {
        let year = 1960.0 + i as f64 / 12.0;
        let season = 3.0 * (std::f64::consts::TAU * year).sin() + (2.0 * std::f64::consts::TAU * year).cos();
        format!(
            "{year},{}\n",
            315.0 + 0.1 * (year - 1960.0) + 0.02 * (year - 1960.0f64).powi(2) + season + 0.2 * rng.normal()
        )
    };
    let rows: Vec<String> = (0..240).map(row).collect();
    fs::write(folder.join("co2.csv"), format!("year,co2\n{}", rows[..192].concat())).unwrap();
    fs::write(folder.join("later.csv"), format!("year,co2\n{}", rows[192..].concat())).unwrap();
}

#[test]
fn a_period_is_in_the_unit_of_its_column_whatever_the_scaling() {
    let folder = Folder::new();
    seasons(&folder);
    let kernel = "rbf(lengthscale=auto) + periodic(period=1, lengthscale=auto)*rbf(lengthscale=auto)";
    let line =
        |scale: &str| format!("gp co2.csv --target co2 --kernel '{kernel}' --predict later.csv --restarts 0 {scale}");
    let (usual, plain) = (folder.object(&line("--model m.mercer")), folder.object(&line("--scale none")));
    let [a, b] = [&usual, &plain].map(|found| found["log_likelihood"].as_f64().unwrap());
    assert!((a - b).abs() < 1.0, "{usual}\n{plain}");
    let [a, b] = [&usual, &plain].map(|found| found["test"]["rmse"].as_f64().unwrap());
    assert!(a < 1.5 && (a - b).abs() < 0.2, "{usual}\n{plain}");
    assert!(usual["kernel"].as_str().unwrap().contains("periodic(period=1, "), "{usual}");
    // The model keeps the numbers of the fit, and its period is shown as it was written.
    let again = folder.object("predict m.mercer later.csv");
    assert!(
        (again["test"]["rmse"].as_f64().unwrap() - usual["test"]["rmse"].as_f64().unwrap()).abs() < 1e-9,
        "{again}"
    );
    assert!(folder.said("inspect m.mercer").contains("periodic(period=1, "));
    let stored = folder.object("inspect m.mercer")["origin"]["kernel"].to_string();
    assert!(!stored.contains("period=1,"), "{stored}");
    // Columns of other scales: a week and a year.
    let rows: String = (0..60).map(|i| format!("{},{},{}\n", i % 23, (i * 37) % 700, i % 5)).collect();
    fs::write(folder.join("two.csv"), format!("day,hour,y\n{rows}")).unwrap();
    let gram = |scale: &str| {
        folder.said(&format!("gram two.csv --target y --kernel 'periodic(7)' --scale {scale} --out {scale}.npy"))
    };
    for scale in ["none", "standard", "minmax"] {
        gram(scale);
    }
    let none = folder.read("none.npy");
    for scale in ["standard.npy", "minmax.npy"] {
        let off = (folder.read(scale) - &none).iter().fold(0.0f64, |most, off| most.max(off.abs()));
        assert!(off < 1e-9, "{scale}: {off:e}");
    }
}

/// Lengthscales that were found, in standard deviations and in the unit of the column: `ℓ·sd`.
#[test]
fn lengthscales_are_shown_in_both_units() {
    let folder = Folder::new();
    seasons(&folder);
    let years: Vec<f64> = (0..192).map(|i| 1960.0 + f64::from(i) / 12.0).collect();
    let mean = years.iter().sum::<f64>() / 192.0;
    let sd = (years.iter().map(|year| (year - mean).powi(2)).sum::<f64>() / 192.0).sqrt();
    for command in ["gp co2.csv --target co2 --restarts 0", "regress co2.csv --target co2 --kernel 'rbf(auto)'"] {
        let found = folder.object(command);
        let row = &found["lengthscales"][0];
        let [scaled, own] = ["lengthscale", "own_unit"].map(|name| row[name].as_f64().unwrap());
        assert!(found["kernel"].as_str().unwrap().contains(&format!("lengthscale={scaled}")), "{found}");
        assert!((own / (scaled * sd) - 1.0).abs() < 1e-9, "{row} {sd}");
        let said = folder.said(command);
        assert!(said.contains("in its unit") && said.contains("standard deviations of the columns"), "{said}");
        assert!(!folder.said(&format!("{command} --scale none")).contains("in its unit"));
    }
    let noted = folder.mercer("regress co2.csv --target co2 --kernel 'rbf(0.5)'").output().unwrap();
    assert!(String::from_utf8_lossy(&noted.stderr).contains("lengthscales are in standard deviations of the columns"));
}

/// The kernel is flat along `b` and `c` alike, and the prediction changes along `b` only.
#[test]
fn columns_are_ordered_by_how_much_they_change_the_prediction() {
    let folder = Folder::new();
    let mut rng = mercer::rng::Rng::new(1);
    let mut row = |_| {
        let [a, b, c] = [rng.normal(), rng.normal(), rng.normal()];
        format!("{c},{b},{a},{}\n", (2.0 * a).sin() + 0.3 * b + 0.05 * rng.normal())
    };
    let rows: String = (0..200).map(&mut row).collect();
    fs::write(folder.join("t.csv"), format!("c,b,a,y\n{rows}")).unwrap();
    for command in ["regress", "gp"] {
        let line = format!("{command} t.csv --target y --kernel 'rbf(ard)'");
        let found = folder.object(&line);
        let order: Vec<&str> =
            found["lengthscales"].as_array().unwrap().iter().map(|r| r["column"].as_str().unwrap()).collect();
        assert_eq!(order, ["a", "b", "c"], "{found}");
        // Shares of the mean squared gradient: E[4cos²(2a)] : 0.09, nearly 2.03 : 0.09, and nothing.
        let share = |i: usize| found["lengthscales"][i]["importance"].as_f64().unwrap();
        assert!((share(1) / share(0) - 0.09 / 2.0).abs() < 0.02 && share(2) < 0.005, "{found}");
    }
}

/// `Σ κ(x,x_i) y_i / Σ κ(x,x_i)` with the lengthscale that was written; a width is searched for where the kernel leaves it open.
#[test]
fn averages_take_the_lengthscale_that_is_written() {
    let folder = Folder::new();
    let points: Vec<[f64; 2]> = (0..40).map(|i| [f64::from(i) / 10.0, (f64::from(i * i % 17)) / 5.0]).collect();
    let rows: String = points.iter().map(|[x, y]| format!("{x},{y}\n")).collect();
    fs::write(folder.join("t.csv"), format!("x,y\n{rows}")).unwrap();
    fs::write(folder.join("n.csv"), "x\n0.33\n2.5\n").unwrap();
    let learn = |options: &str| {
        folder.object(&format!("regress t.csv --target y --regress --method nadaraya-watson --scale none --predict n.csv --out p.npy {options}"))
    };
    let found = learn("--kernel 'rbf(0.3)'");
    assert_eq!(found["bandwidth"], 1.0);
    let predicted = folder.read("p.npy");
    for (i, x) in [0.33, 2.5].into_iter().enumerate() {
        let weight = |at: f64| (-(x - at).powi(2) / 0.18f64).exp();
        let total: f64 = points.iter().map(|[at, _]| weight(*at)).sum();
        let want = points.iter().map(|[at, y]| weight(*at) * y).sum::<f64>() / total;
        assert!((predicted[[i, 0]] - want).abs() < 1e-12, "{predicted} {want}");
    }
    // Open lengthscales are searched for, alike by each of the two words; and the header has the width that was found.
    let [median, auto] =
        ["median", "auto"].map(|word| learn(&format!("--kernel 'rbf({word})'"))["bandwidth"].as_f64().unwrap());
    assert!(median == auto && median != 1.0);
    assert_ne!(learn("--kernel 'rbf(0.3)' --bandwidth auto")["bandwidth"], 1.0);
    let line =
        "regress t.csv --target y --regress --method nadaraya-watson --scale none --kernel 'rbf(2)' --bandwidth 0.25";
    let said = folder.said(line);
    assert!(
        said.starts_with("rbf(lengthscale=0.5) on t.csv") && said.contains("bandwidth 0.25 on rbf(lengthscale=2)"),
        "{said}"
    );
    folder.refuses(
        "regress t.csv --target y --regress --method nadaraya-watson --kernel 'rbf(auto) + rbf(2)'",
        "one width for the whole kernel",
    );
}

/// `--out` of `regress` has the columns that `predict` writes.
#[test]
fn a_fit_writes_what_its_model_predicts() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|i| format!("{},{}\n", f64::from(i) / 10.0, (f64::from(i) / 10.0).sin())).collect();
    fs::write(folder.join("t.csv"), format!("a,y\n{rows}")).unwrap();
    let rows: String = (0..40).map(|i| format!("{},{}\n", i, ["low", "high"][usize::from(i > 20)])).collect();
    fs::write(folder.join("c.csv"), format!("a,y\n{rows}")).unwrap();
    for (line, heading) in [
        ("t.csv --method ntk-ensemble --time 100", "prediction,deviation"),
        ("c.csv", "prediction,probability high,probability low"),
        ("c.csv --method nadaraya-watson", "prediction,probability high,probability low"),
        ("t.csv", "prediction"),
    ] {
        let data = line.split(' ').next().unwrap();
        folder.said(&format!("regress {line} --target y --predict {data} --out p.csv --model m.mercer"));
        folder.said(&format!("predict m.mercer {data} --out q.csv"));
        let [p, q] = ["p.csv", "q.csv"].map(|file| fs::read_to_string(folder.join(file)).unwrap());
        assert_eq!(p.lines().next(), Some(heading));
        assert_eq!(p, q, "{line}");
    }
}

/// Targets without noise: the search ends at the least noise that it tries, and says so; with noise it says nothing.
#[test]
fn the_least_noise_is_said() {
    let folder = Folder::new();
    for (file, noise) in [("exact.csv", 0.0), ("noisy.csv", 0.1)] {
        let mut rng = mercer::rng::Rng::new(4);
        let mut row = |i: i32| {
            let x = f64::from(i) / 20.0;
            format!("{x},{}\n", (3.0 * x).sin() + noise * rng.normal())
        };
        let rows: String = (0..60).map(&mut row).collect();
        fs::write(folder.join(file), format!("x,y\n{rows}")).unwrap();
        let found = folder.mercer(&format!("gp {file} --target y --restarts 0")).output().unwrap();
        let said = String::from_utf8_lossy(&found.stderr).contains("the noise is at its lower limit");
        assert_eq!(said, noise == 0.0, "{file}");
    }
}

/// A result has the same bits on one thread and on two.
#[test]
fn threads_change_no_bits_of_a_regression() {
    let folder = Folder::new();
    let mut rng = mercer::rng::Rng::new(0);
    let mut row = |_| {
        let [a, b, c] = [rng.normal(), rng.normal(), rng.normal()];
        format!("{a},{b},{c},{}\n", a.sin() * b + 0.1 * rng.normal())
    };
    let rows: String = (0..1200).map(&mut row).collect();
    fs::write(folder.join("t.csv"), format!("a,b,c,y\n{rows}")).unwrap();
    for method in [
        "ridge",
        "ridge --solver direct --alpha 0.1",
        "ridge --solver cg",
        "falkon --rank 300",
        "krill --rank 300",
        "eigenpro --iterations 3",
        "eigenpro --rank 300 --iterations 3",
        "askotch --iterations 3",
        "nystrom --rank 300",
        "rfm --rounds 1",
    ] {
        let predicted = [1, 2].map(|threads| {
            folder.said(&format!(
                "regress t.csv --target y --method {method} --threads {threads} --kernel 'rbf(1.5)' --predict t.csv --out {threads}.npy"
            ));
            fs::read(folder.join(format!("{threads}.npy"))).unwrap()
        });
        assert!(predicted[0] == predicted[1], "{method}");
    }
}

/// Every method with every option: it changes the result, or is refused by name. Nothing is taken and ignored.
#[test]
fn every_option_is_used_or_refused() {
    let folder = Folder::new();
    let mut rng = mercer::rng::Rng::new(2);
    let mut row = |i: usize| {
        let [a, b] = [rng.normal(), rng.normal()];
        format!("{a},{b},{},{}\n", a + (2.0 * b).sin() + 0.3 * rng.normal(), ["x", "y", "y"][i % 3])
    };
    let rows: String = (0..300).map(&mut row).collect();
    fs::write(folder.join("t.csv"), format!("a,b,y,class\n{rows}")).unwrap();
    // Ranks so small that iterative solvers take several steps.
    let iterative = [
        "ridge --solver cg --rank 5",
        "askotch",
        "eigenpro",
        "eigenpro --rank 30",
        "richardson",
        "falkon --rank 30",
        "krill --rank 30",
    ];
    let others = ["auto", "ridge", "ridge --solver direct", "nystrom", "random-features", "spectrum", "linear"];
    let others = others.into_iter().chain(["nadaraya-watson", "rfm", "ntk-ensemble"]);
    let options = [
        "--alpha 3",
        "--cv 3",
        "--rank 7",
        "--tolerance 0.3",
        "--iterations 1",
        "--checkpoint state",
        "--metric diagonal",
        "--rounds 2",
        "--bandwidth 0.4",
        "--time 3",
        "--precision f32",
        "--search laplacian",
        "--criterion likelihood",
        "--class-weight balanced",
        "--loss logistic",
        "--solver direct",
        "--solver cg",
    ];
    // The first is what the method does anyway; a checkpoint is there while a long run lasts.
    let unseen = |method: &str, option: &str| {
        (method, option) == ("ridge", "--solver direct")
            || option.starts_with("--checkpoint") && (iterative.contains(&method) || method == "ridge")
    };
    let run = |line: &str| {
        let _ = fs::remove_file(folder.join("p.npy"));
        let output = folder.mercer(line).output().unwrap();
        let written = fs::read(folder.join("p.npy")).unwrap_or_default();
        let mut object: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if let Some(object) = object.as_object_mut() {
            object.retain(|name, _| !name.contains("seconds") && !name.contains("memory"));
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), (object, written), said)
    };
    let (mut used, mut plain) = (BTreeMap::<&str, usize>::new(), BTreeMap::new());
    let mut ignored = vec![];
    for method in iterative.into_iter().chain(others) {
        for option in options {
            let (name, value) = option.split_once(' ').unwrap();
            if method.contains(name) {
                continue;
            }
            let classes = ["--class-weight", "--loss"].contains(&name);
            let (target, other) = if classes { ("class", "y") } else { ("y", "class") };
            let kernel = match method {
                _ if name == "--search" => "",
                "linear" => "--kernel linear",
                "ntk-ensemble" => "",
                _ => "--kernel 'rbf(1.2)'",
            };
            let line = format!(
                "regress t.csv --target {target} --drop {other} --method {method} {kernel} --predict t.csv --out p.npy -q --json"
            );
            let (status, result, said) = run(&format!("{line} {option}"));
            let without = plain.entry(line.clone()).or_insert_with(|| run(&line));
            match status {
                Some(0) if result != without.1 || unseen(method, option) => *used.entry(name).or_default() += 1,
                Some(2) if said.contains(name) || said.contains(value) => {}
                _ => ignored.push(format!("{method} {option}: {status:?} {said}")),
            }
        }
    }
    assert!(ignored.is_empty(), "{}", ignored.join("\n"));
    assert!(options.iter().all(|option| used.contains_key(option.split(' ').next().unwrap())), "{used:?}");
}
