"""Continuous queries in this process, without a JVM."""
