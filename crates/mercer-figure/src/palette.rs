//! Colours: categories that colour-blind readers can distinguish, and maps from a number to a colour.

/// Red, green and blue, 0 to 255.
pub type Rgb = [u8; 3];

/// Okabe and Ito's colours, the ones readable as thin lines on white first, and three that are far from all of these.
const CATEGORIES: [u32; 10] =
    [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x333333, 0x910863, 0xa14fe0, 0x7a5c1f];

/// Categories that colour alone tells apart; lines of later ones are dashed, too.
pub const PLAIN: usize = 7;

/// The colour of category `i`, as `#rrggbb`; beyond ten they repeat.
pub fn category(i: usize) -> String {
    format!("#{:06x}", CATEGORIES[i % CATEGORIES.len()])
}

/// A map from [0, 1] to colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    /// Dark violet to yellow, perceptually uniform: magnitudes.
    Viridis,
    /// Blue over white to red, white at zero: signed values.
    Diverging,
    /// White to black.
    Grey,
}

impl Map {
    fn anchors(self) -> &'static [u32] {
        match self {
            Map::Viridis => &[0x440154, 0x472c7a, 0x3b518b, 0x2c718e, 0x21908d, 0x27ad81, 0x5cc863, 0xaadc32, 0xfde725],
            Map::Diverging => {
                &[0x053061, 0x2166ac, 0x4393c3, 0x92c5de, 0xf7f7f7, 0xf4a582, 0xd6604d, 0xb2182b, 0x67001f]
            }
            Map::Grey => &[0xffffff, 0x000000],
        }
    }

    /// The colour at `t`, linear between anchors; `t` is clamped to [0, 1].
    pub fn at(self, t: f64) -> Rgb {
        let anchors = self.anchors();
        let last = anchors.len() - 1;
        let place = if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) } * last as f64;
        let left = (place as usize).min(last - 1);
        let weight = place - left as f64;
        let [a, b] = [left, left + 1].map(|i| anchors[i].to_be_bytes().map(f64::from));
        std::array::from_fn(|c| (a[c + 1] + weight * (b[c + 1] - a[c + 1])).round() as u8)
    }

    /// The colour at `t` as `#rrggbb`.
    pub fn hex(self, t: f64) -> String {
        let [r, g, b] = self.at(t);
        format!("#{r:02x}{g:02x}{b:02x}")
    }
}

/// Whether white text is easier to read than black text on this colour (Rec. 601 luma).
pub fn is_dark([r, g, b]: Rgb) -> bool {
    0.299 * f64::from(r) + 0.587 * f64::from(g) + 0.114 * f64::from(b) < 140.0
}

#[test]
fn maps_have_their_end_colours_and_grow_brighter() {
    assert_eq!([Map::Viridis.hex(0.0), Map::Viridis.hex(7.0)], ["#440154", "#fde725"]);
    assert_eq!([Map::Grey.at(0.5), Map::Diverging.at(0.5)], [[128; 3], [247; 3]]);
    let luma = |t: f64| Map::Viridis.at(t).iter().zip([0.299, 0.587, 0.114]).map(|(&c, w)| w * f64::from(c)).sum();
    let lumas: Vec<f64> = (0..=50).map(|i| luma(f64::from(i) / 50.0)).collect();
    assert!(lumas.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Distances in OKLab, in which equal distances look equal (Ottosson): white and black are 1 apart.
#[test]
fn ten_categories_have_colours_that_are_far_apart() {
    let lab = |colour: u32| {
        let linear = |c: u8| {
            let c = f64::from(c) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        let [_, r, g, b] = colour.to_be_bytes().map(linear);
        let cone = |m: [f64; 3]| (m[0] * r + m[1] * g + m[2] * b).cbrt();
        let l = cone([0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9]);
        let m = cone([0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6]);
        let s = cone([0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5]);
        [
            0.210_454_255_3 * l + 0.793_617_785_0 * m - 0.004_072_046_8 * s,
            1.977_998_495_1 * l - 2.428_592_205_0 * m + 0.450_593_709_9 * s,
            0.025_904_037_1 * l + 0.782_771_766_2 * m - 0.808_675_766_0 * s,
        ]
    };
    let distance = |a: u32, b: u32| lab(a).iter().zip(lab(b)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    assert!((distance(0x000000, 0xffffff) - 1.0).abs() < 1e-3);
    for (i, &a) in CATEGORIES.iter().enumerate() {
        assert!(CATEGORIES[..i].iter().all(|&b| distance(a, b) > 0.15), "{a:06x}");
        assert!(distance(a, 0xffffff) > 0.2, "{a:06x} on white");
    }
}
