//! A number that writes down what is done to it, so that a formula over [`Num`] becomes C source.
//!
//! [`record`] runs a formula once on [`Source`] numbers. Each operation becomes a node of a [`Listing`], simplified as
//! `simplify` says; nodes that the result does not need are left out.

use super::Num;
use super::simplify::Trace;
use std::cell::RefCell;
use std::fmt::Write;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// How freely a formula may be rearranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As written.
    Exact,
    /// For tiles rounded to TF32: sums distributed, divisions and roots drawn apart, exponentials to the base two.
    Fast,
}

/// What a kernel's formula reads of two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// Statistic number i of the pair: `s0`, `s1`, …
    Statistic(usize),
    /// `‖x‖²` in view i: `xx0`, …
    RowNorm(usize),
    /// `‖x'‖²` in view i: `yy0`, …
    ColumnNorm(usize),
    /// A variable of this name, which no point has.
    Named(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Neg,
    Exp,
    Exp2,
    Ln,
    Sqrt,
    Rsqrt,
    Recip,
    Abs,
    Sin,
    Cos,
    Asin,
    Acos,
    Erf,
    Tanh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
}

/// One operation; operands come before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// The bits of an f64.
    Constant(u64),
    Variable(Variable),
    Unary(Unary, Source),
    Binary(Binary, Source, Source),
    /// `a b + c`
    Fma(Source, Source, Source),
    /// `if a > b { c } else { d }`
    Select(Source, Source, Source, Source),
    /// The function of this name.
    Call(&'static str, [Source; 3]),
}

/// A number of a formula that is being recorded: its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source(pub(super) u32);

/// Operations that a call counts as: more than fit into an unrolled loop.
const CALL: usize = 100;

thread_local! {
    static TRACE: RefCell<Option<Trace>> = const { RefCell::new(None) };
}

/// The functions that listings call. `ARITHMETIC` must be defined before it: 1 for f64, 2 for f32, 3 for fast f32.
pub const PRELUDE: &str = include_str!("prelude.cu");

/// Runs `formula` and returns what it did. Recordings do not nest.
pub fn record(style: Style, formula: impl FnOnce() -> Source) -> Listing {
    record_all(style, || [formula()])
}

/// [`record`] of a formula with several results.
pub fn record_all<const N: usize>(style: Style, formula: impl FnOnce() -> [Source; N]) -> Listing {
    TRACE.with(|trace| *trace.borrow_mut() = Some(Trace::new(style)));
    let roots = formula().to_vec();
    let trace = TRACE.with(|trace| trace.borrow_mut().take()).expect("put there above");
    Listing { nodes: trace.nodes, roots }
}

fn with<R>(work: impl FnOnce(&mut Trace) -> R) -> R {
    TRACE.with(|trace| work(trace.borrow_mut().as_mut().expect("a Source number lives inside `record`")))
}

impl Source {
    /// A variable of the formula.
    pub fn variable(variable: Variable) -> Source {
        with(|t| t.push(Node::Variable(variable)))
    }
}

/// Operations that [`Trace`] has a method for.
macro_rules! traced {
    ($($method:ident($($other:ident)?))*) => {$(
        fn $method(self $(, $other: Self)?) -> Self {
            with(|t| t.$method(self $(, $other)?))
        }
    )*};
}

macro_rules! operators {
    ($($trait:ident $method:ident($($other:ident)?);)*) => {$(
        impl $trait for Source {
            type Output = Source;
            traced!($method($($other)?));
        }
    )*};
}
operators! { Add add(other); Sub sub(other); Mul mul(other); Div div(other); Neg neg(); }

/// Operations that become a node of their own.
macro_rules! unary {
    ($($method:ident $node:ident),*) => {$(
        fn $method(self) -> Self {
            with(|t| t.unary(Unary::$node, self))
        }
    )*};
}

impl Num for Source {
    traced!(exp() sqrt() max(other));
    unary!(ln Ln, abs Abs, asin Asin, acos Acos, erf Erf, tanh Tanh);
    fn of(x: f64) -> Self {
        with(|t| t.constant(x))
    }
    fn min(self, other: Self) -> Self {
        with(|t| t.binary(Binary::Min, self, other))
    }
    fn sin_cos(self) -> (Self, Self) {
        with(|t| (t.unary(Unary::Sin, self), t.unary(Unary::Cos, self)))
    }
    fn mul_add(self, a: Self, b: Self) -> Self {
        with(|t| t.push(Node::Fma(self, a, b)))
    }
    fn select_gt(a: Self, b: Self, then: Self, otherwise: Self) -> Self {
        with(|t| t.push(Node::Select(a, b, then, otherwise)))
    }
    fn called(function: &'static str, arguments: [Self; 3]) -> Option<Self> {
        Some(with(|t| t.push(Node::Call(function, arguments))))
    }
}

/// What a formula did.
#[derive(Clone, Debug)]
pub struct Listing {
    nodes: Vec<Node>,
    roots: Vec<Source>,
}

impl Listing {
    /// The body of a C function that returns the formula's one value: one `const real t… = …;` a line.
    pub fn body(&self) -> String {
        format!("{}    return {};\n", self.temporaries(), self.operand(self.roots[0]))
    }

