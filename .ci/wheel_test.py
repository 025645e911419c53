"""Build wheel and sdist, check that nothing is missing, and use the wheel from an empty folder.

``python .ci/wheel_test.py`` leaves both in ``dist/``. It needs git (what belongs to the project is what git
knows), hatchling, and the packages that deeptram depends on.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NOT_SHIPPED = (".ci/", ".github/", ".gitignore", ".pre-commit-config.yaml")
USE = """
import deeptram as dt, numpy as np
x = np.linspace(-1, 1, 50)[:, None]
model = dt.Polr(levels=["low", "high"]).fit(x, np.where(x[:, 0] > np.sin(9 * x[:, 0]), "high", "low"))
assert model.converged_
assert "site-packages" in dt.__file__, dt.__file__
"""


def run(*command: str | Path, **settings: object) -> str:
    """Run a command; return what it prints."""
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **settings).stdout


def check_content() -> None:
    """Every file of the package is in the wheel, every file of the project in the sdist."""
    known = run("git", "ls-files", cwd=ROOT).split("\n")[:-1]
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        inside = set(file.namelist())
    missing = [name for name in known if name.startswith("src/") and name.removeprefix("src/") not in inside]
    with tarfile.open(sdist) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
    missing += [name for name in known if not name.startswith(NOT_SHIPPED) and name not in packed]
    if missing:
        raise SystemExit(f"not in wheel or sdist: {missing}")


def use_wheel() -> None:
    """Install the wheel without its dependencies (those of this Python serve) and fit a model elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True, system_site_packages=False)
        python = Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python"
        run(python, "-m", "pip", "install", "-q", "--no-deps", *DIST.glob("*.whl"))
        site = Path(run(python, "-c", "import site; print(site.getsitepackages()[0])").strip())
        for number, path in enumerate(p for p in sys.path if p.endswith("site-packages")):
            (site / f"dependencies{number}.pth").write_text(path)
        empty = Path(folder) / "empty"
        empty.mkdir()
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        run(python, "-c", USE, cwd=empty, env=clean)
        print(run(python, "-m", "deeptram", "--version", cwd=empty, env=clean).strip())


if __name__ == "__main__":
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "hatchling", "build", "-d", DIST, cwd=ROOT)
    check_content()
    use_wheel()
    print(*(path.name for path in sorted(DIST.iterdir())), sep="\n")
