"""Pictures and tables of single publications, for their reports."""
