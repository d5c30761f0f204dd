//! The eigenvalues of a kernel decay at a rate that depends on the dimension of the data, not on that of the ambient space.
//!
//! For an RBF on d-dimensional data, `log μ_j` falls like `j^{1/d}` (on bounded data faster by a logarithm, which bends the
//! line down). Data on a curve or a sheet in ten dimensions has the spectrum of one- or two-dimensional data. A polynomial
//! kernel of degree p in d dimensions has finite rank `C(d+p, p)`.

use crate::{Options, Shown, indices, sentence, table};
use mercer::apply::filter::{Decay, decay, numerical_rank};
use mercer::compute::Device;
use mercer::kernel::Kernel;
use mercer::linalg::eigh;
use mercer::operator::gram;
use mercer::rng::Rng;
use mercer::{Error, FitContext, Result, fail_if};
use mercer_figure::report::Report;
use mercer_figure::{Grid, Plot, text};
use ndarray::{Array2, ArrayView2};
use serde::Serialize;
use serde_json::json;

/// Dimension of the space in which the sheets are embedded.
const AMBIENT: usize = 10;
/// Eigenvalues below this share of the largest are rounding error.
const FLOOR: f64 = 1e-12;
/// n random points determine about n/8 eigenvalues well; the others are too small.
const POINTS_PER_EIGENVALUE: usize = 8;

/// The spectrum of one kernel on one data set.
#[derive(Serialize)]
struct Series {
    name: String,
    intrinsic: usize,
    ambient: usize,
    lengthscale: f64,
    /// `μ_j` of `K/n`, descending, without those that are rounding error.
    eigenvalues: Vec<f64>,
    /// The line fitted to `log μ_j` against `j^{1/d}` for the intrinsic d.
    line: Decay,
    /// The same for the ambient D.
    ambient_line: Decay,
    /// The integer d for which R² of the line is largest.
    straightest: usize,
    verdict: String,
}

#[derive(Debug, Serialize)]
struct PolynomialRank {
    /// d
    dimension: usize,
    /// p
    degree: usize,
    /// `C(d+p, p)`
    expected: usize,
    found: usize,
    verdict: String,
}

#[derive(Serialize)]
struct Results {
    n: usize,
    /// Uniform cubes of dimension 1, 2 and 3, smooth embeddings of them into ten dimensions, and the ten-dimensional cube.
    dimensions: Vec<Series>,
    /// The interval and the square at several lengthscales.
    lengthscales: Vec<Series>,
    ranks: Vec<PolynomialRank>,
    dimension_verdict: String,
    lengthscale_verdict: String,
}

