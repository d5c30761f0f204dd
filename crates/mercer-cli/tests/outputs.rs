//! What the program writes: no file that it reads, nothing that the disk has no space for, no control characters on a terminal.
#![cfg(unix)]

mod common;

use common::Folder;
use std::fs;
use std::process::Stdio;

/// A folder with a table, a model and a link to each.
fn folder() -> Folder {
    let folder = Folder::new();
    let row = |i: i32| format!("{},{},{}\n", i % 7, i % 5, i % 7 + 2 * (i % 5));
    fs::write(folder.join("x.csv"), (0..40).map(row).fold("a,b,y\n".to_owned(), |all, row| all + &row)).unwrap();
    folder.said("regress x.csv --target y --model m.mercer");
    for name in ["x.csv", "m.mercer"] {
        std::os::unix::fs::symlink(name, folder.join(format!("link-{name}"))).unwrap();
    }
    folder
}

/// The file of options is an output like any other: it is no input, no model and no other output.
#[test]
fn options_are_not_saved_over_a_file_of_the_command() {
    let folder = folder();
    let before = ["x.csv", "m.mercer"].map(|name| fs::read(folder.join(name)).unwrap());
    for line in [
        "fit x.csv --k 1 --save-config x.csv",
        "fit x.csv --k 1 --save-config link-x.csv",
        "inspect m.mercer --save-config m.mercer",
        "predict m.mercer x.csv --save-config link-m.mercer",
        "regress x.csv --target y --predict x.csv --out p.csv --save-config x.csv",
    ] {
        folder.refuses(line, "is read by this command and must not be its --save-config");
    }
    folder.refuses("fit x.csv --k 1 --out f --save-config f", "is named by both");
    // Files that are read without being named, such as the data of a model, have other names.
    folder.said("fit x.csv --k 1 --holdout 0 --out s.mercer");
    folder.refuses("report s.mercer --out r.html --save-config x.csv", "must end in .toml");
    assert_eq!(["x.csv", "m.mercer"].map(|name| fs::read(folder.join(name)).unwrap()), before);
    folder.said("fit x.csv --k 1 --holdout 0 --save-config job.toml");
    let job = fs::read(folder.join("job.toml")).unwrap();
    folder.refuses("run job.toml --save-config job.toml", "is read by this command");
    assert_eq!(fs::read(folder.join("job.toml")).unwrap(), job);
    fs::write(folder.join("own.toml"), "command = \"fit\"\ndata = \"x.csv\"\nk = 1\nout = \"own.toml\"\n").unwrap();
    folder.refuses("run own.toml", "is read by this command");
}

/// A network of a run is not the model that is made of it.
#[test]
fn snapshots_are_not_replaced() {
    let folder = folder();
    let net = "--net 'dense(4) relu dense(1)' --epochs 40";
    folder.said(&format!("train x.csv --target y --regress {net} --snapshots run"));
    let network = common::names(&folder.join("run")).pop().unwrap();
    let before = fs::read(folder.join("run").join(&network)).unwrap();
    folder.refuses(&format!("trajectory run x.csv --target y --out run/{network}"), "is read by this command");
    folder.refuses("trajectory run x.csv --target y --samples x.csv", "is read by this command");
    assert_eq!(fs::read(folder.join("run").join(&network)).unwrap(), before);
}

#[test]
fn files_that_the_disk_has_no_space_for_are_refused_before_they_are_made() {
    let folder = folder();
    for line in [
        "sample x.csv --net 'dense(1)' --count 1000000000000 -o s.npy",
        "sample x.csv --net 'dense(1)' --count 18446744073709551615 -o s.npy",
        "gram 'uniform(n=30000000)' --kernel 'rbf(1)' --out K.npy --memory 100GB",
        "gram 'uniform(n=30000000)' --kernel 'rbf(1)' --out K.csv --memory 100GB",
    ] {
        folder.refuses(line, "and its file system has");
    }
    assert!(!folder.join("s.npy").exists() && !folder.join("K.npy").exists() && !folder.join("K.csv").exists());
}

