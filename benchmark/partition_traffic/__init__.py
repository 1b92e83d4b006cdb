"""The rows and bytes that an epoch fetches, by policy and training set."""
