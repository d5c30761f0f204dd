//! The operations of a formula while it is recorded, each simplified as it is added.
//!
//! Always, and to the last bit or better: equal operations are one, constants are folded, `a + a = 2a`.
//!
//! In [`Style::Fast`] also, so that a Gaussian costs an addition, a fused multiply-add, a minimum and a power of two for
//! each pair of points, and what depends on one point alone is computed once a row or column:
//!
//! - `e^x = 2^{x log₂e}`, and constant factors gather: `c₁(c₂ x) = (c₁c₂) x`
//! - `c·max(x, k) = max(cx, ck)`, or `min` for `c < 0`
//! - `c(x + y) = cx + cy` where x and y are multiples of variables
//! - `a/b = a·b⁻¹`; for u of the row and v of the column, `(uv)⁻¹ = u⁻¹v⁻¹` and `√(uv) = √u √v`
//! - `max(√u √v, k) = max(√u, √k)·max(√v, √k)` for `k ≤ 1e-12`: a vector shorter than √k counts as zero

use super::source::{Binary, Node, Source, Style, Unary, Variable};
use std::collections::HashMap;
use std::f64::consts::LOG2_E;

/// Which points a value depends on.
const ROW: u8 = 1;
const COLUMN: u8 = 2;

/// What the formula did so far.
pub(super) struct Trace {
    nodes: Vec<Node>,
    index: HashMap<Node, Source>,
    /// [`ROW`] and [`COLUMN`] of each node.
    reads: Vec<u8>,
    fast: bool,
}

impl Trace {
    pub fn new(style: Style) -> Trace {
        Trace { nodes: vec![], index: HashMap::new(), reads: vec![], fast: style == Style::Fast }
    }

    pub fn into_nodes(self) -> Vec<Node> {
        self.nodes
    }

    /// The node, new or as it was recorded before.
    pub fn push(&mut self, node: Node) -> Source {
        if let Some(&known) = self.index.get(&node) {
            return known;
        }
        let reads = match node {
            Node::Variable(Variable::Statistic(_)) => ROW | COLUMN,
            Node::Variable(Variable::RowNorm(_)) => ROW,
            Node::Variable(Variable::ColumnNorm(_)) => COLUMN,
            _ => node.operands().iter().fold(0, |all, o| all | self.reads[o.0 as usize]),
        };
        let source = Source(self.nodes.len() as u32);
        self.nodes.push(node);
        self.reads.push(reads);
        self.index.insert(node, source);
        source
    }

    pub fn constant(&mut self, x: f64) -> Source {
        self.push(Node::Constant(x.to_bits()))
    }

    fn node(&self, a: Source) -> Node {
        self.nodes[a.0 as usize]
    }

    fn value(&self, a: Source) -> Option<f64> {
        match self.node(a) {
            Node::Constant(bits) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// Whether `a` is of the row's point alone and `b` of the column's alone, or the other way round.
    fn apart(&self, a: Source, b: Source) -> bool {
        matches!((self.reads[a.0 as usize], self.reads[b.0 as usize]), (ROW, COLUMN) | (COLUMN, ROW))
    }

    pub fn unary(&mut self, f: Unary, a: Source) -> Source {
        self.push(Node::Unary(f, a))
    }

    pub fn binary(&mut self, f: Binary, a: Source, b: Source) -> Source {
        self.push(Node::Binary(f, a, b))
    }

    pub fn add(&mut self, a: Source, b: Source) -> Source {
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => self.constant(x + y),
            (Some(0.0), None) => b,
            (None, Some(0.0)) => a,
            _ if a == b => self.scaled(a, 2.0),
            _ => self.binary(Binary::Add, a, b),
        }
    }

    pub fn sub(&mut self, a: Source, b: Source) -> Source {
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => self.constant(x - y),
            (None, Some(0.0)) => a,
            _ => self.binary(Binary::Sub, a, b),
        }
    }

