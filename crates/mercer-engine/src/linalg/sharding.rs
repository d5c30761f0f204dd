//! How the rows of long vectors are sharded over the ranks of a group.

use super::Panel;
use crate::compute::Device;
use crate::group::{Group, KeptGroup, bytes, numbers};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, Axis, s};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Consecutive rows for each rank of a group: the first belong to rank 0.
#[derive(Debug)]
pub struct Shares {
    /// The first row of each rank, and n.
    starts: Vec<usize>,
    group: KeptGroup,
}

/// Bytes that one rank sends to the first at a time.
const PIECE: usize = 1 << 20;

impl Shares {
    /// Of `own` rows on this rank; collective.
    pub fn new(group: Group<'_>, own: usize) -> Result<Shares> {
        let lengths = group.concatenated(&[own as f64])?;
        let mut starts = vec![0];
        starts.extend(lengths.iter().scan(0, |n, length| {
            *n += *length as usize;
            Some(*n)
        }));
        Ok(Shares { starts, group: group.kept() })
    }

    /// The ranks.
    pub fn group(&self) -> Group<'_> {
        self.group.group()
    }

    /// n, the rows of all ranks.
    pub fn n(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// The first row of each rank, and n.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The rows of this rank.
    pub fn own(&self) -> Range<usize> {
        let rank = self.group().rank();
        self.starts[rank]..self.starts[rank + 1]
    }

    /// Those of some rows that this rank has, as their places in the list and counted from its first.
    pub fn own_of<'r>(&self, rows: &'r [usize]) -> impl Iterator<Item = (usize, usize)> + use<'r> {
        let own = self.own();
        let here = rows.iter().enumerate().filter(move |(_, row)| own.contains(row));
        let first = self.own().start;
        here.map(move |(place, row)| (place, row - first))
    }

    /// What all ranks have of some rows, in the order of `rows`: each rank gives as many bytes for each of its rows among them, `width`.
    pub fn in_order(&self, rows: &[usize], width: usize, own: &[u8]) -> Result<Vec<u8>> {
        let gathered = self.group().all_gather(own)?;
        let mut places = vec![0; gathered.len()];
        let mut all = Vec::with_capacity(rows.len() * width);
        for row in rows {
            let rank = self.starts.partition_point(|start| start <= row) - 1;
            all.extend(&gathered[rank][places[rank]..places[rank] + width]);
            places[rank] += width;
        }
        Ok(all)
    }
}

/// How the rows of vectors `[n, b]` are sharded: this process has all of them, or those of its rank.
///
/// ```
/// use mercer_engine::{compute::Device, group::on_threads, linalg::{Sharding, Shares}};
/// use std::sync::Arc;
/// let v = ndarray::array![[1.0], [2.0], [3.0]];
/// let found = on_threads(2, |group| {
///     let sharding = Sharding::from(Arc::new(Shares::new(group, group.share(3).len()).unwrap()));
///     let panel = sharding.panel(Device::Cpu, v.view()).unwrap();
///     (panel.dots(&panel).unwrap()[0], panel.nrows(), panel.into_host().unwrap())
/// });
/// assert!(found.iter().all(|(dot, n, whole)| (*dot, *n) == (14.0, 3) && whole == v));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Sharding(Option<Arc<Shares>>);

impl PartialEq for Sharding {
    fn eq(&self, other: &Sharding) -> bool {
        self.is(other)
    }
}

impl From<Arc<Shares>> for Sharding {
    fn from(shares: Arc<Shares>) -> Sharding {
        Sharding(Some(shares).filter(|shares| !shares.group().is_single()))
    }
}

impl Sharding {
    /// All rows are here.
    pub const WHOLE: Sharding = Sharding(None);

    /// Whether this process has all rows.
    pub fn is_whole(&self) -> bool {
        self.0.is_none()
    }

    /// The shares of the ranks, where there are several.
    pub fn shares(&self) -> Option<&Shares> {
        self.0.as_deref()
    }

    /// Those of n rows that this process has.
    pub fn rows(&self, n: usize) -> Range<usize> {
        self.shares().map_or(0..n, Shares::own)
    }