    /// C statements that assign the formula's values to `targets`.
    pub fn statements(&self, targets: &[&str]) -> String {
        let assigned =
            targets.iter().zip(&self.roots).map(|(to, root)| format!("    {to} = {};\n", self.operand(*root)));
        self.temporaries() + &assigned.collect::<String>()
    }

    fn temporaries(&self) -> String {
        let needed = self.needed();
        let mut text = String::new();
        let place = |node: Node| self.nodes.iter().position(|other| *other == node).filter(|&i| needed[i]);
        for (i, node) in self.nodes.iter().enumerate().filter(|&(i, _)| needed[i]) {
            // Sine and cosine of one number are one call, at the place of the first.
            let (sin, cos) = match *node {
                Node::Unary(Unary::Sin, a) => (Some(i), place(Node::Unary(Unary::Cos, a))),
                Node::Unary(Unary::Cos, a) => (place(Node::Unary(Unary::Sin, a)), Some(i)),
                _ => (None, None),
            };
            let line = match (self.expression(node), sin, cos) {
                (_, Some(s), Some(c)) if i == s.max(c) => continue,
                (_, Some(s), Some(c)) => {
                    let argument = self.operand(node.operands()[0]);
                    format!("real t{s}, t{c}; m_sincos({argument}, &t{s}, &t{c});")
                }
                (Some(value), ..) => format!("const real t{i} = {value};"),
                (None, ..) => continue,
            };
            writeln!(text, "    {line}").expect("a String takes every line");
        }
        text
    }

    /// How many operations the result takes. A call counts as 100.
    pub fn operations(&self) -> usize {
        let needed = self.needed();
        let counted = self.nodes.iter().enumerate().filter(|&(i, node)| needed[i] && self.expression(node).is_some());
        counted.map(|(_, node)| if matches!(node, Node::Call(..)) { CALL } else { 1 }).sum()
    }

    /// The functions that the result calls, each once.
    pub fn calls(&self) -> Vec<&'static str> {
        let needed = self.needed();
        let mut calls = vec![];
        for (i, node) in self.nodes.iter().enumerate() {
            if let Node::Call(function, _) = node
                && needed[i]
                && !calls.contains(function)
            {
                calls.push(*function);
            }
        }
        calls
    }

    /// Which nodes the results depend on.
    fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        self.roots.iter().for_each(|root| needed[root.0 as usize] = true);
        for i in (0..self.nodes.len()).rev() {
            if needed[i] {
                self.nodes[i].operands().iter().for_each(|o| needed[o.0 as usize] = true);
            }
        }
        needed
    }

    /// A constant, a variable or a temporary.
    fn operand(&self, source: Source) -> String {
        match self.nodes[source.0 as usize] {
            Node::Constant(bits) => literal(f64::from_bits(bits)),
            Node::Variable(Variable::Statistic(i)) => format!("s{i}"),
            Node::Variable(Variable::RowNorm(i)) => format!("xx{i}"),
            Node::Variable(Variable::ColumnNorm(i)) => format!("yy{i}"),
            Node::Variable(Variable::Named(name)) => name.into(),
            _ => format!("t{}", source.0),
        }
    }

    /// The right-hand side of an operation; nothing for constants and variables.
    fn expression(&self, node: &Node) -> Option<String> {
        let o = |source: &Source| self.operand(*source);
        Some(match node {
            Node::Constant(_) | Node::Variable(_) => return None,
            Node::Unary(Unary::Neg, a) => format!("-{}", o(a)),
            // The functions of the prelude are named after the operations: Exp2 is m_exp2.
            Node::Unary(f, a) => format!("m_{}({})", format!("{f:?}").to_lowercase(), o(a)),
            Node::Binary(f @ (Binary::Max | Binary::Min), a, b) => {
                // A constant is never NaN: one instruction.
                let kind = if matches!(self.nodes[b.0 as usize], Node::Constant(_)) { "_k" } else { "" };
                format!("m_{}{kind}({}, {})", format!("{f:?}").to_lowercase(), o(a), o(b))
            }
            Node::Binary(f, a, b) => format!("{} {} {}", o(a), ["+", "-", "*", "/"][*f as usize], o(b)),
            Node::Fma(a, b, c) => format!("m_fma({}, {}, {})", o(a), o(b), o(c)),
            Node::Select(a, b, c, d) => format!("m_gt({}, {}, {}, {})", o(a), o(b), o(c), o(d)),
            Node::Call(function, [a, b, c]) => format!("{function}({}, {}, {})", o(a), o(b), o(c)),
        })
    }
}

impl Node {
    pub(super) fn operands(&self) -> Vec<Source> {
        match *self {
            Node::Constant(_) | Node::Variable(_) => vec![],
            Node::Unary(_, a) => vec![a],
            Node::Binary(_, a, b) => vec![a, b],
            Node::Fma(a, b, c) => vec![a, b, c],
            Node::Select(a, b, c, d) => vec![a, b, c, d],
            Node::Call(_, operands) => operands.to_vec(),
        }
    }
}

/// A number as C reads it back, to the last digit.
fn literal(x: f64) -> String {
    if x.is_finite() { format!("(real){x:?}") } else { format!("(real)__longlong_as_double(0x{:x}LL)", x.to_bits()) }
}
