"""The statistics of the measures: intervals, shares of variance, probes, and the spectral lines of a table."""
