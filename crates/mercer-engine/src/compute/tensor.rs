//! Devices, arrays on them, and views of arrays as stacks of matrices.

use super::cuda::{Buffer, Gpu, Plain, gpu};
use crate::{Error, Result, fail_if};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where tensors live and primitives run; chosen at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Device {
    /// Host memory and CPU threads.
    #[default]
    Cpu,
    /// The NVIDIA GPU of this number.
    Cuda(usize),
}

impl Device {
    /// From its name: `cpu`, `cuda` (the first GPU) or `cuda:N`.
    ///
    /// ```
    /// use mercer_engine::compute::Device;
    /// assert_eq!(Device::parse("cuda:1")?, Device::Cuda(1));
    /// assert!(Device::parse("gpu").unwrap_err().to_string().contains("cuda:0"));
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn parse(name: &str) -> Result<Device> {
        let ordinal = match name {
            "cpu" => return Ok(Device::Cpu),
            "cuda" => Some(0),
            _ => name.strip_prefix("cuda:").and_then(|n| n.parse().ok()),
        };
        ordinal
            .map(Device::Cuda)
            .ok_or_else(|| Error::input(format!("unknown device \"{name}\"; write cpu, cuda:0, cuda:1, …")))
    }

    /// How many GPUs this process sees, or an error that says why there are none.
    pub fn count() -> Result<usize> {
        super::cuda::visible()
    }

    /// Opens the device, so that a missing one is an error before any work is done.
    pub fn open(self) -> Result<Device> {
        self.gpu()?;
        Ok(self)
    }

    /// The open GPU; `None` for the CPU.
    pub(super) fn gpu(self) -> Result<Option<&'static Gpu>> {
        match self {
            Device::Cpu => Ok(None),
            Device::Cuda(ordinal) => gpu(ordinal).map(Some),
        }
    }

    /// Runs `f` inside the thread pool when this is the CPU, which makes starting a primitive cheaper. Wrap a training
    /// loop in it. Results are the same without it.
    pub fn enter<T: Send>(self, f: impl FnOnce() -> T + Send) -> T {
        match self {
            Device::Cpu => rayon::scope(|_| f()),
            Device::Cuda(_) => f(),
        }
    }

    /// Bytes of its own memory that are free; `None` for the CPU.
    pub fn free_memory(self) -> Result<Option<u64>> {
        Ok(self.gpu()?.map(|gpu| gpu.memory().0))
    }

    /// Runs `f` with matrix products of this device in the precision `math`. No effect on the CPU.
    pub fn with_math<T>(self, math: Math, f: impl FnOnce() -> T) -> T {
        let Ok(Some(gpu)) = self.gpu() else { return f() };
        let before = gpu.set_math(math);
        let value = f();
        gpu.set_math(before);
        value
    }

    /// The error of the device if it has failed, else `result`.
    pub fn checked<T>(self, result: Result<T>) -> Result<T> {
        self.gpu()?.map_or(Ok(()), Gpu::check).and(result)
    }

    /// Waits for all work queued on the device and returns its first failure.
    pub fn synchronize(self) -> Result<()> {
        self.gpu()?.map_or(Ok(()), Gpu::synchronize)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// How a GPU with tensor cores rounds the factors of an f32 matrix product. Sums and the CPU's products are in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Math {
    /// No rounding: 24 bits of mantissa.
    #[default]
    F32,
    /// 11 bits of mantissa.
    Tf32,
    /// 8 bits of mantissa. The factors are copied to bf16 first, which is faster for large products only.
    Bf16,
}

/// A contiguous row-major array on a device. Its memory never shrinks; see [`DeviceArray::reshape`].
#[derive(Debug)]
pub struct DeviceArray<T> {
    shape: Vec<usize>,
    storage: Storage<Vec<T>>,
}

/// Numbers in host memory, held by an `H`, or in device memory.
#[derive(Debug)]
pub(crate) enum Storage<H> {
    Host(H),
    Cuda(Buffer),
}

impl<H> Storage<H> {
    /// The device that holds the numbers.
    pub(crate) fn device(&self) -> Device {
        self.buffer().map_or(Device::Cpu, |buffer| Device::Cuda(buffer.gpu().ordinal))
    }

    /// The device memory; `None` on the CPU.
    pub(crate) fn buffer(&self) -> Option<&Buffer> {
        match self {
            Storage::Host(_) => None,
            Storage::Cuda(buffer) => Some(buffer),
        }
    }

