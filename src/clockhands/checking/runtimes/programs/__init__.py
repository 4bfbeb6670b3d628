"""The programs that can be checked: one module each, which registers itself."""

from clockhands.catalogue import import_modules

import_modules(__name__)
