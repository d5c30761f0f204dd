//! Codes from views of digits without labels: every objective with the same views, network and budget, in its own order and ended by
//! Rayleigh–Ritz, by the accuracy of neighbours against the length of the code.

use crate::{Options, Shown, compared, report};
use mercer::apply::{EmbeddingCode, FittedCode, Together, Transform, ViewEigenmap, ViewRows};
use mercer::data::{self, Target};
use mercer::spectrum::neural::{PairObjective, Settings, neighbour_accuracy};
use mercer::{Error, FitContext, Result};
use mercer_figure::report::Table;
use mercer_figure::{Plot, text};
use ndarray::s;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

config! {
    /// Functions.
    k: usize = 32; quick 8,
    epochs: u64 = 80; quick 4,
    /// Splits into rows to fit and to ask for, and seeds of the networks.
    runs: u64 = 3; quick 1,
    batch: usize = 256,
    learning_rate: f64 = 3e-3,
    net: &'static str = "dense(256) relu",
    /// Share of the digits whose neighbours are looked for among the others.
    held_out: f64 = 0.25,
}

#[derive(Serialize)]
struct Results {
    config: Config,
    augmentation: String,
    lengths: Vec<usize>,
    codes: Vec<Code>,
}

/// A code by one objective, in its own order or ended by Rayleigh–Ritz; means over the runs.
#[derive(Clone, Serialize)]
struct Code {
    objective: String,
    order: &'static str,
    /// Accuracy of neighbours by the first coordinates, for each length.
    accuracy: Vec<f64>,
    /// Part of the trace of κ − 1, and mean residual, on pairs of rows that were not seen; none of components.
    captured: Option<f64>,
    residual: Option<f64>,
    /// Seconds of training and of the finish.
    seconds: f64,
}

const OWN: &str = "own";
const RITZ: &str = "Ritz";
const VARIANCE: &str = "variance";

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    if options.published {
        return crate::eigenmap_cifar::reproduce(options, context);
    }
    let found = run(Config::new(options, context.seed), context)?;
    let Config { k, epochs, runs, net, .. } = found.config;
    let best = |order: &str, place: usize| {
        let of = |c: &&Code| c.order == order;
        found
            .codes
            .iter()
            .filter(of)
            .max_by(|a, b| a.accuracy[place].total_cmp(&b.accuracy[place]))
            .expect("there are some")
    };
    let at = found.lengths.len() / 2;
    let length = found.lengths[at];
    let (ritz, own) = (best(RITZ, at), best(OWN, at));
    let eigenmap = found.codes.iter().find(|c| c.objective == "eigenmap" && c.order == OWN).expect("it is among them");
    let verdict = format!(
        "with {length} coordinates the best code ended by Rayleigh–Ritz is that of {} ({}), the best in an objective's own order that of {} ({}); Neural \
         Eigenmap in its own order has {}, and principal components of the pixels {}",
        ritz.objective,
        text::percent(ritz.accuracy[at]),
        own.objective,
        text::percent(own.accuracy[at]),
        text::percent(eigenmap.accuracy[at]),
        text::percent(best(VARIANCE, at).accuracy[at])
    );
    let helped: Vec<f64> = found
        .codes
        .iter()
        .filter(|c| c.order == RITZ)
        .map(|c| c.accuracy[at] - pair(&found.codes, &c.objective, OWN).map_or(0.0, |own| own.accuracy[at]))
        .collect();
    let better = helped.iter().filter(|gain| **gain > 0.0).count();
    let observation = format!(
        "Rayleigh–Ritz makes the code of {length} coordinates better for {better} of {} objectives, by {} points on average.",
        helped.len(),
        text::number(100.0 * helped.iter().sum::<f64>() / helped.len() as f64, 2)
    );
    let setting = format!(
        "Digits of 8×8 pixels, {} of them held out, views by {}; the network {net} with the usual projector, {k} functions, {epochs} epochs of Adam, means over \
         {runs} run(s). The accuracy is that of 20 nearest neighbours by angle, of held-out digits among the others.",
        text::percent(found.config.held_out),
        found.augmentation
    );
    let codes = shown(&found);
    let figure = figure(&found);
    let text = format!("{verdict}.\n{setting}\n{observation}\n{}", codes.text());
    let page = report("Codes from views", &verdict, &setting).figure(
        &figure,
        "Accuracy of neighbours by the first coordinates of a code: ended by Rayleigh–Ritz (lines), and in the objective's own order (dashed).",
    );
    let page = compared(
        page.table(codes),
        "objectives without an order need Rayleigh–Ritz for short codes; ordered ones do not.",
        &observation,
    );
    Ok(Shown { figure, report: page, numbers: json!(found), text })
}

fn pair<'a>(codes: &'a [Code], objective: &str, order: &str) -> Option<&'a Code> {
    codes.iter().find(|c| c.objective == objective && c.order == order)
}

fn shown(found: &Results) -> Table {
    let number = |value: Option<f64>, digits| value.map_or_else(|| text::GAP.into(), |v| text::number(v, digits));
    let lengths = found.lengths.iter().map(|m| format!("m = {m}"));
    let headings: Vec<String> = ["objective".into(), "order".into()].into_iter().chain(lengths).collect();
    let headings = headings.iter().map(String::as_str).chain(["trace", "residual", "seconds"]).collect::<Vec<_>>();
    let row = |code: &Code| -> Vec<String> {
        let accuracy = code.accuracy.iter().map(|a| text::percent(*a));
        let rest = [number(code.captured, 3), number(code.residual, 2), text::number(code.seconds, 2)];
        [code.objective.clone(), code.order.into()].into_iter().chain(accuracy).chain(rest).collect()
    };
    Table::of(&headings, &found.codes.iter().map(row).collect::<Vec<_>>()).caption(
        "Accuracy of neighbours by the first m coordinates; the trace and the mean residual on pairs of held-out rows.",
    )
}

