"""The wheel: `pip install ./python`. CMake builds the native half in build/release, which ./run and ./test use, too,
so that after them only the packing is left. The wheel needs the shared libraries that the build had."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build" / "release"


class NativeHalf(build_ext):
    def build_extension(self, ext: Extension) -> None:
        # The interpreter itself, not a virtual environment that may be gone tomorrow: CMake remembers it.
        python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        subprocess.run(
            [
                "cmake",
                "--preset",
                "release",
                "-DORRERY_PYTHON=ON",
                f"-DPython_EXECUTABLE={python}",
                f"-DPython3_EXECUTABLE={python}",
            ],
            cwd=ROOT,
            check=True,
        )
        subprocess.run(["cmake", "--build", str(BUILD), "--target", "orrery_core"], check=True)
        target = pathlib.Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        built = BUILD / "python" / "orrery"
        shutil.copy2(built / target.name, target)
        if (built / "measured.sqlite").exists():
            shutil.copy2(built / "measured.sqlite", target.parent)


class WithoutTests(build_py):
    def find_package_modules(self, package, package_dir):
        modules = super().find_package_modules(package, package_dir)
        return [module for module in modules if not module[1].startswith("test_")]


VERSION = re.search(r"project\(orrery VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]
setup(
    version=VERSION,
    ext_modules=[Extension("orrery._core", sources=[])],
    cmdclass={"build_ext": NativeHalf, "build_py": WithoutTests},
)
