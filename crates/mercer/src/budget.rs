//! The memory budget: what a reader or a method needs is estimated before it is allocated.

use crate::net::Network;
use crate::syntax::excerpt;
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
pub struct Budget(u64);

impl Budget {
    /// A budget of `bytes`.
    pub fn of(bytes: u64) -> Budget {
        Budget(bytes)
    }

    /// 70 % of the memory that is free now.
    pub fn of_free_memory() -> Budget {
        Budget(free_memory() / 10 * 7)
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
            (Ok(value), Some(factor)) if value > 0.0 => Ok(Budget((value * factor) as u64)),
            _ => Err(Error::input(format!("memory budget '{text}' is not a size above 0 such as 2GiB or 500MB"))),
        }
    }

    /// The bytes allowed.
    pub fn bytes(self) -> u64 {
        self.0
    }

    /// Whether `needed` bytes fit.
    pub fn allows(self, needed: u64) -> bool {
        needed <= self.0
    }

    /// An error unless `needed` bytes fit. It names `what` and gives the advice `instead`.
    pub fn require(self, what: impl Into<String>, needed: u64, instead: impl Into<String>) -> Result<()> {
        if self.allows(needed) {
            return Ok(());
        }
        Err(Error::Memory { what: what.into(), needed, budget: self.0, instead: instead.into() })
    }

    /// What stays in use of a block of `bytes` that is allocated and freed again and again: the allocator gives those of more than 32 MiB
    /// back to the system, and keeps smaller ones.
    pub(crate) fn kept_by_allocator(bytes: u64) -> u64 {
        const GIVEN_BACK: u64 = 32 << 20;
        if bytes > GIVEN_BACK { 0 } else { bytes }
    }

    /// An error unless `copies` of a network's numbers fit: to be asked before they are drawn.
    #[doc(hidden)]
    pub fn require_network(self, network: &Network, copies: u64) -> Result<()> {
        let count = network.parameters().saturating_add(network.constants()) as u64;
        let text = excerpt(&network.expression());
        self.require(
            format!("the {count} parameters of {} networks \"{text}\"", network.networks()),
            count.saturating_mul(4 * copies),
            "use narrower or fewer layers",
        )
    }
}

/// Bytes that can be allocated without swapping: Linux's `MemAvailable`, within the limit of the control group.
#[doc(hidden)]
pub fn free_memory() -> u64 {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let number = |text: String| text.trim().parse::<u64>().ok();
    let available = read("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(8 << 30, |kib| kib * 1024);
    let limit = number(read("/sys/fs/cgroup/memory.max"));
    let used = number(read("/sys/fs/cgroup/memory.current")).unwrap_or(0);
    limit.map_or(available, |limit| available.min(limit.saturating_sub(used)))
}
