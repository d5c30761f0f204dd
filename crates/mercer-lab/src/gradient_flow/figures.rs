//! The figures of the experiment.

use super::Results;
use crate::statistics::{Interval, with_intervals};
use mercer_figure::{Grid, Plot};

/// The share of the colours from dark to light that the i-th of n lines has.
fn shade(i: usize, n: usize) -> f64 {
    i as f64 / (n.max(2) - 1) as f64 * 0.8
}

pub fn decay(found: &Results) -> String {
    let mut decay = Plot::new("|u_j(t)/u_j(0)|").x_log("time t").y_log("|u_j(t)/u_j(0)|").y_range(1e-4, 2.0);
    let n = found.example.len();
    for (j, (times, measured, predicted)) in found.example.iter().enumerate() {
        let sizes: Vec<f64> = measured.iter().map(|r| r.abs()).collect();
        decay = decay
            .line(format!("predicted, j = {}", j + 1), times, predicted)
            .shade(shade(j, n))
            .scatter("", times, &sizes)
            .shade(shade(j, n));
    }
    let widths: Vec<f64> = found.errors.iter().map(|e| e.0 as f64).collect();
    let errors: Vec<Interval> = found.errors.iter().map(|e| e.1).collect();
    let power: Vec<f64> = widths.iter().map(|w| errors[0].mean * (widths[0] / w).sqrt()).collect();
    let error = Plot::new("Distance from the prediction").x_log("width").y_log("max ‖u − prediction‖/‖u(0)‖");
    let error = with_intervals(error, "measured, 95 % interval", &widths, &errors, Some(10.0))
        .line("width^{−1/2}", &widths, &power)
        .dashed();
    Grid::new("Gradient descent in the eigenbasis of the NTK", 2)
        .panel_size(330.0, 240.0)
        .panel(decay)
        .panel(error)
        .svg()
}

pub fn filters(found: &Results) -> String {
    let mut grid = Grid::new("Share of a direction that is learnt", 2).panel_size(330.0, 220.0);
    let curve: Vec<f64> = (0..=140).map(|i| 10f64.powf(-4.0 + 0.05 * f64::from(i))).collect();
    for growth in &found.growth {
        let mut plot = Plot::new(growth.activation).x_log("μ_j t").y("share");
        let of = |f: fn(f64) -> f64| curve.iter().map(|s| f(*s)).collect::<Vec<f64>>();
        plot = plot
            .line("1 − exp(−μt)", &curve, &of(|s| 1.0 - (-s).exp()))
            .line("ridge, μ/(μ + 1/t)", &curve, &of(|s| s / (1.0 + s)))
            .dashed();
        for (i, (t, at, share)) in growth.filters.iter().enumerate() {
            plot = plot.scatter(format!("networks, t = {}/μ_1", t.round()), at, share).colour(2 + i);
        }
        grid = grid.panel(plot);
    }
    grid.svg()
}

pub fn growth(found: &Results) -> String {
    let mut grid = Grid::new("Directions learnt against time", 2).panel_size(330.0, 220.0);
    for growth in &found.growth {
        let plot = Plot::new(growth.activation).x_log("μ_1 t");
        let plot = if growth.activation == "relu" { plot.y_log("directions") } else { plot.y("directions") };
        let seen: Vec<usize> = (0..growth.times.len()).filter(|&i| growth.measured[i] > 0.0).collect();
        let pick = |v: &[f64]| seen.iter().map(|&i| v[i]).collect::<Vec<f64>>();
        let times = pick(&growth.times);
        grid = grid.panel(plot.line("predicted", &times, &pick(&growth.predicted)).scatter(
            "measured",
            &times,
            &pick(&growth.measured),
        ));
    }
    grid.svg()
}
