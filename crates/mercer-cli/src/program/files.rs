//! The files that a command is given: none may be both read and written.

use crate::args::Cli;
use crate::program::output::NewFile;
use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, CommandFactory, value_parser};
use mercer::{Error, Result, fail_if};
use std::fs;
use std::path::{Path, PathBuf};

/// Whether an argument names a file to write: by its type, so that none is forgotten. Any other value may be the name of a file to read.
fn is_written(argument: &Arg) -> bool {
    argument.get_value_parser().type_id() == ValueParser::new(value_parser!(NewFile)).type_id()
}

/// An error if the command would write a file that it reads, `also` among them, or two things to one file.
pub fn check(matches: &ArgMatches, also: Option<&Path>) -> Result<()> {
    let mut program = Cli::command();
    // The options of every command become options of each.
    program.build();
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
    let (written, read): (Vec<&Arg>, Vec<&Arg>) = with_values.partition(|argument| is_written(argument));
    let [written, read] = [written, read].map(|arguments| arguments.into_iter().flat_map(values).collect::<Vec<_>>());
    let read: Vec<&Path> = read.iter().map(|(_, input)| &**input).chain(also).collect();
    for (i, (option, file)) in written.iter().enumerate() {
        fail_if!(read.iter().any(|input| overwrites(file, input)); Error::file(
            file,
            format!("is read by this command and must not be its --{option}; name another file")
        ));
        if let Some((other, _)) = written[..i].iter().find(|(_, other)| other == file || same(other, file)) {
            return Err(Error::file(file, format!("is named by both --{other} and --{option}; name two files")));
        }
    }
    Ok(())
}

/// Whether writing `output` would change what is read from `input`: the file itself, a file of images or labels beside it or in it, or a
/// network in a folder of them.
fn overwrites(output: &Path, input: &Path) -> bool {
    const IMAGES: [&str; 3] = ["-ubyte", ".idx", ".bin"];
    const NETWORK: &str = ".safetensors";
    let (Ok(output), Ok(input)) = (fs::canonicalize(output), fs::canonicalize(input)) else { return false };
    let name = output.to_string_lossy();
    let network = input.is_dir() && name.ends_with(NETWORK);
    let images = IMAGES.iter().any(|end| name.trim_end_matches(".gz").ends_with(end));
    let folder = if input.is_dir() { Some(&*input) } else { input.parent() };
    same(&output, &input) || (images || network) && output.is_file() && output.parent() == folder
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use clap::parser::ValueSource;

    /// Every option of every command whose help says that it writes.
    fn outputs(command: &Command) -> Vec<&Arg> {
        let says = |argument: &&Arg| {
            let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let value = argument.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
            let names_a_file = value.is_some_and(|value| value.starts_with("FILE") || value.starts_with("FOLDER"));
            let words = ["to write", "Write ", "Folder for", "File for", "to keep", "Also write"];
            names_a_file && words.iter().any(|word| help.contains(word))
        };
        command.get_arguments().filter(says).collect()
    }

    #[test]
    fn every_option_that_writes_a_file_has_the_type_of_files_to_write() {
        let mut program = Cli::command();
        program.build();
        let mut known = 0;
        for command in program.get_subcommands() {
            for argument in outputs(command) {
                assert!(is_written(argument), "{} --{}", command.get_name(), argument.get_id());
                known += 1;
            }
        }
        assert!(known > 40, "{known}");
    }

    /// No output of any command, global options among them, may be a file that another argument names.
    #[test]
    fn no_command_writes_a_file_that_it_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["x.csv", "link.csv"].map(|name| folder.path().join(name).to_string_lossy().into_owned());
        fs::write(&file, "a,b\n1,2\n").unwrap();
        fs::hard_link(&file, &link).unwrap();
        let mut program = Cli::command();
        program.build();
        let mut tried = 0;
        for command in program.get_subcommands().filter(|command| command.get_positionals().next().is_some()) {
            for argument in command.get_arguments().filter(|argument| is_written(argument)) {
                let option = format!("--{}", argument.get_long().expect("an option"));
                for output in [&file, &link] {
                    let line = ["mercer", command.get_name(), &file, &option, output];
                    // Other arguments may be missing, which is no matter here.
                    let given = Cli::command().ignore_errors(true).try_get_matches_from(line).unwrap();
                    let (_, own) = given.subcommand().unwrap();
                    // What comes after a word that an argument does not know is not read.
                    let positional = command.get_positionals().next().unwrap();
                    let is_given =
                        |one: &Arg| own.value_source(one.get_id().as_str()) == Some(ValueSource::CommandLine);
                    if ![positional, argument].into_iter().all(is_given) {
                        continue;
                    }
                    let error = check(&given, None).expect_err(&line.join(" ")).to_string();
                    assert!(error.contains("is read by this command and must not be its"), "{line:?}: {error}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 80, "{tried}");
    }
}
