"""Packs wheels of what the check for a GPU needs beside torch, for a machine that reaches no package index.

python benchmarks/gpu_pack.py [FOLDER] [--python 3.12] [--without numpy pandas]

There, in an environment that has torch: pip install --no-index FOLDER/*.whl, and python benchmarks/gpu.py.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BESIDE = ["fla-core"]  # Triton comes with torch
LEFT = {"torch", "wandb", "matplotlib", "plotly", "jinja2"}  # what training imports none of
SOURCE = "antlr4-python3-runtime"  # which the index has no wheel of
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17, 12, 5)] + ["manylinux2014_x86_64"]


def main() -> None:
    """Fill the folder, and say how large it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("gpu-pack"))
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    parser.add_argument("--python", default=own, help=f"the version of that machine's Python (default: {own})")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="packages that are there already")
    given = parser.parse_args()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = [name for name in needed if re.split(r"[<>=\[]", name)[0] not in LEFT] + BESIDE
    pip("wheel", "--no-deps", "-w", str(given.folder), SOURCE)
    where = [f"--platform={platform}" for platform in PLATFORMS]
    there = ["--only-binary=:all:", f"--python-version={given.python}", *where]
    pip("download", *there, f"--find-links={given.folder}", "-d", str(given.folder), *wanted)
    for name in given.without:
        for wheel in given.folder.glob(f"{name.replace('-', '_')}-*.whl"):
            wheel.unlink()
    wheels = list(given.folder.glob("*.whl"))
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    print(f"gpu-pack: {len(wheels)} wheels, {size:.0f} MB, in {given.folder}")


def pip(*arguments: str) -> None:
    """Have pip do something with the versions that are pinned; it must end well."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    if code := subprocess.run([*command, "-c", str(ROOT / "constraints.txt")]).returncode:
        sys.exit(code)


if __name__ == "__main__":
    main()
