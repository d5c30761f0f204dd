//! Messages about mistakes on the command line, one sentence each.

use crate::args::Cli;
use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use mercer::error::did_you_mean;
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

/// The options behind the advice that the library gives.
const OPTIONS: &[(&str, &str)] = &[
    ("use the CPU", "--device cpu"),
    ("the Krylov method", "--method krylov"),
    ("the Nyström method", "--method nystrom"),
    ("the NeuralEF method", "--method neuralef"),
    ("a larger tolerance", "--tolerance"),
    ("more iterations", "--iterations"),
    ("a preconditioner of higher rank", "--rank"),
    ("a larger α", "--alpha"),
    ("landmarks stand for them", "--rank"),
    ("solve by conjugate gradients", "--solver cg"),
    ("single precision", "--precision f32"),
    ("a larger memory budget", "--memory"),
    ("training can resume from it", "--resume"),
    ("continue that run", "--resume"),
    ("logistic regression on features", "`mercer regress --loss logistic`"),
    ("allow its checkpoint to be replaced", "--overwrite"),
    ("name the column that holds the classes", "--target"),
    ("give the samples", "--samples"),
    ("impute missing values", "--missing impute"),
    ("take the column as a category", "--categories"),
    ("leave the column out", "--drop"),
    ("take whole numbers as classes", "--classify"),
    ("set the header option", "--header yes"),
    ("if one of them is the target, name it", "--target"),
    ("rename the file's tensors", "--rename old=new"),
    ("name the network beside the file", "--net resnet20, with --weights for the file of `mercer ntk`"),
];

/// A message of the library, with the options that follow its advice.
pub fn with_options(message: &str) -> String {
    OPTIONS
        .iter()
        .fold(message.to_owned(), |message, (advice, option)| message.replace(advice, &format!("{advice} ({option})")))
}
