//! Infinite convolutional networks over a tile of pairs of pictures.
//!
//! A convolution averages K over windows moved in step: `K'[q, q'] = mean_e K[sq+e, sq'+e]`. So the entries with one offset
//! `δ = q'−q` need only those with offset `sδ` before it: every offset runs through all layers on its own, in a patch of at
//! most one picture that stays in the cache, and no array over all pairs of positions exists. Reading out by
//! `flatten` needs the offset zero alone, by `gap` all of them. Only `avgpool` mixes offsets: there the network is cut
//! into segments with one array `[positions, positions]` of the pooled (smaller) picture between them.
//!
//! Sixteen pairs of pictures are computed together, so every loop runs over full vectors whatever the patch's shape.

use super::Real;
use super::network::{Covariances, FIELDS, LANES, Sides, fields};
use crate::kernel::infinite::{DEEPEST, Network, Phi, Step, Variances, Window};
use crate::simd::{Num, SimdJob, dispatch};
use ndarray::ArrayView2;
use rayon::prelude::*;
use std::ops::Range;

type Size = (usize, usize);

/// A network cut into segments, with what each of its steps acts on.
#[derive(Clone, Debug)]
pub(super) struct Pictures {
    channels: usize,
    segments: Vec<Segment>,
    /// The steps after the read-out.
    tail: Vec<Step>,
    /// Where each activation's variances begin in the profile of a point, `[activations + 1]`.
    starts: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Segment {
    stages: Vec<Stage>,
    input: Size,
    output: Size,
    /// Product of the strides.
    stride: usize,
    end: End,
    /// Offsets needed at the end, along either axis.
    offsets: [Vec<isize>; 2],
}

#[derive(Clone, Copy, Debug)]
struct Stage {
    step: Step,
    /// Size of the picture before and after the step.
    input: Size,
    output: Size,
    /// The offset here is that at the segment's end times this, before and after the step.
    stride: (usize, usize),
    /// Which activation of the network this is.
    activation: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Pool(Window),
    Flatten,
    Gap,
}

impl Pictures {
    /// The plan of a network that looks at pictures.
    pub fn new(network: &Network) -> Pictures {
        let [h, w, channels] = network.shape().expect("a network of pictures");
        let (mut segments, mut starts, mut size) = (vec![], vec![0], (h, w));
        let mut steps = network.steps();
        loop {
            let cut = |s: &Step| matches!(s, Step::AvgPool(_) | Step::Flatten | Step::Gap);
            let length = steps.iter().position(cut).expect("the network reads its pictures out");
            let segment = Segment::new(&steps[..length], steps[length], size, &mut starts);
            steps = &steps[length + 1..];
            let (output, end) = (segment.output, segment.end);
            segments.push(segment);
            match end {
                End::Pool(window) => size = (window.along(output.0).0, window.along(output.1).0),
                _ => break,
            }
        }
        for step in steps {
            if matches!(step, Step::Activation(_)) {
                starts.push(starts[starts.len() - 1] + 1);
            }
        }
        let mut pictures = Pictures { channels, segments, tail: steps.to_vec(), starts };
        pictures.need();
        pictures
    }

    /// Which offsets every segment needs, from the last one backwards.
    fn need(&mut self) {
        let mut wanted: Option<[Vec<isize>; 2]> = None;
        for segment in self.segments.iter_mut().rev() {
            let (h, w) = segment.output;
            segment.offsets = match segment.end {
                End::Flatten => [vec![0], vec![0]],
                End::Gap => [h, w].map(|n| (1 - n as isize..n as isize).collect()),
                End::Pool(window) => {
                    let [y, x] = wanted.take().expect("a read-out follows");
                    [pooled_from(window, h, &y), pooled_from(window, w, &x)]
                }
            };
            let s = segment.stride as isize;
            wanted = Some(segment.offsets.clone().map(|axis| axis.into_iter().map(|d| d * s).collect()));
        }
    }

