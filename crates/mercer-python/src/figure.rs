//! Figures as SVG.

use mercer_figure::Plot;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Eigenvalues `[k]` on a logarithmic axis, within their intervals; NaN where there is none.
#[pyfunction]
pub fn spectrum_figure(
    eigenvalues: PyReadonlyArray1<'_, f64>,
    low: PyReadonlyArray1<'_, f64>,
    high: PyReadonlyArray1<'_, f64>,
) -> String {
    let [μ, low, high] = [eigenvalues, low, high].map(|values| values.as_array().to_vec());
    let js: Vec<f64> = (1..=μ.len()).map(|j| j as f64).collect();
    let plot = Plot::new("Eigenvalues").x("index j").y_log("eigenvalue μ_j");
    plot.line("eigenvalues", &js, &μ).band(&low, &high).markers().size(760.0, 400.0).svg()
}

/// Points `[n]` of the plane, coloured by class `[n]` where there are some.
#[pyfunction]
#[pyo3(signature = (title, x, y, classes, names))]
pub fn scatter_figure(
    title: &str,
    x: PyReadonlyArray1<'_, f64>,
    y: PyReadonlyArray1<'_, f64>,
    classes: Option<Vec<usize>>,
    names: Vec<String>,
) -> String {
    let [xs, ys] = [x, y].map(|values| values.as_array().to_vec());
    let plot = Plot::new(title).x("first coordinate").y("second coordinate");
    match classes {
        Some(classes) => plot.classes(&xs, &ys, &classes, &names),
        None => plot.scatter("points", &xs, &ys),
    }
    .svg()
}
