//! Compiles CUDA source with NVRTC at run time, where no cache holds its code.

use super::code_cache::CodeCache;
use super::gpu::{Gpu, lock, message};
use crate::{Error, Result};
use cudarc::driver::{CudaFunction, CudaModule};
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Compiled modules and their functions.
#[derive(Default)]
pub struct Modules {
    compiled: HashMap<u64, Arc<CudaModule>>,
    functions: HashMap<(u64, &'static str), CudaFunction>,
}

/// CUDA source, compiled when one of its functions is first used.
#[derive(Clone, Debug)]
pub struct Source {
    key: u64,
    text: Arc<str>,
}

impl Source {
    /// From CUDA C++ text.
    pub fn new(text: String) -> Source {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Source { key: hasher.finish(), text: text.into() }
    }
}

/// Defines `source()`, the text of a module's kernels, `compiled()`, and `over()`, which queues one that loops over elements.
macro_rules! kernels {
    ($text:expr) => {
        pub(super) fn source() -> String {
            $text.into()
        }

        pub(in crate::compute) fn compiled() -> &'static super::module::Source {
            static SOURCE: std::sync::OnceLock<super::module::Source> = std::sync::OnceLock::new();
            SOURCE.get_or_init(|| super::module::Source::new(source()))
        }

        /// Queues a kernel that loops over `n` elements.
        pub(in crate::compute) fn over(gpu: &Gpu, name: &'static str, n: usize, arguments: &[Arg]) {
            gpu.over(compiled(), name, [n, 1], arguments);
        }
    };
}
pub(super) use kernels;

impl Gpu {
    /// The function `name` of `source`.
    pub fn function(&self, source: &Source, name: &'static str) -> Result<CudaFunction> {
        let mut modules = lock(&self.modules);
        if let Some(function) = modules.functions.get(&(source.key, name)) {
            return Ok(function.clone());
        }
        self.bind();
        let function = match modules.compiled.entry(source.key) {
            Entry::Occupied(module) => module.get().load_function(name),
            Entry::Vacant(place) => place.insert(self.module(&source.text)?).load_function(name),
        };
        let missing = |e| Error::Device(format!("the compiled kernels have no function {name}: {}", message(e)));
        let function = function.map_err(missing)?;
        modules.functions.insert((source.key, name), function.clone());
        Ok(function)
    }
}

impl Gpu {
    /// The module of the source `text`: from the cache, or compiled and kept there.
    fn module(&self, text: &str) -> Result<Arc<CudaModule>> {
        let options = options(self.architecture);
        let (cache, key) = (CodeCache::of_user(), key(text, &options));
        let kept = cache.as_ref().and_then(|cache| cache.get(&key));
        // Code that the driver refuses is compiled anew.
        if let Some(module) = kept.and_then(|code| self.context.load_module(Ptx::from_binary(code)).ok()) {
            return Ok(module);
        }
        let code = compile(text, &options)?;
        if let Some(cache) = cache {
            cache.put(&key, &code);
        }
        let module = self.note(self.context.load_module(Ptx::from_binary(code)));
        self.check()?;
        Ok(module.expect("no error was noted"))
    }
}

/// The options of the compiler for a compute capability.
fn options(architecture: u32) -> [String; 2] {
    // Instructions of 9.0 alone (wgmma) are those of sm_90a.
    let alone = if architecture == 90 { "a" } else { "" };
    [format!("--gpu-architecture=sm_{architecture}{alone}"), "--std=c++17".into()]
}

/// All that the code of a source depends on.
fn key(text: &str, options: &[String]) -> String {
    let (mut driver, mut major, mut minor) = (0, 0, 0);
    // SAFETY: each call writes integers.
    unsafe {
        cudarc::driver::sys::cuDriverGetVersion(&mut driver);
        sys::nvrtcVersion(&mut major, &mut minor);
    }
    format!("driver {driver}, NVRTC {major}.{minor}, {}\n{text}", options.join(" "))
}

/// Compiles `text` to machine code.
fn compile(text: &str, options: &[String]) -> Result<Vec<u8>> {
    let failed = |what: &dyn Debug, log: &str| {
        Error::Device(format!("NVRTC cannot compile a kernel with {}: {what:?}\n{log}", options.join(" ")))
    };
    let source = CString::new(text).map_err(|e| failed(&e, ""))?;
    let program = nvrtc::create_program(&source, None).map_err(|e| failed(&e.0, ""))?;
    // SAFETY: `program` was just created and is destroyed last; the buffer has the size that NVRTC returned.
    unsafe {
        let code = match nvrtc::compile_program(program, options) {
            Err(error) => {
                let log: Vec<u8> =
                    nvrtc::get_program_log(program).unwrap_or_default().iter().map(|&c| c as u8).collect();
                Err(failed(&error.0, String::from_utf8_lossy(&log).trim_end_matches('\0')))
            }
            Ok(()) => {
                let mut size = 0;
                sys::nvrtcGetCUBINSize(program, &mut size);
                let mut code = vec![0u8; size];
                sys::nvrtcGetCUBIN(program, code.as_mut_ptr().cast());
                Ok(code)
            }
        };
        nvrtc::destroy_program(program).ok();
        code
    }
}
