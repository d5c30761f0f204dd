//! The figures of the experiment.

use super::targets::Link;
use super::{Config, Curve, Learner, Results};
use crate::statistics::Interval;
use mercer_figure::{Grid, Plot};

pub fn errors(found: &Results) -> String {
    let mut grid = Grid::new("Test error against the number of examples", 4).panel_size(190.0, 170.0).shared();
    for link in [Link::Quadratic, Link::Cubic] {
        for learner in Learner::ALL {
            let mut plot =
                Plot::new(format!("{}: {}", link.name(), learner.name())).x_log("examples n").y_log("error/variance");
            let of: Vec<&Curve> = found.curves.iter().filter(|c| c.link == link && c.learner == learner).collect();
            for (i, c) in of.iter().enumerate() {
                let share = 0.8 * i as f64 / (of.len() - 1).max(1) as f64;
                plot = plot.line(format!("d = {}", c.d), &c.examples(), &c.means()).markers().shade(share);
            }
            grid = grid.panel(plot);
        }
    }
    grid.svg()
}

/// Examples that are needed against d; and the degenerate target beside the other one of degree three.
pub fn needed(found: &Results, config: &Config) -> String {
    let mut needed = Plot::new("Examples needed, h_2 + h_3").x_log("dimension d").y_log("n at error 1/4");
    for (i, learner) in Learner::ALL.into_iter().enumerate() {
        let of: Vec<(f64, Interval)> = found
            .curves
            .iter()
            .filter(|c| c.link == Link::Cubic && c.learner == learner)
            .filter_map(|c| Some((c.d as f64, Interval::of(&c.all_needed()?))))
            .collect();
        let (d, n): (Vec<f64>, Vec<f64>) = of.iter().map(|(d, n)| (*d, n.mean)).unzip();
        needed = needed.line(learner.name(), &d, &n).markers().colour(i);
        let power = match learner {
            Learner::Rbf => 3.0,
            Learner::Network => 2.0,
            Learner::Ntk | Learner::Machine => continue,
        };
        if let (Some(d0), Some(n0)) = (d.first(), n.first()) {
            let law: Vec<f64> = d.iter().map(|d| n0 * (d / d0).powf(power)).collect();
            needed = needed.line(format!("d^{power}"), &d, &law).dashed().colour(i);
        }
    }
    let d = config.at_dimension;
    let mut angle = Plot::new(format!("Span found, d = {d}")).x_log("examples n").y("cosine");
    let cubic = found.curves.iter().filter(|c| c.d == d && c.link == Link::Cubic);
    for c in cubic.chain(&found.degenerate).filter(|c| c.last_recovered().is_some()) {
        let cosines: Vec<f64> = c.recovered.iter().map(|c| c.unwrap_or(f64::NAN)).collect();
        let colour = Learner::ALL.iter().position(|l| *l == c.learner).unwrap_or(0);
        angle = angle
            .line(format!("{}, {}", c.learner.name(), c.link.name()), &c.examples(), &cosines)
            .markers()
            .colour(colour);
        if c.link == Link::Degenerate {
            angle = angle.dashed();
        }
    }
    let mut degenerate = Plot::new(format!("Degenerate target h_3, d = {}", config.at_dimension))
        .x_log("examples n")
        .y_log("error/variance");
    for (i, c) in found.degenerate.iter().enumerate() {
        degenerate = degenerate.line(c.learner.name(), &c.examples(), &c.means()).markers().colour(i);
    }
    Grid::new("Hidden directions", 3).panel_size(230.0, 200.0).panel(needed).panel(angle).panel(degenerate).svg()
}
