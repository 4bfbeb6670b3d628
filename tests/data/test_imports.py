"""What importing the text side costs."""

from __future__ import annotations

import subprocess
import sys


def test_importing_data_imports_no_transformers_and_no_datasets() -> None:
    code = (
        "import sys, clockhands.data; print([m for m in ('transformers', 'datasets', 'num2words') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