    /// The same network read out by `flatten`, whose variances need few offsets.
    fn diagonal_only(&self) -> Pictures {
        let mut pictures = self.clone();
        pictures.segments.last_mut().expect("one segment at least").end = End::Flatten;
        pictures.need();
        pictures
    }

    /// Numbers in the profile of a point.
    pub fn profile_length(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }
}

/// The offsets `s d + e' − e` within `n` that pooling takes the offsets `wanted` from.
fn pooled_from(window: Window, n: usize, wanted: &[isize]) -> Vec<isize> {
    let reach = window.size as isize - 1;
    let near = |d: isize| (d * window.stride as isize - reach)..=(d * window.stride as isize + reach);
    (1 - n as isize..n as isize).filter(|o| wanted.iter().any(|&d| near(d).contains(o))).collect()
}

impl Segment {
    fn new(steps: &[Step], end: Step, input: Size, starts: &mut Vec<usize>) -> Segment {
        let (mut size, mut aside, mut stages) = (input, vec![], vec![]);
        for &step in steps {
            let before = size;
            match step {
                Step::Conv(window, _) => size = (window.along(size.0).0, window.along(size.1).0),
                Step::Fork => aside.push(size),
                Step::Shortcut => std::mem::swap(&mut size, aside.last_mut().expect("a fork comes before")),
                Step::Join => drop(aside.pop()),
                _ => {}
            }
            stages.push(Stage { step, input: before, output: size, stride: (1, 1), activation: starts.len() - 1 });
            if matches!(step, Step::Activation(_)) {
                starts.push(starts[starts.len() - 1] + size.0 * size.1);
            }
        }
        // Strides from here to the end, backwards; both branches of a sum have the same.
        let (mut stride, mut aside) = (1, vec![]);
        for stage in stages.iter_mut().rev() {
            stage.stride.1 = stride;
            match stage.step {
                Step::Conv(window, _) => stride *= window.stride,
                Step::Join => aside.push(stride),
                Step::Shortcut => stride = *aside.last().expect("a join comes behind"),
                Step::Fork => drop(aside.pop()),
                _ => {}
            }
            stage.stride.0 = stride;
        }
        let end = match end {
            Step::AvgPool(window) => End::Pool(window),
            Step::Flatten => End::Flatten,
            _ => End::Gap,
        };
        Segment { stages, input, output: size, stride, end, offsets: Default::default() }
    }
}

/// Sixteen pictures side by side.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes<T> {
    /// `[channels, positions, LANES]`
    pixels: Vec<T>,
    /// For each activation `[FIELDS, positions, LANES]`.
    sides: Vec<T>,
}

impl<T: Real> Lanes<T> {
    /// The points `which` of `x` `[n, channels·positions]` and their profiles `[n, length]`; the last one fills up the lanes.
    fn load(&mut self, pictures: &Pictures, x: ArrayView2<T>, profile: &[T], which: impl Fn(usize) -> usize) {
        let interleave = |out: &mut Vec<T>, of: &dyn Fn(usize) -> T| out.extend((0..LANES).map(of));
        self.pixels.clear();
        let rows: [usize; LANES] = std::array::from_fn(which);
        for f in 0..x.ncols() {
            interleave(&mut self.pixels, &|l| x[[rows[l], f]]);
        }
        self.sides.clear();
        if profile.is_empty() {
            return;
        }
        let (length, mut variances) = (pictures.profile_length(), vec![]);
        for activation in pictures.starts.windows(2) {
            variances.clear();
            for number in activation[0]..activation[1] {
                interleave(&mut variances, &|l| profile[rows[l] * length + number]);
            }
            fields(&variances, &mut self.sides);
        }
    }

    /// Sides of an activation, for all positions.
    fn of(&self, pictures: &Pictures, activation: usize) -> Sides<'_, T> {
        let each = FIELDS * LANES;
        let range = pictures.starts[activation] * each..pictures.starts[activation + 1] * each;
        Sides::each(&self.sides[range])
    }
}

