//! Rows of small images, such as digits and photographs.

use super::frame::{fit, fit_title};
use super::palette::Map;
use super::png;
use super::svg::{Canvas, Rect, Style, text_width};

/// Rows of images of one shape. Each row has a name, and each image may have a caption.
#[derive(Clone, Debug)]
pub struct Gallery {
    title: String,
    shape: [usize; 2],
    coloured: bool,
    /// Name, pixels and captions of each row.
    rows: Vec<(String, Vec<f64>, Vec<String>)>,
}

const GAP: f64 = 6.0;

impl Gallery {
    /// An empty gallery of images with that many rows and columns of pixels.
    pub fn new(title: impl Into<String>, shape: [usize; 2]) -> Gallery {
        Gallery { title: title.into(), shape, coloured: false, rows: Vec::new() }
    }

    /// The images have colours: `pixels` of a row is `[images, 3, rows, columns]`, red, green and blue in [0, 1].
    pub fn coloured(mut self) -> Gallery {
        self.coloured = true;
        self
    }

    /// Adds a row of images. `pixels` is `[images, rows, columns]`, one after the other; the smallest value of each
    /// image becomes white and its largest black.
    pub fn row(mut self, name: impl Into<String>, pixels: &[f64]) -> Gallery {
        self.rows.push((name.into(), pixels.to_vec(), Vec::new()));
        self
    }

    /// Captions below the images of the last row.
    pub fn captions(mut self, captions: &[impl AsRef<str>]) -> Gallery {
        if let Some(row) = self.rows.last_mut() {
            row.2 = captions.iter().map(|c| c.as_ref().to_owned()).collect();
        }
        self
    }

    /// The figure as a self-contained SVG document.
    pub fn svg(&self) -> String {
        let [height, width] = self.shape;
        let size = height * width * if self.coloured { 3 } else { 1 };
        // Whole screen pixels for each image pixel, about sixty for the image.
        let scale = if size == 0 { 1.0 } else { (60.0 / height.max(width) as f64).round().max(1.0) };
        let (w, h) = (width as f64 * scale, height as f64 * scale);
        let names = self.rows.iter().map(|(name, ..)| text_width(name, 12.0)).fold(0.0, f64::max);
        let left = 14.0 + if names > 0.0 { names + 12.0 } else { 0.0 };
        let longest = self.rows.iter().map(|(_, pixels, _)| pixels.len() / size.max(1)).max().unwrap_or(0);
        let total = (left + longest as f64 * (w + GAP) + 10.0).max(160.0);

        let mut c = Canvas::default();
        let mut y = 14.0;
        if !self.title.is_empty() {
            c.text(
                (14.0, 24.0),
                &self.title,
                Style { bold: true, ..Style::new(fit_title(&self.title, 15.0, total - 28.0)) },
            );
            y = 40.0;
        }
        for (name, pixels, captions) in &self.rows {
            c.text((left - 12.0, y + h / 2.0 + 4.0), name, Style::new(12.0).end());
            for (i, image) in pixels.chunks_exact(size.max(1)).enumerate().filter(|_| size > 0) {
                let at = Rect { x: left + i as f64 * (w + GAP), y, w, h };
                let uri = match self.coloured {
                    true => png::colour_uri(width, height, &colours(image)),
                    false => png::data_uri(width, height, &levels(image), Map::Grey),
                };
                c.image(at, &uri, true);
                c.rect(at.grown(0.5), r##"fill="none" stroke="#ddd""##);
                if let Some(caption) = captions.get(i) {
                    let style = Style::new(fit(caption, 11.0, w + GAP)).middle();
                    c.text((at.x + w / 2.0, at.bottom() + 13.0), caption, style);
                }
            }
            y += h + GAP + if captions.is_empty() { 0.0 } else { 14.0 };
        }
        c.finish(total, y + 8.0, &self.title)
    }
}

/// The image scaled to [0, 1]; a constant image is not changed.
fn levels(image: &[f64]) -> Vec<f64> {
    let known = image.iter().copied().filter(|v| v.is_finite());
    let (lo, hi) = known.fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), v| (lo.min(v), hi.max(v)));
    image.iter().map(|&v| if hi > lo { (v - lo) / (hi - lo) } else { v }).collect()
}

/// The colours of an image `[3, rows, columns]`.
fn colours(image: &[f64]) -> Vec<[u8; 3]> {
    let byte = |v: f64| (255.0 * v.clamp(0.0, 1.0)).round() as u8;
    let size = image.len() / 3;
    (0..size).map(|i| [0, 1, 2].map(|c| byte(image[c * size + i]))).collect()
}
