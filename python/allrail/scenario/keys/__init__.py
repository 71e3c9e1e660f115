"""The parts of a scenario: what each may say, its default and range; generated, a file a part."""
