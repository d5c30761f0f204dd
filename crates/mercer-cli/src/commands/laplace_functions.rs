//! `mercer laplace --logits`: a network of another program, by its outputs and functions.

use super::laplace::Laplace;
use super::laplace_shown::{Counts, table};
use crate::options::function_files::Opened;
use crate::options::input::{Beside, encoded, say_unscored};
use crate::options::validation_rows::ValidationRows;
use crate::program::context::Context;
use crate::text;
use mercer::data::{Dataset, Scaling, Task, split_rows};
use mercer::laplace::NetworkKind;
use mercer::learn::{FunctionRows, Sample, Samples, posteriors};
use mercer::{FitContext, Result, Silent, fail_if};

impl Opened {
    /// The network at rows that have a target.
    fn at(&self, rows: Dataset) -> Result<FunctionRows<'_>> {
        let name = &rows.name;
        fail_if!(
            self.n() != rows.n(),
            "--logits has outputs of {} rows, {name} has {}; give the same rows in the same order",
            self.n(),
            rows.n()
        );
        let mut network = self.network()?;
        if let Some((_, Some(known))) = rows.known() {
            network = network.at(known);
        }
        let rows = rows.labelled();
        let rows = if self.width() == 1 { rows.with_numbers() } else { rows.with_classes() }?;
        Ok(FunctionRows { network, y: rows.y })
    }
}

impl Laplace {
    /// The command for a network that is given by its functions.
    pub(super) fn of_functions(&self, context: &Context) -> Result<()> {
        let outputs = self.outputs()?;
        fail_if!(
            self.data.is_some(),
            "--logits stands for the network; give the rows alone, not `{}` and `{}`",
            self.first,
            self.source()
        );
        let share = self.validation_rows.share(self.source(), context)?;
        let ValidationRows { validation, test, ood, .. } = &self.validation_rows;
        let sources = [Some(self.source()), share.is_none().then_some(&**validation)];
        let sources: Vec<&str> = sources.into_iter().chain([test.as_deref(), ood.as_deref()]).flatten().collect();
        let opened = self.files.open(&sources, context)?;
        let kind = NetworkKind { number: opened[0].width() == 1, functions: true };
        let candidates = posteriors().build(self.method, self.options.options(), &kind)?;
        let rows = self.rows_of(&opened, share, context)?;
        let plan = candidates.plan_functions(&rows, &context.fit(&Silent))?;
        let network = &rows.fit.network;
        let sizes = [text::count(network.n(), "row"), text::count(network.functions(), "function")];
        context.note(table(&plan, sizes.join(" and "), false));
        let found = context.fitting(|fit| plan.fit_functions(&rows, &FitContext { data: self.source(), ..*fit }))?;
        self.finish(&found, Counts::of(&rows), None, outputs, context)
    }

    /// The rows with their targets, beside what the files say of them.
    fn rows_of<'a>(
        &self,
        opened: &'a [Opened],
        share: Option<f64>,
        context: &Context,
    ) -> Result<Samples<FunctionRows<'a>>> {
        let task = if opened[0].width() == 1 { Task::Regression } else { Task::Classification };
        let table = self.reader.table(self.source(), Some(task), context)?;
        let schema = self.reader.schema(&table, Some(Scaling::None), context)?;
        let rows = encoded(&schema, table, context)?;
        let other = |beside: Beside| {
            let rows = self.reader.open_beside(beside, &schema, context)?;
            say_unscored(&rows, context);
            beside.check(&rows, &schema)?;
            Ok(rows)
        };
        let mut rest = opened[1..].iter();
        let mut next = || rest.next().expect("a file for each set of rows");
        let (fit, validation) = match share {
            Some(share) => {
                let [kept, held_out] = split_rows(rows.n(), share, context.seed)?;
                let all = opened[0].at(rows)?;
                (all.select(&kept), all.select(&held_out))
            }
            None => (opened[0].at(rows)?, next().at(other(self.validation_rows.validation_rows())?)?),
        };
        let test = self.validation_rows.test_rows(context);
        let test = test.map(|beside| next().at(other(beside)?)).transpose()?;
        self.validation_rows.check_ood(opened[0].width() == 1)?;
        let of = |opened: &'a Opened| Ok(FunctionRows { network: opened.network()?, y: None });
        let ood = self.validation_rows.ood.as_ref().map(|_| of(next())).transpose()?;
        Ok(Samples { fit, validation, test, ood })
    }
}
