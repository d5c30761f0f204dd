//! Rows to validate methods on, and to measure them on: options, and how they are read.

use crate::options::input::{Beside, Reader, target_file};
use crate::program::context::Context;
use crate::show::uncertainty::WITHOUT_TEST;
use crate::text;
use clap::Args;
use mercer::classifier::Classifier;
use mercer::data::{Dataset, Schema};
use mercer::learn::Samples;
use mercer::{Result, fail_if};

/// Where the rows come from that methods are judged by.
#[derive(Args)]
pub struct ValidationRows {
    /// Rows to find scales, temperatures and the best method on: a file or named set that the network has not seen, or a share of
    /// the data to hold out
    #[arg(long, value_name = "DATA|SHARE", default_value = "0.2")]
    pub validation: String,

    /// Targets of the validation rows, an .npy file with one number a row [default: the column of the target]
    #[arg(long, value_name = "FILE.npy", requires = "validation", value_parser = target_file)]
    validation_target: Option<String>,

    /// Labelled rows to measure all methods on [default: the validation rows]
    #[arg(long, value_name = "DATA")]
    pub test: Option<String>,

    /// Targets of the test rows, an .npy file with one number a row [default: the column of the target]
    #[arg(long, value_name = "FILE.npy", requires = "test", value_parser = target_file)]
    test_target: Option<String>,

    /// Rows of another distribution, to be told from the test rows
    #[arg(long, value_name = "DATA")]
    pub ood: Option<String>,
}

impl ValidationRows {
    /// The share of the data to hold out for validation, where no rows are named for it. Says what it means for the data called `name`.
    pub fn share(&self, name: &str, context: &Context) -> Result<Option<f64>> {
        let Ok(share) = self.validation.parse::<f64>() else { return Ok(None) };
        fail_if!(!(share > 0.0 && share < 1.0), "--validation must be a share between 0 and 1, or data, not {share}");
        fail_if!(
            self.validation_target.is_some(),
            "--validation-target is for rows that --validation names; leave it out, or name the rows"
        );
        context.note(format_args!(
            "{} of {name} held out for validation; if the network was trained on them, give others by --validation",
            text::percent(share)
        ));
        Ok(Some(share))
    }

    /// The validation rows, where they are not a share of the data.
    pub fn validation_rows(&self) -> Beside<'_> {
        Beside { option: "validation", source: &self.validation, target: self.validation_target.as_deref() }
    }

    /// The test rows, where there are some; else says what methods are measured on.
    pub fn test_rows(&self, context: &Context) -> Option<Beside<'_>> {
        if self.test.is_none() {
            context.note(WITHOUT_TEST);
        }
        let (option, target) = ("test", self.test_target.as_deref());
        self.test.as_deref().map(|source| Beside { option, source, target })
    }

    /// Refuses rows of another distribution for a network that predicts a number.
    pub fn check_ood(&self, is_number: bool) -> Result<()> {
        fail_if!(
            self.ood.is_some() && is_number,
            "--ood is for classes: the network predicts a number, whose deviations `mercer predict` gives"
        );
        Ok(())
    }

    /// The rows of `data`, called `name`, and those that the options name; their targets are those of `network`.
    pub fn read(
        &self,
        data: Dataset,
        name: &str,
        network: &Classifier,
        (reader, schema): (&Reader, &Schema),
        context: &Context,
    ) -> Result<Samples<Dataset>> {
        self.check_ood(network.number.is_some())?;
        let labelled = |rows: Dataset| match network.number {
            Some(_) => rows.with_numbers(),
            None => rows.with_classes(),
        };
        let open = |beside| reader.labelled_beside(beside, schema, context);
        let (fit, validation) = match self.share(name, context)? {
            Some(share) => data.split(share, context.seed)?,
            None => (data, open(self.validation_rows())?),
        };
        let test = self.test_rows(context).map(open).transpose()?;
        let (fit, validation) = (labelled(fit)?, labelled(validation)?);
        let test = test.map(labelled).transpose()?;
        let ood = self.ood.as_deref().map(|ood| reader.open_like(ood, schema, context)).transpose()?;
        Ok(Samples { fit, validation, test, ood })
    }

    /// What the rows are called that methods are measured on.
    pub fn measured_on(&self) -> &str {
        self.test.as_deref().unwrap_or("the validation rows")
    }
}
