"""The command line: one file a verb, imported when it is used.

`verbs` lists them, `main` is the entry and turns errors into one message and an exit status,
`output` prints. Data go to stdout; warnings, errors and progress to stderr.
"""
