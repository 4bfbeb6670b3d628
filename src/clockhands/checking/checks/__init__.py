"""The checks, by what they are about. Every module of this package is imported with it, and registers its checks."""

from clockhands.catalogue import import_modules

import_modules(__name__)
