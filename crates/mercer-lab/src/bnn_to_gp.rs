//! The prior of finite Bayesian networks and the Gaussian process that it tends to.
//!
//! Given its hidden layers, the outputs of a network with Gaussian last weights are exactly Gaussian, with the covariance
//! `K̂ = (C_w/H) ΦΦᵀ` of the last hidden units `Φ`. The prior of a finite network is a mixture of these over K̂, and that of
//! the infinite one is K̂ = K, the NNGP. Expectations over the last layer are therefore exact here:
//!
//! * the maximum mean discrepancy of the two priors at twelve points, with the kernel `exp(−‖u−v‖²/2ℓ²)`, by
//!   `E exp(−‖u−v‖²/2ℓ²) = |I + (K̂+K̂')/ℓ²|^{−1/2}`;
//! * the marginal likelihood `E_{K̂} N(y; 0, K̂ + σ²I)` of data;
//! * the excess kurtosis of one output, `E f⁴/(E f²)² − 3 = 3 Var K̂(x,x)/K(x,x)²`, which for ReLU layers without biases is `3(1 + 5/H)^L − 3`.

use crate::statistics::{Interval, exponent, with_intervals};
use crate::wide::{Wide, tensor};
use crate::{Findings, Options, Shown, table};
use mercer::compute::{Device, Store, Tensor, gemm};
use mercer::kernel::Kernel;
use mercer::linalg::Cholesky;
use mercer::net::Mode;
use mercer::operator::gram;
use mercer::rng::Rng;
use mercer::{FitContext, Result};
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array1, Array2, s};
use serde::Serialize;
use serde_json::json;
use std::f64::consts::TAU;

config! {
    /// Widths H of the hidden layers.
    widths: Vec<usize> = vec![4, 16, 64, 256]; quick vec![4, 32]; published vec![4, 16, 64, 256, 1024, 10_000],
    /// Numbers L of hidden layers.
    depths: Vec<usize> = vec![1, 2, 4]; quick vec![1, 2]; published vec![1, 2, 3],
    /// Networks whose hidden layers are drawn for one estimate.
    networks: usize = 600; quick 150; published 500,
    /// Independent estimates.
    runs: usize = 5; quick 3,
}

/// Points of the cross-section of the discrepancy, and examples of the marginal likelihood.
const SECTION: usize = 12;
const EXAMPLES: usize = 20;
/// Columns of the inputs: two coordinates and the constant one.
const INPUTS: usize = 3;
/// Deviation of the noise on the examples.
const NOISE: f64 = 0.3;
/// Networks that are drawn at once.
const TOGETHER: usize = 20;

/// The hidden layers of a network.
fn hidden(width: usize, depth: usize) -> String {
    vec![format!("dense({width}, w_var=2, b=no) relu"); depth].join(" ")
}

/// Covariances `K̂` `[SECTION + EXAMPLES]²` of `count` networks at the points `x`.
fn covariances(width: usize, depth: usize, count: usize, x: &Tensor, rng: &mut Rng) -> Result<Vec<Array2<f64>>> {
    let (n, device) = (x.shape()[0], x.device());
    // Networks of a gigabyte are drawn one at a time.
    let together = if width > 2000 { 1 } else { TOGETHER };
    let mut nets = Wide::new(&hidden(width, depth), INPUTS, together, device, rng)?;
    let mut workspace = nets.network.workspace(device)?;
    let mut products = Tensor::zeros(device, &[together, n, n])?;
    let mut found = vec![];
    while found.len() < count {
        nets.draw(rng);
        let phi = nets.network.forward(&nets.theta, x, Mode::Eval, &mut workspace)?;
        gemm(2.0 / width as f32, phi.stack(), phi.stack().t(), Store::Replace, products.stack_mut());
        let values = products.to_host()?;
        let matrix = |v: &[f32]| Array2::from_shape_fn((n, n), |(i, j)| f64::from(v[i * n + j]));
        found.extend(values.chunks_exact(n * n).map(matrix));
    }
    found.truncate(count);
    Ok(found)
}

/// `log |I + A/ℓ²|` of a positive semi-definite matrix.
fn log_determinant(a: &Array2<f64>, scale: f64) -> Result<f64> {
    let mut shifted = a / scale;
    shifted.diag_mut().mapv_inplace(|v| v + 1.0);
    let factor = Cholesky::new(Device::Cpu, shifted.view())?;
    let lower = factor.lower()?;
    Ok(2.0 * (0..a.nrows()).map(|i| lower[(i, i)].ln()).sum::<f64>())
}

