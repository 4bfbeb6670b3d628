"""Where trials run: worker processes of this machine (``local``), or a Ray cluster (``ray``)."""