/// The part of a picture of size `n` where both `p` and `p + d` lie in it, along one axis.
fn overlap(n: usize, d: isize) -> Range<usize> {
    (-d).max(0) as usize..(n as isize - d.max(0)).max(0) as usize
}

/// Where a patch lies: positions p for which `p + δ` is in the picture too.
#[derive(Clone, Debug)]
struct Patch {
    y: Range<usize>,
    x: Range<usize>,
}

impl Patch {
    fn new(size: Size, offset: [isize; 2]) -> Patch {
        Patch { y: overlap(size.0, offset[0]), x: overlap(size.1, offset[1]) }
    }

    fn groups(&self) -> usize {
        self.y.len() * self.x.len()
    }
}

/// Covariances between all positions of a pooled picture, `[positions, positions, LANES]`.
#[derive(Default)]
struct Pooled<T> {
    size: Size,
    values: Covariances<T>,
}

/// Buffers that one thread reuses from pair to pair.
#[derive(Default)]
pub(super) struct PictureBuffers<T> {
    now: Covariances<T>,
    next: Covariances<T>,
    sums: Vec<T>,
    aside: Vec<Covariances<T>>,
    pooled: [Pooled<T>; 2],
    x: Lanes<T>,
    y: Lanes<T>,
}

/// What becomes of the activations' sides in a run.
enum Run<'a, T> {
    /// Between different pictures: they are known.
    Known { x: &'a Lanes<T>, y: &'a Lanes<T> },
    /// Pictures with themselves at offset zero: they are found.
    Found(&'a mut Lanes<T>),
}

impl<T: Real> PictureBuffers<T> {
    /// `values` `[rows, columns]` ← Θ with `ntk`, K without, of the pictures `a[rows]`, `b[columns]`.
    pub fn tile(
        &mut self,
        pictures: &Pictures,
        ntk: bool,
        (a, rows): ((ArrayView2<T>, &[T]), Range<usize>),
        (b, columns): ((ArrayView2<T>, &[T]), Range<usize>),
        values: &mut [T],
    ) {
        let (mut x, mut y) = (std::mem::take(&mut self.x), std::mem::take(&mut self.y));
        for start in columns.clone().step_by(LANES) {
            let last = columns.end - 1;
            y.load(pictures, b.0, b.1, |l| last.min(start + l));
            for row in rows.clone() {
                x.load(pictures, a.0, a.1, |_| row);
                let result = self.kernel(pictures, ntk, &x, &y);
                let at = (row - rows.start) * columns.len() + start - columns.start;
                let width = LANES.min(columns.end - start);
                values[at..at + width].copy_from_slice(&result[..width]);
            }
        }
        (self.x, self.y) = (x, y);
    }

    /// The kernel of sixteen pairs.
    fn kernel(&mut self, pictures: &Pictures, ntk: bool, x: &Lanes<T>, y: &Lanes<T>) -> Vec<T> {
        for i in 0..pictures.segments.len() {
            self.segment(pictures, i, ntk, x, y);
        }
        let spatial = pictures.starts.len() - 1 - tail_activations(pictures);
        let mut now = std::mem::take(&mut self.next);
        now.run(&pictures.tail, &mut self.aside, |i| (x.of(pictures, spatial + i), y.of(pictures, spatial + i)));
        let result = if ntk { now.theta.clone() } else { now.k.clone() };
        self.next = now;
        result
    }

