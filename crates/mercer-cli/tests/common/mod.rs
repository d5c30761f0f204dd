//! The program, given its arguments as a line of a shell, and folders to run it in.
#![allow(dead_code, reason = "each suite uses a part")]

use mercer::data::{ReadOptions, open};
use ndarray::Array2;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `mercer` in a folder; `quote` keeps a word with spaces together.
pub fn mercer(line: &str, quote: char, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mercer"));
    command.current_dir(folder);
    for (i, part) in line.split(quote).enumerate() {
        match i % 2 {
            1 => command.arg(part),
            _ => command.args(part.split_whitespace()),
        };
    }
    command
}

/// What a run cost, which is another number each time.
pub const COSTS: [&str; 3] = ["total_seconds", "peak_memory", "expected_memory"];

/// A folder in which the program runs; it goes away with the test.
pub struct Folder(pub tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    /// The program with these arguments; single quotes keep a word together.
    pub fn mercer(&self, line: &str) -> Command {
        mercer(line, '\'', self.0.path())
    }

    /// Standard output of a run that succeeds.
    pub fn said(&self, line: &str) -> String {
        let output = self.mercer(line).output().unwrap();
        assert!(output.status.success(), "mercer {line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The object that a run which succeeds prints, without what the whole run cost.
    pub fn object(&self, line: &str) -> Value {
        let mut object = self.object_with_cost(line);
        for cost in COSTS {
            object.as_object_mut().unwrap().remove(cost);
        }
        object
    }

    /// The object that a run which succeeds prints.
    pub fn object_with_cost(&self, line: &str) -> Value {
        serde_json::from_str(&self.said(&format!("{line} --json"))).unwrap()
    }

    /// Fails unless the program refuses its input and says so in these words.
    pub fn refuses(&self, line: &str, words: &str) {
        let message = self.refused(line);
        assert!(message.contains(words), "mercer {line}: {message}");
    }

    /// Standard error of a run that fails for bad input.
    pub fn refused(&self, line: &str) -> String {
        let output = self.mercer(line).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "mercer {line}");
        assert!(output.stdout.is_empty(), "mercer {line} must print no result");
        String::from_utf8(output.stderr).unwrap()
    }

    /// The table in a file.
    pub fn read(&self, name: &str) -> Array2<f64> {
        open(self.join(name).to_str().unwrap(), &ReadOptions::default()).unwrap().x.into_f64()
    }
}

/// The names of the files in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
