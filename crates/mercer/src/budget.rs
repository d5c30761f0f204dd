//! The memory budget: what a reader or a method needs is estimated before it is allocated.

use crate::error::excerpt;
use crate::free_memory::free_memory;
use crate::net::Network;
use crate::{Error, Result};

/// The largest number of bytes that a reader or a method may allocate.
///
/// ```
/// use mercer::operator::Budget;
/// let budget = Budget::parse("2GiB")?;
/// assert_eq!(budget.bytes(), 2 << 30);
/// let error = budget.require("a 100 000 × 100 000 kernel matrix", 80_000_000_000, "use the Krylov method");
/// assert!(error.unwrap_err().to_string().contains("use the Krylov method"));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    bytes: u64,
    /// What is in use of them.
    taken: u64,
}

impl Budget {
    /// A budget of `bytes`; of `isize::MAX` at most, since no array has more.
    pub fn of(bytes: u64) -> Budget {
        Budget { bytes: bytes.min(isize::MAX as u64), taken: 0 }
    }

    /// 70 % of the memory that is free now, within the limits of the process.
    pub fn of_free_memory() -> Budget {
        Budget::of(free_memory() / 10 * 7)
    }

    /// The same budget where `bytes` of it are in use by something else, which a refusal counts with what is asked for.
    pub(crate) fn beside(self, bytes: u64) -> Budget {
        Budget { taken: self.taken.saturating_add(bytes), ..self }
    }

    /// Reads `2GiB`, `500MB`, `1.5g` or plain bytes.
    pub fn parse(text: &str) -> Result<Budget> {
        let lower = text.trim().to_lowercase();
        let split = lower.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(lower.len());
        let (number, unit) = lower.split_at(split);
        let factor = match unit.trim() {
            "" | "b" => Some(1.0),
            "k" | "kib" => Some(1024.0),
            "m" | "mib" => Some(1024f64.powi(2)),
            "g" | "gib" => Some(1024f64.powi(3)),
            "t" | "tib" => Some(1024f64.powi(4)),
            "kb" => Some(1e3),
            "mb" => Some(1e6),
            "gb" => Some(1e9),
            "tb" => Some(1e12),
            _ => None,
        };
        match (number.parse::<f64>(), factor) {
            (Ok(value), Some(factor)) if value > 0.0 => Ok(Budget::of((value * factor) as u64)),
            _ => Err(Error::input(format!("memory budget '{text}' is not a size above 0 such as 2GiB or 500MB"))),
        }
    }

    /// The bytes allowed.
    pub fn bytes(self) -> u64 {
        self.bytes.saturating_sub(self.taken)
    }

    /// Whether `needed` bytes fit.
    pub fn allows(self, needed: u64) -> bool {
        self.taken.saturating_add(needed) <= self.bytes
    }

    /// An error unless `needed` bytes fit. It names `what` and gives the advice `instead`.
    pub fn require(self, what: impl Into<String>, needed: u64, instead: impl Into<String>) -> Result<()> {
        if self.allows(needed) {
            return Ok(());
        }
        let needed = self.taken.saturating_add(needed);
        Err(Error::Memory { what: what.into(), needed, budget: self.bytes, instead: instead.into() })
    }

    /// What stays in use of a block of `bytes` that is allocated and freed again and again: the allocator gives those of more than 32 MiB
    /// back to the system, and keeps smaller ones.
    pub(crate) fn kept_by_allocator(bytes: u64) -> u64 {
        const GIVEN_BACK: u64 = 32 << 20;
        if bytes > GIVEN_BACK { 0 } else { bytes }
    }

    /// An error unless there is room for `copies` of a network's numbers and for its way through so many `points` at once: to be asked before they are drawn.
    #[doc(hidden)]
    pub fn require_network(self, network: &Network, copies: u64, points: usize) -> Result<()> {
        let count = network.parameters().saturating_add(network.constants()) as u64;
        let text = excerpt(&network.expression());
        let passes = (network.bytes_per_point() as u64).saturating_mul(points as u64);
        let at = if points > 0 { format!(" and their values at {points} points") } else { String::new() };
        self.require(
            format!("the {count} parameters of {} networks \"{text}\"{at}", network.networks()),
            count.saturating_mul(4 * copies).saturating_add(passes),
            "use narrower or fewer layers",
        )
    }
}