pub fn reproduce(options: &Options, context: &FitContext<'_>) -> Result<Shown> {
    let n = if options.quick { 300 } else { 1000 };
    let found = run(n, context.seed, context)?;
    let figure = spectra(&found.dimensions);
    let decays = table(
        &found.dimensions,
        &[
            ("data", |s| s.name.clone()),
            ("d", |s| s.intrinsic.to_string()),
            ("space", |s| s.ambient.to_string()),
            ("rate", |s| text::number(s.line.rate, 3)),
            ("R² at 1/d", |s| format!("{:.4}", s.line.r2)),
            ("R² at 1/space", |s| format!("{:.4}", s.ambient_line.r2)),
            ("straightest at 1/", |s| s.straightest.to_string()),
        ],
    );
    let ranks = table(
        &found.ranks,
        &[
            ("d", |r| r.dimension.to_string()),
            ("degree p", |r| r.degree.to_string()),
            ("C(d+p, p)", |r| r.expected.to_string()),
            ("rank found", |r| r.found.to_string()),
        ],
    );
    let report = Report::new("Eigenvalue decay and the dimension of the data")
        .lead(&sentence(&found.dimension_verdict))
        .section("Dimension")
        .text(&format!(
            "{n} points, uniform on cubes of dimension d and on smooth sheets of dimension d in ten dimensions, with an RBF \
             of lengthscale 1. For such data the logarithm of the eigenvalues falls like the index to the power 1/d."
        ))
        .figure(&figure, &spectra_caption(&found.dimensions))
        .figure(
            &lines(&found.dimensions),
            &format!(
                "The first {} eigenvalues of the sheets at most, against the index to the power 1/d, with the fitted lines.",
                n / POINTS_PER_EIGENVALUE
            ),
        )
        .table(decays)
        .section("Lengthscale")
        .text(&sentence(&found.lengthscale_verdict))
        .figure(
            &lengthscales(&found.lengthscales),
            "Wider kernels have fewer large eigenvalues. Here colours stand for lengthscales, from dark (narrow) to light (wide).",
        )
        .section("Polynomial kernels")
        .text("A polynomial kernel of degree p in d dimensions has finite rank C(d+p, p).")
        .table(ranks);
    let mut text: String = found.dimensions.iter().map(|s| format!("{}: {}\n", s.name, s.verdict)).collect();
    text += &format!("\n{}\n{}\n\n", sentence(&found.dimension_verdict), sentence(&found.lengthscale_verdict));
    text.extend(found.ranks.iter().map(|r| format!("{}\n", sentence(&r.verdict))));
    Ok(Shown { figure, report, text, numbers: json!(found) })
}

/// What the curves show: how many eigenvalues are above a millionth of the largest, for cube and sheet of each dimension.
///
/// The map `u ↦ 2√(2/D) cos(uW + b)` stretches lengths by `√((8/D) Σ_i W_i² sin²(…)) ≈ 2`.
fn spectra_caption(all: &[Series]) -> String {
    let of = |d: usize, sheet: bool| all.iter().find(|s| s.intrinsic == d && (s.intrinsic < s.ambient) == sheet);
    let counts = (1..AMBIENT).filter_map(|d| {
        let [cube, sheet] = [of(d, false)?, of(d, true)?].map(above_millionth);
        Some(format!("{cube} and {sheet} for d = {d}"))
    });
    let (counts, full) = (counts.collect::<Vec<_>>().join(", "), of(AMBIENT, false).map_or(0, above_millionth));
    format!(
        "Cubes (solid) and sheets (dashed); one colour for each dimension d. A sheet is stretched to about twice the size of its \
         cube, so that its eigenvalues fall later. Cube and sheet have this many above a millionth of the largest: {counts}; the \
         cube of {AMBIENT} dimensions has {full}."
    )
}

/// The position of the colour of dimension `d`.
fn colour(d: usize) -> usize {
    d.min(4) - 1
}

fn spectra(all: &[Series]) -> String {
    let mut plot = Plot::new("Eigenvalues of an RBF on data of dimension d").x_log("index j").y_log("eigenvalue μ_j");
    for s in all {
        // Cube and sheet of the same dimension have the same colour.
        plot = plot.line(&s.name, &indices(s.eigenvalues.len()), &s.eigenvalues).colour(colour(s.intrinsic));
        if s.intrinsic < s.ambient {
            plot = plot.dashed();
        }
    }
    plot.size(720.0, 460.0).svg()
}

fn lines(all: &[Series]) -> String {
    const BLACK: usize = 6;
    let mut grid = Grid::new("Straight lines against the index to the power 1/d", 3).panel_size(210.0, 170.0);
    for s in all.iter().filter(|s| s.intrinsic < s.ambient) {
        let power = |j: &f64| j.powf(1.0 / s.intrinsic as f64);
        let xs: Vec<f64> = indices(s.line.count).iter().map(power).collect();
        let fitted: Vec<f64> = xs.iter().map(|x| (s.line.intercept - s.line.rate * x).exp()).collect();
        let fitted_values = &s.eigenvalues[..s.line.count.min(s.eigenvalues.len())];
        let label = if s.intrinsic == 1 { "j".into() } else { format!("j^{{1/{}}}", s.intrinsic) };
        grid = grid.panel(
            Plot::new(format!("sheet, d = {}", s.intrinsic))
                .x(label)
                .y_log("μ_j")
                .scatter(format!("sheet, d = {}", s.intrinsic), &xs, fitted_values)
                .colour(colour(s.intrinsic))
                .line("fitted line", &xs, &fitted)
                .colour(BLACK),
        );
    }
    grid.svg()
}

