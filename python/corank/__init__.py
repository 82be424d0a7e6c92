"""Runs the program corank on clusters; see corank.ray."""
