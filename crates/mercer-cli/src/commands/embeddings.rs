//! `mercer eigenmap --embeddings`: embeddings of any model as a code in the order of importance, beside principal components.

use super::eigenmap::table;
use crate::certificate;
use crate::context::Context;
use crate::input::Reader;
use crate::output::Output;
use crate::text;
use clap::Args;
use mercer::apply::{EmbeddingCode, FittedCode, Saved, Together, Transform};
use mercer::data::Scaling;
use mercer::rng::Rng;
use mercer::spectrum::neural::neighbour_accuracy;
use mercer::{FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde_json::json;

/// Options of embeddings.
#[derive(Args)]
#[command(next_help_heading = "Options of embeddings")]
pub struct Embeddings {
    /// Embeddings of any model, a row each, to put in order instead of training a network
    #[arg(long, value_name = "FILE")]
    embeddings: Option<String>,

    /// A class for each embedding, a file of one column: pairs are two embeddings of a class, unless --pairs are given
    #[arg(long, value_name = "FILE", requires = "embeddings")]
    labels: Option<String>,

    /// Without --pairs and --labels: an embedding and each of so many nearest others are pairs
    #[arg(long, value_name = "N", requires = "embeddings", default_value_t = 10)]
    neighbours: usize,
}

/// Lengths of codes that are compared.
const LENGTHS: [usize; 7] = [2, 4, 8, 16, 32, 64, 128];

impl Embeddings {
    pub fn run(
        &self,
        k: usize,
        pairs: Option<&str>,
        reader: &Reader,
        out: Option<Output>,
        context: &Context,
    ) -> Result<()> {
        let name = self.embeddings.as_deref().unwrap_or_default();
        let (data, schema) = reader.features(name, Some(Scaling::None), context)?;
        let x = data.x.to_f64().into_owned();
        let labels = self.labels.as_deref().map(|file| classes(file, x.nrows(), reader, context)).transpose()?;
        let together = match (pairs, &labels) {
            (Some(file), _) => Together::Pairs(reader.source.numbers(file, context)?.x.to_f64().into_owned()),
            (None, Some(labels)) => Together::Classes(labels.clone()),
            (None, None) => Together::Neighbours(self.neighbours),
        };
        let k = k.min(x.ncols());
        let fit = |together: Together| {
            let code = EmbeddingCode { k, together };
            context.fitting(|fit| code.fit(x.view(), &FitContext { data: name, ..*fit }))
        };
        let (code, pca) = (fit(together)?, fit(Together::Linear)?);
        code.notes.iter().for_each(|note| context.warn(note));
        if let Some(out) = &out {
            code.save_with(Some(&schema), out.path())?;
            context.wrote(out);
        }
        let compared =
            labels.as_ref().map(|labels| compared(x.view(), labels, [&code, &pca], context.seed)).transpose()?;
        let object = json!({
            "data": name, "origin": code.origin, "eigenvalues": code.eigenvalues, "certificate": code.certificate,
            "pca": { "eigenvalues": pca.eigenvalues, "certificate": pca.certificate }, "accuracy": compared, "out": out,
        });
        context.costly_result(&object, || {
            let origin = certificate::origin(&code.origin, &format!("of {name}"), "");
            let mut said = format!("{origin}\nOperator: {}\n\n", code.origin.kernel);
            said += &table(&code.eigenvalues, &code.certificate);
            let shares: Vec<String> = pca.eigenvalues.iter().take(8).map(|share| text::percent(*share)).collect();
            said += &format!("Beside it, principal components (the linear kernel) have these shares of the variance: {}.\n", shares.join(", "));
            if let Some(compared) = &compared {
                let cells = |row: &Compared| {
                    std::iter::once(row.length.to_string()).chain([row.code, row.pca, row.random].map(text::percent)).collect()
                };
                let rows: Vec<Vec<String>> = compared.iter().map(cells).collect();
                said += &format!(
                    "\nAccuracy of 20 nearest neighbours, a fifth of the rows against the others; the code and the components were fitted to all:\n{}",
                    text::table(&["length", "code", "pca", "random coordinates"], &rows)
                );
            }
            said
        })
    }
}

/// Accuracies of neighbours by codes of a length.
#[derive(serde::Serialize)]
struct Compared {
    length: usize,
    code: f64,
    pca: f64,
    random: f64,
}

fn compared(x: ArrayView2<f64>, labels: &[usize], codes: [&FittedCode; 2], seed: u64) -> Result<Vec<Compared>> {
    let (n, p) = x.dim();
    let mut order: Vec<usize> = (0..n).collect();
    Rng::new(seed).fork(7).shuffle(&mut order);
    let (ask, known) = order.split_at(n.div_ceil(5));
    let of = |rows: &[usize]| rows.iter().map(|i| labels[*i]).collect::<Vec<usize>>();
    let (wanted, given) = (of(ask), of(known));
    let accuracy = |z: ArrayView2<f64>| {
        let [a, b] = [ask, known].map(|rows| z.select(Axis(0), rows));
        neighbour_accuracy((a.view(), &wanted), (b.view(), &given))
    };
    let [code, pca]: [Array2<f64>; 2] = [codes[0].transform(x)?, codes[1].transform(x)?];
    let columns = Rng::new(seed).fork(8).sample(p, p);
    let row = |&length: &usize| {
        let first = |z: &Array2<f64>| accuracy(z.slice(s![.., ..length.min(z.ncols())]));
        let random = x.select(Axis(1), &columns[..length.min(p)]);
        Compared { length, code: first(&code), pca: first(&pca), random: accuracy(random.view()) }
    };
    Ok(LENGTHS.iter().filter(|length| **length <= pca.ncols()).map(row).collect())
}

/// The classes in a file of one column, as numbers from zero on.
fn classes(file: &str, n: usize, reader: &Reader, context: &Context) -> Result<Vec<usize>> {
    let column = reader.source.numbers(file, context)?.x.to_f64().into_owned();
    fail_if!(
        column.dim() != (n, 1) && column.dim() != (1, n),
        "--labels {file} has {} rows of {} columns; give one class for each of {n} embeddings",
        column.nrows(),
        column.ncols()
    );
    let mut known: Vec<u64> = column.iter().map(|v| v.to_bits()).collect();
    known.sort_unstable();
    known.dedup();
    Ok(column.iter().map(|v| known.binary_search(&v.to_bits()).expect("it was listed")).collect())
}
