"""A wheel with copies for GPUs imports on any machine, says what is missing, and needs no CUDA library.

Run by `make cuda-check` on the unpacked wheel. On error: exits with what is wrong.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import hicache
from hicache import _hicache

#: What the system's C runtime is made of; anything else would have to be installed.
SYSTEM = ("libc.so", "libgcc_s.so", "libm.so", "libdl.so", "librt.so", "libpthread.so", "ld-linux")


def main() -> None:
    library = Path(_hicache.__file__)
    if "wheel" not in library.parts:
        sys.exit(f"error: {library} is not the unpacked wheel's: the wrong build was imported")
    status = _hicache.cuda_status()
    driver = Path("/proc/driver/nvidia/version").exists() or Path("/dev/nvidia0").exists()
    expected = ("ok", "no device") if driver else ("no driver",)
    if status not in expected:
        sys.exit(
            f"error: cuda_status() says {status!r} on a machine {'with' if driver else 'without'} a driver"
        )
    if not driver:
        try:
            _hicache.Gpu(0, 1, [1, 1], [0, 0], [1, 1])
        except RuntimeError as error:
            if not str(error).startswith("no driver"):
                sys.exit(f"error: without a driver, the copies say: {error}")
        else:
            sys.exit("error: without a driver, the copies started")
    needed = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    names = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
    if foreign := [name for name in names if not name.startswith(SYSTEM)]:
        sys.exit(f"error: the extension needs {foreign}: the wheel would not load everywhere")
    print(f"{Path(hicache.__file__).parent} imports; GPU copies: {status}")


main()
