//! The plan as CUDA source: what one warp does with one offset, for `operator/cuda/images.cu`.

use super::{End, Images, Segment, Size, Stage};
use crate::compute::Activation;
use crate::kernel::infinite::{Expectations, Side, Step};
use crate::operator::cuda::logistic;
use crate::operator::tile::network::FIELDS;
use crate::simd::source::{Listing, Source, Style, Variable, record_all};
use std::fmt::Write;

/// Lanes of a warp: the columns of the widest image that it holds.
const WARP: usize = 32;

/// The source of a network's layers.
pub(in crate::operator) struct Layers {
    /// `#define`s that `images.cu` reads.
    pub defines: Vec<(&'static str, String)>,
    /// The functions `one_offset` and `read_out`.
    pub functions: String,
    /// Rows of 32 values in the patches of a warp, all together.
    pub patch: usize,
    /// Offsets along y, and warps that run those along x.
    pub offsets: [usize; 2],
    /// Operations of the longest activation.
    pub operations: usize,
    /// Values between the segments of a network that pools, for one pair of images.
    pub scratch: usize,
}

impl Images {
    /// The layers as CUDA source. None for images of more columns or rows than a warp has lanes.
    ///
    /// Pooling mixes offsets: all of a pair's offsets up to there are run first, and the values between all pairs of positions are kept in device
    /// memory, from where the next segment reads its windows.
    pub(in crate::operator) fn layers(&self) -> Option<Layers> {
        let of_segment = |s: &Segment| s.stages.iter().flat_map(|t| [t.input, t.output]).chain([s.input]).collect();
        let sizes: Vec<Size> = self.segments.iter().flat_map(|s| -> Vec<Size> { of_segment(s) }).collect();
        let (height, width) = sizes.iter().fold((0, 0), |(h, w), size| (h.max(size.0), w.max(size.1)));
        if height > WARP || width > WARP {
            return None;
        }
        let (segment, pooled) = self.segments.split_last().expect("one segment at least");
        let mut writer = Writer::new(self, height);
        (0..self.segments.len()).for_each(|number| writer.one_offset(number));
        writer.passes();
        writer.read_out();
        let [wanted_y, wanted_x] = &segment.offsets;
        let (end_y, end_x) = segment.output;
        let cyclic = pooled.is_empty() && segment.end == End::Gap && segment.is_divided(end_x);
        let (first_x, offsets_x) = if cyclic { (0, end_x) } else { (wanted_x[0], wanted_x.len()) };
        let each = width.next_power_of_two().max(8);
        let positions = (end_y * end_x) as f64;
        let scale = if segment.end == End::Gap { positions * positions } else { positions };
        let patch = writer.buffers * height;
        let defines = vec![
            ("NTK", usize::from(self.ntk).to_string()),
            ("EACH", each.to_string()),
            ("CYCLIC", usize::from(cyclic).to_string()),
            ("FIRST_Y", format!("({})", wanted_y[0])),
            ("OFFSETS_Y", wanted_y.len().to_string()),
            ("FIRST_X", format!("({first_x})")),
            ("OFFSETS_X", offsets_x.to_string()),
            ("HEIGHT", end_y.to_string()),
            ("WIDTH", end_x.to_string()),
            ("RECORD", self.record_length().to_string()),
            ("PATCH", patch.to_string()),
            ("POOLED", usize::from(!pooled.is_empty()).to_string()),
            ("SCRATCH", self.scratch(pooled.len()).to_string()),
            ("SCALE", format!("{:?}", 1.0 / scale)),
            ("UNROLL", if writer.operations() > 64 { "1" } else { "2" }.into()),
        ];
        let operations = writer.operations();
        let functions = writer.activations.iter().map(|(_, text, _)| text.as_str()).collect::<String>() + &writer.text;
        Some(Layers {
            defines,
            functions,
            patch,
            offsets: [wanted_y.len(), offsets_x.div_ceil(WARP / each)],
            operations,
            scratch: self.scratch(pooled.len()),
        })
    }

    /// Where the values at the end of segment `number` begin among those between segments: a value for each pair of positions.
    fn scratch(&self, number: usize) -> usize {
        self.segments[..number].iter().map(|segment| (segment.output.0 * segment.output.1).pow(2)).sum()
    }

    /// Numbers in the record of an image.
    pub fn record_length(&self) -> usize {
        self.pixels() + FIELDS * self.profile_length()
    }

    fn pixels(&self) -> usize {
        let (h, w) = self.segments[0].input;
        self.channels * h * w
    }

