//! Predictions over the whole line or plane that rows lie in, with their uncertainty.

use mercer::Result;
use mercer::apply::{Predict, interval_factor};
use mercer::data::{Scaler, Target};
use mercer_figure::{Grid, Plot};
use ndarray::{Array2, ArrayView2};

/// Points of the line.
const LINE: usize = 240;
/// Points of the plane, along each axis.
const PLANE: usize = 80;
/// Rows that are drawn, at most.
const SHOWN: usize = 500;
/// How far a drawing goes beyond the rows, in their range.
const MARGIN: f64 = 0.4;

/// The rows of a fit: features `[n, d]` as models see them, their names, the target, and how the features were scaled.
pub struct Rows<'a> {
    pub x: ArrayView2<'a, f64>,
    pub names: &'a [String],
    pub y: &'a Target,
    pub scaler: Option<&'a Scaler>,
}

impl Rows<'_> {
    /// What models make of the line or the plane around the rows, one panel each, with a caption; none for rows of more columns.
    pub fn drawn(&self, models: &[(&str, &dyn Predict)]) -> Result<Option<(String, &'static str)>> {
        Ok(match (self.x.ncols(), self.y) {
            (1, Target::Values(y)) => Some((self.bands(models, y)?, BANDS)),
            (1, Target::Classes { names, .. }) => Some((self.curves(models, names)?, CURVES)),
            (2, Target::Values(_)) => Some((self.maps(models, "deviation", deviations)?, DEVIATIONS)),
            (2, Target::Classes { .. }) => Some((self.maps(models, "entropy", entropies)?, ENTROPIES)),
            _ => None,
        })
    }

    /// The values of a column in the units of the data.
    fn unscaled(&self, column: usize, values: &[f64]) -> Vec<f64> {
        let (shift, scale) = self.scaler.map_or((0.0, 1.0), |scaler| (scaler.shift[column], scaler.scale[column]));
        let scale = if scale == 0.0 { 1.0 } else { scale };
        values.iter().map(|v| v / scale + shift).collect()
    }

    /// Evenly spaced values of a column, from below the rows to above them.
    fn axis(&self, column: usize, count: usize) -> Vec<f64> {
        let ends =
            self.x.column(column).iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        let width = (ends.1 - ends.0).max(1e-9);
        let at = |i: usize| ends.0 - MARGIN * width + (1.0 + 2.0 * MARGIN) * width * i as f64 / (count - 1) as f64;
        (0..count).map(at).collect()
    }

    /// Places of the rows that are drawn: all, or evenly spaced ones.
    fn shown(&self) -> Vec<usize> {
        let n = self.x.nrows();
        let count = n.min(SHOWN);
        (0..count).map(|i| i * n / count).collect()
    }

    fn column(&self, column: usize) -> Vec<f64> {
        let values: Vec<f64> = self.shown().iter().map(|&row| self.x[[row, column]]).collect();
        self.unscaled(column, &values)
    }

    fn name(&self, column: usize) -> &str {
        self.names.get(column).map_or("x", String::as_str)
    }

    fn bands(&self, models: &[(&str, &dyn Predict)], y: &[f64]) -> Result<String> {
        let (points, z) = (self.axis(0, LINE), interval_factor(0.95)?);
        let x = Array2::from_shape_vec((LINE, 1), points.clone()).expect("one column");
        let (xs, shown) = (self.unscaled(0, &points), self.shown());
        let values: Vec<f64> = shown.iter().map(|&row| y[row]).collect();
        // A posterior may be as wide as it likes where there are no rows: what is shown is the rows' range and as much on both sides.
        let (low, high) = y.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(*v), b.max(*v)));
        let range = (high - low).max(1e-9);
        let mut grid = Grid::new("Mean and 95 % intervals", columns(models)).panel_size(280.0, 190.0).shared();
        for (name, model) in models {
            let mean = model.scores(x.view())?.column(0).to_vec();
            let deviations = model.deviations(x.view())?.map_or_else(|| vec![0.0; LINE], |d| d.to_vec());
            let end = |sign: f64| mean.iter().zip(&deviations).map(|(m, s)| m + sign * z * s).collect::<Vec<f64>>();
            let plot = Plot::new(*name).x(self.name(0)).y("target").y_range(low - range, high + range);
            let plot = plot.scatter("", &self.column(0), &values).colour(7);
            grid = grid.panel(plot.line("", &xs, &mean).band(&end(-1.0), &end(1.0)).colour(0));
        }
        Ok(grid.svg())
    }

    fn curves(&self, models: &[(&str, &dyn Predict)], names: &[String]) -> Result<String> {
        let points = self.axis(0, LINE);
        let x = Array2::from_shape_vec((LINE, 1), points.clone()).expect("one column");
        let xs = self.unscaled(0, &points);
        let mut grid = Grid::new("Probabilities of the classes", columns(models)).panel_size(280.0, 190.0).shared();
        for (name, model) in models {
            let mut plot = Plot::new(*name).x(self.name(0)).y("probability").y_range(0.0, 1.0);
            if let Some(p) = model.probabilities(model.scores(x.view())?.view()) {
                for (column, class) in p.columns().into_iter().zip(names) {
                    plot = plot.line(class, &xs, &column.to_vec());
                }
            }
            grid = grid.panel(plot);
        }
        Ok(grid.svg())
    }

    /// A number at every point of the plane, by `of`, with the rows on it.
    fn maps(
        &self,
        models: &[(&str, &dyn Predict)],
        label: &str,
        of: fn(&dyn Predict, ArrayView2<f64>) -> Result<Vec<f64>>,
    ) -> Result<String> {
        let [a, b] = [0, 1].map(|column| self.axis(column, PLANE));
        let x = Array2::from_shape_fn((PLANE * PLANE, 2), |(i, j)| if j == 0 { a[i % PLANE] } else { b[i / PLANE] });
        let ends = |column: usize, axis: &[f64]| {
            let ends = self.unscaled(column, &[axis[0], axis[PLANE - 1]]);
            (ends[0], ends[1])
        };
        let title = if label == "entropy" { "Entropy of the probabilities" } else { "Deviation" };
        let mut grid = Grid::new(title, columns(models)).panel_size(230.0, 200.0).shared().one_scale(label);
        for (name, model) in models {
            let plot = Plot::new(*name).x(self.name(0)).y(self.name(1));
            let plot = plot.field(label, ends(0, &a), ends(1, &b), [PLANE, PLANE], &of(*model, x.view())?);
            let (xs, ys, shown) = (self.column(0), self.column(1), self.shown());
            grid = grid.panel(match self.y {
                Target::Classes { labels, names } => {
                    let labels: Vec<usize> = shown.iter().map(|&row| labels[row]).collect();
                    plot.classes(&xs, &ys, &labels, names)
                }
                Target::Values(_) => plot.scatter("", &xs, &ys).colour(7),
            });
        }
        Ok(grid.svg())
    }
}

const BANDS: &str = "The mean (line), the interval of 95 % with the noise (shade), and rows of the fit (points).";
const CURVES: &str = "The probability of every class along the line.";
const DEVIATIONS: &str = "The standard deviation over the plane, and rows of the fit.";
const ENTROPIES: &str = "The entropy of the predicted probabilities over the plane, and rows of the fit: where it is high, the classes are \
                         uncertain.";

fn columns(models: &[(&str, &dyn Predict)]) -> usize {
    models.len().clamp(1, 3)
}

fn deviations(model: &dyn Predict, x: ArrayView2<f64>) -> Result<Vec<f64>> {
    Ok(model.deviations(x)?.map_or_else(|| vec![0.0; x.nrows()], |d| d.to_vec()))
}

fn entropies(model: &dyn Predict, x: ArrayView2<f64>) -> Result<Vec<f64>> {
    let p = model.probabilities(model.scores(x)?.view());
    Ok(p.map_or_else(|| vec![0.0; x.nrows()], |p| mercer::apply::entropies(p.view())))
}
