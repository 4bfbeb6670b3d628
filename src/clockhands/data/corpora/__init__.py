"""Built-in corpora: real tasks that need no download. Every module here is imported, and registers its corpus."""

from clockhands.catalogue import import_modules

import_modules(__name__)
