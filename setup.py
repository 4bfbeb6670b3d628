"""What pyproject.toml cannot say: the version, recipes beside the package, and a README whose links resolve.

Everything else about the build stands in pyproject.toml.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


def package_readme(text: str, repository: str | None) -> str:
    """The README for where no other file of the repository lies beside it (a package index).

    With the address of the repository, relative links become links there and images are taken from there. Without,
    there is nothing to link to: a link becomes its text and the path in the source distribution, an image its caption.
    """

    def rewritten(match: re.Match[str]) -> str:
        image, told, target = match.groups()
        if re.match(r"[a-z]+:|#", target):
            return match.group()
        if repository:
            return f"{image}[{told}]({repository.rstrip('/')}/{'raw' if image else 'blob'}/main/{target})"
        return f"*{told}*" if image else told if told == target else f"{told} (`{target}`)"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)", rewritten, text)


def declared_repository() -> str | None:
    """The Repository of ``[project.urls]``; None where no address is declared."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    return project.get("urls", {}).get("Repository")


def find_version() -> str:
    """The version in the package, and in a checkout that is not at its tag how many commits it has, and which is last.

    A source distribution says its version itself (PKG-INFO); an export without .git has the one in the package.
    """
    if (ROOT / "PKG-INFO").is_file():
        return re.findall(r"^Version: (.+)$", (ROOT / "PKG-INFO").read_text("utf8"), re.MULTILINE)[0]
    (version,) = re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/clockhands/__init__.py").read_text("utf8"), re.M)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        # A folder without .git may lie in a checkout of something else.
        if not (ROOT / ".git").exists() or f"v{version}" in git("tag", "--points-at", "HEAD").split():
            return version
        return f"{version}.dev{git('rev-list', '--count', 'HEAD')}+g{git('rev-parse', '--short', 'HEAD')}"
    except (OSError, subprocess.CalledProcessError):
        return version


class BuildWithRecipes(build_py):
    """Copies recipes/ into the package: in a checkout they are where people look for them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "clockhands" / "recipes"
            folder.mkdir(parents=True, exist_ok=True)
            for recipe in sorted((ROOT / "recipes").glob("*.toml")):
                shutil.copy2(recipe, folder / recipe.name)


if __name__ == "__main__":
    setup(
        version=find_version(),
        long_description=package_readme((ROOT / "README.md").read_text("utf8"), declared_repository()),
        long_description_content_type="text/markdown",
        cmdclass={"build_py": BuildWithRecipes},
    )
