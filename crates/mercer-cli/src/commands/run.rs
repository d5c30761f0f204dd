//! `mercer run`: a command with its options from a file; and the file that repeats a command.
//!
//! ```toml
//! command = "fit"
//! data = "digits"
//! k = 20
//! kernel = "rbf(lengthscale=median)"
//! ```

use super::shell::subcommand;
use crate::args::Cli;
use crate::program::context::Context;
use crate::program::output::writes;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, CommandFactory};
use mercer::data::write_atomically;
use mercer::error::did_you_mean;
use mercer::{Error, Result, fail_if};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Run a command with the options of a file
#[derive(Args)]
#[command(
    after_help = "Example:\n  mercer fit digits --k 20 --out digits.mercer --save-config job.toml\n  mercer run job.toml"
)]
pub struct Run {
    /// File of options, such as --save-config writes: `command = "fit"`, and each option by its name, `k = 20`. Options of every
    /// command that are given here as well replace those of the file
    pub file: PathBuf,
}

impl Run {
    /// The program replaces this command by that of the file before it runs it.
    pub fn run(self, _: &Context) -> Result<()> {
        Err(Error::file(&self.file, "is named by another file of options; name the command itself"))
    }

    /// The arguments that the file stands for; global options in `given` replace those of the file.
    pub fn arguments(&self, given: &ArgMatches) -> Result<Vec<String>> {
        let text = std::fs::read_to_string(&self.file).map_err(|e| Error::io(&self.file, e))?;
        arguments(&text, given).map_err(|e| Error::file(&self.file, e.to_string()))
    }
}

fn arguments(text: &str, given: &ArgMatches) -> Result<Vec<String>> {
    let mut table: Table =
        text.parse().map_err(|e: toml::de::Error| Error::input(format!("is not TOML: {}", e.message())))?;
    let Some(Value::String(name)) = table.remove("command") else {
        return Err(Error::input("names no command; add a line such as command = \"fit\""));
    };
    let mut program = Cli::command();
    program.build();
    let command = subcommand(&program, &name)?;
    let (mut options, mut positions) = (vec![], vec![]);
    for argument in command.get_arguments().filter(|argument| is_global(argument) && is_given(given, argument)) {
        table.remove(long(argument));
        options.extend(from_command_line(argument, given).into_iter().flat_map(|value| option(argument, &value)));
    }
    for (key, value) in &table {
        let argument = argument(command, key)?;
        let values = values(key, value, argument)?;
        match argument.get_index() {
            Some(index) => positions.push((index, values)),
            None => options.extend(values.iter().flat_map(|value| option(argument, value))),
        }
    }
    positions.sort();
    Ok(["mercer".into(), name].into_iter().chain(options).chain(positions.into_iter().flat_map(|p| p.1)).collect())
}

/// The option or argument that a key names.
fn argument<'c>(command: &'c Command, key: &str) -> Result<&'c Arg> {
    let known = || command.get_arguments().filter(|argument| !["help", "version"].contains(&long(argument)));
    known().find(|argument| long(argument) == key).ok_or_else(|| {
        let name = command.get_name();
        Error::input(format!("`mercer {name}` has no option '{key}'{}", did_you_mean(key, known().map(long))))
    })
}

/// The name of an option, or of an argument that has none.
fn long(argument: &Arg) -> &str {
    argument.get_long().unwrap_or(argument.get_id().as_str())
}

fn is_flag(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue)
}

fn is_global(argument: &Arg) -> bool {
    argument.is_global_set()
}

fn is_given(given: &ArgMatches, argument: &Arg) -> bool {
    given.try_contains_id(argument.get_id().as_str()).unwrap_or(false)
        && given.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
}

/// The words of an option with a value; a flag is there or not.
fn option(argument: &Arg, value: &str) -> Option<String> {
    let name = long(argument);
    match is_flag(argument) {
        true => (value == "true").then(|| format!("--{name}")),
        false => Some(format!("--{name}={value}")),
    }
}

