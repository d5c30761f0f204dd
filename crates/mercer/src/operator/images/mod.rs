//! Infinite convolutional networks over a tile of pairs of images.
//!
//! A convolution averages K over windows moved in step: `K'[q, q'] = mean_e K[sq+e, sq'+e]`. So the entries with one offset
//! `δ = q'−q` need only those with offset `sδ` before it: every offset runs through all layers on its own, in a patch of at
//! most one image that stays in the cache, and no array over all pairs of positions exists. Reading out by
//! `flatten` needs the offset zero alone, by `gap` all of them. Only `avgpool` mixes offsets: there the network is cut
//! into segments with one array `[positions, positions]` of the pooled (smaller) image between them.
//!
//! Sixteen pairs of images are computed together, one image with sixteen others, so every loop runs over full vectors
//! whatever the patch's shape. A convolution and the activation behind it go row by row: a row of sums over windows is still
//! in the first-level cache when the activation takes it up.
//!
//! | file | what |
//! |---|---|
//! | this one | the plan: segments, offsets, patches |
//! | `pairs.rs` | its run over pairs of images, the profiles and the diagonal |
//! | `passes.rs` | the loops over a patch |
//! | `pooled.rs` | the array between two segments |
//! | `source.rs` | the plan as CUDA source |

mod pairs;
mod passes;
mod pooled;
mod source;

pub(super) use pairs::ImageBuffers;

use crate::kernel::infinite::{Network, Step};
use crate::net::Window;
use std::ops::Range;

type Size = (usize, usize);

/// A network cut into segments, with what each of its steps acts on.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    /// Whether the kernel is Θ rather than K.
    ntk: bool,
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
    /// Size of the image before and after the step.
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

impl Images {
    /// The plan of a network that looks at images, for its NTK or its NNGP.
    pub fn new(network: &Network, ntk: bool) -> Images {
        let [h, w, channels] = network.shape().expect("a network of images");
        let (mut segments, mut starts, mut size) = (vec![], vec![0], (h, w));
        let mut steps = network.steps();
        loop {
            let cut = |s: &Step| matches!(s, Step::AvgPool(_) | Step::Flatten | Step::Gap);
            let length = steps.iter().position(cut).expect("the network reads its images out");
            let segment = Segment::new(&steps[..length], steps[length], size, &mut starts);
            steps = &steps[length + 1..];
            let (output, end) = (segment.output, segment.end);
            segments.push(segment);
            match end {
                End::Pool(window) => size = (window.along(output.0).count, window.along(output.1).count),
                _ => break,
            }
        }
        for step in steps {
            if matches!(step, Step::Activation(_)) {
                starts.push(starts[starts.len() - 1] + 1);
            }
        }
        let mut images = Images { ntk, channels, segments, tail: steps.to_vec(), starts };
        images.need();
        images
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

    /// K of the same network read out by `flatten`, whose variances need few offsets.
    fn diagonal_only(&self) -> Images {
        let mut images = Images { ntk: false, ..self.clone() };
        images.segments.last_mut().expect("one segment at least").end = End::Flatten;
        images.need();
        images
    }

    /// Whether the kernel is the NTK.
    pub fn is_ntk(&self) -> bool {
        self.ntk
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
                Step::Conv(window, _) => size = (window.along(size.0).count, window.along(size.1).count),
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

/// The part of an image of size `n` where both `p` and `p + d` lie in it, along one axis.
fn overlap(n: usize, d: isize) -> Range<usize> {
    (-d).max(0) as usize..(n as isize - d.max(0)).max(0) as usize
}

/// Where a patch lies: positions p for which `p + δ` is in the image too.
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
