"""What is checked on a GPU, as a program (`python tests/gpu`), and rehearsed on CPUs by pytest."""