/// The squared discrepancy of the mixture over `sampled` covariances and the Gaussian of covariance `limit`, unbiased:
/// `mean_{i≠j} |I + (K̂_i+K̂_j)/ℓ²|^{−1/2} − 2 mean_i |I + (K̂_i+K)/ℓ²|^{−1/2} + |I + 2K/ℓ²|^{−1/2}`.
fn squared_discrepancy(sampled: &[Array2<f64>], limit: &Array2<f64>, scale: f64) -> Result<f64> {
    let value =
        |a: &Array2<f64>, b: &Array2<f64>| Ok::<f64, mercer::Error>((-0.5 * log_determinant(&(a + b), scale)?).exp());
    let n = sampled.len() as f64;
    let (mut own, mut cross) = (0.0, 0.0);
    for (i, a) in sampled.iter().enumerate() {
        cross += value(a, limit)?;
        for b in &sampled[..i] {
            own += 2.0 * value(a, b)?;
        }
    }
    Ok(own / (n * (n - 1.0)) - 2.0 * cross / n + value(limit, limit)?)
}

/// `log N(y; 0, K + σ²I)`
fn log_density(k: &Array2<f64>, y: &Array2<f64>) -> Result<f64> {
    let variance = NOISE * NOISE;
    let mut a = k.clone();
    a.diag_mut().mapv_inplace(|v| v + variance);
    let solved = Cholesky::new(Device::Cpu, a.view())?.solve(y.view())?;
    let determinant = log_determinant(k, variance)? + y.nrows() as f64 * variance.ln();
    Ok(-0.5 * ((y * &solved).sum() + determinant + y.nrows() as f64 * TAU.ln()))
}

/// `log mean_i e^{v_i}`
fn log_mean_exp(values: &[f64]) -> f64 {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + (values.iter().map(|v| (v - most).exp()).sum::<f64>() / values.len() as f64).ln()
}

/// Networks of one width and depth.
#[derive(Serialize)]
struct Measured {
    width: usize,
    depth: usize,
    /// The discrepancy, not squared; zero where its square is not above zero.
    discrepancy: Interval,
    /// `3 Var K̂(x,x)/K(x,x)²`, and `3(1 + 5/H)^L − 3`.
    kurtosis: Interval,
    kurtosis_expected: f64,
    /// `log p(y)` of the network minus that of the process.
    likelihood: Interval,
}

#[derive(Serialize)]
struct Rates {
    depth: usize,
    discrepancy: Interval,
    kurtosis: Interval,
    likelihood: Interval,
}

struct Results {
    measured: Vec<Measured>,
    rates: Vec<Rates>,
    /// `log p(y)` of the process, over data sets.
    process: Interval,
}

/// Points and examples of one run: rows (x₁, x₂, 1), and values of a smooth function with noise at the examples.
fn data(rng: &mut Rng) -> (Array2<f64>, Array2<f64>) {
    let x =
        Array2::from_shape_fn((SECTION + EXAMPLES, INPUTS), |(_, j)| if j + 1 < INPUTS { rng.normal() } else { 1.0 });
    let value = |i: usize| x[[SECTION + i, 0]] * x[[SECTION + i, 1]].sin();
    let y = Array2::from_shape_fn((EXAMPLES, 1), |(i, _)| value(i) + NOISE * rng.normal());
    (x, y)
}

/// The excess kurtosis `3(1 + 5/H)^L − 3` of an output: `f | K̂ ~ N(0, K̂)` has `E f⁴ = 3 E K̂²`.
fn expected_kurtosis(width: usize, depth: usize) -> f64 {
    3.0 * ((1.0 + 5.0 / width as f64).powi(depth as i32) - 1.0)
}

