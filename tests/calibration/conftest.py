"""What several test files of this folder set."""

from tests.comparison.conftest import few_draws

__all__ = ["few_draws"]
