//! Plots in rows and columns (small multiples).

use super::frame::{Margins, Show, fit_title, with_factor};
use super::layer::Layer;
use super::legend::{Entry, Place, colour_bar_width, draw_colour_bar, legend_rows};
use super::palette::Map;
use super::plot::Plot;
use super::svg::{Canvas, Rect, Style};
use super::ticks::Span;

/// Plots in rows and columns under one title and one legend.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    title: String,
    columns: usize,
    panels: Vec<Plot>,
    shared: bool,
    size: (f64, f64),
    /// The name of the colour bar of all panels.
    bar: Option<String>,
}

impl Grid {
    /// An empty grid with that many columns.
    pub fn new(title: impl Into<String>, columns: usize) -> Grid {
        Grid { title: title.into(), columns: columns.max(1), size: (190.0, 130.0), ..Grid::default() }
    }

    /// Width and height of the axes of each panel in pixels (default 190 × 130).
    pub fn panel_size(mut self, width: f64, height: f64) -> Grid {
        self.size = (width.clamp(40.0, 5e3), height.clamp(40.0, 5e3));
        self
    }

    /// All panels show the same ranges, and the axes are labelled once (with the labels of the first panel).
    pub fn shared(mut self) -> Grid {
        self.shared = true;
        self
    }

    /// Gives the values, matrices and fields of all panels the same colours for the same values, and one colour bar called
    /// `label`.
    pub fn one_scale(mut self, label: impl Into<String>) -> Grid {
        self.bar = Some(label.into());
        self
    }

    /// Adds a panel: left to right, then top to bottom.
    pub fn panel(mut self, plot: Plot) -> Grid {
        self.panels.push(plot);
        self
    }

    /// The figure as a self-contained SVG document.
    pub fn svg(&self) -> String {
        let mut grid = self.clone();
        let bar = grid.share_colours();
        grid.drawn(bar)
    }

    /// Gives all panels one range of values for their colours, where they have one scale.
    fn share_colours(&mut self) -> Option<(String, Span, Map)> {
        let label = self.bar.clone()?;
        let coloured = || self.panels.iter().flat_map(|panel| &panel.layers);
        let map = coloured().find(|layer| layer.colour_span().is_some())?.map;
        let span = coloured().filter_map(Layer::colour_span).reduce(Span::union)?;
        for layer in self.panels.iter_mut().flat_map(|panel| &mut panel.layers) {
            if layer.colour_span().is_some() {
                (layer.scale, layer.name) = (Some((span.lo, span.hi)), String::new());
            }
        }
        Some((label, span, map))
    }

    fn drawn(&self, bar: Option<(String, Span, Map)>) -> String {
        let spans = self.spans();
        let columns = self.columns.min(self.panels.len()).max(1);
        let rows = self.panels.len().div_ceil(columns);
        let (w, h) = self.size;
        let margins: Vec<Margins> = (0..self.panels.len())
            .map(|i| self.panels[i].margins(spans[i], (w, h), self.show(i, columns), Place::Nowhere))
            .collect();
        // Every column has the width, and every row the height, of its largest panel.
        let most = |room: fn(&Margins) -> f64, chosen: &dyn Fn(usize) -> bool| {
            let all = margins.iter().enumerate().filter(|(i, _)| chosen(*i));
            all.map(|(_, m)| room(m)).fold(0.0, f64::max)
        };
        // The names of the common axes; empty where each panel has its own.
        let (x_label, y_label) = self.panels.first().filter(|_| self.shared).map_or_else(Default::default, |plot| {
            let (x, y) = plot.ticks(spans[0], self.size);
            (with_factor(&plot.x.label, &x), with_factor(&plot.y.label, &y))
        });
        let mut lefts = Vec::new();
        let mut x = if y_label.is_empty() { 0.0 } else { 20.0 };
        for column in 0..columns {
            lefts.push(x + most(|m| m.left, &|i| i % columns == column));
            x = lefts[column] + w + most(|m| m.right, &|i| i % columns == column);
        }
        let bar_left = x + 8.0;
        let bar_room = bar.as_ref().map_or(0.0, |(label, span, _)| 8.0 + colour_bar_width(label, *span) + 8.0);
        let width = (x + bar_room).max(120.0);
        let entries = self.entries();
        let mut y = if self.title.is_empty() { 4.0 } else { 34.0 };
        let legend_top = y;
        y += legend_rows(None, (0.0, 0.0), width - 24.0, &entries);
        let top = y;
        let mut tops = Vec::new();
        for row in 0..rows {
            tops.push(y + most(|m| m.top, &|i| i / columns == row));
            y = tops[row] + h + most(|m| m.bottom, &|i| i / columns == row);
        }
        let height = y + if x_label.is_empty() { 4.0 } else { 20.0 };

        let mut c = Canvas::default();
        c.text(
            (12.0, 24.0),
            &self.title,
            Style { bold: true, ..Style::new(fit_title(&self.title, 15.0, width - 24.0)) },
        );
        legend_rows(Some(&mut c), (12.0, legend_top), width - 24.0, &entries);
        for (i, plot) in self.panels.iter().enumerate() {
            let at = Rect { x: lefts[i % columns], y: tops[i / columns], w, h };
            plot.draw(&mut c, spans[i], at, self.show(i, columns), Place::Nowhere);
        }
        c.text(((lefts[0] + x) / 2.0, height - 9.0), &x_label, Style::new(12.5).middle());
        c.text((16.0, (top + y) / 2.0), &y_label, Style { turn: -90.0, ..Style::new(12.5).middle() });
        if let Some((label, span, map)) = &bar {
            let bottom = tops.last().map_or(top, |last| last + h);
            let at = Rect { x: bar_left, y: tops.first().copied().unwrap_or(top), w: 12.0, h: 0.0 };
            draw_colour_bar(&mut c, Rect { h: (bottom - at.y).max(0.0), ..at }, label, *span, *map);
        }
        c.finish(width, height, &self.title)
    }

    /// Which texts panel `i` writes around its axes.
    fn show(&self, i: usize, columns: usize) -> Show {
        let (leftmost, lowest) = (i.is_multiple_of(columns), i + columns >= self.panels.len());
        let (x_ticks, y_ticks) = (!self.shared || lowest, !self.shared || leftmost);
        Show { x_ticks, y_ticks, labels: !self.shared, title: 12.0 }
    }

    fn spans(&self) -> Vec<(Span, Span)> {
        let own: Vec<_> = self.panels.iter().map(Plot::spans).collect();
        let common = own.iter().copied().reduce(|a, b| (a.0.union(b.0), a.1.union(b.1)));
        match common {
            Some(both) if self.shared => vec![both; own.len()],
            _ => own,
        }
    }

    /// The legend entries of all panels, each once.
    fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for entry in self.panels.iter().flat_map(Plot::legend_entries) {
            if !entries.contains(&entry) {
                entries.push(entry);
            }
        }
        entries
    }
}
