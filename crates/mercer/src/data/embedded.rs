//! Data that is compiled into the library; `assets/README.md` names its source.

use ndarray::Array2;

use super::dataset::{Dataset, Target};
use super::matrix::Matrix;

/// 1797 records of 64 pixels (0–16) and one label.
static DIGITS: &[u8] = include_bytes!("../../assets/digits.bin");

const PIXELS: usize = 64;

/// 1797 handwritten digits of 8×8 pixels with values 0 to 16, ten classes.
///
/// ```
/// assert_eq!((mercer::data::digits().n(), mercer::data::digits().d()), (1797, 64));
/// ```
pub fn digits() -> Dataset {
    let records: Vec<&[u8]> = DIGITS.chunks_exact(PIXELS + 1).collect();
    let values = Array2::from_shape_fn((records.len(), PIXELS), |(i, j)| records[i][j]);
    let labels = records.iter().map(|r| usize::from(r[PIXELS])).collect();
    let names = (0..10).map(|c| c.to_string()).collect();
    Dataset {
        name: "digits".into(),
        x: Matrix::U8 { values, divisor: 1.0 },
        y: Some(Target::Classes { labels, names }),
        some_y: None,
        columns: (0..PIXELS).map(|j| format!("pixel_{}_{}", j / 8, j % 8)).collect(),
        shape: Some([1, 8, 8]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_agree_with_their_source() {
        let set = digits();
        let x = set.x.to_f64();
        assert_eq!(x.dim(), (1797, 64));
        assert_eq!(DIGITS.len(), 1797 * 65);
        // Counted in the source table, not in the embedded bytes.
        let Some(Target::Classes { labels, names }) = &set.y else { panic!("digits have classes") };
        let mut counts = [0; 10];
        labels.iter().for_each(|&l| counts[l] += 1);
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(names.len(), 10);
        assert_eq!(x.sum(), 561_718.0);
        assert_eq!(x.fold(0.0, |m: f64, &v| m.max(v)), 16.0);
        // The first row of the source.
        assert_eq!(x.row(0).to_vec()[..8], [0.0, 0.0, 5.0, 13.0, 9.0, 1.0, 0.0, 0.0]);
        assert_eq!(labels[..4], [0, 1, 2, 3]);
        assert_eq!(set.columns[9], "pixel_1_1");
    }
}
