//! The operations of a formula while it is recorded, each simplified as it is added.
//!
//! Always, and to the last bit or better: equal operations are one, constants are folded, `a + a = 2a`.
//!
//! In [`Style::Fast`] also, so that a Gaussian costs an addition, a fused multiply-add, a minimum and a power of two for
//! each pair of points, and what depends on one point alone is computed once a row or column:
//!
//! - `e^x = 2^{x log₂e}`, and constant factors gather: `c₁(c₂ x) = (c₁c₂) x`
//! - `c·max(x, k) = max(cx, ck)`, or `min` for `c < 0`
//! - `c(x + y) = cx + cy` where x and y are multiples of variables, or have constant factors already
//! - like terms gather: `c₁x + c₂(x + y) = (c₁+c₂)x + c₂y`
//! - `(1 − x)(1 + x) = 1 − x²`, which a fused multiply-add rounds once
//! - `a/b = a·b⁻¹`; for u of the row and v of the column, `(uv)⁻¹ = u⁻¹v⁻¹`, `√(uv) = √u √v` and `(xu)v = x(uv)`
//! - `max(√u √v, k) = max(√u, √k)·max(√v, √k)` for `k ≤ 1e-12`: a vector shorter than √k counts as zero

use super::source::{Binary, Node, Source, Style, Unary, Variable};
use std::collections::HashMap;
use std::f64::consts::LOG2_E;

/// Which points a value depends on.
const ROW: u8 = 1;
const COLUMN: u8 = 2;

/// What the formula did so far.
pub(super) struct Trace {
    pub nodes: Vec<Node>,
    index: HashMap<Node, Source>,
    /// [`ROW`] and [`COLUMN`] of each node.
    reads: Vec<u8>,
    fast: bool,
}

