//! Augmentation of training images: shifts with zero padding, and mirroring.

use super::cuda::{Arg, args, images};
use super::parallel::for_each_chunk;
use super::tensor::{DeviceArray, Tensor};

/// How one image is moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// Pixels by which the image moves up (negative: down).
    pub up: i32,
    /// Pixels by which the image moves to the left (negative: right).
    pub left: i32,
    /// Whether the image is mirrored (left and right exchanged) before it is shifted.
    pub mirror: bool,
}

/// `out_b` = image b of `x`, mirrored and shifted by `moves[b]`, with zeros outside the image. This is a crop of the
/// zero-padded image. `x` `[b, channels·height·width]`; `out` is reshaped to the shape of `x`.
pub fn shift_mirror(x: &Tensor, image: [usize; 3], moves: &[Move], out: &mut Tensor) -> crate::Result<()> {
    let [_, height, width] = image;
    let n: usize = image.iter().product();
    assert!(x.len() == moves.len() * n, "shift_mirror of {x} by {} moves of {image:?}", moves.len());
    out.reshape(x.shape())?;
    if let Some(gpu) = x.gpu() {
        let words: Vec<i32> = moves.iter().flat_map(|m| [m.up, m.left, i32::from(m.mirror)]).collect();
        let words = DeviceArray::from_host(x.device(), &[moves.len(), 3], &words)?;
        let sizes = [n, height, width, moves.len()].map(Arg::size);
        let arguments = args![sizes, words.address(), x, out];
        images::over_networks(gpu, "shift_mirror", moves.len().min(1 << 15), n, &arguments);
        return Ok(());
    }
    let (x, work) = (x.host(), 4 * x.len());
    for_each_chunk(out.host_mut(), n, work, |b, out| {
        let Move { up, left, mirror } = moves[b];
        for (line, out) in out.chunks_exact_mut(width).enumerate() {
            let row = (line % height) as i64 + i64::from(up);
            if !(0..height as i64).contains(&row) {
                out.fill(0.0);
                continue;
            }
            let start = b * n + (line / height * height + row as usize) * width;
            let from = &x[start..start + width];
            for (col, out) in out.iter_mut().enumerate() {
                let col = col as i64 + i64::from(left);
                let inside = (0..width as i64).contains(&col);
                let at = if mirror { width as i64 - 1 - col } else { col };
                *out = if inside { from[at as usize] } else { 0.0 };
            }
        }
    });
    Ok(())
}
