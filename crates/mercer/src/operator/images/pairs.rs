//! A network's plan run over pairs of images.

use super::passes::{Convolution, PatchActivation, products};
use super::pooled::{Pooled, gather};
use super::{End, Images, Patch, Stage};
use crate::kernel::infinite::{DEEPEST, Expectations, Step};
use crate::operator::Real;
use crate::operator::tile::aligned::Aligned;
use crate::operator::tile::network::{Covariances, FIELDS, LANES, Sides, fields, run_variances};
use ndarray::ArrayView2;
use rayon::prelude::*;
use std::ops::Range;

/// `WIDTH` images side by side: `LANES` of them, or one that all lanes see.
#[derive(Clone, Debug, Default)]
pub(in crate::operator) struct Lanes<T, const WIDTH: usize> {
    /// `[channels, positions, WIDTH]`
    pixels: Aligned<T>,
    /// For each activation `[FIELDS, positions, WIDTH]`.
    sides: Aligned<T>,
}

impl<T: Real, const WIDTH: usize> Lanes<T, WIDTH> {
    /// The points `which` of `x` `[n, channels·positions]` and their profiles `[n, length]`.
    fn load(&mut self, images: &Images, x: ArrayView2<T>, profile: &[T], which: impl Fn(usize) -> usize) {
        let rows: [usize; WIDTH] = std::array::from_fn(which);
        self.pixels.room(x.ncols() * WIDTH);
        for (l, &row) in rows.iter().enumerate() {
            let lane = self.pixels.iter_mut().skip(l).step_by(WIDTH);
            lane.zip(x.row(row)).for_each(|(pixel, &x)| *pixel = x);
        }
        self.sides.clear();
        if profile.is_empty() {
            return;
        }
        let (length, mut variances) = (images.profile_length(), vec![]);
        for activation in images.starts.windows(2) {
            let numbers = activation[0]..activation[1];
            variances.resize(numbers.len() * WIDTH, T::default());
            for (l, row) in rows.iter().enumerate() {
                let lane = variances.iter_mut().skip(l).step_by(WIDTH);
                let from = &profile[row * length + numbers.start..row * length + numbers.end];
                lane.zip(from).for_each(|(variance, &v)| *variance = v);
            }
            fields(&variances, &mut self.sides);
        }
    }

    /// Sides of an activation, for all positions.
    fn of(&self, images: &Images, activation: usize) -> Sides<'_, T, WIDTH> {
        let each = FIELDS * WIDTH;
        let range = images.starts[activation] * each..images.starts[activation + 1] * each;
        Sides::each(&self.sides[range])
    }
}

/// Buffers that one thread reuses from pair to pair.
#[derive(Default)]
pub(in crate::operator) struct ImageBuffers<T> {
    now: Covariances<T>,
    next: Covariances<T>,
    sums: Aligned<T>,
    aside: Vec<Covariances<T>>,
    pooled: [Pooled<T>; 2],
    x: Lanes<T, 1>,
    y: Lanes<T, LANES>,
}

/// What becomes of the activations' sides in a run.
enum Run<'a, T, const X: usize> {
    /// Between different images: they are known.
    Known { x: &'a Lanes<T, X>, y: &'a Lanes<T, LANES> },
    /// Images with themselves at offset zero: they are found.
    Found(&'a mut Lanes<T, LANES>),
}

impl<T: Real> ImageBuffers<T> {
    /// `values` `[rows, columns]` ← the kernel of the images `a[rows]`, `b[columns]`.
    pub fn tile(
        &mut self,
        images: &Images,
        (a, rows): ((ArrayView2<T>, &[T]), Range<usize>),
        (b, columns): ((ArrayView2<T>, &[T]), Range<usize>),
        values: &mut [T],
    ) {
        let (mut x, mut y) = (std::mem::take(&mut self.x), std::mem::take(&mut self.y));
        for start in columns.clone().step_by(LANES) {
            // The last image fills up the lanes.
            let last = columns.end - 1;
            y.load(images, b.0, b.1, |l| last.min(start + l));
            for row in rows.clone() {
                x.load(images, a.0, a.1, |_| row);
                let result = self.kernel(images, &x, &y);
                let at = (row - rows.start) * columns.len() + start - columns.start;
                let width = LANES.min(columns.end - start);
                values[at..at + width].copy_from_slice(&result[..width]);
            }
        }
        (self.x, self.y) = (x, y);
    }

