//! The parts of a report on spectra; `mercer report`, `mercer fit --report` and `mercer demo` are made of them.

use crate::show::certificate::{HEADINGS, rows, sentences};
use crate::text;
use mercer::data::{Dataset, Target};
use mercer::spectrum::Spectrum;
use mercer::spectrum::neural::Training;
use mercer_figure::report::{Report, Table};
use mercer_figure::{Gallery, Grid, Plot};
use mercer_lab::method_colour;
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

/// The most functions that a figure shows.
const FUNCTIONS: usize = 8;

/// The ends of the colour scale of eigenfunctions, whose mean square is 1.
const ENDS: [f64; 2] = [-3.0, 3.0];

/// The eigenvalues of one spectrum, with its 95 % interval, and those of `others`.
pub fn eigenvalues(first: &Spectrum, others: &[Spectrum]) -> String {
    let js = indices(first);
    let bound = |side: usize| -> Vec<f64> {
        first.certificate.interval.iter().map(|i| i.map_or(f64::NAN, |i| i[side])).collect()
    };
    let mut plot = Plot::new("Eigenvalues").x("index j").y_log("eigenvalue μ_j");
    plot = plot.line(&first.origin.method, &js, &first.eigenvalues).band(&bound(0), &bound(1)).markers();
    plot = plot.colour(method_colour(&first.origin.method));
    for other in others {
        let method = &other.origin.method;
        plot = plot.scatter(method, &js, &other.eigenvalues).colour(method_colour(method));
    }
    plot.size(760.0, 400.0).svg()
}

/// The residual of every pair of all `spectra`.
pub fn residuals<'s>(spectra: impl IntoIterator<Item = &'s Spectrum>) -> String {
    let mut plot = Plot::new("Residuals").x("index j").y_log("residual");
    for spectrum in spectra {
        let values: Vec<f64> = spectrum.certificate.residual.iter().map(|r| r.unwrap_or(f64::NAN)).collect();
        let method = &spectrum.origin.method;
        plot = plot.line(method, &indices(spectrum), &values).markers().colour(method_colour(method));
    }
    plot.size(760.0, 400.0).svg()
}

fn indices(spectrum: &Spectrum) -> Vec<f64> {
    (1..=spectrum.k()).map(|j| j as f64).collect()
}

/// The certificate of a spectrum, pair by pair and in words.
pub fn certificate(report: Report, spectrum: &Spectrum, caption: &str) -> Report {
    let table = Table::of(&HEADINGS, &rows(&spectrum.eigenvalues, &spectrum.certificate));
    report.table(table.caption(caption)).text(&sentences(&spectrum.certificate).join("\n\n"))
}

/// The first functions `psi` `[n, k]` at points of the plane `z` `[n, 2]`, one panel each on one colour scale.
pub fn functions_on_plane(title: &str, labels: [&str; 2], z: ArrayView2<f64>, psi: ArrayView2<f64>) -> String {
    let (xs, ys) = plane(z);
    let mut grid = Grid::new(title, 4).panel_size(190.0, 160.0).shared().one_scale("ψ_j");
    for (j, function) in psi.axis_iter(Axis(1)).enumerate().take(FUNCTIONS) {
        let plot = Plot::new(name(j)).x(labels[0]).y(labels[1]).values("", &xs, &ys, &function.to_vec());
        grid = grid.panel(plot.diverging().scale(ENDS[0], ENDS[1]));
    }
    grid.svg()
}

/// The first functions `psi` `[n, k]` over the line, `x` `[n]`, one panel each.
pub fn functions_on_line(title: &str, label: &str, x: ArrayView1<f64>, psi: ArrayView2<f64>) -> String {
    let order = sorted(x);
    let xs: Vec<f64> = order.iter().map(|&i| x[i]).collect();
    let mut grid = Grid::new(title, 4).panel_size(190.0, 130.0).shared();
    for (j, function) in psi.axis_iter(Axis(1)).enumerate().take(FUNCTIONS) {
        let ys: Vec<f64> = order.iter().map(|&i| function[i]).collect();
        grid = grid.panel(Plot::new(name(j)).x(label).y("ψ_j(x)").line("", &xs, &ys));
    }
    grid.svg()
}

fn name(j: usize) -> String {
    format!("ψ_{{{}}}", j + 1)
}

/// The places of the values in increasing order.
fn sorted(values: ArrayView1<f64>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    order
}

/// The places of the `count` smallest and the `count` largest values, in increasing order of the value.
fn ends(values: ArrayView1<f64>, count: usize) -> Vec<usize> {
    let order = sorted(values);
    let n = order.len();
    order[..count.min(n)].iter().chain(&order[n.saturating_sub(count)..]).copied().collect()
}