    /// The record of an image: its `pixels`, and the fields of the variances in its `profile`, activation by activation.
    pub fn record(&self, pixels: impl Iterator<Item = f64>, profile: &[f64]) -> Vec<f64> {
        let mut record = Vec::with_capacity(self.record_length());
        record.extend(pixels);
        for activation in self.starts.windows(2) {
            let sides: Vec<Side<f64>> = profile[activation[0]..activation[1]].iter().map(|v| Side::of(*v)).collect();
            record.extend(sides.iter().map(|side| side.variance));
            record.extend(sides.iter().map(|side| side.deviation));
            record.extend(sides.iter().map(|side| side.inverse));
        }
        record
    }
}

impl Segment {
    /// Whether every image in it is as many times as wide as that at its end, of `width`, as offsets are larger.
    fn is_divided(&self, width: usize) -> bool {
        let divides = |size: (usize, usize), stride: usize| size.1 == stride * width;
        let stages = self.stages.iter().all(|s| divides(s.input, s.stride.0) && divides(s.output, s.stride.1));
        stages && divides(self.input, self.stride)
    }
}

/// Where the covariances of a patch are.
#[derive(Clone, Copy, PartialEq)]
enum Now {
    /// Not computed yet: products of pixels, or means over windows of the segment before.
    Input,
    /// In this buffer of the warp.
    Buffer(usize),
}

struct Writer<'a> {
    images: &'a Images,
    /// The number of the segment that is written.
    number: usize,
    text: String,
    /// Each activation with its function and its number of operations.
    activations: Vec<(Activation, String, usize)>,
    buffers: usize,
    height: usize,
}

impl<'a> Writer<'a> {
    /// For images of at most `height` rows.
    fn new(images: &'a Images, height: usize) -> Self {
        Writer { images, number: 0, text: String::new(), activations: vec![], buffers: 1, height }
    }

