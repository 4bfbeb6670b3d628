"""``clockhands push``: a trained run to the Hugging Face hub."""

from __future__ import annotations

import argparse

__all__ = ["EXAMPLES", "arguments", "run"]

EXAMPLES = ("clockhands push runs/numbers me/numbers --dry-run",)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", help="a finished run")
    parser.add_argument("name", help="of the model on the hub: USER/MODEL")
    parser.add_argument("--private", action="store_true", help="make a repository that only you can see, if it is new")
    parser.add_argument("--revision", metavar="BRANCH", help="a branch that exists there (default: main)")
    parser.add_argument("--message", metavar="TEXT", help="of the commit")
    parser.add_argument("--dry-run", action="store_true", help="list the files, and send nothing")


def run(options: argparse.Namespace) -> int:
    """Upload, or say what would be uploaded."""
    from clockhands.runs.hub import collect_files, push_run, refuse_name

    if options.dry_run:
        refuse_name(options.name)
        for path, content in collect_files(options.run).items():
            size = len(content) if isinstance(content, bytes) else content.stat().st_size
            print(f"{path}  {size:,} bytes")
        print(f"nothing was sent; without --dry-run these files become the model {options.name} on the hub")
        return 0
    address = push_run(
        options.run, options.name, private=options.private, revision=options.revision, message=options.message
    )
    print(address)
    return 0