    pub fn mul(&mut self, a: Source, b: Source) -> Source {
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => self.constant(x * y),
            (Some(c), None) => self.scaled(b, c),
            (None, Some(c)) => self.scaled(a, c),
            _ => self.binary(Binary::Mul, a, b),
        }
    }

    pub fn neg(&mut self, a: Source) -> Source {
        match (self.value(a), self.node(a)) {
            (Some(x), _) => self.constant(-x),
            (_, Node::Unary(Unary::Neg, inner)) => inner,
            _ if self.fast => self.scaled(a, -1.0),
            _ => self.unary(Unary::Neg, a),
        }
    }

    pub fn div(&mut self, a: Source, b: Source) -> Source {
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => self.constant(x / y),
            (None, Some(c)) if self.fast => self.scaled(a, 1.0 / c),
            _ if self.fast => {
                let inverse = self.recip(b);
                self.mul(a, inverse)
            }
            _ => self.binary(Binary::Div, a, b),
        }
    }

    pub fn exp(&mut self, a: Source) -> Source {
        if !self.fast {
            return self.unary(Unary::Exp, a);
        }
        let power = self.scaled(a, LOG2_E);
        self.unary(Unary::Exp2, power)
    }

    pub fn sqrt(&mut self, a: Source) -> Source {
        match self.node(a) {
            Node::Binary(Binary::Mul, u, v) if self.fast && self.apart(u, v) => {
                let (u, v) = (self.sqrt(u), self.sqrt(v));
                self.mul(u, v)
            }
            _ => self.unary(Unary::Sqrt, a),
        }
    }

    pub fn max(&mut self, a: Source, b: Source) -> Source {
        let small = self.value(b).filter(|&k| self.fast && k > 0.0 && k <= 1e-12);
        match (self.node(a), small) {
            (Node::Binary(Binary::Mul, u, v), Some(k)) if self.apart(u, v) && self.is_root(u) && self.is_root(v) => {
                let least = self.constant(k.sqrt());
                let (u, v) = (self.max(u, least), self.max(v, least));
                self.mul(u, v)
            }
            // √max(x, k²), whose inverse is one instruction; k² must still be a normal float.
            (Node::Unary(Unary::Sqrt, x), Some(k)) if k * k > 1e-37 => {
                let least = self.constant(k * k);
                let x = self.binary(Binary::Max, x, least);
                self.sqrt(x)
            }
            _ => self.binary(Binary::Max, a, b),
        }
    }

    fn is_root(&self, a: Source) -> bool {
        matches!(self.node(a), Node::Unary(Unary::Sqrt, _))
    }

    /// `1/a`, in [`Style::Fast`].
    fn recip(&mut self, a: Source) -> Source {
        match self.node(a) {
            Node::Binary(Binary::Mul, u, v) if self.apart(u, v) => {
                let (u, v) = (self.recip(u), self.recip(v));
                self.mul(u, v)
            }
            Node::Unary(Unary::Sqrt, x) => self.unary(Unary::Rsqrt, x),
            _ => self.unary(Unary::Recip, a),
        }
    }

    /// `c a`
    fn scaled(&mut self, a: Source, c: f64) -> Source {
        if c == 1.0 {
            return a;
        }
        if let Some(x) = self.value(a) {
            return self.constant(c * x);
        }
        if self.fast {
            match self.node(a) {
                Node::Unary(Unary::Neg, x) => return self.scaled(x, -c),
                Node::Binary(Binary::Mul, x, k) if self.value(k).is_some() => {
                    let k = self.value(k).expect("asked above");
                    return self.scaled(x, c * k);
                }
                Node::Binary(f @ (Binary::Max | Binary::Min), x, k) if self.value(k).is_some() && c != 0.0 => {
                    let f = match f {
                        f if c > 0.0 => f,
                        Binary::Max => Binary::Min,
                        _ => Binary::Max,
                    };
                    let (x, k) = (self.scaled(x, c), self.scaled(k, c));
                    return self.binary(f, x, k);
                }
                Node::Binary(f @ (Binary::Add | Binary::Sub), x, y) if self.is_linear(x) && self.is_linear(y) => {
                    let (x, y) = (self.scaled(x, c), self.scaled(y, c));
                    return self.binary(f, x, y);
                }
                _ => {}
            }
        }
        let factor = self.constant(c);
        self.binary(Binary::Mul, a, factor)
    }

    /// Whether `a` is a sum of variables with constant factors.
    fn is_linear(&self, a: Source) -> bool {
        match self.node(a) {
            Node::Constant(_) | Node::Variable(_) => true,
            Node::Binary(Binary::Mul, x, k) => self.value(k).is_some() && self.is_linear(x),
            Node::Binary(Binary::Add | Binary::Sub, x, y) => self.is_linear(x) && self.is_linear(y),
            _ => false,
        }
    }
}