    /// What is in host memory; `what` names the array in the message of the panic if it is on a GPU.
    pub(super) fn host(&self, what: &str) -> &H {
        match self {
            Storage::Host(host) => host,
            Storage::Cuda(_) => panic!("{what} on {} was used with one on the CPU", self.device()),
        }
    }
}

/// The numbers that networks compute with.
pub type Tensor = DeviceArray<f32>;

/// Row numbers.
pub type Indices = DeviceArray<u32>;

/// Advice when an array does not fit into memory.
const ADVICE: &str = "use a smaller batch or a narrower network";

impl<T: Plain> DeviceArray<T> {
    /// All zeros.
    pub fn zeros(device: Device, shape: &[usize]) -> Result<Self> {
        let storage = match device.gpu()? {
            None => Storage::Host(Vec::new()),
            Some(gpu) => Storage::Cuda(allocate::<T>(gpu, &[0])?),
        };
        let mut array = DeviceArray { shape: vec![0], storage };
        array.reshape(shape)?;
        Ok(array)
    }

    /// A copy of `data`, which has the product of `shape` as its length.
    pub fn from_host(device: Device, shape: &[usize], data: &[T]) -> Result<Self> {
        check_length::<T>(shape, data.len())?;
        let storage = match device.gpu()? {
            None => Storage::Host(data.to_vec()),
            Some(gpu) => {
                let mut buffer = allocate::<T>(gpu, shape)?;
                buffer.write(0, data);
                Storage::Cuda(buffer)
            }
        };
        Ok(DeviceArray { shape: shape.to_vec(), storage })
    }

    /// Overwrites the whole array.
    pub fn copy_from_host(&mut self, data: &[T]) -> Result<()> {
        check_length::<T>(&self.shape, data.len())?;
        self.write(0, data);
        Ok(())
    }

    /// Overwrites the elements from `start` on.
    pub fn write(&mut self, start: usize, data: &[T]) {
        assert!(start + data.len() <= self.len(), "{} elements at {start} of {}", data.len(), self.len());
        match &mut self.storage {
            Storage::Host(storage) => storage[start..start + data.len()].copy_from_slice(data),
            Storage::Cuda(buffer) => buffer.write(size_of::<T>() * start, data),
        }
    }

    /// A copy of the whole array in host memory; waits for the device.
    pub fn to_host(&self) -> Result<Vec<T>> {
        let Some(buffer) = self.buffer() else { return Ok(self.host().to_vec()) };
        let mut data = vec![T::default(); self.len()];
        buffer.read(0, &mut data)?;
        Ok(data)
    }

    /// Changes the shape. Elements keep their order, new ones are zero. Allocates only if the array was never this large.
    pub fn reshape(&mut self, shape: &[usize]) -> Result<()> {
        let [len, bytes] = size::<T>(shape)?;
        match &mut self.storage {
            Storage::Host(storage) if len > storage.len() => {
                let more = len - storage.len();
                storage.try_reserve_exact(more).map_err(|_| Error::Memory {
                    what: format!("a tensor of shape {shape:?}"),
                    needed: bytes as u64,
                    budget: size_of_val(&storage[..]) as u64,
                    instead: ADVICE.into(),
                })?;
                storage.resize(len, T::default());
            }
            Storage::Cuda(buffer) if bytes > buffer.bytes() => {
                let mut larger = allocate::<T>(buffer.gpu(), shape)?;
                larger.copy_from(0, buffer, 0, buffer.bytes());
                larger.zero(buffer.bytes(), bytes - buffer.bytes());
                *buffer = larger;
            }
            _ => {}
        }
        self.shape.clear();
        self.shape.extend_from_slice(shape);
        Ok(())
    }
}

impl<T> DeviceArray<T> {
    /// The device that holds the array.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// Extents, slowest index first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements in host memory. Panics if they are on a GPU.
    pub fn host(&self) -> &[T] {
        &self.storage.host("a tensor")[..self.len()]
    }

    /// The writable form of [`DeviceArray::host`].
    pub(super) fn host_mut(&mut self) -> &mut [T] {
        let (len, device) = (self.len(), self.device());
        match &mut self.storage {
            Storage::Host(storage) => &mut storage[..len],
            Storage::Cuda(_) => panic!("a tensor on {device} was used with one on the CPU"),
        }
    }