/// Numbers of a user that overflow when they are multiplied are too much memory, whatever the budget.
#[test]
fn numbers_that_overflow_are_refused() {
    let folder = folder();
    let most = "18446744073709551614";
    for line in [
        format!("fit x.csv --method rff --features {most}"),
        "fit x.csv --method rff --features 9223372036854775807".to_owned(),
        format!("fit x.csv --method nystrom --landmarks {most}"),
        format!("search x.index x.csv --top {most}"),
        format!("laplace x.safetensors x.csv --functions {most}"),
        format!("fit x.csv --k {most}"),
        format!("embed x.csv --k {most} --model e.mercer"),
    ] {
        let message = folder.refused(&format!("{line} --memory 99999999TiB"));
        assert!(message.starts_with("error: ") || message.contains("\nerror: "), "{line}: {message}");
        assert!(!message.contains("panicked"), "{line}: {message}");
    }
}

/// Names and classes of a file do not reach the terminal with their control characters.
#[test]
fn control_characters_of_files_are_escaped() {
    let folder = Folder::new();
    let row = |i: u32| format!("{},{},{}\n", i % 7, i % 5, ["\u{1b}[31mred", "blu\u{9b}e"][(i % 7 / 4) as usize]);
    let table = (0..60).map(row).fold("a\u{7},b,k\u{1b}]0;pwned\u{7}\n".to_owned(), |all, row| all + &row);
    fs::write(folder.join("x.csv"), table).unwrap();
    for line in [
        "regress x.csv --target -1 --model m.mercer",
        "inspect m.mercer",
        "predict m.mercer x.csv",
        "inspect m.mercer --json",
    ] {
        let output = folder.mercer(line).output().unwrap();
        assert!(output.status.success());
        for said in [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()) {
            assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{line}: {said:?}");
        }
    }
    assert!(folder.said("predict m.mercer x.csv").contains(r"\u{1b}[31mred"));
    // A file holds the class as it is.
    folder.said("predict m.mercer x.csv --out p.csv");
    assert!(fs::read_to_string(folder.join("p.csv")).unwrap().contains("\u{1b}[31mred"));
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let folder = Folder::new();
    for line in ["--help", "fit --help", "--version"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = folder.mercer(line).stdout(full).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
    }
}

/// A run goes on where its checkpoint cannot be written any more, and says so.
#[test]
fn training_goes_on_without_its_checkpoint() {
    let folder = Folder::new();
    fs::create_dir(folder.join("state")).unwrap();
    let fit =
        "fit uniform(n=600) --kernel rbf(1) --k 3 --method neuralef --net 'dense(24) sincos dense(1)' --steps 3000";
    let line = format!("{fit} --checkpoint state/c --checkpoint-every 0.05 --json");
    let child = folder.mercer(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let waits = std::iter::repeat_with(|| std::thread::sleep(std::time::Duration::from_millis(10)));
    assert!(waits.take(3000).any(|()| folder.join("state/c").exists()), "no checkpoint");
    fs::remove_dir_all(folder.join("state")).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("could not be written") && said.contains("the run goes on without it"), "{said}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["training"]["steps"], 3000);
}

#[test]
fn small_things_that_were_not_said() {
    let folder = folder();
    let said = |line: &str| {
        let output = folder.mercer(line).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap())
    };
    assert_eq!(said("predict m.mercer x.csv --out p.csv -q")[0], "");
    folder.refuses("regress x.csv", "`x.csv` has no target");
    // A value is missing where none was.
    folder.said("regress x.csv --target y --missing impute --model i.mercer");
    fs::write(folder.join("gap.csv"), "a,b\n1,2\n,3\n,4\n").unwrap();
    let [_, notes] = said("predict i.mercer gap.csv");
    assert!(
        notes.contains("row 2") && notes.contains("`a`, is missing") && notes.contains("(and 1 more rows"),
        "{notes}"
    );
    assert!(notes.contains("the mean of the fitted rows stands for it"), "{notes}");
    // One class.
    fs::write(folder.join("one.csv"), (0..20).fold("a,k\n".to_owned(), |all, i| all + &format!("{i},only\n"))).unwrap();
    let [_, notes] = said("regress one.csv --target k");
    assert!(notes.contains("the target has the class `only` in every row"), "{notes}");
    // Coordinates without a file.
    let [table, _] = said("embed x.csv --target y --k 2");
    folder.said("embed x.csv --target y --k 2 --out z.npy");
    let z = folder.read("z.npy");
    let row: Vec<f64> = table
        .lines()
        .skip_while(|line| !line.starts_with("row"))
        .nth(1)
        .unwrap()
        .split_whitespace()
        .map(|v| v.parse().unwrap())
        .collect();
    assert!(
        (row[1] - z[[0, 0]]).abs() < 1e-3 * z[[0, 0]].abs() && (row[2] - z[[0, 1]]).abs() < 1e-3 * z[[0, 1]].abs(),
        "{table}"
    );
}