    /// The ranks.
    pub fn group(&self) -> Group<'_> {
        self.shares().map_or(Group::SINGLE, Shares::group)
    }

    /// Whether rows are sharded the same way in `other`.
    pub fn is(&self, other: &Sharding) -> bool {
        self.shares().map(Shares::starts) == other.shares().map(Shares::starts)
    }

    /// The rows of this process, of all `[n, b]`.
    pub fn own<'v>(&self, whole: ArrayView2<'v, f64>) -> ArrayView2<'v, f64> {
        let rows = self.rows(whole.nrows());
        whole.slice_move(s![rows, ..])
    }

    /// Vectors `[n, b]` on `device`, sharded so, of which every process has all.
    pub fn panel(&self, device: Device, whole: ArrayView2<f64>) -> Result<Panel> {
        Panel::sharded(device, self, self.own(whole).to_owned())
    }

    /// All rows `[n, b]` on every rank, from those of this process; collective.
    pub fn gathered(&self, own: Array2<f64>) -> Result<Array2<f64>> {
        let Some(shares) = self.shares() else { return Ok(own) };
        let b = own.ncols();
        let mut whole = Array2::zeros((shares.n(), b));
        let target: &mut [f64] = whole.as_slice_mut().expect("own array");
        let own = own.as_standard_layout();
        shares.group().gather_pieces(bytes(own.as_slice().expect("row by row")), &mut |rank, place, piece| {
            let first = shares.starts[rank] * b + place / 8;
            target[first..first + piece.len() / 8].copy_from_slice(&numbers::<f64>(piece));
        })?;
        Ok(whole)
    }

    /// Some rows `[rows, b]`, in the order in which they are named, on every rank; collective.
    pub fn at(&self, rows: &[usize], own: ArrayView2<f64>) -> Result<Array2<f64>> {
        let Some(shares) = self.shares() else { return Ok(own.select(Axis(0), rows)) };
        let here: Vec<usize> = shares.own_of(rows).map(|(_, row)| row).collect();
        let here = own.select(Axis(0), &here);
        let here = here.as_slice().expect("own array");
        let all = shares.in_order(rows, 8 * own.ncols(), bytes(here))?;
        Ok(Array2::from_shape_vec((rows.len(), own.ncols()), numbers(&all)).expect("a row for each"))
    }

    /// Hands the bytes of all ranks to `take` on rank 0, in the order of the ranks and a piece at a time, so that no rank has those of all.
    /// Collective; the others take nothing.
    pub fn to_first(&self, own: &[u8], take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let group = self.group();
        let exchange = |with: usize, sent: &[u8]| group.exchange(with, sent, with).map_err(io::Error::other);
        if group.rank() > 0 {
            exchange(0, &(own.len() as u64).to_le_bytes())?;
            return own.chunks(PIECE).try_for_each(|piece| exchange(0, piece).map(drop));
        }
        take(own)?;
        for rank in 1..group.size() {
            let length = u64::from_le_bytes(exchange(rank, &[])?.try_into().expect("eight bytes")) as usize;
            for _ in 0..length.div_ceil(PIECE) {
                take(&exchange(rank, &[])?)?;
            }
        }
        Ok(())
    }

    /// Refuses small matrices that are not the same on all ranks, as they would be with processors that round differently.
    pub fn check_same(&self, small: ArrayView2<f64>) -> Result<()> {
        if self.is_whole() {
            return Ok(());
        }
        let mix = |hash: u64, v: &f64| (hash.rotate_left(23) ^ v.to_bits()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let other = self.group().first_other(&small.iter().fold(1, mix).to_le_bytes())?;
        other.map_or(Ok(()), |rank| {
            Err(Error::Numerical(format!(
                "rank {rank} computes with other vectors than rank 0; run all ranks on processors of one kind"
            )))
        })
    }

    /// Replaces numbers by their sums over the ranks, in the order of the ranks; collective.
    pub fn sum(&self, numbers: &mut [f64]) -> Result<()> {
        self.group().sum(numbers)
    }
}
