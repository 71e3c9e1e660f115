"""Pictures and the report: what a result looks like.

`gantt`, `activity`, `comparison` and their like draw a figure each; `document` is the report, which
a `*_page` of each kind of result fills. matplotlib and jinja2 are imported where they are used.
"""