/// The values of a key as words.
fn values(key: &str, value: &Value, argument: &Arg) -> Result<Vec<String>> {
    let word = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(yes) if is_flag(argument) => Ok(yes.to_string()),
        other => Err(Error::input(format!("{key} = {other}: it must be a text or a number"))),
    };
    fail_if!(is_flag(argument) && !value.is_bool(), "{key} = {value}: it must be true or false");
    match value {
        Value::Array(many) => many.iter().map(word).collect(),
        one => Ok(vec![word(one)?]),
    }
}

/// The values of an option on the command line, as words.
fn from_command_line(argument: &Arg, given: &ArgMatches) -> Vec<String> {
    if is_flag(argument) {
        return vec!["true".into()];
    }
    let raw = given.try_get_raw(argument.get_id().as_str()).ok().flatten().into_iter().flatten();
    raw.map(|value| value.to_string_lossy().into_owned()).collect()
}

/// Writes the file of options that repeats the command of `matches`.
pub fn save(path: &Path, matches: &ArgMatches) -> Result<()> {
    let mut program = Cli::command();
    program.build();
    let Some((name, given)) = matches.subcommand() else { return Ok(()) };
    let command = subcommand(&program, name)?;
    let mut lines = vec![format!("command = {}", quoted(name))];
    for argument in command.get_arguments().filter(|argument| is_given(given, argument)) {
        let values = from_command_line(argument, given);
        let shown: Vec<String> = values.iter().map(|value| shown(value, argument)).collect();
        match &shown[..] {
            _ if long(argument) == "save-config" => {}
            [one] => lines.push(format!("{} = {one}", long(argument))),
            many => lines.push(format!("{} = [{}]", long(argument), many.join(", "))),
        }
    }
    match writes() {
        true => write_atomically(path, |w| w.write_all((lines.join("\n") + "\n").as_bytes())),
        false => Ok(()),
    }
}

/// A flag or a whole number as it is, anything else as a text.
fn shown(value: &str, argument: &Arg) -> String {
    let whole = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if is_flag(argument) || whole { value.to_owned() } else { quoted(value) }
}

fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(line: &[&str]) -> ArgMatches {
        Cli::command().try_get_matches_from(line).unwrap()
    }

    #[test]
    fn a_file_of_options_stands_for_the_command_that_wrote_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.toml");
        let line = [
            "mercer",
            "fit",
            "007.csv",
            "--kernel",
            "rbf(\"1\")",
            "--k",
            "20",
            "--ritz",
            "--target",
            "-1",
            "--seed",
            "7",
        ];
        save(&path, &matches(&line)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("command = \"fit\"\n") && text.contains("k = 20\n") && text.contains("ritz = true\n"),
            "{text}"
        );
        let run = Run { file: path };
        let given = matches(&["mercer", "run", "job.toml"]);
        let read = run.arguments(given.subcommand().unwrap().1).unwrap();
        let mut words = read.clone();
        words.sort();
        let mut expected =
            ["mercer", "fit", "007.csv", "--kernel=rbf(\"1\")", "--k=20", "--ritz", "--target=-1", "--seed=7"]
                .map(String::from);
        expected.sort();
        assert_eq!(words, expected);
        // What is given beside the file counts.
        let given = matches(&["mercer", "run", "job.toml", "--seed", "8", "--json"]);
        let read = run.arguments(given.subcommand().unwrap().1).unwrap();
        assert!(
            read.contains(&"--seed=8".into()) && !read.contains(&"--seed=7".into()) && read.contains(&"--json".into())
        );
    }

    #[test]
    fn mistakes_in_a_file_are_named() {
        let given = matches(&["mercer", "run", "job.toml"]);
        let given = given.subcommand().unwrap().1;
        let refused = |text: &str| arguments(text, given).unwrap_err().to_string();
        assert!(refused("k = 3").contains("names no command"));
        assert!(refused("command = \"fitt\"").contains("did you mean 'fit'"));
        assert!(refused("command = \"fit\"\nkernle = \"rbf(1)\"").contains("did you mean 'kernel'"));
        assert!(refused("command = \"fit\"\nritz = 3").contains("true or false"));
        assert!(refused("command = fit").contains("not TOML"));
    }
}
