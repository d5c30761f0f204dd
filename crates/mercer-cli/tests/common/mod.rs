//! The program, given its arguments as a line of a shell.

use std::path::Path;
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
