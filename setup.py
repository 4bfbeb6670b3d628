"""What pyproject.toml cannot say: recipes are installed with the package, and its README has links that resolve.

Everything else about the build stands in pyproject.toml.
"""

from __future__ import annotations

import re
import shutil
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
        long_description=package_readme((ROOT / "README.md").read_text("utf8"), declared_repository()),
        long_description_content_type="text/markdown",
        cmdclass={"build_py": BuildWithRecipes},
    )
