"""Models of this project as models of transformers and back: positions, settings, parameters.

``position_table`` and ``position_keys`` translate positions, ``fields`` the other settings,
``pairs`` names the parameters that are the same numbers, and ``weights`` copies them.
"""
