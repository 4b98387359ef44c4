"""The designs, one file for each. `ottla.lab.design` finds them here and says what such a file has."""