/// The squared discrepancy, the excess kurtosis of an output and the difference of the marginal likelihoods in one run.
fn estimate(width: usize, depth: usize, run: usize, config: &Config, device: Device) -> Result<[f64; 4]> {
    let rng = Rng::new(config.seed).fork(run as u64);
    let (x, y) = data(&mut rng.fork(1));
    let kernel = Kernel::parse(&format!("nngp('{} dense(1, w_var=2, b=no)')", hidden(1, depth)))?;
    let limit = gram::<f64>(&kernel, x.view(), Device::Cpu)?;
    let points = tensor(x.view(), device)?;
    let mut weights = rng.fork(2).fork((width * 100 + depth) as u64);
    let sampled = covariances(width, depth, config.networks, &points, &mut weights)?;
    let section = |k: &Array2<f64>| k.slice(s![..SECTION, ..SECTION]).to_owned();
    let examples = |k: &Array2<f64>| k.slice(s![SECTION.., SECTION..]).to_owned();
    let (here, scale) = (section(&limit), 2.0 * limit.diag().mean().unwrap_or(1.0) * SECTION as f64);
    let sections: Vec<Array2<f64>> = sampled.iter().map(section).collect();
    let squared = squared_discrepancy(&sections, &here, scale)?;
    // The relative variance is the same at all points: a mean over them.
    let variance = |i: usize| {
        let values: Array1<f64> = sampled.iter().map(|k| k[[i, i]] / limit[[i, i]]).collect();
        values.var(1.0)
    };
    let kurtosis = 3.0 * (0..x.nrows()).map(variance).sum::<f64>() / x.nrows() as f64;
    let densities = sampled.iter().map(|k| log_density(&examples(k), &y)).collect::<Result<Vec<f64>>>()?;
    let process = log_density(&examples(&limit), &y)?;
    Ok([squared, kurtosis, log_mean_exp(&densities) - process, process])
}

fn run(config: &Config, context: &FitContext<'_>) -> Result<Results> {
    let (mut measured, mut rates, mut process) = (vec![], vec![], vec![]);
    let widths: Vec<f64> = config.widths.iter().map(|w| *w as f64).collect();
    for &depth in &config.depths {
        let mut all: [Vec<Vec<f64>>; 3] = Default::default();
        for (i, &width) in config.widths.iter().enumerate() {
            context.progress.step(&format!("{depth} layers"), i, config.widths.len(), &format!("width {width}"));
            let found = (0..config.runs).map(|r| estimate(width, depth, r, config, context.device));
            let found = found.collect::<Result<Vec<[f64; 4]>>>()?;
            let of = |i: usize| found.iter().map(|f| f[i]).collect::<Vec<f64>>();
            let discrepancies: Vec<f64> = of(0).iter().map(|v| v.max(0.0).sqrt()).collect();
            process = of(3);
            measured.push(Measured {
                width,
                depth,
                discrepancy: Interval::of(&discrepancies),
                kurtosis: Interval::of(&of(1)),
                kurtosis_expected: expected_kurtosis(width, depth),
                likelihood: Interval::of(&of(2)),
            });
            all[0].push(discrepancies);
            all[1].push(of(1));
            all[2].push(of(2).iter().map(|v| v.abs()).collect());
        }
        // The rate is that of the widths whose discrepancy is above zero in all runs.
        let seen = all[0].iter().take_while(|v| v.iter().all(|v| *v > 0.0)).count();
        let [discrepancy, kurtosis, likelihood] = all;
        rates.push(Rates {
            depth,
            discrepancy: exponent(&widths[..seen], &discrepancy[..seen]),
            kurtosis: exponent(&widths, &kurtosis),
            likelihood: exponent(&widths, &likelihood),
        });
    }
    Ok(Results { measured, rates, process: Interval::of(&process) })
}

fn figure(found: &Results, config: &Config) -> String {
    let mut plots = [
        Plot::new("Discrepancy from the NNGP").x_log("width H").y_log("MMD"),
        Plot::new("Excess kurtosis").x_log("width H").y_log("E f⁴/(E f²)² − 3"),
        Plot::new("Marginal likelihood").x_log("width H").y("log p(y) − process"),
    ];
    let widths: Vec<f64> = config.widths.iter().map(|w| *w as f64).collect();
    for (c, depth) in config.depths.iter().enumerate() {
        let of: Vec<&Measured> = found.measured.iter().filter(|m| m.depth == *depth).collect();
        let values: [fn(&Measured) -> Interval; 3] = [|m| m.discrepancy, |m| m.kurtosis, |m| m.likelihood];
        for (i, (plot, value)) in plots.iter_mut().zip(values).enumerate() {
            let (values, lowest) = (of.iter().map(|m| value(m)).collect::<Vec<_>>(), (i < 2).then_some(5.0));
            *plot = with_intervals(std::mem::take(plot), format!("L = {depth}"), &widths, &values, lowest).colour(c);
        }
        let expected: Vec<f64> = of.iter().map(|m| m.kurtosis_expected).collect();
        plots[1] = std::mem::take(&mut plots[1])
            .line(if c == 0 { "3(1 + 5/H)^{L} − 3" } else { "" }, &widths, &expected)
            .dashed()
            .colour(6);
    }
    let grid = Grid::new("Priors of finite networks", 3).panel_size(230.0, 200.0);
    plots.into_iter().fold(grid, Grid::panel).svg()
}

