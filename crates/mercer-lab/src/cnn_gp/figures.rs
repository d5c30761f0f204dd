//! Figures of the results, and the columns of their table.

use super::{Found, JOINT, PUBLISHED, Row, percent};
use crate::{Column, coordinates, indices};
use mercer_figure::{Grid, Plot, text};

/// The published accuracy of the same method and kernel.
fn published(row: &Row) -> Option<f64> {
    PUBLISHED.iter().find(|p| (p.0, p.1) == (row.method, row.kernel)).map(|p| p.2)
}

pub(super) fn overview(found: &Found, quick: bool) -> String {
    // The methods of the right panel have the colours before these.
    const HERE: usize = 5;
    let short = |row: &Row| match row.kernel {
        "CNN-GP" => "",
        "polynomial" => "poly:",
        _ => "RBF:",
    };
    let names: Vec<String> = found.rows.iter().map(|row| format!("{} {}", short(row), row.method)).collect();
    let bars = |plot: Plot, name: &str, share: fn(&Row) -> f64| {
        plot.bars(name, &names, &found.rows.iter().map(|row| 100.0 * share(row)).collect::<Vec<f64>>())
    };
    let accuracy = Plot::new("Test accuracy").y("accuracy, %").y_range(0.0, 100.0);
    let mut accuracy = bars(accuracy, "here", |row| row.accuracy).colour(HERE);
    if !quick {
        accuracy = bars(accuracy, "published", |row| published(row).unwrap_or(f64::NAN)).colour(HERE + 1);
    }
    let mut spectrum = Plot::new("Eigenvalues of CNN-GP").x("pair").y_log("μ");
    for row in found.rows.iter().filter(|row| row.kernel == "CNN-GP") {
        spectrum = spectrum.line(row.method, &indices(row.eigenvalues.len()), &row.eigenvalues).markers();
    }
    Grid::new("Ten functions of a network's Gaussian process on MNIST", 2)
        .panel_size(460.0, 260.0)
        .panel(accuracy)
        .panel(spectrum)
        .svg()
}

const SHOWN: usize = 1500;

pub(super) fn embeddings(found: &Found) -> String {
    let shown = &found.labels[..SHOWN.min(found.labels.len())];
    let digits: Vec<String> = (0..10).map(|digit| digit.to_string()).collect();
    let mut grid = Grid::new("Test images in the coordinates of the eigenfunctions", 2).panel_size(300.0, 240.0);
    for row in found.rows.iter().filter(|row| [JOINT, "exact"].contains(&row.method)) {
        for (a, b) in [(0, 1), (2, 3)].into_iter().filter(|(_, b)| *b < row.functions.ncols()) {
            let title = format!("{}, {}", row.method, row.kernel);
            grid = grid.panel(coordinates(title, &row.functions, [a, b], shown, &digits));
        }
    }
    grid.svg()
}

/// Headings.
pub(super) const ACCURACY: &str = "test accuracy, %";
pub(super) const COMPARED: &str = "published, %";
pub(super) const COST: &str = "multiply-adds per new image";

/// The columns of the table of methods.
pub(super) const COLUMNS: [Column<Row>; 9] = [
    ("method", |row| row.method.into()),
    ("kernel", |row| row.kernel.into()),
    (ACCURACY, |row| percent(row.accuracy)),
    (COMPARED, |row| published(row).map_or(text::GAP.into(), percent)),
    ("fitted images, %", |row| percent(row.fitted)),
    ("seconds to fit", |row| format!("{:.1}", row.seconds)),
    ("random networks per new image", |row| text::grouped(row.networks)),
    (COST, |row| text::grouped(row.multiply_adds)),
    ("mean residual", |row| text::error(row.residual)),
];
