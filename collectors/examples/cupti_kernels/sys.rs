//! Just enough of the CUDA driver and of cuBLAS to launch something.
#![allow(unsafe_code, reason = "C libraries, loaded when the program runs")]

use libloading::Library;
use std::error::Error;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

type Status = u32;
type Stream = *mut c_void;
type Event = *mut c_void;

/// `CU_STREAM_PER_THREAD`, which is also candle's.
pub(crate) const PER_THREAD: usize = 2;

/// Kernels that wait for a time and then store how long it was. Their names are mangled C++.
const PTX: &CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry _Z9long_nameIfLi4EEvPT_i(.param .u64 p_out, .param .u32 p_ns)
{
    .reg .pred %p;
    .reg .b32 %n;
    .reg .b64 %t0, %t1, %d, %w, %o;
    ld.param.u32 %n, [p_ns];
    cvt.u64.u32 %w, %n;
    mov.u64 %t0, %globaltimer;
AGAIN:
    mov.u64 %t1, %globaltimer;
    sub.u64 %d, %t1, %t0;
    setp.lt.u64 %p, %d, %w;
    @%p bra AGAIN;
    ld.param.u64 %o, [p_out];
    cvta.to.global.u64 %o, %o;
    st.global.u64 [%o], %d;
    ret;
}
.visible .entry _Z10other_nameIiLi8EEvPT_i(.param .u64 p_out, .param .u32 p_ns)
{
    .reg .pred %p;
    .reg .b32 %n;
    .reg .b64 %t0, %t1, %d, %w, %o;
    ld.param.u32 %n, [p_ns];
    cvt.u64.u32 %w, %n;
    mov.u64 %t0, %globaltimer;
AGAIN:
    mov.u64 %t1, %globaltimer;
    sub.u64 %d, %t1, %t0;
    setp.lt.u64 %p, %d, %w;
    @%p bra AGAIN;
    ld.param.u64 %o, [p_out];
    cvta.to.global.u64 %o, %o;
    st.global.u64 [%o+8], %d;
    ret;
}
";

/// Parts of [`Gpu::launch_as_candle_does`], and the calls in each.
pub(crate) const CANDLE_PARTS: [(&str, u32); 6] = [
    ("cuMemAllocAsync", 1),
    ("cuEventCreate", 2),
    ("cuLaunchKernel", 1),
    ("cuEventRecord", 1),
    ("cuMemFreeAsync", 1),
    ("cuEventDestroy", 2),
];

#[derive(Debug, Clone, Copy)]
pub(crate) enum Kernel {
    Long,
    Other,
}

impl Kernel {
    fn symbol(self) -> &'static CStr {
        match self {
            Kernel::Long => c"_Z9long_nameIfLi4EEvPT_i",
            Kernel::Other => c"_Z10other_nameIiLi8EEvPT_i",
        }
    }

    pub(crate) fn readable(self) -> &'static str {
        match self {
            Kernel::Long => "void long_name<float, 4>(float*, int)",
            Kernel::Other => "void other_name<int, 8>(int*, int)",
        }
    }
}

/// The driver's functions, with one context, the two kernels, and memory on both sides.
pub(crate) struct Gpu {
    library: Library,
    context: *mut c_void,
    kernels: [*mut c_void; 2],
    /// 1 MiB on the device.
    memory: u64,
    /// 4 KiB of page-locked memory, so that copies run by themselves.
    pinned: *mut c_void,
    launch: unsafe extern "C" fn(
        *mut c_void,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        u32,
        Stream,
        *mut *mut c_void,
        *mut *mut c_void,
    ) -> Status,
    // Looked up once, as their cost is measured.
    allocate: unsafe extern "C" fn(*mut u64, usize, Stream) -> Status,
    free: unsafe extern "C" fn(u64, Stream) -> Status,
    event_create: unsafe extern "C" fn(*mut Event, u32) -> Status,
    event_record: unsafe extern "C" fn(Event, Stream) -> Status,
    event_destroy: unsafe extern "C" fn(Event) -> Status,
}