fn figure(found: &Results) -> String {
    let lengths: Vec<f64> = found.lengths.iter().map(|m| *m as f64).collect();
    let mut plot = Plot::new("Codes of digits").x_log("length of the code").y("accuracy of neighbours");
    let mut colour = 0;
    for code in &found.codes {
        if code.order == OWN {
            continue;
        }
        plot = plot.line(code.objective.clone(), &lengths, &code.accuracy).markers().colour(colour);
        if let Some(own) = pair(&found.codes, &code.objective, OWN) {
            plot = plot.line(format!("{}, own order", code.objective), &lengths, &own.accuracy).dashed().colour(colour);
        }
        colour += 1;
    }
    plot.svg()
}

fn run(config: Config, context: &FitContext<'_>) -> Result<Results> {
    let digits = data::open("digits", &Default::default())?;
    let lengths: Vec<usize> = [1, 2, 4, 8, 16, 32].into_iter().filter(|m| *m <= config.k).collect();
    let mut codes: Vec<Code> = vec![];
    let mut augmentation = String::new();
    for run in 0..config.runs {
        let seed = config.seed + run;
        let (fit, test) = digits.split(config.held_out, seed)?;
        let [fit, test] = [rows(&fit)?, rows(&test)?];
        let context = FitContext { seed, ..*context };
        let settings = Settings { batch: config.batch, learning_rate: config.learning_rate, ..Settings::default() };
        for (name, objective) in PairObjective::named() {
            for (ritz, order) in [(true, RITZ), (false, OWN)] {
                let start = Instant::now();
                let eigenmap = ViewEigenmap {
                    objective,
                    ritz,
                    epochs: config.epochs,
                    settings: settings.clone(),
                    ..ViewEigenmap::new(config.net, config.k)
                };
                let code = eigenmap.fit(&fit, Some(&test), &context)?;
                augmentation = code.origin.kernel.trim_start_matches("views by ").to_owned();
                let seconds = start.elapsed().as_secs_f64();
                let accuracy = accuracies(&code, &fit, &test, &lengths)?;
                let certificate = &code.certificate;
                let (captured, residual) = (Some(certificate.captured), Some(certificate.mean_residual()));
                add(&mut codes, Code { objective: name.to_owned(), order, accuracy, captured, residual, seconds });
            }
        }
        let start = Instant::now();
        let pca = EmbeddingCode::new(config.k, Together::Linear).fit(fit.x.view(), &context)?;
        let accuracy = accuracies(&pca, &fit, &test, &lengths)?;
        let seconds = start.elapsed().as_secs_f64();
        let objective = "principal components of pixels".to_owned();
        add(&mut codes, Code { objective, order: VARIANCE, accuracy, captured: None, residual: None, seconds });
    }
    let share = 1.0 / config.runs as f64;
    for code in &mut codes {
        code.accuracy.iter_mut().chain(&mut code.captured).chain(&mut code.residual).for_each(|v| *v *= share);
        code.seconds *= share;
    }
    Ok(Results { config, augmentation, lengths, codes })
}

/// Adds the numbers of a run to those of the runs before.
fn add(codes: &mut Vec<Code>, new: Code) {
    let Some(old) = codes.iter_mut().find(|c| c.objective == new.objective && c.order == new.order) else {
        return codes.push(new);
    };
    old.accuracy.iter_mut().zip(&new.accuracy).for_each(|(old, new)| *old += new);
    for (old, new) in [(&mut old.captured, new.captured), (&mut old.residual, new.residual)] {
        *old = old.zip(new).map(|(a, b)| a + b);
    }
    old.seconds += new.seconds;
}

/// Accuracies of neighbours by the first coordinates, for each length; a code that is shorter has the accuracy of all of it.
fn accuracies(code: &FittedCode, fit: &ViewRows, test: &ViewRows, lengths: &[usize]) -> Result<Vec<f64>> {
    let (known, asked) = (code.transform(fit.x.view())?, code.transform(test.x.view())?);
    let [given, wanted] = [fit, test].map(|rows| rows.labels.as_deref().unwrap_or_default());
    let of = |m: &usize| {
        let first = s![.., ..(*m).min(known.ncols())];
        neighbour_accuracy((asked.slice(first), wanted), (known.slice(first), given))
    };
    Ok(lengths.iter().map(of).collect())
}

fn rows(data: &data::Dataset) -> Result<ViewRows> {
    let Some(Target::Classes { labels, .. }) = &data.y else {
        return Err(Error::input("digits have classes"));
    };
    let x = data.x.to_f64().into_owned();
    Ok(ViewRows { image: data.shape, labels: Some(labels.clone()), ..ViewRows::new(x) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_objective_has_a_code_in_both_orders() {
        let config = Config { epochs: 2, k: 4, ..Config::new(true, 0) };
        let found = run(config, &FitContext::default()).unwrap();
        assert_eq!(found.codes.len(), 2 * (PairObjective::all().len() + 1) + 1);
        for code in &found.codes {
            assert_eq!(code.accuracy.len(), found.lengths.len());
            assert!(code.accuracy.iter().all(|a| (0.05..=1.0).contains(a)), "{}: {:?}", code.objective, code.accuracy);
        }
    }
}
