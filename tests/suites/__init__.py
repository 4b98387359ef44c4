"""The clients' own test suites against ottla, with security and without: `scripts/suites`."""
