"""The report: one HTML page and one Markdown page made of results, with charts and replica timelines.

- `figures`: numbers as people read them
- `chart_svg`: a chart as SVG, drawn by matplotlib
- `timeline_html`: replicas over time, as tables of HTML
- `html_page`, `markdown_page`: the pages
- `pages`: what is written where

Pages are strings that depend on nothing but the results and the designs, so that the same results give the same pages.
"""
