"""Statistics of scores by seed × test item: the methods by which verdicts are reached. They know no plan and no trial.

``paired``: the difference of two variants, with its interval. ``simultaneous``: of many variants from one baseline.
``variance``: what the variance of a mean is made of, which difference could have been detected, and whether items hang
together without being told. ``exact``: exact intervals and tests of shares, counts and ranks."""
