"""Built-in corpora: real tasks that need no download. One file each; its function's keywords are its options."""

from clockhands.data.corpora.numbers import numbers
from clockhands.data.corpora.roles import order_blind_ceiling, roles
from clockhands.data.corpora.stdlib import stdlib

__all__ = ["numbers", "order_blind_ceiling", "roles", "stdlib"]