    /// The kernel of sixteen pairs.
    fn kernel<const X: usize>(&mut self, images: &Images, x: &Lanes<T, X>, y: &Lanes<T, LANES>) -> Vec<T> {
        for i in 0..images.segments.len() {
            self.segment(images, i, x, y);
        }
        let spatial = images.starts.len() - 1 - tail_activations(images);
        let mut now = std::mem::take(&mut self.next);
        now.run(&images.tail, &mut self.aside, |i| (x.of(images, spatial + i), y.of(images, spatial + i)));
        let result = if images.ntk { now.theta.to_vec() } else { now.k.to_vec() };
        self.next = now;
        result
    }

    /// All offsets of a segment; leaves the pooled array, or the read-out in `self.next`.
    fn segment<const X: usize>(&mut self, images: &Images, index: usize, x: &Lanes<T, X>, y: &Lanes<T, LANES>) {
        let segment = &images.segments[index];
        let zeros = |len: usize| {
            let mut zeros = Covariances::default();
            zeros.k.resize(len, T::default());
            zeros.theta.resize(if images.ntk { len } else { 0 }, T::default());
            zeros
        };
        let mut total = match segment.end {
            End::Pool(window) => {
                let size = (window.along(segment.output.0).count, window.along(segment.output.1).count);
                Pooled { size, values: zeros((size.0 * size.1).pow(2) * LANES) }
            }
            _ => Pooled { size: (1, 1), values: zeros(LANES) },
        };
        let positions = (segment.output.0 * segment.output.1) as f64;
        for &dy in &segment.offsets[0] {
            for &dx in &segment.offsets[1] {
                let offset = [dy, dx];
                self.patch(images, index, offset, &mut Run::Known { x, y });
                let patch = Patch::new(segment.output, offset);
                match segment.end {
                    End::Pool(window) => total.add(window, &self.now, &patch, offset),
                    _ => total.sum(&self.now),
                }
            }
        }
        total.scale(match segment.end {
            End::Pool(window) => (window.size as f64).powi(-4),
            End::Flatten => 1.0 / positions,
            End::Gap => 1.0 / (positions * positions),
        });
        match segment.end {
            End::Pool(_) => {
                self.pooled.swap(0, 1);
                self.pooled[0] = total;
            }
            _ => self.next = total.values,
        }
    }

    /// One offset through a segment; leaves its covariances in `self.now`.
    fn patch<const X: usize>(&mut self, images: &Images, index: usize, offset: [isize; 2], run: &mut Run<T, X>) {
        let segment = &images.segments[index];
        let at = |stride: usize| offset.map(|d| d * stride as isize);
        self.begin(images, index, at(segment.stride), run);
        self.aside.resize_with(DEEPEST, Covariances::default);
        let mut top = 0;
        let mut stages = segment.stages.iter().peekable();
        while let Some(stage) = stages.next() {
            match stage.step {
                Step::Conv(window, v) => {
                    let before = Patch::new(stage.input, at(stage.stride.0));
                    let after = Patch::new(stage.output, at(stage.stride.1));
                    let convolution = Convolution::new(window, v, stage.input, before, after);
                    // An activation behind it takes each row at once.
                    let fused = stages.peek().and_then(|next| activation(images, next, at(next.stride.0), run));
                    if fused.is_some() {
                        stages.next();
                    }
                    convolution.run(images.ntk, &self.now, &mut self.next, &mut self.sums, |i, k, theta| {
                        if let Some(activation) = &fused {
                            activation.row(i, k, theta);
                        }
                    });
                    std::mem::swap(&mut self.now, &mut self.next);
                }
                Step::Activation(phi) => match activation(images, stage, at(stage.stride.0), run) {
                    Some(activation) => activation.all(&mut self.now),
                    None => {
                        let Run::Found(lanes) = run else { unreachable!("known sides make an activation") };
                        fields(&self.now.k, &mut lanes.sides);
                        self.now.k.iter_mut().for_each(|k| *k = T::of(phi.second_moment(k.wide())));
                    }
                },
                Step::Fork | Step::Shortcut | Step::Join => self.now.branch(&stage.step, &mut self.aside, &mut top),
                Step::Dense(_) | Step::AvgPool(_) | Step::Flatten | Step::Gap => {
                    unreachable!("a segment holds none of these")
                }
            }
        }
    }

