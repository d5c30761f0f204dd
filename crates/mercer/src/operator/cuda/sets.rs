//! Sets of points that stay where the GPU wants them: prepared once, then any part of them is multiplied with any other.

use super::ADVICE;
use super::device::{CudaKernel, DevicePoints, Product};
use super::launch::padded;
use super::operator::Placement;
use super::wide::InnerProducts;
use crate::Result;
use crate::compute::cuda::Buffer;
use crate::linalg::{Panel, Part};
use std::ops::Range;

/// One or two sets of points under one kernel: every point that is equal to another of either set has a name.
pub(super) struct Sets {
    pub kernel: CudaKernel,
    pub placed: Vec<Placement>,
}

/// A part of one of the sets, by its number.
pub(super) type Of<'a> = (usize, Part<'a>);

/// Points of a part in the layout of the tiles.
enum Loaded<'a> {
    Whole(&'a DevicePoints),
    Some(DevicePoints),
}

impl Loaded<'_> {
    fn points(&self) -> &DevicePoints {
        match self {
            Loaded::Whole(points) => points,
            Loaded::Some(points) => points,
        }
    }
}

/// A side of a product: points, where they are in their set, and the first of them if they are a range.
struct Side<'a> {
    loaded: Loaded<'a>,
    places: Option<Buffer>,
    first: usize,
}

impl Side<'_> {
    fn places(&self) -> u64 {
        self.places.as_ref().map_or(0, Buffer::pointer)
    }
}

/// Inner products of the points of two parts of wide points, kept for several products.
pub(crate) struct Kept<'a> {
    kernel: &'a CudaKernel,
    sides: [Side<'a>; 2],
    same: bool,
    products: InnerProducts,
}

impl Kept<'_> {
    /// `κ(A, B) V` `[a, columns]` for `V` `[b, columns]`, or `κ(A, B)ᵀ V` `[b, columns]` for `V` `[a, columns]`, on this GPU.
    pub fn product(&self, transposed: bool, v: &Panel) -> Result<Panel> {
        let [left, right] = &self.sides;
        let sides = [left.loaded.points(), right.loaded.points()];
        let ([n, m], columns) = (sides.map(|points| points.n), v.ncols());
        let (length, rows) = if transposed { (n, m) } else { (m, n) };
        assert_eq!(v.nrows(), length, "a product with vectors of another length");
        let what = || format!("sums of {rows} points with {columns} columns");
        let y = self.kernel.gpu().allocate(8 * rows * columns, &what, ADVICE)?;
        let (places, diagonal) = (Sets::places_of(self.same, left, right), Sets::diagonal(self.same, left, right));
        let v = v.buffer().expect("the panel is on this GPU").pointer();
        let product = Product { sides, places, diagonal, v, y: y.pointer(), columns, double: true };
        match transposed {
            false => self.kernel.kept_product(&self.products, &product)?,
            true => self.kernel.kept_transposed_product(&self.products, &product)?,
        }
        Ok(Panel::from_buffer([rows, columns], y))
    }
}

impl Sets {
    /// Number of points of a set.
    fn n(&self, set: usize) -> usize {
        match &self.placed[set] {
            Placement::Resident(points) => points.n,
            Placement::Streamed { raw, .. } => raw.nrows(),
        }
    }

    /// The places of a part that are on the device at a time.
    fn pieces(&self, (set, part): &Of<'_>) -> Vec<Range<usize>> {
        let count = part.len(self.n(*set));
        let each = match &self.placed[*set] {
            Placement::Resident(_) => count.max(1),
            Placement::Streamed { chunk, .. } => *chunk,
        };
        (0..count).step_by(each).map(|start| start..count.min(start + each)).collect()
    }

