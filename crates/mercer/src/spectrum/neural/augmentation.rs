//! Augmentations: how two views are made of one row.

use crate::compute::View;
use crate::rng::Rng;
use crate::syntax::Call;
use crate::{Error, Result, fail_if};
use std::fmt;

/// Parts that disturb a row one after the other, written with `+` between them.
///
/// | part | what it does |
/// |---|---|
/// | `crops(least)` | a random part of the image, of at least this share of its area (0.2), brought to the size of the whole |
/// | `flip` | the image mirrored, with probability one half |
/// | `colour(strength)` | brightness, contrast, saturation and hue changed (0.5), with probability 0.8 |
/// | `grey(p)` | colours lost with this probability (0.2) |
/// | `blur(p)` | a Gaussian blur with this probability (0.5) |
/// | `solarise(p)` | bright values inverted with this probability (0.1) |
/// | `noise(deviation)` | normal noise on every column, in units of the data's deviation (0.1) |
/// | `mask(share)` | each cell set to its column's mean with this probability (0.3) |
/// | `columns(share)` | each column dropped from all first, or all second, views of a batch with this probability (0.2) |
///
/// ```
/// use mercer::spectrum::neural::Augmentation;
/// let augmentation: Augmentation = "crops(0.3) + flip + colour".parse()?;
/// assert_eq!(augmentation.to_string(), "crops(0.3)+flip+colour(0.5)");
/// assert!("crop".parse::<Augmentation>().unwrap_err().to_string().contains("crops"));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Augmentation(Vec<Part>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    kind: Kind,
    value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Crops,
    Flip,
    Colour,
    Grey,
    Blur,
    Solarise,
    Noise,
    Mask,
    Columns,
}

/// Name, kind and usual value; whether it is for images; the largest value.
const PARTS: [(&str, Kind, f64, bool, f64); 9] = [
    ("crops", Kind::Crops, 0.2, true, 1.0),
    ("flip", Kind::Flip, 0.5, true, 1.0),
    ("colour", Kind::Colour, 0.5, true, 1.0),
    ("grey", Kind::Grey, 0.2, true, 1.0),
    ("blur", Kind::Blur, 0.5, true, 1.0),
    ("solarise", Kind::Solarise, 0.1, true, 1.0),
    ("noise", Kind::Noise, 0.1, false, f64::MAX),
    ("mask", Kind::Mask, 0.3, false, 1.0),
    ("columns", Kind::Columns, 0.2, false, 1.0),
];

/// Probability that colours change.
const COLOURED: f64 = 0.8;
/// Seeds are exact as single-precision numbers below this.
const SEEDS: usize = 1 << 24;

impl std::str::FromStr for Augmentation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Augmentation> {
        let parts = apart(text).map(part).collect::<Result<Vec<Part>>>()?;
        Ok(Augmentation(parts))
    }
}

/// The texts between the `+` that are in no brackets.
fn apart(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0i32;
    text.split(move |c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == '+' && depth == 0
    })
}

fn part(text: &str) -> Result<Part> {
    let call = Call::parse("augmentation", text.trim())?;
    let names = PARTS.map(|(name, ..)| name);
    let known = PARTS.iter().find(|(name, ..)| *name == call.name);
    let &(name, kind, usual, _, most) = known.ok_or_else(|| Error::unknown("augmentation", call.name, names))?;
    call.check(usize::from(kind != Kind::Flip), &[])?;
    let value = match call.values().next() {
        None => usual,
        Some(text) => {
            let number = text.parse().ok().filter(|v: &f64| (0.0..=most).contains(v));
            let range = if most == 1.0 { "from 0 to 1" } else { "from 0" };
            number.ok_or_else(|| Error::input(format!("{name} takes a number {range}, not '{text}'")))?
        }
    };
    fail_if!(kind == Kind::Crops && value == 0.0, "crops of a share of 0 show nothing; give a number above 0");
    Ok(Part { kind, value })
}

impl fmt::Display for Augmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Part { kind, value }) in self.0.iter().enumerate() {
            let name = PARTS.iter().find(|(_, known, ..)| known == kind).expect("a known part").0;
            f.write_str(if i == 0 { "" } else { "+" })?;
            match kind {
                Kind::Flip => f.write_str(name)?,
                _ => write!(f, "{name}({value})")?,
            }
        }
        Ok(())
    }
}

impl Augmentation {
    /// The usual one: of colour images, of images in shades of grey, which may be letters or digits and are not mirrored, and of rows.
    pub fn usual(image: Option<[usize; 3]>) -> Augmentation {
        let text = match image {
            Some([3, ..]) => "crops+flip+colour+grey",
            Some(_) => "crops(0.4)+noise",
            None => "noise+mask",
        };
        text.parse().expect("known parts")
    }

