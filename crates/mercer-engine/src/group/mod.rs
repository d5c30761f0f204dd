//! The processes of a distributed run: one by default, the ranks of an MPI job where a launcher started several, or ranks with a GPU each that
//! meet by an address or a file and tell each other all by NCCL.
//!
//! Every rank runs the same program on the same arguments. What they compute together is a sum over ranks, a gathering of what
//! each has, or an exchange between two of them. Sums are taken in the order of the ranks, so that repeated runs have the same
//! bits, whatever MPI is installed.
//!
//! There are three operations (gather, all to all, exchange), by MPI, by NCCL (`nccl.rs`), or between threads in tests (`threads.rs`). MPI is loaded
//! at run time; `abi.rs` is a table of its binary interfaces. `heartbeat.rs` notices ranks that died.
//!
//! All ranks take the same steps on the same small matrices; what grows with n is sharded. An operator says how the rows of its vectors are
//! sharded (`Operator::sharding`), and a panel that was made so takes sums over rows over the group, so that solvers do not know of ranks. An
//! operator that does not shard receives the full vectors on every rank. Moments of the first pass over a file are nodes of a binary
//! tree over the rows, so that any number of ranks finds the bits of one process.
//!
//! What depends on a clock or a signal is agreed on: `FitContext::interrupted` is collective, and rank 0 says when a checkpoint is due and
//! writes all files.

mod abi;
mod heartbeat;
mod launcher;
mod mpi;
mod nccl;
mod rendezvous;
mod tensors;
mod threads;

pub use launcher::Launcher;
pub use mpi::Mpi;
pub use nccl::NcclRanks;
pub use rendezvous::Rendezvous;
pub use tensors::TensorSums;
pub use threads::on_threads;

use crate::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// One of several processes. Example: [`Group`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number, from 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

impl Place {
    /// Panics unless `all` has room for `own` of every process.
    fn check_gather(self, own: &[u8], all: &[u8]) {
        assert_eq!(all.len(), self.size * own.len(), "room for all ranks");
    }

    /// The length of the part for each process, of both messages alike. Panics where they have none.
    fn part(self, sent: &[u8], received: &[u8]) -> usize {
        assert!(sent.len() == received.len() && sent.len().is_multiple_of(self.size), "a part for each rank");
        sent.len() / self.size
    }
}

/// What carries messages between ranks. Messages are short enough for the counts of MPI.
pub trait Ranks: Send + Sync {
    /// Which of the processes this is.
    fn place(&self) -> Place;

    /// `all` `[size, bytes]` from `own` `[bytes]` of every rank, all of one length.
    fn all_gather(&self, own: &[u8], all: &mut [u8]) -> Result<()>;

    /// Row r of `received` `[size, bytes]` is the row of `sent` `[size, bytes]` of rank r that has this rank's number.
    fn all_to_all(&self, sent: &[u8], received: &mut [u8]) -> Result<()>;

    /// Sends `sent` to the rank `to` while `received` comes from the rank `from`.
    fn exchange(&self, to: usize, sent: &[u8], from: usize, received: &mut [u8]) -> Result<()>;
}

/// The processes that compute together: one, unless it was made of [`Ranks`]. With one, every method returns at once.
///
/// Methods that return a `Result` are collective: all ranks call them, in the same order.
///
/// ```
/// use mercer_engine::group::{Group, on_threads};
/// let mut numbers = [1.0, 2.0];
/// Group::SINGLE.sum(&mut numbers)?;
/// assert_eq!(numbers, [1.0, 2.0]);
/// let sums = on_threads(3, |group| {
///     let mut numbers = [group.rank() as f64, 1.0];
///     group.sum(&mut numbers).map(|()| numbers)
/// });
/// assert!(sums.into_iter().all(|sum| sum.unwrap() == [3.0, 3.0]));
/// # Ok::<(), mercer_engine::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Group<'a>(Option<&'a Arc<dyn Ranks>>);