    /// All offsets of a segment; leaves the pooled array, or the read-out in `self.next`.
    fn segment(&mut self, pictures: &Pictures, index: usize, ntk: bool, x: &Lanes<T>, y: &Lanes<T>) {
        let segment = &pictures.segments[index];
        let zeros = |len: usize| Covariances {
            k: vec![T::default(); len],
            theta: vec![T::default(); if ntk { len } else { 0 }],
        };
        let mut total = match segment.end {
            End::Pool(window) => {
                let size = (window.along(segment.output.0).0, window.along(segment.output.1).0);
                Pooled { size, values: zeros((size.0 * size.1).pow(2) * LANES) }
            }
            _ => Pooled { size: (1, 1), values: zeros(LANES) },
        };
        let positions = (segment.output.0 * segment.output.1) as f64;
        for &dy in &segment.offsets[0] {
            for &dx in &segment.offsets[1] {
                let offset = [dy, dx];
                self.patch(pictures, index, ntk, offset, &mut Run::Known { x, y });
                let patch = Patch::new(segment.output, offset);
                match segment.end {
                    End::Pool(window) => total.add(window, &self.now, &patch, offset, ntk),
                    _ => total.sum(&self.now, ntk),
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
    fn patch(&mut self, pictures: &Pictures, index: usize, ntk: bool, offset: [isize; 2], run: &mut Run<T>) {
        let segment = &pictures.segments[index];
        let at = |stride: usize| offset.map(|d| d * stride as isize);
        self.begin(pictures, index, ntk, at(segment.stride), run);
        self.aside.resize_with(DEEPEST, Covariances::default);
        let mut top = 0;
        for stage in &segment.stages {
            match stage.step {
                Step::Conv(window, v) => {
                    let before = Patch::new(stage.input, at(stage.stride.0));
                    let after = Patch::new(stage.output, at(stage.stride.1));
                    self.convolve(window, v, (stage.input, &before), &after);
                }
                Step::Activation(phi) => {
                    let (patch, d) = (Patch::new(stage.input, at(stage.stride.0)), at(stage.stride.0));
                    match run {
                        Run::Known { x, y } => {
                            let sides = (x.of(pictures, stage.activation), y.of(pictures, stage.activation));
                            activate(phi, &mut self.now, stage.input.1, &patch, d, sides);
                        }
                        Run::Found(lanes) => find(phi, &mut self.now, &mut lanes.sides),
                    }
                }
                Step::Fork => {
                    self.aside[top].copy(&self.now);
                    top += 1;
                }
                Step::Shortcut => std::mem::swap(&mut self.now, &mut self.aside[top - 1]),
                Step::Join => {
                    top -= 1;
                    self.now.add(&self.aside[top]);
                }
                Step::Dense(_) | Step::AvgPool(_) | Step::Flatten | Step::Gap => {
                    unreachable!("a segment holds none of these")
                }
            }
        }
    }

    /// The patch at the start of a segment: products of pixels, or what was pooled before.
    fn begin(&mut self, pictures: &Pictures, index: usize, ntk: bool, offset: [isize; 2], run: &Run<T>) {
        let size = pictures.segments[index].input;
        let patch = Patch::new(size, offset);
        let length = patch.groups() * LANES;
        self.now.k.resize(length, T::default());
        self.now.theta.clear();
        self.now.theta.resize(if ntk { length } else { 0 }, T::default());
        if index > 0 {
            let pooled = &self.pooled[0].values;
            gather(&pooled.k, size, &patch, offset, &mut self.now.k);
            if ntk {
                gather(&pooled.theta, size, &patch, offset, &mut self.now.theta);
            }
            return;
        }
        let (x, y) = match run {
            Run::Known { x, y } => (&x.pixels, &y.pixels),
            Run::Found(lanes) => (&lanes.pixels, &lanes.pixels),
        };
        dispatch(Products { x, y, size, channels: pictures.channels, patch: &patch, offset, out: &mut self.now.k });
    }

    /// `K ← C_w mean_e K + C_b`, `Θ ← K + C_w mean_e Θ`.
    fn convolve(&mut self, window: Window, v: Variances, before: (Size, &Patch), after: &Patch) {
        let (size, patch) = before;
        let pads = [window.along(size.0).1, window.along(size.1).1];
        let weight = v.weight / (window.size * window.size) as f64;
        let mut windows = |from: &[T], plus: Option<&[T]>, bias: f64, to: &mut Vec<T>| {
            to.resize(after.groups() * LANES, T::default());
            self.sums.resize(patch.y.len() * after.x.len() * LANES, T::default());
            let (w, b) = (T::of(weight), T::of(bias));
            dispatch(Windows { window, pads, from, before: patch, after, sums: &mut self.sums, w, b, plus, to });
        };
        windows(&self.now.k, None, v.bias, &mut self.next.k);
        if self.now.theta.is_empty() {
            self.next.theta.clear();
        } else {
            windows(&self.now.theta, Some(&self.next.k), 0.0, &mut self.next.theta);
        }
        std::mem::swap(&mut self.now, &mut self.next);
    }
}

impl Pictures {
    /// The profiles `[n, length]` of the pictures `x` `[n, channels·positions]`.
    pub fn profiles(&self, x: ArrayView2<f64>) -> Vec<f64> {
        let (few, length) = (self.diagonal_only(), self.profile_length());
        let mut profiles = vec![0.0; x.nrows() * length];
        let batches = profiles.par_chunks_mut(LANES * length.max(1)).enumerate();
        batches.for_each_init(PictureBuffers::default, |buffers, (batch, profiles)| {
            let mut lanes = Lanes::default();
            lanes.load(self, x, &[], |l| (batch * LANES + l).min(x.nrows() - 1));
            buffers.find_sides(self, &few, &mut lanes);
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

    /// `κ(x,x)` of each picture of `x`, with their profiles.
    pub fn diagonal(&self, ntk: bool, x: ArrayView2<f64>, profiles: &[f64]) -> Vec<f64> {
        let mut values = vec![0.0; x.nrows()];
        let batches = values.par_chunks_mut(LANES).enumerate();
        batches.for_each_init(PictureBuffers::default, |buffers, (batch, values)| {
            let mut lanes = Lanes::default();
            lanes.load(self, x, profiles, |l| (batch * LANES + l).min(x.nrows() - 1));
            let found = buffers.kernel(self, ntk, &lanes, &lanes);
            values.copy_from_slice(&found[..values.len()]);
        });
        values
    }
}

impl PictureBuffers<f64> {
    fn find_sides(&mut self, pictures: &Pictures, few: &Pictures, lanes: &mut Lanes<f64>) {
        for index in 0..few.segments.len() {
            self.patch(few, index, false, [0, 0], &mut Run::Found(lanes));
            if index + 1 < few.segments.len() {
                self.segment(few, index, false, lanes, lanes);
            }
        }
        if tail_activations(pictures) == 0 {
            return;
        }
        // The variances behind the read-out take the whole of it.
        for index in 0..pictures.segments.len() {
            self.segment(pictures, index, false, lanes, lanes);
        }
        let mut variances = std::mem::take(&mut self.next.k);
        let mut aside = vec![];
        for step in &pictures.tail {
            match step {
                Step::Dense(v) => variances.iter_mut().for_each(|k| *k = v.weight * *k + v.bias),
                Step::Activation(phi) => {
                    let mut now = Covariances { k: variances, theta: vec![] };
                    find(*phi, &mut now, &mut lanes.sides);
                    variances = now.k;
                }
                Step::Fork => aside.push(variances.clone()),
                Step::Shortcut => std::mem::swap(&mut variances, aside.last_mut().expect("a fork comes before")),
                Step::Join => {
                    let other = aside.pop().expect("a fork comes before");
                    variances.iter_mut().zip(&other).for_each(|(k, o)| *k += o);
                }
                Step::Flatten => {}
                Step::Conv(..) | Step::AvgPool(_) | Step::Gap => unreachable!("the pictures have been read out"),
            }
        }
    }
}

fn tail_activations(pictures: &Pictures) -> usize {
    pictures.tail.iter().filter(|s| matches!(s, Step::Activation(_))).count()
}

/// Variances become the sides of an activation, `[FIELDS, positions, LANES]` at the end of `sides`, and then its second moments.
fn find<T: Real>(phi: Phi, now: &mut Covariances<T>, sides: &mut Vec<T>) {
    fields(&now.k, sides);
    now.k.iter_mut().for_each(|k| *k = T::of(phi.second_moment(k.wide())));
}

/// An activation on a patch of a picture `width` wide.
fn activate<T: Real>(
    phi: Phi,
    now: &mut Covariances<T>,
    width: usize,
    patch: &Patch,
    offset: [isize; 2],
    (x, y): (Sides<T>, Sides<T>),
) {
    let row = patch.x.len() * LANES;
    for (i, py) in patch.y.clone().enumerate() {
        let p = py * width + patch.x.start;
        let q = p.wrapping_add_signed(offset[0] * width as isize + offset[1]);
        let range = i * row..(i + 1) * row;
        let theta = if now.theta.is_empty() { &mut [][..] } else { &mut now.theta[range.clone()] };
        super::network::activate(phi, &mut now.k[range], theta, x.starting_at(p), y.starting_at(q));
    }
}

/// `out[p] = Σ_c x[c, p] y[c, p+δ]` over a patch.
struct Products<'a, T> {
    x: &'a [T],
    y: &'a [T],
    size: Size,
    channels: usize,
    patch: &'a Patch,
    offset: [isize; 2],
    out: &'a mut [T],
}

impl<T: Real> SimdJob for Products<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (h, w) = self.size;
        let shift = self.offset[0] * w as isize + self.offset[1];
        let places = self.patch.y.clone().flat_map(|y| self.patch.x.clone().map(move |x| y * w + x));
        for (out, p) in self.out.as_chunks_mut::<LANES>().0.iter_mut().zip(places) {
            let q = p.wrapping_add_signed(shift);
            let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
            for c in 0..self.channels {
                let (x, y) = (lanes(self.x, c * h * w + p), lanes(self.y, c * h * w + q));
                for l in 0..LANES {
                    sum[l] = x[l].lane::<FMA>().mul_add(y[l].lane::<FMA>(), sum[l]);
                }
            }
            for l in 0..LANES {
                out[l] = T::of_lane(sum[l]);
            }
        }
    }
}

#[inline(always)]
fn lanes<T>(values: &[T], group: usize) -> &[T; LANES] {
    values[group * LANES..(group + 1) * LANES].try_into().expect("LANES values")
}

/// Sums over windows of a patch, along rows and then along columns: `to = w Σ from + b (+ plus)`.
struct Windows<'a, T> {
    window: Window,
    pads: [usize; 2],
    from: &'a [T],
    before: &'a Patch,
    after: &'a Patch,
    /// `[before.y, after.x, LANES]`
    sums: &'a mut [T],
    w: T,
    b: T,
    plus: Option<&'a [T]>,
    to: &'a mut [T],
}

/// The places of `within`, counted from its start, that the window `q` covers.
#[inline(always)]
fn covered(window: Window, pad: usize, q: usize, within: &Range<usize>) -> Range<usize> {
    let start = q * window.stride;
    let lo = start.max(within.start + pad) - pad - within.start;
    let hi = (start + window.size).min(within.end + pad).max(pad + within.start) - pad - within.start;
    lo..hi.max(lo)
}

impl<T: Real> SimdJob for Windows<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (from_width, width) = (self.before.x.len(), self.after.x.len());
        let sums = self.sums.as_chunks_mut::<LANES>().0;
        for y in 0..self.before.y.len() {
            for (j, q) in self.after.x.clone().enumerate() {
                let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
                for x in covered(self.window, self.pads[1], q, &self.before.x) {
                    let from = lanes(self.from, y * from_width + x);
                    for l in 0..LANES {
                        sum[l] = sum[l] + from[l].lane::<FMA>();
                    }
                }
                for l in 0..LANES {
                    sums[y * width + j][l] = T::of_lane(sum[l]);
                }
            }
        }
        let to = self.to.as_chunks_mut::<LANES>().0;
        let (w, b) = (self.w.lane::<FMA>(), self.b.lane::<FMA>());
        for (i, q) in self.after.y.clone().enumerate() {
            let rows = covered(self.window, self.pads[0], q, &self.before.y);
            for j in 0..width {
                let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
                for y in rows.clone() {
                    let from = &sums[y * width + j];
                    for l in 0..LANES {
                        sum[l] = sum[l] + from[l].lane::<FMA>();
                    }
                }
                let out = &mut to[i * width + j];
                for sum in &mut sum {
                    *sum = sum.mul_add(w, b);
                }
                if let Some(plus) = self.plus {
                    let plus = lanes(plus, i * width + j);
                    for l in 0..LANES {
                        sum[l] = sum[l] + plus[l].lane::<FMA>();
                    }
                }
                for l in 0..LANES {
                    out[l] = T::of_lane(sum[l]);
                }
            }
        }
    }
}

/// The patch at `offset` of `all` `[positions, positions, LANES]`.
fn gather<T: Real>(all: &[T], size: Size, patch: &Patch, offset: [isize; 2], out: &mut [T]) {
    let positions = size.0 * size.1;
    let shift = offset[0] * size.1 as isize + offset[1];
    let places = patch.y.clone().flat_map(|y| patch.x.clone().map(move |x| y * size.1 + x));
    for (out, p) in out.chunks_exact_mut(LANES).zip(places) {
        out.copy_from_slice(lanes(all, p * positions + p.wrapping_add_signed(shift)));
    }
}

impl<T: Real> Pooled<T> {
    fn parts(&mut self, ntk: bool) -> impl Iterator<Item = &mut Vec<T>> {
        [&mut self.values.k, &mut self.values.theta].into_iter().take(1 + usize::from(ntk))
    }