    /// Refuses parts that are for images where rows are none.
    pub fn check(&self, image: Option<[usize; 3]>) -> Result<()> {
        let for_images = |part: &&Part| PARTS.iter().any(|(_, kind, _, images, _)| *kind == part.kind && *images);
        if let (None, Some(part)) = (image, self.0.iter().find(for_images)) {
            let name = PARTS.iter().find(|(_, kind, ..)| *kind == part.kind).expect("a known part").0;
            return Err(Error::input(format!("rows that are no images have no {name}; use noise, mask or columns")));
        }
        Ok(())
    }

    /// Draws how one view is made; `columns` is the same for all of a batch that lose the same columns.
    pub(super) fn draw(&self, image: Option<[usize; 3]>, columns: u32, rng: &mut Rng) -> View {
        let mut view = View { seeds: [rng.below(SEEDS) as u32, columns], ..View::plain(image) };
        for Part { kind, value } in &self.0 {
            let value = *value;
            match kind {
                Kind::Crops => view.part = crop(image.unwrap_or([1; 3]), value, rng),
                Kind::Flip => view.mirror = rng.uniform() < value,
                Kind::Colour => {
                    let (changed, mut factor) =
                        (rng.uniform() < COLOURED, || 0.8 * value * (2.0 * rng.uniform() - 1.0));
                    let factors = [factor(), factor(), factor()];
                    let turn = 0.25 * factor();
                    if changed {
                        view.colour = factors.map(|f| (1.0 + f).max(0.0) as f32);
                        view.hue = (std::f64::consts::TAU * turn) as f32;
                    }
                }
                Kind::Grey => view.grey = rng.uniform() < value,
                Kind::Blur => {
                    let (blurs, deviation) = (rng.uniform() < value, 0.1 + 0.9 * rng.uniform());
                    view.blur = if blurs { deviation as f32 } else { 0.0 };
                }
                Kind::Solarise => view.solarise = if rng.uniform() < value { 0.5 } else { 2.0 },
                Kind::Noise => view.noise = value as f32,
                Kind::Mask => view.hidden = value as f32,
                Kind::Columns => view.dropped = value as f32,
            }
        }
        view
    }

    /// A seed for the columns that the views of a batch lose.
    pub(super) fn draw_columns(rng: &mut Rng) -> u32 {
        rng.below(SEEDS) as u32
    }
}

/// A part of the image of a share of its area from `least` to 1 and sides in a ratio of 3/4 to 4/3; the whole image where ten do not
/// fit.
fn crop([_, height, width]: [usize; 3], least: f64, rng: &mut Rng) -> [f32; 4] {
    let side = |size: f64, most: usize| Some(size.round() as usize).filter(|size| (1..=most).contains(size));
    for _ in 0..10 {
        let area = (least + (1.0 - least) * rng.uniform()) * (height * width) as f64;
        let ratio = ((2.0 * rng.uniform() - 1.0) * (4.0f64 / 3.0).ln()).exp();
        if let (Some(tall), Some(wide)) = (side((area / ratio).sqrt(), height), side((area * ratio).sqrt(), width)) {
            let (top, left) = (rng.below(height - tall + 1), rng.below(width - wide + 1));
            return [top, left, tall, wide].map(|v| v as f32);
        }
    }
    [0, 0, height, width].map(|v| v as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_and_written() {
        let usual = Augmentation::usual(Some([3, 32, 32]));
        assert_eq!(usual.to_string(), "crops(0.2)+flip+colour(0.5)+grey(0.2)");
        assert_eq!(usual.to_string().parse::<Augmentation>().unwrap(), usual);
        for (bad, word) in [
            ("crops(2)", "from 0 to 1"),
            ("crops(0)", "above 0"),
            ("noise(x)", "a number"),
            ("flip(1)", "no arguments"),
            ("colors", "colour"),
            ("crops+", "augmentation"),
        ] {
            let error = bad.parse::<Augmentation>().unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
        assert!(usual.check(None).unwrap_err().to_string().contains("crops"));
        assert!(Augmentation::usual(None).check(None).is_ok());
    }

    #[test]
    fn crops_lie_within_the_image_and_have_their_share_of_it() {
        let (image, mut rng) = ([1, 9, 14], Rng::new(3));
        let crops: Augmentation = "crops(0.5)".parse().unwrap();
        for _ in 0..500 {
            let [top, left, tall, wide] = crops.draw(Some(image), 0, &mut rng).part;
            assert!(top >= 0.0 && left >= 0.0 && top + tall <= 9.0 && left + wide <= 14.0);
            assert!(tall * wide >= 0.35 * 126.0, "{tall} {wide}");
        }
    }
}