/// The images at which the first functions `psi` `[n, k]` are lowest and highest; `None` unless the rows are grey images.
pub fn extremes(title: &str, data: &Dataset, psi: ArrayView2<f64>) -> Option<String> {
    let Some([1, height, width]) = data.shape else { return None };
    let mut gallery = Gallery::new(title, [height, width]);
    for (j, function) in psi.axis_iter(Axis(1)).enumerate().take(FUNCTIONS) {
        let chosen = ends(function, 6);
        let pixels: Vec<f64> = data.x.select(&chosen).into_f64().into_iter().collect();
        let captions: Vec<String> = chosen.iter().map(|&i| format!("{:+.1}", function[i])).collect();
        gallery = gallery.row(name(j), &pixels).captions(&captions);
    }
    Some(gallery.svg())
}

/// Points at the first two coordinates of `z` `[n, k]`, coloured by their target.
pub fn scatter(plot: Plot, z: ArrayView2<f64>, target: Option<&Target>) -> String {
    let (xs, ys) = plane(z);
    let plot = plot.size(680.0, 520.0);
    match target {
        Some(Target::Classes { labels, names }) => plot.classes(&xs, &ys, labels, names).svg(),
        Some(Target::Values(values)) => plot.values("target", &xs, &ys, values).svg(),
        None => plot.scatter("", &xs, &ys).svg(),
    }
}

/// The first two coordinates of `z` `[n, k]`.
fn plane(z: ArrayView2<f64>) -> (Vec<f64>, Vec<f64>) {
    (z.column(0).to_vec(), z.column(1).to_vec())
}

/// The two coordinates `√μ_j ψ_j` that vary most over the points, `[n, 2]`, and their names. None where fewer than two vary.
pub fn embedding(eigenvalues: &[f64], psi: ArrayView2<f64>) -> Option<(Array2<f64>, [String; 2])> {
    let variance = |j: usize| eigenvalues[j] * psi.column(j).var(0.0);
    let mut order: Vec<usize> = (0..psi.ncols()).filter(|&j| psi.nrows() > 0 && variance(j) > 0.0).collect();
    order.sort_by(|&a, &b| variance(b).total_cmp(&variance(a)));
    let (mut first, mut second) = (*order.first()?, *order.get(1)?);
    if first > second {
        (first, second) = (second, first);
    }
    let chosen = [first, second];
    let z = Array2::from_shape_fn((psi.nrows(), 2), |(i, c)| eigenvalues[chosen[c]].sqrt() * psi[[i, chosen[c]]]);
    Some((z, chosen.map(|j| format!("√μ_{{{0}}} ψ_{{{0}}}", j + 1))))
}

/// The loss and the validation residual over the steps of training.
pub fn learning(training: &Training) -> String {
    let curve = |title: &str, label: &str, points: &[[f64; 2]], log: bool| {
        let [xs, ys] = [0, 1].map(|i| points.iter().map(|p| p[i]).collect::<Vec<f64>>());
        let plot = Plot::new(title).x("step");
        if log { plot.y_log(label) } else { plot.y(label) }.line("", &xs, &ys)
    };
    Grid::new("Training", 2)
        .panel_size(330.0, 220.0)
        .panel(curve("Loss of the batches", "loss", &training.loss, false))
        .panel(curve("Residual on the validation points", "mean residual", &training.validation, true))
        .svg()
}

/// A table of two columns: what, and its value.
pub fn facts(facts: &[(&str, String)]) -> Table {
    let rows: Vec<Vec<String>> = facts.iter().map(|(what, value)| vec![(*what).into(), value.clone()]).collect();
    Table::of(&["", ""], &rows)
}

/// The program, its version and where it ran.
pub fn program() -> String {
    let threads = rayon::current_num_threads();
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("mercer {} on {os} ({arch}), {}", env!("CARGO_PKG_VERSION"), text::count(threads, "thread"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn the_embedding_takes_the_two_coordinates_that_vary_most() {
        // The first function is constant; of the others, √μ ψ varies by 0.2, 0.9 and 0.4 times ±1.
        let psi = array![[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, -1.0, 1.0], [1.0, 1.0, 1.0, -1.0], [1.0, -1.0, -1.0, -1.0]];
        let (z, names) = embedding(&[0.9, 0.04, 0.81, 0.16], psi.view()).unwrap();
        assert_eq!(names, ["√μ_{3} ψ_{3}", "√μ_{4} ψ_{4}"]);
        assert!((z[[1, 0]] + 0.9).abs() < 1e-15 && (z[[2, 1]] + 0.4).abs() < 1e-15);
        assert!(embedding(&[1.0, 0.5], array![[1.0, 1.0], [1.0, -1.0]].view()).is_none());
        assert!(embedding(&[1.0], array![[1.0], [-1.0]].view()).is_none());
    }

    #[test]
    fn both_ends_of_a_function_are_shown_in_its_order() {
        assert_eq!(ends(array![3.0, -1.0, 2.0, 0.0].view(), 1), [1, 0]);
        assert_eq!(ends(array![3.0, -1.0].view(), 6), [1, 0, 1, 0]);
    }
}