const EXPECTATION: &str = "the prior of a network of L layers of width H tends to the NNGP with a discrepancy of order L/H; the excess kurtosis \
     of an output is 3(1 + 5/H)^L − 3 exactly; the marginal likelihood of data tends to that of the process like 1/H.";

fn observation(found: &Results) -> String {
    let rates = |f: fn(&Rates) -> Interval| {
        found.rates.iter().map(|r| format!("{} for L = {}", f(r).text(), r.depth)).collect::<Vec<_>>().join(", ")
    };
    let off = |m: &&Measured| !m.kurtosis.holds(m.kurtosis_expected);
    let missed: Vec<String> =
        found.measured.iter().filter(off).map(|m| format!("H = {}, L = {}", m.width, m.depth)).collect();
    let kurtosis = match missed.is_empty() {
        true => "its interval holds the exact value in all cases".to_owned(),
        false => format!("its interval misses the exact value for {}", missed.join("; ")),
    };
    let (narrow, wide) = (&found.measured[0], &found.measured[found.measured.len() - 1]);
    format!(
        "the exponents of the discrepancy in H are {}; those of the kurtosis {}, and {kurtosis}; those of the difference of the marginal \
         likelihoods {}. log p(y) of the process is {}; that of networks differs by {} at H = {}, L = {} and by {} at H = {}, L = {}.",
        rates(|r| r.discrepancy),
        rates(|r| r.kurtosis),
        rates(|r| r.likelihood),
        found.process.text(),
        narrow.likelihood.text(),
        narrow.width,
        narrow.depth,
        wide.likelihood.text(),
        wide.width,
        wide.depth
    )
}

fn verdict(found: &Results) -> String {
    let rates: Vec<String> =
        found.rates.iter().map(|r| format!("{} for L = {}", r.discrepancy.text(), r.depth)).collect();
    format!("the prior of networks tends to the NNGP like a power of the width: the exponents are {}", rates.join(", "))
}

