//! `mercer eigenmap --embeddings`: embeddings of any model as a code in the order of importance, beside principal components, trained codes
//! and random coordinates.

use super::eigenmap::table;
use crate::options::input::Reader;
use crate::program::context::Context;
use crate::program::output::Output;
use crate::show::certificate;
use crate::text;
use clap::Args;
use mercer::apply::{CodeFinish, EmbeddingCode, Matryoshka, Saved, Together, Transform};
use mercer::data::Scaling;
use mercer::retrieval::{ExactSearch, Metric};
use mercer::rng::Rng;
use mercer::spectrum::neural::neighbour_accuracy;
use mercer::{FitContext, Result, fail_if};
use ndarray::{Array2, ArrayView2, Axis, s};
use serde_json::json;

/// Options of embeddings.
#[derive(Args)]
#[command(next_help_heading = "Options of embeddings")]
pub struct Embeddings {
    /// Embeddings of any model, a row each, to put in order instead of training a network; with --labels or --pairs a table compares the code
    /// with principal components, Matryoshka training and random coordinates on rows that are held out
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
        finish: Finish,
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
            (Some(file), _) => {
                Together::Pairs(reader.source.of_pairs().numbers(file, context)?.x.to_f64().into_owned())
            }
            (None, Some(labels)) => Together::Classes(labels.clone()),
            (None, None) => Together::Neighbours(self.neighbours),
        };
        let k = k.min(x.ncols());
        let fit = |together: Together| {
            let code = finished(k, together, finish);
            context.fitting(|fit| code.fit(x.view(), &FitContext { data: name, ..*fit }))
        };
        let (code, pca) = (fit(together.clone())?, fit(Together::Linear)?);
        code.notes.iter().for_each(|note| context.warn(note));
        if let Some(out) = &out {
            context.written(out, code.save_with(Some(&schema), out.path()));
        }
        let compared = Comparison::new(x.view(), &together, labels.as_deref(), context.seed)
            .map(|comparison| context.fitting(|fit| comparison.run(k, finish, fit)))
            .transpose()?;
        let object = json!({
            "data": name, "origin": code.origin, "eigenvalues": code.eigenvalues, "certificate": code.certificate,
            "pca": { "eigenvalues": pca.eigenvalues, "certificate": pca.certificate }, "accuracy": compared, "out": out,
        });
        context.costly_result(&object, || {
            let origin = certificate::origin(&code.origin, &format!("of {name}"), "");
            let mut said = format!("{origin}\nOperator: {}\n\n", code.origin.kernel);
            said += &table(&code.eigenvalues, &code.certificate);
            let shares: Vec<String> = pca.eigenvalues.iter().take(8).map(|share| text::percent(*share)).collect();
            said += &format!(
                "Beside it, principal components (the linear kernel) have these shares of the variance: {}.\n",
                shares.join(", ")
            );
            if let Some(compared) = &compared {
                let cells = |row: &Compared| {
                    let trained = row.matryoshka.map_or("–".into(), text::percent);
                    let shares = [text::percent(row.code), text::percent(row.pca), trained, text::percent(row.random)];
                    std::iter::once(row.length.to_string()).chain(shares).collect()
                };
                let rows: Vec<Vec<String>> = compared.iter().map(cells).collect();
                let what = if labels.is_some() {
                    "Accuracy of 20 nearest neighbours for a fifth of the rows"
                } else {
                    "Share of a fifth of the rows whose partner is the nearest among the partners of that fifth"
                };
                said += &format!(
                    "\n{what}; all codes were fitted to the other rows:\n{}",
                    text::table(&["length", "code", "pca", "matryoshka", "random coordinates"], &rows)
                );
            }
            said
        })
    }
}

/// What options make of the usual finish.
type Finish<'a> = &'a dyn Fn(CodeFinish) -> CodeFinish;

/// A code of embeddings with the finish that is asked for; principal components have the plain one.
fn finished(k: usize, together: Together, finish: Finish) -> EmbeddingCode {
    let usual = EmbeddingCode::new(k, together);
    let finish = if usual.together == Together::Linear { usual.finish } else { finish(usual.finish) };
    EmbeddingCode { finish, ..usual }
}

/// What codes of a length are worth: each a share of the rows that were held out.
#[derive(serde::Serialize)]
struct Compared {
    length: usize,
    code: f64,
    pca: f64,
    /// None where nothing is known of what belongs together.
    matryoshka: Option<f64>,
    random: f64,
}