    fn segment(&self) -> &'a Segment {
        &self.images.segments[self.number]
    }

    fn line(&mut self, text: &str) {
        writeln!(self.text, "{text}").expect("a String takes every line");
    }

    fn operations(&self) -> usize {
        self.activations.iter().map(|(.., operations)| *operations).max().unwrap_or(0)
    }

    /// The number of the function `activate_…` of φ.
    fn activation(&mut self, phi: Activation) -> usize {
        if let Some(known) = self.activations.iter().position(|(other, ..)| *other == phi) {
            return known;
        }
        let (number, listing) = (self.activations.len(), expectations(phi));
        let text = format!(
            "// {phi}\ntemplate <class X, class Y> INLINE void activate_{number}(Value &v, const X &x, const Y &y, int row) {{\n    \
             const real k = v.k, xv = x.field(0, row), xd = x.field(1, row), xi = x.field(2, row);\n    \
             const real yv = y.field(0, row), yd = y.field(1, row), yi = y.field(2, row);\n{}    \
             WITH_THETA(v.t *= slope);\n}}\n",
            listing.statements(&["v.k", "const real slope"])
        );
        let functions = logistic::source(&listing.calls());
        self.activations.push((phi, functions + &text, listing.operations()));
        number
    }

    /// `Value one_offset_…(x, y, column, dy, dx, patch, scratch)` of a segment: the sum over the patch at its end, or, before a pool, zero, and the
    /// patch is written to the scratch.
    fn one_offset(&mut self, number: usize) {
        self.number = number;
        self.line(&format!(
            "INLINE Value one_offset_{number}(const real *x, const real *y, int column, int dy, int dx, Value *patch, Value *scratch) {{"
        ));
        self.line("    Value sum = zero();");
        let (mut now, mut aside, mut buffers) = (Now::Input, vec![], 1);
        let stages = &self.segment().stages;
        let mut at = 0;
        let mut summed = false;
        while at < stages.len() {
            let stage = &stages[at];
            match stage.step {
                Step::Conv(..) | Step::Activation(_) => {
                    let next = stages.get(at + 1).filter(|_| matches!(stage.step, Step::Conv(..)));
                    let fused = next.filter(|next| matches!(next.step, Step::Activation(_)));
                    at += usize::from(fused.is_some());
                    summed = at + 1 == stages.len();
                    let to = if let Now::Buffer(buffer) = now { buffer } else { 0 };
                    self.pass(stage, fused, now, (!summed).then_some(to));
                    now = Now::Buffer(to);
                }
                Step::Fork => {
                    let from = self.settle(now);
                    aside.push(buffers);
                    buffers += 1;
                    self.copy(stage, from, buffers - 1, "=");
                    now = Now::Buffer(from);
                }
                Step::Shortcut => {
                    let (from, other) = (self.settle(now), aside.last_mut().expect("a fork comes before"));
                    now = Now::Buffer(std::mem::replace(other, from));
                }
                Step::Join => {
                    let (to, from) = (self.settle(now), aside.pop().expect("a fork comes before"));
                    self.copy(stage, from, to, "+=");
                    now = Now::Buffer(to);
                }
                Step::Dense(_) | Step::AvgPool(_) | Step::Flatten | Step::Gap => {
                    unreachable!("a segment holds none of these")
                }
            }
            at += 1;
        }
        if !summed {
            let (height, from) = (self.segment().output.0, self.settle(now));
            let (from, put) = (self.row_of(from), self.end());
            self.line(&format!(
                "    for (int q = first_row(dy); q < end_row({height}, dy); ++q) {{ const Value v = {from}; {put} }}"
            ));
        }
        self.buffers = self.buffers.max(buffers);
        self.line("    return sum;\n}");
    }

    /// What happens to a value `v` of row q at the end of the segment.
    fn end(&self) -> String {
        let ((h, w), start) = (self.segment().output, self.images.scratch(self.number));
        match self.segment().end {
            End::Pool(_) => format!("keep<{h}, {w}>(scratch + {start}, column, q, dy, dx, v);"),
            End::Flatten | End::Gap => "add(sum, v);".into(),
        }
    }

    /// `one_offset` of the last segment, and `passes(x, y, warp, lane, patch, scratch)`: all offsets of the segments before it, one after the other.
    fn passes(&mut self) {
        let last = self.images.segments.len() - 1;
        self.line(&format!("#define one_offset one_offset_{last}"));
        self.line(
            "INLINE void passes(const real *x, const real *y, int warp, int lane, Value *patch, Value *scratch) {",
        );
        for (number, segment) in self.images.segments[..last].iter().enumerate() {
            let range = |wanted: &[isize]| match wanted {
                [first, .., last] => format!("{first}, {}", last - first + 1),
                [first] => format!("{first}, 1"),
                [] => "0, 0".into(),
            };
            let [y, x] = &segment.offsets;
            self.line(&format!(
                "    each_offset<{}, {}>(warp, lane, [&](int dy, int dx) {{\n        \
                 one_offset_{number}(x, y, lane % EACH, dy, dx, patch, scratch);\n    }});\n    __syncthreads();",
                range(y),
                range(x)
            ));
        }
        self.line("}");
    }

    /// Row `q` of a buffer.
    fn row_of(&self, buffer: usize) -> String {
        format!("patch[(q + {}) * 32]", buffer * self.height)
    }

    /// What reads the rows of a patch.
    fn from(&self, now: Now) -> String {
        let ((h, w), s) = (self.segment().input, self.segment().stride);
        match now {
            Now::Input if self.number == 0 => {
                format!("Pixels<{}, {h}, {w}, {s}>(x, y, column, dy, dx)", self.images.channels)
            }
            Now::Input => {
                let before = &self.images.segments[self.number - 1];
                let End::Pool(window) = before.end else {
                    unreachable!("only a pool ends a segment that others follow")
                };
                let (size, step, (rows, columns)) = (window.size, window.stride, before.output);
                let start = self.images.scratch(self.number - 1);
                format!("Pooled<{size}, {step}, {rows}, {columns}, {w}, {s}>(scratch + {start}, column, dy, dx)")
            }
            Now::Buffer(buffer) => format!("[&](int q) {{ return {}; }}", self.row_of(buffer)),
        }
    }

    /// The buffer that holds the patch, after writing it there if it is not.
    fn settle(&mut self, now: Now) -> usize {
        if let Now::Buffer(buffer) = now {
            return buffer;
        }
        let (from, to, s) = (self.from(now), self.row_of(0), self.segment().stride);
        let height = self.segment().input.0;
        let rows = format!("    each_row<{height}, {s}>(dy, {from}, [&](int q, Value v) {{ {to} = v; }});");
        self.line(&rows);
        0
    }

    /// `to = from` or `to += from` on the rows of a patch before the stage.
    fn copy(&mut self, stage: &Stage, from: usize, to: usize, how: &str) {
        let (from, to) = (self.from(Now::Buffer(from)), self.row_of(to));
        let put = if how == "=" { format!("{to} = v;") } else { format!("add({to}, v);") };
        let (h, s) = (stage.input.0, stage.stride.0);
        self.line(&format!("    each_row<{h}, {s}>(dy, {from}, [&](int q, Value v) {{ {put} }});"));
    }

    /// A convolution with the activation behind it, or an activation alone; to a buffer, or added to the sum.
    fn pass(&mut self, stage: &Stage, fused: Option<&Stage>, now: Now, to: Option<usize>) {
        let put = to.map_or_else(|| self.end(), |to| format!("{} = v;", self.row_of(to)));
        let from = self.from(now);
        let active = if matches!(stage.step, Step::Activation(_)) { Some(stage) } else { fused };
        self.line("    {");
        let call = active.map_or(String::new(), |active| self.sides(active));
        let to = format!("[&](int q, Value v) {{ {call}{put} }}");
        let ((h, w), (rows, _)) = (stage.input, stage.output);
        let (before, after) = stage.stride;
        if let Step::Conv(window, variances) = stage.step {
            let (size, step) = (window.size, window.stride);
            let (up, left) = (window.along(h).before, window.along(w).before);
            let weight = variances.weight / (size * size) as f64;
            let first = now == Now::Input && self.number == 0;
            self.line(&format!(
                "        convolve<{size}, {step}, {up}, {left}, {h}, {w}, {rows}, {before}, {after}, {first}>(\n            \
                 (real){weight:?}, (real){:?}, column, dy, dx, {from}, {to});",
                variances.bias
            ));
        } else {
            self.line(&format!("        each_row<{h}, {before}>(dy, {from}, {to});"));
        }
        self.line("    }");
    }

    /// Defines the sides of an activation's inputs; returns the call of it for row q.
    fn sides(&mut self, stage: &Stage) -> String {
        let Step::Activation(phi) = stage.step else { unreachable!("an activation") };
        let ((h, w), s) = (stage.input, stage.stride.0);
        let start = self.images.pixels() + FIELDS * self.images.starts[stage.activation];
        let number = self.activation(phi);
        self.line(&format!("        const Columns at = columns<{s}, {w}>(column, dx);"));
        self.line(&format!("        const Side<{h}, {w}> of_x = {{x + {start} + at.x}};"));
        self.line(&format!("        const Side<{h}, {w}> of_y = {{y + {start} + {s} * dy * {w} + at.y}};"));
        format!("activate_{number}(v, of_x, of_y, q); ")
    }

    /// `read_out(v, x, y)`: the steps behind the read-out, on one value.
    fn read_out(&mut self) {
        self.line("INLINE void read_out(Value &v, const real *x, const real *y) {");
        let images = self.images;
        let mut activation = images.starts.len() - 1 - super::pairs::tail_activations(images);
        let (mut aside, mut names) = (vec![], 0);
        for step in &images.tail {
            match *step {
                Step::Dense(v) => self.line(&format!("    dense(v, (real){:?}, (real){:?});", v.weight, v.bias)),
                Step::Activation(phi) => {
                    let (number, start) = (self.activation(phi), images.pixels() + FIELDS * images.starts[activation]);
                    let sides = format!("Side<1, 1>{{x + {start}}}, Side<1, 1>{{y + {start}}}");
                    self.line(&format!("    activate_{number}(v, {sides}, 0);"));
                    activation += 1;
                }
                Step::Fork => {
                    self.line(&format!("    Value v{names} = v;"));
                    aside.push(names);
                    names += 1;
                }
                Step::Shortcut => {
                    let other = aside.last().expect("a fork comes before");
                    self.line(&format!("    {{ const Value w = v; v = v{other}; v{other} = w; }}"));
                }
                Step::Join => {
                    let other = aside.pop().expect("a fork comes before");
                    self.line(&format!("    add(v, v{other});"));
                }
                Step::Flatten | Step::Conv(..) | Step::AvgPool(_) | Step::Gap => {}
            }
        }
        self.line("}");
    }
}

/// `E[φφ]` and `E[φ'φ']` as operations on `k` and the fields of both sides.
fn expectations(phi: Activation) -> Listing {
    record_all(Style::Exact, || {
        let of = |name: &'static str| Source::variable(Variable::Named(name));
        let side = |variance, deviation, inverse| Side {
            variance: of(variance),
            deviation: of(deviation),
            inverse: of(inverse),
        };
        let (value, slope) = phi.dual(of("k"), side("xv", "xd", "xi"), side("yv", "yd", "yi"));
        [value, slope]
    })
}
