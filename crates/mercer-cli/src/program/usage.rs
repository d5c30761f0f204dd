//! Messages about mistakes on the command line, one sentence each.

use crate::args::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use mercer::Advice;
use mercer::error::did_you_mean;
use mercer::options::Spelling;
use std::error::Error;

/// What is wrong with the arguments and what to do; `None` for what is not a mistake, such as `--help`.
pub fn sentence(error: &clap::Error) -> Option<String> {
    let texts = |kind: ContextKind| -> Vec<String> {
        match error.get(kind) {
            Some(ContextValue::String(text)) => vec![text.clone()],
            Some(ContextValue::Strings(texts)) => texts.clone(),
            _ => vec![],
        }
    };
    let text = |kind: ContextKind| texts(kind).into_iter().next().unwrap_or_default();
    let argument = text(ContextKind::InvalidArg);
    let value = text(ContextKind::InvalidValue);
    Some(match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let (word, program) = (text(ContextKind::InvalidSubcommand), Cli::command());
            let known = program.get_subcommands().map(clap::Command::get_name);
            format!("unknown command '{word}'{}", did_you_mean(&word, known))
        }
        ErrorKind::UnknownArgument => match text(ContextKind::SuggestedArg) {
            near if near.is_empty() => format!("`{argument}` is not expected here; --help lists the options"),
            near => format!("there is no option '{argument}'; did you mean '{near}'?"),
        },
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument} needs a value"),
        ErrorKind::InvalidValue => {
            let known = texts(ContextKind::ValidValue);
            format!("{argument} cannot be '{value}'{}", did_you_mean(&value, known.iter().map(String::as_str)))
        }
        ErrorKind::ValueValidation => match error.source() {
            Some(why) => format!("{argument} cannot be `{value}`: {why}"),
            None => format!("{argument} cannot be `{value}`"),
        },
        ErrorKind::MissingRequiredArgument => {
            format!("{} is missing; --help lists the arguments", texts(ContextKind::InvalidArg).join(" and "))
        }
        ErrorKind::ArgumentConflict => {
            format!("{argument} and {} cannot be given together", texts(ContextKind::PriorArg).join(" and "))
        }
        ErrorKind::InvalidUtf8 => {
            "an argument is not UTF-8; rename the file that it names, or give a link to it".into()
        }
        _ => return None,
    })
}

/// A message of the library, with the options that follow its advice.
pub fn with_options(message: &str) -> String {
    Advice::spell(message, |advice| match (advice, advice.option()) {
        (Advice::NameNetwork, _) => "--net resnet20, with --weights for the file of `mercer ntk`".into(),
        (Advice::Logistic, _) => "`mercer regress --loss logistic`".into(),
        (_, (name, None)) => Spelling::Program.option(name),
        (_, (name, Some(value))) => Spelling::Program.set(name, value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    /// Whether a command has an option of this name that takes the value, or any where none is given.
    fn has(command: &Command, name: &str, value: Option<&str>) -> bool {
        let takes = |argument: &clap::Arg| {
            let known = argument.get_possible_values();
            value.is_none_or(|value| known.is_empty() || known.iter().any(|known| known.matches(value, false)))
        };
        let mut own = command.get_arguments().filter(|argument| argument.get_long() == Some(name));
        own.any(takes) || command.get_subcommands().any(|command| has(command, name, value))
    }

    #[test]
    fn every_advice_is_followed_by_an_option() {
        let program = Cli::command();
        for advice in Advice::ALL {
            let (name, value) = advice.option();
            assert!(has(&program, name, value), "no command takes --{name} {value:?}");
        }
        assert!(!has(&program, "solver", Some("gc")) && !has(&program, "advice", None));
    }

    #[test]
    fn options_follow_the_advice_of_a_message() {
        let message = format!("no device; {}", mercer::advice!(UseCpu));
        assert_eq!(with_options(&message), "no device; use the CPU (--device cpu)");
        assert_eq!(
            with_options("the network cannot be in single precision"),
            "the network cannot be in single precision"
        );
    }
}
