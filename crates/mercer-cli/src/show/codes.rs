//! Codes of rows: by a model, or as they are given.

use crate::options::input::Source;
use crate::program::context::Context;
use mercer::data::{Dataset, Target};
use mercer::model::{Model, stated_checksum};
use mercer::retrieval::{Metric, ModelFile};
use mercer::{Error, Result, fail_if};
use ndarray::{Array2, s};
use std::path::{Path, PathBuf};

/// What turns rows into codes.
pub struct Coder {
    model: Option<(PathBuf, Model)>,
}

/// Rows, and the code of each.
pub struct Coded {
    pub data: Dataset,
    /// `[n, m]`
    pub codes: Array2<f64>,
}

impl Coder {
    /// The rows are codes already.
    pub fn given() -> Coder {
        Coder { model: None }
    }

    /// By the coordinates of a model.
    pub fn of_model(path: &Path, context: &Context) -> Result<Coder> {
        let model = Model::load(path, context.device)?;
        model.content.code_length().map_err(|e| Error::file(path, e.to_string()))?;
        Ok(Coder { model: Some((path.to_owned(), model)) })
    }

    pub fn model(&self) -> Option<&Model> {
        self.model.as_ref().map(|(_, model)| model)
    }

    /// The file of the model and its checksum.
    pub fn model_file(&self) -> Result<Option<ModelFile>> {
        let Some((path, _)) = &self.model else { return Ok(None) };
        Ok(Some(ModelFile { path: absolute(path), checksum: stated_checksum(path)? }))
    }

    /// The rows of `data`, and their codes: the first `dims` coordinates, or all.
    pub fn code(&self, source: &Source, data: &str, dims: Option<usize>, context: &Context) -> Result<Coded> {
        let data = match self.model().map(|model| &model.schema) {
            Some(Some(schema)) => source.open_like(data, schema, context)?,
            _ => source.numbers(data, context)?,
        };
        let n = data.n();
        let k = self.model().map_or(Ok(data.d()), |model| model.content.code_length())?;
        let m = first(dims, k)?;
        context.budget.require(
            format!("codes of {n} rows and {k} coordinates"),
            12 * (n * k) as u64,
            "use fewer rows at a time",
        )?;
        let codes = match self.model() {
            Some(model) => model.content.codes(data.x.rows())?,
            None => data.x.to_f64().into_owned(),
        };
        Ok(Coded { data, codes: codes.slice(s![.., ..m]).to_owned() })
    }
}

/// The number of first coordinates of `k` that are asked for.
pub fn first(dims: Option<usize>, k: usize) -> Result<usize> {
    let m = dims.unwrap_or(k);
    fail_if!(m == 0 || m > k, "--dims {m}: codes have {k} coordinates; use 1 to {k}");
    Ok(m)
}

/// A file's path from the root, so that it is found from any folder; other names as they are.
pub fn absolute(path: &Path) -> String {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

/// What belongs to each row: classes, where whole numbers say them, else numbers.
pub fn labels(y: Option<Target>) -> Option<Target> {
    y.map(|y| y.as_classes().unwrap_or(y))
}

/// The words for metrics.
pub const METRICS: &[(&str, Metric)] = &[("cosine", Metric::Cosine), ("euclidean", Metric::Euclidean)];
