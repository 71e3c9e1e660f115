"""Readers of other tools' files: one package a tool, each gives scenarios of allrail."""
