"""What a release promises: addresses, extras, versions, workflows and make targets fit one another."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def project():
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    return tomllib.loads(read("pyproject.toml"))["project"]


def test_links_of_the_readme_are_absolute_and_lead_to_pages(project):
    links = re.findall(r"\]\(([^)]*)\)", read("README.md"))
    assert links
    assert [link for link in links if not link.startswith("https://")] == []
    urls = project["urls"]
    for link in links:
        if link.startswith(urls["Documentation"]):
            page = link.removeprefix(urls["Documentation"]) or "index.html"
            generated = page.startswith("reference/")
            assert generated or (ROOT / "docs" / page).with_suffix(".md").is_file(), link
        elif link.startswith(urls["Homepage"]):
            assert (ROOT / link.removeprefix(f"{urls['Homepage']}/blob/main/")).is_file(), link


def test_the_site_has_the_address_of_the_project(project):
    assert f"site_url: {project['urls']['Documentation']}\n" in read("mkdocs.yml")
    assert read("SECURITY.md").count(project["urls"]["Homepage"]) == 1


def test_every_extra_is_explained_where_one_installs(project):
    extras = set(project["optional-dependencies"]) - {"dev", "docs"}
    table = "\n".join(line for line in read("docs/start/index.md").splitlines() if line.startswith("| `"))
    assert extras == set(re.findall(r"`(\w+)`", table))
    assert extras <= set(re.findall(r"`(\w+)`", read("README.md")))


def test_a_newcomer_finds_the_call_for_every_kind_of_outcome_in_the_readme():
    table = "\n".join(line for line in read("README.md").splitlines() if line.startswith("| "))
    for call in (
        "pd.Categorical(",
        "dt.Surv.right(",
        "dt.Polr",
        "dt.Coxph",
        "dt.Cotram",
        "dt.BoxCox",
        "dt.Logit",
    ):
        assert call in table
    assert 'dt.Tram(outcome="nominal")' in table


def test_workflows_call_targets_that_exist_on_the_versions_that_are_declared(project):
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    workflows = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / ".github/workflows").glob("*.yml")
    )
    called = set(re.findall(r"\bmake ([a-z-]+)", workflows))
    assert {"check", "docs", "test-oldest", "test-newest", "wheel-test", "coverage"} <= called
    assert called <= targets
    declared = re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"]))
    tested = re.search(r"python: (\[.*\])", workflows)
    assert tested
    assert re.findall(r"3\.\d+", tested[1]) == declared


def test_workflows_and_templates_are_yaml():
    yaml = pytest.importorskip("yaml")
    files = [ROOT / ".pre-commit-config.yaml", *(ROOT / ".github").rglob("*.yml")]
    assert len(files) == 7
    for path in files:
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), path


def test_the_oldest_versions_are_the_lower_bounds(project):
    spec = importlib.util.spec_from_file_location("lower_bounds", ROOT / ".ci" / "lower_bounds.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    bounds = module.lower_bounds()
    named = {re.split(r"[\[>]", requirement)[0] for requirement in project["dependencies"]}
    assert named <= set(bounds)
    assert f"torch=={bounds['torch']}\n" in read("constraints.txt")
    assert f"numpy>={bounds['numpy']}" in project["dependencies"]


def test_the_files_of_clusters_are_well_formed():
    yaml = pytest.importorskip("yaml")
    folder = ROOT / "docs/assets/cluster"
    services = yaml.safe_load((folder / "compose.yaml").read_text())["services"]
    assert set(services) == {"install", "scheduler", "worker"}
    assert all({"image", "command"} <= set(service) for service in services.values())
    cluster = yaml.safe_load((folder / "kubernetes.yaml").read_text())
    assert (cluster["apiVersion"], cluster["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    for part in ("worker", "scheduler"):
        assert {"name", "image", "args"} <= set(cluster["spec"][part]["spec"]["containers"][0])
