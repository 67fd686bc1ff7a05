"""Release artefacts: builders for everything that `make dist` writes besides sdist and wheel."""
