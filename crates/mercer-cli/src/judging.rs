//! Rows to validate methods on, and to measure them on: options, and how they are read.

use crate::context::Context;
use crate::text;
use crate::uncertainty::WITHOUT_TEST;
use clap::Args;
use mercer::classifier::{Classifier, Labelled};
use mercer::data::Dataset;
use mercer::{Result, fail_if};

/// Where the rows come from that methods are judged by.
#[derive(Args)]
pub struct Judging {
    /// Rows to find scales, temperatures and the best method on: a file or named set that the network has not seen, or a share of
    /// the data to hold out
    #[arg(long, value_name = "DATA|SHARE", default_value = "0.2")]
    validation: String,

    /// Labelled rows to measure all methods on [default: the validation rows]
    #[arg(long, value_name = "DATA")]
    test: Option<String>,

    /// Rows of another distribution, to be told from the test rows
    #[arg(long, value_name = "DATA")]
    ood: Option<String>,
}

/// All rows that a command is given.
pub struct JudgedRows {
    pub fit: Labelled,
    pub validation: Labelled,
    pub test: Option<Labelled>,
    pub ood: Option<Dataset>,
}

impl JudgedRows {
    /// The rows that methods are measured on.
    pub fn measured(&self) -> &Labelled {
        self.test.as_ref().unwrap_or(&self.validation)
    }
}

impl Judging {
    /// The rows of `data`, called `name`, and those that the options name, which `open` reads alike; their targets are those of `network`.
    pub fn read(
        &self,
        data: Dataset,
        name: &str,
        network: &Classifier,
        open: impl Fn(&str) -> Result<Dataset>,
        context: &Context,
    ) -> Result<JudgedRows> {
        let labelled = |rows: &Dataset| match network.number {
            Some(_) => Labelled::with_numbers(rows),
            None => Labelled::of(rows),
        };
        let (fit, validation) = match self.validation.parse::<f64>() {
            Ok(share) => {
                fail_if!(
                    !(share > 0.0 && share < 1.0),
                    "--validation must be a share between 0 and 1, or data, not {share}"
                );
                context.note(format_args!(
                    "{} of {name} held out for validation; if the network was trained on them, give others by --validation",
                    text::percent(share)
                ));
                data.split(share, context.seed)?
            }
            Err(_) => (data, open(&self.validation)?),
        };
        let test = self.test.as_deref().map(&open).transpose()?;
        if test.is_none() {
            context.note(WITHOUT_TEST);
        }
        let (fit, validation) = (labelled(&fit)?, labelled(&validation)?);
        let test = test.as_ref().map(labelled).transpose()?;
        let ood = self.ood.as_deref().map(open).transpose()?;
        fail_if!(ood.is_some() && network.number.is_some(), "--ood is for classes: the network predicts a number");
        Ok(JudgedRows { fit, validation, test, ood })
    }

    /// What the rows are called that methods are measured on.
    pub fn measured_on(&self) -> &str {
        self.test.as_deref().unwrap_or("the validation rows")
    }
}
