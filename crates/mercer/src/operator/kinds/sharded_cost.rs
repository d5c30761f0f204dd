use crate::operator::kinds::sharded::{Meeting, pieces};

/// What a product of a [`ShardedOperator`](crate::operator::ShardedOperator) takes on the rank that has the most of each.
///
/// ```
/// use mercer::operator::ProductCost;
/// let (one, many) = (ProductCost::new(1000, 64, 10, 1), ProductCost::new(1000, 64, 10, 10));
/// assert_eq!((one.entries, one.bytes), (1000.0 * 1001.0 / 2.0, 0.0));
/// assert!(many.entries < 0.11 * one.entries && many.bytes > 0.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProductCost {
    /// Entries of K that it computes, each for both of its halves.
    pub entries: f64,
    /// Bytes that it sends: points with their rows of the vectors, and what other ranks get of its entries.
    pub bytes: f64,
    /// Messages that it waits for.
    pub messages: f64,
}

impl ProductCost {
    /// Of `n` points of `row` bytes each and `b` vectors on so many ranks.
    pub fn new(n: usize, row: usize, b: usize, ranks: usize) -> ProductCost {
        let starts: Vec<usize> = (0..=ranks).map(|rank| (rank as u128 * n as u128 / ranks as u128) as usize).collect();
        let largest = |a: ProductCost, b: ProductCost| ProductCost {
            entries: a.entries.max(b.entries),
            bytes: a.bytes.max(b.bytes),
            messages: a.messages.max(b.messages),
        };
        let all = (0..ranks).map(|rank| ProductCost::of_rank(rank, (row, b), &starts));
        all.fold(ProductCost::default(), largest)
    }

    fn of_rank(rank: usize, (row, b): (usize, usize), starts: &[usize]) -> ProductCost {
        let (ranks, own) = (starts.len() - 1, starts[rank + 1] - starts[rank]);
        let mut cost = ProductCost { entries: own as f64 * (own as f64 + 1.0) / 2.0, ..Default::default() };
        for round in 1..=ranks / 2 {
            let Meeting { sent, met, used, .. } = Meeting::new(rank, round, starts);
            cost.entries += used.len() as f64 * met.len() as f64;
            cost.bytes += (sent.len() * (row + 8 * b) + 8 * met.len() * b) as f64;
            // Points in parts and what goes back, each after its length.
            cost.messages += 2.0 * (pieces(starts, row) + 1) as f64;
        }
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_compute_every_entry_once_and_about_as_many_each() {
        for (n, ranks) in [(1000, 1), (1000, 2), (1001, 3), (997, 4), (640, 5), (643, 6), (5000, 64)] {
            let starts: Vec<usize> = (0..=ranks).map(|rank| rank * n / ranks).collect();
            let entries: Vec<f64> = (0..ranks).map(|r| ProductCost::of_rank(r, (8, 1), &starts).entries).collect();
            assert_eq!(entries.iter().sum::<f64>(), (n * (n + 1) / 2) as f64, "{n} points on {ranks} ranks");
            let most = ProductCost::new(n, 8, 1, ranks).entries;
            assert!(
                most < 1.05 * (n * n) as f64 / (2 * ranks) as f64 + n as f64,
                "{n} points on {ranks} ranks: {most}"
            );
        }
    }
}
