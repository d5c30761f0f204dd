//! Augmentation of training data: shifts of images with zero padding, and mirroring; views of images and rows.

use super::cuda::{Arg, args, images, views as cuda};
use super::parallel::for_each_chunk;
use super::tensor::{DeviceArray, Tensor};
use super::view;

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

/// How one view of a row is made. All is drawn ahead, so that a view is the same on every device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Top, left, height and width, in pixels, of the part of an image that is brought to the size of the whole.
    pub part: [f32; 4],
    /// Whether the image is mirrored (left and right exchanged).
    pub mirror: bool,
    /// Factors of brightness, contrast and saturation.
    pub colour: [f32; 3],
    /// Angle by which colours turn in the plane of equal brightness.
    pub hue: f32,
    /// Whether the image loses its colours.
    pub grey: bool,
    /// Deviation of a Gaussian blur, in pixels; 0 for none.
    pub blur: f32,
    /// Share of white from which values are inverted; above 1 for none.
    pub solarise: f32,
    /// Deviation of normal noise, after the row was standardized.
    pub noise: f32,
    /// Share of the cells that are set to zero, after the row was standardized.
    pub hidden: f32,
    /// Share of the columns that are set to zero.
    pub dropped: f32,
    /// What noise and hidden cells follow from, and what dropped columns do; below 2²⁴.
    pub seeds: [u32; 2],
}

impl View {
    /// Numbers of a view on a device.
    pub const NUMBERS: usize = 17;

    /// The row as it is; `image` is channels, height and width.
    pub fn plain(image: Option<[usize; 3]>) -> View {
        let [_, height, width] = image.unwrap_or([1, 1, 1]);
        View {
            part: [0.0, 0.0, height as f32, width as f32],
            mirror: false,
            colour: [1.0; 3],
            hue: 0.0,
            grey: false,
            blur: 0.0,
            solarise: 2.0,
            noise: 0.0,
            hidden: 0.0,
            dropped: 0.0,
            seeds: [0; 2],
        }
    }

    /// As the kernels read it.
    pub fn numbers(&self) -> [f32; View::NUMBERS] {
        let ([top, left, height, width], [brightness, contrast, saturation]) = (self.part, self.colour);
        let [mirror, grey] = [self.mirror, self.grey].map(|flag| f32::from(u8::from(flag)));
        let [cells, columns] = self.seeds.map(|seed| (seed & 0xff_ffff) as f32);
        let image = [top, left, height, width, mirror, brightness, contrast, saturation, self.hue];
        let rest = [grey, self.blur, self.solarise, self.noise, self.hidden, self.dropped, cells, columns];
        let mut numbers = [0.0; View::NUMBERS];
        numbers.iter_mut().zip(image.into_iter().chain(rest)).for_each(|(to, v)| *to = v);
        numbers
    }
}

/// What all views of a data set share.
#[derive(Debug)]
pub struct ViewLayout {
    /// Channels, height and width, where rows are images.
    pub image: Option<[usize; 3]>,
    /// The largest value of a pixel; colours stay between 0 and it.
    pub white: f32,
    /// Views are standardized: `(v − centre)/scale`; `[d]`.
    pub centre: Tensor,
    /// See `centre`.
    pub scale: f32,
}

/// Two views of each row, one after the other: `out_2b` and `out_2b+1` are made of row b of `x` as `views` says.
///
/// `x` `[b, d]`, `views` `[2b, View::NUMBERS]`, `out` `[2b, d]`; `work` is room on a device.
pub fn views(
    x: &Tensor,
    views: &Tensor,
    layout: &ViewLayout,
    work: &mut Tensor,
    out: &mut Tensor,
) -> crate::Result<()> {
    let (_, b, d) = x.as_matrices();
    let pixels = layout.image.map_or(d, |image| image.iter().product());
    assert!(views.len() == 2 * b * View::NUMBERS && pixels == d && layout.centre.len() == d, "views of {x} by {views}");
    out.reshape(&[2 * b, d])?;
    if let Some(gpu) = x.gpu() {
        work.reshape(&[2 * b, d])?;
        cuda::views(gpu, x, views, layout, work, out);
        return Ok(());
    }
    let (x, numbers, cost) = (x.host(), views.host(), 60 * out.len());
    for_each_chunk(out.host_mut(), d.max(1), cost, |v, out| {
        let numbers = &numbers[v * View::NUMBERS..][..View::NUMBERS];
        view::make(&x[v / 2 * d..][..d], numbers.try_into().expect("so many"), layout, out);
    });
    Ok(())
}
