//! GPU copies without a cache around them: for tests and measurements on a machine that has a GPU.
//!
//! `cuda_status` is in every build. `Gpu` is only in builds with the feature `cuda`, and not in the stub: its caller
//! vouches for addresses, as C's does. Nothing is decided here.

use pyo3::prelude::*;

/// "ok", "no driver", "no device", CUDA's error, or "not built".
#[pyfunction]
pub fn cuda_status() -> String {
    #[cfg(feature = "cuda")]
    {
        use hicache_core::transfer::cuda::{CudaError, probe};
        match probe() {
            Ok(_) if cfg!(feature = "cuda-emulated") => "emulated".to_owned(),
            Ok(_) => "ok".to_owned(),
            Err(CudaError::NoDriver) => "no driver".to_owned(),
            Err(CudaError::NoDevice) => "no device".to_owned(),
            Err(error) => error.to_string(),
        }
    }
    #[cfg(not(feature = "cuda"))]
    "not built".to_owned()
}

#[cfg(feature = "cuda")]
pub use gpu::Gpu;

#[cfg(feature = "cuda")]
mod gpu {
    use hicache_core::transfer::Direction;
    use hicache_core::transfer::cuda::{CudaResult, Engine, Page, Route, Settings, Stream};
    use hicache_core::transfer::strided::{Axis, PlaneAt, Strided};
    use pyo3::exceptions::{PyRuntimeError, PyValueError};
    use pyo3::prelude::*;

    /// (extent, device stride, host stride), bytes.
    type AxisArgument = (u32, i64, i64);

    /// Streams, events and staging of one device.
    #[pyclass(module = "hicache._hicache")]
    pub struct Gpu(Engine);

    fn or_raise<T>(result: CudaResult<T>) -> PyResult<T> {
        result.map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    fn direction(name: &str) -> PyResult<Direction> {
        match name {
            "in" => Ok(Direction::In),
            "out" => Ok(Direction::Out),
            _ => Err(PyValueError::new_err("direction: use in or out")),
        }
    }

    fn route(name: &str) -> PyResult<Route> {
        match name {
            "auto" => Ok(Route::Auto),
            "kernel" => Ok(Route::Kernel),
            "engine" => Ok(Route::Engine),
            "staged" => Ok(Route::Staged),
            _ => Err(PyValueError::new_err("route: use auto, kernel, engine or staged")),
        }
    }

    #[pymethods]
    #[allow(unsafe_code, reason = "Python's caller vouches for addresses and streams, see the module")]
    impl Gpu {
        #[new]
        fn new(
            device: i32,
            layers: u32,
            engine_run: [u64; 2],
            staging: [u64; 2],
            multiprocessors: [u32; 2],
        ) -> PyResult<Self> {
            let settings = Settings { device, layers, engine_run, staging, multiprocessors };
            or_raise(Engine::new(&settings)).map(Self)
        }

        #[allow(clippy::needless_pass_by_value, reason = "from a Python list")]
        fn register(&mut self, address: usize, pieces: Vec<u64>) -> PyResult<()> {
            // SAFETY: the caller keeps the memory.
            or_raise(unsafe { self.0.register(address as *mut u8, &pieces) })
        }

        fn unregister(&mut self, address: usize) -> PyResult<()> {
            or_raise(self.0.unregister(address as *mut u8))
        }

        fn fence(&mut self, way: &str, stream: u64) -> PyResult<()> {
            // SAFETY: the caller's stream lives.
            or_raise(unsafe { self.0.fence(direction(way)?, Stream(stream)) })
        }

        /// Planes are (device, host) addresses, pages (device, host) slots, `page_strides` (device, host) bytes.
        #[allow(clippy::too_many_arguments, clippy::needless_pass_by_value, reason = "a C struct in parts")]
        fn copy(
            &mut self,
            way: &str,
            page_strides: (i64, i64),
            axes: Vec<AxisArgument>,
            run: u64,
            planes: Vec<(u64, u64)>,
            pages: Vec<(u32, u32)>,
            by: &str,
        ) -> PyResult<()> {
            let axes: Vec<Axis> =
                axes.into_iter().map(|(extent, device, host)| Axis::new(extent, device, host)).collect();
            let shape = Strided::new(page_strides, &axes, run);
            let shape = shape.map_err(|error| PyValueError::new_err(error.to_string()))?;
            let planes: Vec<PlaneAt> =
                planes.into_iter().map(|(device, host)| PlaneAt { device, host }).collect();
            let pages: Vec<Page> = pages.into_iter().map(|(device, host)| Page { device, host }).collect();
            let shape = shape.fitting(&planes);
            // SAFETY: the caller's addresses are memory of this device, and nobody else's until the copy is done.
            or_raise(unsafe { self.0.enqueue(direction(way)?, &shape, &planes, &pages, route(by)?) })
        }

        fn record_layer(&mut self, set: u32, layer: u32) -> PyResult<()> {
            or_raise(self.0.record_layer(set, layer))
        }

        fn wait_layer(&mut self, set: u32, layer: u32, stream: u64) -> PyResult<()> {
            // SAFETY: the caller's stream lives.
            or_raise(unsafe { self.0.wait_layer(set, layer, Stream(stream)) })
        }

        fn has_layer(&self, set: u32, layer: u32) -> PyResult<bool> {
            or_raise(self.0.has_layer(set, layer))
        }

        fn record_done(&mut self, way: &str, ticket: u64) -> PyResult<()> {
            or_raise(self.0.record_done(direction(way)?, ticket))
        }

        fn wait_done(&mut self, way: &str, ticket: u64, stream: u64) -> PyResult<()> {
            // SAFETY: the caller's stream lives.
            or_raise(unsafe { self.0.wait_done(direction(way)?, ticket, Stream(stream)) })
        }

        fn is_done(&self, way: &str, ticket: u64) -> PyResult<bool> {
            or_raise(self.0.is_done(direction(way)?, ticket))
        }
    }
}
