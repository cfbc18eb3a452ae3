"""`make bench`: every benchmark, one after the other."""

from benchmarks import prepare_scale

if __name__ == "__main__":
    prepare_scale.main()
