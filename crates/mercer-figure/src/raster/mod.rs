//! Figures as pixels: draws the elements of SVG that the figures of this crate are made of, and no others.

mod elements;
mod letters;
mod path;
mod pixels;

use elements::{Element, elements};
use letters::Letters;
use pixels::Pixels;

/// A point in pixels; y grows downwards.
type Point = (f64, f64);

/// Pixels for each unit of the SVG: sharp on screens of high density, and in print.
const SCALE: f64 = 2.0;

/// The PNG image of a figure's SVG document, two pixels for each of its units.
///
/// ```
/// let svg = mercer_figure::Plot::new("A line").line("", &[0.0, 1.0], &[0.0, 1.0]).size(300.0, 200.0).svg();
/// let png = mercer_figure::to_png(&svg);
/// assert!(png.starts_with(b"\x89PNG"));
/// assert_eq!(png[16..24], [0, 0, 2, 88, 0, 0, 1, 144]); // 600 × 400 pixels
/// ```
pub fn to_png(svg: &str) -> Vec<u8> {
    drawn(svg).png()
}

fn drawn(svg: &str) -> Pixels {
    let letters = Letters::load();
    let mut pixels: Option<Pixels> = None;
    for element in elements(svg) {
        match (element, &mut pixels) {
            (Element::Open { width, height, .. }, None) => {
                pixels = Some(Pixels::white((SCALE * width).round() as usize, (SCALE * height).round() as usize));
            }
            (Element::Open { x, y, width, height }, Some(p)) => {
                p.clip([x, y, x + width, y + height].map(|v| SCALE * v))
            }
            (Element::Close, Some(p)) => p.unclip(),
            (Element::Shape { outlines, paint }, Some(p)) => {
                p.shape(&path::scaled(&outlines, SCALE), &paint.scaled(SCALE))
            }
            (Element::Image { at, image, sharp }, Some(p)) => p.image(at.map(|v| SCALE * v), &image, sharp),
            (Element::Text(text), Some(p)) => {
                p.shape(&path::scaled(&letters.outlines(&text), SCALE), &text.paint.scaled(SCALE));
            }
            _ => {}
        }
    }
    pixels.unwrap_or_else(|| Pixels::white(1, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an image of 100 × 100 units with these elements holds of black, in square units.
    fn ink(body: &str) -> f64 {
        let svg = format!(r##"<svg width="100" height="100" fill="#000">{body}</svg>"##);
        drawn(&svg).darkness() / (SCALE * SCALE)
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 0.01 * expected.abs() + 0.02, "{found} {expected}");
    }

    #[test]
    fn shapes_have_their_areas() {
        close(ink(r#"<rect x="10" y="20.3" width="30.5" height="7" />"#), 30.5 * 7.0);
        close(ink(r#"<path d="M10 10l20 0l-20 30z"/>"#), 300.0);
        // A disc of two half circles, and one of a line of no length with round ends.
        close(ink(r#"<path d="M30 50a20 20 0 1 0 40 0a20 20 0 1 0 -40 0z"/>"#), std::f64::consts::PI * 400.0);
        close(
            ink(r##"<path d="M50 50h0" stroke="#000" stroke-width="40" stroke-linecap="round"/>"##),
            std::f64::consts::PI * 400.0,
        );
        // Two squares inside each other: filled once where they turn the same way, and a hole where they do not.
        close(ink(r#"<path d="M10 10H50V50H10ZM20 20H40V40H20Z"/>"#), 1600.0);
        close(ink(r#"<path d="M10 10H50V50H10ZM20 20V40H40V20Z"/>"#), 1200.0);
        close(ink(r#"<rect x="10" y="10" width="10" height="10" fill-opacity=".25"/>"#), 25.0);
    }

    #[test]
    fn lines_have_the_area_of_their_length_width_and_dashes() {
        let line =
            |more: &str| ink(&format!(r##"<path d="M10 50H90" fill="none" stroke="#000" stroke-width="4"{more}/>"##));
        close(line(""), 320.0);
        close(line(r#" stroke-linecap="round""#), 320.0 + 4.0 * std::f64::consts::PI);
        close(line(r#" stroke-dasharray="6 4""#), 0.6 * 320.0);
        close(line(r#" stroke-opacity=".5""#), 160.0);
        close(ink(r##"<rect x="10" y="10" width="30" height="20" fill="none" stroke="#000"/>"##), 2.0 * (30.0 + 20.0));
        // Crossing parts of one stroke are painted once.
        let cross =
            ink(r##"<path d="M10 50H90M50 10V90" fill="none" stroke="#000" stroke-width="4" stroke-opacity=".5"/>"##);
        close(cross, (2.0 * 320.0 - 16.0) / 2.0);
    }

    #[test]
    fn nested_documents_clip_and_images_are_stretched() {
        close(
            ink(
                r#"<svg x="20" y="20" width="10" height="10" viewBox="20 20 10 10"><rect x="0" y="0" width="25" height="99" /></svg><rect x="90" y="0" width="1" height="1" />"#,
            ),
            51.0,
        );
        // Four cells: white, mid grey, black and transparent.
        let uri = crate::png::data_uri(2, 2, &[0.0, 0.5, 1.0, f64::NAN], crate::palette::Map::Grey);
        let image =
            format!(r#"<image x="10" y="10" width="40" height="20" style="image-rendering:pixelated" href="{uri}"/>"#);
        let svg = format!(r#"<svg width="100" height="100">{image}</svg>"#);
        let pixels = drawn(&svg);
        let at = |x: f64, y: f64| pixels.at((SCALE * x) as usize, (SCALE * y) as usize)[0];
        let grey = crate::palette::Map::Grey.at(127.0 / 254.0)[0];
        assert_eq!(
            [at(12.0, 12.0), at(48.0, 12.0), at(12.0, 28.0), at(48.0, 28.0), at(52.0, 12.0)],
            [255, grey, 0, 255, 255]
        );
    }

    #[test]
    fn text_is_set_at_its_anchor_with_indices_and_turned() {
        // DejaVu's minus sign is a rectangle of 1282 × 170 units of 1/2048 of the font size.
        let minus = |size: f64| 1282.0 * 170.0 * (size / 2048.0).powi(2);
        close(ink(r#"<text x="10" y="50" font-size="40">−</text>"#), minus(40.0));
        close(
            ink(r#"<text x="50" y="50" font-size="40" text-anchor="middle" transform="rotate(-90 50 50)">−</text>"#),
            minus(40.0),
        );
        close(
            ink(r#"<text x="10" y="50" font-size="40">−<tspan dy="8" font-size="30">−</tspan></text>"#),
            minus(40.0) + minus(30.0),
        );
        // What is before the anchor and what is after it.
        let halves = |anchor: &str| {
            let text = format!(r#"<text x="50" y="50" font-size="40" text-anchor="{anchor}">−</text>"#);
            [0, 50].map(|x| {
                ink(&format!(r#"<svg x="{x}" y="0" width="50" height="100" viewBox="{x} 0 50 100">{text}</svg>"#))
            })
        };
        let [before, after] = halves("middle");
        close(before, after);
        assert!(halves("start")[0] == 0.0 && halves("end")[1] == 0.0);
        // Letters that the outlines do not have are boxes, not nothing.
        assert!(ink(r#"<text x="10" y="50" font-size="40">漢</text>"#) > 10.0);
        assert_eq!(ink(r#"<text x="10" y="50" font-size="40"> </text>"#), 0.0);
        assert!(
            ink(r#"<text x="10" y="50" font-size="40" font-weight="600">a</text>"#)
                > 1.2 * ink(r#"<text x="10" y="50" font-size="40">a</text>"#)
        );
        close(
            ink(r#"<text x="10" y="50" font-size="40">&lt;&amp;</text>"#),
            ink(r#"<text x="10" y="50" font-size="40">&lt;</text>"#)
                + ink(r#"<text x="60" y="50" font-size="40">&amp;</text>"#),
        );
    }

    #[test]
    fn long_titles_stay_inside() {
        let title = "Function error of each pair, against the exact functions of the points";
        let plot = || crate::Plot::new("").line("", &[0.0, 1.0], &[0.0, 1.0]);
        let pixels = drawn(&crate::Grid::new(title, 2).panel_size(250.0, 190.0).panel(plot()).panel(plot()).svg());
        let edge = (0..60).flat_map(|y| (pixels.width - 8..pixels.width).map(move |x| (x, y)));
        assert!(edge.into_iter().all(|(x, y)| pixels.at(x, y) == [255; 3]));
        let inked = (0..60).any(|y| (pixels.width * 3 / 4..pixels.width).any(|x| pixels.at(x, y)[0] < 128));
        assert!(inked, "the title uses the room that there is");
    }

    #[test]
    fn every_figure_has_its_size_and_ink() {
        for (name, svg) in crate::tests::samples() {
            let pixels = drawn(&svg);
            let size = |key: &str| {
                svg.split(&format!(" {key}=\"")).nth(1).unwrap().split('"').next().unwrap().parse::<f64>().unwrap()
            };
            assert_eq!(
                [pixels.width, pixels.height],
                [size("width"), size("height")].map(|v| (SCALE * v).round() as usize),
                "{name}"
            );
            assert!(pixels.darkness() > 100.0, "{name}");
        }
    }
}
