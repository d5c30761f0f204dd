//! What the program says, word for word: every `$ mercer …` of `tests/cmd/*.txt` is run and compared with what follows
//! it there. Lines of standard error start with `! `; an exit code other than 0 ends the output as `[exit 2]`.
//!
//! Numbers are compared as numbers, to four digits or to the last one shown, and residues of rounding count as zero;
//! times are not compared, nor is the width of space. Every file has a fresh folder with the files of `tests/cmd/data` in it.
//! `MERCER_UPDATE=1 cargo test --test snapshots` writes the files anew.

mod common;

use std::path::Path;

#[test]
fn the_program_says_what_it_said() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd");
    let update = std::env::var_os("MERCER_UPDATE").is_some();
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    files.sort();
    assert!(!files.is_empty());
    let mut failures = String::new();
    for path in files {
        let expected = std::fs::read_to_string(&path).unwrap();
        let actual = replay(&expected, &folder.join("data"));
        if update {
            std::fs::write(&path, actual).unwrap();
        } else if let Some(difference) = difference(&expected, &actual) {
            failures += &format!("{}: {difference}\n", path.display());
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

/// The file again, with what the commands say now. Comments (`#`) stay.
fn replay(file: &str, data: &Path) -> String {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(data).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    let mut out = String::new();
    for line in file.lines() {
        if line.starts_with('#') {
            out += &format!("{line}\n");
        } else if let Some(command) = line.strip_prefix("$ mercer") {
            out += &format!("{line}\n{}\n", said(command, folder.path()));
        }
    }
    out
}

fn said(arguments: &str, folder: &Path) -> String {
    let mut command = common::mercer(arguments, '"', folder);
    command.env_remove("COLUMNS").env_remove("MERCER_DATA").stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    let mut said = without_times(&String::from_utf8(output.stdout).unwrap());
    // What a run cost is another number each time.
    for line in String::from_utf8(output.stderr).unwrap().lines().filter(|line| !line.starts_with("total: ")) {
        said += format!("! {line}").trim_end();
        said.push('\n');
    }
    match output.status.code() {
        Some(0) => said,
        code => said + &format!("[exit {}]\n", code.expect("no signal")),
    }
}

/// `in 0.25 s` becomes `in T`, and `"seconds":0.25` becomes `"seconds":T`; so do other costs.
fn without_times(text: &str) -> String {
    let after = |text: &str, mark: &str, units: &[&str]| {
        let mut parts = text.split(mark);
        let mut out = parts.next().unwrap_or("").to_owned();
        for part in parts {
            let unit =
                number(part).and_then(|n| units.iter().find(|u| part[n..].starts_with(**u)).map(|u| n + u.len()));
            out += &unit.map_or_else(|| format!("{mark}{part}"), |n| format!("{mark}T{}", &part[n..]));
        }
        out
    };
    let costs = ["\"seconds\":", "\"total_seconds\":", "\"peak_memory\":", "\"expected_memory\":"];
    costs.iter().fold(after(text, " in ", &[" ms", " s"]), |text, name| after(&text, name, &[""]))
}

/// The first place where the two differ.
fn difference(expected: &str, actual: &str) -> Option<String> {
    let (a, b) = (tokens(expected), tokens(actual));
    let i = (0..a.len().max(b.len())).find(|&i| !same(a.get(i), b.get(i)))?;
    let around = |t: &[&str]| t[i.saturating_sub(12)..(i + 6).min(t.len())].join(" ");
    Some(format!("expected …{}… but it is …{}…", around(&a), around(&b)))
}

/// Words, numbers and signs.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while let Some(first) = rest.chars().next() {
            let len = number(rest).unwrap_or_else(|| {
                let letters = rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len());
                letters.max(first.len_utf8())
            });
            tokens.push(&rest[..len]);
            rest = &rest[len..];
        }
    }
    tokens
}

/// The length of the number that `text` starts with.
fn number(text: &str) -> Option<usize> {
    let mut end = None;
    for (i, c) in text.char_indices() {
        if !(c.is_ascii_digit() || ".e+-".contains(c)) || (i == 0 && !(c.is_ascii_digit() || c == '-')) {
            break;
        }
        if text[..=i].parse::<f64>().is_ok() {
            end = Some(i + 1);
        }
    }
    end
}

fn same(a: Option<&&str>, b: Option<&&str>) -> bool {
    let (Some(a), Some(b)) = (a, b) else { return false };
    match (a.parse::<f64>(), b.parse::<f64>()) {
        _ if a == b => true,
        (Ok(x), Ok(y)) => {
            let largest = x.abs().max(y.abs());
            (x - y).abs() <= (1e-4 * largest).max(1.01 * last_place(a)).max(1.01 * last_place(b)) || largest < 1e-10
        }
        _ => false,
    }
}

/// One unit in the last place of a number as it is written; 0 for a whole number, which must be met exactly.
fn last_place(number: &str) -> f64 {
    let (digits, exponent) = number.split_once('e').unwrap_or((number, "0"));
    let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len() as i32);
    if number.contains(['.', 'e']) { 10f64.powi(exponent.parse::<i32>().unwrap_or(0) - decimals) } else { 0.0 }
}

#[test]
fn the_comparison_sees_what_matters() {
    assert_eq!(difference("a  1.00001 b\n1e-16", "a 1.0 b 3e-15"), None);
    assert!(difference("a 1.12", "a 1.10").is_some());
    assert!(difference("a 3 b", "a 4 b").is_some());
    assert_eq!(difference("6.7e-5 nan", "6.8e-5 nan"), None);
    assert!(difference("a 1.0", "a 1.0 b").is_some());
    assert!(difference("rbf(lengthscale=2)", "rbf(lengthscale=3)").is_some());
    assert!(difference("exit 2", "exit 1").is_some());
}
