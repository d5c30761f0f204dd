//! The files that a command is given: none may be both read and written.

use crate::args::Cli;
use clap::{Arg, ArgMatches, CommandFactory};
use mercer::{Error, Result, fail_if};
use std::fs;
use std::path::{Path, PathBuf};

/// The arguments that name a file to write. Any other value may be the name of a file to read.
const WRITTEN: [&str; 5] = ["out", "plot", "checkpoint", "report", "save"];

/// An error if the command would write a file that it reads, or two things to one file.
pub fn check(matches: &ArgMatches) -> Result<()> {
    let program = Cli::command();
    let Some((command, given)) =
        matches.subcommand().and_then(|(name, given)| program.find_subcommand(name).map(|command| (command, given)))
    else {
        return Ok(());
    };
    let values = |argument: &Arg| -> Vec<(String, PathBuf)> {
        let name = argument.get_id().as_str();
        let values = given.try_get_raw(name).ok().flatten().into_iter().flatten();
        let option = argument.get_long().unwrap_or(name);
        values.map(|value| (option.to_owned(), PathBuf::from(value))).collect()
    };
    let with_values = command.get_arguments().filter(|argument| argument.get_action().takes_values());
    let (written, read): (Vec<&Arg>, Vec<&Arg>) =
        with_values.partition(|argument| WRITTEN.contains(&argument.get_id().as_str()));
    let [written, read] = [written, read].map(|arguments| arguments.into_iter().flat_map(values).collect::<Vec<_>>());
    for (i, (option, file)) in written.iter().enumerate() {
        fail_if!(read.iter().any(|(_, input)| overwrites(file, input)); Error::file(
            file,
            format!("is read by this command and must not be its --{option}; name another file")
        ));
        if let Some((other, _)) = written[..i].iter().find(|(_, other)| other == file || same(other, file)) {
            return Err(Error::file(file, format!("is named by both --{other} and --{option}; name two files")));
        }
    }
    Ok(())
}

/// Whether writing `output` would change what is read from `input`: the file itself, or a file of images or labels beside it
/// or in it.
fn overwrites(output: &Path, input: &Path) -> bool {
    const IMAGES: [&str; 3] = ["-ubyte", ".idx", ".bin"];
    let (Ok(output), Ok(input)) = (fs::canonicalize(output), fs::canonicalize(input)) else { return false };
    let name = output.to_string_lossy();
    let images = IMAGES.iter().any(|end| name.trim_end_matches(".gz").ends_with(end));
    let folder = if input.is_dir() { Some(&*input) } else { input.parent() };
    same(&output, &input) || images && output.is_file() && output.parent() == folder
}

/// Whether two paths lead to the same regular file.
fn same(a: &Path, b: &Path) -> bool {
    let [a, b] = [a, b].map(identity);
    a.is_some() && a == b
}

/// The number of a regular file in its file system.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).ok().filter(fs::Metadata::is_file).map(|found| (found.dev(), found.ino()))
}

/// The full path of a regular file.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<PathBuf> {
    path.is_file().then(|| fs::canonicalize(path).ok()).flatten()
}
