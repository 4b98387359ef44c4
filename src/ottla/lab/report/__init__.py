"""The report: one HTML page and one Markdown page made of results, with charts and replica timelines."""