/// A [`Group`] that is kept by what needs it later: vectors and models of which each rank has a part. One process by default.
#[derive(Clone, Default)]
pub struct KeptGroup(Option<Arc<dyn Ranks>>);

impl KeptGroup {
    /// The group.
    pub fn group(&self) -> Group<'_> {
        Group(self.0.as_ref())
    }
}

impl fmt::Debug for KeptGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.group().rank(), self.group().size())
    }
}

/// Bytes of one message, at most.
const MESSAGE: usize = 1 << 24;

impl<'a> Group<'a> {
    /// One process.
    pub const SINGLE: Group<'static> = Group(None);

    /// The processes of `ranks`.
    pub fn new(ranks: &'a Arc<dyn Ranks>) -> Group<'a> {
        Group(Some(ranks).filter(|ranks| ranks.place().size > 1))
    }

    /// The same group, for what outlives this one.
    pub fn kept(self) -> KeptGroup {
        KeptGroup(self.0.cloned())
    }

    /// The number of this process, from 0.
    pub fn rank(self) -> usize {
        self.0.map_or(0, |ranks| ranks.place().rank)
    }

    /// How many processes there are.
    pub fn size(self) -> usize {
        self.0.map_or(1, |ranks| ranks.place().size)
    }

    /// Whether this is the only process.
    pub fn is_single(self) -> bool {
        self.0.is_none()
    }

    /// The part of `0..n` that belongs to this rank.
    pub fn share(self, n: usize) -> Range<usize> {
        self.share_of(self.rank(), n)
    }

    /// The part of `0..n` that belongs to a rank: parts follow each other, and their lengths differ by one at most.
    pub fn share_of(self, rank: usize, n: usize) -> Range<usize> {
        let at = |rank: usize| (rank as u128 * n as u128 / self.size() as u128) as usize;
        at(rank)..at(rank + 1)
    }

    /// Replaces `numbers` by their sum over the ranks, taken in the order of the ranks; all have as many.
    ///
    /// Each rank sums one part, which it then gives to all: twice the numbers are sent, whatever the number of ranks.
    pub fn sum(self, numbers: &mut [f64]) -> Result<()> {
        let Some(ranks) = self.0 else { return Ok(()) };
        let size = self.size();
        for numbers in numbers.chunks_mut((MESSAGE / 8).max(size)) {
            let part = numbers.len().div_ceil(size);
            let mut padded = numbers.to_vec();
            padded.resize(size * part, 0.0);
            let mut received = vec![0.0; size * part];
            ranks.all_to_all(bytes(&padded), bytes_mut(&mut received))?;
            let (sum, others) = received.split_at_mut(part);
            for other in others.chunks(part) {
                sum.iter_mut().zip(other).for_each(|(sum, x)| *sum += x);
            }
            ranks.all_gather(bytes(sum), bytes_mut(&mut padded))?;
            numbers.copy_from_slice(&padded[..numbers.len()]);
        }
        Ok(())
    }

    /// The bytes of every rank, in the order of the ranks; each may have another number of them.
    pub fn all_gather(self, own: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut gathered = vec![vec![]; self.size()];
        self.gather_pieces(own, &mut |rank, _, piece| gathered[rank].extend(piece))?;
        Ok(gathered)
    }

    /// As [`Self::all_gather`], but a piece at a time: `take` is given the rank, the place among its bytes, a multiple of eight, and the
    /// bytes.
    pub fn gather_pieces(self, own: &[u8], take: &mut dyn FnMut(usize, usize, &[u8])) -> Result<()> {
        let Some(ranks) = self.0 else {
            take(0, 0, own);
            return Ok(());
        };
        let size = self.size();
        let mut lengths = vec![0; 8 * size];
        ranks.all_gather(&(own.len() as u64).to_le_bytes(), &mut lengths)?;
        let lengths: Vec<usize> = lengths.chunks(8).map(length).collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        let piece = (MESSAGE / size).min(most).next_multiple_of(8).max(8);
        let mut all = vec![0; size * piece];
        for start in (0..most).step_by(piece) {
            let mut padded = own[start.min(own.len())..own.len().min(start + piece)].to_vec();
            padded.resize(piece, 0);
            ranks.all_gather(&padded, &mut all)?;
            for (rank, (received, &length)) in all.chunks(piece).zip(&lengths).enumerate() {
                take(rank, start, &received[..length.saturating_sub(start).min(piece)]);
            }
        }
        Ok(())
    }

    /// The bytes that `work` returns on rank 0, on every rank; where it fails there, it fails on all.
    pub fn of_first(self, work: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        if self.is_single() {
            return work();
        }
        let done = (self.rank() == 0).then(work);
        let told = match &done {
            None => vec![],
            Some(Ok(bytes)) => [&[1], &bytes[..]].concat(),
            Some(Err(error)) => [&[0], error.to_string().as_bytes()].concat(),
        };
        let first = self.all_gather(&told)?.swap_remove(0);
        match (done, first.split_first()) {
            (Some(done), _) => done,
            (None, Some((1, bytes))) => Ok(bytes.to_vec()),
            (None, told) => {
                let what = told.map(|(_, message)| String::from_utf8_lossy(message).into_owned());
                Err(Error::input(what.unwrap_or_else(|| "rank 0 has told nothing".into())))
            }
        }
    }

    /// What `own` work has returned, where it succeeded on every rank; else all fail with the message of the first rank on which it did not.
    /// Collective.
    pub fn all_succeed<T>(self, own: Result<T>) -> Result<T> {
        if self.is_single() {
            return own;
        }
        let message = own.as_ref().err().map_or_else(String::new, |error| error.to_string());
        let all = self.all_gather(message.as_bytes())?;
        match all.iter().position(|message| !message.is_empty()) {
            Some(rank) if rank != self.rank() => Err(Error::input(String::from_utf8_lossy(&all[rank]))),
            _ => own,
        }
    }

    /// The first rank whose bytes are not those of rank 0, where there is one.
    pub fn first_other(self, own: &[u8]) -> Result<Option<usize>> {
        let all = self.all_gather(own)?;
        Ok(all.iter().position(|bytes| *bytes != all[0]))
    }

    /// The numbers of all ranks, one after the other in the order of the ranks.
    pub fn concatenated(self, own: &[f64]) -> Result<Vec<f64>> {
        Ok(numbers(&self.all_gather(bytes(own))?.concat()))
    }

    /// Sends bytes to the rank `to`, and returns those that the rank `from` sends here.
    pub fn exchange(self, to: usize, sent: &[u8], from: usize) -> Result<Vec<u8>> {
        let Some(ranks) = self.0 else { return Ok(sent.to_vec()) };
        let mut coming = [0; 8];
        ranks.exchange(to, &(sent.len() as u64).to_le_bytes(), from, &mut coming)?;
        let mut received = vec![0; length(&coming)];
        let (mut out, mut into) = (sent.chunks(MESSAGE), received.chunks_mut(MESSAGE));
        loop {
            match (out.next(), into.next()) {
                (None, None) => return Ok(received),
                (out, into) => ranks.exchange(to, out.unwrap_or_default(), from, into.unwrap_or_default())?,
            }
        }
    }
}

fn length(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes.try_into().expect("eight bytes")) as usize
}

