"""What is built is whole: the source distribution is what git keeps, the wheel what runs, and its links resolve."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from types import ModuleType

import pytest

from tests.shared import load_script

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
# What setuptools writes besides the files of the repository.
MADE = re.compile(r"PKG-INFO|setup\.cfg|(src/)?clockhands\.egg-info/.*")


def kept() -> set[str]:
    """The files that git keeps, or will with the next commit."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is no checkout: nobody knows what git keeps")
    return {name for name in listed.splitlines() if (ROOT / name).is_file()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], zipfile.ZipFile]:
    """The files of the source distribution, and the wheel that is built from it alone."""
    pytest.importorskip("setuptools", minversion="77", reason="setuptools builds the distributions")
    folder = tmp_path_factory.mktemp("packaging")
    for name in kept():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "tree" / name)

    def build(what: str, tree: Path) -> Path:
        code = f"import setuptools.build_meta as backend; backend.build_{what}({str(folder)!r})"
        subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True)
        (made,) = folder.glob("*.tar.gz" if what == "sdist" else "*.whl")
        return made

    with tarfile.open(build("sdist", folder / "tree")) as source:
        source.extractall(folder / "source", filter="data")
    (tree,) = (folder / "source").iterdir()
    names = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    return names, zipfile.ZipFile(build("wheel", tree))


def test_the_source_distribution_is_what_git_keeps_without_results_and_data(
    built: tuple[set[str], zipfile.ZipFile],
) -> None:
    names = {name for name in built[0] if not MADE.fullmatch(name)}
    left = kept() - names
    assert names < kept(), "MANIFEST.in lists what the repository does not hold"
    assert {name.split("/")[0] for name in left} <= {"docs", "tests"}
    assert not [name for name in left if name.endswith((".py", ".md", ".toml"))], "MANIFEST.in leaves out a source"


def test_the_version_is_that_of_the_package_with_the_commit_of_a_checkout(
    setup_script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a checkout before its tag, at its tag, in an export without .git, and in a source distribution."""
    (tmp_path / "src/clockhands").mkdir(parents=True)
    (tmp_path / "src/clockhands/__init__.py").write_text('__version__ = "3.1.0"\n')
    monkeypatch.setattr(setup_script, "ROOT", tmp_path)
    assert setup_script.find_version() == "3.1.0"

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "a")
    assert re.fullmatch(r"3\.1\.0\.dev1\+g[0-9a-f]{7,}", setup_script.find_version())
    git("tag", "v3.1.0")
    assert setup_script.find_version() == "3.1.0"
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: clockhands\nVersion: 2.0.dev7+gabc\n")
    assert setup_script.find_version() == "2.0.dev7+gabc"


def test_the_wheel_holds_the_package_with_its_data_and_the_recipes_and_nothing_else(
    built: tuple[set[str], zipfile.ZipFile],
) -> None:
    names = {name for name in built[1].namelist() if ".dist-info/" not in name}
    package = {name.removeprefix("src/") for name in kept() if name.startswith("src/")}
    recipes = {f"clockhands/{name}" for name in kept() if name.startswith("recipes/")}
    assert recipes and names == package | recipes
    assert "clockhands/py.typed" in names


def test_the_readme_of_the_package_has_no_link_that_only_a_checkout_resolves(
    built: tuple[set[str], zipfile.ZipFile],
) -> None:
    (name,) = (name for name in built[1].namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(built[1].read(name).decode("utf8"))
    text = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert text.startswith("# Clockhands")
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert not [target for target in targets if not re.match(r"https?://|#", target)]
    assert len(text) > 0.9 * len((ROOT / "README.md").read_text("utf8"))


@pytest.fixture(scope="module")
def setup_script() -> ModuleType:
    pytest.importorskip("setuptools")
    return load_script(ROOT / "setup.py", "clockhands_setup")


def test_relative_links_become_addresses_where_the_repository_is_known(setup_script: ModuleType) -> None:
    text = "[a](docs/a.md) ![b *c*](docs/b.svg) [d](https://d.org/x) [e](#f) [x.md](x.md)"
    assert setup_script.package_readme(text, "https://host/x/") == (
        "[a](https://host/x/blob/main/docs/a.md) ![b *c*](https://host/x/raw/main/docs/b.svg) "
        "[d](https://d.org/x) [e](#f) [x.md](https://host/x/blob/main/x.md)"
    )
    assert setup_script.package_readme(text, None) == ("a (`docs/a.md`) *b *c** [d](https://d.org/x) [e](#f) x.md")
    assert setup_script.declared_repository() == PROJECT.get("urls", {}).get("Repository")


def test_every_relative_link_of_the_readme_leads_to_a_file() -> None:
    targets = re.findall(r"\]\(([^)\s#]+)", (ROOT / "README.md").read_text("utf8"))
    relative = [target for target in targets if "://" not in target]
    assert relative and all((ROOT / target).exists() for target in relative)


def test_the_readme_is_one_screen_with_four_links() -> None:
    text = (ROOT / "README.md").read_text("utf8")
    assert len(text.splitlines()) <= 40
    assert len(re.findall(r"(?<!!)\[[^\]]*\]\(", text)) == 4
