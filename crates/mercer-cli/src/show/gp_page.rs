//! The report of `mercer gp`: measures, the posterior over the line or the plane, and the reliability of classes.

use crate::show::page as parts;
use crate::show::posterior::Rows;
use crate::show::uncertainty_page::calibration;
use mercer::Result;
use mercer::apply::Predict;
use mercer::classifier::Cases;
use mercer::data::{Dataset, Schema};
use mercer_figure::report::{Report, Table};

/// A fitted process: how it was found, in pairs of a word and a value, and its measures, a row for each set of rows.
pub struct Process<'a> {
    pub model: &'a dyn Predict,
    pub facts: Vec<(&'static str, String)>,
    pub measures: Table,
}

impl Process<'_> {
    /// The page for rows that were fitted, and sets of rows that were not.
    pub fn page(
        &self,
        title: &str,
        schema: Option<&Schema>,
        train: &Dataset,
        others: &[(&str, &Dataset)],
    ) -> Result<Report> {
        let mut page = Report::new(title).section("Measures").table(self.measures.clone());
        let x = train.x.to_f64();
        if let Some(y) = &train.y {
            let rows = Rows { x: x.view(), names: &train.columns, y, scaler: schema.and_then(Schema::scaler) };
            if let Some((figure, caption)) = rows.drawn(&[("posterior", self.model)])? {
                page = page.section("Posterior").figure(&figure, caption);
            }
        }
        let mut cases: Vec<(&str, Cases)> = vec![];
        for (name, data) in others {
            let scores = self.model.scores(data.x.to_f64().view())?;
            let target = schema.and_then(|schema| schema.target.as_ref());
            let classes = target.and_then(|target| target.classes.as_ref());
            if let (Some(classes), Some(p), Some(y)) = (classes, self.model.probabilities(scores.view()), &data.y) {
                let labels = y.as_classes()?.labels_for(classes)?;
                cases.push((name, Cases::of(p.mapv(|p| p.max(f64::MIN_POSITIVE).ln()).view(), &labels)));
            }
        }
        if !cases.is_empty() {
            let bins: Vec<_> = cases.iter().map(|(name, cases)| (*name, cases.reliability())).collect();
            let bins: Vec<_> = bins.iter().map(|(name, bins)| (*name, &bins[..])).collect();
            let confidence: Vec<_> = cases.iter().map(|(name, cases)| (*name, &cases.confidence[..])).collect();
            page = calibration(page, &bins, &confidence);
        }
        let facts: Vec<(&str, String)> = self.facts.iter().cloned().chain([("program", parts::program())]).collect();
        Ok(page.section("How it was made").table(parts::facts(&facts)))
    }
}
