//! Compiles `cuda/` when the cargo feature `cuda` is on; without it, does nothing.
//!
//! Assumes a C++ compiler beside nvcc. Links CUDA's static runtime, so that the result needs no CUDA library: it
//! loads anywhere and says "no driver". The feature `cuda-emulated` is the tests': the same source over a runtime that
//! runs on the CPU (`tests/cuda/emulated`). On error: says which compiler was looked for where.
#![cfg_attr(
    feature = "cuda",
    allow(unsafe_code, reason = "names the compiler to `cc` through the environment, before any thread")
)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "cuda")]
    cuda::compile();
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::env;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    /// Machine code for these, and PTX of the middle one for what comes later. Code for 100 runs on 103 too.
    const TARGETS: [&str; 3] = [
        "arch=compute_80,code=sm_80",
        "arch=compute_90,code=[sm_90,compute_90]",
        "arch=compute_100,code=sm_100",
    ];

    /// With the emulated runtime if that feature is on too.
    pub fn compile() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        println!("cargo:rerun-if-changed={}", root.join("cuda").display());
        if cfg!(feature = "cuda-emulated") {
            emulated(&root);
        } else {
            real(&root);
        }
    }

    fn real(root: &Path) {
        let nvcc = find_nvcc();
        let source = root.join("cuda/src/hicache_cuda.cu");
        let toolkit = toolkit_of(&nvcc, &source);
        // SAFETY: this program has no second thread.
        unsafe { env::set_var("NVCC", &nvcc) };
        let mut build = cc::Build::new();
        // Dev profiles would add -G, which turns the device's optimiser off; the runtime is linked below, from where
        // the PyPI packages keep it.
        build.cuda(true).cudart("none").debug(false).opt_level(3).pic(true).cpp_link_stdlib(None);
        build
            .flag("-Xcompiler")
            .flag("-fno-exceptions,-fno-rtti,-fno-threadsafe-statics,-fvisibility=hidden");
        for target in TARGETS {
            build.flag("-gencode").flag(target);
        }
        build.include(root.join("cuda/include")).include(root.join("cuda/src")).file(source);
        build.compile("hicache_cuda");
        let library = ["lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"]
            .map(|folder| toolkit.join(folder))
            .into_iter()
            .find(|folder| folder.join("libcudart_static.a").exists());
        let Some(library) = library else {
            fail(&format!(
                "no libcudart_static.a below {}: install nvidia-cuda-runtime too",
                toolkit.display()
            ));
        };
        println!("cargo:rustc-link-search=native={}", library.display());
        println!("cargo:rustc-link-lib=static=cudart_static");
        for system in ["dl", "rt", "pthread"] {
            println!("cargo:rustc-link-lib={system}");
        }
    }

    fn emulated(root: &Path) {
        let runtime = root.join("tests/cuda/emulated");
        println!("cargo:rerun-if-changed={}", runtime.display());
        println!("cargo:warning=the feature cuda-emulated is for tests: nothing of it reaches a GPU");
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").opt_level(1).include(&runtime);
        build.include(root.join("cuda/include")).include(root.join("cuda/src"));
        build.flag("-x").flag("c++");
        build.file(root.join("cuda/src/hicache_cuda.cu")).file(runtime.join("runtime.cpp"));
        build.compile("hicache_cuda");
    }

    /// `NVCC`, then `CUDA_PATH` and `CUDA_HOME`, the building Python's packages, PATH, and the usual folder.
    fn find_nvcc() -> PathBuf {
        for name in ["NVCC", "CUDA_PATH", "CUDA_HOME", "PYO3_PYTHON", "VIRTUAL_ENV", "PATH"] {
            println!("cargo:rerun-if-env-changed={name}");
        }
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(nvcc) = set("NVCC") {
            return if nvcc.exists() {
                nvcc
            } else {
                fail(&format!("NVCC={} does not exist", nvcc.display()))
            };
        }
        let below = |name| set(name).map(|folder: PathBuf| folder.join("bin/nvcc"));
        let virtual_env = set("VIRTUAL_ENV").map(|folder| folder.join("bin/python"));
        let pythons = [set("PYO3_PYTHON"), virtual_env, Some(PathBuf::from("python3"))];
        let path = set("PATH").into_iter().flat_map(|path| env::split_paths(&path).collect::<Vec<_>>());
        let found = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(below);
        let found = found.chain(pythons.into_iter().flatten().filter_map(|python| of_python(&python)));
        let mut found =
            found.chain(path.map(|folder| folder.join("nvcc"))).chain(["/usr/local/cuda/bin/nvcc".into()]);
        found.find(|nvcc| nvcc.exists()).unwrap_or_else(|| {
            fail(
                "no CUDA compiler. Looked at NVCC, CUDA_PATH, CUDA_HOME, the packages of the building Python, PATH and \
                 /usr/local/cuda. `make wheel-cuda` installs one from PyPI",
            )
        })
    }

    /// Where the compiler from the package registry is, if this Python has it.
    fn of_python(python: &Path) -> Option<PathBuf> {
        let ask = "import sysconfig; print(sysconfig.get_path('purelib'))";
        let answer =
            Command::new(python).args(["-c", ask]).output().ok().filter(|answer| answer.status.success())?;
        let packages = PathBuf::from(String::from_utf8(answer.stdout).ok()?.trim());
        Some(packages.join("nvidia/cu13/bin/nvcc"))
    }

    /// What nvcc itself says: it may be a wrapper around one that is elsewhere.
    fn toolkit_of(nvcc: &Path, source: &Path) -> PathBuf {
        let answer = match Command::new(nvcc).arg("--dryrun").arg("-c").arg(source).output() {
            Ok(answer) => answer,
            Err(error) => fail(&format!("{} can't be run: {error}", nvcc.display())),
        };
        let text = String::from_utf8_lossy(&answer.stderr);
        let top = text.lines().find_map(|line| line.trim_start_matches("#$").trim().strip_prefix("TOP="));
        match top {
            Some(top) => PathBuf::from(top.trim()),
            None => fail(&format!("{} --dryrun names no TOP=: is it nvcc? It said: {text}", nvcc.display())),
        }
    }

    fn fail(why: &str) -> ! {
        println!("cargo:warning=feature cuda: {why}");
        eprintln!("error: feature cuda: {why}");
        std::process::exit(1);
    }
}
