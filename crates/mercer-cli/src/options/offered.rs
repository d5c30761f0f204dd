//! Entries of the library's registry as arguments of the program.

use crate::program::output::{NewFile, Output};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use mercer::Result;
use mercer::apply::{EmbeddingTask, ProcessTask, RegressionTask};
use mercer::laplace::NetworkKind;
use mercer::learn::{self, Snapshots};
use mercer::options::{Builds, Family, Kind, Opt, Options, Spelling};
use mercer::spectrum::Size;
use serde_json::{Map, Value};
use std::marker::PhantomData;

/// A family of entries that a command offers.
pub trait Offered: Builds + 'static {
    fn family() -> &'static Family<Self>;

    /// The heading over an option in the help, by whether methods that take it train networks; none for the heading of the options around it.
    fn heading(_trains: bool) -> Option<&'static str> {
        None
    }
}

impl Offered for RegressionTask {
    fn family() -> &'static Family<RegressionTask> {
        learn::regressions()
    }

    fn heading(_: bool) -> Option<&'static str> {
        Some("Options of methods")
    }
}

impl Offered for Size {
    fn family() -> &'static Family<Size> {
        learn::spectra()
    }

    fn heading(trains: bool) -> Option<&'static str> {
        Some(if trains { "Options of methods that train networks" } else { "Options of methods" })
    }
}

impl Offered for ProcessTask {
    fn family() -> &'static Family<ProcessTask> {
        learn::processes()
    }
}

impl Offered for EmbeddingTask {
    fn family() -> &'static Family<EmbeddingTask> {
        learn::embeddings()
    }
}

impl Offered for NetworkKind {
    fn family() -> &'static Family<NetworkKind> {
        learn::posteriors()
    }
}

impl Offered for Snapshots {
    fn family() -> &'static Family<Snapshots> {
        learn::trajectories()
    }
}

/// The options of a family that were given on the command line.
pub struct Given<T> {
    values: Map<String, Value>,
    /// Files to write.
    files: Vec<NewFile>,
    family: PhantomData<T>,
}

impl<T: Offered> Given<T> {
    pub fn options(&self) -> Options {
        Options::new(self.values.clone(), Spelling::Program)
    }

    /// Fails unless all files that are named can be written.
    pub fn check_files(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| Output::new(file).map(|_| ()))
    }
}

impl<T: Offered> FromArgMatches for Given<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given<T>, clap::Error> {
        let given = |option: &&Opt| matches.value_source(option.name) == Some(ValueSource::CommandLine);
        let value = |option: &Opt| match option.kind {
            Kind::Flag => Value::from(true),
            Kind::Word(_) => matches.get_one::<String>(option.name).map_or(Value::Null, |word| word.as_str().into()),
            Kind::File => {
                matches.get_one::<NewFile>(option.name).map_or(Value::Null, |file| file.to_string_lossy().into())
            }
            _ => matches.get_one::<Value>(option.name).cloned().unwrap_or_default(),
        };
        let options: Vec<&Opt> = T::family().options().into_iter().filter(given).collect();
        let values = options.iter().map(|option| (option.name.to_owned(), value(option))).collect();
        let is_file = |option: &&&Opt| matches!(option.kind, Kind::File);
        let files =
            options.iter().filter(is_file).filter_map(|option| matches.get_one::<NewFile>(option.name).cloned());
        Ok(Given { values, files: files.collect(), family: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: Offered> Args for Given<T> {
    fn augment_args(command: Command) -> Command {
        T::family().options().into_iter().fold(command, |command, option| command.arg(argument::<T>(option)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The argument of an option. Its help names the entries that take it where these are one or two.
fn argument<T: Offered>(option: &'static Opt) -> Arg {
    let takers = T::family().takers(option);
    let names: Vec<&str> = takers.iter().map(|entry| entry.name).collect();
    let help = if names.len() <= 2 { format!("{}: {}", names.join(", "), option.help) } else { option.help.to_owned() };
    let heading = T::heading(takers.iter().any(|entry| entry.can.trains));
    let argument = Arg::new(option.name).long(option.name).aliases(option.aliases.to_vec());
    let argument = argument.visible_aliases(option.also.to_vec()).help(help);
    // An option of one letter is short, too.
    let argument = match option.name.as_bytes() {
        [letter] => argument.short(char::from(*letter)),
        _ => argument,
    };
    let argument = match heading {
        Some(heading) => argument.help_heading(heading),
        None => argument,
    };
    match option.kind {
        Kind::Flag => argument.action(ArgAction::SetTrue),
        Kind::Word(words) => argument.value_name(option.value).value_parser(PossibleValuesParser::new(words())),
        Kind::File => argument.value_name(option.value).value_parser(value_parser!(NewFile)),
        kind => {
            let argument = argument.value_name(option.value).allow_negative_numbers(true);
            argument.value_parser(move |text: &str| kind.parse(text))
        }
    }
}

/// Reads the name of an entry, whose help is the command's own.
pub fn plain_name<T: Offered>() -> impl TypedValueParser<Value = &'static str> {
    let family = T::family();
    PossibleValuesParser::new(family.entries.iter().map(|entry| entry.name))
        .try_map(move |name| family.find(&name).map(|entry| entry.name))
}

/// Reads the name of an entry.
pub fn name<T: Offered>() -> impl TypedValueParser<Value = &'static str> {
    let family = T::family();
    let value = |entry: &mercer::options::Entry<T>| {
        PossibleValue::new(entry.name).help(entry.about).aliases(entry.aliases.to_vec())
    };
    PossibleValuesParser::new(family.entries.iter().map(value))
        .try_map(move |name| family.find(&name).map(|entry| entry.name))
}
