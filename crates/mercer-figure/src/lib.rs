//! Figures: data in, one self-contained SVG out.
//!
//! - [`Plot`]: lines with bands, scatter plots, bars, heat maps and notes on one pair of axes;
//! - [`Grid`]: small multiples, plots in rows and columns that may share their axes;
//! - [`Gallery`]: rows of small grey images such as digits.
//!
//! ```ignore
//! let svg = Plot::new("Spectrum")
//!     .x_log("index j")
//!     .y_log("eigenvalue μ_j")
//!     .line("exact", &js, &exact)
//!     .dashed()
//!     .scatter("Nyström", &js, &nystrom)
//!     .svg();
//! ```
//!
//! Values without a place on their axis (not finite, or not positive on a logarithmic one) are left out;
//! a line breaks there. No data, however odd, makes a figure fail.

mod frame;
mod gallery;
mod grid;
mod layer;
mod legend;
mod marks;
mod palette;
mod plot;
mod png;
pub mod report;
mod svg;
mod ticks;

#[cfg(test)]
mod tests;

pub use gallery::Gallery;
pub use grid::Grid;
pub use plot::Plot;
pub use svg::escape;