impl Trace {
    pub fn new(style: Style) -> Trace {
        Trace { nodes: vec![], index: HashMap::new(), reads: vec![], fast: style == Style::Fast }
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
            Node::Variable(Variable::Named(_)) => 0,
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
            _ => self.gathered(a, b, 1.0).unwrap_or_else(|| self.binary(Binary::Add, a, b)),
        }
    }

    pub fn sub(&mut self, a: Source, b: Source) -> Source {
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => self.constant(x - y),
            (None, Some(0.0)) => a,
            _ => self.gathered(a, b, -1.0).unwrap_or_else(|| self.binary(Binary::Sub, a, b)),
        }
    }

    pub fn mul(&mut self, a: Source, b: Source) -> Source {
        match (self.value(a), self.value(b)) {
            (Some(x), Some(y)) => self.constant(x * y),
            (Some(c), None) => self.scaled(b, c),
            (None, Some(c)) => self.scaled(a, c),
            _ if self.fast => self.fast_mul(a, b),
            _ => self.binary(Binary::Mul, a, b),
        }
    }

    fn fast_mul(&mut self, a: Source, b: Source) -> Source {
        match (self.node(a), self.node(b)) {
            (Node::Binary(Binary::Sub, one, x), Node::Binary(Binary::Add, other, y))
                if x == y && self.value(one) == Some(1.0) && self.value(other) == Some(1.0) =>
            {
                let square = self.mul(x, x);
                self.binary(Binary::Sub, one, square)
            }
            (Node::Binary(Binary::Mul, x, u), _) if self.apart(u, b) => {
                let factor = self.binary(Binary::Mul, u, b);
                self.binary(Binary::Mul, x, factor)
            }
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
            // √max(x, k²), whose inverse is one instruction; k² stays a normal float.
            (Node::Unary(Unary::Sqrt, x), Some(k)) => {
                let least = self.constant((k * k).max(1e-37));
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
        // A factor that float cannot tell from one is none.
        if c == 1.0 || self.fast && (c - 1.0).abs() < 1e-9 {
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
                    let f = if (f == Binary::Max) == (c > 0.0) { Binary::Max } else { Binary::Min };
                    let (x, k) = (self.scaled(x, c), self.scaled(k, c));
                    return self.binary(f, x, k);
                }
                Node::Binary(f @ (Binary::Add | Binary::Sub), x, y) if self.absorbs(x) && self.absorbs(y) => {
                    let (x, y) = (self.scaled(x, c), self.scaled(y, c));
                    return self.binary(f, x, y);
                }
                Node::Binary(Binary::Mul, x, y) if self.absorbs(y) => {
                    let y = self.scaled(y, c);
                    return self.mul(x, y);
                }
                _ => {}
            }
        }
        let factor = self.constant(c);
        self.binary(Binary::Mul, a, factor)
    }

    /// Whether a constant factor on `a` costs nothing, or is shared by a row or a column.
    fn absorbs(&self, a: Source) -> bool {
        match self.node(a) {
            Node::Constant(_) | Node::Variable(_) => true,
            Node::Binary(Binary::Mul, _, k) => self.value(k).is_some(),
            Node::Binary(Binary::Add | Binary::Sub, x, y) => self.absorbs(x) && self.absorbs(y),
            _ => false,
        }
    }

    /// `a + sign b` with like terms gathered, where there are any.
    fn gathered(&mut self, a: Source, b: Source, sign: f64) -> Option<Source> {
        if !self.fast {
            return None;
        }
        let mut sum = Sum::default();
        self.collect(a, 1.0, &mut sum);
        self.collect(b, sign, &mut sum);
        // A bracket that holds a term which also stands outside is opened.
        while let Some(at) = sum.terms.iter().position(|&(x, _)| self.opens(x, &sum)) {
            let (bracket, factor) = sum.terms.remove(at);
            self.collect_bracket(bracket, factor, &mut sum);
        }
        if !sum.merged {
            return None;
        }
        let mut total = (sum.constant != 0.0 || sum.terms.is_empty()).then(|| self.constant(sum.constant));
        for (x, factor) in sum.terms {
            total = Some(match total {
                None => self.scaled(x, factor),
                Some(before) if factor == -1.0 => self.binary(Binary::Sub, before, x),
                Some(before) => {
                    let term = self.scaled(x, factor);
                    self.binary(Binary::Add, before, term)
                }
            });
        }
        total
    }

    /// Adds `factor a` to `sum`, term by term; brackets with a constant factor stay closed.
    fn collect(&self, a: Source, factor: f64, sum: &mut Sum) {
        match self.node(a) {
            Node::Constant(bits) => sum.add_constant(factor * f64::from_bits(bits)),
            Node::Binary(Binary::Mul, x, k) if self.value(k).is_some() => {
                sum.add(x, factor * self.value(k).expect("asked above"));
            }
            Node::Binary(Binary::Add | Binary::Sub, ..) => self.collect_bracket(a, factor, sum),
            _ => sum.add(a, factor),
        }
    }

    fn collect_bracket(&self, bracket: Source, factor: f64, sum: &mut Sum) {
        if let Node::Binary(f, x, y) = self.node(bracket) {
            self.collect(x, factor, sum);
            self.collect(y, if f == Binary::Sub { -factor } else { factor }, sum);
        }
    }

    /// Whether `a` is a bracket and one of its terms is also a term of `sum`.
    fn opens(&self, a: Source, sum: &Sum) -> bool {
        let Node::Binary(Binary::Add | Binary::Sub, ..) = self.node(a) else { return false };
        let mut inside = Sum::default();
        self.collect_bracket(a, 1.0, &mut inside);
        inside.terms.iter().any(|(x, _)| sum.terms.iter().any(|(y, _)| x == y))
    }
}

/// `constant + Σ factor · term`
#[derive(Default)]
struct Sum {
    terms: Vec<(Source, f64)>,
    constant: f64,
    constants: usize,
    /// Whether two terms, or two constants, became one.
    merged: bool,
}

impl Sum {
    fn add(&mut self, term: Source, factor: f64) {
        match self.terms.iter_mut().find(|(x, _)| *x == term) {
            Some((_, before)) => {
                *before += factor;
                self.merged = true;
            }
            None => self.terms.push((term, factor)),
        }
        self.terms.retain(|(_, factor)| *factor != 0.0);
    }

    fn add_constant(&mut self, constant: f64) {
        self.constant += constant;
        self.constants += 1;
        self.merged |= self.constants > 1;
    }
}