// SAFETY: handles of the driver, whose functions may be called from any thread; the memory is not read by this program.
unsafe impl Sync for Gpu {}

/// Calls a function of a library by name, with its arguments' types, and turns its status into a `Result`.
macro_rules! call {
    ($library:expr, $name:literal ( $($arg:expr => $type:ty),* )) => {{
        // SAFETY: the argument types are those of the function's declaration in `cuda.h` or `cublas_v2.h`.
        let function = unsafe { $library.get::<unsafe extern "C" fn($($type),*) -> Status>($name) }
            .map_err(|e| format!("{} is missing: {e}", $name))?;
        // SAFETY: pointers among the arguments are valid for what the function reads and writes.
        match unsafe { function($($arg),*) } {
            0 => Ok(()),
            status => Err(format!("{} failed with {status}", $name)),
        }
    }};
}

impl Gpu {
    pub(crate) fn new() -> Result<Self, String> {
        // SAFETY: as any CUDA program does.
        let library = unsafe { Library::new("libcuda.so.1") }.map_err(|e| {
            format!("there is no NVIDIA driver: {}", e.source().map_or(String::new(), ToString::to_string))
        })?;
        let (mut context, mut module) = (null_mut(), null_mut());
        let (mut device, mut memory, mut pinned) = (0i32, 0u64, null_mut());
        let mut kernels = [null_mut(); 2];
        call!(library, "cuInit"(0 => u32))?;
        call!(library, "cuDeviceGet"(&mut device => *mut i32, 0 => i32))?;
        call!(library, "cuDevicePrimaryCtxRetain"(&mut context => *mut *mut c_void, device => i32))?;
        call!(library, "cuCtxSetCurrent"(context => *mut c_void))?;
        call!(library, "cuModuleLoadData"(&mut module => *mut *mut c_void, PTX.as_ptr().cast() => *const c_void))?;
        for (slot, kernel) in kernels.iter_mut().zip([Kernel::Long, Kernel::Other]) {
            call!(library, "cuModuleGetFunction"(
                slot => *mut *mut c_void, module => *mut c_void, kernel.symbol().as_ptr() => *const c_char
            ))?;
        }
        call!(library, "cuMemAlloc_v2"(&mut memory => *mut u64, 1 << 20 => usize))?;
        call!(library, "cuMemHostAlloc"(&mut pinned => *mut *mut c_void, 4096 => usize, 0 => u32))?;
        // SAFETY: the type is that of `cuLaunchKernel`.
        let launch = unsafe { library.get("cuLaunchKernel") }.map(|symbol| *symbol).map_err(|e| e.to_string())?;
        let missing = |e: libloading::Error| e.to_string();
        // SAFETY: the types are those of `cuda.h`.
        let (allocate, free) = unsafe {
            (
                library.get("cuMemAllocAsync").map(|symbol| *symbol).map_err(missing)?,
                library.get("cuMemFreeAsync").map(|symbol| *symbol).map_err(missing)?,
            )
        };
        // SAFETY: as above.
        let (event_create, event_record, event_destroy) = unsafe {
            (
                library.get("cuEventCreate").map(|symbol| *symbol).map_err(missing)?,
                library.get("cuEventRecord").map(|symbol| *symbol).map_err(missing)?,
                library.get("cuEventDestroy_v2").map(|symbol| *symbol).map_err(missing)?,
            )
        };
        Ok(Self {
            library,
            context,
            kernels,
            memory,
            pinned,
            launch,
            allocate,
            free,
            event_create,
            event_record,
            event_destroy,
        })
    }

    /// Makes the context that of this thread.
    pub(crate) fn use_here(&self) -> Result<(), String> {
        call!(self.library, "cuCtxSetCurrent"(self.context => *mut c_void))
    }