fn setting(config: &Config) -> String {
    format!(
        "Networks of L layers \"{}\" and a linear read-out, at {SECTION} standard normal points of the plane, with a column of ones. For each width and \
         depth the hidden layers of {} networks are drawn, {} times; the expectation over the read-out is exact. The discrepancy has \
         the kernel exp(−‖u−v‖²/2ℓ²) with ℓ² twice the expected ‖u‖². The marginal likelihood is that of {EXAMPLES} examples of x₁ sin x₂ with \
         noise of deviation {NOISE}, new ones in every run. ± is a 95 % interval over runs.",
        hidden(0, 1).replace("(0,", "(H,"),
        config.networks,
        config.runs
    )
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let config = Config::new(options, context.seed);
    let found = run(&config, context)?;
    let figure = figure(&found, &config);
    let (setting, observation, verdict) = (setting(&config), observation(&found), verdict(&found));
    let title = "From Bayesian networks to a Gaussian process";
    let findings = Findings { title, setting, expectation: EXPECTATION, observation, verdict };
    let rows = table(
        &found.measured,
        &[
            ("layers L", |m| m.depth.to_string()),
            ("width H", |m| m.width.to_string()),
            ("MMD", |m| m.discrepancy.text()),
            ("excess kurtosis", |m| m.kurtosis.text()),
            ("expected", |m| text::number(m.kurtosis_expected, 3)),
            ("log p(y) − process", |m| m.likelihood.text()),
        ],
    );
    let rates = table(
        &found.rates,
        &[
            ("layers L", |r| r.depth.to_string()),
            ("exponent, MMD", |r| r.discrepancy.text()),
            ("exponent, kurtosis", |r| r.kurtosis.text()),
            ("exponent, |log p − process|", |r| r.likelihood.text()),
        ],
    );
    let text = findings.text(&[&rows, &rates]);
    let report = findings
        .report(&["f | Φ ~ N(0, K̂),  K̂ = (C_w/H) Φ Φ^T → K^{l+1} = C_w E_{u~N(0,K^l)} φ(u) φ(u)^T"])
        .section("By width and depth")
        .figure(&figure, "The discrepancy of the priors, the excess kurtosis with its exact value (dashed), and the marginal likelihood, with 95 % intervals.")
        .table(rows)
        .section("Rates of convergence")
        .table(rates);
    let numbers =
        json!({ "plan": config, "measured": found.measured, "rates": found.rates, "verdict": findings.verdict });
    Ok(Shown { figure, report, numbers, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the definition, with values drawn from both Gaussians.
    #[test]
    fn the_discrepancy_is_that_of_its_definition() {
        let mut rng = Rng::new(1);
        let (a, b) = (ndarray::array![[1.0, 0.3], [0.3, 0.5]], ndarray::array![[2.0, -0.4], [-0.4, 1.0]]);
        let scale = 1.5;
        let found = squared_discrepancy(&[a.clone(), a.clone()], &b, scale).unwrap();
        let draws = 8000;
        let mut normal = |k: &Array2<f64>| {
            let factor = Cholesky::new(Device::Cpu, k.view()).unwrap();
            let l = factor.lower().unwrap();
            let z = [rng.normal(), rng.normal()];
            [l[(0, 0)] * z[0], l[(1, 0)] * z[0] + l[(1, 1)] * z[1]]
        };
        let (u, v): (Vec<[f64; 2]>, Vec<[f64; 2]>) = (0..draws).map(|_| (normal(&a), normal(&b))).unzip();
        let mean = |u: &[[f64; 2]], v: &[[f64; 2]]| {
            let value =
                |u: &[f64; 2], v: &[f64; 2]| (-((u[0] - v[0]).powi(2) + (u[1] - v[1]).powi(2)) / (2.0 * scale)).exp();
            let pairs = u
                .iter()
                .enumerate()
                .flat_map(|(i, u)| v.iter().enumerate().filter(move |(j, _)| i != *j).map(move |(_, v)| value(u, v)));
            pairs.sum::<f64>() / (draws * (draws - 1)) as f64
        };
        let want = mean(&u, &u) - 2.0 * mean(&u, &v) + mean(&v, &v);
        assert!((found - want).abs() < 5e-3, "{found} {want}");
        assert!(squared_discrepancy(&[a.clone(), a.clone()], &a, scale).unwrap().abs() < 1e-12);
    }

    /// One point, K = 2: the density of N(0, 2 + σ²); and the mean of exponentials of two numbers.
    #[test]
    fn densities_are_those_of_gaussians() {
        let (y, variance) = (ndarray::array![[0.7]], 2.0 + NOISE * NOISE);
        let want = -0.5 * (0.49 / variance + (TAU * variance).ln());
        assert!((log_density(&ndarray::array![[2.0]], &y).unwrap() - want).abs() < 1e-12);
        assert!((log_mean_exp(&[-1000.0, -1000.0 + 3f64.ln()]) - (-1000.0 + 2f64.ln())).abs() < 1e-9);
    }

    /// Outputs drawn from networks themselves have the excess kurtosis of the closed form.
    #[test]
    fn outputs_have_the_excess_kurtosis_that_is_shown() {
        let x = tensor(ndarray::array![[0.5, -1.0, 1.0], [2.0, 0.1, 1.0]].view(), Device::Cpu).unwrap();
        let mut rng = Rng::new(7);
        // f = √K̂ z: mean of f⁴ over (mean of f²)², less 3.
        let covariances = covariances(20, 1, 6000, &x, &mut rng).unwrap();
        let outputs: Vec<f64> =
            covariances.iter().flat_map(|k| [0; 8].map(|_| k[[0, 0]].sqrt() * rng.normal())).collect();
        let moment = |power: i32| outputs.iter().map(|f| f.powi(power)).sum::<f64>() / outputs.len() as f64;
        let found = moment(4) / moment(2).powi(2) - 3.0;
        assert!((found / expected_kurtosis(20, 1) - 1.0).abs() < 0.25, "{found} {}", expected_kurtosis(20, 1));
    }

    /// `Var K̂/K² = (1 + 5/H)^L − 1`, and means are those of the NNGP.
    #[test]
    fn covariances_have_the_variance_of_the_closed_form() {
        let x = tensor(ndarray::array![[0.5, -1.0, 1.0], [2.0, 0.1, 1.0]].view(), Device::Cpu).unwrap();
        for (width, depth) in [(10, 1), (20, 3)] {
            let found = covariances(width, depth, 6000, &x, &mut Rng::new(2)).unwrap();
            let text = format!("nngp('{} dense(1, w_var=2, b=no)')", hidden(1, depth));
            let want = Kernel::parse(&text).unwrap().value(&[0.5, -1.0, 1.0], &[0.5, -1.0, 1.0]);
            let values: Array1<f64> = found.iter().map(|k| k[[0, 0]] / want).collect();
            let expected = (1.0 + 5.0 / width as f64).powi(depth as i32) - 1.0;
            assert!((values.mean().unwrap() - 1.0).abs() < 0.05, "{:?}", values.mean());
            assert!((values.var(1.0) / expected - 1.0).abs() < 0.15, "{} {expected}", values.var(1.0));
        }
    }
}