    /// The patch at the start of a segment: products of pixels, or what was pooled before.
    fn begin<const X: usize>(&mut self, images: &Images, index: usize, offset: [isize; 2], run: &Run<T, X>) {
        let segment = &images.segments[index];
        let patch = Patch::new(segment.input, offset);
        let length = patch.groups() * LANES;
        self.now.k.room(length);
        self.now.theta.clear();
        if index > 0 {
            let pooled = &self.pooled[0].values;
            gather(&pooled.k, segment.input, &patch, offset, &mut self.now.k);
            if images.ntk {
                self.now.theta.resize(length, T::default());
                gather(&pooled.theta, segment.input, &patch, offset, &mut self.now.theta);
            }
            return;
        }
        // Θ begins as zero, which a convolution need not be told.
        if images.ntk && !matches!(segment.stages.first(), Some(Stage { step: Step::Conv(..), .. })) {
            self.now.theta.resize(length, T::default());
        }
        let (x, y) = match run {
            Run::Known { x, y } => (&x.pixels, &y.pixels),
            Run::Found(lanes) => (&lanes.pixels, &lanes.pixels),
        };
        let (size, channels, out) = (segment.input, images.channels, &mut self.now.k);
        products::<T, X>(x, y, size, channels, &patch, offset, out);
    }
}

/// What the stage does to a patch at this offset, if it is an activation between known sides.
fn activation<'a, T: Real, const X: usize>(
    images: &Images,
    stage: &Stage,
    offset: [isize; 2],
    run: &Run<'a, T, X>,
) -> Option<PatchActivation<'a, T, X>> {
    let (Step::Activation(phi), Run::Known { x, y }) = (stage.step, run) else { return None };
    let (x, y) = (x.of(images, stage.activation), y.of(images, stage.activation));
    Some(PatchActivation { phi, width: stage.input.1, patch: Patch::new(stage.input, offset), offset, x, y })
}

impl Images {
    /// The profiles `[n, length]` of the images `x` `[n, channels·positions]`.
    pub fn profiles(&self, x: ArrayView2<f64>) -> Vec<f64> {
        let (few, length) = (self.diagonal_only(), self.profile_length());
        let all = Images { ntk: false, ..self.clone() };
        let mut profiles = vec![0.0; x.nrows() * length];
        let batches = profiles.par_chunks_mut(LANES * length.max(1)).enumerate();
        batches.for_each_init(ImageBuffers::default, |buffers, (batch, profiles)| {
            let mut lanes = Lanes::<f64, LANES>::default();
            lanes.load(self, x, &[], |l| (batch * LANES + l).min(x.nrows() - 1));
            buffers.find_sides(&all, &few, &mut lanes);
            for (lane, profile) in profiles.chunks_exact_mut(length).enumerate() {
                for activation in self.starts.windows(2) {
                    // The variances are the first field.
                    let from = FIELDS * activation[0] * LANES + lane;
                    let variances = lanes.sides[from..].iter().step_by(LANES);
                    profile[activation[0]..activation[1]].iter_mut().zip(variances).for_each(|(v, &found)| *v = found);
                }
            }
        });
        profiles
    }

    /// `κ(x,x)` of each image of `x`, with their profiles.
    pub fn diagonal(&self, x: ArrayView2<f64>, profiles: &[f64]) -> Vec<f64> {
        let mut values = vec![0.0; x.nrows()];
        let batches = values.par_chunks_mut(LANES).enumerate();
        batches.for_each_init(ImageBuffers::default, |buffers, (batch, values)| {
            let mut lanes = Lanes::<f64, LANES>::default();
            lanes.load(self, x, profiles, |l| (batch * LANES + l).min(x.nrows() - 1));
            let found = buffers.kernel(self, &lanes, &lanes);
            values.copy_from_slice(&found[..values.len()]);
        });
        values
    }
}

impl ImageBuffers<f64> {
    fn find_sides(&mut self, images: &Images, few: &Images, lanes: &mut Lanes<f64, LANES>) {
        for index in 0..few.segments.len() {
            self.patch(few, index, [0, 0], &mut Run::<f64, LANES>::Found(lanes));
            if index + 1 < few.segments.len() {
                self.segment(few, index, lanes, lanes);
            }
        }
        if tail_activations(images) == 0 {
            return;
        }
        // The variances behind the read-out take the whole of it.
        for index in 0..images.segments.len() {
            self.segment(images, index, lanes, lanes);
        }
        run_variances(&images.tail, self.next.k.to_vec(), |_, now| fields(now, &mut lanes.sides));
    }
}

pub(super) fn tail_activations(images: &Images) -> usize {
    images.tail.iter().filter(|s| matches!(s, Step::Activation(_))).count()
}
