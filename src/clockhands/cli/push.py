"""``clockhands push``: a trained run to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from clockhands.cli.flags import POSITIONAL

EXAMPLES = ("clockhands push runs/numbers me/numbers --dry-run",)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is uploaded, and where to.

    Args:
        run: a finished run
        name: of the model on the hub: USER/MODEL
        private: make a repository that only you can see, if it is new
        revision: a branch that exists there (default: main)
        message: of the commit
        dry_run: list the files, and send nothing
    """

    run: Annotated[str, POSITIONAL]
    name: Annotated[str, POSITIONAL]
    private: bool = False
    revision: Annotated[str | None, "BRANCH"] = None
    message: Annotated[str | None, "TEXT"] = None
    dry_run: bool = False


def run(options: Options) -> int:
    """Upload, or say what would be uploaded."""
    from clockhands.runs.export import collect_files, push, refuse_name

    if options.dry_run:
        refuse_name(options.name)
        for path, content in collect_files(options.run).items():
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            print(f"{path}  {size:,} bytes")
        print(f"nothing was sent; without --dry-run these files become the model {options.name} on the hub")
        return 0
    address = push(
        options.run, options.name, private=options.private, revision=options.revision, message=options.message
    )
    print(address)
    return 0