/// `--distributed` is an option of two commands, which show it; others refuse it before they look for MPI.
#[test]
fn ranks_are_for_two_commands() {
    let folder = folder();
    for command in ["embed x.csv --k 2", "gp x.csv --target y", "kernels", "inspect m.mercer"] {
        folder.refuses(
            &format!("{command} --distributed"),
            "only `mercer fit` and `mercer regress` run on several ranks",
        );
        let name = command.split_whitespace().next().unwrap();
        assert!(!folder.said(&format!("{name} --help")).contains("--distributed"), "{name}");
    }
    for name in ["fit", "regress"] {
        assert!(folder.said(&format!("{name} --help")).contains("--distributed"));
    }
    fs::write(folder.join("job.toml"), "command = \"embed\"\ndata = \"x.csv\"\ndistributed = true\n").unwrap();
    folder.refuses("run job.toml", "only `mercer fit`");
}

/// Where the file of a result cannot be written, the result is not lost: it is printed, and the program fails in the end.
#[test]
fn a_full_disk_takes_no_result_away() {
    let folder = folder();
    // A file of a network must be named as one.
    std::os::unix::fs::symlink("/dev/full", folder.join("full.safetensors")).unwrap();
    for (line, said) in [
        ("fit x.csv --k 2 --out /dev/full", "eigenvalue"),
        ("regress x.csv --target y --regress --model /dev/full", "RMSE"),
        ("gp x.csv --target y --regress --model /dev/full", "RMSE"),
        ("train x.csv --target y --regress --net dense(1) --epochs 1 --out full.safetensors", "RMSE"),
        ("embed x.csv --k 1 --model /dev/full", "eigenvalue"),
    ] {
        let output = folder.mercer(line).output().unwrap();
        let [printed, errors] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        let file = line.split_whitespace().next_back().unwrap();
        assert!(printed.contains(said) && errors.contains(file), "{line}: {printed}{errors}");
        assert!(!errors.contains(&format!("wrote {file}")), "{line}: {errors}");
    }
}

/// Names of classes may hold the comma that separates columns.
#[test]
fn headings_are_quoted() {
    let folder = Folder::new();
    let rows: String = (0..40).map(|i| format!("{i},{}\n", ["\"dark, green\"", "red"][usize::from(i > 20)])).collect();
    fs::write(folder.join("c.csv"), format!("a,k\n{rows}")).unwrap();
    folder.said("train c.csv --target k --net 'dense(4) relu dense(2)' --epochs 1 --out n.safetensors");
    folder.said("evaluate n.safetensors c.csv --out z.csv");
    let written = fs::read_to_string(folder.join("z.csv")).unwrap();
    assert_eq!(written.lines().next(), Some("\"dark, green\",red"));
    assert_eq!(folder.read("z.csv").dim(), (40, 2));
}
