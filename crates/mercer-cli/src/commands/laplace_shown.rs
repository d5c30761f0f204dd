//! What `mercer laplace` makes of fitted methods: the choice among them, the model, the report, the table.

use super::laplace::Laplace;
use crate::program::context::Context;
use crate::program::output::Output;
use crate::show::posterior::Rows;
use crate::show::uncertainty::{Judgement, why};
use crate::show::uncertainty_page::page;
use crate::text;
use mercer::Result;
use mercer::apply::Predict;
use mercer::data::Schema;
use mercer::error::human_bytes;
use mercer::learn::{Comparison, Estimated, LeftOut, Plan, Sample, Samples};
use serde_json::json;

/// What was fitted on, validated on and measured on.
pub(super) struct Counts {
    fit: usize,
    validation: usize,
    measured: usize,
}

impl Counts {
    pub fn of<R: Sample>(rows: &Samples<R>) -> Counts {
        Counts { fit: rows.fit.n(), validation: rows.validation.n(), measured: rows.measured().n() }
    }
}

/// What each method takes for so many rows, and why some are left out; with the time of a prediction, in passes, where it differs.
pub(super) fn table(plan: &Plan, rows: String, predicts: bool) -> String {
    let row = |Estimated { name, cost, seconds, left_out }: &Estimated| {
        let remark = match left_out {
            Some(LeftOut::Memory) => "left out: too little memory".into(),
            Some(LeftOut::Time) => format!("left out; --method {name} fits it"),
            None => String::new(),
        };
        let predict = predicts.then(|| format!("{}× the network", text::number(cost.predict, 2)));
        let cells = [(*name).into(), human_bytes(cost.bytes), text::seconds(*seconds)];
        cells.into_iter().chain(predict).chain([remark]).collect()
    };
    let headings = ["method", "memory", "time"].into_iter().chain(predicts.then_some("prediction")).chain(["remark"]);
    let cells: Vec<Vec<String>> = plan.estimates.iter().map(row).collect();
    format!("estimated for {rows}:\n{}", text::table(&headings.collect::<Vec<_>>(), &cells).trim_end())
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
        found: &Comparison,
        counts: Counts,
        table: Option<(&Schema, &Rows)>,
        [out, report]: [Option<Output>; 2],
        context: &Context,
    ) -> Result<()> {
        for (name, error) in &found.left_out {
            context.warn(format_args!("{name} is left out: {error}"));
        }
        for compared in &found.all {
            compared
                .model
                .notes()
                .iter()
                .for_each(|note| context.warn(format_args!("{}: {note}", compared.judged.name)));
        }
        let why = why(found, self.method, counts.validation);
        let judged = Judgement::new(found, context.seed);
        let warnings = judged.warnings();
        warnings.iter().for_each(|warning| context.warn(warning));
        if let Some(out) = &out {
            context.written(out, found.all[found.kept].model.write(table.map(|(schema, _)| schema), out.path()));
        }
        let rows = self.validation_rows.measured_on();
        if let Some(report) = &report {
            let models: Vec<(&str, &dyn Predict)> =
                found.all.iter().map(|compared| (compared.judged.name, &*compared.model as &dyn Predict)).collect();
            let drawn = table.map(|(_, rows)| rows.drawn(&models)).transpose()?.flatten();
            let of = if self.files.given() { self.files.logits[0].clone() } else { self.first.clone() };
            let title = format!("Uncertainty of {of} on {}", self.source());
            let page = page(&judged, &title, &why, rows, drawn).command(&context.command);
            context.written(report, report.text(&page.html()));
        }
        let object = json!({
            "network": self.data.as_ref().map(|_| &self.first), "logits": self.files.logits, "data": self.source(),
            "n": counts.fit, "validation": counts.validation, "measured_on": rows, "rows": counts.measured,
            "method": found.all[found.kept].judged.name, "why": why, "methods": judged.objects(), "warnings": warnings, "out": out, "report": report,
        });
        context.costly_result(&object, || format!("{}\n{}\n", judged.table(), why))
    }
}
