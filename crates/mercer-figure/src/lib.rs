//! SVG figures and HTML reports. Every figure is one self-contained SVG document.
//!
//! - [`Plot`]: lines with bands, scatter plots, bars and heat maps on one pair of axes;
//! - [`Grid`]: plots in rows and columns that may share their axes;
//! - [`Gallery`]: rows of small images such as digits;
//! - [`report::Report`]: an HTML page with text, tables and figures;
//! - [`to_png`]: the pixels of a figure;
//! - [`text`]: numbers and tables as plain text.
//!
//! Values that cannot be shown on their axis (not finite, or not positive on a logarithmic axis) are left out, and a line
//! is interrupted there. No data makes a figure fail.

mod frame;
mod gallery;
mod grid;
mod layer;
mod legend;
mod palette;
mod plot;
mod png;
mod raster;
pub mod report;
mod svg;
pub mod text;
mod ticks;

#[cfg(test)]
mod tests;

pub use gallery::Gallery;
pub use grid::Grid;
pub use plot::Plot;
pub use raster::to_png;