fn lengthscales(all: &[Series]) -> String {
    let mut grid = Grid::new("Eigenvalues by lengthscale", 2).panel_size(300.0, 220.0);
    for d in [1, 2] {
        let mut plot = Plot::new(format!("cube, d = {d}")).x_log("index j").y_log("eigenvalue μ_j");
        let of: Vec<&Series> = all.iter().filter(|s| s.intrinsic == d).collect();
        for (i, s) in of.iter().enumerate() {
            let (js, share) = (indices(s.eigenvalues.len()), i as f64 / (of.len() - 1).max(1) as f64);
            plot = plot.line(format!("lengthscale {}", s.lengthscale), &js, &s.eigenvalues).shade(share);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

/// Runs the experiment with `n` points per data set, at least 200.
fn run(n: usize, seed: u64, context: &FitContext<'_>) -> Result<Results> {
    const LENGTHSCALES: [f64; 4] = [0.25, 0.5, 1.0, 2.0];
    fail_if!(n < 200, "the eigenvalue decay needs at least 200 points per data set, got {n}");
    let total = 7 + 2 * LENGTHSCALES.len() + 1;
    let mut done = 0;
    let mut step = |name: &str| {
        done += 1;
        context.progress.step("eigenvalue-decay", done, total, name);
    };
    let rng = Rng::new(seed);
    // Uniform points of [−1, 1]^d, [n, d].
    let cube = |d: usize| {
        let mut rng = rng.fork(d as u64);
        Array2::from_shape_simple_fn((n, d), || 2.0 * rng.uniform() - 1.0)
    };
    let mut series = |name: String, x: Array2<f64>, d: usize, lengthscale: f64| {
        let found = series(name, x.view(), d, lengthscale)?;
        step(&found.name);
        Ok::<Series, Error>(found)
    };
    let mut dimensions = Vec::new();
    for d in 1..=3 {
        dimensions.push(series(format!("cube, d = {d}"), cube(d), d, 1.0)?);
        let sheet = embedded(cube(d).view(), AMBIENT, &mut rng.fork(100 + d as u64));
        dimensions.push(series(format!("sheet of d = {d} in {AMBIENT} dimensions"), sheet, d, 1.0)?);
    }
    dimensions.push(series(format!("cube, d = {AMBIENT}"), cube(AMBIENT), AMBIENT, 1.0)?);
    let mut lengthscales = Vec::new();
    for (d, l) in [1, 2].into_iter().flat_map(|d| LENGTHSCALES.map(|l| (d, l))) {
        lengthscales.push(series(format!("cube, d = {d}, lengthscale {l}"), cube(d), d, l)?);
    }
    let ranks = [(1, 4), (2, 3), (3, 2), (3, 3)].map(|(d, p)| polynomial_rank(cube(d).view(), p));
    step("polynomial ranks");
    Ok(Results {
        n,
        dimension_verdict: dimension_verdict(&dimensions),
        lengthscale_verdict: lengthscale_verdict(&lengthscales),
        ranks: ranks.into_iter().collect::<Result<_>>()?,
        dimensions,
        lengthscales,
    })
}

/// Points on a smooth sheet: `2√(2/D) cos(uW + b)` `[n, D]` for coordinates `u` `[n, d]`, with W normal and b uniform.
fn embedded(u: ArrayView2<f64>, ambient: usize, rng: &mut Rng) -> Array2<f64> {
    let w = rng.normals((u.ncols(), ambient));
    let b = Array2::from_shape_simple_fn((1, ambient), || std::f64::consts::TAU * rng.uniform());
    (u.dot(&w) + b).mapv(|angle| 2.0 * (2.0 / ambient as f64).sqrt() * angle.cos())
}

/// Eigenvalues of `K/n`, descending.
fn eigenvalues(kernel: &Kernel, x: ArrayView2<f64>) -> Result<Vec<f64>> {
    let (λ, _) = eigh(Device::Cpu, gram::<f64>(kernel, x, Device::Cpu)?.view())?;
    Ok(λ.into_iter().map(|λ| λ / x.nrows() as f64).collect())
}

fn series(name: String, x: ArrayView2<f64>, intrinsic: usize, lengthscale: f64) -> Result<Series> {
    let ambient = x.ncols();
    let μ = eigenvalues(&Kernel::parse(&format!("rbf({lengthscale})"))?, x)?;
    let μ = &μ[..numerical_rank(&μ, FLOOR)];
    let accurate = &μ[..μ.len().min(x.nrows() / POINTS_PER_EIGENVALUE)];
    let at = |d: usize| decay(accurate, d as f64, FLOOR);
    let (line, ambient_line) = (at(intrinsic)?, at(ambient)?);
    let r2 = (1..=AMBIENT).map(|d| Ok(at(d)?.r2)).collect::<Result<Vec<f64>>>()?;
    // Of equal values, the last is taken: the smallest dimension.
    let straightest = (1..=AMBIENT).rev().max_by(|a, b| r2[a - 1].total_cmp(&r2[b - 1])).unwrap_or(1);
    Ok(Series {
        name,
        intrinsic,
        ambient,
        lengthscale,
        eigenvalues: μ.to_vec(),
        verdict: verdict(intrinsic, ambient, &line, &ambient_line),
        line,
        ambient_line,
        straightest,
    })
}

fn verdict(intrinsic: usize, ambient: usize, line: &Decay, ambient_line: &Decay) -> String {
    let line_fit = format!("log μ_j against j^(1/{intrinsic}) is a line with R² = {:.4}", line.r2);
    if intrinsic == ambient {
        return format!("{line_fit}, rate {:.2}", line.rate);
    }
    let (word, other) = if line.r2 > ambient_line.r2 { ("follows", "only") } else { ("does not follow", "but") };
    let r2 = ambient_line.r2;
    format!("{line_fit}, against j^(1/{ambient}) {other} with {r2:.4}: the spectrum {word} the dimension of the data")
}

/// Number of eigenvalues above a millionth of the largest.
fn above_millionth(series: &Series) -> usize {
    numerical_rank(&series.eigenvalues, 1e-6)
}

fn dimension_verdict(all: &[Series]) -> String {
    let sheets: Vec<&Series> = all.iter().filter(|s| s.intrinsic < s.ambient).collect();
    let follow = sheets.iter().filter(|s| s.line.r2 > s.ambient_line.r2).count();
    let counts: Vec<String> =
        sheets.iter().map(|s| format!("{} for d = {}", above_millionth(s), s.intrinsic)).collect();
    let full = all.iter().find(|s| s.intrinsic == AMBIENT).map_or(0, above_millionth);
    format!(
        "{follow} of {} sheets in {AMBIENT} dimensions have the decay of their own dimension; eigenvalues above a millionth of \
         the largest: {}, but {full} for data that fills the {AMBIENT} dimensions",
        sheets.len(),
        counts.join(", ")
    )
}

/// By the law `exp(−Cℓ²j^{1/d})` the rate would grow like ℓ²; on bounded data it grows like log ℓ.
fn lengthscale_verdict(all: &[Series]) -> String {
    let of = |d: usize| all.iter().filter(move |s| s.intrinsic == d);
    let grows = |d: usize| of(d).zip(of(d).skip(1)).all(|(a, b)| b.line.rate > a.line.rate);
    let rates = |d: usize| of(d).map(|s| format!("{:.2}", s.line.rate)).collect::<Vec<_>>().join(", ");
    let ratio = |d: usize| match (of(d).next(), of(d).next_back()) {
        (Some(a), Some(b)) => (b.line.rate / a.line.rate, (b.lengthscale / a.lengthscale).powi(2)),
        _ => (f64::NAN, f64::NAN),
    };
    let word = if grows(1) && grows(2) { "grows" } else { "does not always grow" };
    let lengthscales = of(1).map(|s| s.lengthscale.to_string()).collect::<Vec<_>>().join(", ");
    let ((on_line, square), (on_square, _), [rates1, rates2]) = (ratio(1), ratio(2), [1, 2].map(rates));
    format!(
        "the rate of decay {word} with the lengthscale: at {lengthscales} it is {rates1} for d = 1 and {rates2} for d = 2; the square \
         of the lengthscale grows {square:.0}-fold over these, the rate {on_line:.1}- and {on_square:.1}-fold"
    )
}

/// The rank of `(x·x' + 1)^p` on points `[n, d]`: the number of eigenvalues that are not numerically zero.
fn polynomial_rank(x: ArrayView2<f64>, degree: usize) -> Result<PolynomialRank> {
    let d = x.ncols();
    let μ = eigenvalues(&Kernel::parse(&format!("poly(degree={degree}, offset=1)"))?, x)?;
    let (expected, found) = (binomial(d + degree, degree), numerical_rank(&μ, FLOOR));
    let word = if expected == found { "as expected" } else { "which differs" };
    let verdict = format!("degree {degree}, d = {d}: rank {found}, C({}, {degree}) = {expected}, {word}", d + degree);
    Ok(PolynomialRank { dimension: d, degree, expected, found, verdict })
}

/// `C(n, k)`.
fn binomial(n: usize, k: usize) -> usize {
    (1..=k).fold(1, |c, i| c * (n - k + i) / i)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomials() {
        assert_eq!([binomial(5, 4), binomial(5, 3), binomial(6, 3), binomial(20, 10)], [5, 10, 20, 184_756]);
    }

    #[test]
    fn spectra_follow_the_dimension_of_the_data() {
        let report = run(500, 0, &FitContext::default()).unwrap();
        let sheets: Vec<&Series> = report.dimensions.iter().filter(|s| s.intrinsic < s.ambient).collect();
        assert_eq!(sheets.len(), 3);
        for s in &sheets {
            assert!(s.line.r2 > s.ambient_line.r2 + 0.01 && s.line.r2 > 0.95, "{}", s.verdict);
        }
        // The decay is slower in higher dimensions.
        let counts: Vec<usize> = sheets.iter().map(|s| above_millionth(s)).collect();
        assert!(counts[0] * 3 < counts[1] && counts[1] * 2 < counts[2], "{counts:?}");
        // The caption has the numbers of the curves, and what it says of them holds.
        let caption = spectra_caption(&report.dimensions);
        for s in &sheets {
            let cube =
                report.dimensions.iter().find(|c| c.intrinsic == s.intrinsic && c.ambient == s.intrinsic).unwrap();
            assert!(above_millionth(cube) < above_millionth(s), "{}", s.name);
            let said = format!("{} and {} for d = {}", above_millionth(cube), above_millionth(s), s.intrinsic);
            assert!(caption.contains(&said), "{caption}");
        }
        for d in [1, 2] {
            let of: Vec<&Series> = report.lengthscales.iter().filter(|s| s.intrinsic == d).collect();
            assert!(of.windows(2).all(|w| w[1].line.rate > w[0].line.rate));
        }
        assert!(report.ranks.iter().all(|r| r.found == r.expected), "{:?}", report.ranks);
        assert!(run(50, 0, &FitContext::default()).is_err());
    }
}
