"""What comes out, as data: results, plans, comparisons, known errors."""
