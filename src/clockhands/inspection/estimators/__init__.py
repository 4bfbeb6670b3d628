"""The statistics of the measures: intervals, probes, and spectral lines of a table."""