    /// The GPU that holds the array; `None` on the CPU.
    pub(super) fn gpu(&self) -> Option<&'static Gpu> {
        self.buffer().map(Buffer::gpu)
    }

    /// The device memory of the array; `None` on the CPU.
    pub(super) fn buffer(&self) -> Option<&Buffer> {
        self.storage.buffer()
    }

    /// The writable form of [`DeviceArray::buffer`].
    pub(super) fn buffer_mut(&mut self) -> Option<&mut Buffer> {
        match &mut self.storage {
            Storage::Host(_) => None,
            Storage::Cuda(buffer) => Some(buffer),
        }
    }

    /// The address of the first element on the GPU.
    pub fn address(&self) -> u64 {
        self.buffer().expect("a tensor on the CPU was used with one on a GPU").pointer()
    }
}

impl<T: Copy> Clone for DeviceArray<T> {
    fn clone(&self) -> Self {
        let storage = match &self.storage {
            Storage::Host(storage) => Storage::Host(storage.clone()),
            Storage::Cuda(buffer) => {
                let mut copy = allocate::<T>(buffer.gpu(), &self.shape).unwrap_or_else(|e| panic!("{e}"));
                copy.copy_from(0, buffer, 0, copy.bytes());
                Storage::Cuda(copy)
            }
        };
        DeviceArray { shape: self.shape.clone(), storage }
    }
}

/// The shape, for messages.
impl<T> fmt::Display for DeviceArray<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shape)
    }
}

/// Device memory for an array of this shape.
fn allocate<T>(gpu: &'static Gpu, shape: &[usize]) -> Result<Buffer> {
    let [_, bytes] = size::<T>(shape)?;
    gpu.allocate(bytes, &|| format!("a tensor of shape {shape:?}"), ADVICE)
}

/// Elements and bytes of an array of this shape.
fn size<T>(shape: &[usize]) -> Result<[usize; 2]> {
    let len = shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
    let bytes = len.and_then(|len| len.checked_mul(size_of::<T>()));
    let too_large = || Error::input(format!("a tensor of shape {shape:?} has more elements than memory has addresses"));
    Ok([len.ok_or_else(too_large)?, bytes.ok_or_else(too_large)?])
}

fn check_length<T>(shape: &[usize], len: usize) -> Result<()> {
    let [needed, _] = size::<T>(shape)?;
    fail_if!(len != needed, "{len} numbers do not fill a tensor of shape {shape:?} ({needed})");
    Ok(())
}

/// `on_gpu!(x, |gpu| work)`: if the tensor `x` is on a GPU, the primitive returns the value of `work`, its device code.
macro_rules! on_gpu {
    ($tensor:expr, |$gpu:ident| $work:expr) => {
        if let Some($gpu) = $tensor.gpu() {
            return $work;
        }
    };
}
pub(super) use on_gpu;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_shrinks_and_grows_back_without_a_new_allocation() {
        let mut t = Tensor::zeros(Device::Cpu, &[4, 5]).unwrap();
        let address = t.host().as_ptr();
        t.reshape(&[2, 3]).unwrap();
        assert_eq!((t.len(), t.shape()), (6, &[2usize, 3][..]));
        t.reshape(&[5, 2, 2]).unwrap();
        assert_eq!(t.host().as_ptr(), address);
    }

    /// Two matrices on the same elements would let two threads write the same memory.
    #[test]
    fn shapes_whose_size_overflows_are_errors() {
        let mut t = Tensor::zeros(Device::Cpu, &[2]).unwrap();
        for shape in [&[usize::MAX, 2][..], &[1 << 40, 1 << 40], &[1 << 62]] {
            assert!(t.reshape(shape).unwrap_err().to_string().contains("addresses"));
            assert!(Tensor::from_host(Device::Cpu, shape, &[]).is_err());
        }
        assert_eq!(t.shape(), [2]);
    }

    #[test]
    fn wrong_lengths_are_errors_that_name_the_numbers() {
        let error = Tensor::from_host(Device::Cpu, &[2, 3], &[1.0; 5]).unwrap_err().to_string();
        assert!(error.contains('5') && error.contains("[2, 3]"), "{error}");
        assert!(Tensor::zeros(Device::Cpu, &[2]).unwrap().copy_from_host(&[1.0]).is_err());
    }
}
