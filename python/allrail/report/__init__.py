"""Pictures and the report: what a result looks like.

`gantt`, `activity` and `comparison` draw a figure each; `page` writes the self-contained report.
matplotlib and jinja2 are imported where they are used.
"""
