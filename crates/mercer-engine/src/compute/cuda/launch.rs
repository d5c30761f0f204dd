//! Kernel launches.

use super::gpu::Gpu;
use super::memory::Buffer;
use super::module::Source;
use crate::compute::formula::{Activation, PARAMETERS};
use crate::compute::halves::Halves;
use crate::compute::stack::Stack;
use crate::compute::tensor::Tensor;
use crate::compute::{Control, Indices, Small};
use cudarc::driver::result;
use std::ffi::c_void;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// A pointer to device memory, or any other 64-bit number.
    U64(u64),
    /// A 32-bit number.
    I32(i32),
    /// A float.
    F32(f32),
    /// A double.
    F64(f64),
    /// The parameters of an activation, as a struct.
    Parameters([f32; PARAMETERS]),
}

impl Arg {
    /// A size that kernels take as a 32-bit number.
    pub fn size(n: usize) -> Arg {
        Arg::I32(i32::try_from(n).expect("a kernel's extent is below 2^31"))
    }

    /// A size that kernels take as a 64-bit number.
    pub fn long(n: usize) -> Arg {
        Arg::U64(n as u64)
    }

    fn address(&self) -> *mut c_void {
        match self {
            Arg::U64(v) => std::ptr::from_ref(v) as *mut c_void,
            Arg::I32(v) => std::ptr::from_ref(v) as *mut c_void,
            Arg::F32(v) => std::ptr::from_ref(v) as *mut c_void,
            Arg::F64(v) => std::ptr::from_ref(v) as *mut c_void,
            Arg::Parameters(v) => std::ptr::from_ref(v) as *mut c_void,
        }
    }
}

impl From<&Buffer> for Arg {
    fn from(buffer: &Buffer) -> Arg {
        Arg::U64(buffer.pointer())
    }
}

/// A value that becomes one or more arguments of a kernel; see [`args`].
pub(in crate::compute) trait Argument {
    /// Appends the arguments to `list`.
    fn add_to(&self, list: &mut Vec<Arg>);
}

macro_rules! argument {
    ($($type:ty: |$value:ident| $arguments:expr;)*) => {
        $(impl Argument for $type {
            fn add_to(&self, list: &mut Vec<Arg>) {
                let $value = self;
                list.extend($arguments);
            }
        })*
    };
}

argument! {
    Arg: |a| [*a];
    u64: |v| [Arg::U64(*v)];
    usize: |v| [Arg::long(*v)];
    i32: |v| [Arg::I32(*v)];
    bool: |v| [Arg::I32(i32::from(*v))];
    f32: |v| [Arg::F32(*v)];
    f64: |v| [Arg::F64(*v)];
    Activation: |phi| [Arg::size(phi.place()), Arg::Parameters(phi.parameters().map(|p| p as f32))];
    Buffer: |b| [Arg::U64(b.pointer())];
    Option<&Buffer>: |b| [Arg::U64(b.map_or(0, Buffer::pointer))];
    Tensor: |t| [Arg::U64(t.address())];
    Option<&Tensor>: |t| [Arg::U64(t.map_or(0, Tensor::address))];
    Small: |m| [Arg::U64(m.address())];
    Indices: |i| [Arg::U64(i.address())];
    Halves: |h| [Arg::U64(h.address())];
    Option<&Halves>: |h| [Arg::U64(h.map_or(0, Halves::address))];
    Control: |c| [Arg::U64(c.address())];
    Stack<'_>: |s| vectors(Some(*s));
    Option<Stack<'_>>: |s| vectors(*s);
}

impl<T: Argument, const N: usize> Argument for [T; N] {
    fn add_to(&self, list: &mut Vec<Arg>) {
        self.iter().for_each(|one| one.add_to(list));
    }
}

/// The arguments of a kernel: numbers (`usize` as 64 bits), addresses of tensors, addresses and strides of stacks.
macro_rules! args {
    ($($value:expr),* $(,)?) => {{
        #[allow(unused_imports)]
        use $crate::compute::cuda::Argument as _;
        let mut list = Vec::new();
        $($value.add_to(&mut list);)*
        list
    }};
}
pub(in crate::compute) use args;

/// Address and stride of a stack of vectors; two zeros where there is none.
pub(super) fn vectors(stack: Option<Stack<'_>>) -> [Arg; 2] {
    let address = stack.map_or(0, |s| s.tensor.address() + 4 * s.offset as u64);
    [Arg::U64(address), Arg::long(stack.map_or(0, |s| s.stride))]
}

/// Threads per block of a kernel that loops over elements.
pub(super) const BLOCK: u32 = 256;
/// Largest number of blocks of such a kernel, enough to fill any device several times.
pub(super) const MOST_BLOCKS: u64 = 132 * 16;

impl Gpu {
    /// [`Gpu::launch`] of a kernel that loops over `n` elements for each of `count` blocks in y. The caller is a primitive that
    /// has compared the shapes of the tensors it passes with `n` and `count`.
    pub(super) fn over(&self, source: &Source, name: &'static str, [n, count]: [usize; 2], arguments: &[Arg]) {
        let blocks = (n as u64).div_ceil(u64::from(BLOCK)).min(MOST_BLOCKS) as u32;
        // SAFETY: the kernel loops over `n` elements of `count` matrices, which the primitive has found its tensors to hold.
        unsafe { self.launch(source, name, [blocks, count as u32, 1], BLOCK, 0, arguments) };
    }

    /// Queues the kernel `name` of `source` with `shared` bytes of dynamic shared memory.
    ///
    /// # Safety
    /// The arguments must match the parameters of the kernel in number, order and size, and the device memory behind each
    /// pointer must cover what the kernel accesses, until it has run.
    pub unsafe fn launch(
        &self,
        source: &Source,
        name: &'static str,
        grid: [u32; 3],
        block: u32,
        shared: u32,
        arguments: &[Arg],
    ) {
        if grid.contains(&0) {
            return;
        }
        let function = match self.function(source, name) {
            Ok(function) => function,
            Err(error) => return self.fail(error.to_string()),
        };
        self.bind();
        if shared > 48 << 10 {
            let most = cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            self.note(function.set_attribute(most, shared as i32));
        }
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Arg::address).collect();
        // SAFETY: the call copies the arguments, which live until it returns; the caller promises that they are those of the
        // kernel and that the pointers are valid.
        let queued = unsafe {
            result::launch_kernel(
                function.cu_function(),
                (grid[0], grid[1], grid[2]),
                (block, 1, 1),
                shared,
                self.stream.cu_stream(),
                &mut pointers,
            )
        };
        if queued.is_err() {
            self.note(queued);
        }
    }
}