    /// Adds a patch to every pair of windows that its pairs of positions lie in.
    fn add(&mut self, window: Window, patch_values: &Covariances<T>, patch: &Patch, offset: [isize; 2], ntk: bool) {
        let (rows, columns) = self.size;
        let around = |p: usize, count: usize| {
            let first = (p + 1).saturating_sub(window.size).div_ceil(window.stride);
            first..count.min(p / window.stride + 1)
        };
        let from = [&patch_values.k, &patch_values.theta];
        for (to, from) in self.parts(ntk).zip(from) {
            let mut groups = from.chunks_exact(LANES);
            for y in patch.y.clone() {
                for x in patch.x.clone() {
                    let values = groups.next().expect("a group for each position");
                    let (y2, x2) = (y.wrapping_add_signed(offset[0]), x.wrapping_add_signed(offset[1]));
                    for q in around(y, rows).flat_map(|qy| around(x, columns).map(move |qx| qy * columns + qx)) {
                        let others =
                            around(y2, rows).flat_map(|qy| around(x2, columns).map(move |qx| qy * columns + qx));
                        for r in others {
                            let at = (q * rows * columns + r) * LANES;
                            to[at..at + LANES].iter_mut().zip(values).for_each(|(t, &v)| *t += v);
                        }
                    }
                }
            }
        }
    }

    /// Adds all positions of a patch.
    fn sum(&mut self, patch: &Covariances<T>, ntk: bool) {
        let from = [&patch.k, &patch.theta];
        for (to, from) in self.parts(ntk).zip(from) {
            dispatch(Total { from, to });
        }
    }

    fn scale(&mut self, by: f64) {
        let by = T::of(by);
        let Covariances { k, theta } = &mut self.values;
        k.iter_mut().chain(theta).for_each(|v| *v *= by);
    }
}

struct Total<'a, T> {
    from: &'a [T],
    to: &'a mut [T],
}

impl<T: Real> SimdJob for Total<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let mut sum = [T::of(0.0).lane::<FMA>(); LANES];
        for from in self.from.as_chunks::<LANES>().0 {
            for l in 0..LANES {
                sum[l] = sum[l] + from[l].lane::<FMA>();
            }
        }
        for (to, sum) in self.to.iter_mut().zip(sum) {
            *to = T::of_lane(to.lane::<FMA>() + sum);
        }
    }
}