/// Rows that are held out, to compare codes which are fitted to the others.
struct Comparison<'a> {
    x: ArrayView2<'a, f64>,
    together: &'a Together,
    labels: Option<&'a [usize]>,
    asked: Vec<usize>,
    known: Vec<usize>,
    seed: u64,
}

impl<'a> Comparison<'a> {
    /// None where there are neither labels nor pairs to compare by, or too few rows.
    fn new(
        x: ArrayView2<'a, f64>,
        together: &'a Together,
        labels: Option<&'a [usize]>,
        seed: u64,
    ) -> Option<Comparison<'a>> {
        let n = x.nrows();
        if labels.is_none() && !matches!(together, Together::Pairs(_)) || n < 20 {
            return None;
        }
        let mut order: Vec<usize> = (0..n).collect();
        Rng::new(seed).fork(7).shuffle(&mut order);
        let known = order.split_off(n.div_ceil(5));
        Some(Comparison { x, together, labels, asked: order, known, seed })
    }

    fn run(&self, k: usize, finish: Finish, context: &FitContext) -> Result<Vec<Compared>> {
        let together = among(self.together, &self.known);
        let known = self.x.select(Axis(0), &self.known);
        let fitted = |together: Together| finished(k, together, finish).fit(known.view(), context);
        let (code, pca) = (fitted(together.clone())?, fitted(Together::Linear)?);
        let trained = match together {
            Together::Pairs(_) | Together::Classes(_) => Some(Matryoshka::new(k, together).fit(known.view(), context)?),
            _ => None,
        };
        let columns = Rng::new(self.seed).fork(8).sample(self.x.ncols(), self.x.ncols());
        let row = |&length: &usize| {
            let share = |map: &dyn Fn(ArrayView2<f64>) -> Result<Array2<f64>>| self.share(map, length);
            Ok(Compared {
                length,
                code: share(&|x| code.transform(x))?,
                pca: share(&|x| pca.transform(x))?,
                matryoshka: trained.as_ref().map(|trained| share(&|x| trained.transform(x))).transpose()?,
                random: share(&|x| Ok(x.select(Axis(1), &columns)))?,
            })
        };
        LENGTHS.iter().filter(|length| **length <= k).map(row).collect()
    }

    /// Of the rows that were held out, by the first coordinates that `map` gives: those whose class the neighbours among the others tell, or
    /// whose partner is the nearest.
    fn share(&self, map: &dyn Fn(ArrayView2<f64>) -> Result<Array2<f64>>, length: usize) -> Result<f64> {
        let coded = |x: ArrayView2<f64>, rows: &[usize]| {
            let z = map(x.select(Axis(0), rows).view())?;
            let length = length.min(z.ncols());
            Ok::<_, mercer::Error>(z.slice_move(s![.., ..length]))
        };
        let asked = coded(self.x, &self.asked)?;
        let of = |labels: &[usize], rows: &[usize]| rows.iter().map(|i| labels[*i]).collect::<Vec<usize>>();
        match (self.labels, self.together) {
            (Some(labels), _) => {
                let (wanted, given) = (of(labels, &self.asked), of(labels, &self.known));
                Ok(neighbour_accuracy((asked.view(), &wanted), (coded(self.x, &self.known)?.view(), &given)))
            }
            (None, Together::Pairs(other)) => {
                let [partners, asked] = [coded(other.view(), &self.asked)?, asked].map(|z| z.mapv(|v| v as f32));
                let hits = ExactSearch::new(partners.view(), Metric::Cosine)?.nearest(asked.view(), 1)?;
                let right = hits.items.iter().enumerate().filter(|(i, hit)| i == *hit).count();
                Ok(right as f64 / self.asked.len() as f64)
            }
            _ => unreachable!("a comparison has labels or pairs"),
        }
    }
}

/// What belongs together among some of the rows.
fn among(together: &Together, rows: &[usize]) -> Together {
    match together {
        Together::Pairs(other) => Together::Pairs(other.select(Axis(0), rows)),
        Together::Classes(classes) => Together::Classes(rows.iter().map(|i| classes[*i]).collect()),
        Together::Neighbours(count) => Together::Neighbours((*count).min((rows.len() - 1) / 2)),
        Together::Linear => Together::Linear,
    }
}

/// The classes in a file of one column, as numbers from zero on.
fn classes(file: &str, n: usize, reader: &Reader, context: &Context) -> Result<Vec<usize>> {
    let column = reader.source.of_rows().numbers(file, context)?.x.to_f64().into_owned();
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
