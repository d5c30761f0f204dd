//! What experiments on the uncertainty of networks share: rotated images, folds of rows, measures of their predictions.

use mercer::rng::Rng;
use ndarray::{Array2, ArrayView2};

/// Images `[n, channels·height·width]`, each turned about its centre by its own angle, in degrees: every pixel takes the value of the
/// nearest one before the turn, those from outside the image the value `fill` of their channel.
pub fn rotated(
    x: ArrayView2<f64>,
    [channels, height, width]: [usize; 3],
    degrees: &[f64],
    fill: &[f64],
) -> Array2<f64> {
    let (plane, mut out) = (height * width, Array2::zeros(x.dim()));
    let centre = [(height as f64 - 1.0) / 2.0, (width as f64 - 1.0) / 2.0];
    for ((image, mut turned), angle) in x.rows().into_iter().zip(out.rows_mut()).zip(degrees) {
        let (sin, cos) = angle.to_radians().sin_cos();
        for (i, j) in (0..height).flat_map(|i| (0..width).map(move |j| (i, j))) {
            let [down, right] = [i as f64 - centre[0], j as f64 - centre[1]];
            let row = (cos * down + sin * right + centre[0]).round_ties_even();
            let column = (cos * right - sin * down + centre[1]).round_ties_even();
            let inside = (0.0..height as f64).contains(&row) && (0.0..width as f64).contains(&column);
            for c in 0..channels {
                let from = c * plane + row.max(0.0) as usize * width + column.max(0.0) as usize;
                turned[c * plane + i * width + j] = if inside { image[from] } else { fill[c % fill.len()] };
            }
        }
    }
    out
}

/// An angle for each of `n` images, uniform within `±most` degrees.
pub fn angles(n: usize, most: f64, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed).fork(0x726f_7461);
    (0..n).map(|_| most * (2.0 * rng.uniform() - 1.0)).collect()
}

/// The places of `n` rows in `count` folds of equal size, drawn at random; each fold in ascending order.
pub fn folds(n: usize, count: usize, seed: u64) -> Vec<Vec<usize>> {
    let order = Rng::new(seed).fork(0x666f_6c64).sample(n, n);
    let fold = |k: usize| {
        let mut rows: Vec<usize> = order.iter().skip(k).step_by(count).copied().collect();
        rows.sort_unstable();
        rows
    };
    (0..count).map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array1, Axis, array};

    #[test]
    fn quarter_turns_move_pixels_and_others_fill_corners() {
        let image = array![[1.0, 2.0, 3.0, 4.0]];
        assert_eq!(rotated(image.view(), [1, 2, 2], &[90.0], &[0.0]), array![[2.0, 4.0, 1.0, 3.0]]);
        assert_eq!(rotated(image.view(), [1, 2, 2], &[180.0], &[0.0]), array![[4.0, 3.0, 2.0, 1.0]]);
        let large = Array1::from_iter((0..2 * 81).map(f64::from)).insert_axis(Axis(0));
        assert_eq!(rotated(large.view(), [2, 9, 9], &[0.0], &[0.0]), large);
        let turned = rotated(large.view(), [2, 9, 9], &[45.0], &[-1.0, -2.0]);
        // The centre stays, corners come from outside.
        assert_eq!([turned[[0, 40]], turned[[0, 121]], turned[[0, 0]], turned[[0, 81]]], [40.0, 121.0, -1.0, -2.0]);
    }

    #[test]
    fn folds_are_a_partition() {
        let found = folds(23, 5, 1);
        assert!(found.iter().all(|fold| fold.len().abs_diff(4) <= 1 && fold.is_sorted()));
        let mut all = found.concat();
        all.sort_unstable();
        assert_eq!(all, (0..23).collect::<Vec<_>>());
        assert!(angles(500, 30.0, 1).iter().all(|a| a.abs() <= 30.0));
    }
}