    /// Launches a kernel that takes `ns` nanoseconds. [`Kernel::Long`] has `blocks` blocks, the other 3 × 2.
    pub(crate) fn launch(&self, kernel: Kernel, stream: usize, blocks: u32, ns: u32) -> Result<(), String> {
        let (mut out, mut ns) = (self.memory, ns);
        let mut parameters = [(&raw mut out).cast::<c_void>(), (&raw mut ns).cast()];
        let (x, y) = match kernel {
            Kernel::Long => (blocks, 1),
            Kernel::Other => (3, 2),
        };
        let function = self.kernels[kernel as usize];
        // SAFETY: the kernel takes a pointer and a 32-bit number, copied before the call returns.
        let status = unsafe {
            (self.launch)(function, x, y, 1, 32, 1, 1, 0, stream as Stream, parameters.as_mut_ptr(), null_mut())
        };
        if status == 0 { Ok(()) } else { Err(format!("cuLaunchKernel failed with {status}")) }
    }

    /// What candle does around a kernel: memory for its result and two events to track it, of which one is recorded;
    /// then the kernel; and freeing all of it. Adds the time of each part to `took`, in the order of [`CANDLE_PARTS`].
    pub(crate) fn launch_as_candle_does(&self, stream: usize, ns: u32, took: &mut [Duration; 6]) -> Result<(), String> {
        let at = stream as Stream;
        let (mut memory, mut events) = (0u64, [null_mut(); 2]);
        let mut last = Instant::now();
        let mut part = |slot: usize| {
            let now = Instant::now();
            took[slot] += now - last;
            last = now;
        };
        let checked = |status: Status, name: &str| match status {
            0 => Ok(()),
            status => Err(format!("{name} failed with {status}")),
        };
        // SAFETY: the pointer is valid for one address.
        checked(unsafe { (self.allocate)(&mut memory, 1 << 16, at) }, "cuMemAllocAsync")?;
        part(0);
        for event in &mut events {
            // SAFETY: the pointer is valid for one handle; 2 is CU_EVENT_DISABLE_TIMING.
            checked(unsafe { (self.event_create)(event, 2) }, "cuEventCreate")?;
        }
        part(1);
        self.launch(Kernel::Long, stream, 1, ns)?;
        part(2);
        // SAFETY: the event was just made.
        checked(unsafe { (self.event_record)(events[0], at) }, "cuEventRecord")?;
        part(3);
        // SAFETY: the memory was allocated above, and what uses it is ahead in the same stream.
        checked(unsafe { (self.free)(memory, at) }, "cuMemFreeAsync")?;
        part(4);
        for event in events {
            // SAFETY: it was made above, and is not used again.
            checked(unsafe { (self.event_destroy)(event) }, "cuEventDestroy")?;
        }
        part(5);
        Ok(())
    }

    pub(crate) fn memset(&self, stream: usize) -> Result<(), String> {
        let to = self.memory + (64 << 10);
        call!(self.library, "cuMemsetD8Async"(to => u64, 1 => u8, 4096 => usize, stream as Stream => Stream))
    }

    pub(crate) fn copy_in(&self, stream: usize) -> Result<(), String> {
        let (to, from) = (self.memory + (128 << 10), self.pinned.cast_const());
        call!(self.library, "cuMemcpyHtoDAsync_v2"(to => u64, from => *const c_void, 4096 => usize, stream as Stream => Stream))
    }

    /// A stream is made, used and ended.
    pub(crate) fn stream_comes_and_goes(&self) -> Result<(), String> {
        let mut stream = null_mut();
        call!(self.library, "cuStreamCreate"(&mut stream => *mut Stream, 1 => u32))?;
        self.launch(Kernel::Other, stream as usize, 2, 1_000)?;
        call!(self.library, "cuStreamDestroy_v2"(stream => Stream))
    }

    /// Another context on the device. This thread's context is the process's own one afterwards.
    pub(crate) fn make_context(&self) -> Result<Context, String> {
        let mut context = null_mut();
        call!(self.library, "cuCtxCreate_v2"(&mut context => *mut *mut c_void, 0 => u32, 0 => i32))?;
        self.use_here()?;
        Ok(Context(context))
    }