/// Numbers that any bits are one of, without padding: f64, f32 and bytes.
pub trait Number: Copy + Default {}

impl Number for f64 {}
impl Number for f32 {}
impl Number for u8 {}

/// Numbers as the bytes that they are.
pub fn bytes<T: Number>(numbers: &[T]) -> &[u8] {
    // SAFETY: a number has no padding, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), std::mem::size_of_val(numbers)) }
}

fn bytes_mut<T: Number>(numbers: &mut [T]) -> &mut [u8] {
    // SAFETY: as above; any bits are a number.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), std::mem::size_of_val(numbers)) }
}

/// The numbers that were [`bytes`].
pub fn numbers<T: Number>(of: &[u8]) -> Vec<T> {
    let mut numbers = vec![T::default(); of.len() / size_of::<T>()];
    bytes_mut(&mut numbers).copy_from_slice(of);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_each_other() {
        for (size, n) in [(1, 5), (3, 10), (4, 3), (7, 0), (5, 1_000_003)] {
            let shares = on_threads(size, |group| group.share(n));
            assert_eq!((shares[0].start, shares[size - 1].end), (0, n));
            assert!(shares.windows(2).all(|two| two[0].end == two[1].start));
            assert!(shares.iter().all(|share| (n / size..=n / size + 1).contains(&share.len())));
        }
    }

    #[test]
    fn sums_are_in_the_order_of_the_ranks() {
        // In another order, or in pairs, the sum of these would be another number.
        let of = |rank: usize, i: usize| [1.0, 1e-16, 1e16, -1e16, 3e-16][(rank + i) % 5] * (i + 1) as f64;
        for (size, count) in [(2, 1), (3, 10), (5, 23), (4, 0)] {
            let sums = on_threads(size, |group| {
                let mut own: Vec<f64> = (0..count).map(|i| of(group.rank(), i)).collect();
                group.sum(&mut own).map(|()| own).unwrap()
            });
            let want: Vec<f64> =
                (0..count).map(|i| (0..size).map(|r| of(r, i)).reduce(|a, b| a + b).unwrap()).collect();
            assert!(sums.iter().all(|sum| *sum == want), "{size} ranks, {count} numbers");
        }
    }

    #[test]
    fn ranks_may_gather_and_exchange_different_lengths() {
        let own = |rank: usize| vec![rank as u8 + 1; [3, 0, 5, 1][rank]];
        let all = on_threads(4, |group| {
            let gathered = group.all_gather(&own(group.rank())).unwrap();
            let (left, right) = ((group.rank() + 3) % 4, (group.rank() + 1) % 4);
            (gathered, group.exchange(left, &own(group.rank()), right).unwrap())
        });
        for (rank, (gathered, right)) in all.into_iter().enumerate() {
            assert_eq!(gathered, (0..4).map(own).collect::<Vec<_>>());
            assert_eq!(right, own((rank + 1) % 4));
        }
        let told = on_threads(3, |g| g.of_first(|| Ok(vec![7, g.rank() as u8])).unwrap());
        assert_eq!(told, vec![vec![7, 0]; 3]);
        let failed = on_threads(3, |g| g.of_first(|| Err(Error::input("there is no file"))).unwrap_err().to_string());
        assert_eq!(failed, ["there is no file"; 3]);
        let one = |bad: &[usize]| {
            let own =
                |rank: usize| if bad.contains(&rank) { Err(Error::input(format!("row {rank}"))) } else { Ok(rank) };
            on_threads(4, |g| g.all_succeed(own(g.rank())).map_err(|e| e.to_string()))
        };
        assert_eq!(one(&[]), (0..4).map(Ok).collect::<Vec<_>>());
        assert_eq!(one(&[3, 1]), vec![Err("row 1".to_owned()); 4]);
        let other = |rank: usize| on_threads(4, |g| g.first_other(&[u8::from(g.rank() == rank)]).unwrap());
        assert_eq!((other(2), other(9)), (vec![Some(2); 4], vec![None; 4]));
        assert_eq!(on_threads(3, |g| g.concatenated(&vec![0.5; g.rank()]).unwrap().len()), [3, 3, 3]);
    }

    #[test]
    fn a_rank_that_ends_early_is_an_error_for_the_others() {
        let ended = on_threads(3, |group| if group.rank() == 1 { Ok(()) } else { group.sum(&mut [1.0]) });
        assert!(ended[1].is_ok() && ended[0].is_err() && ended[2].is_err());
    }
}
