"""The cases of test_backends.py: every collective, compared with the same computed locally."""
