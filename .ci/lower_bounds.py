"""Print the oldest versions that pyproject.toml allows, as constraints for pip.

``pip install -c oldest.txt ".[dev]"`` then installs what a user with an old environment has. The tools of
development (``dev``, ``docs``) are not part of what is promised and stay free. torch is the exception: its
builds of other versions bring gigabytes of GPU libraries, so the version of ``constraints.txt`` is used.
"""

import re
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).parents[1]
TOOLS = ("dev", "docs", "all", "cluster")


def lower_bounds() -> dict[str, str]:
    """Return the lower bound of every dependency of users, by the name of the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra, requirements in project["optional-dependencies"].items():
        if extra not in TOOLS:
            wanted += requirements
    found = (re.fullmatch(r"([\w.-]+)(?:\[[\w,.-]+\])?>=([\w.]+)", requirement) for requirement in wanted)
    bounds = {match[1]: match[2] for match in found if match}
    pinned = re.search(
        r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    return bounds | {"torch": pinned[1]}


if __name__ == "__main__":
    print("\n".join(f"{name}=={version}" for name, version in sorted(lower_bounds().items())))
