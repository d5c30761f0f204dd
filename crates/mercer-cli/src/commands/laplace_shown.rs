//! What `mercer laplace` makes of fitted methods: the choice among them, the model, the report, the table.

use super::laplace::Laplace;
use crate::program::context::Context;
use crate::program::output::Output;
use crate::show::posterior::Rows;
use crate::show::uncertainty::{Judged, Judgement, chosen};
use crate::show::uncertainty_page::page;
use mercer::Result;
use mercer::apply::{Predict, SavedPredict};
use mercer::data::Schema;
use serde_json::json;

/// A fitted method, and what it is worth.
pub(super) struct Outcome {
    pub name: &'static str,
    pub model: Box<dyn SavedPredict>,
    pub judged: Judged,
}

/// What was fitted on, validated on and measured on.
pub(super) struct Counts {
    pub fit: usize,
    pub validation: usize,
    pub measured: usize,
}

impl Laplace {
    /// The files to write, checked before any work: the model and the report.
    pub(super) fn outputs(&self) -> Result<[Option<Output>; 2]> {
        let out = self.out.as_ref().map(Output::new).transpose()?;
        Ok([out, self.report.as_ref().map(|path| Output::with_extension(path, &["html"])).transpose()?])
    }

    /// Chooses among fitted methods, writes what was asked for, and shows all of them. `table` has the schema of the rows and the rows
    /// themselves, where models are functions of them.
    pub(super) fn finish(
        &self,
        all: &[Outcome],
        counts: Counts,
        table: Option<(&Schema, &Rows)>,
        [out, report]: [Option<Output>; 2],
        context: &Context,
    ) -> Result<()> {
        let judged: Vec<&Judged> = all.iter().map(|outcome| &outcome.judged).collect();
        let (chosen, why) = chosen(&judged, &self.method, counts.validation);
        let judged = Judgement::new(judged.into_iter(), chosen, context.seed);
        let warnings = judged.warnings();
        warnings.iter().for_each(|warning| context.warn(warning));
        if let Some(out) = &out {
            context.written(out, all[chosen].model.write(table.map(|(schema, _)| schema), out.path()));
        }
        let rows = self.validation_rows.measured_on();
        if let Some(report) = &report {
            let models: Vec<(&str, &dyn Predict)> =
                all.iter().map(|outcome| (outcome.name, &*outcome.model as &dyn Predict)).collect();
            let drawn = table.map(|(_, rows)| rows.drawn(&models)).transpose()?.flatten();
            let of = if self.files.given() { self.files.logits[0].clone() } else { self.first.clone() };
            let title = format!("Uncertainty of {of} on {}", self.source());
            let page = page(&judged, &title, &why, rows, drawn).command(&context.command);
            context.written(report, report.text(&page.html()));
        }
        let object = json!({
            "network": self.data.as_ref().map(|_| &self.first), "logits": self.files.logits, "data": self.source(),
            "n": counts.fit, "validation": counts.validation, "measured_on": rows, "rows": counts.measured,
            "method": all[chosen].name, "why": why, "methods": judged.objects(), "warnings": warnings, "out": out, "report": report,
        });
        context.costly_result(&object, || format!("{}\n{}\n", judged.table(), why))
    }
}