    /// Uses a context on this thread for a moment.
    pub(crate) fn use_context(&self, context: &Context) -> Result<(), String> {
        let mut memory = 0u64;
        call!(self.library, "cuCtxSetCurrent"(context.0 => *mut c_void))?;
        call!(self.library, "cuMemAlloc_v2"(&mut memory => *mut u64, 4096 => usize))?;
        call!(self.library, "cuMemsetD8_v2"(memory => u64, 1 => u8, 4096 => usize))?;
        call!(self.library, "cuMemFree_v2"(memory => u64))?;
        self.use_here()
    }

    pub(crate) fn end_context(&self, context: Context) -> Result<(), String> {
        call!(self.library, "cuCtxDestroy_v2"(context.0 => *mut c_void))?;
        self.use_here()
    }

    pub(crate) fn synchronize(&self, stream: usize) -> Result<(), String> {
        call!(self.library, "cuStreamSynchronize"(stream as Stream => Stream))
    }

    pub(crate) fn synchronize_all(&self) -> Result<(), String> {
        call!(self.library, "cuCtxSynchronize"())
    }

    /// A graph of this many kernels in a row, and the stream to launch it into. Its launches while it is captured are
    /// calls like others.
    pub(crate) fn graph(&self, kernels: u32) -> Result<Graph, String> {
        let (mut stream, mut graph, mut exec) = (null_mut(), null_mut(), null_mut());
        call!(self.library, "cuStreamCreate"(&mut stream => *mut Stream, 1 => u32))?;
        call!(self.library, "cuStreamBeginCapture_v2"(stream => Stream, 1 => u32))?;
        for _ in 0..kernels {
            self.launch(Kernel::Long, stream as usize, 2, 1_000)?;
        }
        call!(self.library, "cuStreamEndCapture"(stream => Stream, &mut graph => *mut *mut c_void))?;
        call!(self.library, "cuGraphInstantiateWithFlags"(&mut exec => *mut *mut c_void, graph => *mut c_void, 0 => u64))?;
        Ok(Graph { exec, stream })
    }

    pub(crate) fn launch_graph(&self, graph: &Graph) -> Result<(), String> {
        call!(self.library, "cuGraphLaunch"(graph.exec => *mut c_void, graph.stream => Stream))
    }
}

/// A context that is not the process's own.
pub(crate) struct Context(*mut c_void);

pub(crate) struct Graph {
    exec: *mut c_void,
    stream: Stream,
}

/// cuBLAS, if its library is found.
pub(crate) struct Blas {
    library: Library,
    handle: *mut c_void,
}

impl Blas {
    pub(crate) fn new(stream: usize) -> Result<Self, String> {
        let mut said = String::new();
        for name in ["libcublas.so.13", "libcublas.so.12", "libcublas.so"] {
            // SAFETY: as any program that uses cuBLAS does.
            match unsafe { Library::new(name) } {
                Ok(library) => {
                    let mut handle = null_mut();
                    call!(library, "cublasCreate_v2"(&mut handle => *mut *mut c_void))?;
                    call!(library, "cublasSetStream_v2"(handle => *mut c_void, stream as Stream => Stream))?;
                    return Ok(Self { library, handle });
                }
                Err(error) => said = format!("{name}: {}", error.source().map_or(String::new(), ToString::to_string)),
            }
        }
        Err(said)
    }

    /// Multiplies two 64 × 64 matrices of floats.
    pub(crate) fn multiply(&self, gpu: &Gpu) -> Result<(), String> {
        let (one, n) = (1f32, 64i32);
        let at = |k: u64| (gpu.memory + (256 << 10) + k * 16384) as *mut f32;
        let alpha: *const f32 = &one;
        call!(self.library, "cublasSgemm_v2"(
            self.handle => *mut c_void, 0 => u32, 0 => u32, n => i32, n => i32, n => i32, alpha => *const f32,
            at(0).cast_const() => *const f32, n => i32, at(1).cast_const() => *const f32, n => i32, alpha => *const f32,
            at(2) => *mut f32, n => i32
        ))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        let destroyed: Result<(), String> = (|| call!(self.library, "cublasDestroy_v2"(self.handle => *mut c_void)))();
        if let Err(error) = destroyed {
            eprintln!("{error}");
        }
    }
}