    /// Brings a part into the layout of the tiles.
    fn side(&self, (set, part): (usize, &Part<'_>)) -> Result<Side<'_>> {
        let n = self.n(set);
        let (count, range) = (part.len(n), part.range(n));
        let places = range.is_none().then(|| self.places(&part.list(n))).transpose()?;
        let first = range.map_or(0, |range| range.start);
        let loaded = match &self.placed[set] {
            Placement::Resident(points) if part.is_all(n) => Loaded::Whole(points),
            Placement::Resident(points) => Loaded::Some(self.kernel.gather(points, places.as_ref(), first, count)?),
            Placement::Streamed { raw, .. } => {
                let mut upload = self.kernel.allocate_raw(count)?;
                let rows = part.list(n);
                let some: Vec<f64> = rows.iter().flat_map(|&i| raw.row(i).to_vec()).collect();
                upload.write(0, &some);
                let points = self.kernel.allocate_points(count)?;
                self.kernel.prepare_points(true, upload.pointer(), 0, &points);
                Loaded::Some(points)
            }
        };
        Ok(Side { loaded, places, first })
    }

    /// A list of numbers on the device, the last one repeated for the padding.
    fn places(&self, rows: &[usize]) -> Result<Buffer> {
        let number = |&row: &usize| i32::try_from(row).expect("a point's number is below 2^31");
        let mut numbers: Vec<i32> = rows.iter().map(number).collect();
        numbers.resize(padded(rows.len()), numbers.last().copied().unwrap_or(0));
        self.kernel.gpu().upload(&numbers, &|| "a list of points".into(), ADVICE)
    }

    /// Where two points of the same set are the same, see [`Product`]; none for two sets.
    fn diagonal(same: bool, a: &Side<'_>, b: &Side<'_>) -> Option<i32> {
        same.then(|| b.first as i32 - a.first as i32)
    }

    /// Where the points of two sides are, see [`Product`].
    fn places_of(same: bool, left: &Side<'_>, right: &Side<'_>) -> Option<[u64; 2]> {
        let listed = left.places.is_some() || right.places.is_some();
        (listed && same).then(|| [left.places(), right.places()])
    }

    /// The inner products of two parts, where points are wide, their sets are on the device, and half of its free memory holds them.
    pub fn keep(&self, a: &Of<'_>, b: &Of<'_>) -> Result<Option<Kept<'_>>> {
        let resident = |set: usize| matches!(self.placed[set], Placement::Resident(_));
        let (n, m) = (a.1.len(self.n(a.0)), b.1.len(self.n(b.0)));
        let fits = || 2 * InnerProducts::bytes(n, m) as u64 <= self.kernel.gpu().memory().0;
        if !(self.kernel.is_wide() && resident(a.0) && resident(b.0) && n * m > 0 && fits()) {
            return Ok(None);
        }
        let sides = [self.side((a.0, &a.1))?, self.side((b.0, &b.1))?];
        let products = self.kernel.inner_products([sides[0].loaded.points(), sides[1].loaded.points()])?;
        Ok(Some(Kept { kernel: &self.kernel, sides, same: a.0 == b.0, products }))
    }

    /// `κ(A, B) V` `[a, columns]` for `V` `[b, columns]` on this GPU.
    pub fn product(&self, a: &Of<'_>, b: &Of<'_>, v: &Panel) -> Result<Panel> {
        let (gpu, columns, same) = (self.kernel.gpu(), v.ncols(), a.0 == b.0);
        let (n, m) = (a.1.len(self.n(a.0)), b.1.len(self.n(b.0)));
        assert_eq!(v.nrows(), m, "a product with vectors of another length");
        let what = || format!("sums of {n} points with {columns} columns");
        let mut y = gpu.allocate(8 * n * columns, &what, ADVICE)?;
        if m == 0 {
            y.zero(0, 8 * n * columns);
        }
        let from = v.buffer().expect("the panel is on this GPU").pointer();
        let (of_rows, of_columns) = (self.pieces(a), self.pieces(b));
        for rows in &of_rows {
            let left = self.side((a.0, &a.1.within(self.n(a.0), rows.clone())))?;
            let to = y.pointer() + (8 * rows.start * columns) as u64;
            for (j, cols) in of_columns.iter().enumerate() {
                let right = self.side((b.0, &b.1.within(self.n(b.0), cols.clone())))?;
                let (places, diagonal) = (Sets::places_of(same, &left, &right), Sets::diagonal(same, &left, &right));
                let term = if j == 0 { None } else { Some(gpu.allocate(8 * rows.len() * columns, &what, ADVICE)?) };
                let out = term.as_ref().map_or(to, Buffer::pointer);
                let (sides, v) =
                    ([left.loaded.points(), right.loaded.points()], from + (8 * cols.start * columns) as u64);
                self.kernel.placed_product(&Product { sides, places, diagonal, v, y: out, columns, double: true })?;
                if term.is_some() {
                    // SAFETY: `term` has room for these rows, and `to` is where these rows of Y begin.
                    unsafe { gpu.add_f64(rows.len() * columns, 1.0, out, to) };
                }
            }
        }
        Ok(Panel::from_buffer([n, columns], y))
    }

    /// `κ(A, B)` `[a, b]` on this GPU, in f64. Both parts must fit into its memory.
    pub fn block(&self, a: &Of<'_>, b: &Of<'_>) -> Result<Panel> {
        let (n, m) = (a.1.len(self.n(a.0)), b.1.len(self.n(b.0)));
        // Long sides are columns of the launch.
        let swapped = n > m;
        let (rows, columns) = if swapped { (b, a) } else { (a, b) };
        let (left, right) = (self.side((rows.0, &rows.1))?, self.side((columns.0, &columns.1))?);
        let diagonal = Sets::diagonal(a.0 == b.0, &left, &right);
        let sides = [left.loaded.points(), right.loaded.points()];
        self.kernel.block(sides, [left.places(), right.places()], diagonal, swapped)
    }
}
