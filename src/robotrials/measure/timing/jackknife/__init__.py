"""The kernel of `measure.timing.resample`'s jackknife: every curve with one episode left out."""
