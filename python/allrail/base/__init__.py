"""What every room needs: errors, files and their manifest, stdin, arguments, numbers as text."""
